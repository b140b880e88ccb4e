//! The explorer's own random numbers: a function of a seed, the same in every build.

use units::SplitMix64;

/// A random number generator with the draws that a workload needs.
#[derive(Clone, Debug)]
pub struct Rng(SplitMix64);

impl Rng {
    /// A random number generator for `seed`.
    pub fn new(seed: u64) -> Rng {
        Rng(SplitMix64::new(seed))
    }

    /// A random number generator for `seed` and a place in a run, independent of the generators for other places.
    pub fn at(seed: u64, place: &[u64]) -> Rng {
        place.iter().fold(Rng::new(seed), |mut rng, part| Rng::new(rng.draw().wrapping_add(*part)))
    }

    /// The generator's next number.
    pub fn draw(&mut self) -> u64 {
        self.0.draw()
    }

    /// A random number below `n`, zero where `n` is zero.
    pub fn below(&mut self, n: u64) -> u64 {
        self.draw().checked_rem(n).unwrap_or(0)
    }

    /// A random index below `n`, zero where `n` is zero.
    pub fn index(&mut self, n: usize) -> usize {
        usize::try_from(self.below(n as u64)).unwrap_or(0)
    }

    /// Whether an event of `percent` per cent happens.
    pub fn chance(&mut self, percent: u64) -> bool {
        self.below(100) < percent
    }
}
