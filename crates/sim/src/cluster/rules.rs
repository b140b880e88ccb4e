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
    /// The broken rule of nodes.
    #[cfg(feature = "broken-rules")]
    pub node: Option<NodeRule>,
}

/// A rule of nodes that follow etcd, which is broken on purpose.
#[cfg(feature = "broken-rules")]
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum NodeRule {
    /// Broken rule: a node deletes a replica that the group's plan has no more, without asking the members whether the group has left the replica out.
    DeletesUnasked,
    /// Broken rule: a node whose drive was lost keeps its name on an empty one, so that its replicas begin again with their old numbers.
    KeepsName,
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
    pub(super) fn deletes_unasked(self) -> bool {
        self.node == Some(NodeRule::DeletesUnasked)
    }

    #[cfg(not(feature = "broken-rules"))]
    pub(super) fn deletes_unasked(self) -> bool {
        false
    }

    #[cfg(feature = "broken-rules")]
    pub(super) fn keeps_names(self) -> bool {
        self.node == Some(NodeRule::KeepsName)
    }

    #[cfg(not(feature = "broken-rules"))]
    pub(super) fn keeps_names(self) -> bool {
        false
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
