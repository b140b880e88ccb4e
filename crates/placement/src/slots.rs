//! The slots of Redis Cluster. The slot of a key is `kv::key_slot`'s matter: nothing here looks at keys.

/// Number of slots of a Redis cluster.
pub const SLOTS: u16 = 16_384;

/// A slot of a Redis cluster: 0 to 16,383.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Slot(u16);

impl Slot {
    /// The slot with this number; `None` from 16,384 on.
    pub fn new(number: u16) -> Option<Slot> {
        (number < SLOTS).then_some(Slot(number))
    }

    /// The slot's number.
    pub fn number(self) -> u16 {
        self.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_slot_is_below_16384() {
        assert_eq!(Slot::new(16_383).map(Slot::number), Some(16_383));
        assert_eq!(Slot::new(16_384), None);
    }
}
