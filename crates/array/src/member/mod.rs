//! A drive of the array, and the log in its metadata zones.

pub(crate) mod bad_rows;

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use arc_swap::ArcSwapOption;
use parking_lot::Mutex;
use units::sync::Event;
use uuid::Uuid;
use zoned::{Action, Buf, BufMut, Durability, Io, Lba, ZoneId, ZonedDevice};

use crate::format::record::{self, Body, Place};
use crate::layout::Slot;
use crate::member::bad_rows::LostRows;
use crate::metrics::Tally;

/// Physical zones for metadata, from the first on: two may hold records that count, and one more is free for the
/// next checkpoint.
pub(crate) const METADATA_ZONES: u32 = 3;
/// Blocks at the end of a metadata zone that are kept for superblocks: a failure must find room.
pub(crate) const RESERVE: u64 = 4;
/// Blocks of the record that ends a checkpoint.
const END: u64 = 1;

/// A drive in use. Let go of when it fails, so that it can be opened by others again.
struct Drive(Arc<dyn ZonedDevice>);

/// A new drive that is being filled.
struct Filling {
    device: Arc<dyn ZonedDevice>,
    /// The zones that it has, by number.
    has: Box<[AtomicBool]>,
    aborted: AtomicBool,
}

/// A drive in its slot.
pub(crate) struct Member {
    pub slot: Slot,
    /// `None` where the drive is missing or failed.
    drive: ArcSwapOption<Drive>,
    /// The new drive that will take the slot.
    filling: ArcSwapOption<Filling>,
    pub log: Mutex<Log>,
    /// The log has a new zone.
    pub rolled: Event,
    /// Flushes submitted, and the highest of them that is done.
    flushes: AtomicU64,
    flushed: AtomicU64,
    /// Reads that gave errors of the medium.
    pub media_errors: AtomicU64,
    /// Rows that the drive holds nothing for.
    pub lost: LostRows,
    tally: Arc<Tally>,
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
    /// Blocks promised to writes that are about to be relocated.
    pub reserved: u64,
    /// A checkpoint into a new zone is under way, or the first one of a new drive: a block is reserved for its end.
    pub rolling: bool,
    /// Logical zones whose partial parity waits for room.
    pub waiting: Vec<ZoneId>,
    /// Counts the drives that the slot had: what was begun on one must not go on on the next.
    pub life: u64,
}

impl Log {
    /// Blocks left, for everything but superblocks.
    pub(crate) fn left(&self) -> u64 {
        self.capacity.saturating_sub(self.pointer + self.reserved + RESERVE)
    }

    /// A checkpoint begins. Says whether none was under way.
    pub(crate) fn begin_roll(&mut self) -> bool {
        if std::mem::replace(&mut self.rolling, true) {
            return false;
        }
        self.reserved += END;
        true
    }

    /// The checkpoint is over, one way or the other.
    pub(crate) fn end_roll(&mut self) {
        if std::mem::replace(&mut self.rolling, false) {
            self.reserved = self.reserved.saturating_sub(END);
        }
    }
}

impl Member {
    pub(crate) fn new(
        slot: Slot,
        device: Option<Arc<dyn ZonedDevice>>,
        log: Log,
        tally: Arc<Tally>,
    ) -> Member {
        Member {
            slot,
            drive: ArcSwapOption::new(device.map(|device| Arc::new(Drive(device)))),
            filling: ArcSwapOption::empty(),
            log: Mutex::new(log),
            rolled: Event::new(),
            flushes: AtomicU64::new(0),
            flushed: AtomicU64::new(0),
            media_errors: AtomicU64::new(0),
            lost: LostRows::default(),
            tally,
        }
    }

    /// The drive, unless it is missing or failed.
    pub(crate) fn device(&self) -> Option<Arc<dyn ZonedDevice>> {
        self.drive.load().as_ref().map(|drive| Arc::clone(&drive.0))
    }

    /// Whether there is a drive that works.
    pub(crate) fn is_good(&self) -> bool {
        self.drive.load().is_some()
    }

    /// The drive that is to hold what is written to a zone: one that is being filled too, once it has the zone.
    pub(crate) fn device_of(&self, zone: ZoneId) -> Option<Arc<dyn ZonedDevice>> {
        self.device().or_else(|| {
            let filling = self.filling.load();
            let new = filling.as_ref()?;
            let has = new.has.get(zone.index())?.load(Ordering::Acquire);
            (has && !new.aborted.load(Ordering::Acquire)).then(|| Arc::clone(&new.device))
        })
    }

    /// The new drive that is being filled.
    pub(crate) fn filling(&self) -> Option<Arc<dyn ZonedDevice>> {
        self.filling.load().as_ref().map(|new| Arc::clone(&new.device))
    }

