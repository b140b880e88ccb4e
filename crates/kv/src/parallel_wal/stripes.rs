//! Locks on keys: two writes of one key go through the log and the tables in one order.

use std::collections::BTreeSet;
use std::collections::hash_map::RandomState;
use std::hash::BuildHasher;

use parking_lot::{Mutex, MutexGuard, RwLock, RwLockReadGuard, RwLockWriteGuard};

use super::batch::Family;

/// Number of key stripes, locks of a byte each. Writers of different keys that share a lock wait for each other: with
/// this number, one write in 20,000 of four threads. One in a thousand would raise the 99.9th percentile of latency.
const STRIPES: u32 = 1 << 16;

/// Number of stripes above which a batch takes all stripes by one lock: that is less work, and the batch waits for most
/// writers anyway.
const ALL_STRIPES_THRESHOLD: usize = 4096;

/// A set of key stripes.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(crate) struct StripeSet {
    all: bool,
    /// The stripes in ascending order.
    some: BTreeSet<u16>,
}

impl StripeSet {
    /// The set of all key stripes.
    pub const ALL: StripeSet = StripeSet { all: true, some: BTreeSet::new() };

    fn insert(&mut self, stripe: u16) {
        self.some.insert(stripe);
        if self.some.len() > ALL_STRIPES_THRESHOLD {
            *self = StripeSet::ALL;
        }
    }
}

/// The locks of all keys, one for each stripe.
#[derive(Debug)]
pub(crate) struct Stripes {
    /// Held shared with single stripes, and exclusively instead of all stripes.
    gate: RwLock<()>,
    locks: Vec<Mutex<()>>,
    hash: RandomState,
}

/// Key stripes that are held until this is dropped.
#[derive(Debug)]
pub(crate) enum HeldStripes<'a> {
    /// The fields are dropped in their order, so the gate is released last.
    Some {
        _guards: Vec<MutexGuard<'a, ()>>,
        _gate: RwLockReadGuard<'a, ()>,
    },
    All {
        _gate: RwLockWriteGuard<'a, ()>,
    },
}

impl Stripes {
    pub fn new() -> Stripes {
        let locks = (0..STRIPES).map(|_| Mutex::new(())).collect();
        Stripes { gate: RwLock::new(()), locks, hash: RandomState::new() }
    }

    /// Adds the stripe of `key` to a set; without a key, the one stripe of the family.
    pub fn add(&self, set: &mut StripeSet, family: Family, key: Option<&[u8]>) {
        if set.all {
            return;
        }
        let hash = self.hash.hash_one((family, key)) % u64::from(STRIPES);
        set.insert(u16::try_from(hash).expect("below STRIPES"));
    }

    /// Locks the stripes of a set in ascending order, so that no two writers wait for each other.
    pub fn lock_stripes(&self, set: &StripeSet) -> HeldStripes<'_> {
        if set.all {
            return HeldStripes::All { _gate: self.gate.write() };
        }
        let gate = self.gate.read();
        let locks = set.some.iter().filter_map(|n| self.locks.get(usize::from(*n)));
        HeldStripes::Some { _guards: locks.map(Mutex::lock).collect(), _gate: gate }
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
        assert!(set.some.iter().eq(&[0, 63, 64, 255]));
    }

    #[test]
    fn a_set_of_many_stripes_becomes_the_set_of_all() {
        let mut set = StripeSet::default();
        (0..ALL_STRIPES_THRESHOLD as u16).for_each(|n| set.insert(n));
        assert!(!set.all && set.some.len() == ALL_STRIPES_THRESHOLD);
        set.insert(ALL_STRIPES_THRESHOLD as u16);
        assert_eq!(set, StripeSet::ALL);
    }

    #[test]
    fn a_key_has_one_stripe_and_the_stripe_of_a_family_covers_all_its_keys() {
        let stripes = Stripes::new();
        let of = |family, key: Option<&[u8]>| {
            let mut set = StripeSet::default();
            stripes.add(&mut set, Family(family), key);
            set
        };
        assert_eq!(of(1, Some(b"a")), of(1, Some(b"a")));
        assert_eq!(of(1, None), of(1, None));
        let several: std::collections::HashSet<_> =
            (0..100_u32).map(|n| of(0, Some(&n.to_le_bytes())).some).collect();
        assert!(several.len() > 20, "{}", several.len());
    }

    #[test]
    fn all_stripes_exclude_every_holder_and_some_stripes_exclude_holders_that_share_one() {
        let stripes = Stripes::new();
        let set = |n| StripeSet { all: false, some: BTreeSet::from([n]) };
        let some = stripes.lock_stripes(&set(1));
        assert!(stripes.gate.try_write().is_none() && stripes.locks[1].try_lock().is_none());
        assert!(stripes.locks[2].try_lock().is_some());
        drop(some);
        let all = stripes.lock_stripes(&StripeSet::ALL);
        assert!(stripes.gate.try_read().is_none());
        drop(all);
        drop(stripes.lock_stripes(&set(1)));
    }
}
