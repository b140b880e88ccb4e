//! The gate of a zone that many writers append to: one atomic word that allots the zone's blocks and counts the operations in
//! flight.
//!
//! ```text
//!   | closed (1 bit) | exclusive (1) | operations in flight (22) | blocks allotted (40) |
//! ```
//!
//! A writer gets its blocks and is counted in one atomic exchange, so that no append overruns the zone. A writer that finds no
//! operation in flight may take the zone exclusively: then the zone's write pointer is known, and the writer may write
//! there instead of appending. No operation begins after the gate is closed, and exactly one caller, the closer or the
//! last one to leave, is told that the zone is drained. The gate does no I/O: `tests/interleavings.rs` explores all
//! interleavings of threads.

use super::atomic::{AtomicU64, Ordering};

const CLOSED_BIT: u64 = 1 << 63;
/// The bit that is set while one operation has the zone exclusively.
const EXCLUSIVE_BIT: u64 = 1 << 62;
/// The amount that one operation in flight adds to the gate's word.
const ONE_IN_FLIGHT: u64 = 1 << 40;
const BLOCKS_MASK: u64 = ONE_IN_FLIGHT - 1;

/// The gate of one zone.
#[derive(Debug)]
pub(crate) struct Gate {
    word: AtomicU64,
    capacity: u64,
}

/// The outcome of [`Gate::enter`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Entered {
    /// The caller has its blocks and is counted as in flight.
    In,
    /// Another operation has the zone exclusively, until that operation ends.
    Exclusive,
    /// The gate is closed, or the zone has too few blocks left.
    Shut,
}

impl Gate {
    /// An open gate for a zone of `capacity` blocks.
    pub(crate) fn new(capacity: u64) -> Gate {
        assert!(capacity < BLOCKS_MASK, "a zone has fewer blocks than 40 bits count");
        Gate { word: AtomicU64::new(0), capacity }
    }

    /// Allots `blocks` of the zone to one operation, which counts as in flight until [`leave`](Gate::leave).
    pub(crate) fn enter(&self, blocks: u64) -> Entered {
        let mut word = self.word.load(Ordering::Acquire);
        loop {
            if word & CLOSED_BIT != 0 || (word & BLOCKS_MASK) + blocks > self.capacity {
                return Entered::Shut;
            }
            if word & EXCLUSIVE_BIT != 0 {
                return Entered::Exclusive;
            }
            let taken = word + ONE_IN_FLIGHT + blocks;
            match self.word.compare_exchange_weak(word, taken, Ordering::AcqRel, Ordering::Acquire) {
                Ok(_) => return Entered::In,
                Err(now) => word = now,
            }
        }
    }

    /// Allots `blocks` to one operation, which has the zone exclusively until
    /// [`leave_exclusive`](Gate::leave_exclusive). `None` if an operation is in flight, or if
    /// [`enter`](Gate::enter) would fail. Returns the number of blocks that were allotted before: the device
    /// has written them all, so this is the zone's write pointer.
    pub(crate) fn enter_exclusive(&self, blocks: u64) -> Option<u64> {
        let word = self.word.load(Ordering::Acquire);
        // The gate's word has no bit above the allotted blocks: the gate is open and not exclusive, and
        // nothing is in flight.
        if word >= ONE_IN_FLIGHT || word + blocks > self.capacity {
            return None;
        }
        let taken = word + EXCLUSIVE_BIT + ONE_IN_FLIGHT + blocks;
        self.word.compare_exchange(word, taken, Ordering::AcqRel, Ordering::Acquire).ok()
    }

    /// Ends an operation in the zone. True if this drained the zone: the caller then notifies the tasks that
    /// wait for that.
    #[must_use]
    pub(crate) fn leave(&self) -> bool {
        Gate::drained_by(self.word.fetch_sub(ONE_IN_FLIGHT, Ordering::AcqRel))
    }

    /// As [`leave`](Gate::leave), for the operation that had the zone exclusively.
    #[must_use]
    pub(crate) fn leave_exclusive(&self) -> bool {
        Gate::drained_by(self.word.fetch_sub(EXCLUSIVE_BIT + ONE_IN_FLIGHT, Ordering::AcqRel))
    }

    /// As [`leave`](Gate::leave), for an operation that was not submitted: its blocks can be allotted again.
    #[must_use]
    pub(crate) fn cancel(&self, blocks: u64) -> bool {
        Gate::drained_by(self.word.fetch_sub(ONE_IN_FLIGHT + blocks, Ordering::AcqRel))
    }

    /// As [`cancel`](Gate::cancel), for the operation that had the zone exclusively.
    #[must_use]
    pub(crate) fn cancel_exclusive(&self, blocks: u64) -> bool {
        Gate::drained_by(self.word.fetch_sub(EXCLUSIVE_BIT + ONE_IN_FLIGHT + blocks, Ordering::AcqRel))
    }

    fn drained_by(before: u64) -> bool {
        before & CLOSED_BIT != 0 && before & !(CLOSED_BIT | EXCLUSIVE_BIT) < 2 * ONE_IN_FLIGHT
    }

    /// Closes the gate: no operation begins in the zone any more. True if this drained the zone; false also
    /// if the gate was closed before.
    #[must_use]
    pub(crate) fn close(&self) -> bool {
        let before = self.word.fetch_or(CLOSED_BIT, Ordering::AcqRel);
        before & CLOSED_BIT == 0 && before < ONE_IN_FLIGHT
    }

    /// True once the zone's gate is closed.
    pub(crate) fn is_closed(&self) -> bool {
        self.word.load(Ordering::Acquire) & CLOSED_BIT != 0
    }

    /// True if the zone's gate is closed and no operation is in flight.
    pub(crate) fn is_drained(&self) -> bool {
        let word = self.word.load(Ordering::Acquire);
        word & CLOSED_BIT != 0 && word & !CLOSED_BIT < ONE_IN_FLIGHT
    }

    /// True if no operation is in flight in the zone.
    pub(crate) fn is_idle(&self) -> bool {
        self.word.load(Ordering::Acquire) & !CLOSED_BIT < ONE_IN_FLIGHT
    }

    /// Number of operations in flight in the zone.
    pub(crate) fn in_flight(&self) -> u64 {
        (self.word.load(Ordering::Acquire) & !(CLOSED_BIT | EXCLUSIVE_BIT)) / ONE_IN_FLIGHT
    }

    /// Blocks allotted.
    pub(crate) fn used(&self) -> u64 {
        self.word.load(Ordering::Acquire) & BLOCKS_MASK
    }

    /// Blocks left.
    pub(crate) fn left(&self) -> u64 {
        self.capacity.saturating_sub(self.used())
    }
}
