//! A device for tests that executes an operation just before its completion instead of at its submission.
//!
//! [`Emu`](super::Emu) executes an operation at submission, so overlapping operations see its effect. A real drive may
//! execute an operation as late as at its completion; this device does so. The order of submission within a zone is
//! kept, as the contract says. Reads, reports, flushes and operations on other zones see no effect of an operation
//! that is not acknowledged. Code that relies on more than the contract fails on this device.

use std::collections::{BTreeMap, VecDeque};
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use units::{Driver, Instant, sleep_until};

use crate::{Completer, Geometry, Io, Op, ZoneId, ZonedDevice};

/// A device that defers the operations of another device, as the module's documentation says.
pub struct DeferredDevice {
    inner: Arc<dyn ZonedDevice>,
    most: Duration,
    queues: Arc<Mutex<BTreeMap<ZoneId, Queue>>>,
}

/// Operations of a zone that are not executed yet. A zone has a queue while a task executes its operations.
type Queue = VecDeque<(Instant, Op, Completer)>;

impl DeferredDevice {
    /// A deferring device over `inner`. The driver's random numbers delay each change of a zone by up to
    /// `most`.
    pub fn over(inner: Arc<dyn ZonedDevice>, most: Duration) -> Arc<DeferredDevice> {
        Arc::new(DeferredDevice { inner, most, queues: Arc::default() })
    }
}

impl fmt::Debug for DeferredDevice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "deferred {:?}", self.inner)
    }
}

impl ZonedDevice for DeferredDevice {
    fn geometry(&self) -> &Geometry {
        self.inner.geometry()
    }

    fn submit(&self, op: Op) -> Io {
        let zone = match &op {
            Op::Write { at, .. } => self.geometry().zone_of(*at),
            Op::Append { zone, .. } | Op::Zone { zone, .. } => Some(*zone),
            Op::Read { .. } | Op::Report { .. } | Op::Flush => None,
        };
        let Some(zone) = zone else { return self.inner.submit(op) };
        let driver = Arc::clone(self.driver());
        let most = u64::try_from(self.most.as_nanos()).unwrap_or(u64::MAX);
        let delay = Duration::from_nanos(driver.random().checked_rem(most).unwrap_or(0));
        let (completer, io) = Io::pair(&driver, &self.geometry().name);
        let mut queues = self.queues.lock();
        let running = queues.contains_key(&zone);
        queues.entry(zone).or_default().push_back((driver.now().after(delay), op, completer));
        drop(queues);
        if !running {
            let (inner, queues) = (Arc::clone(&self.inner), Arc::clone(&self.queues));
            driver.drive(Box::pin(async move { execute(&*inner, &queues, zone).await }));
        }
        io
    }

    fn driver(&self) -> &Arc<dyn Driver> {
        self.inner.driver()
    }
}

/// Executes the queued operations of a zone in order, until the zone's queue is empty.
async fn execute(inner: &dyn ZonedDevice, queues: &Mutex<BTreeMap<ZoneId, Queue>>, zone: ZoneId) {
    loop {
        let next = {
            let mut queues = queues.lock();
            let next = queues.get_mut(&zone).and_then(VecDeque::pop_front);
            if next.is_none() {
                queues.remove(&zone);
            }
            next
        };
        let Some((due, op, completer)) = next else { return };
        sleep_until(&**inner.driver(), due).await;
        completer.complete(inner.submit(op).await);
    }
}

#[cfg(test)]
mod tests {
    use units::{VirtualDriver, block_on};

    use super::*;
    use crate::emu::{Emu, EmuOptions};
    use crate::{Buf, Durability, Lba};

    #[test]
    fn a_write_has_no_effect_before_its_completion_and_zones_keep_their_order() {
        let driver: Arc<dyn Driver> = VirtualDriver::new(1);
        let emu = Emu::memory(EmuOptions::default(), Arc::clone(&driver));
        let device: Arc<dyn ZonedDevice> = DeferredDevice::over(emu, Duration::from_micros(50));
        let pointer = async || device.report(0..1).await.expect("reported")[0].pointer.0;
        block_on(&*driver, async {
            let data = Buf::zeroed(4096);
            let ios: Vec<_> =
                (0..20).map(|n| device.write(Lba(n), data.clone(), Durability::Cached)).collect();
            assert_eq!(pointer().await, 0);
            for (n, io) in (1..).zip(ios) {
                io.await.expect("in order");
                assert!(pointer().await >= n, "{n}");
            }
        });
    }

    #[test]
    fn the_device_conforms_to_the_contract() {
        let driver: Arc<dyn Driver> = VirtualDriver::new(1);
        let emu = Emu::memory(EmuOptions { zones: 24, ..EmuOptions::default() }, driver);
        let device: Arc<dyn ZonedDevice> = DeferredDevice::over(emu, Duration::from_micros(50));
        let failures = crate::conformance::failures(&device);
        assert!(failures.is_empty(), "{}", failures.join("\n"));
    }
}
