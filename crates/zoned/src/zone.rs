//! The zone state machine (NVMe Zoned Namespace Command Set, section 2.1; ZBC names the same states).
//!
//! ```text
//!             write, append            last block written, or finish
//!   Empty ------------------> ImplicitOpen -------------------------> Full
//!     |                        |  ^                                    ^ |
//!     | open             close |  | write, append       finish (any    | |
//!     |                        v  |                      active state, | |
//!     +----> ExplicitOpen --> Closed ----------------     Empty too)---+ |
//!                                                                        |
//!   every writable state and Full: reset --> Empty <---------------------+
//!   every state: media wear --> ReadOnly --> Offline
//! ```

use crate::{Blocks, ZoneId};

/// The state of a zone.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum ZoneState {
    /// Not a sequential zone: it has no write pointer.
    Conventional,
    /// Nothing written since the last reset.
    Empty,
    /// Opened by a write or an append; the device may close it when it needs the resources.
    ImplicitOpen,
    /// Opened by command.
    ExplicitOpen,
    /// Active, but not open.
    Closed,
    /// Written to its capacity, or finished.
    Full,
    /// Worn: reads only.
    ReadOnly,
    /// Gone: neither reads nor writes.
    Offline,
}

/// What happens to a zone.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum ZoneEvent {
    /// Blocks are written or appended; `fills` when the last block of the capacity is among them.
    Write {
        /// Whether the write reaches the zone's capacity.
        fills: bool,
    },
    /// The open command.
    Open,
    /// The close command; `empty` when nothing has been written.
    Close {
        /// Whether the write pointer is at the zone's start.
        empty: bool,
    },
    /// The finish command.
    Finish,
    /// The reset command.
    Reset,
}

/// The move is not allowed from this state.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Illegal {
    /// The state that refused.
    pub from: ZoneState,
    /// What it refused.
    pub event: ZoneEvent,
}

impl ZoneState {
    /// The state after `event`, or why there is none. Limits on open and active zones are the device's to check.
    pub fn transition(self, event: ZoneEvent) -> Result<ZoneState, Illegal> {
        use ZoneEvent as E;
        use ZoneState as S;
        let illegal = Err(Illegal { from: self, event });
        match (self, event) {
            (S::Conventional, E::Write { .. }) => Ok(S::Conventional),
            (S::Conventional | S::ReadOnly | S::Offline, _) => illegal,
            (S::Full, E::Write { .. } | E::Open | E::Close { .. }) => illegal,
            (_, E::Write { fills: true }) => Ok(S::Full),
            (S::ExplicitOpen, E::Write { .. }) | (_, E::Open) => Ok(S::ExplicitOpen),
            (_, E::Write { .. }) => Ok(S::ImplicitOpen),
            (S::Empty, E::Close { .. }) => illegal,
            (S::Closed, E::Close { .. }) => Ok(S::Closed),
            (_, E::Close { empty: true }) => Ok(S::Empty),
            (_, E::Close { .. }) => Ok(S::Closed),
            (_, E::Finish) => Ok(S::Full),
            (_, E::Reset) => Ok(S::Empty),
        }
    }

    /// Whether the zone counts against the open limit.
    pub fn is_open(self) -> bool {
        matches!(self, ZoneState::ImplicitOpen | ZoneState::ExplicitOpen)
    }

    /// Whether the zone counts against the active limit.
    pub fn is_active(self) -> bool {
        self.is_open() || self == ZoneState::Closed
    }
}

/// Conventional or sequential.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum ZoneKind {
    /// Written anywhere; no pointer, no reset.
    Conventional,
    /// Written at the pointer only.
    Sequential,
}

/// What a report says of a zone.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ZoneInfo {
    /// Which zone.
    pub zone: ZoneId,
    /// Its kind.
    pub kind: ZoneKind,
    /// Its state.
    pub state: ZoneState,
    /// Blocks from the zone's start to the write pointer. A full zone reports its capacity, though a finish may
    /// have left blocks unwritten; a conventional one reports its capacity too.
    pub pointer: Blocks,
    /// Writable blocks.
    pub capacity: Blocks,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_full_zone_takes_only_a_reset_or_a_finish() {
        for event in [ZoneEvent::Write { fills: false }, ZoneEvent::Open, ZoneEvent::Close { empty: false }] {
            assert!(ZoneState::Full.transition(event).is_err(), "{event:?}");
        }
        assert_eq!(ZoneState::Full.transition(ZoneEvent::Reset), Ok(ZoneState::Empty));
        assert_eq!(ZoneState::Full.transition(ZoneEvent::Finish), Ok(ZoneState::Full));
    }

    #[test]
    fn nothing_moves_a_worn_zone() {
        for state in [ZoneState::ReadOnly, ZoneState::Offline] {
            for event in
                [ZoneEvent::Write { fills: false }, ZoneEvent::Reset, ZoneEvent::Finish, ZoneEvent::Open]
            {
                assert_eq!(state.transition(event), Err(Illegal { from: state, event }));
            }
        }
    }

    #[test]
    fn an_opened_and_unwritten_zone_closes_to_empty() {
        let open = ZoneState::Empty.transition(ZoneEvent::Open).expect("legal");
        assert_eq!(open.transition(ZoneEvent::Close { empty: true }), Ok(ZoneState::Empty));
        assert_eq!(open.transition(ZoneEvent::Close { empty: false }), Ok(ZoneState::Closed));
    }
}
