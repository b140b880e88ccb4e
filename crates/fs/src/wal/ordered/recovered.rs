//! The epochs of an ordered log as the metadata records them, and the result of a recovery.

use units::Blocks;

use crate::error::{Error, ErrorKind, Result};
use crate::wal::index::LogIndex;

/// The cut that begins a log's epoch: its metadata record is durable before the epoch's first entry is
/// written.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Cut {
    /// The epoch.
    pub epoch: u32,
    /// The sequence of the epoch's first entry.
    pub first_sequence: u64,
}

/// The result of an ordered log's recovery.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Recovered {
    /// The places on the device of the log's recovered bytes.
    pub index: LogIndex,
    /// Bytes in the log.
    pub size: u64,
    /// The sequence after the last recovered entry: the cut of the next epoch.
    pub next_sequence: u64,
    /// For each segment of the log, the block of the zone after the last entry that was kept (in a damaged
    /// log: after the last entry that was found); the segment's start if no entry was.
    pub used: Vec<Blocks>,
    /// Number of valid parts that were not kept: they lie after a gap, or other parts of their entry are
    /// missing. A power cut leaves such parts of unsynced writes.
    pub dropped: usize,
    /// The first missing sequence that a later cut or entry proves to have been durable: the log is damaged.
    /// The log can be read up to this sequence, and must not be appended to.
    pub missing: Option<u64>,
    /// Stream bytes of the parts that recovery did not keep.
    pub dropped_bytes: u64,
}

/// Fails if the log's epochs are not in order.
pub(super) fn check_order(cuts: &[Cut]) -> Result<()> {
    let ordered = cuts.windows(2).all(|pair| match pair {
        [a, b] => a.epoch < b.epoch && a.first_sequence <= b.first_sequence,
        _ => true,
    });
    if ordered {
        return Ok(());
    }
    let why = "the epochs in the metadata are not in order; run `furrow fs check`";
    Err(Error::new(ErrorKind::Corrupt, "recover a log").because(why))
}

impl Recovered {
    /// Writes a line to the trace if the recovered log has a gap.
    pub(super) fn traced(self, log: u64) -> Recovered {
        let Recovered { dropped, missing, .. } = self;
        if dropped > 0 || missing.is_some() {
            tracing::debug!(log, kept = self.index.len(), dropped, missing, "recovered a log with a gap");
        }
        self
    }
}
