//! The settings of a parallel log.

/// The settings of a parallel log.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ParallelOptions {
    /// Records that may be in flight at a time; more wait. From 1 to 65,536. Default 4,096.
    pub open: usize,
    /// Whether records go out together where the drive has no parallelism to spare (`auto`); otherwise each goes alone
    /// (`waltz`). Default false.
    pub join: bool,
    /// Whether the log leaves as much room as it has: for an engine whose tables hold everything once more before a record can
    /// be retired. Default false.
    pub spare: bool,
    /// Zones that are written at a time; 0: one for a lone writer, up to eight for several, where the drive allows many open zones. On a
    /// drive with a volatile cache always one; elsewhere fewer while there are none to spare. Default 0.
    pub zones: usize,
}

impl ParallelOptions {
    /// The largest `open`.
    pub const MAX_OPEN: usize = 1 << 16;
}

impl Default for ParallelOptions {
    fn default() -> ParallelOptions {
        ParallelOptions { open: 4096, join: false, spare: false, zones: 0 }
    }
}
