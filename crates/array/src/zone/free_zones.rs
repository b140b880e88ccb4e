//! Free physical zones: those of each drive that a logical zone can take, with stored maps.
//!
//! A free physical zone is empty, and its last reset is durable on the drive: old rows do not come back between new ones. A physical
//! zone is free again once its logical zone was reset ([`io::reset`](crate::io::reset)). One that wore out never is.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use parking_lot::Mutex;
use units::sync::Event;
use zoned::{Error, ZoneId};

use crate::layout::placement::{Place, Rotation, part_zone};
use crate::layout::{Layout, Slot};
use crate::zone::shared_zones::SharedZonesOfDrive;

/// Bytes that a set takes for each of its zones: a node of a [`BTreeSet`] has room for 11, and is half full at least.
const ENTRY_BYTES: usize = 16;

/// The free physical zones of all drives.
#[derive(Debug)]
pub(crate) struct FreeZones {
    state: Mutex<State>,
    moves: Moves,
}

/// The number of a move, counted from the array's opening.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) struct MoveNumber(u64);

/// The moves of parts that hold a physical zone which no map names, and the event that one of them has ended.
#[derive(Clone, Default, Debug)]
struct Moves {
    running: Arc<Mutex<RunningMoves>>,
    ended: Event,
}

#[derive(Default, Debug)]
struct RunningMoves {
    numbers: BTreeSet<MoveNumber>,
    begun: u64,
}

/// Held by the move of a part from the time that it takes a physical zone until a map names the zone, or the zone is given back.
#[derive(Debug)]
pub(crate) struct MoveUnderWay {
    moves: Moves,
    number: MoveNumber,
}

impl Drop for MoveUnderWay {
    fn drop(&mut self) {
        self.moves.running.lock().numbers.remove(&self.number);
        self.moves.ended.notify();
    }
}

/// Moves that were under way at some time.
pub(crate) struct MovesUnderWay {
    /// The newest move under way. A first write waits for no move that began later, so that no first write waits for the end of a restore.
    pub newest: MoveNumber,
    ended: Event,
    seen: u64,
}

impl MovesUnderWay {
    /// Waits until a move has ended: the physical zone of a move whose logical zone was reset is free then.
    pub(crate) async fn one_ended(self) {
        self.ended.changed_since(self.seen).await;
    }
}

#[derive(Debug)]
struct State {
    /// The free physical zones of each drive, by slot.
    free: Vec<BTreeSet<ZoneId>>,
    /// The physical zones of each drive that wore out and hold no part, by slot.
    worn: Vec<BTreeSet<ZoneId>>,
    /// The physical zone of a new drive that a rebuild writes at the moment, and whether the zone was given back meanwhile.
    copied_to: Option<(Place, bool)>,
    /// Physical zones that no map names, and whose reset was refused, by the logical zone whose next reset resets them.
    unreset: BTreeMap<ZoneId, Vec<Place>>,
}

/// Why a zone got no physical zones.
pub(crate) enum NoPlaces {
    /// A drive has no free physical zone, and no move of a part may give one back.
    Refused(Error),
    /// A drive has no free physical zone, but moves of parts are under way. A move whose logical zone was reset gives its physical zone
    /// back.
    UntilMoveEnds(MovesUnderWay),
}

impl FreeZones {
    /// `free` and `worn`: the physical zones of each drive without a part, by slot.
    pub(crate) fn new(free: Vec<BTreeSet<ZoneId>>, worn: Vec<BTreeSet<ZoneId>>) -> FreeZones {
        let state = State { free, worn, copied_to: None, unreset: BTreeMap::new() };
        FreeZones { state: Mutex::new(state), moves: Moves::default() }
    }

    /// Bytes of the sets in memory, about.
    pub(crate) fn bytes(&self) -> usize {
        let state = self.state.lock();
        state.free.iter().chain(&state.worn).map(|zones| zones.len() * ENTRY_BYTES).sum()
    }

    /// The same physical zones, for parts that share them: by slot, none of them with content.
    pub(crate) fn into_shared(self) -> Vec<SharedZonesOfDrive> {
        let State { free, worn, .. } = self.state.into_inner();
        let of = |(empty, worn)| SharedZonesOfDrive::new(empty, worn);
        free.into_iter().zip(worn).map(of).collect()
    }

