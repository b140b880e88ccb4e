//! The medium of an emulated drive: executes operations without timing and records what a power cut may undo.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;

use parking_lot::{Mutex, MutexGuard};

use crate::checks;
use crate::emu::EmuOptions;
use crate::emu::content::{Content, Hash128, Pool};
use crate::emu::file::drive::Drive;
use crate::emu::file::flush::FlushedZones;
use crate::emu::history::{OpId, Sequence};
use crate::emu::zone::{Origin, Zone};
use crate::{
    Action, Admission, Blocks, Buf, BufMut, Done, Durability, Error, ErrorKind, Geometry, Lba, Op, Resources,
    Result, ZoneEvent, ZoneId, ZoneInfo, ZoneKind, ZoneState,
};

/// The time at which an operation was submitted that takes effect later.
#[derive(Clone, Copy, Debug)]
pub struct Moment(Sequence);

/// A medium without timing: operations take effect at once, in the order of submission. Cloning copies no data.
///
/// A power cut may lose an operation until the operation is acknowledged, and with a volatile cache until a flush
/// covers it. [`Media::cut`] gives the outcomes.
///
/// Threads may share a medium: each zone has its own lock.
pub struct Media {
    pub(super) geometry: Arc<Geometry>,
    pub(super) pool: Arc<Pool>,
    pub(super) zones: Box<[ZoneSlot]>,
    pub(super) track: bool,
    /// True if appends in flight land in any order, which module `reorder` implements above the medium.
    pub(super) reorder: bool,
    resources: Mutex<Resources>,
    tracker: Mutex<Tracker>,
    pub(super) seed: u64,
    /// The drive file, which holds flushed content that is no longer in memory.
    pub(super) drive: Option<Arc<Drive>>,
}

impl FlushedZones for Media {
    fn block_size(&self) -> u32 {
        self.geometry.block_size
    }

    fn pool(&self) -> &Pool {
        &self.pool
    }

    fn lock_zone(&self, id: ZoneId) -> MutexGuard<'_, Zone> {
        self.lock(id)
    }
}

/// A zone on cache lines of its own, so that locks of neighbouring zones do not share a line.
#[derive(Debug)]
#[repr(align(128))]
pub(super) struct ZoneSlot(pub(super) Mutex<Zone>);

/// Operations that are not acknowledged yet.
#[derive(Clone, Debug, Default)]
struct Tracker {
    sequence: Sequence,
    last: OpId,
    in_flight: BTreeMap<OpId, AckTarget>,
}

/// The zone or flush that an acknowledgement applies to.
#[derive(Clone, Copy, Debug)]
enum AckTarget {
    Zone(ZoneId),
    Flush { covers: Sequence },
}

impl Media {
    /// The medium of an empty drive. Panics if the settings contradict each other (see
    /// [`EmuOptions::geometry`]).
    pub fn new(options: &EmuOptions) -> Media {
        let geometry = options.geometry().expect("the settings fit together");
        let conventional = geometry.conventional;
        let zones = (0..geometry.zones).map(|z| Zone::new(z < conventional)).collect();
        Media::from_zones(Arc::new(geometry), options, zones)
    }

    /// The medium of a drive made of `zones`.
    pub(super) fn from_zones(geometry: Arc<Geometry>, options: &EmuOptions, zones: Vec<Zone>) -> Media {
        let pool = Arc::new(Pool::new(geometry.block_size, geometry.zone_size.bytes(geometry.block_size).0));
        let mut media = Media::with_pool(geometry, pool, zones);
        media.track = options.track_power_cuts;
        media.seed = options.seed;
        media.reorder = options.reorder;
        media
    }

    fn with_pool(geometry: Arc<Geometry>, pool: Arc<Pool>, zones: Vec<Zone>) -> Media {
        let mut resources = Resources::default();
        for (zone, id) in zones.iter().zip(0..) {
            resources.moved(ZoneId(id), ZoneState::Empty, zone.state);
        }
        Media {
            geometry,
            pool,
            zones: zones.into_iter().map(|z| ZoneSlot(Mutex::new(z))).collect(),
            track: false,
            reorder: false,
            resources: Mutex::new(resources),
            tracker: Mutex::default(),
            seed: 0,
            drive: None,
        }
    }

