//! The largest ratio of a record's latency to the median of the records around it: a measure of stalls that does not
//! depend on the load's own latency.

use units::Instant;

/// Least records of a piece of the run. A piece grows with the number of writers: a stall that delays one record of every
/// writer does not move its median.
const RECORDS_PER_PIECE: usize = 64;
const RECORDS_PER_PIECE_AND_WRITER: usize = 4;
/// Most records whose latencies are kept in memory.
const MAX_RECORDS: u64 = 1 << 22;

/// The begin of each record's append and its latency in ns.
#[derive(Debug, Default)]
pub(super) struct AppendLatencies(Vec<(Instant, u64)>);

impl AppendLatencies {
    /// Whether the latencies of a run of `records` records are kept.
    pub(super) fn fit(records: u64) -> bool {
        records <= MAX_RECORDS
    }

    pub(super) fn add(&mut self, begin: Instant, end: Instant) {
        self.0.push((begin, u64::try_from(end.since(begin).as_nanos()).unwrap_or(u64::MAX)));
    }

    pub(super) fn join(&mut self, other: AppendLatencies) {
        self.0.extend(other.0);
    }

    /// The largest ratio of a record's latency to a median: the largest median of its piece, the piece before and the piece
    /// after, as a new zone may be faster for a while. `None` without records.
    pub(super) fn worst_ratio(mut self, writers: u32) -> Option<f64> {
        self.0.sort_unstable();
        let piece = RECORDS_PER_PIECE + RECORDS_PER_PIECE_AND_WRITER * writers as usize;
        let pieces: Vec<Vec<u64>> = self.0.chunks(piece).map(sorted).collect();
        let medians: Vec<u64> = pieces.iter().map(|p| p.get(p.len() / 2).copied().unwrap_or(0)).collect();
        let of = |(at, piece): (usize, &Vec<u64>)| {
            let around = medians.iter().take(at + 2).skip(at.saturating_sub(1));
            let median = around.max().copied().unwrap_or(0).max(1);
            piece.last().copied().unwrap_or(0) as f64 / median as f64
        };
        pieces.iter().enumerate().map(of).max_by(f64::total_cmp)
    }
}

fn sorted(piece: &[(Instant, u64)]) -> Vec<u64> {
    let mut took: Vec<u64> = piece.iter().map(|(_, took)| *took).collect();
    took.sort_unstable();
    took
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    /// Records of two writers that take 10 us each; one piece of the run takes 100, and one record `slow`.
    fn latencies_with_one_slow_record(slow: u64) -> AppendLatencies {
        let mut times = AppendLatencies::default();
        for at in 0..2000_u64 {
            let level = if (500..1000).contains(&at) { 100 } else { 10 };
            let took = if at == 700 { slow } else { level };
            let begin = Instant::ORIGIN.after(Duration::from_micros(at * 50));
            times.add(begin, begin.after(Duration::from_micros(took)));
        }
        times
    }

    #[test]
    fn a_slow_record_is_compared_with_the_records_around_it() {
        assert_eq!(latencies_with_one_slow_record(1000).worst_ratio(2), Some(10.0));
        // The records after the latencies drop are compared with the slower ones before.
        assert!(latencies_with_one_slow_record(100).worst_ratio(2) >= Some(1.0));
        assert_eq!(AppendLatencies::default().worst_ratio(2), None);
    }
}
