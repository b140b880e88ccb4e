//! A device that writes down what happens to it.

use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use units::sleep_until;
use zoned::{Driver, Geometry, Io, Op, ZonedDevice};

use crate::trace::{Event, OpNumber, Step, copy_of};

/// Passes every operation on and records it, in the order in which the device took them.
///
/// An acknowledgement is recorded when the caller can see it, and no earlier. `jitter` delays each by a random
/// time below it, so that operations overlap and complete out of order.
#[derive(Debug)]
pub struct Recorder {
    inner: Arc<dyn ZonedDevice>,
    log: Arc<Mutex<Log>>,
    jitter: Duration,
}

#[derive(Debug, Default)]
struct Log {
    next: u64,
    events: Vec<Event>,
}

impl Recorder {
    /// A recorder over `inner`.
    pub fn new(inner: Arc<dyn ZonedDevice>, jitter: Duration) -> Arc<Recorder> {
        Arc::new(Recorder { inner, log: Arc::default(), jitter })
    }

    /// The workload is about to do `step`.
    pub fn attempt(&self, step: Step) {
        self.mark(Event::Attempt { step });
    }

    /// The workload may rely on `step` from here on.
    pub fn acknowledged(&self, step: Step) {
        self.mark(Event::Acknowledged { step });
    }

    /// `step` failed without effect.
    pub fn failed(&self, step: Step) {
        self.mark(Event::Failed { step });
    }

    /// The file system stands: cuts are taken from here on.
    pub fn ready(&self) {
        self.mark(Event::Ready);
    }

    /// Takes the events so far out.
    pub fn take(&self) -> Vec<Event> {
        std::mem::take(&mut self.log.lock().events)
    }

    fn mark(&self, event: Event) {
        self.log.lock().events.push(event);
    }
}

impl ZonedDevice for Recorder {
    fn geometry(&self) -> &Geometry {
        self.inner.geometry()
    }

    fn submit(&self, op: Op) -> Io {
        let Some(what) = copy_of(&op) else { return self.inner.submit(op) };
        // Under the lock, so that the recorded order is the order in which the device applied them.
        let (number, io) = {
            let mut log = self.log.lock();
            let number = OpNumber(log.next);
            log.next += 1;
            log.events.push(Event::Submit { op: number, what });
            (number, self.inner.submit(op))
        };
        let driver = Arc::clone(self.driver());
        let (log, jitter) = (Arc::clone(&self.log), self.jitter);
        Io::spawn(&Arc::clone(&driver), &self.geometry().name, async move {
            let result = io.await;
            let most = u64::try_from(jitter.as_nanos()).unwrap_or(u64::MAX);
            if let Some(delay) = driver.random().checked_rem(most) {
                sleep_until(&*driver, driver.now().after(Duration::from_nanos(delay))).await;
            }
            if result.is_ok() {
                log.lock().events.push(Event::Acked { op: number });
            }
            result
        })
    }

    fn driver(&self) -> &Arc<dyn Driver> {
        self.inner.driver()
    }
}
