//! How many writers shared a group of RocksDB's log.

use std::time::Duration;

use serde::Serialize;

use crate::{Latencies, Recorder};

/// The writes that RocksDB's group commit wrote in groups of one size.
#[derive(Clone, Debug, Serialize)]
pub struct GroupOutcome {
    /// Writers in each of the groups, the leader included.
    pub writers: usize,
    /// Number of groups of this size.
    pub groups: u64,
    /// Latencies of the writes in groups of this size.
    pub latency_us: Latencies,
    /// Latencies in us that a share of the writes did not exceed, in steps of a twentieth: from 5 to 100 %.
    pub steps_us: Vec<f64>,
}

/// A write in a group of RocksDB's group commit, and whether its writer led the group.
#[derive(Clone, Copy, Debug)]
pub(super) struct Led {
    sequence: u64,
    led: bool,
    took: Duration,
}

/// Number of quantiles reported of a latency distribution: one per 5 %.
const LATENCY_QUANTILES: u32 = 20;

impl Led {
    /// The write of a batch that RocksDB has written, which begins with its sequence number.
    pub(super) fn of(batch: &[u8], led: bool, took: Duration) -> Led {
        let sequence = batch.first_chunk().map_or(0, |bytes| u64::from_le_bytes(*bytes));
        Led { sequence, led, took }
    }
}

/// Sorts writes into groups: the leader has the lowest sequence number of its group.
pub(super) fn groups(mut writes: Vec<Led>, dilation: u32) -> Vec<GroupOutcome> {
    writes.sort_by_key(|write| write.sequence);
    let mut sizes: Vec<(u64, Recorder)> = Vec::new();
    for group in writes.chunk_by(|_, next| !next.led) {
        if sizes.len() < group.len() {
            sizes.resize_with(group.len(), || (0, Recorder::new()));
        }
        if let Some((count, recorder)) = sizes.get_mut(group.len() - 1) {
            *count += 1;
            group.iter().for_each(|write| recorder.record(write.took));
        }
    }
    let sizes = (1..).zip(sizes).filter(|(_, (count, _))| *count > 0);
    sizes
        .map(|(writers, (groups, recorder))| GroupOutcome {
            writers,
            groups,
            latency_us: recorder.summary(dilation),
            steps_us: (1..=LATENCY_QUANTILES)
                .map(|n| recorder.at(f64::from(n) / f64::from(LATENCY_QUANTILES), dilation))
                .collect(),
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_follows_a_leader_is_of_its_group() {
        let write = |sequence: u64, led, us| {
            let mut batch = sequence.to_le_bytes().to_vec();
            batch.extend([0; 20]);
            Led::of(&batch, led, Duration::from_micros(us))
        };
        let writes = vec![
            write(12, false, 30),
            write(10, true, 10),
            write(11, true, 20),
            write(13, false, 40),
            write(14, true, 50),
        ];
        let found = groups(writes, 10);
        let sizes: Vec<_> = found.iter().map(|of| (of.writers, of.groups, of.latency_us.max)).collect();
        assert_eq!(sizes, [(1, 2, 5.0), (3, 1, 4.0)]);
        assert!(found.iter().all(|of| of.steps_us.len() == 20 && of.steps_us.is_sorted()));
    }
}
