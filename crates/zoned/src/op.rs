//! The operations of the contract and their results.

use std::ops::Range;

use crate::{Buf, BufMut, Lba, ZoneId, ZoneInfo};

/// Durability that a write must have when it is acknowledged.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub enum Durability {
    /// Accepted by the device; a volatile cache may hold the data until the next flush.
    #[default]
    Cached,
    /// On the medium, with every lower block of the zone (FUA).
    Durable,
}

/// A zone command.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Action {
    /// Open explicitly.
    Open,
    /// Close: active, no longer open.
    Close,
    /// Move the pointer to the end: full.
    Finish,
    /// Forget the content: empty.
    Reset,
}

/// An operation. It owns its buffers, so that it can outlive its submitter.
#[derive(Debug)]
pub enum Op {
    /// Reads blocks. The length of `into` is the length of the read.
    Read {
        /// The first block.
        at: Lba,
        /// Buffer for the blocks.
        into: BufMut,
    },
    /// Writes blocks at the zone's write pointer (or anywhere in a conventional zone).
    Write {
        /// The first block: the pointer.
        at: Lba,
        /// Whole blocks.
        data: Buf,
        /// Durability at acknowledgement.
        how: Durability,
    },
    /// Writes blocks at the write pointer and returns the address.
    Append {
        /// The zone.
        zone: ZoneId,
        /// Whole blocks, no more than `Geometry::max_append`.
        data: Buf,
        /// When it is acknowledged.
        how: Durability,
    },
    /// Makes every write durable that was acknowledged before the flush was submitted.
    Flush,
    /// A zone command.
    Zone {
        /// The zone.
        zone: ZoneId,
        /// The command.
        action: Action,
    },
    /// Reports the states of zones.
    Report {
        /// Range of zones, clamped to the device.
        zones: Range<u32>,
    },
}

impl Op {
    /// The operation's name in messages.
    pub fn name(&self) -> &'static str {
        match self {
            Op::Read { .. } => "read",
            Op::Write { .. } => "write",
            Op::Append { .. } => "append",
            Op::Flush => "flush",
            Op::Zone { action: Action::Open, .. } => "open",
            Op::Zone { action: Action::Close, .. } => "close",
            Op::Zone { action: Action::Finish, .. } => "finish",
            Op::Zone { action: Action::Reset, .. } => "reset",
            Op::Report { .. } => "report",
        }
    }
}

/// Result of an operation.
#[derive(Debug)]
pub enum Done {
    /// Result of a write, a flush or a zone command.
    Unit,
    /// Address of an append.
    At(Lba),
    /// The blocks read, in the buffer that was handed in.
    Read(BufMut),
    /// A report.
    Zones(Vec<ZoneInfo>),
}
