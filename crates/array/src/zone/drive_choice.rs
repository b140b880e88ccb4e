//! The drives that a zone with a stored map takes, where the array has more drives than a stripe has units (RAIZN+DP, section 5.2.5).
//!
//! The chapter leaves open how the drives of a zone are chosen. The choice here keeps three things even, in this order: the free
//! physical zones of the drives, so that as many zones as possible find room; the zones in use, so that streams share the drives'
//! bandwidth; and the zones that any two drives have in common, so that all other drives take part in the rebuild of one.
//!
//! Where parts of several logical zones share a physical zone, the kind of room that a drive has comes before these: all drives of the
//! logical zone before by number have room behind its parts, so that a zone follows its neighbour on the same drives. Drives that differ by
//! a few free physical zones count alike then, so that streams stay evenly spread: a part may leave a full drive, where whole zones may not.

use std::cmp::Reverse;

use crate::layout::Slot;
use crate::zone::choice::Room;

/// A drive that a zone may take.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Candidate {
    pub slot: Slot,
    /// False if the drive failed or is missing.
    pub works: bool,
    /// The room that the drive has for a part; `None` if it has none.
    pub room: Option<Room>,
    /// Free physical zones.
    pub free: usize,
    /// Active zones with a part on the drive.
    pub active: u32,
}

/// The numbers of zones that any two drives have in common.
#[derive(Debug)]
pub(crate) struct CommonZones {
    drives: usize,
    zones: Vec<u32>,
}

impl CommonZones {
    pub(crate) fn new(drives: u32) -> CommonZones {
        let drives = drives as usize;
        CommonZones { drives, zones: vec![0; drives * drives] }
    }

    /// Counts a zone with parts on `slots`.
    pub(crate) fn add(&mut self, slots: &[Slot]) {
        for one in slots {
            for other in slots.iter().filter(|other| *other != one) {
                if let Some(count) = self.zones.get_mut(one.index() * self.drives + other.index()) {
                    *count += 1;
                }
            }
        }
    }

    fn of(&self, one: Slot, other: Slot) -> u32 {
        self.zones.get(one.index() * self.drives + other.index()).copied().unwrap_or(0)
    }
}

/// Free physical zones that a drive may have less than the one with the most, and count alike, where parts of several zones share one.
pub(crate) const ALIKE_WHEN_SHARED: usize = 4;