    /// The medium of a drive with the same settings, other zones and no operation in flight.
    pub(super) fn with_zones(&self, zones: Vec<Zone>) -> Media {
        let mut media = Media::with_pool(Arc::clone(&self.geometry), Arc::clone(&self.pool), zones);
        (media.track, media.seed, media.reorder) = (self.track, self.seed, self.reorder);
        media
    }

    /// A copy of the medium in memory, without the drive file: the file's content is read into memory.
    pub(super) fn detached(&self) -> Result<Media> {
        let Some(drive) = &self.drive else { return Ok(self.clone()) };
        let size = u64::from(self.geometry.block_size);
        let mut zones = Vec::with_capacity(self.zones.len());
        for id in 0..self.geometry.zones {
            let zone = self.lock(ZoneId(id));
            let mut copy = zone.clone();
            let conventional = zone.state == ZoneState::Conventional;
            let below = if conventional { self.geometry.zone_size.0 } else { zone.stored } * size;
            let (mut at, mut buffer) = (0, vec![0; self.pool.chunk()]);
            let mut content = Content::default();
            while at < below {
                let n = (below - at).min(buffer.len() as u64) as usize;
                let part = buffer.get_mut(..n).expect("no longer than a chunk");
                drive.read(ZoneId(id), at, part).map_err(|e| self.host_error("read", ZoneId(id), e))?;
                content.write(&self.pool, at as usize, part, true);
                at += n as u64;
            }
            let upper = (zone.written.saturating_sub(zone.stored) * size) as usize;
            if upper > 0 {
                let mut data = vec![0; upper];
                zone.content.read(&self.pool, below as usize, &mut data);
                content.write(&self.pool, below as usize, &data, true);
            }
            for (block, data) in std::mem::take(&mut copy.overlay) {
                content.write(&self.pool, (block * size) as usize, &data, true);
            }
            (copy.content, copy.stored) = (content, 0);
            zones.push(copy);
        }
        Ok(self.with_zones(zones))
    }

    /// The geometry of the medium's drive.
    pub fn geometry(&self) -> &Geometry {
        &self.geometry
    }

    /// Executes an operation on the medium. If power cuts are tracked, the caller acknowledges `id` when the
    /// submitter gets the result. A failed operation needs no acknowledgement.
    pub fn submit(&self, id: OpId, op: &Op) -> Result<Done> {
        match op {
            Op::Read { at, into } => self.read(*at, BufMut::zeroed(into.len())).map(Done::Read),
            Op::Write { at, data, how } => self.write(id, *at, data, *how).map(|()| Done::Unit),
            Op::Append { zone, data, how } => self.append(id, *zone, data, *how).map(Done::At),
            Op::Flush => {
                self.flush(id);
                Ok(Done::Unit)
            }
            Op::Zone { zone, action } => self.act(id, *zone, *action).map(|()| Done::Unit),
            Op::Report { zones } => Ok(Done::Zones(self.report(zones.clone()))),
        }
    }

    /// Fills `into` with the blocks at `at`. The error of a failed read returns the buffer.
    pub(super) fn read(&self, at: Lba, mut into: BufMut) -> Result<BufMut> {
        match self.try_read(at, &mut into) {
            Ok(()) => Ok(into),
            Err(e) => Err(e.with_buffer(into)),
        }
    }

