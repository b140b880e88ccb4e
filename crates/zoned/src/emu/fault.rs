//! Faults for tests.

use crate::{Op, ZoneId};

/// Which operations a fault hits.
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

/// Makes operations fail with `ErrorKind::Media`: without any effect on the medium, unless they [land](FaultSpec::landed).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FaultSpec {
    /// Which operations.
    pub op: FaultOp,
    /// Of which zone; `None` for all. Flushes belong to no zone.
    pub zone: Option<ZoneId>,
    /// How many of them pass first.
    pub after: u64,
    /// Then every how manieth fails: 1 for all.
    pub every: u64,
    /// How many fail in all; `u64::MAX` for no end.
    pub count: u64,
    /// They have their effect on the medium all the same, as where a drive's answer is lost.
    pub landed: bool,
}

impl FaultSpec {
    /// The next operation of this kind fails, and no other.
    pub fn next(op: FaultOp) -> FaultSpec {
        FaultSpec { op, zone: None, after: 0, every: 1, count: 1, landed: false }
    }

    /// Every operation of this kind fails.
    pub fn all(op: FaultOp) -> FaultSpec {
        FaultSpec { count: u64::MAX, ..FaultSpec::next(op) }
    }

    /// Failed operations have their effect all the same.
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

/// A fault and what it has seen.
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

    /// Whether it hits this operation; and whether that lands.
    pub(super) fn hits(&mut self, op: &Op, zone: Option<ZoneId>) -> Option<bool> {
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
