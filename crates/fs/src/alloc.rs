//! Placement: which zone a write goes to, within the device's open and active limits.

use std::collections::{BTreeMap, VecDeque};
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};

use parking_lot::Mutex;
use units::sync::Turnstile;
use units::{Blocks, ZoneId};
use zoned::{Buf, BufMut, Durability, Geometry, Io, ZoneState};

use crate::cleaner::LEAST_GAIN;
use crate::format::record::lifetime_byte;
use crate::log::Segment;
use crate::shared::Shared;
use crate::state::State;
use crate::zones::{Phase, Zone};
use crate::{Error, ErrorKind, Lifetime, Pace, Result, ZoneRole};

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
/// Bytes of file data that go to a zone at a time where logs are not to wait for more: drives that buffer writes reach
/// their rate with less in flight.
const PIECE: u64 = 64 << 10;
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
    capacity: u64,
    /// The next block. Held while a write is submitted: submission order is pointer order.
    next: Mutex<u64>,
    /// The same without the lock: a waiting writer must not stop those who choose a zone.
    hint: AtomicU64,
    /// Writes that no metadata refers to yet: until then the zone must not be taken for dead.
    in_flight: AtomicU32,
    /// Held by who writes a piece, where data makes way for logs.
    turn: Turnstile,
    /// Writes that the device has not acknowledged.
    writing: AtomicU32,
    failed: AtomicBool,
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

    fn has_room(&self) -> bool {
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
enum Pick {
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

    fn pick(&mut self, lifetime: Lifetime, privileged: bool) -> Pick {
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

    fn open_zone(&mut self, zone: ZoneId, lifetime: Lifetime, reclaim: bool) -> Arc<OpenZone> {
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

/// Blocks on the device that no file refers to yet. Dropping it lets their zones go on.
#[derive(Debug)]
pub(crate) struct Placed<'a> {
    shared: &'a Shared,
    /// Zone, first block within it, number of blocks: in the order of the data.
    pub runs: Vec<(ZoneId, Blocks, u64)>,
    /// Blocks of zeros behind them.
    pub padding: u64,
    held: Vec<Arc<OpenZone>>,
}

impl Drop for Placed<'_> {
    fn drop(&mut self) {
        for zone in std::mem::take(&mut self.held) {
            self.shared.let_go(&zone);
        }
    }
}

/// How much of the data is to be placed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Amount {
    /// All, and up to so many blocks of zeros behind it where these end one of the device's optimal writes.
    All { padding: u64 },
    /// What ends with one of the device's optimal writes, and at least something: the rest follows with what comes next.
    Whole,
}

/// How many of `blocks` blocks to write at block `at` of a zone with room for `room`: they end with one of the device's
/// optimal writes where they reach the end of one.
fn whole(at: u64, blocks: u64, room: u64, optimal: u64) -> u64 {
    let over = (at + blocks) % optimal.max(1);
    if blocks == room || over >= blocks { blocks } else { blocks - over }
}

/// How many blocks are missing behind `blocks` blocks at block `at`, so that one of the device's optimal writes, or the
/// zone, ends there.
fn missing(at: u64, blocks: u64, room: u64, optimal: u64) -> u64 {
    let end = at + blocks;
    (end.next_multiple_of(optimal.max(1)) - end).min(room - blocks)
}

/// `data` with so many blocks of zeros behind it.
fn padded(data: Buf, behind: u64, block: usize) -> Buf {
    if behind == 0 {
        return data;
    }
    let len = data.len() + usize::try_from(behind).expect("no longer than a transfer") * block;
    let mut longer = BufMut::with_capacity(len);
    longer.extend_from_slice(&data);
    longer.resize(len, 0);
    longer.freeze()
}

impl Shared {
    /// Writes whole blocks to zones of `lifetime`, and waits until the device has them. Waits for reclaim before
    /// it fails with `NoSpace`. `privileged`: may take the zones kept for reclaim.
    pub(crate) async fn place(
        &self,
        lifetime: Lifetime,
        data: &Buf,
        amount: Amount,
        privileged: bool,
    ) -> Result<Placed<'_>> {
        let geometry = self.dev.geometry();
        let optimal = geometry.optimal_write.0;
        let block = geometry.block_size as usize;
        let mut placed = Placed { shared: self, runs: Vec::new(), padding: 0, held: Vec::new() };
        let mut ios = Vec::new();
        let mut at = 0;
        let mut failed = None;
        while at < data.len() {
            let left = ((data.len() - at) / block) as u64;
            if amount == Amount::Whole && at > 0 && left < optimal {
                break;
            }
            let seen = self.space.version();
            let open = match self.zone_now(lifetime, privileged) {
                Ok(Some(open)) => open,
                Ok(None) if ios.is_empty() => {
                    self.kick_cleaner();
                    self.space.changed_since(seen).await;
                    continue;
                }
                Ok(None) => {
                    // Others may wait for the end of these writes: who waits for space has none under way.
                    failed = self.settle(std::mem::take(&mut ios), &placed.held).await;
                    if failed.is_some() {
                        break;
                    }
                    continue;
                }
                Err(error) => {
                    failed = Some(error);
                    break;
                }
            };
            let paced = self.is_paced();
            let here = Arc::clone(&open);
            let turn = if paced { Some(here.turn.acquire().await) } else { None };
            let most = if paced { (PIECE / block as u64).max(optimal) } else { u64::MAX };
            let to = {
                let mut next = open.next.lock();
                let room = open.capacity.saturating_sub(*next);
                let mut n = left.min(room).min(geometry.max_transfer.0).min(most);
                if n == 0 {
                    continue;
                }
                let mut behind = 0;
                match amount {
                    Amount::All { padding } if n == left => {
                        let more = missing(*next, n, room, optimal);
                        let fits = more <= padding && n + more <= geometry.max_transfer.0.min(most);
                        behind = if fits { more } else { 0 };
                    }
                    _ => n = whole(*next, n, room, optimal),
                }
                let to = at + usize::try_from(n).expect("no longer than the data") * block;
                open.in_flight.fetch_add(1, Ordering::AcqRel);
                open.writing.fetch_add(1, Ordering::AcqRel);
                let lba = geometry.start(open.zone).plus(Blocks(*next));
                ios.push(self.dev.write(lba, padded(data.slice(at..to), behind, block), Durability::Cached));
                placed.runs.push((open.zone, Blocks(*next), n));
                placed.padding = behind;
                *next += n + behind;
                open.hint.store(*next, Ordering::Release);
                to
            };
            placed.held.push(open);
            at = to;
            if turn.is_some() {
                failed = self.settle(std::mem::take(&mut ios), &placed.held).await;
                if failed.is_some() {
                    break;
                }
            }
        }
        let late = self.settle(ios, &placed.held).await;
        failed.or(late).map_or(Ok(placed), Err)
    }

    /// Whether file data makes way for logs.
    fn is_paced(&self) -> bool {
        match self.options.pace {
            Pace::ParallelLogs => self.parallel_logs.load(Ordering::Relaxed) > 0,
            Pace::Always => true,
            Pace::Never => false,
        }
    }

    /// Waits for writes to the last zones of `held`: for every one, whatever the others say, so that the pointers
    /// are known then. Gives what went wrong.
    async fn settle(&self, ios: Vec<Io<()>>, held: &[Arc<OpenZone>]) -> Option<Error> {
        let mut failed = None;
        let held = held.get(held.len().saturating_sub(ios.len())..).unwrap_or_default();
        for (result, open) in zoned::join_all(ios).await.into_iter().zip(held) {
            if let Err(error) = result {
                open.failed.store(true, Ordering::Release);
                failed = Some(Error::device("writing file data", error));
            }
            if open.writing.fetch_sub(1, Ordering::AcqRel) == 1 && !open.has_room() {
                self.space.notify();
            }
        }
        failed
    }

    /// A zone to write to; `None` where there may be one after the next change of `space`.
    fn zone_now(&self, lifetime: Lifetime, privileged: bool) -> Result<Option<Arc<OpenZone>>> {
        self.check_open()?;
        // The cleaner stops with the metadata: nobody would finish a zone for this writer.
        self.meta.check()?;
        let mut state = self.state.lock();
        match state.pick(lifetime, privileged) {
            Pick::Zone(zone) => return Ok(Some(zone)),
            Pick::Wait if !privileged => {}
            Pick::Starved if !privileged && !state.places.hopeless => state.places.wanted = true,
            // Reclaim itself waits only for writes that are under way: finishing zones is its own task.
            Pick::Wait if state.places.finishing.is_empty() => {}
            Pick::Wait | Pick::Starved => {
                // Before there is no space at all, what is kept for logs goes to data.
                let zone = state.places.reserved.pop_back().ok_or_else(|| no_space(&state))?;
                return Ok(Some(state.open_zone(zone, lifetime, privileged)));
            }
        }
        Ok(None)
    }

    /// A write to `open` is over and accounted for.
    fn let_go(&self, open: &Arc<OpenZone>) {
        let mut state = self.state.lock();
        let last = open.in_flight.fetch_sub(1, Ordering::AcqRel) == 1;
        state.zones.note(open.zone, ZoneState::ImplicitOpen, open.pointer());
        if !last || open.has_room() {
            return;
        }
        let before = state.places.open.len();
        state.places.open.retain(|z| !Arc::ptr_eq(z, open));
        if state.places.open.len() == before {
            return;
        }
        if open.failed.load(Ordering::Acquire) {
            state.zones.note(open.zone, ZoneState::Closed, open.capacity);
            state.places.finishing.push(open.zone);
        } else {
            state.zones.note(open.zone, ZoneState::Full, open.capacity);
            state.zones.set_phase(open.zone, Phase::Full);
        }
        // What is dead in it can be reclaimed from now on.
        state.places.there_is_hope();
        drop(state);
        self.kick_cleaner();
        self.space.notify();
    }
}

pub(crate) fn no_space(state: &State) -> Error {
    let free = state.zones.usable().saturating_sub(state.zones.live());
    Error::new(ErrorKind::NoSpace, "allocating blocks").because(format!(
        "{} blocks are in use, {free} are not and are needed for reclaim; delete something",
        state.zones.live()
    ))
}
