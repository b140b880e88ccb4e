//! A device for tests that does what it is asked when it completes it, not when it takes it.
//!
//! [`Emu`](super::Emu) changes its medium as an operation is submitted; what overlaps with it sees that. A drive may as well do
//! it at the last moment: this one does. Within a zone the order of submission stays, as the contract says; a read, a
//! report, a flush and other zones see nothing of what is not acknowledged. Whoever relies on more fails on it.

use std::collections::{BTreeMap, VecDeque};
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use units::{Driver, Instant, sleep_until};

use crate::{Completer, Geometry, Io, Op, ZoneId, ZonedDevice};

/// A device over another one; see the module's description.
pub struct Late {
    inner: Arc<dyn ZonedDevice>,
    most: Duration,
    lanes: Arc<Mutex<BTreeMap<ZoneId, Lane>>>,
}

/// What a zone was asked and has not done. There while somebody works through it.
type Lane = VecDeque<(Instant, Op, Completer)>;

impl Late {
    /// Over `inner`; what changes a zone is done up to `most` later, by the driver's random numbers.
    pub fn over(inner: Arc<dyn ZonedDevice>, most: Duration) -> Arc<Late> {
        Arc::new(Late { inner, most, lanes: Arc::default() })
    }
}

impl fmt::Debug for Late {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "late {:?}", self.inner)
    }
}

impl ZonedDevice for Late {
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
        let mut lanes = self.lanes.lock();
        let works = lanes.contains_key(&zone);
        lanes.entry(zone).or_default().push_back((driver.now().after(delay), op, completer));
        drop(lanes);
        if !works {
            let (inner, lanes) = (Arc::clone(&self.inner), Arc::clone(&self.lanes));
            driver.drive(Box::pin(async move { work(&*inner, &lanes, zone).await }));
        }
        io
    }

    fn driver(&self) -> &Arc<dyn Driver> {
        self.inner.driver()
    }
}

/// Does what a zone was asked, in order, until there is nothing left.
async fn work(inner: &dyn ZonedDevice, lanes: &Mutex<BTreeMap<ZoneId, Lane>>, zone: ZoneId) {
    loop {
        let next = {
            let mut lanes = lanes.lock();
            let next = lanes.get_mut(&zone).and_then(VecDeque::pop_front);
            if next.is_none() {
                lanes.remove(&zone);
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
    fn nothing_is_seen_of_a_write_before_it_completes_and_zones_keep_their_order() {
        let driver: Arc<dyn Driver> = VirtualDriver::new(1);
        let emu = Emu::memory(EmuOptions::default(), Arc::clone(&driver));
        let device: Arc<dyn ZonedDevice> = Late::over(emu, Duration::from_micros(50));
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
    fn it_conforms() {
        let driver: Arc<dyn Driver> = VirtualDriver::new(1);
        let emu = Emu::memory(EmuOptions { zones: 24, ..EmuOptions::default() }, driver);
        let device: Arc<dyn ZonedDevice> = Late::over(emu, Duration::from_micros(50));
        let failures = crate::conformance::complaints(&device);
        assert!(failures.is_empty(), "{}", failures.join("\n"));
    }
}