    /// Begins to fill a new drive.
    pub(crate) fn begin_replacement(&self, device: Arc<dyn ZonedDevice>, zones: usize) {
        let has = (0..zones).map(|_| AtomicBool::new(false)).collect();
        self.next_life(&mut self.log.lock());
        self.filling.store(Some(Arc::new(Filling { device, has, aborted: AtomicBool::new(false) })));
    }

    /// What was begun on the drive before ends without an effect on the next.
    fn next_life(&self, log: &mut Log) {
        log.life += 1;
        log.end_roll();
    }

    /// Whether the slot has the same drive still.
    pub(crate) fn is_life(&self, life: u64) -> bool {
        self.log.lock().life == life
    }

    /// The new drive has the zone, or does not have it any more: what is written to it goes there too.
    pub(crate) fn has_zone(&self, zone: ZoneId, has: bool) {
        if let Some(new) = &*self.filling.load()
            && let Some(known) = new.has.get(zone.index())
        {
            known.store(has, Ordering::Release);
        }
    }

    /// The new drive will not do. Writes that are under way may still go to it.
    pub(crate) fn abort_replacement(&self) {
        if let Some(new) = &*self.filling.load() {
            new.aborted.store(true, Ordering::Release);
        }
    }

    /// Whether the new drive failed, or nobody wants it any more.
    pub(crate) fn is_aborted(&self) -> bool {
        self.filling.load().as_ref().is_none_or(|new| new.aborted.load(Ordering::Acquire))
    }

    /// The rebuild is over, one way or the other.
    pub(crate) fn end_replacement(&self) {
        self.filling.store(None);
    }

    /// The new drive is used like any other from now on, unless it failed already. Its log begins in metadata zone `zone`
    /// of it, with `superblock`: whatever others log comes behind that.
    pub(crate) fn take_over(
        &self,
        epoch: u64,
        zone: ZoneId,
        sequence: u64,
        superblock: &Body,
    ) -> Result<Option<Io<()>>, NoRoom> {
        let filling = self.filling.load_full();
        let Some(new) = filling.filter(|new| !new.aborted.load(Ordering::Acquire)) else { return Ok(None) };
        let mut log = self.log.lock();
        (log.epoch, log.zone, log.pointer) = (epoch, zone, 0);
        self.next_life(&mut log);
        log.sequence = log.sequence.max(sequence);
        log.capacity = new.device.geometry().zone_capacity.0;
        // Until it is a member, and its notes are gone, its log stays where it is.
        log.begin_roll();
        self.media_errors.store(0, Ordering::Relaxed);
        self.drive.store(Some(Arc::new(Drive(Arc::clone(&new.device)))));
        self.append_to(&mut log, superblock, true, Durability::Cached)
    }

    /// From now on the array does without this drive. Says whether it did not before.
    pub(crate) fn set_failed(&self) -> bool {
        self.drive.swap(None).is_some()
    }

    /// The address of block `row` of the physical zone of logical zone `zone`.
    pub(crate) fn address(device: &dyn ZonedDevice, zone: ZoneId, row: u64) -> Lba {
        let start = device.geometry().start(ZoneId(zone.0 + METADATA_ZONES));
        start.plus(zoned::Blocks(row))
    }

    /// Writes blocks of a logical zone's physical zone. `None` where the drive is missing or failed.
    pub(crate) fn write(&self, zone: ZoneId, row: u64, data: Buf) -> Option<Io<()>> {
        let drive = self.drive.load();
        if let Some(Drive(device)) = drive.as_deref() {
            return Some(device.write(Member::address(&**device, zone, row), data, Durability::Cached));
        }
        let device = self.device_of(zone)?;
        self.tally.rebuilt(data.len());
        Some(device.write(Member::address(&*device, zone, row), data, Durability::Cached))
    }

    /// Reads blocks of a logical zone's physical zone.
    pub(crate) fn read(&self, zone: ZoneId, row: u64, into: BufMut) -> Result<Io<BufMut>, BufMut> {
        match self.drive.load().as_deref() {
            Some(Drive(device)) => {
                let at = Member::address(&**device, zone, row);
                let rows = (into.len() / device.geometry().block_size as usize) as u64;
                if self.lost.hits(zone, &(row..row + rows)) {
                    return Ok(Io::ready(Err(bad_rows::error(&**device, at).with_buffer(into))).typed());
                }
                Ok(device.read(at, into))
            }
            None => Err(into),
        }
    }

    /// A command for a logical zone's physical zone.
    pub(crate) fn act(&self, zone: ZoneId, action: Action) -> Option<Io<()>> {
        Some(self.device_of(zone)?.zone(ZoneId(zone.0 + METADATA_ZONES), action))
    }

