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
    /// A conventional zone, which has no write pointer.
    Conventional,
    /// The zone has no block written since its last reset.
    Empty,
    /// The zone was opened by a write or an append; the device may close the zone to open another one.
    ImplicitOpen,
    /// The zone was opened by command.
    ExplicitOpen,
    /// The zone is active, but not open.
    Closed,
    /// The zone is written to its capacity, or finished.
    Full,
    /// The zone is worn out: it can be read, not written.
    ReadOnly,
    /// The zone can be neither read nor written.
    Offline,
}

/// An event that changes a zone's state.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum ZoneEvent {
    /// A write or append.
    Write {
        /// True if the write reaches the zone's capacity.
        fills: bool,
    },
    /// The open command.
    Open,
    /// The close command.
    Close {
        /// True if the write pointer is at the zone's start.
        empty: bool,
    },
    /// The finish command.
    Finish,
    /// The reset command.
    Reset,
}

/// An event that the state of a zone does not allow.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Illegal {
    /// The zone's state.
    pub from: ZoneState,
    /// The event.
    pub event: ZoneEvent,
}

impl ZoneState {
    /// The zone's state after `event`. The device checks the limits on open and active zones.
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

    /// True if the zone counts towards the limit of open zones.
    pub fn is_open(self) -> bool {
        matches!(self, ZoneState::ImplicitOpen | ZoneState::ExplicitOpen)
    }

    /// True if the zone counts towards the limit of active zones.
    pub fn is_active(self) -> bool {
        self.is_open() || self == ZoneState::Closed
    }
}

/// The kind of a zone: conventional or sequential.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum ZoneKind {
    /// The zone is written anywhere; it has no pointer and no reset.
    Conventional,
    /// The zone is written at its pointer only.
    Sequential,
}

/// A zone's entry in a report.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ZoneInfo {
    /// The zone.
    pub zone: ZoneId,
    /// Kind of the zone.
    pub kind: ZoneKind,
    /// State of the zone.
    pub state: ZoneState,
    /// Blocks from the zone's start to the write pointer. A full zone reports its capacity, though a finish may
    /// have left blocks unwritten; a conventional one reports its capacity too.
    pub pointer: Blocks,
    /// Number of writable blocks of the zone.
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