    fn try_read(&self, at: Lba, into: &mut BufMut) -> Result<()> {
        let (id, offset, blocks) = self.locate_transfer("read", at, into.len())?;
        let size = u64::from(self.geometry.block_size);
        // A conventional zone that is worn to read-only keeps its content.
        let conventional = self.geometry.is_conventional(id);
        let zone = self.lock(id);
        let readable = match zone.state {
            ZoneState::Offline => return Err(self.error(ErrorKind::ZoneOffline, "read", id).at(at)),
            _ if conventional => u64::MAX,
            ZoneState::Full if !self.geometry.read_past_pointer => self.geometry.zone_capacity.0,
            _ => zone.written,
        };
        if offset + blocks > readable && !self.geometry.read_past_pointer {
            return Err(self.error(ErrorKind::ReadPastPointer, "read", id).at(at).because(format!(
                "{blocks} blocks at offset {offset}; the pointer is at offset {}",
                zone.written
            )));
        }
        // Chunks are reused, so blocks past the pointer are zeroed rather than read.
        let held = if conventional { blocks } else { zone.written.saturating_sub(offset).min(blocks) };
        let (data, rest) = into.split_at_mut((held * size) as usize);
        rest.fill(0);
        let below = match &self.drive {
            None => 0,
            Some(_) if conventional => held,
            Some(_) => zone.stored.saturating_sub(offset).min(held),
        };
        let (lower, upper) = data.split_at_mut((below * size) as usize);
        if let (Some(drive), false) = (&self.drive, lower.is_empty()) {
            drive.read(id, offset * size, lower).map_err(|e| self.host_error("read", id, e).at(at))?;
            for (block, data) in zone.overlay.range(offset..offset + below) {
                let from = ((block - offset) * size) as usize;
                lower.get_mut(from..from + data.len()).expect("a block within").copy_from_slice(data);
            }
        }
        zone.content.read(&self.pool, ((offset + below) * size) as usize, upper);
        Ok(())
    }

    /// Writes at a zone's pointer, or at any address of a conventional zone.
    pub(super) fn write(&self, op: OpId, at: Lba, data: &Buf, how: Durability) -> Result<()> {
        let (id, offset, _) = self.locate_transfer("write", at, data.len())?;
        let origin = Origin { id: op, append: false, fua: how == Durability::Durable, born: self.moment().0 };
        if !self.geometry.is_conventional(id) {
            return self.put(id, "write", Some(offset), data, origin).map(|_| ());
        }
        let mut zone = self.lock(id);
        match zone.state {
            ZoneState::Offline => return Err(self.error(ErrorKind::ZoneOffline, "write", id).at(at)),
            ZoneState::ReadOnly => return Err(self.error(ErrorKind::ZoneReadOnly, "write", id).at(at)),
            _ => {}
        }
        let size = self.geometry.block_size as usize;
        if self.drive.is_some() {
            for block in 0..data.len() / size {
                zone.overlay.insert(offset + block as u64, data.slice(block * size..(block + 1) * size));
            }
        } else {
            zone.rewrite(&self.pool, size as u64, offset, data, self.track.then_some(origin));
        }
        self.expect_ack(op, id);
        self.record_write("write", id, zone, data.len())
    }

    /// Appends at a zone's pointer; returns the address.
    pub(super) fn append(&self, op: OpId, id: ZoneId, data: &Buf, how: Durability) -> Result<Lba> {
        self.append_late(op, id, data, how, self.moment())
    }

    /// Executes an append that was submitted earlier, at [`Media::moment`]. Appends in flight at the same time may
    /// have taken effect before. Returns the address.
    pub fn append_late(
        &self,
        op: OpId,
        id: ZoneId,
        data: &Buf,
        how: Durability,
        submitted: Moment,
    ) -> Result<Lba> {
        let blocks = checks::check_append(&self.geometry, "append", id, data.len())?;
        let offset = self.put(
            id,
            "append",
            None,
            data,
            Origin { id: op, append: true, fua: how == Durability::Durable, born: submitted.0 },
        )?;
        debug_assert!(offset + blocks <= self.geometry.zone_capacity.0);
        Ok(self.geometry.start(id).plus(Blocks(offset)))
    }

