//! Which flush makes what durable.

use std::sync::atomic::{AtomicU32, Ordering};

/// Flushes by number, from 1 on. What was acknowledged before a flush began is durable when it is done.
#[derive(Debug, Default)]
pub(crate) struct Flushes {
    begun: AtomicU32,
    done: AtomicU32,
}

impl Flushes {
    /// The number of the flush that covers what is acknowledged now: the next one to begin.
    pub(crate) fn next(&self) -> u32 {
        self.begun.load(Ordering::Acquire).saturating_add(1)
    }

    /// A flush begins.
    pub(crate) fn start(&self) -> u32 {
        self.begun.fetch_add(1, Ordering::AcqRel).saturating_add(1)
    }

    /// It succeeded.
    pub(crate) fn end(&self, number: u32) {
        self.done.fetch_max(number, Ordering::AcqRel);
    }

    /// The latest one that is done.
    pub(crate) fn done(&self) -> u32 {
        self.done.load(Ordering::Acquire)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_flush_covers_what_was_acknowledged_before_it_began() {
        let flushes = Flushes::default();
        let early = flushes.next();
        let flush = flushes.start();
        let late = flushes.next();
        flushes.end(flush);
        assert!(early <= flushes.done() && late > flushes.done());
    }
}
