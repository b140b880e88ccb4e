//! A drive that counts its operations.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use parking_lot::Mutex;
use serde::Serialize;
use zoned::{Action, Driver, Geometry, Io, Op, ZoneId, ZonedDevice};

/// Passes every operation to the drive below, and counts it. Writes to the zones of metadata, those below a bound, are counted
/// apart.
#[derive(Debug)]
pub struct Counted {
    inner: Arc<dyn ZonedDevice>,
    first: AtomicU32,
    counts: Mutex<Counts>,
}

/// Numbers of a drive's operations since the count began.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Counts {
    /// Number of appends to data zones, which lie from the bound on.
    pub appends: u64,
    /// Number of writes to data zones.
    pub writes: u64,
    /// Bytes of appends and writes to data zones.
    pub bytes: u64,
    /// Number of writes and appends of the metadata: to zones below the bound.
    pub metadata_writes: u64,
    /// Bytes of the metadata's writes and appends.
    pub metadata_bytes: u64,
    /// Number of reads.
    pub reads: u64,
    /// Bytes of reads.
    pub read_bytes: u64,
    /// Number of flushes.
    pub flushes: u64,
    /// Number of zone commands: open, close, finish and reset.
    pub zone_commands: u64,
}

impl Counted {
    /// Counts the operations of `inner`.
    pub fn new(inner: Arc<dyn ZonedDevice>) -> Arc<Counted> {
        Arc::new(Counted { inner, first: AtomicU32::new(0), counts: Mutex::default() })
    }

    /// Starts the count of operations at zero; zones below `first` are the metadata's.
    pub fn begin(&self, first: ZoneId) {
        self.first.store(first.0, Ordering::Relaxed);
        *self.counts.lock() = Counts::default();
    }

    /// The counts of operations so far.
    pub fn counts(&self) -> Counts {
        *self.counts.lock()
    }

    fn count(&self, op: &Op) {
        let geometry = self.inner.geometry();
        let is_data = |zone: ZoneId| zone.0 >= self.first.load(Ordering::Relaxed);
        let mut counts = self.counts.lock();
        let (zone, bytes) = match op {
            Op::Append { zone, data, .. } => (Some(*zone), data.len() as u64),
            Op::Write { at, data, .. } => (geometry.zone_of(*at), data.len() as u64),
            Op::Read { into, .. } => {
                counts.reads += 1;
                counts.read_bytes += into.len() as u64;
                return;
            }
            Op::Flush => {
                counts.flushes += 1;
                return;
            }
            Op::Zone { action: Action::Open | Action::Close | Action::Finish | Action::Reset, .. } => {
                counts.zone_commands += 1;
                return;
            }
            Op::Report { .. } => return,
        };
        if !zone.is_some_and(is_data) {
            counts.metadata_writes += 1;
            counts.metadata_bytes += bytes;
            return;
        }
        match op {
            Op::Append { .. } => counts.appends += 1,
            _ => counts.writes += 1,
        }
        counts.bytes += bytes;
    }
}

impl ZonedDevice for Counted {
    fn geometry(&self) -> &Geometry {
        self.inner.geometry()
    }

    fn submit(&self, op: Op) -> Io {
        self.count(&op);
        self.inner.submit(op)
    }

    fn driver(&self) -> &Arc<dyn Driver> {
        self.inner.driver()
    }
}

#[cfg(test)]
mod tests {
    use units::VirtualDriver;
    use zoned::{Buf, Durability};

    use super::*;

    #[test]
    fn every_operation_is_counted_once_and_on_its_side_of_the_bound() {
        let drive = zoned::open("emu:mem?zones=8&zone-size=1MiB", VirtualDriver::new(1)).unwrap();
        let counted = Counted::new(drive);
        counted.begin(ZoneId(2));
        let dev: Arc<dyn ZonedDevice> = counted.clone();
        let data = || Buf::copy_from(&[1; 8192]);
        dev.append(ZoneId(1), data(), Durability::Cached).wait().unwrap();
        dev.append(ZoneId(2), data(), Durability::Cached).wait().unwrap();
        dev.write(dev.geometry().start(ZoneId(3)), data(), Durability::Cached).wait().unwrap();
        dev.flush().wait().unwrap();
        dev.zone(ZoneId(3), Action::Finish).wait().unwrap();
        dev.report_all().unwrap();
        let expected = Counts {
            appends: 1,
            writes: 1,
            bytes: 16_384,
            metadata_writes: 1,
            metadata_bytes: 8192,
            reads: 0,
            read_bytes: 0,
            flushes: 1,
            zone_commands: 1,
        };
        assert_eq!(counted.counts(), expected);
        counted.begin(ZoneId(2));
        assert_eq!(counted.counts(), Counts::default());
    }
}
