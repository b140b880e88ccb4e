//! The allocator: the use of every zone, and the zone that a write of file data goes to, within the device's limits of open and
//! active zones. `ahead` and `lease` allocate zones for logs.

use std::collections::{BTreeMap, VecDeque};
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use units::ZoneId;
use zoned::{IoClass, ZoneState};

use crate::error::{Error, ErrorKind};
use crate::files::stat::ZoneRole;
use crate::wal::segment::Segment;
use crate::zones::conventional::ConventionalSpace;
use crate::zones::job_class::JobClass;
use crate::zones::open_zone::{DataKind, OpenZone};
use crate::zones::reserve::RecoveryReserve;
use crate::zones::slots::{DATA_ZONES_TO_DIVIDE_BY_SOURCE, MAX_OPEN_DATA_ZONES, OpenZoneShares};
use crate::zones::table::{LOW_FREE_ZONES, MIN_RECLAIM_GAIN_DIVISOR, Phase, Stream, Zone, ZoneTable};

/// A file gets a zone to itself if it leaves no more of the zone unused than the zone divided by this number.
pub(crate) const LONGEST_REST_DIVISOR: u64 = 4;

/// The zones of a mount by use: the zones that writes may go to, and the empty zones kept for a purpose.
#[derive(Debug)]
pub(crate) struct Allocator {
    pub table: ZoneTable,
    /// The space of the conventional zones.
    pub conventional: ConventionalSpace,
    /// True if logs take segments in conventional zones while there is space.
    pub prefers_conventional: bool,
    /// The data zones: file data is being written to them.
    pub open: Vec<Arc<OpenZone>>,
    /// How the open zones that the device allows are divided; `None` before the mount has decided it.
    pub slots: Option<OpenZoneShares>,
    /// Zones that wait for a finish. Each holds an open-zone slot until the finish.
    pub finishing: Vec<ZoneId>,
    /// Zones with log segments in front and room for another log behind them.
    pub rests: Vec<ZoneId>,
    /// The zone that each open log writes to, by the log's inode.
    pub leases: BTreeMap<u64, Lease>,
    /// Zones that logs have left while entries may still be in flight. Each holds an open-zone slot until it
    /// is full.
    pub leaving: Vec<LeftZone>,
    /// Empty zones, opened ahead for the next logs that need one.
    pub ahead: VecDeque<ZoneId>,
    /// Number of further zones to open ahead while empty zones are plentiful: a striped log replaces its zones together.
    pub wide: usize,
    /// True while a zone is being opened ahead.
    pub opening: bool,
    /// Zone generations that are durably set aside and not yet used.
    pub generations: Range<u64>,
    /// The committer makes metadata records up to this number durable, although no caller waits for them.
    pub commit_soon: u64,
    /// Number of empty zones kept for reclaim.
    pub kept: usize,
    /// Number of blocks in a zone.
    pub zone_blocks: u64,
    /// Number of blocks reserved for accepted bytes of all files.
    pub reserved_blocks: u64,
    /// The empty zones kept for the recovery of databases.
    pub reserve: RecoveryReserve,
    /// The highest class of the writers that wait for space.
    pub wanted: Option<IoClass>,
    /// The reclaim that has operations in flight, or had the last ones.
    pub reclaim_job: Option<Arc<JobClass>>,
    /// Number of logs that wait for an open zone.
    pub waiting_logs: usize,
    /// True if the cleaner found nothing to reclaim, and nothing was freed since.
    pub exhausted: bool,
    /// Counts the calls of [`note_reclaimable`](Allocator::note_reclaimable).
    pub changes: u64,
    /// Zones whose reclaim failed. The cleaner does not try them again.
    pub stuck: Vec<ZoneId>,
}

/// The zone that an open log writes to, and its segment.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Lease {
    pub zone: ZoneId,
    /// The segment that the log's writer got last.
    pub segment: Segment,
    /// True if the zone holds an open-zone slot: the log still writes to it, and the zone is not conventional.
    pub holds_slot: bool,
}

/// A zone that the open log with inode `ino` has left.
#[derive(Clone, Copy, Debug)]
pub(crate) struct LeftZone {
    pub ino: u64,
    pub zone: ZoneId,
}

/// Whose blocks a write places.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum PlaceFor {
    /// A writer's, who waits and hears of a full drive.
    Writer,
    /// Bytes that were accepted, for which blocks are reserved.
    AcceptedBytes,
    /// A reclaim's, which may take the zones kept for reclaim.
    Reclaim,
}

/// Whether a write goes to a zone that is kept for its file, by the file's inode.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum OwnZone {
    /// The file shares zones with others.
    No,
    /// The write is the file's first one: a zone is opened for the file if there is one to open.
    Begin(u64),
    /// The write goes to the zone that is kept for the file, if there is one.
    Continue(u64),
}

