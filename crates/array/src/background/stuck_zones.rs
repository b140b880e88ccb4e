//! Physical zones whose parts a reclaim could not move.

use std::collections::BTreeSet;

use zoned::ZoneId;

use crate::layout::Slot;

/// The physical zones whose parts could not be moved, by drive. What hindered a move may have passed when a first write waits: the
/// zones of the drive are tried once more then, and the write is refused if that fails too.
#[derive(Default, Debug)]
pub(crate) struct StuckZones {
    zones: BTreeSet<(Slot, ZoneId)>,
    /// Drives whose zones are tried once more, until a part leaves one of them.
    tried_again: BTreeSet<Slot>,
}

impl StuckZones {
    pub(crate) fn len(&self) -> usize {
        self.zones.len()
    }

    pub(crate) fn contains(&self, slot: Slot, zone: ZoneId) -> bool {
        self.zones.contains(&(slot, zone))
    }

    /// The parts of a physical zone could not be moved.
    pub(crate) fn add(&mut self, slot: Slot, zone: ZoneId) {
        self.zones.insert((slot, zone));
    }

    /// The parts of a physical zone of the drive were moved.
    pub(crate) fn moved(&mut self, slot: Slot) {
        self.forget(slot);
        self.tried_again.remove(&slot);
    }

    /// Forgets the zones of a drive, so that they are tried once more. False if none is stuck, or this was their second try: the next first
    /// write that waits has both tries again.
    pub(crate) fn try_again(&mut self, slot: Slot) -> bool {
        if !self.zones.iter().any(|(of, _)| *of == slot) {
            return false;
        }
        if !self.tried_again.insert(slot) {
            self.tried_again.remove(&slot);
            return false;
        }
        self.forget(slot);
        true
    }

    fn forget(&mut self, slot: Slot) {
        self.zones.retain(|(of, _)| *of != slot);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn zones_that_are_stuck_are_tried_twice_for_a_first_write() {
        let (mut stuck, drive, zone) = (StuckZones::default(), Slot(1), ZoneId(7));
        assert!(!stuck.try_again(drive), "nothing is stuck");
        for _ in 0..2 {
            stuck.add(drive, zone);
            stuck.add(Slot(2), zone);
            assert!(stuck.try_again(drive) && !stuck.contains(drive, zone), "the second try");
            assert!(stuck.contains(Slot(2), zone), "another drive");
            stuck.add(drive, zone);
            assert!(!stuck.try_again(drive) && stuck.contains(drive, zone), "no third try");
        }
        stuck.add(drive, zone);
        assert!(stuck.try_again(drive));
        stuck.moved(drive);
        stuck.add(drive, zone);
        assert!(stuck.try_again(drive), "a part was moved since");
        assert_eq!(stuck.len(), 1);
    }
}
