//! First writes of logical zones that wait for room on a drive, and the reclaim that makes room for them.

use std::sync::atomic::{AtomicU32, Ordering};

use parking_lot::Mutex;
use units::sync::Event;
use zoned::{Completer, Done, Error};

use crate::layout::Slot;

/// The requests for room on drives. They are accepted while a reclaim runs for the array.
#[derive(Debug, Default)]
pub(crate) struct RoomRequests {
    /// `None` while no reclaim runs for the array, or a rebuild keeps parts in their places.
    waiting: Mutex<Option<Vec<(Slot, Completer)>>>,
    /// Each drive is to have this number of empty physical zones, by order; 0 without an order.
    ordered: AtomicU32,
    /// Notified when room is requested, taken or given up, and when a reset ends.
    pub changed: Event,
}

impl RoomRequests {
    /// Orders a reclaim until each drive has `empty` empty physical zones or no garbage. False if no reclaim runs for the array.
    pub(crate) fn order(&self, empty: u32) -> bool {
        if self.waiting.lock().is_none() {
            return false;
        }
        self.ordered.fetch_max(empty, Ordering::AcqRel);
        self.changed.notify();
        true
    }

    /// The number of empty physical zones of each drive that an order asks for.
    pub(crate) fn ordered(&self) -> u32 {
        self.ordered.load(Ordering::Acquire)
    }

    /// An order for `empty` empty physical zones is carried out, unless another one asks for more.
    pub(crate) fn order_done(&self, empty: u32) {
        // A failed exchange leaves the order for more.
        let _kept = self.ordered.compare_exchange(empty, 0, Ordering::AcqRel, Ordering::Relaxed);
    }

    /// Accepts requests from now on.
    pub(crate) fn open(&self) {
        self.waiting.lock().get_or_insert_default();
    }

    /// Accepts no requests until they are [opened](RoomRequests::open) again, and refuses those that wait with `error`.
    pub(crate) fn close(&self, error: &Error) {
        self.ordered.store(0, Ordering::Release);
        // The completers wake their waiters without the lock.
        let refused = self.waiting.lock().take();
        for (_, completer) in refused.into_iter().flatten() {
            completer.complete(Err(error.duplicate()));
        }
    }

    /// Requests room on the drive in `slot`. `completer` is completed when the reclaim has freed a physical zone, or finds that none can
    /// be freed. Gives the completer back if no reclaim runs for the array.
    pub(crate) fn ask(&self, slot: Slot, completer: Completer) -> Result<(), Completer> {
        match &mut *self.waiting.lock() {
            Some(waiting) => waiting.push((slot, completer)),
            None => return Err(completer),
        }
        self.changed.notify();
        Ok(())
    }

    /// The drives on which room is requested.
    pub(crate) fn slots(&self) -> Vec<Slot> {
        self.waiting.lock().iter().flatten().map(|(slot, _)| *slot).collect()
    }

    /// True if a first write waits for room.
    pub(crate) fn any(&self) -> bool {
        self.waiting.lock().as_ref().is_some_and(|waiting| !waiting.is_empty())
    }

    /// Answers all requests for room on the drive in `slot`: they look for room again, or fail with `error`.
    pub(crate) fn answer(&self, slot: Slot, error: Option<&Error>) {
        let answered: Vec<(Slot, Completer)> = match &mut *self.waiting.lock() {
            Some(waiting) => waiting.extract_if(.., |(of, _)| *of == slot).collect(),
            None => Vec::new(),
        };
        for (_, completer) in answered {
            completer.complete(error.map_or(Ok(Done::Unit), |error| Err(error.duplicate())));
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use units::{Driver, VirtualDriver, block_on};
    use zoned::{ErrorKind, Io};

    use super::*;

    #[test]
    fn requests_are_answered_by_drive_and_refused_without_a_reclaim() {
        let driver: Arc<dyn Driver> = VirtualDriver::new(1);
        let name: Arc<str> = Arc::from("array");
        let (requests, error) = (RoomRequests::default(), Error::new(ErrorKind::NoSpace, &name, "write"));
        let pair = || Io::pair(&driver, &name);
        assert!(requests.ask(Slot(0), pair().0).is_err(), "no reclaim runs");
        requests.open();
        let (one, other, third) = (pair(), pair(), pair());
        for (slot, completer) in [(0, one.0), (1, other.0), (2, third.0)] {
            assert!(requests.ask(Slot(slot), completer).is_ok());
        }
        requests.answer(Slot(0), None);
        assert_eq!(requests.slots(), [Slot(1), Slot(2)]);
        requests.answer(Slot(1), Some(&error));
        requests.close(&error);
        assert!(!requests.any() && requests.ask(Slot(0), pair().0).is_err());
        block_on(&*driver, async {
            assert!(one.1.await.is_ok());
            assert_eq!(other.1.await.expect_err("refused").kind(), ErrorKind::NoSpace);
            assert_eq!(third.1.await.expect_err("refused").kind(), ErrorKind::NoSpace);
        });
    }
}
