//! The logical zones of an assembled array: their locks, their queues, and how many may be open and active.
//!
//! Lock order: the limits, then one zone. Two zones are locked at a time only by a holder of the limits.

use std::sync::{Arc, OnceLock, Weak};

use parking_lot::{Mutex, MutexGuard};
use zoned::{
    Admission, Blocks, Bytes, Completer, Done, Error, ErrorKind, Geometry, Io, Resources, Result, ZoneEvent,
    ZoneId, ZoneInfo, ZoneKind, ZoneState,
};

use crate::context::Context;
use crate::deferred::Deferred;
use crate::events::EventKind;
use crate::layout::Slot;
use crate::layout::stored_maps::StoredMaps;
use crate::membership::Membership;
use crate::zone::Zone;
use crate::zone::filling_zones::FillingZones;
use crate::zone::free_zones::FreeZones;
use crate::zone::memory::Memory;
use crate::zone::shared_zones::SharedZones;
use crate::zone::work::{Work, WriteRequest};
use crate::zone::worn_zones::{WornZone, WornZones};

/// A zone that shares no cache line with another one.
#[repr(align(128))]
struct ZoneCell(Mutex<Zone>);

/// A zone that became full: its number, its generation, and where its content ends.
pub(crate) type FullZone = (ZoneId, u64, Blocks);

/// Carries out the operations of a zone.
pub(crate) trait Dispatch: Send + Sync {
    /// Begins `work` on the locked `zone`. `limits` are given if the work may change the zone's state.
    fn begin(
        &self,
        zone: &mut Zone,
        id: ZoneId,
        limits: Option<&mut Resources>,
        work: Work,
        completer: Completer,
        deferred: &mut Deferred,
    );
}

/// All logical zones of an array.
pub(crate) struct ZoneTable {
    ctx: Arc<Context>,
    members: Arc<Membership>,
    zones: Box<[ZoneCell]>,
    /// The numbers of open and active zones, and their limits.
    pub limits: Mutex<Resources>,
    /// Zones that became full since the last flush. The next flush records their ends.
    pub filled: Mutex<Vec<FullZone>>,
    /// Full zones that count as active, because a power cut may reopen their physical zones.
    pub filling: FillingZones,
    pub worn: WornZones,
    /// The physical zones that logical zones can take; empty with computed places.
    free: FreeZones,
    /// The physical zones that parts of several logical zones share; `None` if each part has a physical zone for itself.
    shared: Option<SharedZones>,
    /// The part that carries out the zones' work: set once, when the array is assembled.
    dispatch: OnceLock<Weak<dyn Dispatch>>,
}

impl ZoneTable {
    pub(crate) fn new(
        ctx: &Arc<Context>,
        members: &Arc<Membership>,
        zones: Vec<Zone>,
        limits: Resources,
        worn: Vec<WornZone>,
        (free, shared): (FreeZones, Option<SharedZones>),
    ) -> ZoneTable {
        ZoneTable {
            ctx: Arc::clone(ctx),
            members: Arc::clone(members),
            zones: zones.into_iter().map(|zone| ZoneCell(Mutex::new(zone))).collect(),
            limits: Mutex::new(limits),
            filled: Mutex::default(),
            filling: FillingZones::new(ctx.geometry.max_active.is_some()),
            worn: WornZones::new(worn),
            free,
            shared,
            dispatch: OnceLock::new(),
        }
    }

    /// Sets the part that carries out the zones' work.
    pub(crate) fn dispatch_to(&self, dispatch: Weak<dyn Dispatch>) {
        assert!(self.dispatch.set(dispatch).is_ok(), "an array is assembled once");
    }

