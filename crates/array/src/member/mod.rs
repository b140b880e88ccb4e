//! A drive of the array, and the log in its metadata zones.

pub(crate) mod bad_rows;
pub(crate) mod drive_fits;
pub(crate) mod drive_ios;
pub(crate) mod known_frames;
pub(crate) mod log_contents;
pub(crate) mod log_reader;
pub(crate) mod member_drive;
pub(crate) mod needed_parity;
pub(crate) mod part;
pub(crate) mod physical_zone;

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use arc_swap::ArcSwapOption;
use parking_lot::Mutex;
use units::sync::Event;
use uuid::Uuid;
use zoned::{Action, Blocks, Buf, BufMut, Done, Durability, Io, IoClass, Lba, ZoneId};

use crate::format::frames;
use crate::format::record::{self, Body, RecordId};
use crate::format::superblock::{self, Superblock};
use crate::layout::placement::Place;
use crate::layout::{Parity, Slot};
use crate::member::bad_rows::BadRows;
use crate::member::member_drive::MemberDrive;
use crate::member::physical_zone::PhysicalZone;
use crate::metrics::Metrics;

/// Blocks at the end of a metadata zone that are reserved for superblocks, if the largest superblock takes no more.
const MIN_SUPERBLOCK_RESERVE_BLOCKS: u64 = 4;
/// Blocks that the end record of a checkpoint takes.
const END: u64 = 1;

/// Blocks at the end of a metadata zone that are reserved for superblocks, in an array with `members` members: the record of a
/// failure must find room, with the largest superblock that the array can have.
pub(crate) fn superblock_reserve(members: usize, block_size: u32) -> u64 {
    superblock::largest_blocks(members, block_size).max(MIN_SUPERBLOCK_RESERVE_BLOCKS)
}

/// A new drive whose rebuild runs.
struct NewDrive {
    device: MemberDrive,
    /// For each logical zone: true once the new drive holds its part of the zone.
    has: Box<[AtomicBool]>,
    aborted: AtomicBool,
}

/// A slot of the array and its drive.
pub(crate) struct Member {
    pub slot: Slot,
    /// The slot's drive; `None` if it is missing or failed. The handle is dropped when the drive fails, so that another
    /// user can open the drive.
    drive: ArcSwapOption<MemberDrive>,
    /// The new drive whose rebuild runs, to take the slot.
    filling: ArcSwapOption<NewDrive>,
    /// The names of drives that the slot had. Their operations may end long after another drive took the slot.
    former: Mutex<Vec<Arc<str>>>,
    pub log: Mutex<Log>,
    /// Notified when a log roll is over.
    pub rolled: Event,
    /// The number of flushes submitted to the drive, and the highest number of a flush that is done.
    flushes: AtomicU64,
    flushed: AtomicU64,
    /// Reads of the drive that failed with a media error.
    pub media_errors: AtomicU64,
    /// Rows of the drive whose content is not recoverable.
    pub bad_rows: BadRows,
    /// True if no zone takes a part in the slot: the drive failed, and is vacated or about to be.
    vacant: AtomicBool,
    metrics: Arc<Metrics>,
}

/// The metadata log of a drive: consecutive records in one metadata zone at a time.
#[derive(Debug)]
pub(crate) struct Log {
    pub array: Uuid,
    pub epoch: u64,
    pub sequence: u64,
    /// The metadata zone that takes new records, and its pointer.
    pub zone: ZoneId,
    pub pointer: u64,
    pub capacity: u64,
    /// Blocks at the end of the metadata zone that only superblocks take.
    pub superblock_reserve: u64,
    /// Blocks reserved for relocated content of writes that are about to begin.
    pub reserved: u64,
    /// True while a checkpoint is being written; one block is reserved for its end record.
    pub rolling: bool,
    /// Blocks that the marks at the end of a checkpoint take, if the array's writes are atomic. They are reserved while a
    /// checkpoint is written.
    pub marks: u64,
    /// Blocks that are still reserved for the marks of the checkpoint that is being written.
    reserved_marks: u64,
    /// Logical zones whose partial parity waits for room in the log, each with the parity; `None`: their frames wait.
    pub waiting: Vec<(ZoneId, Option<Parity>)>,
    /// Counts the drives that the slot had. Work that began on one drive must not continue on the next.
    pub incarnation: u64,
}

