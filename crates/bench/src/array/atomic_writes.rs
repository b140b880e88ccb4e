//! Writes of an array whose writes are atomic, beside the same writes of an array whose writes are not. Paper: RAIZN+,
//! section 5.2.7.

use zoned::Result;

use super::{ArrayLoad, KIB, Kind, Line, MIB, Setup};

/// Bytes of the measured writes.
const SIZES: [u64; 5] = [4 * KIB, 16 * KIB, 64 * KIB, 256 * KIB, MIB];
/// Writes in flight.
const DEPTHS: [usize; 2] = [1, 32];
/// The least rate with atomic writes, over the rate without.
const LEAST_RATE: f64 = 0.97;
/// The highest 99.9th percentile of the latencies with atomic writes, over that without.
const HIGHEST_TAIL: f64 = 1.2;

impl ArrayLoad {
    /// The rate and the 99.9th percentile of the latencies of writes of each size, with atomic writes and without.
    pub(super) fn atomic_writes(&self) -> Result<Vec<Line>> {
        let mut lines = Vec::new();
        for depth in DEPTHS {
            for size in SIZES {
                let of = |atomic_writes| {
                    let bed = Setup { atomic_writes, ..self.setup }.build()?;
                    self.load(&bed.device, Kind::Write, size, depth)
                };
                let (atomic, plain) = (of(true)?, of(false)?);
                let what = format!("{} KiB written, atomic, depth {depth}", size / KIB);
                let which = "the same, not atomic";
                let rate = Line::rate(what.clone(), atomic.mib, plain.mib, which);
                lines.push(Line { wanted: LEAST_RATE, ..rate });
                let tail = Line::latency(format!("p99.9 of {what}"), atomic.p99_9, plain.p99_9, which);
                lines.push(Line { wanted: HIGHEST_TAIL, ..tail });
            }
        }
        Ok(lines)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn atomic_writes_cost_little() {
        let load = ArrayLoad::default();
        let lines = load.atomic_writes().expect("measured");
        for line in &lines {
            println!("{}", line.words());
        }
        assert!(lines.iter().all(Line::holds));
    }
}
