//! Appends to one zone of an array whose drives have one write of a zone in flight at a time, as those of the kernel: as ordered
//! writes, as appends, and in the way that measured latencies choose. Paper: RAIZN+, section 5.2.1.

use ::array::AppendMode;
use zoned::Result;

use super::{ArrayLoad, KIB, Kind, Line, Setup, Summary};

/// Profiles, sizes in KiB and numbers in flight of the appends whose way is chosen.
const PROFILES: [&str; 3] = ["zn540", "confzns", "smallzone"];
const SIZES: [u64; 4] = [4, 12, 16, 64];
const DEPTHS: [usize; 4] = [1, 4, 16, 64];

/// The profiles and the number in flight of the appends of 4 KiB that are compared with ordered writes.
const SMALL_APPENDS: [&str; 2] = ["confzns", "smallzone"];
const SMALL_APPENDS_IN_FLIGHT: usize = 8;
/// The highest latencies of appends, over those of ordered writes.
const HIGHEST_LATENCY: f64 = 0.75;
/// The least rate with drives that give appends their addresses in any order, over that with drives that keep the order.
const LEAST_REORDERED_RATE: f64 = 0.9;
/// The least rate and the highest 99.9th percentile of the chosen way, over those of the better way.
const LEAST_RATE: f64 = 0.97;
const HIGHEST_TAIL: f64 = 1.03;

impl ArrayLoad {
    /// All measurements of appends.
    pub(super) fn appends(&self) -> Result<Vec<Line>> {
        let mut lines = Vec::new();
        for profile in SMALL_APPENDS {
            lines.extend(self.small_appends(profile)?);
        }
        for profile in PROFILES {
            for size in SIZES {
                for depth in DEPTHS {
                    lines.extend(self.chosen_way(profile, size * KIB, depth)?);
                }
            }
        }
        Ok(lines)
    }

    /// Appends of `size` bytes, `depth` in flight. `reorder`: the drives give them their addresses in any order.
    fn appended(
        &self,
        profile: &'static str,
        appends: AppendMode,
        reorder: bool,
        (size, depth): (u64, usize),
    ) -> Result<Summary> {
        let bed = Setup { profile, appends, reorder, one_write: true, ..self.setup }.build()?;
        self.load(&bed.device, Kind::Append, size, depth)
    }

    /// Latencies of small appends beside those of ordered writes, and their rate on drives that reorder.
    fn small_appends(&self, profile: &'static str) -> Result<Vec<Line>> {
        let load = (4 * KIB, SMALL_APPENDS_IN_FLIGHT);
        let ordered = self.appended(profile, AppendMode::Ordered, false, load)?;
        let appended = self.appended(profile, AppendMode::Append, false, load)?;
        let reordered = self.appended(profile, AppendMode::Append, true, load)?;
        let what = format!("4 KiB appended, {profile}, depth {SMALL_APPENDS_IN_FLIGHT}");
        let latency = |name, ours, against| {
            let line = Line::latency(format!("{name} of {what}"), ours, against, "as ordered writes");
            Line { wanted: HIGHEST_LATENCY, ..line }
        };
        let reordered = Line::rate(
            format!("{what}, reordered"),
            reordered.mib,
            appended.mib,
            "drives that keep the order",
        );
        Ok(vec![
            latency("p50", appended.p50, ordered.p50),
            latency("p99", appended.p99, ordered.p99),
            Line { wanted: LEAST_REORDERED_RATE, ..reordered },
        ])
    }

    /// Appends in the way that measured latencies choose, beside the better way: the one with the higher rate, ordered writes where the rates
    /// differ by less than is wanted here.
    fn chosen_way(&self, profile: &'static str, size: u64, depth: usize) -> Result<Vec<Line>> {
        let of = |mode| self.appended(profile, mode, false, (size, depth));
        let (ordered, appended) = (of(AppendMode::Ordered)?, of(AppendMode::Append)?);
        let chosen = of(AppendMode::Auto)?;
        let (better, which) = if ordered.mib < LEAST_RATE * appended.mib {
            (appended, "the better way: appends")
        } else {
            (ordered, "the better way: ordered")
        };
        let what = format!("{} KiB appended, auto, {profile}, depth {depth}", size / KIB);
        let rate = Line::rate(what.clone(), chosen.mib, better.mib, which);
        let tail = Line::latency(format!("p99.9 of {what}"), chosen.p99_9, better.p99_9, which);
        Ok(vec![Line { wanted: LEAST_RATE, ..rate }, Line { wanted: HIGHEST_TAIL, ..tail }])
    }
}

#[cfg(test)]
mod tests {
    use zoned::Bytes;

    use super::*;

    fn load(size: u64, count: u64) -> ArrayLoad {
        ArrayLoad { total: Bytes(size * count), ..ArrayLoad::default() }
    }

    #[test]
    fn half_of_the_small_appends_take_three_quarters_of_the_time_of_ordered_writes() {
        for profile in SMALL_APPENDS {
            let lines = load(4 * KIB, 6000).small_appends(profile).expect("measured");
            lines.iter().for_each(|line| println!("{}", line.words()));
            assert!(lines[0].holds(), "{:?}", lines[0]);
        }
    }

    #[test]
    fn the_chosen_way_of_appends_is_as_good_as_the_better_one() {
        // Appends, appends until buffers are full, ordered writes.
        for (profile, size, depth, count) in [
            ("confzns", 4 * KIB, 4, 24_000),
            ("smallzone", 4 * KIB, 16, 24_000),
            ("zn540", 12 * KIB, 4, 8000),
            ("zn540", 64 * KIB, 16, 8000),
        ] {
            let lines = load(size, count).chosen_way(profile, size, depth).expect("measured");
            lines.iter().for_each(|line| println!("{}", line.words()));
            assert!(lines.iter().all(Line::holds), "{lines:?}");
        }
    }
}
