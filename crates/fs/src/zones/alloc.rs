//! Allocation: which zone a write of file data goes to, within the device's limits of open and active zones.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use units::ZoneId;
use zoned::ZoneState;

use crate::error::{Error, ErrorKind};
use crate::files::stat::ZoneRole;
use crate::metadata::format::record::lifetime_byte;
use crate::metadata::state::State;
use crate::options::Lifetime;
use crate::zones::open_zone::OpenZone;
use crate::zones::slots::MAX_DATA;
use crate::zones::table::{LEAST_GAIN, Phase, Zone};

/// Where a write may go.
pub(super) enum Pick {
    Zone(Arc<OpenZone>),
    /// A zone or a slot becomes free without further help.
    Wait,
    /// Only reclaim can make room.
    Starved,
}

impl State {
    /// Number of open zones of all uses.
    fn slots_taken(&self) -> usize {
        let places = &self.places;
        let metadata = places.slots.map_or(1, |s| s.metadata);
        let logs = self.log_slots_taken() + places.rests.len() + self.zones_ahead();
        metadata + self.data_slots_taken() + logs + places.finishing.len()
    }

    fn data_slots_taken(&self) -> usize {
        self.places.open.iter().filter(|zone| zone.takes_slot()).count()
    }

    /// True if one more zone may be open.
    pub(crate) fn slot_free(&self) -> bool {
        self.places.slots.is_none_or(|slots| self.slots_taken() < slots.total)
    }

    /// True if logs may hold one more zone. The last slot is for data: otherwise logs and data could wait for each other.
    pub(crate) fn lease_allowed(&self) -> bool {
        self.places.slots.is_none_or(|slots| self.log_slots_taken() + slots.metadata + 1 < slots.total)
    }

    /// True if a log may take an empty zone.
    pub(crate) fn log_may_take_free(&self) -> bool {
        self.zones.free_count() > self.places.kept
    }

    /// True if data may take an empty zone.
    fn may_take_free(&self, privileged: bool) -> bool {
        let least = if privileged { 0 } else { self.places.kept + self.kept_for_logs() };
        self.zones.free_count() > least
    }

    /// Has an idle zone finished, which frees its slot.
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

    /// Blocks that data files can still be given, on a device with `capacity` blocks in a zone: 0 when a write fails with
    /// `NoSpace`.
    ///
    /// Unused and still not counted: the empty zones kept for reclaim, which needs them to empty any other zone; one rest
    /// of a log zone, kept for the next log; dead log segments in a zone with live ones; and up to one part in `LEAST_GAIN`
    /// of each full zone. The whole segment of an open log counts as used; a zone opened ahead for logs does not.
    pub(crate) fn writable(&self, capacity: u64) -> u64 {
        let least = (capacity / LEAST_GAIN).max(1);
        let gain = |zone: ZoneId, z: &Zone| match z.phase {
            Phase::Free | Phase::Ahead | Phase::Resetting => z.capacity,
            Phase::Full if z.live == 0 || z.is_candidate(least) && !self.places.stuck.contains(&zone) => {
                z.capacity - z.live
            }
            _ => 0,
        };
        let zones: u64 = self.zones.iter().map(|(zone, z)| gain(zone, z)).sum();
        let open = |z: &Arc<OpenZone>| {
            let live = self.zones.get(z.zone).map_or(0, |z| z.live);
            let idle = z.in_flight.load(Ordering::Acquire) == 0;
            // Blocks in flight are neither live nor free.
            let from = if idle { live.min(z.pointer()) } else { z.pointer() };
            z.capacity - from
        };
        let rooms: u64 = self.places.open.iter().map(open).sum();
        (zones + rooms).saturating_sub(self.places.kept as u64 * capacity)
    }

    /// Chooses the zone for the next write of `lifetime`. `privileged`: reclaim asks.
    pub(super) fn pick(&mut self, lifetime: Lifetime, privileged: bool) -> Pick {
        // While all zones kept for reclaim are empty, reclaim can empty any zone, so every writer may use reclaim's zone.
        let whole = self.zones.free_count() >= self.places.kept;
        let usable = |z: &&Arc<OpenZone>| z.has_room() && (privileged || whole || !z.reclaim);
        let distance = |z: &&Arc<OpenZone>| {
            let (a, b) = (lifetime_byte(z.lifetime), lifetime_byte(lifetime));
            // Data that survived until a reclaim is long-lived: reclaimed data shares zones with reclaimed data.
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
            // The last empty zones serve all lifetimes: only plentiful zones are divided by lifetime.
            let plenty = self.zones.free_count() > self.places.kept + data_slots;
            if best.is_none() || plenty {
                return Pick::Zone(self.open_zone(zone, lifetime, privileged));
            }
        }
        if let Some(zone) = best {
            return Pick::Zone(zone);
        }
        if !self.slot_free()
            && let Some(zone) = self.places.ahead.pop_back()
        {
            // A zone opened ahead has a slot already.
            return Pick::Zone(self.open_zone(zone, lifetime, privileged));
        }
        if !may_open && self.places.finishing.is_empty() {
            // No other task would free a slot for this write.
            self.places.finishing.extend(self.places.rests.pop());
        }
        // A write waits only for events that are certain and that are announced: the end of the writes to a full zone
        // (their submitters do not wait for space meanwhile), and the cleaner's finish.
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

pub(crate) fn no_space(state: &State) -> Error {
    let free = state.zones.usable().saturating_sub(state.zones.live());
    Error::new(ErrorKind::NoSpace, "allocating blocks").because(format!(
        "{} blocks are in use, {free} are not and are needed for reclaim; delete something",
        state.zones.live()
    ))
}
