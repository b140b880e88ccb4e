//! The choice of a record for an operation.

use std::collections::BTreeSet;
use std::convert::Infallible;
use std::str::FromStr;

use parking_lot::Mutex;
use rand_core::TryRng;
use rand_distr::{Distribution as _, Zipf};
use serde::Serialize;
use units::SplitMix64;

/// The exponent of the zipfian distribution, as YCSB has it.
const ZIPFIAN_EXPONENT: f64 = 0.99;
/// Number of ranks that are scrambled over the records, as YCSB has it: so many that the hottest record's share is about the
/// same for any number of records.
const SCRAMBLED_RANKS: u64 = 10_000_000_000;

/// A zipfian distribution of ranks from 0 on, the first one the most frequent: rank i has a share in proportion to
/// 1/(i+1)^0.99.
#[derive(Clone, Debug)]
pub struct Zipfian {
    ranks: u64,
    zipf: Zipf<f64>,
}

impl Zipfian {
    /// The distribution over a number of ranks, one at least.
    pub fn new(ranks: u64) -> Zipfian {
        let ranks = ranks.max(1);
        let zipf =
            Zipf::new(ranks as f64, ZIPFIAN_EXPONENT).expect("one rank at least, and a positive exponent");
        Zipfian { ranks, zipf }
    }

    /// Adds ranks to the distribution.
    pub fn grow(&mut self, ranks: u64) {
        if ranks > self.ranks {
            *self = Zipfian::new(ranks);
        }
    }

    /// Draws a rank.
    pub fn draw(&self, random: &mut SplitMix64) -> u64 {
        // The ranks of the library `rand_distr` begin with 1.
        (self.zipf.sample(&mut Generator(random)) as u64).clamp(1, self.ranks) - 1
    }
}

/// [`SplitMix64`] as a random number generator of the library `rand_distr`.
struct Generator<'a>(&'a mut SplitMix64);

impl TryRng for Generator<'_> {
    type Error = Infallible;

    fn try_next_u32(&mut self) -> Result<u32, Infallible> {
        Ok((self.0.draw() >> 32) as u32)
    }

    fn try_next_u64(&mut self) -> Result<u64, Infallible> {
        Ok(self.0.draw())
    }

    fn try_fill_bytes(&mut self, bytes: &mut [u8]) -> Result<(), Infallible> {
        for part in bytes.chunks_mut(8) {
            part.iter_mut().zip(self.0.draw().to_le_bytes()).for_each(|(byte, drawn)| *byte = drawn);
        }
        Ok(())
    }
}

/// A random number from 0 to 1, 1 excluded.
pub fn unit(random: &mut SplitMix64) -> f64 {
    (random.draw() >> 11) as f64 / (1_u64 << 53) as f64
}

/// A random number below `end`.
pub fn below(random: &mut SplitMix64, end: u64) -> u64 {
    random.draw() % end.max(1)
}

/// FNV-1a over the bytes of a number: maps neighbours to numbers far apart.
pub fn scatter(number: u64) -> u64 {
    number
        .to_le_bytes()
        .iter()
        .fold(0xcbf2_9ce4_8422_2325, |hash, byte| (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3))
}

/// The distribution by which records are picked.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Distribution {
    /// Few records get most operations; they are scattered over the key space.
    Zipfian,
    /// The records inserted last get most operations.
    Latest,
    /// Every record is as likely as any other.
    Uniform,
}

impl FromStr for Distribution {
    type Err = String;

    fn from_str(text: &str) -> Result<Distribution, String> {
        match text {
            "zipfian" => Ok(Distribution::Zipfian),
            "latest" => Ok(Distribution::Latest),
            "uniform" => Ok(Distribution::Uniform),
            _ => Err(format!("'{text}' is no distribution: zipfian, latest or uniform")),
        }
    }
}

impl Serialize for Distribution {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(match self {
            Distribution::Zipfian => "zipfian",
            Distribution::Latest => "latest",
            Distribution::Uniform => "uniform",
        })
    }
}

/// Picks the records of operations.
#[derive(Clone, Debug)]
pub struct Picker {
    distribution: Distribution,
    zipfian: Zipfian,
    /// The number of records that exist or are expected; ranks are scrambled over them.
    space: u64,
}

impl Picker {
    /// A picker among `records` records, and `expected` more that may be inserted.
    pub fn new(distribution: Distribution, records: u64, expected: u64) -> Picker {
        let zipfian = match distribution {
            Distribution::Latest => Zipfian::new(records),
            Distribution::Zipfian | Distribution::Uniform => Zipfian::new(SCRAMBLED_RANKS),
        };
        Picker { distribution, zipfian, space: records.saturating_add(expected).max(1) }
    }

