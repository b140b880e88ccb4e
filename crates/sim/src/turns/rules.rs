//! Rules of turns that a simulation breaks on purpose, to prove that the oracle finds the fault.

/// The rules that a simulation breaks on purpose. Default: none.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct TurnsRules {
    /// The broken rule of leaders.
    #[cfg(feature = "broken-rules")]
    pub leader: Option<::turns::BrokenRule>,
    /// Broken rule: a node ends its turn when its snapshot is written, and not yet durable.
    #[cfg(feature = "broken-rules")]
    pub written_is_durable: bool,
}

#[cfg(feature = "broken-rules")]
impl TurnsRules {
    pub(super) fn ends_turns_when_written(self) -> bool {
        self.written_is_durable
    }

    pub(super) fn leader(self, leader: ::turns::Leader) -> ::turns::Leader {
        leader.breaking(self.leader)
    }
}

#[cfg(not(feature = "broken-rules"))]
impl TurnsRules {
    pub(super) fn ends_turns_when_written(self) -> bool {
        false
    }

    pub(super) fn leader(self, leader: ::turns::Leader) -> ::turns::Leader {
        leader
    }
}