    /// Writes `data` at a zone's pointer; returns the offset in the zone.
    fn put(
        &self,
        id: ZoneId,
        name: &'static str,
        at: Option<u64>,
        data: &Buf,
        origin: Origin,
    ) -> Result<u64> {
        let size = u64::from(self.geometry.block_size);
        let blocks = data.len() as u64 / size;
        let capacity = self.geometry.zone_capacity.0;
        let track = self.track.then_some(origin);
        {
            // In the common case an open zone stays open, so that the counts of open zones need no lock.
            let mut zone = self.lock(id);
            let offset = zone.written;
            if zone.state.is_open() && offset + blocks < capacity && at.is_none_or(|at| at == offset) {
                zone.put(&self.pool, size, data, track);
                self.expect_ack(origin.id, id);
                return self.record_write(name, id, zone, data.len()).map(|()| offset);
            }
        }
        let mut resources = self.resources.lock();
        let mut zone = self.lock(id);
        let offset = zone.written;
        let lba = self.geometry.start(id).plus(Blocks(at.unwrap_or(offset)));
        let refuse = |kind| Err(self.error(kind, name, id).at(lba));
        match zone.state {
            ZoneState::Offline => return refuse(ErrorKind::ZoneOffline),
            ZoneState::ReadOnly => return refuse(ErrorKind::ZoneReadOnly),
            ZoneState::Full => return refuse(ErrorKind::ZoneFull),
            _ => {}
        }
        if at.is_some_and(|at| at != offset) {
            let pointer = self.geometry.start(id).plus(Blocks(offset));
            let error = self.error(ErrorKind::NotAtWritePointer, name, id).at(lba);
            return Err(error.because(format!("the pointer is at block {pointer}")));
        }
        if offset + blocks > capacity {
            let error = self.error(ErrorKind::ZoneFull, name, id).at(lba);
            return Err(error.because(format!("{blocks} blocks, {} left", capacity - offset)));
        }
        let event = ZoneEvent::Write { fills: offset + blocks == capacity };
        self.admit_open_zone(&mut resources, &zone, name, id)?;
        if self.track {
            zone.start_history();
        }
        self.transition(&mut resources, &mut zone, name, id, event)?;
        zone.put(&self.pool, size, data, track);
        self.expect_ack(origin.id, id);
        drop(resources);
        self.record_write(name, id, zone, data.len()).map(|()| offset)
    }

    /// Marks a changed zone for the next flush of the drive file. With too many unflushed bytes the flush
    /// happens at once, the only case in which a submitter waits for the file.
    fn record_write(
        &self,
        name: &'static str,
        id: ZoneId,
        mut zone: MutexGuard<'_, Zone>,
        bytes: usize,
    ) -> Result<()> {
        let Some(drive) = &self.drive else { return Ok(()) };
        if !std::mem::replace(&mut zone.touched, true) {
            drive.mark_changed(id);
        }
        drop(zone);
        if drive.add_unflushed(bytes) {
            drive.flush(self).map_err(|e| self.host_error(name, id, e))
        } else {
            Ok(())
        }
    }

    fn host_error(&self, name: &'static str, id: ZoneId, e: std::io::Error) -> Error {
        self.error(ErrorKind::Host, name, id).because(e.to_string()).from_source(e)
    }

    /// Records a flush; its acknowledgement makes durable what the flush covers.
    pub(super) fn flush(&self, op: OpId) {
        if self.track {
            let mut tracker = self.tracker.lock();
            let covers = tracker.sequence;
            tracker.last = tracker.last.max(op);
            tracker.in_flight.insert(op, AckTarget::Flush { covers });
        }
    }

    /// Executes a zone command on the medium.
    pub(super) fn act(&self, op: OpId, id: ZoneId, action: Action) -> Result<()> {
        let (name, event) = match action {
            Action::Open => ("open", ZoneEvent::Open),
            Action::Close => ("close", ZoneEvent::Close { empty: false }),
            Action::Finish => ("finish", ZoneEvent::Finish),
            Action::Reset => ("reset", ZoneEvent::Reset),
        };
        self.check_zone_exists(name, id)?;
        let mut resources = self.resources.lock();
        let mut zone = self.lock(id);
        let was = zone.state;
        let event = match event {
            ZoneEvent::Close { .. } => ZoneEvent::Close { empty: zone.written == 0 },
            other => other,
        };
        if action == Action::Open && was.transition(event).is_ok() {
            self.admit_open_zone(&mut resources, &zone, name, id)?;
        }
        if self.track && was != ZoneState::Conventional {
            zone.start_history();
        }
        self.transition(&mut resources, &mut zone, name, id, event)?;
        let track = self.track.then_some(op);
        match action {
            Action::Finish if was != ZoneState::Full => zone.finish(track),
            Action::Reset if was != ZoneState::Empty => zone.reset(&self.pool, track),
            _ => return Ok(()),
        }
        self.expect_ack(op, id);
        drop(resources);
        self.record_write(name, id, zone, 0)
    }