    /// Picks one of the first `records` records, one at least.
    pub fn pick(&mut self, random: &mut SplitMix64, records: u64) -> u64 {
        let records = records.max(1);
        match self.distribution {
            Distribution::Uniform => below(random, records),
            Distribution::Latest => {
                self.zipfian.grow(records);
                (records - 1).saturating_sub(self.zipfian.draw(random))
            }
            Distribution::Zipfian => loop {
                // A record that is not inserted yet is drawn again; at least half of the space is inserted.
                let record = scatter(self.zipfian.draw(random)) % self.space.max(records);
                if record < records {
                    return record;
                }
            },
        }
    }
}

/// The records inserted so far: all below a bound, which grows as inserts end, in any order.
#[derive(Debug)]
pub struct Inserted(Mutex<Ends>);

#[derive(Debug)]
struct Ends {
    below: u64,
    ahead: BTreeSet<u64>,
}

impl Inserted {
    /// Starts with the first `records` records inserted.
    pub fn new(records: u64) -> Inserted {
        Inserted(Mutex::new(Ends { below: records, ahead: BTreeSet::new() }))
    }

    /// The bound below which all records are inserted.
    pub fn below(&self) -> u64 {
        self.0.lock().below
    }

    /// Adds an inserted record.
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

    fn shares_of_draws(ranks: u64, mut draw: impl FnMut(&mut SplitMix64) -> u64) -> Vec<f64> {
        let mut random = SplitMix64::new(7);
        let mut counts = vec![0_u64; ranks as usize];
        (0..DRAWS).for_each(|_| counts[draw(&mut random) as usize] += 1);
        counts.into_iter().map(|count| count as f64 / DRAWS as f64).collect()
    }

    /// The share of a rank among `ranks`.
    fn share_of_rank(ranks: u64, rank: u64) -> f64 {
        let weight = |rank: u64| ((rank + 1) as f64).powf(-0.99);
        weight(rank) / (0..ranks).map(weight).sum::<f64>()
    }

    #[test]
    fn ranks_come_as_often_as_the_formula_says() {
        let zipfian = Zipfian::new(1000);
        let found = shares_of_draws(1000, |random| zipfian.draw(random));
        for (from, to) in [(0, 1), (1, 2), (2, 10), (10, 100), (100, 1000)] {
            let expected: f64 = (from..to).map(|rank| share_of_rank(1000, rank)).sum();
            let ratio = found[from as usize..to as usize].iter().sum::<f64>() / expected;
            assert!((ratio - 1.0).abs() < 0.03, "ranks {from} to {to}: {ratio}");
        }
        assert_eq!(Zipfian::new(1).draw(&mut SplitMix64::new(7)), 0);
    }

    #[test]
    fn a_grown_distribution_equals_one_made_at_that_size() {
        let mut grown = Zipfian::new(10);
        grown.grow(1000);
        let made = Zipfian::new(1000);
        let draw = |zipfian: &Zipfian| {
            let mut random = SplitMix64::new(7);
            (0..1000).map(|_| zipfian.draw(&mut random)).collect::<Vec<u64>>()
        };
        assert_eq!(draw(&grown), draw(&made));
    }

    #[test]
    fn the_hottest_record_lies_anywhere_and_has_its_share() {
        let mut picker = Picker::new(Distribution::Zipfian, 1000, 0);
        let found = shares_of_draws(1000, |random| picker.pick(random, 1000));
        let hottest = (scatter(0) % 1000) as usize;
        assert!(hottest > 1, "scattered");
        assert_eq!(found.iter().copied().fold(0.0, f64::max), found[hottest]);
        assert!((0.036..0.042).contains(&found[hottest]), "{}", found[hottest]);
    }

    #[test]
    fn the_latest_record_is_picked_most_and_a_missing_one_never() {
        let mut picker = Picker::new(Distribution::Latest, 500, 500);
        let found = shares_of_draws(1000, |random| picker.pick(random, 800));
        assert_eq!(found[800..].iter().sum::<f64>(), 0.0);
        let share = share_of_rank(800, 0);
        assert!((found[799] / share - 1.0).abs() < 0.03, "{}", found[799]);
        for distribution in [Distribution::Zipfian, Distribution::Uniform] {
            let mut picker = Picker::new(distribution, 500, 500);
            assert_eq!(
                shares_of_draws(1000, |random| picker.pick(random, 800))[800..].iter().sum::<f64>(),
                0.0
            );
        }
    }

    #[test]
    fn the_bound_grows_once_all_records_before_are_inserted() {
        let inserted = Inserted::new(3);
        inserted.add(4);
        assert_eq!(inserted.below(), 3);
        inserted.add(3);
        assert_eq!(inserted.below(), 5);
    }
}
