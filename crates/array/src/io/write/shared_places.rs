//! The first write of a zone whose parts go behind those of other zones, in physical zones that they share.
//!
//! Before the map of the zone is written, everything below its parts is settled, so that a mount asks no part but the last one of a
//! physical zone how far it got:
//!
//! 1. Room is taken on each drive ([`shared_zones`](crate::zone::shared_zones)).
//! 2. A flush makes the rows below durable: those of a reset zone too, as the drive's write pointer counts them.
//! 3. The ends of the zones below are durable in the logs of one drive more than there are parities. A zone that was reset has its
//!    next generation there already.
//! 4. Each part begins at its drive's write pointer.
//!
//! Meanwhile the write is the first one in the zone's queue, and the zone takes no other operation.

use std::collections::BTreeSet;
use std::sync::Arc;

use zoned::{Action, Blocks, Completer, Durability, Error, ErrorKind, Result, ZoneId, ZoneInfo, ZoneState};

use super::Writes;
use crate::deferred::Deferred;
use crate::format::record::Body;
use crate::format::zone_entries::ZoneEntry;
use crate::layout::Slot;
use crate::layout::placement::{Place, Rotation};
use crate::member::drive_ios::DriveIos;
use crate::member::physical_zone::PhysicalZone;
use crate::zone::shared_zones::{Left, SharedZones};
use crate::zone::{Work, Zone};

impl Writes {
    /// True if a zone has no places yet, and takes them in physical zones that zones share.
    pub(super) fn needs_shared_places(&self, id: ZoneId) -> bool {
        self.zones.shared().is_some() && self.ctx.places.stored().is_some_and(|maps| !maps.has(id))
    }

    /// Takes places for the parts of a zone, then begins the zone's queue with `write`.
    pub(super) fn place_in_shared_zones(
        self: &Arc<Self>,
        zone: &mut Zone,
        id: ZoneId,
        write: (Work, Completer),
        name: &'static str,
        deferred: &mut Deferred,
    ) {
        zone.busy = true;
        zone.queue.push_front(write);
        let this = Arc::clone(self);
        deferred.run(async move {
            let placed = this.shared_places(id, name).await;
            this.zones.change(id, |zone, deferred| {
                zone.busy = false;
                match (placed, this.ctx.places.stored()) {
                    (Ok(places), Some(maps)) => {
                        maps.set(id, &places);
                        this.write_map_next(zone, id);
                    }
                    (Err(error), _) => {
                        if let Some((_, completer)) = zone.queue.pop_front() {
                            deferred.complete(completer, Err(error));
                        }
                    }
                    (Ok(_), None) => {}
                }
            });
            this.zones.begin_queued(id);
        });
    }

    /// Gives up the places of a zone that nothing was written to, because its first write was refused.
    pub(super) fn give_up_shared_places(
        self: &Arc<Self>,
        zone: &mut Zone,
        id: ZoneId,
        deferred: &mut Deferred,
    ) {
        let (Some(_), Some(maps)) = (self.zones.shared(), self.ctx.places.stored()) else { return };
        if zone.pointer > Blocks::ZERO || zone.map_record.is_empty() {
            return;
        }
        let places = maps.places(id);
        maps.set(id, &[]);
        zone.map_record.clear();
        let this = Arc::clone(self);
        deferred.run(async move {
            // An error of a drive is found by the next operation on it.
            let _judged = this.cancel_places(id, &places).await;
        });
    }

    /// The places of a zone's parts, by role, each behind rows that are settled.
    async fn shared_places(self: &Arc<Self>, id: ZoneId, name: &'static str) -> Result<Vec<Place>> {
        let shared = self.zones.shared().expect("the caller asked");
        let rotation = Rotation { drives: self.ctx.places.drives() };
        let slots: Vec<Slot> = self.ctx.layout.roles().map(|role| rotation.slot(id, role)).collect();
        loop {
            let is_there = |slot: Slot, id: ZoneId| {
                let member = self.members.member(slot);
                member.is_good() || member.new_drive().is_none() || member.has_zone(id)
            };
            let places = shared.take(id, &slots, is_there).map_err(|slot| self.no_room(id, slot, name))?;
            match self.settle_places(id, &places, shared).await {
                Ok(Some(places)) => return Ok(places),
                // A physical zone takes no more parts: another one is chosen.
                Ok(None) => self.cancel_places(id, &places).await?,
                Err(error) => {
                    let _first_error_counts = self.cancel_places(id, &places).await;
                    return Err(error);
                }
            }
        }
    }

