//! The move of one part.

use std::sync::Arc;

use zoned::{Action, Durability, Error, ErrorKind, Io, Result, ZoneId, ZoneState};

use crate::background::job_runner::Runner;
use crate::background::part_copy::{CopiedPart, PartCopy, Purpose, valid_rows, zone_progress};
use crate::core::Core;
use crate::degraded::errors::{fails_the_drive, worn_state};
use crate::format::record::Body;
use crate::format::superblock::Placement;
use crate::layout::placement::Place;
use crate::layout::row_set::RowSet;
use crate::layout::slots::Slots;
use crate::layout::stored_maps::{PlacedBy, StoredMaps, ZoneMap};
use crate::layout::{Role, Slot};
use crate::member::member_drive::MemberDrive;
use crate::member::physical_zone::PhysicalZone;
use crate::zone::ComingPart;
use crate::zone::free_zones::MoveUnderWay;
use crate::zone::readers::{ReadGuard, ReadsBefore};
use crate::zone::shared_zones::Left;
use crate::zone::work::Work;

/// The number of a zone's last stripes that are copied while the zone's I/O waits.
const LAST_STRIPES: u64 = 2;
/// Rounds in which a copy follows the write pointer of a zone that clients write. The zone's I/O waits for what is left then.
const MAX_CATCH_UP_ROUNDS: u32 = 16;

/// The move of a part under way.
pub(crate) struct MovingPart {
    core: Arc<Core>,
    id: ZoneId,
    role: Role,
    /// The generation of the zone that is moved.
    generation: u64,
    from: Place,
    to: Place,
    copy: PartCopy,
    /// Where each part has a physical zone for itself: first writes without room wait for the move's end.
    _under_way: Option<MoveUnderWay>,
}

/// What is left to do once the new place of a part is durable.
struct OldPlace {
    place: Place,
    reads: ReadsBefore,
}

impl MovingPart {
    /// Checks that the part can be moved, and takes room on the drive in `slot`: a free physical zone, or a slot of one that several zones
    /// share.
    pub(crate) async fn begin(core: &Arc<Core>, id: ZoneId, role: Role, slot: Slot) -> Result<MovingPart> {
        let (generation, from, device) = MovingPart::check(core, id, role, slot)?;
        let (to, under_way) = match core.zones.shared() {
            Some(_) => (core.checkpoints.writes.take_slot_for_move(id, slot, "move a part").await?, None),
            None => {
                let taken = core.zones.free().take_for_move(slot, id).ok_or_else(|| {
                    let error = core.ctx.error(ErrorKind::NoSpace, "move a part");
                    error.because(format!("drive {} has no free physical zone", slot.0))
                })?;
                (taken.0, Some(taken.1))
            }
        };
        let copy = PartCopy::new(slot, device, Purpose::Move);
        Ok(MovingPart { core: Arc::clone(core), id, role, generation, from, to, copy, _under_way: under_way })
    }

