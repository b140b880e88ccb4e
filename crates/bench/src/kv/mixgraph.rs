//! MixGraph: keys, value sizes and scan lengths as fitted to a production workload.
//!
//! Cao et al., "Characterizing, Modeling, and Benchmarking RocksDB Key-Value Workloads at Facebook" (FAST '20), with
//! the formulas and parameters of RocksDB's `db_bench mixgraph`; the code is our own. What is left out: the sine of the
//! offered load, which `db_bench` leaves out too unless it is asked for. The operation, the value's size and the scan's
//! length are drawn independently, where `db_bench` draws all of them from one number. And `prefix-random` picks a range
//! by its heat, as the paper says; `db_bench` does so only where the keys within a range have a distribution too.

use std::fmt;
use std::str::FromStr;

use units::SplitMix64;

use crate::ycsb::keys::{below, unit};

/// The parts of MixGraph's model that are in use.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Variant {
    /// Every key is as likely as any other.
    AllRandom,
    /// Keys have a power distribution over the whole space.
    AllDist,
    /// Ranges of keys differ in heat, the keys of a range do not.
    PrefixRandom,
    /// Both the ranges and the keys of a range differ in heat.
    PrefixDist,
}

impl Variant {
    /// All variants, in the paper's order.
    pub const ALL: [Variant; 4] =
        [Variant::AllRandom, Variant::AllDist, Variant::PrefixRandom, Variant::PrefixDist];

    /// The names of all variants of MixGraph.
    pub const NAMES: &str = "all-random, all-dist, prefix-random, prefix-dist";

    fn has_ranges(self) -> bool {
        matches!(self, Variant::PrefixRandom | Variant::PrefixDist)
    }

    fn has_hot_keys(self) -> bool {
        matches!(self, Variant::AllDist | Variant::PrefixDist)
    }
}

impl fmt::Display for Variant {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Variant::AllRandom => "all-random",
            Variant::AllDist => "all-dist",
            Variant::PrefixRandom => "prefix-random",
            Variant::PrefixDist => "prefix-dist",
        })
    }
}

impl FromStr for Variant {
    type Err = String;

    fn from_str(text: &str) -> Result<Variant, String> {
        let found = Variant::ALL.into_iter().find(|one| one.to_string() == text);
        found.ok_or_else(|| format!("'mixgraph-{text}' is no mix: mixgraph- with one of {}", Variant::NAMES))
    }
}

/// Number of ranges of keys: `keyrange_num`.
const KEY_RANGES: u64 = 30;
/// Parameters of a key range's heat, which for range x is a e^(b x) + c e^(d x): `keyrange_dist_a` to `_d`.
const RANGE_HEAT_PARAMETERS: (f64, f64, f64, f64) = (14.18, -2.917, 0.0164, -0.08082);
/// Heats are rounded to one part in this many of their sum.
const HEAT_STEPS: f64 = 1e6;
/// Parameters of a key's frequency, which for rank x is a x^b, summed: `key_dist_a`, `key_dist_b`.
const KEY: (f64, f64) = (0.002_312, 0.3467);
/// Parameters of generalised Pareto distributions of value sizes and scan lengths: shape and scale. `value_k`, `value_sigma`;
/// `iter_k`, `iter_sigma`.
const VALUE_SIZE_PARAMETERS: (f64, f64) = (0.2615, 25.45);
const SCAN_LENGTH_PARAMETERS: (f64, f64) = (2.517, 14.236);
/// `mix_max_value_size` and `mix_max_scan_len`: longer values and scans are taken modulo these.
const MAX_VALUE_BYTES: u64 = 1024;
const MAX_SCAN_KEYS: u64 = 10_000;

/// Picks keys as MixGraph does.
#[derive(Clone, Debug)]
pub struct Keys {
    variant: Variant,
    records: u64,
    /// For each range the end of its share of the heat, and the range: hot and cold ranges are mixed.
    heats: Vec<(u64, u64)>,
}

impl Keys {
    /// A picker of keys for a database of `records` records, one at least.
    pub fn new(variant: Variant, records: u64) -> Keys {
        let heat = |x: u64| {
            let (a, b, c, d) = RANGE_HEAT_PARAMETERS;
            a * (b * x as f64).exp() + c * (d * x as f64).exp()
        };
        let all: f64 = (1..=KEY_RANGES).map(heat).sum();
        let mut places: Vec<u64> = (0..KEY_RANGES).collect();
        // The ranges' places in the key space, the hottest first. The fixed seed makes them the same in every run.
        let mut random = SplitMix64::new(KEY_RANGES);
        for end in (1..places.len()).rev() {
            let other = usize::try_from(below(&mut random, end as u64 + 1)).unwrap_or_default();
            places.swap(end, other);
        }
        let mut end = 0;
        let heats = (1..=KEY_RANGES).zip(places).map(|(x, place)| {
            end += ((heat(x) / all * HEAT_STEPS) as u64).max(1);
            (end, place)
        });
        Keys { variant, records: records.max(1), heats: heats.collect() }
    }

    /// Picks a key's number, below that of the records.
    pub fn pick(&self, random: &mut SplitMix64) -> u64 {
        let ranges = if self.variant.has_ranges() { KEY_RANGES.min(self.records) } else { 1 };
        let size = self.records / ranges;
        let range = if ranges > 1 { self.range(random) % ranges } else { 0 };
        let within = if self.variant.has_hot_keys() { hot(random, size) } else { below(random, size) };
        (range * size + within).min(self.records - 1)
    }

