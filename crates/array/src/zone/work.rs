//! Operations of a logical zone.

use zoned::{Action, Blocks, Buf, BufMut, Durability, Instant, IoClass};

use crate::zone::free_zones::MoveNumber;

/// A write at `offset`, or an append (`None`).
#[derive(Debug)]
pub(crate) struct WriteRequest {
    pub class: IoClass,
    pub offset: Option<Blocks>,
    pub data: Buf,
    pub how: Durability,
    /// When the client submitted an append whose latency may count.
    pub submitted: Option<Instant>,
    /// The newest of the moves that a first write without room waits for.
    pub moves_awaited: Option<MoveNumber>,
}

/// An operation that waits for its zone, or is carried out there.
#[derive(Debug)]
pub(crate) enum Work {
    Read {
        class: IoClass,
        offset: Blocks,
        into: BufMut,
    },
    Write(WriteRequest),
    Act(Action),
    /// A pause keeps other operations out until its caller clears `busy` and pumps the zone. `generation`: the pause is for this life of
    /// the zone, and fails once the zone is reset, so that no move waits for the first write of the next life, which may wait for
    /// room that the move makes.
    Pause {
        generation: Option<u64>,
    },
}

impl Work {
    /// True if the work is for a life of the zone that has ended.
    pub(crate) fn is_of_ended_life(&self, now: u64) -> bool {
        matches!(self, Work::Pause { generation: Some(of) } if *of != now)
    }
}