    /// Checks that the part can be moved to the drive in `slot`. Returns the zone's generation, the part's place, and the drive.
    fn check(core: &Core, id: ZoneId, role: Role, slot: Slot) -> Result<(u64, Place, MemberDrive)> {
        let refuse = |kind, why: String| Err(core.ctx.error(kind, "move a part").because(why));
        let places = &core.ctx.places;
        let Some(maps) = places.stored() else {
            return refuse(ErrorKind::Invalid, "the array's placement is fixed".to_owned());
        };
        if id.0 >= core.ctx.geometry.zones || slot.0 >= places.drives() {
            let why = format!("the array has no zone {id}, or no drive {}", slot.0);
            return refuse(ErrorKind::Invalid, why);
        }
        if core.members.is_broken() {
            return Err(core.members.broken_error("move a part").in_zone(id));
        }
        let Some(device) = core.members.member(slot).device() else {
            return refuse(ErrorKind::Invalid, format!("drive {} failed or is missing", slot.0));
        };
        let zone = core.zones.zone(id);
        let Some(from) = places.place(id, role).filter(|_| zone.pointer.0 > 0 && !zone.is_gone()) else {
            let why = format!("zone {id} has no content, or no part {}", role.0);
            return refuse(ErrorKind::Invalid, why);
        };
        if places.role(id, slot).is_some_and(|other| other != role) {
            return refuse(ErrorKind::Invalid, format!("drive {} has another part of zone {id}", slot.0));
        }
        if maps.version(id).max(zone.attempted_version) == u16::MAX {
            let why = format!("zone {id} was moved too often: reset the zone first");
            return refuse(ErrorKind::Unsupported, why);
        }
        let kept = Placement::Stored.kept_active_zones();
        let promised = core.ctx.geometry.max_active.unwrap_or(u32::MAX);
        if device.geometry().max_active.is_some_and(|most| promised.saturating_add(kept) > most) {
            let why =
                format!("drive {} may have no zone active beside those that the array promises", slot.0);
            return refuse(ErrorKind::Unsupported, why);
        }
        Ok((zone.generation, from, device))
    }

    fn part(&self) -> CopiedPart {
        CopiedPart { id: self.id, role: self.role, to: self.to, class: self.copy.class() }
    }

    fn was_reset(&self) -> bool {
        self.core.zones.was_reset(self.id, self.generation)
    }

    /// Moves the part. False if the zone was reset meanwhile.
    pub(crate) async fn run(self, runner: &mut Runner) -> Result<bool> {
        let old = match self.copy_part(runner).await {
            Ok(Some(old)) => old,
            // The error of a zone that was reset meanwhile does not count.
            Ok(None) => return self.give_up(None).await.map(|()| false),
            Err(_) if self.was_reset() => return self.give_up(None).await.map(|()| false),
            Err(error) => {
                self.give_up(Some(&error)).await?;
                return Err(error);
            }
        };
        old.reads.end().await;
        self.free_place(old.place).await;
        Ok(true)
    }

    /// Copies the part and gives it its new place. `None` if the zone was reset meanwhile.
    async fn copy_part(&self, runner: &mut Runner) -> Result<Option<OldPlace>> {
        let (core, id, unit) = (&self.core, self.id, self.core.ctx.layout.unit);
        // The copy may read other parts of the zone, which may be moving too.
        let reads_parts = core.zones.zone(id).readers.begin();
        let (mut row, mut rounds) = (0, 0);
        loop {
            let seen = zone_progress(core, id);
            if seen.generation != self.generation {
                return Ok(None);
            }
            let left = seen.rows.saturating_sub(row);
            if left <= LAST_STRIPES * unit || rounds == MAX_CATCH_UP_ROUNDS {
                // The move waits for its turn while the zone is in use, so that the zone's I/O waits for the copy only.
                let rest = valid_rows(core, id, self.role).saturating_sub(row);
                if rest > 0 && !runner.wait_for_turn(rest).await {
                    return Err(self.copy.early_end_error(core));
                }
                break;
            }
            rounds += 1;
            self.copy.copy_whole_stripes(runner, self.part(), row..seen.rows, true).await?;
            row = seen.rows;
        }
        // What was copied so far is made durable while the zone is in use.
        core.members.flush_slots(slots_of(self.to.slot)).await?;
        // No read repair of the zone is under way while its part gets another place.
        let no_repair = core.repair.turn.acquire().await;
        let paused: Io<()> =
            core.zones.begin_or_queue(id, Work::Pause { generation: Some(self.generation) }).typed();
        paused.await?;
        let moved = self.finish_copy(runner, row, reads_parts).await;
        {
            let mut zone = core.zones.zone(id);
            (zone.busy, zone.coming) = (false, None);
            if let Err(error) = &moved
                && core.members.is_broken()
            {
                zone.poison = zone.poison.take().or_else(|| Some(error.duplicate()));
            }
        }
        core.zones.begin_queued(id);
        drop(no_repair);
        moved
    }

