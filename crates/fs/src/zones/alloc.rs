//! Placement: which zone a write goes to, within the device's open and active limits.

use std::collections::{BTreeMap, VecDeque};
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};

use parking_lot::Mutex;
use units::ZoneId;
use units::sync::Turnstile;
use zoned::{Geometry, ZoneState};

use crate::error::{Error, ErrorKind};
use crate::files::stat::ZoneRole;
use crate::metadata::format::record::lifetime_byte;
use crate::metadata::state::State;
use crate::options::Lifetime;
use crate::wal::segment::Segment;
use crate::zones::cleaner::LEAST_GAIN;
use crate::zones::table::{Phase, Zone};

/// Zones open at once where the device has no limit.
const UNLIMITED: usize = 32;
/// Data zones open at once: one per lifetime and one for reclaim.
const MAX_DATA: usize = 7;
/// The fewest open zones the file system works with: metadata, two logs (a database switches from one to the next
/// before it closes the old one), data.
pub(crate) const MIN_SLOTS: usize = 4;
/// Below this many, one metadata zone is open at a time.
const SLOTS_FOR_TWO_METADATA: usize = 7;
/// With fewer, no zone is opened ahead for logs.
const SLOTS_FOR_ONE_RESERVED: usize = 7;
/// With fewer, one is, and two otherwise.
const SLOTS_FOR_TWO_RESERVED: usize = 10;
/// A device with at least this many zones keeps two zones for reclaim, otherwise one.
const ZONES_FOR_TWO_RESERVED: u64 = 64;

/// How the device's open zones are shared out.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Slots {
    pub total: usize,
    pub metadata: usize,
    pub data: usize,
    /// Zones opened ahead for logs.
    pub reserved: usize,
}

impl Slots {
    /// The shares on a device with these limits.
    pub(crate) fn of(geometry: &Geometry) -> Slots {
        let limit = |l: Option<u32>| l.map_or(UNLIMITED, |l| l as usize);
        let total = limit(geometry.max_open).min(limit(geometry.max_active)).min(UNLIMITED);
        let metadata = if total >= SLOTS_FOR_TWO_METADATA { 2 } else { 1 };
        let logs = if total > MIN_SLOTS { 2 } else { 1 };
        let reserved = match total {
            SLOTS_FOR_TWO_RESERVED.. => 2,
            SLOTS_FOR_ONE_RESERVED.. => 1,
            _ => 0,
        };
        let data = total.saturating_sub(metadata + logs).clamp(1, MAX_DATA);
        Slots { total, metadata, data, reserved }
    }
}

/// Zones that file data is being written to.
#[derive(Debug, Default)]
pub(crate) struct Places {
    pub open: Vec<Arc<OpenZone>>,
    pub slots: Option<Slots>,
    /// Zones that wait for a finish, and hold a slot till then.
    pub finishing: Vec<ZoneId>,
    /// Zones with log segments in front and room behind.
    pub rests: Vec<ZoneId>,
    /// Zones that open logs write to, by log.
    pub leases: BTreeMap<u64, Lease>,
    /// Zones that logs have left, with entries on the way to them perhaps: each holds a slot until it is full.
    pub leaving: Vec<Left>,
    /// Empty zones, open for the logs that need one next.
    pub reserved: VecDeque<ZoneId>,
    /// So many more are opened while there is plenty: logs that write several zones at a time leave them together.
    pub wide: usize,
    /// One more is being opened.
    pub opening: bool,
    /// Generations that are durable and not used.
    pub generations: Range<u64>,
    /// Records up to this number are to be made durable soon, though nobody waits for them.
    pub commit_soon: u64,
    /// Empty zones kept for reclaim.
    pub reserve: usize,
    /// A writer waits for space.
    pub wanted: bool,
    /// Logs that wait for an open zone.
    pub waiting_logs: usize,
    /// The cleaner found nothing to reclaim, and nothing was freed since.
    pub hopeless: bool,
    /// How often something was freed or became a candidate for reclaim.
    pub changes: u64,
    /// Zones whose reclaim failed: not tried again.
    pub stuck: Vec<ZoneId>,
}

impl Places {
    /// Something was freed, or can be reclaimed now: who found nothing looks again.
    pub(crate) fn there_is_hope(&mut self) {
        self.hopeless = false;
        self.changes += 1;
    }
}

/// The zone that an open log writes to.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Lease {
    pub zone: ZoneId,
    /// The segment handed to its writer last.
    pub segment: Segment,
    /// The zone is still being written: it holds a slot.
    pub active: bool,
}

/// A zone that an open log has left.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Left {
    pub ino: u64,
    pub zone: ZoneId,
}

