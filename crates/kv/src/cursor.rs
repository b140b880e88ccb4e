//! SCAN's cursors: numbers that name a key without any state of the server.
//!
//! | bits | field | meaning |
//! |---|---|---|
//! | 36 to 51 | prefix | the key's first two bytes, padded with zeros: a lower bound in the order of keys |
//! | 0 to 35 | hash | FNV-1a of the whole key, folded: which key at or after the bound |
//!
//! A cursor names the next key that SCAN visits. The keys that share the prefix are walked until one has the hash. If no key
//! has (the named key was deleted), SCAN goes on at the lower bound: keys may come twice, as Redis's SCAN allows, and none is
//! missed. 52 bits survive clients that read a cursor as a double.

use std::collections::HashMap;

use bytes::Bytes;
use parking_lot::Mutex;

/// Bits of a cursor's hash.
const HASH_BITS: u32 = 36;

/// Bytes of a key that a cursor's prefix holds.
const PREFIX_LEN: usize = 2;

/// The constants of FNV-1a with 64 bits.
const FNV_OFFSET: u64 = 0xcbf2_9ce4_8422_2325;
const FNV_PRIME: u64 = 0x0000_0100_0000_01b3;

/// Number of keys in each of the cursor cache's two generations.
const GENERATION_KEYS: usize = 4096;

/// The SCAN cursor that names `key`, never 0. The same in every process and after every restart.
pub(crate) fn cursor_of(key: &[u8]) -> u64 {
    let hash = key.iter().fold(FNV_OFFSET, |hash, byte| (hash ^ u64::from(*byte)).wrapping_mul(FNV_PRIME));
    let folded = (hash ^ hash >> HASH_BITS) & ((1 << HASH_BITS) - 1);
    (u64::from(prefix(key)) << HASH_BITS | folded).max(1)
}

fn prefix(key: &[u8]) -> u16 {
    let mut bytes = [0; PREFIX_LEN];
    bytes.iter_mut().zip(key).for_each(|(to, from)| *to = *from);
    u16::from_be_bytes(bytes)
}

/// The first key, in order, that a SCAN cursor may name.
pub(crate) fn lower_bound(cursor: u64) -> Bytes {
    let bytes = ((cursor >> HASH_BITS) as u16).to_be_bytes();
    let len = bytes.iter().rposition(|byte| *byte != 0).map_or(0, |last| last + 1);
    Bytes::copy_from_slice(bytes.get(..len).unwrap_or_default())
}

/// Whether `key` lies after every key that a SCAN cursor may name.
pub(crate) fn is_beyond(cursor: u64, key: &[u8]) -> bool {
    u64::from(prefix(key)) > cursor >> HASH_BITS
}

/// The keys of the cursors given lately, which spare SCAN the walk over the keys that share a prefix.
///
/// A cursor that is not in the cache names the same key, and SCAN walks to it.
#[derive(Debug, Default)]
pub(crate) struct CursorCache(Mutex<Generations>);

#[derive(Debug, Default)]
struct Generations {
    young: HashMap<u64, Bytes>,
    old: HashMap<u64, Bytes>,
}

impl CursorCache {
    /// Adds `key` to the cache; gives the cursor that names it.
    pub fn put(&self, key: Bytes) -> u64 {
        let cursor = cursor_of(&key);
        self.0.lock().put(cursor, key);
        cursor
    }

    /// The key that `cursor` names, if the cache has it.
    pub fn get(&self, cursor: u64) -> Option<Bytes> {
        let mut generations = self.0.lock();
        if let Some(key) = generations.young.get(&cursor) {
            return Some(key.clone());
        }
        let key = generations.old.remove(&cursor)?;
        generations.put(cursor, key.clone());
        Some(key)
    }
}

impl Generations {
    fn put(&mut self, cursor: u64, key: Bytes) {
        if self.young.len() >= GENERATION_KEYS {
            self.old = std::mem::take(&mut self.young);
        }
        // If two keys have one cursor, a scan from the first in order misses no key.
        let known = self.young.entry(cursor).or_insert_with(|| key.clone());
        if key < *known {
            *known = key;
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_keys_cursor_is_the_same_in_every_version_of_the_server() {
        assert_eq!(cursor_of(b"user:1000"), 2_066_255_798_390_194);
        assert_eq!(lower_bound(cursor_of(b"user:1000")), "us");
    }

    #[test]
    fn the_cache_forgets_the_keys_unused_for_longest() {
        let cache = CursorCache::default();
        let key = |n: usize| Bytes::from(format!("key:{n}"));
        let (used, unused) = (cache.put(key(0)), cache.put(key(1)));
        for n in 2..2 * GENERATION_KEYS + 2 {
            cache.put(key(n));
            assert_eq!(cache.get(used), Some(key(0)));
        }
        assert_eq!(cache.get(unused), None);
        let held = cache.0.lock();
        assert!(held.young.len() + held.old.len() <= 2 * GENERATION_KEYS);
    }

    proptest! {
        #[test]
        fn a_key_lies_between_its_cursors_bounds(key: Vec<u8>, other: Vec<u8>) {
            let cursor = cursor_of(&key);
            prop_assert!(cursor > 0 && cursor < 1 << 52);
            prop_assert!(lower_bound(cursor) <= key && !is_beyond(cursor, &key));
            if other > key && is_beyond(cursor, &other) {
                prop_assert!(prefix(&other) > prefix(&key));
            }
        }
    }
}
