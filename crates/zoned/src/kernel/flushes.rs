//! Numbers the flushes of a drive, to find which flush made an acknowledged write durable.

use std::sync::atomic::{AtomicU32, Ordering};

/// The numbers of a drive's flushes, from 1. A write acknowledged before flush `n` starts is durable when
/// flush `n` succeeds.
#[derive(Debug, Default)]
pub(crate) struct Flushes {
    begun: AtomicU32,
    done: AtomicU32,
}

impl Flushes {
    /// Number of the next flush to start, which covers every write acknowledged until now.
    pub(crate) fn next(&self) -> u32 {
        self.begun.load(Ordering::Acquire).saturating_add(1)
    }

    /// Records the start of a flush and returns its number.
    pub(crate) fn start(&self) -> u32 {
        self.begun.fetch_add(1, Ordering::AcqRel).saturating_add(1)
    }

    /// Records that flush `number` succeeded.
    pub(crate) fn end(&self, number: u32) {
        self.done.fetch_max(number, Ordering::AcqRel);
    }

    /// Number of the newest flush that succeeded.
    pub(crate) fn done(&self) -> u32 {
        self.done.load(Ordering::Acquire)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_flush_covers_the_writes_acknowledged_before_it_began() {
        let flushes = Flushes::default();
        let early = flushes.next();
        let flush = flushes.start();
        let late = flushes.next();
        flushes.end(flush);
        assert!(early <= flushes.done() && late > flushes.done());
    }
}