    /// Makes everything acknowledged durable; `None` where nothing is volatile.
    pub(crate) fn flush(&self) -> Option<Io<()>> {
        self.flush_numbered().map(|(_, io)| io)
    }

    /// The same, with the flush's number: see `persistence`.
    pub(crate) fn flush_numbered(&self) -> Option<(u64, Io<()>)> {
        let device = self.device().filter(|device| device.geometry().volatile_cache)?;
        // The number first: what lands from here on is for the next flush.
        let number = self.flushes.fetch_add(1, Ordering::AcqRel) + 1;
        Some((number, device.flush()))
    }

    /// The number of the next flush, which covers what has landed by now.
    pub(crate) fn next_flush(&self) -> u64 {
        self.flushes.load(Ordering::Acquire) + 1
    }

    /// A flush is done.
    pub(crate) fn flushed_up_to(&self, number: u64) {
        self.flushed.fetch_max(number, Ordering::AcqRel);
    }

    /// Whether the flush `number` or a later one is done.
    pub(crate) fn covers(&self, number: u64) -> bool {
        self.flushed.load(Ordering::Acquire) >= number
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

    /// Adds a record of the checkpoint that was begun in this life of the slot; `None` in a later one.
    pub(crate) fn append_of(&self, life: u64, body: &Body) -> Result<Option<Io<()>>, NoRoom> {
        let mut log = self.log.lock();
        if log.life != life {
            return Ok(None);
        }
        self.append_to(&mut log, body, true, Durability::Cached)
    }

    /// Adds the end of that checkpoint, for which there is a reservation.
    pub(crate) fn append_end(&self, life: u64, how: Durability) -> Result<Option<Io<()>>, NoRoom> {
        let mut log = self.log.lock();
        if log.life != life || !log.rolling {
            return Ok(None);
        }
        log.reserved = log.reserved.saturating_sub(END);
        let io = self.put(&mut log, &Body::CheckpointEnd, true, how, 0);
        log.reserved += END;
        io
    }

    /// Keeps `blocks` of the log for [`append_reserved`](Member::append_reserved). False where there is no room.
    pub(crate) fn reserve(&self, blocks: u64) -> bool {
        let mut log = self.log.lock();
        let room = self.device().is_none() || log.left() >= blocks;
        log.reserved += if room { blocks } else { 0 };
        room
    }

    /// Gives back what was reserved.
    pub(crate) fn unreserve(&self, blocks: u64) {
        let mut log = self.log.lock();
        log.reserved = log.reserved.saturating_sub(blocks);
    }

    /// Adds a record for which there is a reservation.
    pub(crate) fn append_reserved(&self, body: &Body, block_size: u32) -> Option<Io<()>> {
        self.append_reserved_as(body, block_size, Durability::Cached)
    }

    /// The same, durable or not.
    pub(crate) fn append_reserved_as(&self, body: &Body, block_size: u32, how: Durability) -> Option<Io<()>> {
        let mut log = self.log.lock();
        log.reserved = log.reserved.saturating_sub(body.blocks(block_size));
        // Superblocks may have taken what is kept for them.
        self.put(&mut log, body, false, how, 0).expect("room was reserved")
    }

    /// Adds a record to the log, which is locked.
    pub(crate) fn append_to(
        &self,
        log: &mut Log,
        body: &Body,
        checkpoint: bool,
        how: Durability,
    ) -> Result<Option<Io<()>>, NoRoom> {
        let kept = if matches!(body, Body::Superblock(_)) { 0 } else { RESERVE };
        self.put(log, body, checkpoint, how, kept)
    }

    /// The same, leaving `kept` blocks for others.
    fn put(
        &self,
        log: &mut Log,
        body: &Body,
        checkpoint: bool,
        how: Durability,
        kept: u64,
    ) -> Result<Option<Io<()>>, NoRoom> {
        let drive = self.drive.load();
        let Some(Drive(device)) = drive.as_deref() else { return Ok(None) };
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
        // What was promised to others is nobody else's.
        if log.pointer + blocks + kept + log.reserved > log.capacity {
            return Err(NoRoom);
        }
        let at = geometry.start(log.zone).plus(zoned::Blocks(log.pointer));
        log.pointer += blocks;
        log.sequence += 1;
        self.tally.logged(body, bytes.len());
        // Under the lock: the log's writes are submitted in order.
        Ok(Some(device.write(at, bytes, how)))
    }
}

/// The metadata zone is full.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct NoRoom;

impl fmt::Debug for Member {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?} {:?}", self.slot, self.device())
    }
}