/// The zone for a write of file data, or why there is none yet.
pub(super) enum ZoneChoice {
    Zone(Arc<OpenZone>),
    /// The write waits: a zone or an open-zone slot becomes free without reclaim.
    Wait,
    /// The write needs reclaim: nothing else can make room.
    Starved,
}

impl Allocator {
    /// The allocator of the zones in `table`, before a mount has decided on the use of each zone. `block`: bytes of a block.
    pub(crate) fn new(table: ZoneTable, block: u64) -> Allocator {
        Allocator {
            conventional: ConventionalSpace::new(table.conventional(), block),
            prefers_conventional: false,
            table,
            open: Vec::new(),
            slots: None,
            finishing: Vec::new(),
            rests: Vec::new(),
            leases: BTreeMap::new(),
            leaving: Vec::new(),
            ahead: VecDeque::new(),
            wide: 0,
            opening: false,
            generations: 0..0,
            commit_soon: 0,
            kept: 0,
            zone_blocks: 0,
            reserved_blocks: 0,
            reserve: RecoveryReserve::default(),
            wanted: None,
            reclaim_job: None,
            waiting_logs: 0,
            exhausted: false,
            changes: 0,
            stuck: Vec::new(),
        }
    }

    /// Notes that blocks were freed, or that a zone became a candidate for reclaim: the cleaner checks again.
    pub(crate) fn note_reclaimable(&mut self) {
        self.exhausted = false;
        self.changes += 1;
    }

    /// Number of open zones of all uses.
    fn slots_taken(&self) -> usize {
        let places = self;
        let metadata = places.slots.map_or(1, |s| s.metadata);
        let logs = self.log_slots_taken() + places.rests.len() + self.zones_ahead();
        metadata + self.data_slots_taken() + logs + places.finishing.len()
    }

    fn data_slots_taken(&self) -> usize {
        self.open.iter().filter(|zone| zone.takes_slot()).count()
    }

    /// True if one more zone may be open.
    pub(crate) fn slot_free(&self) -> bool {
        self.slots.is_none_or(|slots| self.slots_taken() < slots.total)
    }

    /// True if logs may hold one more zone. The last slot is for data: otherwise logs and data could wait for each other.
    pub(crate) fn lease_allowed(&self) -> bool {
        self.slots.is_none_or(|slots| self.log_slots_taken() + slots.metadata + 1 < slots.total)
    }

    /// True if a log may take an empty zone.
    pub(crate) fn log_may_take_free(&self) -> bool {
        self.table.free_zone_count() > self.kept && self.log_leaves_reserve()
    }

    /// True if file data may take an empty zone.
    fn may_take_free(&self, who: PlaceFor) -> bool {
        let least = match who {
            PlaceFor::Reclaim => 0,
            PlaceFor::AcceptedBytes => self.kept,
            PlaceFor::Writer => self.kept + self.kept_for_logs(),
        };
        self.table.free_zone_count() > least && (who == PlaceFor::Reclaim || self.data_leaves_reserve())
    }

    /// Number of empty zones below which reclaim begins.
    pub(crate) fn scarce_free_zones(&self) -> usize {
        self.kept + self.reserved_zones() + LOW_FREE_ZONES
    }

    /// A writer of `class` waits for space.
    pub(super) fn want(&mut self, class: IoClass) {
        self.wanted = Some(self.wanted.map_or(class, |wanted| wanted.min(class)));
    }

    /// True if a log that takes an empty zone leaves the reserve for recovery whole, and the blocks reserved for accepted bytes.
    pub(crate) fn log_leaves_reserve(&self) -> bool {
        self.leaves(self.reserve.left_by_log(self.table.live_log_zones(), self.table.usable_zones()))
            && self.log_leaves_reserved_blocks()
    }

    /// True if one more zone may have live segments of logs without taking an empty zone: the reserve for recovery grows, and is still whole.
    pub(crate) fn reserve_may_grow(&self) -> bool {
        let reserved = self.reserve.left_by_log(self.table.live_log_zones(), self.table.usable_zones());
        reserved == 0 || self.empty_zones() >= self.kept + reserved
    }

    /// True if file data that takes an empty zone leaves the reserve for recovery whole.
    pub(crate) fn data_leaves_reserve(&self) -> bool {
        self.leaves(self.reserved_zones())
    }

    /// True if `reserved` empty zones, and those kept for reclaim, are left after one more is taken.
    fn leaves(&self, reserved: usize) -> bool {
        reserved == 0 || self.empty_zones() > self.kept + reserved
    }

    /// Number of empty zones that file data may take of those that are not kept for recovery.
    pub(super) fn zones_above_reserve(&self) -> usize {
        match self.reserved_zones() {
            0 => usize::MAX,
            reserved => self.empty_zones().saturating_sub(self.kept + reserved),
        }
    }

