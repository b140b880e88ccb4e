//! Rules of groups that a simulation breaks on purpose, to prove that the judge finds the fault.

use replica::Settings;
use shard::GroupsLogOptions;

/// The rules that a simulation breaks on purpose. Default: none.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct ClusterRules {
    /// The broken rule of replicas.
    #[cfg(feature = "broken-rules")]
    pub replica: Option<replica::BrokenRule>,
    /// The broken rule of the groups' log.
    #[cfg(feature = "broken-rules")]
    pub log: Option<shard::BrokenRule>,
}

impl ClusterRules {
    #[cfg(feature = "broken-rules")]
    pub(super) fn settings(self, settings: Settings) -> Settings {
        Settings { broken_rule: self.replica, ..settings }
    }

    #[cfg(not(feature = "broken-rules"))]
    pub(super) fn settings(self, settings: Settings) -> Settings {
        settings
    }

    #[cfg(feature = "broken-rules")]
    pub(super) fn log_options(self) -> GroupsLogOptions {
        GroupsLogOptions { broken_rule: self.log, ..GroupsLogOptions::default() }
    }

    #[cfg(not(feature = "broken-rules"))]
    pub(super) fn log_options(self) -> GroupsLogOptions {
        GroupsLogOptions::default()
    }
}