/// A zone that file data is written to.
#[derive(Debug)]
pub(crate) struct OpenZone {
    pub zone: ZoneId,
    pub lifetime: Lifetime,
    pub reclaim: bool,
    pub(super) capacity: u64,
    /// The next block. Held while a write is submitted: submission order is pointer order.
    pub(super) next: Mutex<u64>,
    /// The same without the lock: a waiting writer must not stop those who choose a zone.
    pub(super) hint: AtomicU64,
    /// Writes that no metadata refers to yet: until then the zone must not be taken for dead.
    pub(super) in_flight: AtomicU32,
    /// Held by who writes a piece, where data makes way for logs.
    pub(super) turn: Turnstile,
    /// Writes that the device has not acknowledged.
    pub(super) writing: AtomicU32,
    pub(super) failed: AtomicBool,
}

impl OpenZone {
    /// A zone whose pointer is at block `next`.
    pub(crate) fn new(
        zone: ZoneId,
        lifetime: Lifetime,
        reclaim: bool,
        capacity: u64,
        next: u64,
    ) -> Arc<OpenZone> {
        Arc::new(OpenZone {
            zone,
            lifetime,
            reclaim,
            capacity,
            next: Mutex::new(next),
            hint: AtomicU64::new(next),
            in_flight: AtomicU32::new(0),
            turn: Turnstile::new(),
            writing: AtomicU32::new(0),
            failed: AtomicBool::new(false),
        })
    }

    pub(super) fn has_room(&self) -> bool {
        !self.failed.load(Ordering::Acquire) && self.hint.load(Ordering::Acquire) < self.capacity
    }

    /// Whether the device counts the zone as open: a zone written to its end is full.
    fn takes_slot(&self) -> bool {
        self.hint.load(Ordering::Acquire) < self.capacity
            || self.writing.load(Ordering::Acquire) > 0
            || self.failed.load(Ordering::Acquire)
    }

    /// Ends the zone where it is, if nothing is in flight: gives its pointer.
    fn retire(&self) -> Option<u64> {
        let mut next = self.next.lock();
        if self.in_flight.load(Ordering::Acquire) > 0 {
            return None;
        }
        self.hint.store(self.capacity, Ordering::Release);
        Some(std::mem::replace(&mut *next, self.capacity))
    }

    /// Blocks submitted.
    pub(crate) fn pointer(&self) -> u64 {
        self.hint.load(Ordering::Acquire)
    }
}

/// Where a write may go.
pub(super) enum Pick {
    Zone(Arc<OpenZone>),
    /// A zone or a slot comes free in a moment.
    Wait,
    /// Only reclaim can help.
    Starved,
}

impl State {
    /// Open zones of all uses.
    fn slots_taken(&self) -> usize {
        let places = &self.places;
        let metadata = places.slots.map_or(1, |s| s.metadata);
        let reserved = places.reserved.len() + usize::from(places.opening);
        let logs = self.log_slots_taken() + places.rests.len() + reserved;
        metadata + self.data_slots_taken() + logs + places.finishing.len()
    }

    fn data_slots_taken(&self) -> usize {
        self.places.open.iter().filter(|zone| zone.takes_slot()).count()
    }

    /// Whether one more zone may be open.
    pub(crate) fn slot_free(&self) -> bool {
        self.places.slots.is_none_or(|slots| self.slots_taken() < slots.total)
    }

    /// Whether logs may hold one more zone: the last slot is for data, or both would wait for each other.
    pub(crate) fn lease_allowed(&self) -> bool {
        self.places.slots.is_none_or(|slots| self.log_slots_taken() + slots.metadata + 1 < slots.total)
    }

    /// Whether a log may take an empty zone.
    pub(crate) fn log_may_take_free(&self) -> bool {
        self.zones.free_count() > self.places.reserve
    }

    /// Whether data may take an empty zone.
    fn may_take_free(&self, privileged: bool) -> bool {
        let least = if privileged { 0 } else { self.places.reserve + self.kept_for_logs() };
        self.zones.free_count() > least
    }

    /// Ends the use of an idle zone, so that its slot comes free once it is finished.
    pub(crate) fn give_up_a_slot(&mut self) {
        if let Some(rest) = self.places.rests.pop() {
            self.places.finishing.push(rest);
            return;
        }
        if self.places.open.len() < 2 {
            return;
        }
        let idle = self.places.open.iter().enumerate().find_map(|(i, z)| Some((i, z.retire()?)));
        if let Some((index, pointer)) = idle {
            let zone = self.places.open.remove(index).zone;
            self.zones.note(zone, ZoneState::Closed, pointer);
            self.places.finishing.push(zone);
        }
    }

