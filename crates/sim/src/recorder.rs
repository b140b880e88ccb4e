//! A zoned device that records its operations.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use units::sleep_until;
use zoned::{Buf, Done, Driver, Geometry, Io, Lba, Op, ZonedDevice};

use crate::trace::{Event, OpNumber, Step, copy_of};

/// Passes every operation to the device below and records it, in the order in which that device took them.
///
/// An acknowledgement is recorded when the caller can see it, and no earlier. `jitter` delays each by a random time below it,
/// so that operations overlap and complete out of order.
pub struct Recorder {
    inner: Arc<dyn ZonedDevice>,
    log: Arc<Mutex<Log>>,
    jitter: Duration,
    /// Longest delay of a late append: one append in [`LATE_APPEND_EVERY`] is late, and one in [`LATE_APPEND_AT_ZONE_END_EVERY`] at a zone's end.
    tail: Duration,
    /// The function that takes the events, instead of the recorder's own list.
    sink: Option<EventSink>,
}

/// One append in this many is acknowledged late; see [`Recorder::with_late_appends`].
const LATE_APPEND_EVERY: u64 = 24;
/// Appends within this many blocks of their zone's end are late more often, so that a zone replacement finds appends in flight.
const BLOCKS_AT_ZONE_END: u64 = 8;
const LATE_APPEND_AT_ZONE_END_EVERY: u64 = 2;

/// A function that takes recorded events.
pub(crate) type EventSink = Arc<dyn Fn(Event) + Send + Sync>;

#[derive(Debug, Default)]
struct Log {
    next: u64,
    events: Vec<Event>,
}

impl Recorder {
    /// A recorder of the operations on `inner`.
    pub fn new(inner: Arc<dyn ZonedDevice>, jitter: Duration) -> Arc<Recorder> {
        Recorder::with_late_appends(inner, jitter, Duration::ZERO)
    }

    /// A recorder that delays some appends for very long, so that background jobs run while these appends are in flight.
    pub(crate) fn with_late_appends(
        inner: Arc<dyn ZonedDevice>,
        jitter: Duration,
        tail: Duration,
    ) -> Arc<Recorder> {
        Arc::new(Recorder { inner, log: Arc::default(), jitter, tail, sink: None })
    }

    /// A recorder that passes its events to `sink`, with operation numbers of its own. For a device above several recorded
    /// drives.
    pub(crate) fn above(
        inner: Arc<dyn ZonedDevice>,
        jitter: Duration,
        tail: Duration,
        sink: EventSink,
    ) -> Arc<Recorder> {
        Arc::new(Recorder { inner, log: Arc::default(), jitter, tail, sink: Some(sink) })
    }

    /// A recorder of another drive. Both recorders draw their operation numbers from one counter.
    pub(crate) fn sibling(&self, inner: Arc<dyn ZonedDevice>, sink: EventSink) -> Arc<Recorder> {
        let log = Arc::clone(&self.log);
        Arc::new(Recorder { inner, log, jitter: self.jitter, tail: self.tail, sink: Some(sink) })
    }

    /// Records that the workload is about to do `step`.
    pub fn attempt(&self, step: Step) {
        self.mark(Event::Attempt { step });
    }

    /// Records that `step` is promised to be durable from here on.
    pub fn acknowledged(&self, step: Step) {
        self.mark(Event::Acknowledged { step });
    }

    /// Records that `step` failed without effect.
    pub fn failed(&self, step: Step) {
        self.mark(Event::Failed { step });
    }

    /// Records that `bytes` of files are in memory only.
    pub fn dirty(&self, bytes: u64) {
        self.mark(Event::Dirty { bytes });
    }

    /// Records that the file system is formatted and mounted: cuts are taken from here on.
    pub fn ready(&self) {
        self.mark(Event::Ready);
    }

    /// Takes the events recorded so far.
    pub fn take(&self) -> Vec<Event> {
        std::mem::take(&mut self.log.lock().events)
    }

    fn mark(&self, event: Event) {
        self.log.lock().add(&self.sink, event);
    }
}

/// Whether a block is among the last [`BLOCKS_AT_ZONE_END`] of its zone.
fn is_at_end(geometry: &Geometry, at: Lba) -> bool {
    geometry
        .zone_of(at)
        .is_some_and(|zone| at.0 + BLOCKS_AT_ZONE_END >= geometry.start(zone).0 + geometry.zone_capacity.0)
}

