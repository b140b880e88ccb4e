//! Which record an operation is for.

use std::collections::BTreeSet;

use parking_lot::Mutex;
use units::SplitMix64;

/// How skewed the zipfian distribution is.
pub const THETA: f64 = 0.99;
/// Ranks that are scrambled over the records: so many that the hottest record's share is the same for any number of
/// records.
const SCRAMBLED: u64 = 10_000_000_000;
/// The sum of 1/i^0.99 over as many ranks.
const SCRAMBLED_ZETA: f64 = 26.469_028_201_783_02;

/// Ranks from 0 on, the first one the most frequent: rank i has a share of 1/(i+1)^theta.
///
/// The generator of Gray et al., "Quickly generating billion-record synthetic databases" (SIGMOD '94).
#[derive(Clone, Debug)]
pub struct Zipfian {
    ranks: u64,
    zeta: f64,
    eta: f64,
}

impl Zipfian {
    /// Over so many ranks, one at least. Takes time in proportion.
    pub fn new(ranks: u64) -> Zipfian {
        Zipfian::with_zeta(ranks.max(1), zeta(0, ranks.max(1)))
    }

    /// Over the ranks that are scrambled.
    fn scrambled() -> Zipfian {
        Zipfian::with_zeta(SCRAMBLED, SCRAMBLED_ZETA)
    }

    fn with_zeta(ranks: u64, zeta: f64) -> Zipfian {
        let of_two = 1.0 + 0.5_f64.powf(THETA);
        let eta = (1.0 - (2.0 / ranks as f64).powf(1.0 - THETA)) / (1.0 - of_two / zeta);
        Zipfian { ranks, zeta, eta }
    }

    /// Takes in more ranks.
    pub fn grow(&mut self, ranks: u64) {
        if ranks > self.ranks {
            *self = Zipfian::with_zeta(ranks, self.zeta + zeta(self.ranks, ranks));
        }
    }

    /// The share of a rank.
    pub fn share(&self, rank: u64) -> f64 {
        ((rank + 1) as f64).powf(-THETA) / self.zeta
    }

    /// A rank.
    pub fn draw(&self, random: &mut SplitMix64) -> u64 {
        let u = unit(random);
        let uz = u * self.zeta;
        if uz < 1.0 || self.ranks == 1 {
            return 0;
        } else if uz < 1.0 + 0.5_f64.powf(THETA) {
            return 1;
        }
        let rank = self.ranks as f64 * (self.eta * u - self.eta + 1.0).powf(1.0 / (1.0 - THETA));
        (rank as u64).min(self.ranks - 1)
    }
}

/// The sum of 1/i^theta over i from `after` + 1 to `to`.
fn zeta(after: u64, to: u64) -> f64 {
    (after + 1..=to).map(|i| (i as f64).powf(-THETA)).sum()
}

/// A number from 0 to 1, 1 excluded.
pub fn unit(random: &mut SplitMix64) -> f64 {
    (random.draw() >> 11) as f64 / (1_u64 << 53) as f64
}

/// A number below `end`.
pub fn below(random: &mut SplitMix64, end: u64) -> u64 {
    random.draw() % end.max(1)
}

/// FNV-1a over the bytes of a number: spreads neighbours.
pub fn scatter(number: u64) -> u64 {
    number
        .to_le_bytes()
        .iter()
        .fold(0xcbf2_9ce4_8422_2325, |hash, byte| (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3))
}

/// How records are picked.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Distribution {
    /// Few records are asked for most of the time, wherever they lie.
    Zipfian,
    /// The youngest records are asked for most of the time.
    Latest,
    /// Every record is as likely as any other.
    Uniform,
}

/// Picks records.
#[derive(Clone, Debug)]
pub struct Picker {
    distribution: Distribution,
    zipfian: Zipfian,
    /// Records that there are or will be: what ranks are scrambled over.
    space: u64,
}

impl Picker {
    /// Of `records` records that there are, and `expected` more that may come.
    pub fn new(distribution: Distribution, records: u64, expected: u64) -> Picker {
        let zipfian = match distribution {
            Distribution::Latest => Zipfian::new(records),
            Distribution::Zipfian | Distribution::Uniform => Zipfian::scrambled(),
        };
        Picker { distribution, zipfian, space: records.saturating_add(expected).max(1) }
    }

    /// One of the first `records` records, one at least.
    pub fn pick(&mut self, random: &mut SplitMix64, records: u64) -> u64 {
        let records = records.max(1);
        match self.distribution {
            Distribution::Uniform => below(random, records),
            Distribution::Latest => {
                self.zipfian.grow(records);
                (records - 1).saturating_sub(self.zipfian.draw(random))
            }
            Distribution::Zipfian => loop {
                // What is not there yet is not asked for; at least half of the space is there.
                let record = scatter(self.zipfian.draw(random)) % self.space.max(records);
                if record < records {
                    return record;
                }
            },
        }
    }
}

