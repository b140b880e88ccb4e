//! The first write of a zone with stored maps: the zone takes physical zones, and the record of its map goes out with the write.
//!
//! The record goes to the logs of one drive more than there are parities. The write waits for all of them, and the drives' next flush
//! covers the record like the write's blocks. So no block of the zone is acknowledged before the map has landed there, nor acknowledged
//! as durable before the map is durable there.

use std::sync::Arc;

use zoned::{Completer, Durability, ErrorKind, ZoneId};

use super::Writes;
use crate::deferred::Deferred;
use crate::format::record::Body;
use crate::layout::Slot;
use crate::layout::placement::Place;
use crate::layout::stored_maps::StoredMaps;
use crate::member::drive_ios::DriveIos;
use crate::zone::Zone;
use crate::zone::choice::Room;
use crate::zone::drive_choice::{self, ALIKE_WHEN_SHARED, Candidate, CommonZones};
use crate::zone::free_zones::{MoveNumber, MovesUnderWay, NoPlaces};
use crate::zone::work::Work;

impl Writes {
    /// Takes physical zones for a zone without a map. The zone's next write writes the record of the map.
    /// `awaited`: the newest of the moves that the write waits for, if it found no room before.
    pub(super) fn give_map(
        &self,
        zone: &mut Zone,
        id: ZoneId,
        name: &'static str,
        awaited: Option<MoveNumber>,
    ) -> Result<(), NoPlaces> {
        let Some(maps) = self.ctx.places.stored() else { return Ok(()) };
        if maps.has(id) {
            return Ok(());
        }
        let free = self.zones.free();
        let places = loop {
            let seen = free.ended_moves();
            let why = match self.free_places(maps, id) {
                Ok(places) => break places,
                Err(why) => why,
            };
            if let Some(moves) = free.moves_under_way(awaited, seen) {
                return Err(NoPlaces::UntilMoveEnds(moves));
            }
            if free.ended_moves() == seen {
                let error = self.ctx.error(ErrorKind::NoSpace, name).in_zone(id);
                return Err(NoPlaces::Refused(error.because(why)));
            }
        };
        maps.set(id, &places);
        self.write_map_next(zone, id);
        Ok(())
    }

    /// Lets a write that finds no free physical zone wait, first in its zone's queue, until a move has ended.
    pub(super) fn retry_after_move(
        self: &Arc<Self>,
        zone: &mut Zone,
        id: ZoneId,
        write: (Work, Completer),
        moves: MovesUnderWay,
        deferred: &mut Deferred,
    ) {
        zone.busy = true;
        zone.queue.push_front(write);
        let this = Arc::clone(self);
        deferred.run(async move {
            moves.one_ended().await;
            this.zones.zone(id).busy = false;
            this.zones.begin_queued(id);
        });
    }

    /// Takes a free physical zone for each part of a zone, by role. Error: why there is no room.
    fn free_places(&self, maps: &StoredMaps, id: ZoneId) -> Result<Vec<Place>, String> {
        loop {
            let slots = self.drives_with_free_zones(maps)?;
            match self.zones.free().take(id, &self.ctx.layout, &slots) {
                Ok(places) => return Ok(places),
                // Another zone took the drive's last free physical zone meanwhile.
                Err(_) if self.ctx.layout.width < maps.drives() => {}
                Err(slot) => {
                    return Err(format!(
                        "drive {} has no free physical zone left for the zone: too many of its zones wore out. Replace the drive",
                        slot.0
                    ));
                }
            }
        }
    }

    /// Lets the zone's next write write the record of its map.
    pub(super) fn write_map_next(&self, zone: &mut Zone, id: ZoneId) {
        zone.map_record = self.members.record_slots(id);
        if !self.ctx.rules.copies_maps() {
            zone.map_record.truncate(1);
        }
    }

    /// The drives of a zone that takes whole physical zones: all of the array, or as many as a stripe has units.
    ///
    /// Error: why there is no room.
    fn drives_with_free_zones(&self, maps: &StoredMaps) -> Result<Vec<Slot>, String> {
        let width = self.ctx.layout.width;
        if width == maps.drives() {
            return Ok(self.ctx.places.slots().collect());
        }
        let active = self.zones.active_zones_of_drives(maps);
        let free = self.zones.free().counts();
        let candidates: Vec<Candidate> = self
            .members
            .iter()
            .zip(free.into_iter().zip(active))
            .map(|(member, (free, active))| Candidate {
                slot: member.slot,
                works: member.is_good(),
                room: (free > 0 && !member.is_vacant()).then_some(Room::Empty),
                free,
                active,
            })
            .collect();
        self.choose_drives(maps, &candidates).ok_or_else(|| {
            let there = candidates.iter().filter(|drive| drive.free > 0).count();
            format!(
                "{there} drives have a free physical zone left, and the zone needs {width}: reset other zones"
            )
        })
    }

    /// The drives of a zone that takes its places, by slot; `None` if fewer drives have room than a stripe has units.
    pub(super) fn choose_drives(&self, maps: &StoredMaps, candidates: &[Candidate]) -> Option<Vec<Slot>> {
        let mut common = CommonZones::new(maps.drives());
        if self.ctx.layout.width < maps.drives() {
            self.zones.ids().for_each(|id| common.add(&maps.slots(id)));
        }
        let alike = self.zones.shared().map_or(0, |_| ALIKE_WHEN_SHARED);
        drive_choice::choose(self.ctx.layout.width as usize, candidates, &common, alike)
    }

    /// Blocks of the logs that the record of the zone's map needs, if it is still to be written.
    pub(super) fn map_needs(&self, zone: &Zone, id: ZoneId) -> impl Iterator<Item = (Slot, u64)> {
        let blocks = match zone.map_record.is_empty() {
            true => 0,
            false => self.map_body(zone, id).blocks(self.ctx.geometry.block_size),
        };
        zone.map_record.iter().map(move |slot| (*slot, blocks))
    }

    /// Writes the record of the zone's map, for which the logs have reserved room, unless it is written already.
    pub(super) fn write_map(&self, zone: &mut Zone, id: ZoneId, ios: &mut DriveIos) {
        if zone.map_record.is_empty() {
            return;
        }
        let (body, block) = (self.map_body(zone, id), self.ctx.geometry.block_size);
        for slot in std::mem::take(&mut zone.map_record) {
            let io = self.members.member(slot).append_reserved(&body, block, Durability::Cached);
            if self.ctx.rules.awaits_maps() {
                ios.push(slot, io);
            } else if let Some(io) = io {
                self.ctx.spawn(async move { drop(io.await) });
            }
        }
    }

    fn map_body(&self, zone: &Zone, id: ZoneId) -> Body {
        let map = self.ctx.places.stored().and_then(|maps| maps.map(id, zone.generation));
        Body::ZoneMaps(map.into_iter().collect())
    }
}