impl Log {
    pub(crate) fn new(
        superblock: &Superblock,
        epoch: u64,
        sequence: u64,
        zone: ZoneId,
        pointer: u64,
        capacity: u64,
    ) -> Log {
        let marks = match superblock.incompat & superblock::FEATURE_FRAMES {
            0 => 0,
            _ => frames::mark_blocks(superblock.zones, superblock.block_size),
        };
        Log {
            array: superblock.uuid,
            superblock_reserve: superblock_reserve(superblock.members.len(), superblock.block_size),
            epoch,
            sequence,
            zone,
            pointer,
            capacity,
            reserved: 0,
            rolling: false,
            marks,
            reserved_marks: 0,
            waiting: Vec::new(),
            incarnation: 0,
        }
    }

    /// Blocks of the metadata zone left for records other than superblocks.
    pub(crate) fn blocks_left(&self) -> u64 {
        self.capacity.saturating_sub(self.pointer + self.reserved + self.superblock_reserve)
    }

    /// Begins a checkpoint of the log. False if one is being written already.
    pub(crate) fn begin_roll(&mut self) -> bool {
        if std::mem::replace(&mut self.rolling, true) {
            return false;
        }
        self.reserved_marks = self.marks;
        self.reserved += END + self.reserved_marks;
        true
    }

    /// Ends a checkpoint, which is complete or has failed.
    pub(crate) fn end_roll(&mut self) {
        if std::mem::replace(&mut self.rolling, false) {
            self.reserved = self.reserved.saturating_sub(END + self.reserved_marks);
            self.reserved_marks = 0;
        }
    }
}

impl Member {
    pub(crate) fn new(slot: Slot, device: Option<MemberDrive>, log: Log, metrics: Arc<Metrics>) -> Member {
        Member {
            slot,
            drive: ArcSwapOption::new(device.map(Arc::new)),
            filling: ArcSwapOption::empty(),
            former: Mutex::default(),
            log: Mutex::new(log),
            rolled: Event::new(),
            flushes: AtomicU64::new(0),
            flushed: AtomicU64::new(0),
            media_errors: AtomicU64::new(0),
            bad_rows: BadRows::default(),
            vacant: AtomicBool::new(false),
            metrics,
        }
    }

    /// Sets whether zones may take parts in the slot while its drive does not work.
    pub(crate) fn set_vacant(&self, vacant: bool) {
        self.vacant.store(vacant, Ordering::Release);
    }

    /// True if the drive does not work, and no zone takes a part in the slot.
    pub(crate) fn is_vacant(&self) -> bool {
        self.vacant.load(Ordering::Acquire) && !self.is_good()
    }

    /// The slot's drive; `None` if it is missing or failed.
    pub(crate) fn device(&self) -> Option<MemberDrive> {
        self.drive.load().as_deref().cloned()
    }

    /// True if the slot has a drive that works.
    pub(crate) fn is_good(&self) -> bool {
        self.drive.load().is_some()
    }

    /// The drive that takes the writes of a zone: also a new drive, once it holds its part of the zone.
    pub(crate) fn device_for_zone(&self, zone: ZoneId) -> Option<MemberDrive> {
        self.device().or_else(|| {
            let filling = self.filling.load();
            let new = filling.as_ref()?;
            let has = new.has.get(zone.index())?.load(Ordering::Acquire);
            (has && !new.aborted.load(Ordering::Acquire)).then(|| new.device.clone())
        })
    }

    /// The slot's new drive whose rebuild runs.
    pub(crate) fn new_drive(&self) -> Option<MemberDrive> {
        self.filling.load().as_ref().map(|new| new.device.clone())
    }

    /// Begins the rebuild of a new drive for the slot.
    pub(crate) fn begin_replacement(&self, device: MemberDrive, zones: usize) {
        let has = (0..zones).map(|_| AtomicBool::new(false)).collect();
        self.next_incarnation(&mut self.log.lock());
        let name = &device.geometry().name;
        self.former.lock().retain(|former| former != name);
        self.filling.store(Some(Arc::new(NewDrive { device, has, aborted: AtomicBool::new(false) })));
    }

    /// Begins a new incarnation of the slot: work that began on the earlier drive has no effect from now on.
    fn next_incarnation(&self, log: &mut Log) {
        log.incarnation += 1;
        log.end_roll();
    }

    /// True if the slot still has the drive of `incarnation`.
    pub(crate) fn is_incarnation(&self, incarnation: u64) -> bool {
        self.log.lock().incarnation == incarnation
    }

    /// True if the slot's new drive, whose rebuild runs, holds its part of a zone.
    pub(crate) fn has_zone(&self, zone: ZoneId) -> bool {
        let filling = self.filling.load();
        let has = filling.as_ref().and_then(|new| new.has.get(zone.index()));
        has.is_some_and(|has| has.load(Ordering::Acquire))
    }

