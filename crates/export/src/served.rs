//! The queues of an export that are served, and why one is not any more.

use std::io;
use std::sync::Arc;

use parking_lot::Mutex;
use zoned::Error;

use crate::driver;

/// The queues of an export that are served.
#[derive(Default)]
pub(crate) struct Served(Mutex<State>);

#[derive(Default)]
struct State {
    count: usize,
    failure: Option<Error>,
}

/// A queue that is served until this is dropped.
pub(crate) struct ServedQueue(Arc<Served>);

impl Served {
    /// Counts a queue as served.
    pub(crate) fn begin(self: &Arc<Served>) -> ServedQueue {
        self.0.lock().count += 1;
        ServedQueue(Arc::clone(self))
    }

    /// Number of queues that are served.
    pub(crate) fn count(&self) -> usize {
        self.0.lock().count
    }

    /// Why a queue ended other than by the stop of the block device.
    pub(crate) fn failure(&self) -> Option<Error> {
        self.0.lock().failure.as_ref().map(Error::duplicate)
    }
}

impl ServedQueue {
    /// Ends the queue, with its failure.
    pub(crate) fn end(self, ended: io::Result<()>) {
        if let Err(error) = ended {
            self.0.0.lock().failure = Some(driver::failed("serving a queue of the block device", error));
        }
    }
}

impl Drop for ServedQueue {
    fn drop(&mut self) {
        // Also where a thread of a queue panics: the export ends, instead of leaving its users waiting.
        self.0.0.lock().count -= 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_queue_whose_thread_panics_is_served_no_longer() {
        let served = Arc::new(Served::default());
        let (first, second) = (served.begin(), served.begin());
        let panicked = std::thread::Builder::new().spawn(move || {
            let _queue = first;
            panic!("a defect");
        });
        assert!(panicked.expect("a thread").join().is_err());
        assert_eq!((served.count(), served.failure().is_none()), (1, true));
        second.end(Err(io::Error::from_raw_os_error(libc::EINVAL)));
        assert_eq!(served.count(), 0);
        assert!(served.failure().expect("a failure").to_string().contains("queue"));
    }
}
