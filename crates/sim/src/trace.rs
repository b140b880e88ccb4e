//! The events at a device, in order: the crash explorer's input.

mod format;

use zoned::{Buf, Lba, Op};

use crate::Target;

/// The number of a recorded operation, in the order of submission.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct OpNumber(pub u64);

/// The number of a workload's step.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Step(pub u64);

/// An event at a device, or a mark of the workload.
#[derive(Debug)]
pub enum Event {
    /// An operation that changes the medium or makes it durable was submitted.
    Submit {
        /// The number of the submitted operation.
        op: OpNumber,
        /// The submitted operation; never a read or a report.
        what: Op,
    },
    /// The caller saw an operation succeed.
    Acked {
        /// The number of the acknowledged operation.
        op: OpNumber,
        /// The address that an append got.
        at: Option<Lba>,
    },
    /// An operation failed without effect.
    Refused {
        /// The number of the refused operation.
        op: OpNumber,
    },
    /// The workload begins a step: from here on the step's effect may be seen.
    Attempt {
        /// The step that begins.
        step: Step,
    },
    /// A step is promised to be durable from here on.
    Acknowledged {
        /// The promised step.
        step: Step,
    },
    /// A step failed and had no effect.
    Failed {
        /// The failed step.
        step: Step,
    },
    /// The file system is formatted and mounted: cuts are taken from here on.
    Ready,
    /// Bytes of files that are in memory only, from here on.
    Dirty {
        /// Number of bytes.
        bytes: u64,
    },
    /// The operations after this event are those of the named drive, one of several below an array.
    Drive {
        /// The number of the drive in the recording.
        drive: u32,
    },
}

impl Event {
    /// Whether the event changes what a power cut may leave.
    pub fn is_io(&self) -> bool {
        matches!(self, Event::Submit { .. } | Event::Acked { .. })
    }
}

impl Clone for Event {
    /// A clone of a write shares the write's buffer.
    fn clone(&self) -> Event {
        match self {
            Event::Submit { op, what } => Event::Submit {
                op: *op,
                what: copy_of(what, Buf::clone).expect("a read leaves nothing behind: no event"),
            },
            Event::Acked { op, at } => Event::Acked { op: *op, at: *at },
            Event::Refused { op } => Event::Refused { op: *op },
            Event::Attempt { step } => Event::Attempt { step: *step },
            Event::Acknowledged { step } => Event::Acknowledged { step: *step },
            Event::Failed { step } => Event::Failed { step: *step },
            Event::Ready => Event::Ready,
            Event::Dirty { bytes } => Event::Dirty { bytes: *bytes },
            Event::Drive { drive } => Event::Drive { drive: *drive },
        }
    }
}

/// The properties of the recorded drive, from which an emulator builds the drive again.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Drive {
    /// Bytes in a block.
    pub block_size: u32,
    /// Number of zones of the drive.
    pub zones: u32,
    /// Number of conventional zones.
    pub conventional: u32,
    /// Blocks between the starts of two zones.
    pub zone_size: u32,
    /// Writable blocks of a zone.
    pub zone_capacity: u32,
    /// Most zones that the drive may have open.
    pub max_open: u32,
    /// Most zones that the drive may have active.
    pub max_active: u32,
    /// Longest append in blocks.
    pub max_append: u32,
    /// Blocks of a write that a power cut does not tear.
    pub atomic_write: u32,
    /// Whether the drive's cache is volatile.
    pub volatile_cache: bool,
    /// Whether appends in flight get their addresses in any order.
    pub reorders: bool,
}

/// A recorded workload with its events.
#[derive(Debug)]
pub struct Trace {
    /// The target of the workload.
    pub target: Target,
    /// The seed of the workload.
    pub seed: u64,
    /// The workload's number among those of the seed.
    pub workload: u64,
    /// The drive of the workload.
    pub drive: Drive,
    /// Target `engine` only: the writer keeps the order of its batches, as the server does.
    pub ordered: bool,
    /// Target `engine` only: the database is a model of RocksDB's tables under a parallel WAL.
    pub modelled: bool,
    /// The recorded events, in order.
    pub events: Vec<Event>,
}

impl Trace {
    /// Whether the events are those of the drives below an array.
    pub fn is_of_an_array(&self) -> bool {
        self.events.iter().any(|event| matches!(event, Event::Drive { .. }))
    }
}

/// A copy of an operation, whose bytes are those of a write as `bytes` copies or shares them. `None` for reads and reports, which leave nothing on the medium.
pub(crate) fn copy_of(op: &Op, bytes: impl Fn(&Buf) -> Buf) -> Option<Op> {
    Some(match op {
        Op::Write { at, data, how } => Op::Write { at: *at, data: bytes(data), how: *how },
        Op::Append { zone, data, how } => Op::Append { zone: *zone, data: bytes(data), how: *how },
        Op::Flush => Op::Flush,
        Op::Zone { zone, action } => Op::Zone { zone: *zone, action: *action },
        Op::Read { .. } | Op::Report { .. } => return None,
    })
}
