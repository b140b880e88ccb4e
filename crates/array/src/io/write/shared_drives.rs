//! The drives that a zone takes at its first write, where logical zones share physical zones: as many as a stripe has units, of those that
//! have room. While fewer have room, the write waits for a reclaim.

use std::collections::BTreeSet;
use std::sync::Arc;

use zoned::{Error, ErrorKind, Io, Result, ZoneId, ZoneState};

use super::Writes;
use crate::layout::Slot;
use crate::layout::placement::{Place, Rotation};
use crate::metrics::add;
use crate::zone::drive_choice::Candidate;
use crate::zone::shared_zones::Taker;
use crate::zone::shared_zones::drives::{DriveRoom, drives_to_free};

/// The next step of a zone's first write on its way to places for all parts.
enum Step {
    /// The zone takes slots of these drives.
    Take(Vec<Slot>),
    /// The write waits for room on these drives.
    Wait(Vec<Slot>),
}

impl Writes {
    /// The places of a zone's parts, by role, each behind rows that are settled.
    pub(super) async fn shared_places(
        self: &Arc<Self>,
        id: ZoneId,
        name: &'static str,
    ) -> Result<Vec<Place>> {
        self.await_end_of_neighbour(id).await;
        // Drives on which no room could be made. A reset may free a physical zone meanwhile: room is looked for once more.
        let mut refused: BTreeSet<Slot> = BTreeSet::new();
        loop {
            match self.next_step(id, &refused) {
                Some(Step::Take(slots)) => {
                    let rotation = Rotation { drives: self.ctx.layout.width };
                    let slot = |role| slots.get(rotation.slot(id, role).index()).copied();
                    let by_role: Vec<Slot> = self.ctx.layout.roles().filter_map(slot).collect();
                    // Another zone may take the room of a drive meanwhile.
                    if let Ok(places) = self.take_slots(id, &by_role, Taker::NewPart).await? {
                        return Ok(places);
                    }
                }
                Some(Step::Wait(slots)) => self.await_room(&slots, &mut refused).await?,
                None => {
                    let slot = refused.first().copied();
                    let without_room = || self.rooms(id).iter().position(|drive| drive.room.is_none());
                    let slot = slot.or_else(|| without_room().map(|at| Slot(at as u32)));
                    return Err(self.no_room(id, slot.unwrap_or_default(), name));
                }
            }
        }
    }

    fn rooms(&self, id: ZoneId) -> Vec<DriveRoom> {
        let shared = self.zones.shared().expect("the caller asked");
        shared.drive_rooms(id, |slot, id| self.is_part_there(slot, id))
    }

    /// The next step of the first write of zone `id`: to take slots, or to wait for room. Drives that failed or are missing are taken only
    /// if no room can be made on enough others. `None`: no room can be made on enough drives.
    fn next_step(&self, id: ZoneId, refused: &BTreeSet<Slot>) -> Option<Step> {
        let maps = self.ctx.places.stored()?;
        let works = |slot: Slot| self.members.member(slot).is_good();
        let all = self.rooms(id);
        let of_working = |(slot, drive): (Slot, &DriveRoom)| DriveRoom {
            room: drive.room.filter(|_| works(slot)),
            ..*drive
        };
        let working: Vec<DriveRoom> = (0..).map(Slot).zip(&all).map(of_working).collect();
        [working, all].iter().find_map(|rooms| {
            let candidate = |(slot, drive): (Slot, &DriveRoom)| Candidate {
                slot,
                works: works(slot),
                room: drive.room,
                free: drive.empty,
                active: u32::try_from(drive.open).unwrap_or(u32::MAX),
            };
            let candidates: Vec<Candidate> = (0..).map(Slot).zip(rooms).map(candidate).collect();
            if let Some(slots) = self.choose_drives(maps, &candidates) {
                return Some(Step::Take(slots));
            }
            let may = |slot: Slot| works(slot) && !refused.contains(&slot);
            drives_to_free(self.ctx.layout.width as usize, rooms, may).map(Step::Wait)
        })
    }

    /// Waits for the last writes of the logical zone before `id` by number, if that zone is full: a stream of writes goes on to the next
    /// zone before they have ended, and the next zone's parts are to go behind those of that zone.
    async fn await_end_of_neighbour(&self, id: ZoneId) {
        let Some(before) = id.0.checked_sub(1).map(ZoneId) else { return };
        let ended = {
            let mut zone = self.zones.zone(before);
            let is_ending = zone.state == ZoneState::Full && !zone.busy && !zone.flights.is_empty();
            is_ending.then(|| {
                let (completer, io) = Io::pair(&self.ctx.driver, &self.ctx.geometry.name);
                zone.barrier(completer);
                io
            })
        };
        if let Some(ended) = ended {
            // Where the writes failed, the parts go elsewhere.
            let _ended_or_failed = ended.await;
        }
    }

    /// Waits until a reclaim has freed a physical zone of each of the drives `slots`, or has found none to free there. Adds the drives
    /// without one to `refused`, which is emptied first if the reclaim has freed any.
    async fn await_room(&self, slots: &[Slot], refused: &mut BTreeSet<Slot>) -> Result<()> {
        let shared = self.zones.shared().expect("the caller asked");
        let ask = |slot: &Slot| {
            let (completer, io) = Io::pair(&self.ctx.driver, &self.ctx.geometry.name);
            (*slot, shared.requests.ask(*slot, completer).is_ok().then_some(io))
        };
        let asked: Vec<(Slot, Option<Io>)> = slots.iter().map(ask).collect();
        add(&self.ctx.metrics.waits_for_room, u64::from(asked.iter().any(|(_, io)| io.is_some())));
        let (mut none, mut failed) = (BTreeSet::new(), None);
        for (slot, io) in asked {
            match io {
                None => drop(none.insert(slot)),
                Some(io) => match io.await {
                    Ok(_) => {}
                    Err(error) if error.kind() == ErrorKind::NoSpace => drop(none.insert(slot)),
                    Err(error) => failed = Some(error),
                },
            }
        }
        if none.len() < slots.len() {
            refused.clear();
        }
        refused.append(&mut none);
        failed.map_or(Ok(()), Err)
    }

    /// The error of a part for which the drive in `slot` has no room.
    pub(super) fn no_room(&self, id: ZoneId, slot: Slot, name: &'static str) -> Error {
        let error = self.ctx.error(ErrorKind::NoSpace, name).in_zone(id);
        error.because(format!(
            "drive {} has no room for a part of the zone: no physical zone can be freed, as too many wore out, or a drive is missing or \
             being rebuilt. Replace the drive, or reset other zones",
            slot.0
        ))
    }
}
