//! The explorer's own random numbers: a function of a seed, the same in every build.

/// SplitMix64: a full-period generator whose every seed is as good as another.
#[derive(Clone, Debug)]
pub struct Rng(u64);

impl Rng {
    /// A generator for `seed`.
    pub fn new(seed: u64) -> Rng {
        Rng(seed)
    }

    /// A generator for `seed` and a place in a run, independent of those for other places.
    pub fn at(seed: u64, place: &[u64]) -> Rng {
        let mut rng = Rng(seed);
        for part in place {
            rng.0 = rng.draw().wrapping_add(*part);
        }
        rng
    }

    /// The next number.
    pub fn draw(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// A number below `n`, zero where `n` is zero.
    pub fn below(&mut self, n: u64) -> u64 {
        self.draw().checked_rem(n).unwrap_or(0)
    }

    /// An index below `n`, zero where `n` is zero.
    pub fn index(&mut self, n: usize) -> usize {
        usize::try_from(self.below(n as u64)).unwrap_or(0)
    }

    /// Whether an event of `percent` per cent happens.
    pub fn chance(&mut self, percent: u64) -> bool {
        self.below(100) < percent
    }
}