impl Log {
    fn add(&mut self, sink: &Option<EventSink>, event: Event) {
        match sink {
            Some(sink) => sink(event),
            None => self.events.push(event),
        }
    }
}

impl fmt::Debug for Recorder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "recorded {:?}", self.inner)
    }
}

impl ZonedDevice for Recorder {
    fn geometry(&self) -> &Geometry {
        self.inner.geometry()
    }

    fn submit(&self, op: Op) -> Io {
        // The layer above uses the buffer of a write again if nobody shares the buffer: the recorder must not.
        let Some(what) = copy_of(&op, |data| Buf::copy_from(data)) else { return self.inner.submit(op) };
        let may_be_late = !self.tail.is_zero() && matches!(op, Op::Append { .. });
        // The operation is submitted under the lock, so that operations are recorded in the order in which the device takes
        // them.
        let (number, io) = {
            let mut log = self.log.lock();
            let number = OpNumber(log.next);
            log.next += 1;
            log.add(&self.sink, Event::Submit { op: number, what });
            (number, self.inner.submit(op))
        };
        let driver = Arc::clone(self.driver());
        let (log, sink) = (Arc::clone(&self.log), self.sink.clone());
        let (jitter, tail) = (self.jitter, self.tail);
        let inner = Arc::clone(&self.inner);
        Io::spawn(&Arc::clone(&driver), &self.geometry().name, async move {
            let result = io.await;
            let often = match &result {
                Ok(Done::At(at)) if is_at_end(inner.geometry(), *at) => LATE_APPEND_AT_ZONE_END_EVERY,
                _ => LATE_APPEND_EVERY,
            };
            let late = may_be_late && driver.random().is_multiple_of(often);
            let most = if late { tail } else { jitter };
            let most = u64::try_from(most.as_nanos()).unwrap_or(u64::MAX);
            if let Some(delay) = driver.random().checked_rem(most) {
                sleep_until(&*driver, driver.now().after(Duration::from_nanos(delay))).await;
            }
            let event = match &result {
                Ok(Done::At(at)) => Event::Acked { op: number, at: Some(*at) },
                Ok(_) => Event::Acked { op: number, at: None },
                Err(_) => Event::Refused { op: number },
            };
            log.lock().add(&sink, event);
            result
        })
    }

    fn driver(&self) -> &Arc<dyn Driver> {
        self.inner.driver()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use units::{VirtualDriver, block_on};
    use zoned::emu::{Emu, Latency};
    use zoned::{Action, Buf, BufMut, Durability, Lba, ZoneId};

    use crate::replay::{Completions, Replay};
    use crate::trace::Drive;

    #[test]
    fn a_replay_leaves_the_medium_as_the_workload_did() {
        let driver: Arc<dyn Driver> = VirtualDriver::new(1);
        let drive = Drive::tiny(true);
        let emu = Emu::memory(drive.options("emu:test", Latency::all(Duration::from_micros(20))), driver);
        let recorder = Recorder::new(Arc::clone(&emu) as Arc<dyn ZonedDevice>, Duration::from_micros(50));
        let device: Arc<dyn ZonedDevice> = Arc::clone(&recorder) as Arc<dyn ZonedDevice>;
        let data = |n: u8| Buf::copy_from(&[n; 4096]);
        block_on(&**device.driver(), async {
            let first = device.append(ZoneId(1), data(1), Durability::Cached);
            let second = device.append(ZoneId(1), data(2), Durability::Durable);
            device.write(Lba(32), data(3), Durability::Cached).await.expect("written");
            device.write(Lba(99), data(3), Durability::Cached).await.expect_err("not at the pointer");
            assert_eq!((first.await.expect("ok"), second.await.expect("ok")), (Lba(16), Lba(17)));
            device.read(Lba(16), BufMut::zeroed(4096)).await.expect("read");
            device.zone(ZoneId(2), Action::Finish).await.expect("finished");
            device.flush().await.expect("flushed");
        });
        let events = recorder.take();
        let submitted = events.iter().filter(|e| matches!(e, Event::Submit { .. })).count();
        let acked = events.iter().filter(|e| matches!(e, Event::Acked { .. })).count();
        assert_eq!(
            (submitted, acked),
            (6, 5),
            "reads leave nothing behind, and a failure is never acknowledged"
        );
        let media = drive.medium().expect("valid");
        let completions = Completions::of(&events);
        let mut replay = Replay::new(media, &completions);
        events.iter().for_each(|event| replay.step(event));
        assert_eq!(replay.image().fingerprint(), emu.media().fingerprint());
    }
}