    fn range(&self, random: &mut SplitMix64) -> u64 {
        let end = self.heats.last().map_or(1, |(end, _)| *end);
        let at = below(random, end);
        let found = self.heats.partition_point(|(end, _)| *end <= at);
        self.heats.get(found).map_or(0, |(_, range)| *range)
    }
}

/// Picks a key below `size`: a rank of the power distribution, scattered. Few ranks have most of the draws.
fn hot(random: &mut SplitMix64, size: u64) -> u64 {
    let (a, b) = KEY;
    let rank = (unit(random) / a).powf(1.0 / b).ceil();
    below(&mut SplitMix64::new(rank as u64), size)
}

fn draw_pareto(random: &mut SplitMix64, (k, sigma): (f64, f64)) -> f64 {
    // `u` is above 0, and at most 1.
    let u = 1.0 - unit(random);
    (sigma * (u.powf(-k) - 1.0) / k).ceil()
}

/// Draws the bytes of a value.
pub fn value_size(random: &mut SplitMix64) -> u64 {
    match draw_pareto(random, VALUE_SIZE_PARAMETERS) as u64 {
        size if size > MAX_VALUE_BYTES => size % MAX_VALUE_BYTES,
        size => size,
    }
}

/// Draws the number of keys of a scan, the first one included; hardly ever zero.
pub fn scan_length(random: &mut SplitMix64) -> u64 {
    draw_pareto(random, SCAN_LENGTH_PARAMETERS) as u64 % MAX_SCAN_KEYS
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use super::*;

    const RECORDS: u64 = 30_000;
    const DRAWS: u64 = 200_000;

    /// Counts how often each key, and each of the ranges, is drawn.
    fn count_draws(variant: Variant) -> (HashMap<u64, u64>, Vec<f64>) {
        let (keys, mut random) = (Keys::new(variant, RECORDS), SplitMix64::new(11));
        let (mut counts, mut ranges) = (HashMap::new(), vec![0.0; KEY_RANGES as usize]);
        for _ in 0..DRAWS {
            let key = keys.pick(&mut random);
            assert!(key < RECORDS);
            *counts.entry(key).or_default() += 1;
            ranges[(key * KEY_RANGES / RECORDS) as usize] += 1.0 / DRAWS as f64;
        }
        ranges.sort_by(|a, b| b.total_cmp(a));
        (counts, ranges)
    }

    #[test]
    fn ranges_are_as_hot_as_the_two_exponentials_say_or_alike() {
        for variant in Variant::ALL {
            let (_, ranges) = count_draws(variant);
            let expected = if variant.has_ranges() { 0.7913 } else { 1.0 / 30.0 };
            let within = if variant == Variant::AllDist { 0.02 } else { 0.01 };
            assert!((ranges[0] - expected).abs() < within, "{variant}: {}", ranges[0]);
        }
        // Expected shares of the second and the third range: 14.18 e^-5.834 + 0.0164 e^-0.16164, and so on, over the sum.
        let (_, ranges) = count_draws(Variant::PrefixRandom);
        assert!((ranges[1] - 0.0561).abs() < 0.005 && (ranges[2] - 0.0153).abs() < 0.005, "{ranges:?}");
    }

    #[test]
    fn hot_keys_are_few_and_the_cold_keys_are_uniform() {
        let share_of_hottest = |variant| {
            let (counts, _) = count_draws(variant);
            let mut counts: Vec<u64> = counts.into_values().collect();
            counts.sort_by(|a, b| b.cmp(a));
            counts.iter().take(300).sum::<u64>() as f64 / DRAWS as f64
        };
        assert!(share_of_hottest(Variant::AllRandom) < 0.03);
        assert!(share_of_hottest(Variant::AllDist) > share_of_hottest(Variant::AllRandom));
        assert!(share_of_hottest(Variant::PrefixDist) > share_of_hottest(Variant::PrefixRandom));
    }

    #[test]
    fn sizes_and_lengths_have_the_medians_of_their_distributions() {
        let median = |draw: &dyn Fn(&mut SplitMix64) -> u64| {
            let mut random = SplitMix64::new(3);
            let mut all: Vec<u64> = (0..100_001).map(|_| draw(&mut random)).collect();
            all.sort_unstable();
            (all[50_000], all[100_000])
        };
        // The median of a generalised Pareto distribution: sigma (2^k - 1) / k, rounded up.
        let (middle, most) = median(&value_size);
        assert!((19..=21).contains(&middle) && most <= MAX_VALUE_BYTES, "{middle}, {most}");
        let (middle, most) = median(&scan_length);
        assert!((26..=28).contains(&middle) && most < MAX_SCAN_KEYS, "{middle}, {most}");
    }

    #[test]
    fn a_database_of_few_records_has_keys_too() {
        for variant in Variant::ALL {
            for records in [1, 2, 29, 31] {
                let (keys, mut random) = (Keys::new(variant, records), SplitMix64::new(1));
                assert!((0..1000).all(|_| keys.pick(&mut random) < records), "{variant} {records}");
            }
        }
    }
}
