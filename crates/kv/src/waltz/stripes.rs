//! Locks on keys: two writes of one key go through the log and RocksDB in one order.

use std::collections::hash_map::RandomState;
use std::hash::BuildHasher;

use parking_lot::{Mutex, MutexGuard};

use super::batch::Family;

/// Bits of a word of a set.
const BITS: usize = u64::BITS as usize;
const WORDS: usize = 4;
/// Locks.
const STRIPES: usize = WORDS * BITS;

/// A set of stripes.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct StripeSet([u64; WORDS]);

impl StripeSet {
    /// All of them.
    pub const ALL: StripeSet = StripeSet([u64::MAX; WORDS]);

    fn insert(&mut self, stripe: usize) {
        if let Some(word) = self.0.get_mut(stripe / BITS) {
            *word |= 1 << (stripe % BITS);
        }
    }

    fn ascending(self) -> impl Iterator<Item = usize> {
        (0..STRIPES).filter(move |n| self.0.get(n / BITS).is_some_and(|word| word >> (n % BITS) & 1 == 1))
    }
}

/// The locks.
#[derive(Debug)]
pub(crate) struct Stripes {
    locks: Vec<Mutex<()>>,
    hash: RandomState,
}

/// Held stripes. Dropping it lets go.
#[derive(Debug)]
pub(crate) struct Held<'a> {
    _guards: Vec<MutexGuard<'a, ()>>,
}

impl Stripes {
    pub fn new() -> Stripes {
        Stripes { locks: (0..STRIPES).map(|_| Mutex::new(())).collect(), hash: RandomState::new() }
    }

    /// Adds a key's stripe to a set; without a key, the one stripe of its whole family.
    pub fn add(&self, set: &mut StripeSet, family: Family, key: Option<&[u8]>) {
        let hash = self.hash.hash_one((family, key));
        // Below STRIPES, so it fits.
        set.insert((hash % STRIPES as u64) as usize);
    }

    /// Takes stripes in ascending order, so that nobody waits in a circle.
    pub fn hold(&self, set: StripeSet) -> Held<'_> {
        let guards = set.ascending().filter_map(|n| self.locks.get(n)).map(Mutex::lock).collect();
        Held { _guards: guards }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_set_gives_its_stripes_in_ascending_order() {
        let mut set = StripeSet::default();
        for n in [255, 0, 64, 63, 0] {
            set.insert(n);
        }
        assert_eq!(set.ascending().collect::<Vec<_>>(), [0, 63, 64, 255]);
        assert_eq!(StripeSet::ALL.ascending().count(), STRIPES);
    }

    #[test]
    fn a_key_has_one_stripe_and_a_familys_own_covers_all_its_keys() {
        let stripes = Stripes::new();
        let of = |family, key: Option<&[u8]>| {
            let mut set = StripeSet::default();
            stripes.add(&mut set, Family(family), key);
            set
        };
        assert_eq!(of(1, Some(b"a")), of(1, Some(b"a")));
        assert_eq!(of(1, None), of(1, None));
        let several: std::collections::HashSet<_> =
            (0..100_u32).map(|n| of(0, Some(&n.to_le_bytes())).0).collect();
        assert!(several.len() > 20, "{}", several.len());
    }
}
