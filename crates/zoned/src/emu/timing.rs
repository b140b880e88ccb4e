//! The time that operations take. A model of channels, dies and planes goes here: same questions, better answers.

use std::time::Duration;

use crate::{Action, Instant, Op};

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

    /// The same delay for every operation.
    pub const fn all(delay: Duration) -> Latency {
        Latency { read: delay, write: delay, flush: delay, reset: delay, finish: delay, other: delay }
    }
}

/// When operations complete. Knows no clock: the time is an input.
#[derive(Clone, Debug)]
pub struct Timing {
    latency: Latency,
}

impl Timing {
    /// A constant delay per kind.
    pub fn new(latency: Latency) -> Timing {
        Timing { latency }
    }

    /// Whether every operation completes at once.
    pub fn is_instant(&self) -> bool {
        self.latency == Latency::NONE
    }

    /// When `op`, submitted at `now`, completes.
    pub fn completion(&self, now: Instant, op: &Op) -> Instant {
        let delay = match op {
            Op::Read { .. } => self.latency.read,
            Op::Write { .. } | Op::Append { .. } => self.latency.write,
            Op::Flush => self.latency.flush,
            Op::Zone { action: Action::Reset, .. } => self.latency.reset,
            Op::Zone { action: Action::Finish, .. } => self.latency.finish,
            Op::Zone { .. } | Op::Report { .. } => self.latency.other,
        };
        now.after(delay)
    }
}
