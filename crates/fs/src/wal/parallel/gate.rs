//! The gate of a zone that many writers append to: one atomic word that hands out its blocks and counts who is in.
//!
//! ```text
//!   | closed (1 bit) | taken (1) | operations in flight (22) | blocks handed out (40) |
//! ```
//!
//! A writer takes its blocks and its place in one exchange, so that no append overruns the zone. One that finds nobody in may
//! take the zone to itself: then it knows where the zone's pointer is, and may write there instead of appending. Whoever
//! closes the gate knows that nobody gets in afterwards; exactly one caller, the closer or the last one to leave, hears that
//! the zone is drained. Knows nothing of devices: `tests/interleavings.rs` goes through what threads may do to it.

use super::atomic::{AtomicU64, Ordering};

const CLOSED: u64 = 1 << 63;
/// Somebody has the zone to itself.
const TAKEN: u64 = 1 << 62;
/// One operation in flight.
const ONE: u64 = 1 << 40;
const BLOCKS: u64 = ONE - 1;

/// The gate.
#[derive(Debug)]
pub(crate) struct Gate {
    word: AtomicU64,
    capacity: u64,
}

/// What came of asking for a place.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Entered {
    /// One is in.
    In,
    /// Somebody has the zone to itself, for as long as one operation takes.
    Taken,
    /// It is closed, or there is no room.
    Shut,
}

impl Gate {
    /// An open gate of `capacity` blocks.
    pub(crate) fn new(capacity: u64) -> Gate {
        assert!(capacity < BLOCKS, "a zone has fewer blocks than 40 bits count");
        Gate { word: AtomicU64::new(0), capacity }
    }

    /// Takes `blocks` for one operation, and a place.
    pub(crate) fn enter(&self, blocks: u64) -> Entered {
        let mut word = self.word.load(Ordering::Acquire);
        loop {
            if word & CLOSED != 0 || (word & BLOCKS) + blocks > self.capacity {
                return Entered::Shut;
            }
            if word & TAKEN != 0 {
                return Entered::Taken;
            }
            let taken = word + ONE + blocks;
            match self.word.compare_exchange_weak(word, taken, Ordering::AcqRel, Ordering::Acquire) {
                Ok(_) => return Entered::In,
                Err(now) => word = now,
            }
        }
    }

    /// Takes `blocks` for one operation, and the zone for as long as it takes; `None` where anybody is in, or where one
    /// could not [`enter`](Gate::enter). Gives the blocks that were handed out before: with nobody in, the device has them
    /// all, and its pointer is behind them.
    pub(crate) fn enter_alone(&self, blocks: u64) -> Option<u64> {
        let word = self.word.load(Ordering::Acquire);
        // Nothing above the blocks: open, not taken, nobody in.
        if word >= ONE || word + blocks > self.capacity {
            return None;
        }
        let taken = word + TAKEN + ONE + blocks;
        self.word.compare_exchange(word, taken, Ordering::AcqRel, Ordering::Acquire).ok()
    }

    /// The operation is over. True if the zone is drained by that: tell whoever waits for it.
    #[must_use]
    pub(crate) fn leave(&self) -> bool {
        Gate::drained_by(self.word.fetch_sub(ONE, Ordering::AcqRel))
    }

    /// Likewise, of the one who had the zone to itself.
    #[must_use]
    pub(crate) fn leave_alone(&self) -> bool {
        Gate::drained_by(self.word.fetch_sub(TAKEN + ONE, Ordering::AcqRel))
    }

    /// Leaves without having submitted anything: the blocks can be taken again. Otherwise as [`leave`](Gate::leave).
    #[must_use]
    pub(crate) fn turn_back(&self, blocks: u64) -> bool {
        Gate::drained_by(self.word.fetch_sub(ONE + blocks, Ordering::AcqRel))
    }

    /// Likewise, of the one who had the zone to itself.
    #[must_use]
    pub(crate) fn turn_back_alone(&self, blocks: u64) -> bool {
        Gate::drained_by(self.word.fetch_sub(TAKEN + ONE + blocks, Ordering::AcqRel))
    }

    fn drained_by(before: u64) -> bool {
        before & CLOSED != 0 && before & !(CLOSED | TAKEN) < 2 * ONE
    }

    /// Nobody gets in any more. True if the zone is drained by that; false where it was closed before, too.
    #[must_use]
    pub(crate) fn close(&self) -> bool {
        let before = self.word.fetch_or(CLOSED, Ordering::AcqRel);
        before & CLOSED == 0 && before < ONE
    }

    /// Whether nobody gets in any more.
    pub(crate) fn is_closed(&self) -> bool {
        self.word.load(Ordering::Acquire) & CLOSED != 0
    }

    /// Whether it is closed and nobody is in.
    pub(crate) fn is_drained(&self) -> bool {
        let word = self.word.load(Ordering::Acquire);
        word & CLOSED != 0 && word & !CLOSED < ONE
    }

    /// Whether nobody is in.
    pub(crate) fn is_idle(&self) -> bool {
        self.word.load(Ordering::Acquire) & !CLOSED < ONE
    }

    /// Operations in flight.
    pub(crate) fn in_flight(&self) -> u64 {
        (self.word.load(Ordering::Acquire) & !(CLOSED | TAKEN)) / ONE
    }

    /// Blocks handed out.
    pub(crate) fn used(&self) -> u64 {
        self.word.load(Ordering::Acquire) & BLOCKS
    }

    /// Blocks left.
    pub(crate) fn left(&self) -> u64 {
        self.capacity.saturating_sub(self.used())
    }
}
