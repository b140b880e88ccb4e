//! Faults that tests inject into an emulated drive.

use crate::{Op, ZoneId};

/// Kind of operation that a fault applies to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FaultOp {
    /// Reads.
    Read,
    /// Writes and appends.
    Write,
    /// Flushes.
    Flush,
    /// Zone commands.
    Zone,
}

/// A fault: operations fail with `ErrorKind::Media`, without effect on the medium unless [`FaultSpec::landed`] is set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FaultSpec {
    /// Kind of operations that fail.
    pub op: FaultOp,
    /// Zone of the operations that fail; `None` for all zones. A flush belongs to no zone.
    pub zone: Option<ZoneId>,
    /// Number of matching operations that succeed before the first failure.
    pub after: u64,
    /// After the first `after` operations every `every`-th one fails: 1 for all.
    pub every: u64,
    /// Total number of failures that the fault causes; `u64::MAX` for no limit.
    pub count: u64,
    /// True if failed operations take effect on the medium, as when a drive's reply is lost.
    pub landed: bool,
}

impl FaultSpec {
    /// A fault of only the next operation of the given kind.
    pub fn next(op: FaultOp) -> FaultSpec {
        FaultSpec { op, zone: None, after: 0, every: 1, count: 1, landed: false }
    }

    /// A fault of every operation of the given kind.
    pub fn all(op: FaultOp) -> FaultSpec {
        FaultSpec { count: u64::MAX, ..FaultSpec::next(op) }
    }

    /// Makes failed operations take effect on the medium.
    #[must_use]
    pub fn landed(mut self) -> FaultSpec {
        self.landed = true;
        self
    }

    /// Restricts the fault to a zone.
    #[must_use]
    pub fn in_zone(mut self, zone: ZoneId) -> FaultSpec {
        self.zone = Some(zone);
        self
    }
}

/// An injected fault and its counters.
#[derive(Debug)]
pub(super) struct Fault {
    spec: FaultSpec,
    seen: u64,
    failed: u64,
}

impl Fault {
    pub(super) fn new(spec: FaultSpec) -> Fault {
        Fault { spec, seen: 0, failed: 0 }
    }

    /// `None` if the fault lets `op` succeed; else whether the failed operation takes effect.
    pub(super) fn failure_of(&mut self, op: &Op, zone: Option<ZoneId>) -> Option<bool> {
        let kind = match op {
            Op::Read { .. } => FaultOp::Read,
            Op::Write { .. } | Op::Append { .. } => FaultOp::Write,
            Op::Flush => FaultOp::Flush,
            Op::Zone { .. } => FaultOp::Zone,
            Op::Report { .. } => return None,
        };
        if kind != self.spec.op || (self.spec.zone.is_some() && self.spec.zone != zone) {
            return None;
        }
        let nth = self.seen;
        self.seen += 1;
        let hit = nth >= self.spec.after
            && (nth - self.spec.after).is_multiple_of(self.spec.every.max(1))
            && self.failed < self.spec.count;
        self.failed += u64::from(hit);
        hit.then_some(self.spec.landed)
    }
}
