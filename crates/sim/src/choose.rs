//! Ways to go through the outcomes of a power cut.

use zoned::emu::Choose;

use crate::Rng;

/// Goes through every outcome once, like the digits of a counter: the last choice turns fastest.
#[derive(Debug, Default)]
pub struct Odometer {
    digits: Vec<(usize, usize)>,
    at: usize,
}

impl Odometer {
    /// Moves on to the next outcome. False when there is none left.
    pub fn advance(&mut self) -> bool {
        // A shorter path of choices leaves digits of a longer one behind.
        self.digits.truncate(self.at);
        self.at = 0;
        while let Some((chosen, options)) = self.digits.pop() {
            if chosen + 1 < options {
                self.digits.push((chosen + 1, options));
                return true;
            }
        }
        false
    }
}

impl Choose for Odometer {
    fn choose(&mut self, options: usize) -> usize {
        let digit = match self.digits.get(self.at) {
            Some((chosen, _)) => *chosen,
            None => {
                self.digits.push((0, options));
                0
            }
        };
        self.at += 1;
        digit
    }
}

/// One outcome by chance. The seed also decides the temper: even chances, mostly the first choice, mostly the
/// last, or one of the two with rare exceptions, because defects hide near the extremes.
#[derive(Debug)]
pub struct Sample {
    rng: Rng,
    temper: u64,
}

impl Sample {
    /// The outcome that belongs to a generator.
    pub fn new(mut rng: Rng) -> Sample {
        let temper = rng.below(6);
        Sample { rng, temper }
    }
}

impl Choose for Sample {
    fn choose(&mut self, options: usize) -> usize {
        let any = self.rng.index(options);
        let exception = self.rng.chance(25);
        let last = options.saturating_sub(1);
        match self.temper {
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

    /// A tree of choices whose depth depends on the first one.
    fn walk(choose: &mut dyn Choose) -> Vec<usize> {
        let first = choose.choose(3);
        let mut path = vec![first];
        for _ in 0..first {
            path.push(choose.choose(2));
        }
        path
    }

    #[test]
    fn the_odometer_takes_every_path_once() {
        let (mut odometer, mut seen) = (Odometer::default(), Vec::new());
        loop {
            seen.push(walk(&mut odometer));
            if !odometer.advance() {
                break;
            }
        }
        assert_eq!(seen.len(), 1 + 2 + 4);
        assert_eq!(seen.iter().collect::<BTreeSet<_>>().len(), seen.len());
    }

    #[test]
    fn samples_reach_every_path() {
        let seen: BTreeSet<_> = (0..300).map(|n| walk(&mut Sample::new(Rng::at(1, &[n])))).collect();
        assert_eq!(seen.len(), 1 + 2 + 4);
    }
}
