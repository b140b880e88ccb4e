//! The keys that a pipeline reads or writes.

use std::hash::{BuildHasher, RandomState};

/// Number of stripes that keys are hashed to. Two different keys of one stripe wait for each other: with a thousand keys in
/// flight, one pipeline in 256 waits so.
pub(crate) const STRIPES: usize = 1 << 18;

/// The keys that a pipeline reads or writes. While the pipeline is in flight, no other one writes to them.
#[derive(Clone, Debug)]
pub struct Claims {
    hash: RandomState,
    stripes: Vec<u32>,
    all: bool,
}

impl Claims {
    /// Claims on no key. Claims are comparable only with claims of the same `hash`.
    pub(crate) fn new(hash: &RandomState) -> Claims {
        Claims { hash: hash.clone(), stripes: Vec::new(), all: false }
    }

    /// Adds a claim on `key`.
    pub fn key(&mut self, key: &[u8]) {
        self.stripes.push(stripe(&self.hash, key));
    }

    /// Adds a claim on all keys, present and future.
    pub fn claim_all_keys(&mut self) {
        self.all = true;
    }

    /// Whether the claims cover `key`.
    #[cfg(debug_assertions)]
    pub(crate) fn covers(&self, key: &[u8]) -> bool {
        self.all || self.stripes.contains(&stripe(&self.hash, key))
    }

    pub(crate) fn covers_all_keys(&self) -> bool {
        self.all
    }

    pub(super) fn stripes(&self) -> &[u32] {
        &self.stripes
    }
}

fn stripe(hash: &RandomState, key: &[u8]) -> u32 {
    // The remainder is below STRIPES, so it fits into 32 bits.
    (hash.hash_one(key) % STRIPES as u64) as u32
}

/// A set of key stripes, as bits.
#[derive(Debug)]
pub(super) struct StripeBits(Box<[u64]>);

impl StripeBits {
    pub fn new() -> StripeBits {
        StripeBits(vec![0; STRIPES / WORD_BITS].into_boxed_slice())
    }

    pub fn insert(&mut self, claims: &Claims) {
        for &stripe in claims.stripes() {
            if let Some(word) = self.0.get_mut(stripe as usize / WORD_BITS) {
                *word |= 1 << (stripe as usize % WORD_BITS);
            }
        }
    }

    pub fn remove(&mut self, claims: &Claims) {
        for &stripe in claims.stripes() {
            if let Some(word) = self.0.get_mut(stripe as usize / WORD_BITS) {
                *word &= !(1 << (stripe as usize % WORD_BITS));
            }
        }
    }

    #[cfg(test)]
    pub fn is_empty(&self) -> bool {
        self.0.iter().all(|word| *word == 0)
    }

    pub fn overlaps(&self, claims: &Claims) -> bool {
        let has = |&stripe: &u32| {
            self.0
                .get(stripe as usize / WORD_BITS)
                .is_some_and(|word| word >> (stripe as usize % WORD_BITS) & 1 == 1)
        };
        claims.stripes().iter().any(has)
    }
}

const WORD_BITS: usize = u64::BITS as usize;
