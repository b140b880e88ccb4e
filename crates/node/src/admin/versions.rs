//! An operator's requests about the version of a cluster.

use std::time::Duration;

use placement::{ClusterName, ClusterView, Etcd, EtcdSettings};
use replica::{GroupId, NodeId, Version};

use super::run;
use crate::error::Result;

/// The pause between two looks at the versions of groups.
const LOOK_PAUSE: Duration = Duration::from_millis(200);

/// The newest version that a node's program speaks.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct NodeVersion {
    /// The node.
    pub node: NodeId,
    /// The newest version that the program speaks which the node ran last.
    pub speaks: Version,
}

/// The versions of a cluster's parts, as etcd has them.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ClusterVersion {
    /// The version that the cluster is to have.
    pub cluster: Version,
    /// The groups that are not known to be raised to it yet.
    pub below: Vec<GroupId>,
    /// The nodes.
    pub nodes: Vec<NodeVersion>,
}

impl ClusterVersion {
    fn of(view: &ClusterView) -> ClusterVersion {
        let cluster = view.meta.version();
        let is_raised = |group: &GroupId| view.seen.get(group).is_some_and(|seen| seen.version >= cluster);
        let groups = (0..u64::from(view.meta.groups())).map(GroupId);
        let nodes = view.nodes.iter().map(|(id, node)| NodeVersion { node: *id, speaks: node.speaks });
        ClusterVersion {
            cluster,
            below: groups.filter(|group| !is_raised(group)).collect(),
            nodes: nodes.collect(),
        }
    }

    /// The version to which the cluster may be raised: the newest one that every node's program speaks.
    pub fn may_be(&self) -> Version {
        self.nodes.iter().map(|node| node.speaks).min().unwrap_or(self.cluster)
    }
}

/// The versions of a cluster's parts.
///
/// # Errors
/// Errors of etcd; there is no such cluster.
pub fn version(etcd: &EtcdSettings, cluster: &ClusterName) -> Result<ClusterVersion> {
    run(async {
        let etcd = Etcd::connect(etcd, cluster.clone()).await?;
        Ok(ClusterVersion::of(&etcd.load().await?))
    })
}

/// Raises a cluster to the newest version that this program speaks, and waits until its groups are: from then on no node goes back to an older program. Stops waiting after `wait`: groups are raised once each of their members is there.
///
/// # Errors
/// A node's program does not speak the version; errors of etcd; there is no such cluster.
pub fn finalize(etcd: &EtcdSettings, cluster: &ClusterName, wait: Duration) -> Result<ClusterVersion> {
    run(async {
        let etcd = Etcd::connect(etcd, cluster.clone()).await?;
        etcd.raise_version(Version::NEWEST).await?;
        let deadline = tokio::time::Instant::now() + wait;
        loop {
            let version = ClusterVersion::of(&etcd.load().await?);
            if version.below.is_empty() || tokio::time::Instant::now() >= deadline {
                return Ok(version);
            }
            tokio::time::sleep(LOOK_PAUSE).await;
        }
    })
}
