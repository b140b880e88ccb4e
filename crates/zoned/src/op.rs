//! The operations of the device contract and their results.

use std::ops::Range;

use crate::{Buf, BufMut, Lba, ZoneId, ZoneInfo};

/// Durability that a write must have when it is acknowledged.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub enum Durability {
    /// The device has accepted the write; a volatile cache may hold the data until the next flush.
    #[default]
    Cached,
    /// The write is on the medium, with every lower block of the zone (FUA).
    Durable,
}

/// A zone command.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Action {
    /// Opens the zone explicitly.
    Open,
    /// Closes the zone, which stays active.
    Close,
    /// Moves the zone's write pointer to the end: the zone is full.
    Finish,
    /// Erases the zone's content: the zone is empty.
    Reset,
}

/// A device operation. It owns its buffers, so that it can outlive its submitter.
#[derive(Debug)]
pub enum Op {
    /// Reads blocks of the device. The length of `into` is the length of the read.
    Read {
        /// The address of the first block.
        at: Lba,
        /// The buffer for the blocks to read.
        into: BufMut,
    },
    /// Writes blocks at the zone's write pointer (or anywhere in a conventional zone).
    Write {
        /// The address of the first block: the zone's write pointer.
        at: Lba,
        /// Whole blocks.
        data: Buf,
        /// Durability of the write at its acknowledgement.
        how: Durability,
    },
    /// Appends blocks at the zone's write pointer and returns their address.
    Append {
        /// The zone.
        zone: ZoneId,
        /// Whole blocks, no more than `Geometry::max_append`.
        data: Buf,
        /// Durability of the append at its acknowledgement.
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
    /// Reports the states of a range of zones.
    Report {
        /// The range of zones to report, clamped to the device.
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

/// Result of a device operation.
#[derive(Debug)]
pub enum Done {
    /// Result of a write, a flush or a zone command.
    Unit,
    /// The address at which an append landed.
    At(Lba),
    /// The blocks that a read returned, in the read's own buffer.
    Read(BufMut),
    /// A report.
    Zones(Vec<ZoneInfo>),
}