    /// Number of empty zones. A zone opened ahead is empty.
    pub(super) fn empty_zones(&self) -> usize {
        self.table.free_zone_count() + self.ahead.len()
    }

    /// Number of empty zones kept for the recovery of databases.
    pub(super) fn reserved_zones(&self) -> usize {
        self.reserve.left_by_data(self.table.live_log_zones(), self.table.usable_zones())
    }

    /// Queues an idle zone for a finish, which frees its open-zone slot.
    pub(crate) fn free_a_slot(&mut self) {
        if let Some(rest) = self.rests.pop() {
            self.finishing.push(rest);
            return;
        }
        if self.open.len() < 2 {
            return;
        }
        let spared = |z: &Arc<OpenZone>| {
            let room = if z.is_of_reclaim() { 0 } else { z.room() };
            self.reserved_are_there_without(room)
        };
        let may_go = self.open.iter().enumerate().filter(|(_, zone)| spared(zone));
        let (owned, shared): (Vec<_>, Vec<_>) = may_go.partition(|(_, zone)| zone.owner().is_some());
        let idle = shared.into_iter().chain(owned).find_map(|(i, z)| Some((i, z.retire()?)));
        if let Some((index, pointer)) = idle {
            let zone = self.open.remove(index).zone;
            self.table.note_state(zone, ZoneState::Closed, pointer);
            self.finishing.push(zone);
        }
    }

    /// Blocks that data files can still be given, on a device with `capacity` blocks in a zone: 0 when a write fails with
    /// `NoSpace`.
    ///
    /// Not counted, although unused: the empty zones kept for reclaim, which needs them to empty any other
    /// zone; one rest of a log zone, kept for the next log; dead log segments in a zone with live ones; and
    /// up to one part in `MIN_RECLAIM_GAIN_DIVISOR` of each full zone. The whole segment of an open log counts as used; a
    /// zone opened ahead for logs does not.
    pub(crate) fn writable_blocks(&self, capacity: u64) -> u64 {
        let least = (capacity / MIN_RECLAIM_GAIN_DIVISOR).max(1);
        let gain = |zone: ZoneId, z: &Zone| match z.phase {
            Phase::Free | Phase::Ahead | Phase::Resetting => z.capacity,
            Phase::Full if z.live == 0 || z.is_reclaim_candidate(least) && !self.stuck.contains(&zone) => {
                z.capacity - z.live
            }
            _ => 0,
        };
        let zones: u64 = self.table.iter().map(|(zone, z)| gain(zone, z)).sum();
        let open = |z: &Arc<OpenZone>| {
            let live = self.table.get(z.zone).map_or(0, |z| z.live);
            let idle = z.in_flight.load(Ordering::Acquire) == 0;
            // Blocks in flight are neither live nor free.
            let from = if idle { live.min(z.pointer()) } else { z.pointer() };
            z.capacity - from
        };
        let rooms: u64 = self.open.iter().map(open).sum();
        let kept = (self.kept + self.reserved_zones()) as u64 * capacity;
        (zones + rooms).saturating_sub(kept + self.reserved_blocks)
    }

    /// The zone that is kept for a file; `None` where the file shares zones with others. A new one leaves an open-zone slot to data that shares zones.
    fn choose_own_zone(&mut self, kind: DataKind, own: OwnZone, who: PlaceFor) -> Option<Arc<OpenZone>> {
        let (OwnZone::Begin(ino) | OwnZone::Continue(ino)) = own else { return None };
        let kept = self.open.iter().find(|zone| zone.owner() == Some(ino) && zone.has_room());
        if kept.is_some() || own != OwnZone::Begin(ino) {
            return kept.cloned();
        }
        if self.data_slots_taken() + 1 >= self.data_slots() || !self.slot_free() || !self.may_take_free(who) {
            return None;
        }
        let zone = self.table.next_free_zone(Stream::of(kind))?;
        let open = self.open_zone(zone, kind);
        open.set_owner(Some(ino));
        Some(open)
    }

    /// Ends the keeping of a zone for file `ino`, which is written. The zone is queued for a finish, so that no other file's data gets into it; where much of
    /// it is unused, it goes to all files instead if they have none of that lifetime. Returns true where a zone was queued.
    pub(crate) fn release_own_zone(&mut self, ino: u64) -> bool {
        let Some(index) = self.open.iter().position(|zone| zone.owner() == Some(ino)) else { return false };
        let Some(open) = self.open.get(index).cloned() else { return false };
        let is_long = open.room() > open.capacity / LONGEST_REST_DIVISOR;
        let shares_lifetime = |zone: &Arc<OpenZone>| {
            zone.owner().is_none() && !zone.is_of_reclaim() && zone.lifetime == open.lifetime
        };
        let is_needed = is_long && !self.open.iter().any(|zone| shares_lifetime(zone) && zone.has_room());
        open.set_owner(None);
        if is_needed || !self.reserved_are_there_without(open.room()) {
            return false;
        }
        let Some(pointer) = open.retire() else { return false };
        self.open.remove(index);
        self.table.note_state(open.zone, ZoneState::Closed, pointer);
        self.finishing.push(open.zone);
        true
    }

