//! Clients' reads of a zone that are in flight: a physical zone that a part has left is reset once the reads that may go to it have ended.
//! Writes of parity that no write of the zone waits for hold a guard too.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock, Weak};

use units::sync::Event;

/// The reads of a zone that began since its parts have their places, and writes of parity that waited for the addresses of appends.
#[derive(Debug, Default)]
pub(crate) struct Readers(Weak<Reading>);

/// Held by each read, or write of such parity, from its beginning to its end.
#[derive(Debug)]
pub(crate) struct ReadGuard {
    _reading: Arc<Reading>,
}

/// The end of all reads that began before a part got another place.
pub(crate) struct ReadsBefore(Option<Arc<Ended>>);

/// Dropped with the last read that holds it. A move waits for the drop.
#[derive(Debug, Default)]
struct Reading(OnceLock<Arc<Ended>>);

#[derive(Debug, Default)]
struct Ended {
    is_over: AtomicBool,
    over: Event,
}

impl Readers {
    /// The guard of a read that begins.
    pub(crate) fn begin(&mut self) -> ReadGuard {
        let reading = self.0.upgrade().unwrap_or_else(|| {
            let reading = Arc::default();
            self.0 = Arc::downgrade(&reading);
            reading
        });
        ReadGuard { _reading: reading }
    }

    /// Separates the reads that began until now from those that begin later.
    pub(crate) fn separate(&mut self) -> ReadsBefore {
        let reading = std::mem::take(&mut self.0).upgrade();
        ReadsBefore(reading.map(|reading| Arc::clone(reading.0.get_or_init(Arc::default))))
    }
}

impl Drop for Reading {
    fn drop(&mut self) {
        if let Some(ended) = self.0.get() {
            ended.is_over.store(true, Ordering::Release);
            ended.over.notify();
        }
    }
}

impl ReadsBefore {
    /// Waits until all of these reads have ended.
    pub(crate) async fn end(self) {
        let Some(ended) = self.0 else { return };
        loop {
            let seen = ended.over.version();
            if ended.is_over.load(Ordering::Acquire) {
                return;
            }
            ended.over.changed_since(seen).await;
        }
    }
}

#[cfg(test)]
mod tests {
    use std::pin::pin;
    use std::task::{Context, Poll, Waker};

    use super::*;

    #[test]
    fn reads_that_began_before_are_waited_for_and_later_ones_are_not() {
        let mut readers = Readers::default();
        let (first, second) = (readers.begin(), readers.begin());
        let mut before = pin!(readers.separate().end());
        let later = readers.begin();
        let mut poll = || before.as_mut().poll(&mut Context::from_waker(Waker::noop()));
        assert_eq!(poll(), Poll::Pending);
        drop(first);
        assert_eq!(poll(), Poll::Pending);
        drop(second);
        assert_eq!(poll(), Poll::Ready(()));
        drop(later);
        let mut none = pin!(Readers::default().separate().end());
        assert_eq!(none.as_mut().poll(&mut Context::from_waker(Waker::noop())), Poll::Ready(()));
    }
}
