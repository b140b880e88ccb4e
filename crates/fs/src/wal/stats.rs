//! Counters of a log.

/// Counts of a log's operations since it was opened. A field that only the other kind of log counts is zero.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct LogStats {
    /// Number of writes at a zone's write pointer.
    pub writes: u64,
    /// Zone appends.
    pub appends: u64,
    /// Blocks of both.
    pub blocks: u64,
    /// Number of operations that may be in flight at the moment (ordered log).
    pub window: usize,
    /// Number of records appended (parallel log; so are all fields below).
    pub records: u64,
    /// Number of flushes of the device.
    pub flushes: u64,
    /// Void entries.
    pub voids: u64,
    /// Number of zones that the log left for the next one.
    pub replaced: u64,
    /// Number of times that a record waited for a zone.
    pub waits: u64,
    /// Number of zones that the log writes side by side at the moment.
    pub zones: u64,
}

impl LogStats {
    /// Number of device operations that carried entries: writes and appends.
    pub fn operations(&self) -> u64 {
        self.writes + self.appends
    }

    pub(super) fn count(&mut self, write: bool, blocks: usize) {
        self.writes += u64::from(write);
        self.appends += u64::from(!write);
        self.blocks += blocks as u64;
    }
}
