//! A drive that counts its operations.

use std::ops::Range;
use std::sync::Arc;

use fs::Superblock;
use parking_lot::Mutex;
use serde::Serialize;
use zoned::{Action, Driver, Geometry, Io, IoClass, Lba, Op, ShareStatus, ZoneId, ZonedDevice};

/// Passes every operation to the drive below, and counts it. Writes to the zones of a file system's superblocks and metadata log are
/// counted apart.
#[derive(Debug)]
pub struct Counted {
    inner: Arc<dyn ZonedDevice>,
    metadata: Mutex<Range<u32>>,
    counts: Mutex<Counts>,
}

/// Number of zones at the start of a device that hold the superblocks.
const SUPERBLOCK_ZONES: u32 = 2;

/// Numbers of a drive's operations since the count began.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Counts {
    /// Number of appends to zones of data and logs.
    pub appends: u64,
    /// Number of writes to zones of data and logs.
    pub writes: u64,
    /// Bytes of appends and writes to zones of data and logs.
    pub bytes: u64,
    /// Number of writes and appends to the zones of superblocks and of the metadata log.
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
        Arc::new(Counted { inner, metadata: Mutex::default(), counts: Mutex::default() })
    }

    /// Starts the count of operations at zero. The device holds the file system with this superblock.
    pub fn begin(&self, superblock: &Superblock) {
        let first = superblock.metadata_first.0;
        self.begin_beside(first..first.saturating_add(superblock.metadata_zones));
    }

    /// Starts the count of operations at zero, with the metadata log in the zones `metadata`.
    fn begin_beside(&self, metadata: Range<u32>) {
        *self.metadata.lock() = metadata;
        *self.counts.lock() = Counts::default();
    }

    /// The counts of operations so far.
    pub fn counts(&self) -> Counts {
        *self.counts.lock()
    }

    fn count(&self, op: &Op) {
        let geometry = self.inner.geometry();
        let metadata = self.metadata.lock().clone();
        let is_data = |zone: ZoneId| zone.0 >= SUPERBLOCK_ZONES && !metadata.contains(&zone.0);
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
        self.submit_as(IoClass::default(), op)
    }

    fn submit_as(&self, class: IoClass, op: Op) -> Io {
        self.count(&op);
        self.inner.submit_as(class, op)
    }

    fn raise(&self, class: IoClass, blocks: Range<Lba>) {
        self.inner.raise(class, blocks);
    }

    fn driver(&self) -> &Arc<dyn Driver> {
        self.inner.driver()
    }

    fn share_status(&self) -> Option<ShareStatus> {
        self.inner.share_status()
    }
}

#[cfg(test)]
mod tests {
    use units::VirtualDriver;
    use zoned::{Buf, Durability};

    use super::*;

    #[test]
    fn every_operation_is_counted_once_and_logs_below_the_metadata_are_data() {
        let drive = zoned::open("emu:mem?zones=8&zone-size=1MiB", VirtualDriver::new(1)).unwrap();
        let counted = Counted::new(drive);
        counted.begin_beside(4..6);
        let dev: Arc<dyn ZonedDevice> = counted.clone();
        let data = || Buf::copy_from(&[1; 8192]);
        dev.append(ZoneId(1), data(), Durability::Cached).wait().unwrap();
        dev.append(ZoneId(5), data(), Durability::Cached).wait().unwrap();
        dev.append(ZoneId(2), data(), Durability::Cached).wait().unwrap();
        dev.write(dev.geometry().start(ZoneId(3)), data(), Durability::Cached).wait().unwrap();
        dev.flush().wait().unwrap();
        dev.zone(ZoneId(3), Action::Finish).wait().unwrap();
        dev.report_all().unwrap();
        let expected = Counts {
            appends: 1,
            writes: 1,
            bytes: 16_384,
            metadata_writes: 2,
            metadata_bytes: 16_384,
            reads: 0,
            read_bytes: 0,
            flushes: 1,
            zone_commands: 1,
        };
        assert_eq!(counted.counts(), expected);
        counted.begin_beside(4..6);
        assert_eq!(counted.counts(), Counts::default());
    }
}