    /// Number of data zones that may be open at once.
    fn data_slots(&self) -> usize {
        self.slots.map_or(MAX_OPEN_DATA_ZONES, |slots| slots.data)
    }

    /// Chooses the zone for the next write of file data of `kind`.
    pub(super) fn choose_zone(&mut self, kind: DataKind, own: OwnZone, who: PlaceFor) -> ZoneChoice {
        if let Some(zone) = self.choose_own_zone(kind, own, who) {
            return ZoneChoice::Zone(zone);
        }
        let privileged = who == PlaceFor::Reclaim;
        // While all zones kept for reclaim and for recovery are empty, reclaim can empty any zone, so every writer may use
        // reclaim's zone.
        let reserved = self.reserved_zones();
        let whole = self.table.free_zone_count() >= self.kept
            && (reserved == 0 || self.empty_zones() >= self.kept + reserved);
        let data_slots = self.data_slots();
        let usable = |z: &&Arc<OpenZone>| z.has_room() && (privileged || whole || !z.is_of_reclaim());
        let distance = |z: &&Arc<OpenZone>| {
            let (a, b) = (z.lifetime.number(), kind.lifetime.number());
            // A flush that shared a zone with a compaction would wait for the compaction's writes before it.
            let differs = data_slots >= DATA_ZONES_TO_DIVIDE_BY_SOURCE && z.source != kind.source;
            // Data that survived until a reclaim is long-lived: reclaimed data shares zones with reclaimed data.
            // Another file's zone is for data that finds no other room.
            (z.owner().is_some(), z.is_of_reclaim() != privileged, a.abs_diff(b), differs)
        };
        let best = self.open.iter().filter(usable).min_by_key(distance).cloned();
        if let Some(zone) = &best
            && distance(&zone) == (false, false, 0, false)
        {
            return ZoneChoice::Zone(Arc::clone(zone));
        }
        let may_open = self.data_slots_taken() < data_slots && self.slot_free();
        if may_open
            && self.may_take_free(who)
            // The last empty zones serve all lifetimes and sources: only plentiful zones are divided by them.
            && (best.as_ref().is_none_or(|zone| zone.owner().is_some()) || self.table.free_zone_count() > self.kept + data_slots)
            && let Some(zone) = self.table.next_free_zone(Stream::of(kind))
        {
            return ZoneChoice::Zone(self.open_zone(zone, kind));
        }
        if let Some(zone) = best {
            return ZoneChoice::Zone(zone);
        }
        if !self.slot_free()
            && (privileged || self.data_leaves_reserve())
            && let Some(zone) = self.ahead.pop_back()
        {
            // A zone opened ahead already holds an open-zone slot.
            return ZoneChoice::Zone(self.open_zone(zone, kind));
        }
        if !may_open && self.finishing.is_empty() {
            // A zone is queued for a finish, because no other task would free an open-zone slot for this
            // write.
            self.finishing.extend(self.rests.pop());
        }
        // A write waits only for events that are certain and that are announced: the end of the writes to a
        // full zone (the tasks that submitted them do not wait for space meanwhile), and the cleaner's
        // finish.
        let passing = |z: &Arc<OpenZone>| !z.has_room() && z.writing.load(Ordering::Acquire) > 0;
        if self.open.iter().any(passing) || !self.finishing.is_empty() || self.opening {
            return ZoneChoice::Wait;
        }
        ZoneChoice::Starved
    }

    /// The error of a write for which no space is left.
    pub(crate) fn no_space(&self) -> Error {
        let (live, usable) = (self.table.live(), self.table.usable());
        let free = usable.saturating_sub(live);
        Error::new(ErrorKind::NoSpace, "allocating blocks").because(format!(
            "{live} blocks are in use, {free} are not and are needed for reclaim{}; delete something",
            if self.reserved_zones() > 0 { " and for the recovery of databases" } else { "" }
        ))
    }

    pub(super) fn open_zone(&mut self, zone: ZoneId, kind: DataKind) -> Arc<OpenZone> {
        let lifetime = kind.lifetime;
        let capacity = self.table.get(zone).map_or(0, |z| z.capacity);
        self.table.note_last_zone(Stream::of(kind), zone);
        self.table.set(zone, Phase::Data, ZoneRole::Data { lifetime });
        self.table.note_state(zone, ZoneState::ImplicitOpen, 0);
        let open = OpenZone::new(zone, kind, capacity, 0);
        self.open.push(Arc::clone(&open));
        open
    }
}