    /// A physical zone without a part wore out.
    pub(crate) fn wear(&self, place: Place) {
        let mut state = self.state.lock();
        if let Some(free) = state.free.get_mut(place.slot.index()) {
            free.remove(&place.zone);
        }
        if let Some(worn) = state.worn.get_mut(place.slot.index()) {
            worn.insert(place.zone);
        }
    }

    /// A new drive without worn zones takes the place of the drive in `slot`.
    pub(crate) fn replace_drive(&self, slot: Slot) {
        let mut state = self.state.lock();
        let worn = state.worn.get_mut(slot.index()).map(std::mem::take).unwrap_or_default();
        if let Some(free) = state.free.get_mut(slot.index()) {
            free.extend(worn);
        }
    }

    /// The numbers of free physical zones of the drives, by slot.
    pub(crate) fn counts(&self) -> Vec<usize> {
        self.state.lock().free.iter().map(BTreeSet::len).collect()
    }

    /// Takes a physical zone of each of `slots` for the parts of logical zone `id`, by role: the roles of the next zone begin one drive
    /// further down. Where it is free the zone that the fixed placement would use, else the last free one.
    ///
    /// Error: a drive that has no free zone; nothing is taken then.
    pub(crate) fn take(&self, id: ZoneId, layout: &Layout, slots: &[Slot]) -> Result<Vec<Place>, Slot> {
        let drives = &mut self.state.lock().free;
        let rotation = Rotation { drives: layout.width };
        let choose = |role| {
            let slot = slots.get(rotation.slot(id, role).index()).copied().expect("a slot for each role");
            let free = drives.get(slot.index()).ok_or(slot)?;
            let zone = free.get(&part_zone(id)).or(free.last()).copied().ok_or(slot)?;
            Ok(Place::whole(slot, zone))
        };
        let places: Vec<Place> = layout.roles().map(choose).collect::<Result<_, Slot>>()?;
        for place in &places {
            if let Some(free) = drives.get_mut(place.slot.index()) {
                free.remove(&place.zone);
            }
        }
        Ok(places)
    }

    /// Takes a free physical zone of the drive in `slot`: the one that the fixed placement would use for logical zone `id` if it is
    /// free, else the last one, for a part that moves there. `None` if the drive has no free zone.
    pub(crate) fn take_for_move(&self, slot: Slot, id: ZoneId) -> Option<(Place, MoveUnderWay)> {
        let mut state = self.state.lock();
        let free = state.free.get_mut(slot.index())?;
        let zone = free.get(&part_zone(id)).or(free.last()).copied()?;
        free.remove(&zone);
        Some((Place::whole(slot, zone), self.begin_move()))
    }

    fn begin_move(&self) -> MoveUnderWay {
        let mut running = self.moves.running.lock();
        running.begun += 1;
        let number = MoveNumber(running.begun);
        running.numbers.insert(number);
        MoveUnderWay { moves: self.moves.clone(), number }
    }

    /// Changes whenever a move ends.
    pub(crate) fn ended_moves(&self) -> u64 {
        self.moves.ended.version()
    }

    /// The moves that hold physical zones, of those up to `newest` if that is given; `None` if there are none. `seen`:
    /// [`ended_moves`](FreeZones::ended_moves) before room was looked for.
    pub(crate) fn moves_under_way(&self, newest: Option<MoveNumber>, seen: u64) -> Option<MovesUnderWay> {
        let running = self.moves.running.lock();
        let newest = newest.or(running.numbers.last().copied())?;
        let is_awaited = running.numbers.first().is_some_and(|oldest| *oldest <= newest);
        is_awaited.then(|| MovesUnderWay { newest, ended: self.moves.ended.clone(), seen })
    }

    /// Gives back a physical zone, which is empty and durably so. One that a rebuild writes at the moment is free once these writes
    /// have ended.
    pub(crate) fn give_back(&self, place: Place) {
        let mut state = self.state.lock();
        match &mut state.copied_to {
            Some((written, given_back)) if *written == place => *given_back = true,
            _ => {
                if let Some(free) = state.free.get_mut(place.slot.index()) {
                    free.insert(place.zone);
                }
            }
        }
    }

    /// Keeps the physical zones of a logical zone whose reset was refused.
    pub(crate) fn keep_unreset(&self, id: ZoneId, places: Vec<Place>) {
        self.state.lock().unreset.insert(id, places);
    }