    /// Locks a zone.
    pub(crate) fn zone(&self, id: ZoneId) -> MutexGuard<'_, Zone> {
        self.zones.get(id.index()).expect("checked where the operation came in").0.lock()
    }

    /// Changes a zone under its lock. Work that the change defers begins once the lock is released.
    pub(crate) fn change<T>(&self, id: ZoneId, change: impl FnOnce(&mut Zone, &mut Deferred) -> T) -> T {
        let mut deferred = Deferred::default();
        let result = change(&mut self.zone(id), &mut deferred);
        deferred.finish(&self.ctx);
        result
    }

    /// The numbers of all logical zones.
    pub(crate) fn ids(&self) -> impl Iterator<Item = ZoneId> + use<> {
        (0..self.ctx.geometry.zones).map(ZoneId)
    }

    /// The free physical zones of the drives.
    pub(crate) fn free(&self) -> &FreeZones {
        &self.free
    }

    /// The memory of all zones, their places, and the free physical zones. Locks one zone after the other.
    pub(crate) fn memory(&self) -> Memory {
        let places = self.ctx.places.stored().map_or(0, StoredMaps::bytes);
        let shared = self.shared().map_or(0, SharedZones::bytes);
        let (mut tables, mut parity, mut rows) = (places + self.free.bytes() + shared, 0, 0);
        for id in self.ids() {
            let zone = self.zone(id);
            tables += size_of::<ZoneCell>() + zone.heap_bytes();
            parity += zone.parity.len();
            rows += zone.relocated_rows(&self.ctx.layout);
        }
        let [tables, parity, relocated] =
            [tables, parity, self.ctx.bytes(rows)].map(|bytes| Bytes(bytes as u64));
        Memory { tables, parity, relocated }
    }

    /// The numbers of parts with content, of physical zones with content, and of empty ones, of each drive; `None` with computed places.
    pub(crate) fn zone_counts(&self) -> Option<Vec<(usize, usize, usize)>> {
        let maps = self.ctx.places.stored()?;
        if let Some(shared) = self.shared() {
            return Some(shared.counts());
        }
        let mut parts = vec![0; maps.drives() as usize];
        for slot in self.ids().flat_map(|id| maps.slots(id)) {
            if let Some(parts) = parts.get_mut(slot.index()) {
                *parts += 1;
            }
        }
        Some(parts.into_iter().zip(self.free.counts()).map(|(parts, empty)| (parts, parts, empty)).collect())
    }

    /// The physical zones that parts of several logical zones share, if they do.
    pub(crate) fn shared(&self) -> Option<&SharedZones> {
        self.shared.as_ref()
    }

    /// The parts of a zone, of `rows` rows each, take no more writes, and nothing of the zone is in flight: parts of other zones may
    /// go behind them, where they share physical zones.
    pub(crate) fn end_parts(&self, id: ZoneId, rows: u64) {
        if let Some((shared, maps)) = self.shared().zip(self.ctx.places.stored()) {
            maps.places(id).into_iter().for_each(|place| shared.end(id, place, rows));
        }
    }

    /// Begins `work` on a zone, or queues it behind earlier work.
    pub(crate) fn begin_or_queue(&self, id: ZoneId, work: Work) -> Io {
        let (completer, io) = Io::pair(&self.ctx.driver, &self.ctx.geometry.name);
        let mut deferred = Deferred::default();
        {
            let mut zone = self.zone(id);
            if work.is_of_ended_life(zone.generation) {
                return Io::ready(Err(self.ended_life_error(id)));
            }
            if zone.must_wait(&work) {
                zone.queue.push_back((work, completer));
                return io;
            }
            if self.changes_no_state(&zone, &work) {
                self.begin(&mut zone, id, None, work, completer, &mut deferred);
            } else {
                drop(zone);
                let mut limits = self.limits.lock();
                let mut zone = self.zone(id);
                if zone.must_wait(&work) {
                    zone.queue.push_back((work, completer));
                    return io;
                }
                self.begin(&mut zone, id, Some(&mut limits), work, completer, &mut deferred);
            }
        }
        deferred.finish(&self.ctx);
        io
    }

    /// Begins queued work of a zone, up to the first operation that must wait.
    pub(crate) fn begin_queued(&self, id: ZoneId) {
        let mut deferred = Deferred::default();
        {
            let mut limits = self.limits.lock();
            let mut zone = self.zone(id);
            while zone.queue.front().is_some_and(|(work, _)| !zone.holds_back(work)) {
                let Some((work, completer)) = zone.queue.pop_front() else { break };
                self.begin(&mut zone, id, Some(&mut limits), work, completer, &mut deferred);
            }
        }
        deferred.finish(&self.ctx);
    }

    /// The error of work for a life of a zone that a reset has ended.
    pub(crate) fn ended_life_error(&self, id: ZoneId) -> Error {
        self.ctx.error(ErrorKind::Cancelled, "pause").in_zone(id).because("the zone was reset meanwhile")
    }

    /// True if `work` leaves the zone's state as it is. This is the common case: no other zone is concerned.
    fn changes_no_state(&self, zone: &Zone, work: &Work) -> bool {
        match work {
            Work::Read { .. } | Work::Pause { .. } => true,
            Work::Write(WriteRequest { data, .. }) => {
                let blocks = data.len() as u64 / u64::from(self.ctx.geometry.block_size);
                // The first write makes physical zones active: full zones may count against the limit.
                let is_first = zone.pointer == Blocks::ZERO;
                zone.state.is_open() && !is_first && zone.pointer.0 + blocks < self.ctx.layout.capacity().0
            }
            Work::Act(_) => false,
        }
    }

    fn begin(
        &self,
        zone: &mut Zone,
        id: ZoneId,
        limits: Option<&mut Resources>,
        work: Work,
        completer: Completer,
        deferred: &mut Deferred,
    ) {
        if matches!(work, Work::Pause { .. }) {
            zone.busy = true;
            return deferred.complete(completer, Ok(Done::Unit));
        }
        let dispatch = self.dispatch.get().and_then(Weak::upgrade);
        let dispatch = dispatch.expect("an operation holds the array that it runs on");
        dispatch.begin(zone, id, limits, work, completer, deferred);
    }

    /// The numbers of active zones with a part on each drive, by slot. A zone that is locked at the moment counts: it is in use. The
    /// caller may hold the lock of a zone without a map.
    pub(crate) fn active_zones_of_drives(&self, maps: &StoredMaps) -> Vec<u32> {
        let mut active = vec![0; maps.drives() as usize];
        for (cell, id) in self.zones.iter().zip(self.ids()) {
            if maps.has(id) && cell.0.try_lock().is_none_or(|zone| zone.state.is_active()) {
                for slot in maps.slots(id) {
                    if let Some(active) = active.get_mut(slot.index()) {
                        *active += 1;
                    }
                }
            }
        }
        active
    }

    /// A zone's entry in a zone report.
    pub(crate) fn info(&self, id: ZoneId) -> ZoneInfo {
        let zone = self.zone(id);
        let capacity = self.ctx.layout.capacity();
        let pointer = if zone.state == ZoneState::Full { capacity } else { zone.pointer };
        ZoneInfo { zone: id, kind: ZoneKind::Sequential, state: zone.state, pointer, capacity }
    }

    /// Opens a zone. At the limit of open zones, the zone that was opened implicitly first is closed.
    pub(crate) fn admit(
        &self,
        limits: &mut Resources,
        zone: &mut Zone,
        id: ZoneId,
        name: &'static str,
        event: ZoneEvent,
    ) -> Result<()> {
        let to = zone.state.transition(event).map_err(|_| self.illegal_state_error(zone, id, name))?;
        match self.check_admission(limits, zone, id, name)? {
            Admission::Granted => {}
            Admission::Close(victim) => {
                limits.moved(victim, ZoneState::ImplicitOpen, ZoneState::Closed);
                self.zone(victim).state = ZoneState::Closed;
            }
        }
        limits.moved(id, zone.state, to);
        zone.state = to;
        if to == ZoneState::Full {
            self.filling.add(id);
        }
        Ok(())
    }

    /// Whether a zone can be opened now, beside the zones that are open and active.
    pub(crate) fn check_admission(
        &self,
        limits: &Resources,
        zone: &Zone,
        id: ZoneId,
        name: &'static str,
    ) -> Result<Admission> {
        check_limits(limits, zone.state, &self.ctx.geometry, (name, id))
    }

    /// Closes a zone.
    pub(crate) fn close(&self, limits: &mut Resources, zone: &mut Zone, id: ZoneId) -> Result<()> {
        let event = ZoneEvent::Close { empty: zone.pointer == Blocks::ZERO && zone.poison.is_none() };
        let to = zone.state.transition(event).map_err(|_| self.illegal_state_error(zone, id, "close"))?;
        limits.moved(id, zone.state, to);
        zone.state = to;
        Ok(())
    }

    /// The error of an operation that the zone's state does not allow.
    pub(crate) fn illegal_state_error(&self, zone: &Zone, id: ZoneId, name: &'static str) -> Error {
        let kind = match zone.state {
            ZoneState::Offline => return self.failed_zone_error(id, name),
            ZoneState::ReadOnly => ErrorKind::ZoneReadOnly,
            _ => ErrorKind::IllegalMove,
        };
        let why = match self.worn_reason(id) {
            Some(worn) => worn,
            None => format!("the zone is {:?}", zone.state),
        };
        self.ctx.error(kind, name).in_zone(id).because(why)
    }

    /// Which drive's part of a zone wore out, and what a user can do about the zone.
    pub(crate) fn worn_reason(&self, id: ZoneId) -> Option<String> {
        let worn = self.worn.part_of(id)?;
        let how = match worn.state {
            ZoneState::Offline => "offline: what it held is read from the other drives",
            _ => "read-only",
        };
        let remedy = match self.ctx.places.stored() {
            Some(_) => "reset it to have it back",
            None => "it cannot be reset: replace the drive to have the zone back",
        };
        Some(format!(
            "the zone's part on drive {} is {how}. What the zone holds can be read; nothing more is written to it: {remedy}",
            worn.slot.0
        ))
    }

    /// The state of a zone after a reset, or why the zone takes none.
    pub(crate) fn state_after_reset(&self, zone: &Zone, id: ZoneId) -> Result<ZoneState> {
        match (zone.state.transition(ZoneEvent::Reset), zone.state) {
            (Ok(to), _) => Ok(to),
            // A zone with a stored map takes other physical zones than the worn ones after a reset.
            (Err(_), ZoneState::ReadOnly) if self.ctx.places.stored().is_some() => Ok(ZoneState::Empty),
            // A reset is allowed of a failed zone whose parts are all present.
            (Err(_), ZoneState::Offline) if self.reset_blocker(id).is_none() => Ok(ZoneState::Empty),
            (Err(_), _) => Err(self.illegal_state_error(zone, id, "reset")),
        }
    }

    /// Why a failed zone cannot be reset now; `None` if a reset is possible.
    pub(crate) fn reset_blocker(&self, id: ZoneId) -> Option<String> {
        if let Some(lacking) = self.members.lacking().first() {
            return Some(format!("drive {} is lacking: replace it", lacking.slot.0));
        }
        // A zone with a stored map takes other physical zones.
        let worn = self.worn.part_of(id).filter(|_| self.ctx.places.stored().is_none())?;
        let how = if worn.state == ZoneState::Offline { "offline" } else { "read-only" };
        Some(format!("its part on drive {} is {how}: replace the drive", worn.slot.0))
    }

    /// The error of an operation on a failed zone: one of which two drives lack their part.
    pub(crate) fn failed_zone_error(&self, id: ZoneId, name: &'static str) -> Error {
        let next = match self.reset_blocker(id) {
            Some(why) => format!("{why}, then reset the zone"),
            None => "reset the zone to have it back".to_owned(),
        };
        let why = format!("the zone is lost, as two drives lacked their part of it; {next}");
        self.ctx.error(ErrorKind::ZoneOffline, name).in_zone(id).because(why)
    }

    /// The failed zones.
    pub(crate) fn failed_zones(&self) -> Vec<ZoneId> {
        self.ids().filter(|id| self.zone(*id).state == ZoneState::Offline).collect()
    }

    /// Records that a physical zone wore out, for each logical zone with a part there, and publishes an event for each if the wear is new.
    pub(crate) fn report_worn(&self, id: ZoneId, slot: Slot, state: ZoneState) {
        let place = self.ctx.places.role(id, slot).and_then(|role| self.ctx.places.place(id, role));
        let shared = self.shared().zip(place);
        let tenants = shared.map_or_else(Vec::new, |(shared, place)| shared.tenants(place));
        for zone in std::iter::once(id).chain(tenants.into_iter().filter(|tenant| *tenant != id)) {
            if self.worn.add(WornZone { slot, zone, state }) {
                tracing::warn!(slot = slot.0, zone = zone.0, ?state, "a zone wore out");
                self.ctx.publish(EventKind::ZoneWorn { slot, zone, state });
            }
        }
    }

    /// A physical zone takes no more writes, so the logical zone takes none either. The logical zone's parts
    /// on the other drives stay active, and the zone counts as active. A physical zone that is full too early
    /// is not worn: the next mount finds the logical zone full, and a reset makes both usable again.
    pub(crate) fn mark_worn(&self, id: ZoneId, slot: Slot, state: ZoneState, error: &Error) {
        match state {
            ZoneState::Full => {
                tracing::warn!(slot = slot.0, zone = id.0, %error, "a physical zone is full too early: the zone takes no more writes");
                self.ctx.publish(EventKind::ZoneWorn { slot, zone: id, state });
            }
            _ => self.report_worn(id, slot, state),
        }
        let mut limits = self.limits.lock();
        let mut zone = self.zone(id);
        if zone.state.is_active() {
            limits.moved(id, zone.state, ZoneState::Closed);
            zone.worn_active = true;
        }
        // A failed zone stays offline.
        if zone.state != ZoneState::Offline {
            zone.state = ZoneState::ReadOnly;
        }
    }

    /// True if a zone was reset since it had this generation, or a reset is under way.
    pub(crate) fn was_reset(&self, id: ZoneId, generation: u64) -> bool {
        let zone = self.zone(id);
        zone.generation != generation || zone.resetting
    }
}

/// Whether the limits of a geometry let a zone in a state open, for an operation `name` on zone `id`.
pub(crate) fn check_limits(
    limits: &Resources,
    state: ZoneState,
    geometry: &Geometry,
    (name, id): (&'static str, ZoneId),
) -> Result<Admission> {
    limits.admit(state, geometry.max_open, geometry.max_active).map_err(|kind| {
        let any = |n: Option<u32>| n.map_or("any number".into(), |n| n.to_string());
        Error::new(kind, &geometry.name, name).in_zone(id).because(format!(
            "{} open of {}, {} active of {}: close or finish another zone first",
            limits.open(),
            any(geometry.max_open),
            limits.active(),
            any(geometry.max_active)
        ))
    })
}
