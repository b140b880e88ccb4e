//! Reset of a logical zone with a stored map.
//!
//! The next generation without a map is the reset: once its record is durable on one drive more than there are parities, a mount finds the zone empty, whatever
//! its physical zones hold. So no intent is logged. In order:
//!
//! 1. No operation of the zone is in flight. In memory the zone has the next generation and no map: the checkpoint of a log roll
//!    contains nothing of the ended life from here on.
//! 2. The record of the next generation is durable there.
//! 3. The physical zones are reset, and the resets are durable: old rows do not come back between those of the next life.
//! 4. The physical zones are free.
//!
//! Of a physical zone that parts of other logical zones share, steps 3 and 4 follow when none of them has content any more
//! ([`shared_zones`](crate::zone::shared_zones)).
//!
//! After a crash between 2 and 4 no map names the physical zones: the mount resets them.

use std::sync::Arc;

use zoned::{Blocks, Durability, Error, ErrorKind, Result, ZoneId, ZoneState};

use crate::degraded::errors::worn_state;
use crate::format::record::Body;
use crate::format::zone_entries::ZoneEntry;
use crate::io::action::Actions;
use crate::layout::Slot;
use crate::layout::placement::Place;
use crate::layout::row_set::RowSet;
use crate::layout::stored_maps::StoredMaps;
use crate::member::drive_ios::DriveIos;
use crate::zone::shared_zones::{Left, SharedZones};

impl Actions {
    /// Resets a zone with a stored map, or one that became full without one.
    pub(super) async fn reset_mapped_zone(
        self: &Arc<Self>,
        id: ZoneId,
        generation: u64,
        maps: &StoredMaps,
    ) -> Result<Blocks> {
        let mut places = maps.places(id);
        places.extend(self.zones.free().take_unreset(id));
        if !self.ctx.rules.ends_maps_first() {
            let is_alone =
                |place: &&Place| self.zones.shared().is_none_or(|shared| shared.is_alone(id, **place));
            let alone: Vec<Place> = places.iter().filter(is_alone).copied().collect();
            self.reset_places(id, &alone).await?;
        }
        let shared = self.zones.shared();
        if let Some(shared) = shared {
            shared.resets.begin(id, &places);
        }
        self.end_life(id, generation + 1, maps);
        let reset = self.reset_ended_zone(id, generation + 1, &places).await;
        if reset.is_err() {
            // No map names the physical zones any more: the next reset of the zone resets them too.
            self.zones.free().keep_unreset(id, places);
        }
        if let Some(shared) = shared {
            shared.resets.end(id);
            shared.requests.changed.notify();
        }
        reset.map(|()| Blocks::ZERO)
    }

    /// Makes the end of a zone's life durable, resets the physical zones of that life and gives them back.
    async fn reset_ended_zone(self: &Arc<Self>, id: ZoneId, generation: u64, places: &[Place]) -> Result<()> {
        let entries = vec![ZoneEntry { generation, end: None }];
        self.members.write_zone_record(id, &Body::Zones { first: id, entries }, Durability::Durable).await?;
        match self.zones.shared() {
            Some(shared) => self.leave_shared_zones(id, places, shared).await?,
            None => {
                let free = self.reset_places(id, places).await?;
                free.into_iter().for_each(|place| self.zones.free().give_back(place));
            }
        }
        self.zones.worn.forget_zone(id);
        Ok(())
    }

    /// Gives up the parts of a zone in physical zones that others share. Those in which no part has content any more are reset.
    async fn leave_shared_zones(
        self: &Arc<Self>,
        id: ZoneId,
        places: &[Place],
        shared: &SharedZones,
    ) -> Result<()> {
        let left: Vec<(Place, Left)> =
            places.iter().map(|place| (*place, shared.leave(id, *place))).collect();
        let of = |wanted| left.iter().filter(move |(_, how)| *how == wanted).map(|(place, _)| *place);
        let mut finishes = DriveIos::default();
        of(Left::Spent).for_each(|place| {
            finishes.push(place.slot, self.members.finish(place, &shared.tenants(place)));
        });
        let garbage: Vec<Place> = of(Left::Garbage).collect();
        let free = self.reset_places(id, &garbage).await?;
        free.into_iter().for_each(|place| shared.give_back(place));
        // A physical zone that wore out is active no more either.
        let mut failures = finishes.join().await;
        failures.retain(|failure| !is_worn(failure));
        self.failures.judge_writes(id, failures).await
    }

    /// Makes a zone empty in memory, with its next generation.
    fn end_life(&self, id: ZoneId, generation: u64, maps: &StoredMaps) {
        self.zones.change(id, |zone, deferred| {
            // A worn zone counts as active if its parts on other drives are. A failed zone is usable again from here on.
            let state = match zone.state {
                ZoneState::ReadOnly if zone.worn_active => ZoneState::Closed,
                ZoneState::ReadOnly | ZoneState::Offline => ZoneState::Empty,
                state => state,
            };
            maps.set(id, &[]);
            zone.make_empty(generation);
            self.members.iter().for_each(|member| member.bad_rows.set(id, RowSet::default()));
            (zone.state, zone.busy) = (state, true);
            for completer in zone.take_work_of_ended_lives() {
                deferred.complete(completer, Err(self.zones.ended_life_error(id)));
            }
        });
    }

    /// Resets physical zones, durably. Returns those that did not wear out.
    async fn reset_places(self: &Arc<Self>, id: ZoneId, places: &[Place]) -> Result<Vec<Place>> {
        let mut resets = DriveIos::default();
        for place in places {
            resets.push(place.slot, self.members.member(place.slot).reset(place.zone));
        }
        let (worn, failures): (Vec<_>, Vec<_>) = resets.join().await.into_iter().partition(is_worn);
        self.failures.judge_writes(id, failures).await?;
        self.members.flush_members().await?;
        for (slot, error) in &worn {
            let state = worn_state(error).unwrap_or(ZoneState::ReadOnly);
            self.zones.report_worn(id, *slot, state);
        }
        let is_worn = |place: &Place| worn.iter().any(|(slot, _)| *slot == place.slot);
        let (worn, usable): (Vec<Place>, Vec<Place>) = places.iter().copied().partition(is_worn);
        for place in worn {
            match self.zones.shared() {
                Some(shared) => shared.wear(place),
                None => self.zones.free().wear(place),
            }
        }
        Ok(usable)
    }
}

/// True if an operation failed because the physical zone wore out.
fn is_worn((_, error): &(Slot, Error)) -> bool {
    matches!(error.kind(), ErrorKind::ZoneReadOnly | ErrorKind::ZoneOffline)
}
