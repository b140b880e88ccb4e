//! A drive of the array, and the log in its metadata zones.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use parking_lot::Mutex;
use units::sync::Event;
use uuid::Uuid;
use zoned::{Action, Buf, BufMut, Durability, Io, Lba, ZoneId, ZonedDevice};

use crate::format::record::{self, Body, Place};
use crate::layout::Slot;

/// Physical zones for metadata, from the first on: two may hold records that count, and one more is free for the
/// next checkpoint.
pub(crate) const METADATA_ZONES: u32 = 3;
/// Blocks at the end of a metadata zone that are kept for superblocks: a failure must find room.
pub(crate) const RESERVE: u64 = 4;

/// A drive in its slot.
pub(crate) struct Member {
    pub slot: Slot,
    /// `None` where the drive is missing.
    device: Option<Arc<dyn ZonedDevice>>,
    failed: AtomicBool,
    pub log: Mutex<Log>,
    /// The log has a new zone.
    pub rolled: Event,
}

/// The metadata log of a drive: records, one after the other, in one metadata zone at a time.
#[derive(Debug)]
pub(crate) struct Log {
    pub array: Uuid,
    pub epoch: u64,
    pub sequence: u64,
    /// The physical zone that takes records, and its pointer.
    pub zone: ZoneId,
    pub pointer: u64,
    pub capacity: u64,
    /// A checkpoint into a new zone is under way.
    pub rolling: bool,
    /// Logical zones whose partial parity waits for room.
    pub waiting: Vec<ZoneId>,
}

impl Log {
    /// Blocks left, for everything but superblocks.
    pub(crate) fn left(&self) -> u64 {
        self.capacity.saturating_sub(self.pointer + RESERVE)
    }
}

impl Member {
    pub(crate) fn new(slot: Slot, device: Option<Arc<dyn ZonedDevice>>, log: Log) -> Member {
        Member {
            slot,
            failed: AtomicBool::new(device.is_none()),
            device,
            log: Mutex::new(log),
            rolled: Event::new(),
        }
    }

    /// The drive, unless it is missing or failed.
    pub(crate) fn device(&self) -> Option<&Arc<dyn ZonedDevice>> {
        self.device.as_ref().filter(|_| !self.failed.load(Ordering::Acquire))
    }

    /// From now on the array does without this drive. Says whether it did not before.
    pub(crate) fn set_failed(&self) -> bool {
        !self.failed.swap(true, Ordering::AcqRel)
    }

    /// The address of block `row` of the physical zone of logical zone `zone`.
    pub(crate) fn address(device: &dyn ZonedDevice, zone: ZoneId, row: u64) -> Lba {
        let start = device.geometry().start(ZoneId(zone.0 + METADATA_ZONES));
        start.plus(zoned::Blocks(row))
    }

    /// Writes blocks of a logical zone's physical zone. `None` where the drive is missing or failed.
    pub(crate) fn write(&self, zone: ZoneId, row: u64, data: Buf) -> Option<Io<()>> {
        let device = self.device()?;
        Some(device.write(Member::address(&**device, zone, row), data, Durability::Cached))
    }

    /// Reads blocks of a logical zone's physical zone.
    pub(crate) fn read(&self, zone: ZoneId, row: u64, into: BufMut) -> Result<Io<BufMut>, BufMut> {
        match self.device() {
            Some(device) => Ok(device.read(Member::address(&**device, zone, row), into)),
            None => Err(into),
        }
    }

    /// A command for a logical zone's physical zone.
    pub(crate) fn act(&self, zone: ZoneId, action: Action) -> Option<Io<()>> {
        Some(self.device()?.zone(ZoneId(zone.0 + METADATA_ZONES), action))
    }

    /// Makes everything acknowledged durable; `None` where nothing is volatile.
    pub(crate) fn flush(&self) -> Option<Io<()>> {
        self.device().filter(|device| device.geometry().volatile_cache).map(|device| device.flush())
    }

    /// Adds a record to the log. `Err` says that the log has no room.
    pub(crate) fn append(
        &self,
        body: &Body,
        checkpoint: bool,
        how: Durability,
    ) -> Result<Option<Io<()>>, NoRoom> {
        let mut log = self.log.lock();
        self.append_to(&mut log, body, checkpoint, how)
    }

    /// Adds a record to the log, which is locked.
    pub(crate) fn append_to(
        &self,
        log: &mut Log,
        body: &Body,
        checkpoint: bool,
        how: Durability,
    ) -> Result<Option<Io<()>>, NoRoom> {
        let Some(device) = self.device() else { return Ok(None) };
        let geometry = device.geometry();
        let place = Place {
            array: log.array,
            member: self.slot,
            epoch: log.epoch,
            sequence: log.sequence,
            checkpoint,
        };
        let bytes = record::encode(place, body, geometry.block_size);
        let blocks = bytes.len() as u64 / u64::from(geometry.block_size);
        let reserve = if matches!(body, Body::Superblock(_)) { 0 } else { RESERVE };
        if log.pointer + blocks + reserve > log.capacity {
            return Err(NoRoom);
        }
        let at = geometry.start(log.zone).plus(zoned::Blocks(log.pointer));
        log.pointer += blocks;
        log.sequence += 1;
        // Under the lock: the log's writes are submitted in order.
        Ok(Some(device.write(at, bytes, how)))
    }
}

/// The metadata zone is full.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct NoRoom;

impl fmt::Debug for Member {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?} {:?}", self.slot, self.device)
    }
}
