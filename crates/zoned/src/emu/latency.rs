//! Constant delays of an emulated drive, and the zone facts that a time model needs.

use std::time::Duration;

use crate::{Action, Blocks, Op, ZoneState};

/// A constant delay for each kind of operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct Latency {
    /// Reads.
    pub read: Duration,
    /// Writes and appends.
    pub write: Duration,
    /// Flushes.
    pub flush: Duration,
    /// Resets.
    pub reset: Duration,
    /// Finishes.
    pub finish: Duration,
    /// Everything else.
    pub other: Duration,
}

impl Latency {
    /// No delay at all.
    pub const NONE: Latency = Latency::all(Duration::ZERO);

    /// The same delay for every kind of operation.
    pub const fn all(delay: Duration) -> Latency {
        Latency { read: delay, write: delay, flush: delay, reset: delay, finish: delay, other: delay }
    }

    /// Delay of `op`.
    pub(super) fn of(&self, op: &Op) -> Duration {
        match op {
            Op::Read { .. } => self.read,
            Op::Write { .. } | Op::Append { .. } => self.write,
            Op::Flush => self.flush,
            Op::Zone { action: Action::Reset, .. } => self.reset,
            Op::Zone { action: Action::Finish, .. } => self.finish,
            Op::Zone { .. } | Op::Report { .. } => self.other,
        }
    }
}

/// State of an operation's zone just before the operation, which the operation's time depends on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ZoneFacts {
    /// The zone's state.
    pub state: ZoneState,
    /// Blocks of the zone written since its last reset.
    pub written: Blocks,
}