    /// Copies the last rows and gives the part its new place. The zone's I/O waits meanwhile.
    async fn finish_copy(
        &self,
        runner: &mut Runner,
        row: u64,
        reads_parts: ReadGuard,
    ) -> Result<Option<OldPlace>> {
        let (core, id) = (&self.core, self.id);
        if core.zones.zone(id).state == ZoneState::Offline {
            return Err(core.zones.failed_zone_error(id, "move a part"));
        }
        let copied = self.copy.copy_last_rows(runner, self.part(), row, self.generation).await?;
        drop(reads_parts);
        let Some(maps) = core.ctx.places.stored().filter(|_| copied.is_some()) else { return Ok(None) };
        if core.ctx.rules.flushes_moved_parts() {
            core.members.flush_slots(slots_of(self.to.slot)).await?;
        }
        let Some(map) = self.next_map(maps) else { return Ok(None) };
        let bad = self.record_coming_part(PlacedBy(map.version)).await?;
        if !core.members.member(self.to.slot).is_good() {
            let error = core.ctx.error(ErrorKind::Gone, "move a part");
            return Err(error.because(format!("drive {} failed meanwhile", self.to.slot.0)));
        }
        if !core.ctx.rules.moves_maps_first()
            && let Some(device) = core.members.member(self.from.slot).device()
        {
            PhysicalZone::at(&*device, self.from.zone).clear().await?;
        }
        if core.jobs.is_closed() {
            return Err(self.copy.early_end_error(core));
        }
        // Checkpoints of the logs hold the new map from here on, and so does no log roll lose its record.
        let reads = self.switch(maps, &map, bad);
        let members = Arc::clone(&core.members);
        let record = async move {
            members.write_zone_record(id, &Body::ZoneMaps(vec![map]), Durability::Durable).await
        };
        if core.ctx.rules.awaits_moved_maps() {
            record.await?;
        } else {
            core.ctx.spawn(async move { drop(record.await) });
        }
        Ok(Some(OldPlace { place: self.from, reads }))
    }

    /// The zone's next map, with the part at its new place.
    fn next_map(&self, maps: &StoredMaps) -> Option<ZoneMap> {
        let mut map = maps.map(self.id, self.generation)?;
        let mut zone = self.core.zones.zone(self.id);
        map.version = map.version.max(zone.attempted_version).checked_add(1)?;
        zone.attempted_version = map.version;
        *map.places.get_mut(self.role.index())? = self.to;
        map.moved.insert(self.role, PlacedBy(map.version));
        Some(map)
    }

    /// Makes the part's records durable in the log of its new drive, before a map names the new place: checkpoints of the old drive's log
    /// leave the records out from then on. Returns the part's bad rows.
    async fn record_coming_part(&self, placed_by: PlacedBy) -> Result<RowSet> {
        let (core, slot, bad) = (&self.core, self.to.slot, self.copy.take_bad_rows());
        let bodies = {
            let mut zone = core.zones.zone(self.id);
            let part = ComingPart { slot, role: self.role, placed_by, bad: bad.clone() };
            let bodies = core.checkpoints.coming_records(&zone, self.id, &part);
            // From here on the checkpoints of the new drive's log hold these records.
            zone.coming = Some(Box::new(part));
            bodies
        };
        for body in bodies {
            // A drive whose log takes no record fails, and does not get the part.
            if let Some(io) = core.members.append_rolling(slot, &body, Durability::Durable).await?
                && let Err(error) = io.await
            {
                core.members.fail(slot, &error).await?;
            }
        }
        Ok(bad)
    }

