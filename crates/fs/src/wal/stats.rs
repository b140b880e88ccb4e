//! Counters of a log.

/// What a writer did on the device.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct LogStats {
    /// Writes at the pointer.
    pub writes: u64,
    /// Appends.
    pub appends: u64,
    /// Blocks of both.
    pub blocks: u64,
    /// Operations that may be in flight at the moment.
    pub window: usize,
}

impl LogStats {
    pub(super) fn count(&mut self, write: bool, blocks: usize) {
        self.writes += u64::from(write);
        self.appends += u64::from(!write);
        self.blocks += blocks as u64;
    }
}