    /// The physical zones of a logical zone whose reset was refused.
    pub(crate) fn take_unreset(&self, id: ZoneId) -> Vec<Place> {
        self.state.lock().unreset.remove(&id).unwrap_or_default()
    }

    /// A rebuild begins to write a physical zone of the new drive. At most one rebuild runs.
    pub(crate) fn begin_copy(&self, place: Place) {
        self.state.lock().copied_to = Some((place, false));
    }

    /// No write of the rebuild is in flight. Returns the physical zone if it was given back meanwhile: the rebuild empties it and
    /// gives it back again.
    pub(crate) fn end_copy(&self) -> Option<Place> {
        let (place, given_back) = self.state.lock().copied_to.take()?;
        given_back.then_some(place)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::layout::Role;

    const LAYOUT: Layout = Layout { width: 3, parities: 1, unit: 2, part_rows: 8 };
    const SLOTS: [Slot; 3] = [Slot(0), Slot(1), Slot(2)];

    fn zones(of: impl IntoIterator<Item = u32>) -> BTreeSet<ZoneId> {
        of.into_iter().map(ZoneId).collect()
    }

    #[test]
    fn a_zone_takes_the_physical_zones_of_the_fixed_placement_where_they_are_free() {
        let free = FreeZones::new(vec![zones([3, 4, 5]), zones([4, 5]), zones([3, 4])], vec![zones([]); 3]);
        let taken = free.take(ZoneId(0), &LAYOUT, &SLOTS).expect("each drive has a free zone");
        let place = |slot, zone| Place::whole(Slot(slot), ZoneId(zone));
        assert_eq!(taken, [place(0, 3), place(1, 5), place(2, 3)]);
        assert_eq!(free.counts(), [2, 1, 1]);
        let next = free.take(ZoneId(2), &LAYOUT, &SLOTS).expect("each drive has a free zone");
        let rotation = Rotation { drives: 3 };
        assert_eq!(next[0].slot, rotation.slot(ZoneId(2), Role(0)));
        assert_eq!(free.take(ZoneId(1), &LAYOUT, &SLOTS), Err(Slot(2)), "the drives 1 and 2 have none");
        assert_eq!(free.counts(), [1, 0, 0], "nothing is taken");
        free.give_back(place(1, 5));
        assert_eq!(free.counts(), [1, 1, 0]);
        assert!(free.moves_under_way(None, 0).is_none());
        let (taken, first) = free.take_for_move(Slot(1), ZoneId(1)).expect("drive 1 has a free zone");
        assert_eq!(taken, place(1, 5));
        assert!([1, 3].map(Slot).iter().all(|slot| free.take_for_move(*slot, ZoneId(1)).is_none()));
        let newest = free.moves_under_way(None, 0).expect("a move").newest;
        let later = free.take_for_move(Slot(0), ZoneId(1)).expect("drive 0 has a free zone");
        assert!(free.moves_under_way(Some(newest), 0).is_some());
        drop(first);
        assert!(free.moves_under_way(Some(newest), 0).is_none(), "only a later move");
        assert!(free.moves_under_way(None, 0).is_some());
        drop(later);
        assert!(free.moves_under_way(None, 0).is_none());
        assert_eq!(free.ended_moves(), 2);
    }

    #[test]
    fn a_zone_that_a_rebuild_writes_is_free_after_its_writes() {
        let free = FreeZones::new(vec![zones([]), zones([])], vec![zones([]); 2]);
        let place = |zone| Place::whole(Slot(1), ZoneId(zone));
        free.begin_copy(place(7));
        free.give_back(place(8));
        assert_eq!((free.counts(), free.end_copy()), (vec![0, 1], None));
        free.begin_copy(place(7));
        free.give_back(place(7));
        assert_eq!((free.counts(), free.end_copy()), (vec![0, 1], Some(place(7))));
        free.give_back(place(7));
        assert_eq!((free.counts(), free.end_copy()), (vec![0, 2], None));
    }

    #[test]
    fn a_worn_zone_is_free_again_on_a_new_drive() {
        let free = FreeZones::new(vec![zones([3]), zones([3, 4])], vec![zones([]), zones([5])]);
        free.wear(Place::whole(Slot(1), ZoneId(4)));
        assert_eq!(free.counts(), [1, 1]);
        free.replace_drive(Slot(0));
        assert_eq!(free.counts(), [1, 1]);
        free.replace_drive(Slot(1));
        assert_eq!(free.counts(), [1, 3]);
    }
}