    /// Gives the part its new place in memory.
    fn switch(&self, maps: &StoredMaps, map: &ZoneMap, bad: RowSet) -> ReadsBefore {
        let (core, id, layout) = (&self.core, self.id, &self.core.ctx.layout);
        let mut zone = core.zones.zone(id);
        maps.load(map);
        zone.coming = None;
        core.members.member(self.from.slot).bad_rows.set(id, RowSet::default());
        core.members.member(self.to.slot).bad_rows.set(id, bad);
        core.zones.worn.forget_part(id, self.from.slot);
        // The new place holds all content of the part, so that none of its rows is stale.
        zone.stale.forget(self.role);
        let is_full = zone.state == ZoneState::Full;
        let is_ended = is_full || zone.end.is_some();
        if let Some(shared) = core.zones.shared().filter(|_| is_ended) {
            let end = zone.readable();
            let rows =
                if is_full { layout.used_by_full_zone(self.role, end) } else { layout.used(self.role, end) };
            shared.end(id, self.to, rows);
        }
        // Parity that stays relocated has records that name the new place.
        zone.relocated.retain(|(stripe, parity), unit| {
            layout.parity(*stripe, *parity) != self.role || !unit.is_in_copy(layout.end(*stripe), is_full)
        });
        zone.readers.separate()
    }

    /// Gives the new physical zone back, as the part stays where it is.
    async fn give_up(&self, why: Option<&Error>) -> Result<()> {
        let Some(error) = why else {
            self.free_place(self.to).await;
            return Ok(());
        };
        let is_of_target = error.device() == &*self.copy.device.geometry().name;
        if is_of_target && fails_the_drive(error.kind()) {
            self.core.members.fail(self.to.slot, error).await?;
        }
        if is_of_target && worn_state(error).is_some_and(|state| state != ZoneState::Full) {
            match self.core.zones.shared() {
                Some(shared) => {
                    shared.fill(self.to);
                    if shared.leave(self.id, self.to) == Left::Garbage {
                        shared.wear(self.to);
                    }
                }
                None => self.core.zones.free().wear(self.to),
            }
            return Ok(());
        }
        // A broken array may have the record of the new map on a drive.
        if !self.core.members.is_broken() {
            self.free_place(self.to).await;
        }
        Ok(())
    }

    /// Gives up the place of the part in a physical zone. One without content is reset, durably, and is free; one that cannot be reset
    /// stays taken until the next mount.
    async fn free_place(&self, place: Place) {
        let core = &self.core;
        // The array was closed, and may be open again: the mount has reset the physical zone, and may have given it to a zone.
        if core.jobs.is_closed() {
            return;
        }
        let left = core.zones.shared().map_or(Left::Garbage, |shared| shared.leave(self.id, place));
        if left == Left::InUse {
            return;
        }
        let Some(device) = core.members.member(place.slot).device() else {
            // The next drive of the slot is blank.
            return self.give_back(place);
        };
        let physical = PhysicalZone::at(&*device, place.zone);
        let freed = match left {
            Left::Spent => physical.act(Action::Finish).await,
            _ => physical.clear().await,
        };
        match freed {
            Ok(()) if left == Left::Spent => {}
            Ok(()) => self.give_back(place),
            Err(error) if worn_state(&error).is_some() && left == Left::Garbage => {
                match core.zones.shared() {
                    Some(shared) => shared.wear(place),
                    None => core.zones.free().wear(place),
                }
            }
            Err(error) => {
                tracing::warn!(slot = place.slot.0, physical = place.zone.0, %error, "a physical zone that a part left is not reset");
                if fails_the_drive(error.kind()) {
                    // A failure that breaks the array is reported elsewhere.
                    let _broken = core.members.fail(place.slot, &error).await;
                }
            }
        }
    }

    /// Gives back a physical zone, which is empty, durably so.
    fn give_back(&self, place: Place) {
        match self.core.zones.shared() {
            Some(shared) => shared.give_back(place),
            None => self.core.zones.free().give_back(place),
        }
    }
}

fn slots_of(slot: Slot) -> Slots {
    let mut slots = Slots::default();
    slots.add(slot);
    slots
}
