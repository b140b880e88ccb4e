//! A drive of the array, and the log in its metadata zones.

use std::fmt;
use std::sync::Arc;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicU8, Ordering};

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

/// The drive of the mount.
const GOOD: u8 = 0;
/// None.
const FAILED: u8 = 1;
/// The replacement.
const REPLACED: u8 = 2;

/// A new drive that is being filled.
struct Replacement {
    device: Arc<dyn ZonedDevice>,
    /// The zones that it has, by number.
    has: Box<[AtomicBool]>,
    aborted: AtomicBool,
}

/// A drive in its slot.
pub(crate) struct Member {
    pub slot: Slot,
    /// `None` where the drive is missing.
    device: Option<Arc<dyn ZonedDevice>>,
    /// Which drive is in use: [`GOOD`], [`FAILED`] or [`REPLACED`].
    state: AtomicU8,
    replacement: OnceLock<Replacement>,
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
        let state = AtomicU8::new(if device.is_some() { GOOD } else { FAILED });
        Member {
            slot,
            state,
            replacement: OnceLock::new(),
            device,
            log: Mutex::new(log),
            rolled: Event::new(),
        }
    }

    /// The drive, unless it is missing or failed.
    pub(crate) fn device(&self) -> Option<&Arc<dyn ZonedDevice>> {
        match self.state.load(Ordering::Acquire) {
            GOOD => self.device.as_ref(),
            REPLACED => self.replacement.get().map(|new| &new.device),
            _ => None,
        }
    }

    /// The drive that is to hold what is written to a zone: one that is being filled too, once it has the zone.
    pub(crate) fn device_of(&self, zone: ZoneId) -> Option<&Arc<dyn ZonedDevice>> {
        self.device().or_else(|| {
            let new = self.replacement.get()?;
            let has = new.has.get(zone.index())?.load(Ordering::Acquire);
            (has && !new.aborted.load(Ordering::Acquire)).then_some(&new.device)
        })
    }

    /// Begins to fill a new drive. False where that was done before.
    pub(crate) fn begin_replacement(&self, device: Arc<dyn ZonedDevice>, zones: usize) -> bool {
        let has = (0..zones).map(|_| AtomicBool::new(false)).collect();
        self.replacement.set(Replacement { device, has, aborted: AtomicBool::new(false) }).is_ok()
    }

    /// The new drive has the zone: what is written to it goes there too.
    pub(crate) fn has_zone(&self, zone: ZoneId) {
        if let Some(has) = self.replacement.get().and_then(|new| new.has.get(zone.index())) {
            has.store(true, Ordering::Release);
        }
    }

    /// The new drive will not do.
    pub(crate) fn abort_replacement(&self) {
        if let Some(new) = self.replacement.get() {
            new.aborted.store(true, Ordering::Release);
            self.state.store(FAILED, Ordering::Release);
        }
    }

    /// The new drive is used like any other from now on, unless it failed already.
    pub(crate) fn take_over(&self) {
        if self.replacement.get().is_some_and(|new| !new.aborted.load(Ordering::Acquire)) {
            self.state.store(REPLACED, Ordering::Release);
        }
    }

    /// The new drive's log begins in its first zone.
    pub(crate) fn begin_log(&self, epoch: u64) {
        let Some(new) = self.replacement.get() else { return };
        let mut log = self.log.lock();
        (log.epoch, log.zone, log.pointer) = (epoch, ZoneId(0), 0);
        log.capacity = new.device.geometry().zone_capacity.0;
    }

    /// From now on the array does without this drive. Says whether it did not before.
    pub(crate) fn set_failed(&self) -> bool {
        self.state.swap(FAILED, Ordering::AcqRel) != FAILED
    }

    /// The address of block `row` of the physical zone of logical zone `zone`.
    pub(crate) fn address(device: &dyn ZonedDevice, zone: ZoneId, row: u64) -> Lba {
        let start = device.geometry().start(ZoneId(zone.0 + METADATA_ZONES));
        start.plus(zoned::Blocks(row))
    }

    /// Writes blocks of a logical zone's physical zone. `None` where the drive is missing or failed.
    pub(crate) fn write(&self, zone: ZoneId, row: u64, data: Buf) -> Option<Io<()>> {
        let device = self.device_of(zone)?;
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
        Some(self.device_of(zone)?.zone(ZoneId(zone.0 + METADATA_ZONES), action))
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
