//! The interface between zone queues and a drive.

use std::ops::Range;

use crate::kernel::Failure;
use crate::{Action, Buf, BufMut, Done, IoClass, Lba, ZoneId};

/// An operation for a drive that has passed all checks. `class` is the highest class of the operations in it; `None` if their submitters gave none.
#[derive(Debug)]
pub(crate) enum DriveOp {
    Read {
        at: Lba,
        into: BufMut,
        class: Option<IoClass>,
    },
    /// A write of all parts of `data`, in order. `repeated`: a part failed in an earlier write.
    Write {
        at: Lba,
        data: Vec<Buf>,
        durable: bool,
        repeated: bool,
        class: Option<IoClass>,
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
    /// The drive's reply to an operation.
    type Reply: Send + 'static;

    /// Starts an operation. `finish` is called once with the drive's reply, never from within this call.
    fn send(&self, op: DriveOp, finish: impl FnOnce(Self::Reply) + Send + 'static);

    /// The result of the operation that got this reply.
    fn interpret(&self, reply: Self::Reply) -> Result<Done, Failure>;

    /// True if the drive has been removed. Called after a failure.
    fn is_gone(&self) -> bool;
}
