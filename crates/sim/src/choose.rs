//! Random outcomes of a power cut. [`zoned::emu::Exhaustive`] enumerates all outcomes instead.

use zoned::emu::Choose;

use crate::Rng;

/// One random outcome of a power cut. The seed also decides the distribution: even chances, mostly the first choice, mostly the
/// last, or one of the two with rare exceptions, since many defects show near the extremes.
#[derive(Debug)]
pub struct Sample {
    rng: Rng,
    skew: u64,
}

impl Sample {
    /// The outcome of a power cut that a random generator gives.
    pub fn new(mut rng: Rng) -> Sample {
        let skew = rng.below(6);
        Sample { rng, skew }
    }
}

impl Choose for Sample {
    fn choose(&mut self, options: usize) -> usize {
        let any = self.rng.index(options);
        let exception = self.rng.chance(25);
        let last = options.saturating_sub(1);
        match self.skew {
            0 if !exception => 0,
            1 if !exception => last,
            2 => [0, last].get(self.rng.index(2)).copied().unwrap_or(0),
            _ => any,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    /// Draws from a tree of choices whose depth depends on the first one.
    fn choices(choose: &mut dyn Choose) -> Vec<usize> {
        let first = choose.choose(3);
        let mut path = vec![first];
        for _ in 0..first {
            path.push(choose.choose(2));
        }
        path
    }

    #[test]
    fn samples_reach_every_path() {
        let seen: BTreeSet<_> = (0..300).map(|n| choices(&mut Sample::new(Rng::at(1, &[n])))).collect();
        assert_eq!(seen.len(), 1 + 2 + 4);
    }
}
