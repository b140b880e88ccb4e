//! The epochs of a log as the metadata records them, and the result of a recovery.

use units::Blocks;

use crate::error::{Error, ErrorKind, Result};
use crate::wal::index::LogIndex;

/// Where an epoch begins: recorded durably before the epoch's first entry is written.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Cut {
    /// The epoch.
    pub epoch: u32,
    /// The sequence of its first entry.
    pub first_sequence: u64,
}

/// What [`recover`] found.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Recovered {
    /// Where the log's bytes lie.
    pub index: LogIndex,
    /// Bytes in the log.
    pub size: u64,
    /// The sequence behind the last entry: the cut of the next epoch.
    pub next_sequence: u64,
    /// For each segment, the block of the zone behind the last entry that was kept (of a damaged log: that was
    /// found); its start where none was.
    pub used: Vec<Blocks>,
    /// Valid entries, or parts of some, that were not kept: behind a gap, or without all their parts. What a
    /// power cut leaves of unsynced writes.
    pub dropped: usize,
    /// The first sequence that is missing although a later cut, or a later entry, proves that it was durable: the
    /// log is damaged, it can be read up to here, and it must not be appended to.
    pub missing: Option<u64>,
    /// Bytes of the entries that were found and not kept.
    pub behind: u64,
}

/// Fails where the epochs are not in order.
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
    /// Says what was found where it is not everything.
    pub(super) fn said(self, log: u64) -> Recovered {
        let Recovered { dropped, missing, .. } = self;
        if dropped > 0 || missing.is_some() {
            tracing::debug!(log, kept = self.index.len(), dropped, missing, "recovered a log with a gap");
        }
        self
    }
}
