//! A sample for the controller: an operation of the log that ended, and the bulk beside it.

use std::time::Duration;

use units::Instant;

/// An operation of the log that ended.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Sample {
    /// The operation's kind.
    pub kind: Kind,
    /// Bytes that were written or read, or that a flush made durable.
    pub bytes: u64,
    /// When the operation was submitted.
    pub submitted: Instant,
    /// The time from the operation's submission to its end.
    pub latency: Duration,
    /// The bulk operations when this one was submitted.
    pub bulk: Beside,
}

/// How near bulk operations are at a time.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Beside {
    /// No bulk operation is in flight, nor has one just ended.
    Nothing,
    /// A bulk operation ended a moment ago: the drive may still work on it.
    Settling,
    /// A bulk operation is in flight.
    InFlight,
}

/// Kinds of operations whose latencies are not compared with each other.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Kind {
    /// A read.
    Read,
    /// A write or an append.
    Write,
    /// A flush, or a sync of a file.
    Flush,
}