    /// Blocks that data files can still be given, on a device with `capacity` blocks in a zone. It is 0 when a write fails with `NoSpace`.
    ///
    /// What is not in use and not counted: the reserve (one zone, two on a device of `ZONES_FOR_TWO_RESERVED` or
    /// more; reclaim needs it to empty any other zone), at most `MAX_RESTS` rests of zones for the next log, dead
    /// log segments in a zone with live ones, and up to one part in `LEAST_GAIN` of each full zone. The whole segment
    /// of an open log is in use; zones opened ahead for logs are not.
    pub(crate) fn writable(&self, capacity: u64) -> u64 {
        let least = (capacity / LEAST_GAIN).max(1);
        let gain = |zone: ZoneId, z: &Zone| match z.phase {
            Phase::Free | Phase::Reserved | Phase::Resetting => z.capacity,
            Phase::Full if z.live == 0 || z.is_candidate(least) && !self.places.stuck.contains(&zone) => {
                z.capacity - z.live
            }
            _ => 0,
        };
        let zones: u64 = self.zones.iter().map(|(zone, z)| gain(zone, z)).sum();
        let open = |z: &Arc<OpenZone>| {
            let live = self.zones.get(z.zone).map_or(0, |z| z.live);
            let idle = z.in_flight.load(Ordering::Acquire) == 0;
            // What is in flight is neither live nor free.
            let from = if idle { live.min(z.pointer()) } else { z.pointer() };
            z.capacity - from
        };
        let rooms: u64 = self.places.open.iter().map(open).sum();
        (zones + rooms).saturating_sub(self.places.reserve as u64 * capacity)
    }

    pub(super) fn pick(&mut self, lifetime: Lifetime, privileged: bool) -> Pick {
        // With its reserve whole, reclaim can empty any zone: what it has room for elsewhere is for all.
        let whole = self.zones.free_count() >= self.places.reserve;
        let usable = |z: &&Arc<OpenZone>| z.has_room() && (privileged || whole || !z.reclaim);
        let distance = |z: &&Arc<OpenZone>| {
            let (a, b) = (lifetime_byte(z.lifetime), lifetime_byte(lifetime));
            // Reclaimed data lives long: it goes with its like.
            (z.reclaim != privileged, a.abs_diff(b))
        };
        let best = self.places.open.iter().filter(usable).min_by_key(distance).cloned();
        if let Some(zone) = &best
            && distance(&zone) == (false, 0)
        {
            return Pick::Zone(Arc::clone(zone));
        }
        let data_slots = self.places.slots.map_or(MAX_DATA, |s| s.data);
        let may_open = self.data_slots_taken() < data_slots && self.slot_free();
        if may_open
            && self.may_take_free(privileged)
            && let Some(zone) = self.zones.first_free()
        {
            // The last empty zones serve all: only plenty is shared out by lifetime.
            let plenty = self.zones.free_count() > self.places.reserve + data_slots;
            if best.is_none() || plenty {
                return Pick::Zone(self.open_zone(zone, lifetime, privileged));
            }
        }
        if let Some(zone) = best {
            return Pick::Zone(zone);
        }
        if !self.slot_free()
            && let Some(zone) = self.places.reserved.pop_back()
        {
            // It brings its slot along.
            return Pick::Zone(self.open_zone(zone, lifetime, privileged));
        }
        if !may_open && self.places.finishing.is_empty() {
            // Nobody else would free a slot for this one.
            self.places.finishing.extend(self.places.rests.pop());
        }
        // Only what certainly ends, and is announced when it does, is waited for: the writes to a full zone (who
        // submitted them does not wait for space meanwhile), and the cleaner.
        let passing = |z: &Arc<OpenZone>| !z.has_room() && z.writing.load(Ordering::Acquire) > 0;
        if self.places.open.iter().any(passing) || !self.places.finishing.is_empty() || self.places.opening {
            return Pick::Wait;
        }
        Pick::Starved
    }

    pub(super) fn open_zone(&mut self, zone: ZoneId, lifetime: Lifetime, reclaim: bool) -> Arc<OpenZone> {
        let capacity = self.zones.get(zone).map_or(0, |z| z.capacity);
        self.zones.set(zone, Phase::Data, ZoneRole::Data { lifetime });
        self.zones.note(zone, ZoneState::ImplicitOpen, 0);
        let open = OpenZone::new(zone, lifetime, reclaim, capacity, 0);
        self.places.open.push(Arc::clone(&open));
        open
    }
}

/// Sets the reserve for a device with `usable` blocks for files.
pub(crate) fn reserve(zones: u64) -> usize {
    if zones >= ZONES_FOR_TWO_RESERVED { 2 } else { 1 }
}

pub(crate) fn no_space(state: &State) -> Error {
    let free = state.zones.usable().saturating_sub(state.zones.live());
    Error::new(ErrorKind::NoSpace, "allocating blocks").because(format!(
        "{} blocks are in use, {free} are not and are needed for reclaim; delete something",
        state.zones.live()
    ))
}