/// The `width` drives that a zone takes, by slot; `None` if fewer drives have room. Drives count alike that have up to `alike` free
/// physical zones less than the one with the most. Drives that do not work come last:
/// the parts on them are lost until the drive is replaced.
pub(crate) fn choose(
    width: usize,
    candidates: &[Candidate],
    common: &CommonZones,
    alike: usize,
) -> Option<Vec<Slot>> {
    let most = candidates.iter().map(|candidate| candidate.free).max().unwrap_or(0);
    let mut left: Vec<&Candidate> = candidates.iter().filter(|candidate| candidate.room.is_some()).collect();
    let mut chosen: Vec<Slot> = Vec::with_capacity(width);
    while chosen.len() < width {
        let shared = |slot: Slot| chosen.iter().map(|other| common.of(slot, *other)).sum::<u32>();
        let rank = |one: &Candidate| {
            let lack = (most - one.free).saturating_sub(alike);
            (!one.works, one.room, lack, one.active, Reverse(one.free), shared(one.slot), one.slot)
        };
        let (place, _) = left.iter().enumerate().min_by_key(|(_, candidate)| rank(candidate))?;
        chosen.push(left.swap_remove(place).slot);
    }
    chosen.sort_unstable();
    Some(chosen)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn drives(of: &[(bool, usize, u32)]) -> Vec<Candidate> {
        let slots = (0..).map(Slot);
        let room = |free| (free > 0).then_some(Room::Empty);
        slots
            .zip(of)
            .map(|(slot, &(works, free, active))| Candidate { slot, works, room: room(free), free, active })
            .collect()
    }

    /// The drives of `zones` zones, opened one after the other on `count` drives.
    fn opened(width: usize, count: u32, zones: usize) -> (Vec<Candidate>, CommonZones) {
        let mut all = drives(&vec![(true, zones, 0); count as usize]);
        let mut common = CommonZones::new(count);
        for _ in 0..zones {
            let chosen = choose(width, &all, &common, 0).expect("room");
            common.add(&chosen);
            for slot in chosen {
                all[slot.index()].free -= 1;
            }
        }
        (all, common)
    }

    #[test]
    fn free_zones_come_first_then_zones_in_use_then_zones_in_common() {
        let none = CommonZones::new(4);
        let slots = |of: &[u32]| Some(of.iter().copied().map(Slot).collect::<Vec<_>>());
        let all = drives(&[(true, 2, 0), (true, 3, 9), (true, 3, 9), (true, 3, 9)]);
        assert_eq!(choose(3, &all, &none, 0), slots(&[1, 2, 3]), "the most free zones");
        let all = drives(&[(true, 3, 2), (true, 3, 1), (true, 3, 1), (true, 3, 1)]);
        assert_eq!(choose(3, &all, &none, 0), slots(&[1, 2, 3]), "the fewest zones in use");
        let all = drives(&[(true, 5, 1), (true, 5, 0), (true, 1, 0), (true, 0, 0)]);
        assert_eq!(choose(2, &all, &none, 0), slots(&[0, 1]));
        assert_eq!(choose(2, &all, &none, 4), slots(&[1, 2]), "a few free zones less count alike");
        assert_eq!(choose(2, &all, &none, 3), slots(&[0, 1]));
        let mut common = CommonZones::new(4);
        common.add(&[Slot(0), Slot(1)]);
        let all = drives(&[(true, 3, 0); 4]);
        assert_eq!(choose(2, &all, &common, 0), slots(&[0, 2]), "the fewest zones in common");
    }

    #[test]
    fn drives_without_a_free_zone_are_left_out_and_failed_ones_come_last() {
        let none = CommonZones::new(4);
        let all = drives(&[(true, 1, 0), (false, 9, 0), (true, 0, 0), (true, 1, 0)]);
        assert_eq!(choose(2, &all, &none, 0), Some(vec![Slot(0), Slot(3)]));
        assert_eq!(choose(3, &all, &none, 0), Some(vec![Slot(0), Slot(1), Slot(3)]));
        assert_eq!(choose(4, &all, &none, 0), None);
    }

    #[test]
    fn a_zone_follows_its_neighbour_on_the_drives_that_work() {
        let none = CommonZones::new(5);
        let mut all = drives(&[(true, 1, 9), (true, 9, 0), (true, 1, 9), (true, 9, 0), (true, 2, 0)]);
        for slot in [0, 2, 4] {
            all[slot].room = Some(Room::BehindNeighbour);
        }
        all[1].room = Some(Room::BehindLatest);
        let slots = |of: &[u32]| Some(of.iter().copied().map(Slot).collect::<Vec<_>>());
        assert_eq!(choose(3, &all, &none, 0), slots(&[0, 2, 4]));
        assert_eq!(choose(4, &all, &none, 0), slots(&[0, 2, 3, 4]), "an empty zone comes before a mixed one");
        all[2].works = false;
        assert_eq!(choose(3, &all, &none, 0), slots(&[0, 3, 4]));
        all[0].room = None;
        assert_eq!(choose(3, &all, &none, 0), slots(&[1, 3, 4]));
    }

    #[test]
    fn every_physical_zone_can_be_taken_and_all_pairs_of_drives_share_alike() {
        for (width, count) in [(5, 6), (5, 7), (5, 12), (4, 9), (3, 4)] {
            let zones = 12 * count as usize;
            let (all, common) = opened(width, count, zones);
            let free: Vec<usize> = all.iter().map(|drive| drive.free).collect();
            let (least, most) = (free.iter().min().expect("drives"), free.iter().max().expect("drives"));
            assert!(most - least <= 1, "{width} of {count}: {free:?}");
            let pairs: Vec<u32> = (0..count)
                .flat_map(|one| (0..one).map(move |other| (Slot(one), Slot(other))))
                .map(|(one, other)| common.of(one, other))
                .collect();
            let mean = pairs.iter().sum::<u32>() as f64 / pairs.len() as f64;
            let most = f64::from(*pairs.iter().max().expect("pairs"));
            assert!(most <= 1.25 * mean + 1.0, "{width} of {count}: {pairs:?}");
        }
    }
}