/// The records that are there: all below a number that grows as inserts end, in whatever order they do.
#[derive(Debug)]
pub struct Inserted(Mutex<Ends>);

#[derive(Debug)]
struct Ends {
    below: u64,
    ahead: BTreeSet<u64>,
}

impl Inserted {
    /// So many are there.
    pub fn new(records: u64) -> Inserted {
        Inserted(Mutex::new(Ends { below: records, ahead: BTreeSet::new() }))
    }

    /// All records below this are there.
    pub fn below(&self) -> u64 {
        self.0.lock().below
    }

    /// This one is there too.
    pub fn add(&self, record: u64) {
        let mut ends = self.0.lock();
        ends.ahead.insert(record);
        loop {
            let next = ends.below;
            if !ends.ahead.remove(&next) {
                return;
            }
            ends.below += 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const DRAWS: u64 = 400_000;

    fn shares(ranks: u64, mut draw: impl FnMut(&mut SplitMix64) -> u64) -> Vec<f64> {
        let mut random = SplitMix64::new(7);
        let mut counts = vec![0_u64; ranks as usize];
        (0..DRAWS).for_each(|_| counts[draw(&mut random) as usize] += 1);
        counts.into_iter().map(|count| count as f64 / DRAWS as f64).collect()
    }

    #[test]
    fn ranks_come_as_often_as_the_formula_says() {
        let zipfian = Zipfian::new(1000);
        let found = shares(1000, |random| zipfian.draw(random));
        assert!((found.iter().sum::<f64>() - 1.0).abs() < 1e-9);
        for rank in [0, 1] {
            let ratio = found[rank] / zipfian.share(rank as u64);
            assert!((ratio - 1.0).abs() < 0.02, "rank {rank}: {ratio}");
        }
        // Beyond the first two the generator interpolates: sums over ranks are close, single ones less so.
        for (from, to) in [(2, 10), (10, 100), (100, 1000)] {
            let expected: f64 = (from..to).map(|rank| zipfian.share(rank)).sum();
            let ratio = found[from as usize..to as usize].iter().sum::<f64>() / expected;
            assert!((ratio - 1.0).abs() < 0.15, "ranks {from} to {to}: {ratio}");
        }
    }

    #[test]
    fn the_sum_over_the_scrambled_ranks_is_the_formulas() {
        // The sum of the first million, then the integral of the rest with its first correction.
        let (n, m) = (SCRAMBLED as f64, 1e6_f64);
        let rest = (n.powf(1.0 - THETA) - m.powf(1.0 - THETA)) / (1.0 - THETA);
        let sum = zeta(0, 1_000_000) + rest + (n.powf(-THETA) - m.powf(-THETA)) / 2.0;
        assert!((sum - SCRAMBLED_ZETA).abs() < 1e-6, "{sum}");
    }

    #[test]
    fn a_distribution_that_has_grown_is_like_one_made_so() {
        let mut grown = Zipfian::new(10);
        grown.grow(1000);
        let made = Zipfian::new(1000);
        assert!((grown.zeta - made.zeta).abs() < 1e-9 && (grown.eta - made.eta).abs() < 1e-9);
    }

    #[test]
    fn the_hottest_record_is_somewhere_and_has_its_share() {
        let mut picker = Picker::new(Distribution::Zipfian, 1000, 0);
        let found = shares(1000, |random| picker.pick(random, 1000));
        let hottest = (scatter(0) % 1000) as usize;
        assert!(hottest > 1, "scattered");
        assert_eq!(found.iter().copied().fold(0.0, f64::max), found[hottest]);
        assert!((0.036..0.042).contains(&found[hottest]), "{}", found[hottest]);
    }

    #[test]
    fn the_youngest_is_asked_for_most_and_what_is_not_there_never() {
        let mut picker = Picker::new(Distribution::Latest, 500, 500);
        let found = shares(1000, |random| picker.pick(random, 800));
        assert_eq!(found[800..].iter().sum::<f64>(), 0.0);
        let share = Zipfian::new(800).share(0);
        assert!((found[799] / share - 1.0).abs() < 0.03, "{}", found[799]);
        for distribution in [Distribution::Zipfian, Distribution::Uniform] {
            let mut picker = Picker::new(distribution, 500, 500);
            assert_eq!(shares(1000, |random| picker.pick(random, 800))[800..].iter().sum::<f64>(), 0.0);
        }
    }

    #[test]
    fn records_are_there_once_all_before_them_are() {
        let inserted = Inserted::new(3);
        inserted.add(4);
        assert_eq!(inserted.below(), 3);
        inserted.add(3);
        assert_eq!(inserted.below(), 5);
    }
}