    /// The states of the given zones.
    pub(super) fn report(&self, zones: Range<u32>) -> Vec<ZoneInfo> {
        let end = zones.end.min(self.geometry.zones);
        (zones.start..end).map(|z| self.info(ZoneId(z))).collect()
    }

    fn info(&self, id: ZoneId) -> ZoneInfo {
        let conventional = self.geometry.is_conventional(id);
        let capacity = if conventional { self.geometry.zone_size } else { self.geometry.zone_capacity };
        let zone = self.lock(id);
        let pointer = match zone.state {
            _ if conventional => capacity,
            ZoneState::Full => capacity,
            _ => Blocks(zone.written),
        };
        let kind = if conventional { ZoneKind::Conventional } else { ZoneKind::Sequential };
        ZoneInfo { zone: id, kind, state: zone.state, pointer, capacity }
    }

    /// Records that the submitter of operation `id` has the result. Unknown operations, such as failed ones,
    /// are ignored.
    pub fn acknowledge(&self, id: OpId) {
        if !self.track {
            return;
        }
        let mut tracker = self.tracker.lock();
        let Some(target) = tracker.in_flight.remove(&id) else { return };
        let sequence = tracker.sequence;
        tracker.sequence += 1;
        drop(tracker);
        let block = u64::from(self.geometry.block_size);
        match target {
            AckTarget::Zone(zone) => {
                let lasting = !self.geometry.volatile_cache;
                self.lock(zone).acknowledge(&self.pool, block, id, sequence, lasting);
            }
            AckTarget::Flush { covers } => {
                for slot in &self.zones {
                    slot.0.lock().apply_flush(&self.pool, block, covers);
                }
            }
        }
    }

    /// Puts a zone of the medium into [`ZoneState::ReadOnly`] or [`ZoneState::Offline`] permanently.
    pub fn wear(&self, id: ZoneId, state: ZoneState) {
        let mut resources = self.resources.lock();
        let mut zone = self.lock(id);
        resources.moved(id, zone.state, state);
        zone.state = state;
        if let Some(drive) = &self.drive
            && !std::mem::replace(&mut zone.touched, true)
        {
            drive.mark_changed(id);
        }
    }

    /// The numbers of open and of active zones of the medium.
    pub fn in_use(&self) -> (u32, u32) {
        let resources = self.resources.lock();
        (resources.open(), resources.active())
    }

    /// A hash of everything that the medium would read or report once its open zones are closed. Equal images
    /// have equal fingerprints.
    pub fn fingerprint(&self) -> u128 {
        let size = u64::from(self.geometry.block_size);
        let mut hash = Hash128::default();
        for (id, slot) in (0..).map(ZoneId).zip(&self.zones) {
            let zone = slot.0.lock();
            let (state, readable) = match zone.state {
                ZoneState::Conventional => (1_u32, self.geometry.zone_size.0),
                ZoneState::Full => (2, zone.written),
                ZoneState::ReadOnly if self.geometry.is_conventional(id) => (3, self.geometry.zone_size.0),
                ZoneState::ReadOnly => (3, zone.written),
                ZoneState::Offline => (4, 0),
                _ => (0, zone.written),
            };
            hash.add(u128::from(state) << 64 | u128::from(zone.written));
            if readable > 0 {
                hash.add(zone.content.hash(&self.pool, (readable * size) as usize));
            }
        }
        hash.finish()
    }

