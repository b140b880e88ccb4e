//! The first write of a zone whose parts go behind those of other zones, in physical zones that they share.
//!
//! Before the map of the zone is written, everything below its parts is settled, so that a mount asks no part but the last one of a
//! physical zone how far it got:
//!
//! 1. A slot is taken on each drive ([`shared_zones`](crate::zone::shared_zones)), of the drives that the zone takes (`shared_drives`).
//! 2. Rows below that the last part did not need are filled with zeros. A flush makes all rows below durable: those of a reset zone
//!    too, as the drive's write pointer counts them. Where a physical zone became full since the last flush, the flush comes before a
//!    part in an empty one too: a power cut reopens no full physical zone, and the drive has no more active ones than were counted.
//! 3. The ends of the zones below are durable in the logs of one drive more than there are parities. A zone that was reset has its
//!    next generation there already.
//!
//! Meanwhile the write is the first one in the zone's queue, and the zone takes no other operation.

use std::collections::BTreeSet;
use std::sync::Arc;

use zoned::{Action, BufMut, Completer, Durability, Error, ErrorKind, Result, ZoneId, ZoneInfo, ZoneState};

use super::Writes;
use crate::deferred::Deferred;
use crate::format::record::Body;
use crate::format::zone_entries::ZoneEntry;
use crate::layout::Slot;
use crate::layout::placement::Place;
use crate::member::drive_ios::DriveIos;
use crate::member::member_drive::MemberDrive;
use crate::member::physical_zone::PhysicalZone;
use crate::zone::Zone;
use crate::zone::shared_zones::{Left, SharedZones, Taker};
use crate::zone::work::Work;

/// Blocks of zeros in a write, and how many such writes are in flight.
const MAX_ZEROS: u64 = 256;
const ZEROS_AT_A_TIME: usize = 16;

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

    /// A slot on one drive for a part of a zone that moves there, behind rows that are settled.
    pub(crate) async fn take_slot_for_move(
        self: &Arc<Self>,
        id: ZoneId,
        slot: Slot,
        name: &'static str,
    ) -> Result<Place> {
        let stays = self.ctx.places.role(id, slot).is_some();
        let taker = if stays { Taker::Move } else { Taker::NewPart };
        let taken = self.take_slots(id, &[slot], taker).await?;
        let places = taken.map_err(|slot| self.no_room(id, slot, name))?;
        Ok(places.first().copied().expect("one place for one drive"))
    }

    /// Takes a slot on each of the drives `slots` and settles what lies below. Inner error: a drive without room.
    pub(super) async fn take_slots(
        self: &Arc<Self>,
        id: ZoneId,
        slots: &[Slot],
        taker: Taker,
    ) -> Result<Result<Vec<Place>, Slot>> {
        let shared = self.zones.shared().expect("the caller asked");
        loop {
            let places = match shared.take(id, slots, taker, |slot, id| self.is_part_there(slot, id)) {
                Ok(places) => places,
                Err(slot) => return Ok(Err(slot)),
            };
            match self.settle_places(id, &places, shared).await {
                Ok(true) => return Ok(Ok(places)),
                // A physical zone takes no more parts: another one is chosen.
                Ok(false) => self.cancel_places(id, &places).await?,
                Err(error) => {
                    let _first_error_counts = self.cancel_places(id, &places).await;
                    return Err(error);
                }
            }
        }
    }

    /// False if the drive in `slot` lacks its part of a logical zone, because a rebuild has not copied the part yet.
    pub(super) fn is_part_there(&self, slot: Slot, id: ZoneId) -> bool {
        let member = self.members.member(slot);
        member.is_good() || member.new_drive().is_none() || member.has_zone(id)
    }

    /// Settles what lies below places that were taken. False if a physical zone takes no more parts.
    async fn settle_places(
        self: &Arc<Self>,
        id: ZoneId,
        places: &[Place],
        shared: &SharedZones,
    ) -> Result<bool> {
        let mut zeros = DriveIos::default();
        for place in places.iter().filter(|place| place.row > 0) {
            let Some((device, pointer)) = self.pointer_of(id, *place, shared).await? else { continue };
            if !shared.fits(*place, pointer) {
                // No write of zeros is in flight when the places are given up.
                self.judge_zeros(id, zeros).await?;
                return Ok(false);
            }
            let zone = PhysicalZone::at(&*device, place.zone);
            let chunk = device.geometry().max_transfer.0.min(MAX_ZEROS);
            let mut row = pointer;
            while row < place.row {
                let rows = chunk.min(place.row - row);
                let data = BufMut::zeroed(self.ctx.bytes(rows)).freeze();
                zeros.push(place.slot, Some(zone.write(row, data, Durability::Cached)));
                if zeros.len() == ZEROS_AT_A_TIME {
                    self.judge_zeros(id, std::mem::take(&mut zeros)).await?;
                }
                row += rows;
            }
        }
        self.judge_zeros(id, zeros).await?;
        let is_behind_parts =
            places.iter().any(|place| place.row > 0) && self.ctx.rules.flushes_parts_below();
        let filled = shared.filled_unflushed().filter(|_| self.ctx.rules.awaits_full_zones());
        if is_behind_parts || filled.is_some() {
            self.members.flush_members().await?;
            shared.flushed_filled(filled.unwrap_or_default());
        }
        if is_behind_parts {
            self.record_ends_below(places, shared).await?;
        }
        Ok(true)
    }

    /// Awaits writes of zeros. A physical zone that wore out is found by the zone's first write.
    async fn judge_zeros(self: &Arc<Self>, id: ZoneId, zeros: DriveIos) -> Result<()> {
        let mut failures = zeros.join().await;
        failures.retain(|(_, error)| !is_worn(error));
        self.failures.judge_writes(id, failures).await
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

    /// The drive of `place` and the write pointer of the physical zone. `None` if nothing of the zone goes to the drive: it is missing,
    /// or a rebuild has yet to copy the zone's part to the new drive.
    async fn pointer_of(
        self: &Arc<Self>,
        id: ZoneId,
        place: Place,
        shared: &SharedZones,
    ) -> Result<Option<(MemberDrive, u64)>> {
        let member = self.members.member(place.slot);
        let takes_part =
            || member.has_zone(id) && shared.all_below(place).iter().all(|below| member.has_zone(*below));
        let device = match member.device() {
            Some(device) => device,
            None => match member.new_drive().filter(|_| takes_part()) {
                Some(device) => device,
                None => return Ok(None),
            },
        };
        let pointer = match PhysicalZone::at(&*device, place.zone).info().await {
            Ok(Some(ZoneInfo {
                state: ZoneState::ReadOnly | ZoneState::Offline | ZoneState::Full,
                capacity,
                ..
            })) => Some(capacity.0),
            Ok(info) => info.map(|info| info.pointer.0),
            Err(error) => {
                self.failures.judge_writes(id, vec![(place.slot, error)]).await?;
                None
            }
        };
        Ok(pointer.map(|pointer| (device, pointer)))
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
                Left::Spent => ios.push(place.slot, self.members.finish(*place, &shared.tenants(*place))),
                Left::InUse => {}
            }
        }
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

/// True if a physical zone wore out.
fn is_worn(error: &Error) -> bool {
    matches!(error.kind(), ErrorKind::ZoneReadOnly | ErrorKind::ZoneOffline)
}