    fn no_room(&self, id: ZoneId, slot: Slot, name: &'static str) -> Error {
        let error = self.ctx.error(ErrorKind::NoSpace, name).in_zone(id);
        error.because(format!(
            "drive {} has no room for a part of the zone: each of its physical zones holds the part of another zone, or wore out. \
             Reset zones that were written one after the other, so that whole physical zones are free again",
            slot.0
        ))
    }

    /// Settles what lies below places that were taken, and corrects their first rows. `None` if a part does not fit behind the write
    /// pointer of its drive.
    async fn settle_places(
        self: &Arc<Self>,
        id: ZoneId,
        places: &[Place],
        shared: &SharedZones,
    ) -> Result<Option<Vec<Place>>> {
        let mut settled = Vec::with_capacity(places.len());
        if places.iter().any(|place| place.row > 0) && self.ctx.rules.flushes_parts_below() {
            self.members.flush_members().await?;
            self.record_ends_below(places, shared).await?;
        }
        for place in places {
            let place = match place.row {
                0 => Some(*place),
                _ => match self.pointer_of(id, *place, shared).await? {
                    Some(pointer) => shared.settle(id, *place, pointer),
                    None => Some(*place),
                },
            };
            let Some(place) = place else { return Ok(None) };
            settled.push(place);
        }
        Ok(Some(settled))
    }

    /// Records durably where the zones with parts below `places` end.
    async fn record_ends_below(self: &Arc<Self>, places: &[Place], shared: &SharedZones) -> Result<()> {
        let below: BTreeSet<ZoneId> = places.iter().flat_map(|place| shared.all_below(*place)).collect();
        for id in below {
            let entry = {
                let mut zone = self.zones.zone(id);
                if zone.state == ZoneState::Full && !zone.busy {
                    zone.end = Some(zone.readable());
                }
                ZoneEntry { generation: zone.generation, end: zone.end }
            };
            if entry.end.is_some() {
                let body = Body::Zones { first: id, entries: vec![entry] };
                self.members.write_zone_record(id, &body, Durability::Durable).await?;
            }
        }
        Ok(())
    }

    /// The write pointer of the physical zone of `place`; `None` if no drive knows: the drive is missing, or a rebuild has not copied
    /// the parts below yet.
    async fn pointer_of(
        self: &Arc<Self>,
        id: ZoneId,
        place: Place,
        shared: &SharedZones,
    ) -> Result<Option<u64>> {
        let member = self.members.member(place.slot);
        let is_copied = || shared.all_below(place).iter().all(|below| member.has_zone(*below));
        let device = match member.device() {
            Some(device) => device,
            None => match member.new_drive().filter(|_| is_copied()) {
                Some(device) => device,
                None => return Ok(None),
            },
        };
        match PhysicalZone::at(&*device, place.zone).info().await {
            Ok(Some(ZoneInfo {
                state: ZoneState::ReadOnly | ZoneState::Offline | ZoneState::Full,
                capacity,
                ..
            })) => Ok(Some(capacity.0)),
            Ok(info) => Ok(info.map(|info| info.pointer.0)),
            Err(error) => {
                self.failures.judge_writes(id, vec![(place.slot, error)]).await?;
                Ok(None)
            }
        }
    }

    /// Gives up places that were taken and not written. Physical zones without content are reset, and those that are full finished.
    async fn cancel_places(self: &Arc<Self>, id: ZoneId, places: &[Place]) -> Result<()> {
        let Some(shared) = self.zones.shared() else { return Ok(()) };
        let mut ios = DriveIos::default();
        let mut garbage = Vec::new();
        for place in places {
            let member = self.members.member(place.slot);
            match shared.cancel(id, *place) {
                Left::Garbage => {
                    ios.push(place.slot, member.act_on(place.zone, Action::Reset));
                    garbage.push(*place);
                }
                Left::Spent => ios.push(place.slot, member.act_on(place.zone, Action::Finish)),
                Left::InUse => {}
            }
        }
        let is_worn =
            |error: &Error| matches!(error.kind(), ErrorKind::ZoneReadOnly | ErrorKind::ZoneOffline);
        let (worn, failures): (Vec<_>, Vec<_>) =
            ios.join().await.into_iter().partition(|(_, error)| is_worn(error));
        self.failures.judge_writes(id, failures).await?;
        if garbage.is_empty() {
            return Ok(());
        }
        self.members.flush_members().await?;
        for place in garbage {
            match worn.iter().any(|(slot, _)| *slot == place.slot) {
                true => shared.wear(place),
                false => shared.give_back(place),
            }
        }
        Ok(())
    }
}