    pub(super) fn lock(&self, id: ZoneId) -> MutexGuard<'_, Zone> {
        self.zones.get(id.index()).expect("checked against the geometry").0.lock()
    }

    /// The current time as the medium counts: the number of acknowledgements.
    pub fn moment(&self) -> Moment {
        Moment(if self.track { self.tracker.lock().sequence } else { 0 })
    }

    /// An operation number above all used ones.
    pub(super) fn first_unused_id(&self) -> OpId {
        OpId(self.tracker.lock().last.0 + 1)
    }

    fn expect_ack(&self, op: OpId, zone: ZoneId) {
        if self.track {
            let mut tracker = self.tracker.lock();
            tracker.last = tracker.last.max(op);
            tracker.in_flight.insert(op, AckTarget::Zone(zone));
        }
    }

    /// Admits one more open zone, if the drive's limits allow it. May close an implicitly open zone.
    fn admit_open_zone(
        &self,
        resources: &mut Resources,
        zone: &Zone,
        name: &'static str,
        id: ZoneId,
    ) -> Result<()> {
        let (max_open, max_active) = (self.geometry.max_open, self.geometry.max_active);
        match resources.admit(zone.state, max_open, max_active) {
            Ok(Admission::Granted) => Ok(()),
            Ok(Admission::Close(victim)) => {
                // Only the holder of the `resources` lock may lock two zones, which avoids a deadlock.
                let mut other = self.lock(victim);
                resources.moved(victim, other.state, ZoneState::Closed);
                other.state = ZoneState::Closed;
                Ok(())
            }
            Err(kind) => Err(self.error(kind, name, id).because(format!(
                "{} open of {}, {} active of {}: close or finish another zone first",
                resources.open(),
                max_open.map_or("any number".into(), |n| n.to_string()),
                resources.active(),
                max_active.map_or("any number".into(), |n| n.to_string()),
            ))),
        }
    }

    fn transition(
        &self,
        resources: &mut Resources,
        zone: &mut Zone,
        name: &'static str,
        id: ZoneId,
        event: ZoneEvent,
    ) -> Result<()> {
        let from = zone.state;
        let to = from.transition(event).map_err(|illegal| {
            let kind = match illegal.from {
                ZoneState::Conventional => ErrorKind::Conventional,
                ZoneState::ReadOnly => ErrorKind::ZoneReadOnly,
                ZoneState::Offline => ErrorKind::ZoneOffline,
                ZoneState::Full if matches!(event, ZoneEvent::Write { .. }) => ErrorKind::ZoneFull,
                _ => ErrorKind::IllegalMove,
            };
            self.error(kind, name, id).because(format!("the zone is {from:?}"))
        })?;
        resources.moved(id, from, to);
        zone.state = to;
        Ok(())
    }

    fn check_zone_exists(&self, name: &'static str, id: ZoneId) -> Result<()> {
        checks::check_zone_exists(&self.geometry, name, id)
    }

    /// A transfer's zone, offset in the zone and number of blocks.
    fn locate_transfer(&self, name: &'static str, at: Lba, bytes: usize) -> Result<(ZoneId, u64, u64)> {
        checks::locate_transfer(&self.geometry, name, at, bytes).map(|t| (t.zone, t.offset, t.blocks))
    }

    pub(super) fn error(&self, kind: ErrorKind, name: &'static str, zone: ZoneId) -> Error {
        Error::new(kind, &self.geometry.name, name).in_zone(zone)
    }
}

impl Clone for Media {
    fn clone(&self) -> Media {
        let resources = self.resources.lock();
        let zones = self.zones.iter().map(|slot| ZoneSlot(Mutex::new(slot.0.lock().clone()))).collect();
        Media {
            geometry: Arc::clone(&self.geometry),
            pool: Arc::clone(&self.pool),
            zones,
            track: self.track,
            reorder: self.reorder,
            resources: Mutex::new(resources.clone()),
            tracker: Mutex::new(self.tracker.lock().clone()),
            seed: self.seed,
            drive: self.drive.clone(),
        }
    }
}

impl std::fmt::Debug for Media {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Media({}, {} zones)", self.geometry.name, self.geometry.zones)
    }
}
