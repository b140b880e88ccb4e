//! An array with stored maps, with whole and with half physical zones, beside one whose places are computed. Paper: RAIZN+, section
//! 5.2.8, Fig. 5.14b.

use ::array::Placement;
use zoned::Result;

use super::{ArrayLoad, Bytes, KIB, Kind, Line, MANY_IN_FLIGHT, MIB, Setup, fill_with_zeros};

/// Bytes and number of the measured writes in flight.
const WRITES: [(u64, usize); 6] =
    [(4 * KIB, 1), (4 * KIB, 32), (4 * KIB, MANY_IN_FLIGHT), (64 * KIB, 1), (64 * KIB, 32), (MIB, 32)];
/// Bytes and number of the measured reads in flight.
const READS: [(u64, usize); 3] = [(4 * KIB, 1), (64 * KIB, 32), (MIB, 32)];
/// The least rate with stored maps, over that with computed places.
const LEAST_RATE: f64 = 0.99;
/// The highest 99.9th percentile of the latencies with stored maps, over that with computed places.
const HIGHEST_TAIL: f64 = 1.05;
/// A description of the reference numbers.
const WHICH: &str = "the same, fixed placement";

impl ArrayLoad {
    /// The same load for an array with stored maps, of which `shares` logical zones share a physical zone.
    fn stored(&self, shares: u32) -> ArrayLoad {
        ArrayLoad { setup: Setup { placement: Placement::Stored, shares, ..self.setup }, ..*self }
    }

    /// Rates and tails of writes, reads and a rebuild with stored maps and `shares` zones in a physical one, beside those with computed
    /// places.
    pub(super) fn stored_maps(&self, shares: u32) -> Result<Vec<Line>> {
        let mut lines = Vec::new();
        let with = match shares {
            1 => "stored maps".to_owned(),
            shares => format!("1/{shares} of a physical zone"),
        };
        for (kind, cases) in [(Kind::Write, &WRITES[..]), (Kind::Sequential, &READS[..])] {
            for &(size, depth) in cases {
                let of = |load: &ArrayLoad| {
                    let bed = load.setup.build()?;
                    if kind == Kind::Sequential {
                        fill_with_zeros(&bed.device, 1, Bytes(load.number_of_operations(size) * size))?;
                    }
                    load.load(&bed.device, kind, size, depth)
                };
                let (stored, fixed) = (of(&self.stored(shares))?, of(self)?);
                let verb = if kind == Kind::Write { "written" } else { "read" };
                let what = format!("{} KiB {verb}, {with}, depth {depth}", size / KIB);
                let rate = Line::rate(what.clone(), stored.mib, fixed.mib, WHICH);
                lines.push(Line { wanted: LEAST_RATE, ..rate });
                let tail = Line::latency(format!("p99.9 of {what}"), stored.p99_9, fixed.p99_9, WHICH);
                lines.push(Line { wanted: HIGHEST_TAIL, ..tail });
            }
        }
        let rebuilt = self.stored(shares).rebuild(shares)?;
        lines.push(Line { what: format!("{with}, {}", rebuilt.what), ..rebuilt });
        Ok(lines)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stored_maps_cost_no_rate_and_no_tail() {
        let load = ArrayLoad { total: Bytes(256 * MIB), ..ArrayLoad::default() };
        for shares in [1, 2] {
            let lines = load.stored_maps(shares).expect("measured");
            lines.iter().for_each(|line| println!("{}", line.words()));
            let missed: Vec<&Line> = lines.iter().filter(|line| !line.holds()).collect();
            assert!(missed.is_empty() && lines.len() == 19, "{missed:#?}");
            let small = lines.iter().find(|line| line.what.contains("depth 512")).expect("measured");
            assert!(small.ours >= 3477.0, "{small:?}");
        }
    }
}