    /// Notes that the new drive holds its part of a zone (`has`), or does not any more. While it does, the
    /// zone's writes go to the new drive too.
    pub(crate) fn set_has_zone(&self, zone: ZoneId, has: bool) {
        if let Some(new) = &*self.filling.load()
            && let Some(known) = new.has.get(zone.index())
        {
            known.store(has, Ordering::Release);
        }
    }

    /// Aborts the rebuild of the slot's new drive. Writes in flight may still reach the drive. False if none runs, or it was aborted before.
    pub(crate) fn abort_replacement(&self) -> bool {
        self.filling.load().as_ref().is_some_and(|new| !new.aborted.swap(true, Ordering::AcqRel))
    }

    /// True if the rebuild of the slot's new drive was aborted, or none runs.
    pub(crate) fn is_aborted(&self) -> bool {
        self.filling.load().as_ref().is_none_or(|new| new.aborted.load(Ordering::Acquire))
    }

    /// Forgets the slot's new drive: its rebuild is done, failed or cancelled.
    pub(crate) fn end_replacement(&self) {
        if let Some(new) = self.filling.swap(None)
            && !self.device().is_some_and(|device| device.is(&new.device))
        {
            self.add_former(&new.device);
        }
    }

    /// The new drive becomes the slot's drive, unless its rebuild was aborted. Its log begins in metadata zone `zone`
    /// with `superblock`; other records follow.
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
        self.next_incarnation(&mut log);
        log.sequence = log.sequence.max(sequence);
        log.capacity = new.device.geometry().zone_capacity.0;
        // The new drive's log must not roll before the drive is a member and its rebuild notes are reset.
        log.begin_roll();
        self.media_errors.store(0, Ordering::Relaxed);
        self.drive.store(Some(Arc::new(new.device.clone())));
        self.append_to(&mut log, superblock, true, Durability::Cached)
    }

    /// Fails the drive: the array works without it from now on. True if the drive worked until now.
    pub(crate) fn set_failed(&self) -> bool {
        let failed = self.drive.swap(None);
        if let Some(drive) = &failed {
            self.add_former(drive);
        }
        failed.is_some()
    }

    fn add_former(&self, drive: &MemberDrive) {
        let name = &drive.geometry().name;
        let mut former = self.former.lock();
        if !former.contains(name) {
            former.push(Arc::clone(name));
        }
    }

    /// True if the slot had the drive named `name`, and may have another one now.
    pub(crate) fn had_drive(&self, name: &str) -> bool {
        self.former.lock().iter().any(|former| **former == *name)
    }

    /// Writes rows of the drive's part of zone `id`, which lies at `to`. `None` if the drive is missing or failed.
    fn write(&self, class: IoClass, id: ZoneId, to: Place, row: u64, data: Buf) -> Option<Io<()>> {
        let drive = self.drive.load();
        if let Some(device) = drive.as_deref() {
            let part = PhysicalZone::with_part(&**device, to).of_class(class);
            return Some(part.write(row, data, Durability::Cached));
        }
        let device = self.device_for_zone(id)?;
        self.metrics.rebuilt(data.len());
        Some(PhysicalZone::with_part(&*device, to).of_class(class).write(row, data, Durability::Cached))
    }

    /// Appends rows to the drive's part of a zone, which lies at `to`. Returns the address of the part's row 0 beside the operation.
    /// `None` if the drive is missing or failed, or takes no append of this length.
    fn append_rows(&self, class: IoClass, to: Place, data: Buf) -> Option<(Lba, Io<Lba>)> {
        let drive = self.drive.load();
        let device = drive.as_deref().filter(|device| takes_append(device, data.len()))?;
        let part = PhysicalZone::with_part(&**device, to).of_class(class);
        Some((part.address(0), part.append(data, Durability::Cached)))
    }

    /// Reads rows of the drive's part of zone `id`, which lies at `from`. Gives the buffer back if the drive is missing or failed.
    fn read(
        &self,
        class: IoClass,
        id: ZoneId,
        from: Place,
        row: u64,
        into: BufMut,
    ) -> Result<Io<BufMut>, BufMut> {
        match self.drive.load().as_deref() {
            Some(device) => {
                let part = PhysicalZone::with_part(&**device, from).of_class(class);
                let rows = (into.len() / device.geometry().block_size as usize) as u64;
                if self.bad_rows.intersects(id, &(row..row + rows)) {
                    return Ok(
                        Io::ready(Err(bad_rows::error(device, part.address(row)).with_buffer(into))).typed()
                    );
                }
                Ok(part.read(row, into))
            }
            None => Err(into),
        }
    }

    /// Resets a physical zone of the drive; of the new drive, if a rebuild runs.
    pub(crate) fn reset(&self, zone: ZoneId) -> Option<Io<()>> {
        self.act_on(zone, Action::Reset)
    }

    /// Sends a command to a physical zone of the drive; of the new drive, if a rebuild runs.
    pub(crate) fn act_on(&self, zone: ZoneId, action: Action) -> Option<Io<()>> {
        let device = self.device().or_else(|| self.new_drive())?;
        Some(PhysicalZone::at(&*device, zone).act(action))
    }

    /// Sends a command to the physical zone with the drive's part of zone `id`.
    fn act(&self, id: ZoneId, to: Place, action: Action) -> Option<Io<()>> {
        Some(PhysicalZone::with_part(&*self.device_for_zone(id)?, to).act(action))
    }

    /// Flushes the drive; `None` if its cache is not volatile.
    pub(crate) fn flush(&self) -> Option<Io<()>> {
        self.flush_numbered().map(|(_, io)| io)
    }

    /// True if the drive is there, and its cache loses unflushed blocks at a power cut.
    pub(crate) fn has_volatile_cache(&self) -> bool {
        self.device().is_some_and(|device| device.geometry().volatile_cache)
    }

    /// Flushes the drive; also returns the number of the flush (see `io::write::stamps`).
    pub(crate) fn flush_numbered(&self) -> Option<(u64, Io<()>)> {
        let device = self.device().filter(|device| device.geometry().volatile_cache)?;
        // The flush is numbered before it is submitted: a block that lands from now on belongs to the next
        // flush.
        let number = self.flushes.fetch_add(1, Ordering::AcqRel) + 1;
        Some((number, device.flush()))
    }

    /// The number of the drive's next flush, which covers all blocks that have landed by now.
    pub(crate) fn next_flush_number(&self) -> u64 {
        self.flushes.load(Ordering::Acquire) + 1
    }

    /// Notes that the drive's flush `number` is done.
    pub(crate) fn flushed_up_to(&self, number: u64) {
        self.flushed.fetch_max(number, Ordering::AcqRel);
    }

    /// True if the drive's flush `number` or a later one is done.
    pub(crate) fn is_flush_done(&self, number: u64) -> bool {
        self.flushed.load(Ordering::Acquire) >= number
    }

    /// Adds a record to the drive's log. `Err`: the log has no room.
    pub(crate) fn append(
        &self,
        body: &Body,
        checkpoint: bool,
        how: Durability,
    ) -> Result<Option<Io<()>>, NoRoom> {
        let mut log = self.log.lock();
        self.append_to(&mut log, body, checkpoint, how)
    }

    /// Adds a checkpoint record to the log of the drive with the given incarnation; `None` if the slot has
    /// another drive by now.
    pub(crate) fn append_of(&self, incarnation: u64, body: &Body) -> Result<Option<Io<()>>, NoRoom> {
        let mut log = self.log.lock();
        if log.incarnation != incarnation {
            return Ok(None);
        }
        self.append_to(&mut log, body, true, Durability::Cached)
    }

    /// Adds the end record of a checkpoint, for which a block is reserved.
    pub(crate) fn append_end(&self, incarnation: u64, how: Durability) -> Result<Option<Io<()>>, NoRoom> {
        let mut log = self.log.lock();
        if log.incarnation != incarnation || !log.rolling {
            return Ok(None);
        }
        log.reserved = log.reserved.saturating_sub(END);
        let io = self.put(&mut log, &Body::CheckpointEnd, true, how, 0);
        log.reserved += END;
        io
    }

    /// Adds a block of marks at the end of a checkpoint, for which a block is reserved; `None` if the slot has another drive by now.
    pub(crate) fn append_marks(&self, incarnation: u64, marks: &Body) -> Result<Option<Io<()>>, NoRoom> {
        let mut log = self.log.lock();
        if log.incarnation != incarnation || !log.rolling {
            return Ok(None);
        }
        if log.reserved_marks > 0 {
            log.reserved_marks -= 1;
            log.reserved = log.reserved.saturating_sub(1);
        }
        self.put(&mut log, marks, true, Durability::Cached, 0)
    }

    /// Reserves `blocks` of the log for [`append_reserved`](Member::append_reserved). False if the log has no room.
    pub(crate) fn reserve(&self, blocks: u64) -> bool {
        let mut log = self.log.lock();
        let room = self.device().is_none() || log.blocks_left() >= blocks;
        log.reserved += if room { blocks } else { 0 };
        room
    }

    /// Reserves `blocks` of the log like [`reserve`](Member::reserve). If the log has no room, `zone` is told when it has.
    pub(crate) fn reserve_or_wait(&self, blocks: u64, zone: ZoneId) -> bool {
        let mut log = self.log.lock();
        let room = self.device().is_none() || log.blocks_left() >= blocks;
        if room {
            log.reserved += blocks;
        } else {
            log.waiting.push((zone, None));
        }
        room
    }

    /// Gives back reserved blocks of the log.
    pub(crate) fn unreserve(&self, blocks: u64) {
        let mut log = self.log.lock();
        log.reserved = log.reserved.saturating_sub(blocks);
    }

    /// Adds a record to the log, in reserved room.
    pub(crate) fn append_reserved(&self, body: &Body, block_size: u32, how: Durability) -> Option<Io<()>> {
        let mut log = self.log.lock();
        log.reserved = log.reserved.saturating_sub(body.blocks(block_size));
        // Superblocks may have used the blocks that are kept for superblocks.
        self.put(&mut log, body, false, how, 0).expect("room was reserved")
    }

    /// Adds a record to a log that the caller has locked.
    pub(crate) fn append_to(
        &self,
        log: &mut Log,
        body: &Body,
        checkpoint: bool,
        how: Durability,
    ) -> Result<Option<Io<()>>, NoRoom> {
        let kept = if matches!(body, Body::Superblock(_)) { 0 } else { log.superblock_reserve };
        self.put(log, body, checkpoint, how, kept)
    }

    /// Adds a record to a log that the caller has locked, as an append where the drive allows that: many such records are in flight
    /// at a time, and may lie in any order. Nobody needs a record's place, and its sequence number gives its age.
    pub(crate) fn append_unordered(&self, log: &mut Log, body: &Body) -> Result<Option<Io<()>>, NoRoom> {
        let kept = log.superblock_reserve;
        let Some((drive, row, bytes)) = self.place(log, body, false, kept)? else { return Ok(None) };
        let zone = PhysicalZone::at(&*drive, log.zone);
        if row == 0 || !takes_append(&drive, bytes.len()) {
            return Ok(Some(zone.write(row, bytes, Durability::Cached)));
        }
        let io = zone.append(bytes, Durability::Cached);
        let landed = async move { io.await.map(|_| Done::Unit) };
        Ok(Some(Io::spawn(drive.driver(), &drive.geometry().name, landed).typed()))
    }

    /// Adds a record to the log and leaves `kept` blocks free.
    fn put(
        &self,
        log: &mut Log,
        body: &Body,
        checkpoint: bool,
        how: Durability,
        kept: u64,
    ) -> Result<Option<Io<()>>, NoRoom> {
        // The caller holds the log's lock, so that the log's writes are submitted in order.
        let Some((drive, row, bytes)) = self.place(log, body, checkpoint, kept)? else { return Ok(None) };
        Ok(Some(PhysicalZone::at(&*drive, log.zone).write(row, bytes, how)))
    }

    /// Gives a record its number and its rows at the end of the log, and leaves `kept` blocks free. `None` without a drive.
    fn place(
        &self,
        log: &mut Log,
        body: &Body,
        checkpoint: bool,
        kept: u64,
    ) -> Result<Option<(MemberDrive, u64, Buf)>, NoRoom> {
        let drive = self.drive.load();
        let Some(device) = drive.as_deref() else { return Ok(None) };
        let geometry = device.geometry();
        let place = RecordId {
            array: log.array,
            member: self.slot,
            epoch: log.epoch,
            sequence: log.sequence,
            checkpoint,
        };
        let bytes = record::encode(place, body, geometry.block_size);
        let blocks = bytes.len() as u64 / u64::from(geometry.block_size);
        // Blocks that other writes reserved are not available.
        if log.pointer + blocks + kept + log.reserved > log.capacity {
            return Err(NoRoom);
        }
        let row = log.pointer;
        log.pointer += blocks;
        log.sequence += 1;
        self.metrics.logged(body, bytes.len());
        Ok(Some((device.clone(), row, bytes)))
    }
}

/// True if a drive takes appends of `bytes`.
fn takes_append(device: &MemberDrive, bytes: usize) -> bool {
    let geometry = device.geometry();
    Blocks((bytes / geometry.block_size as usize) as u64) <= geometry.max_append
}

/// The error of a record that the metadata zone has no room for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct NoRoom;

impl fmt::Debug for Member {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?} {:?}", self.slot, self.device())
    }
}

#[cfg(test)]
mod tests;
