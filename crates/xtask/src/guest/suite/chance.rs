//! Random numbers that follow from a seed.

use std::time::Duration;

/// A stream of them.
pub struct SeededChance(u64);

impl SeededChance {
    /// A generator of random numbers for a seed; each `stream` of a seed is a different sequence.
    pub fn new(seed: u64, stream: u64) -> SeededChance {
        SeededChance(seed ^ stream.wrapping_mul(0xd6e8_feb8_6659_fd93))
    }

    /// A random number below `end`.
    pub fn below(&mut self, end: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut word = self.0;
        word = (word ^ (word >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        word = (word ^ (word >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (word ^ (word >> 31)) % end.max(1)
    }

    /// A random duration shorter than `end`.
    pub fn shorter(&mut self, end: Duration) -> Duration {
        Duration::from_micros(self.below(u64::try_from(end.as_micros()).unwrap_or(u64::MAX)))
    }
}
