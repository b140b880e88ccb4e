//! Rules of groups that a simulation breaks on purpose, to prove that the judge finds the fault.

use std::time::Duration;

use replica::Settings;
use shard::{GroupOptions, GroupsLogOptions};

/// The rules that a simulation breaks on purpose. Default: none.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct ClusterRules {
    /// The broken rule of replicas.
    #[cfg(feature = "broken-rules")]
    pub replica: Option<replica::BrokenRule>,
    /// The broken rule of the groups' log, or of the groups.
    #[cfg(feature = "broken-rules")]
    pub shard: Option<shard::BrokenRule>,
}

impl ClusterRules {
    /// The times of a group: `drift` in parts per million.
    pub(super) fn settings(self, election_timeout: Duration, heartbeat: Duration, drift: u32) -> Settings {
        Settings {
            election_timeout,
            heartbeat,
            drift,
            #[cfg(feature = "broken-rules")]
            broken_rule: self.replica,
            ..Settings::default()
        }
    }

    #[cfg(feature = "broken-rules")]
    pub(super) fn log_options(self) -> GroupsLogOptions {
        GroupsLogOptions { broken_rule: self.shard, ..GroupsLogOptions::default() }
    }

    #[cfg(not(feature = "broken-rules"))]
    pub(super) fn log_options(self) -> GroupsLogOptions {
        GroupsLogOptions::default()
    }

    #[cfg(feature = "broken-rules")]
    pub(super) fn group_options(self) -> GroupOptions {
        GroupOptions { broken_rule: self.shard, ..GroupOptions::default() }
    }

    #[cfg(not(feature = "broken-rules"))]
    pub(super) fn group_options(self) -> GroupOptions {
        GroupOptions::default()
    }
}
