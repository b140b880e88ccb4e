//! The interface between zone queues and a drive.

use std::ops::Range;

use crate::kernel::Failure;
use crate::{Action, Buf, BufMut, Done, Lba, ZoneId};

/// An operation for a drive that has passed all checks.
#[derive(Debug)]
pub(crate) enum KernelOp {
    Read {
        at: Lba,
        into: BufMut,
    },
    /// A write of all parts of `data`, in order. `repeated`: a part failed in an earlier write.
    Write {
        at: Lba,
        data: Vec<Buf>,
        durable: bool,
        repeated: bool,
    },
    Append {
        zone: ZoneId,
        data: Buf,
        durable: bool,
    },
    Zone {
        zone: ZoneId,
        action: Action,
    },
    Flush,
    Report {
        zones: Range<u32>,
    },
}

/// Executes the operations that the zone queues let through.
pub(crate) trait Backend: Send + Sync + 'static {
    /// Starts an operation. `then` is called once with its result, never from within this call.
    fn send(&self, op: KernelOp, then: impl FnOnce(Result<Done, Failure>) + Send + 'static);

    /// True if the drive has been removed. Called after a failure.
    fn is_gone(&self) -> bool;
}
