//! The settings of a parallel log.

/// Whether the records of several writers join one entry of the log.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub enum Batching {
    /// Records never join: every record is an entry of its own, as in WALTZ.
    #[default]
    Each,
    /// Records join if more operations in flight make the drive no faster; otherwise each is an entry of its
    /// own.
    Auto,
}

/// The settings of a parallel log.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ParallelOptions {
    /// Number of records that may be in flight at a time; more wait. From 1 to 65,536. Default 4,096.
    pub open: usize,
    /// Whether records join one entry. Default: each is an entry of its own.
    pub batching: Batching,
    /// Whether the log leaves as much room free as it holds: for an engine whose tables hold every record once more before the
    /// record can be retired. Default false.
    pub spare: bool,
    /// Number of zones that the log writes side by side; 0: one for a single writer, up to eight for several,
    /// where the drive allows many open zones. On a drive with a volatile cache always one; elsewhere fewer
    /// while no zones can be spared. Default 0.
    pub zones: usize,
}

impl ParallelOptions {
    /// The largest `open`.
    pub const MAX_OPEN: usize = 1 << 16;
}

impl Default for ParallelOptions {
    fn default() -> ParallelOptions {
        ParallelOptions { open: 4096, batching: Batching::Each, spare: false, zones: 0 }
    }
}
