//! The operations of the contract, and what they give back.

use std::ops::Range;

use crate::{Buf, BufMut, Lba, ZoneId, ZoneInfo};

/// How safe a write must be before it is acknowledged.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub enum Durability {
    /// In the device; a volatile cache may hold it until the next flush.
    #[default]
    Cached,
    /// On the medium, and every lower block of the zone with it (FUA).
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

/// An operation. It owns its buffers, so that it can outlive whoever submitted it.
#[derive(Debug)]
pub enum Op {
    /// Reads blocks. `into` is as long as the read.
    Read {
        /// The first block.
        at: Lba,
        /// Where the blocks go.
        into: BufMut,
    },
    /// Writes blocks at the zone's write pointer (or anywhere in a conventional zone).
    Write {
        /// The first block: the pointer.
        at: Lba,
        /// Whole blocks.
        data: Buf,
        /// When it is acknowledged.
        how: Durability,
    },
    /// Writes blocks wherever the pointer is; the device says where that was.
    Append {
        /// The zone.
        zone: ZoneId,
        /// Whole blocks, no more than `Geometry::max_append`.
        data: Buf,
        /// When it is acknowledged.
        how: Durability,
    },
    /// Makes durable whatever was acknowledged before this was submitted.
    Flush,
    /// A zone command.
    Zone {
        /// The zone.
        zone: ZoneId,
        /// What to do.
        action: Action,
    },
    /// Asks for the state of zones.
    Report {
        /// Which; cut to the device's.
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

/// What an operation gives back.
#[derive(Debug)]
pub enum Done {
    /// Nothing more to say: write, flush, zone commands.
    Unit,
    /// Where an append landed.
    At(Lba),
    /// The blocks read, in the buffer that was handed in.
    Read(BufMut),
    /// A report.
    Zones(Vec<ZoneInfo>),
}
