//! An operator's requests about nodes that go, and about what etcd holds.

use std::collections::BTreeSet;
use std::time::Duration;

use placement::{ClusterName, ClusterView, Drain, Epoch, Etcd, EtcdSettings, upkeep};
use replica::NodeId;

use super::run;
use crate::error::{Error, Result};

/// The pause between two looks at what a node still has.
const LOOK_PAUSE: Duration = Duration::from_millis(200);

/// The state of a node that goes.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Departure {
    /// Replicas that the node still has, or is to have, by etcd.
    pub replicas: usize,
    /// True if the node has none any more; a node that is replaced is removed from the cluster, too.
    pub is_done: bool,
    /// The replicas for which there is no other node, for people.
    pub lacking: Vec<String>,
}

impl Departure {
    fn of(view: &ClusterView, node: NodeId) -> Departure {
        let replicas = view.want.values().flat_map(|want| want.plan.replicas());
        let needed = upkeep(view, &BTreeSet::new());
        Departure {
            replicas: replicas.filter(|member| member.node == node).count(),
            is_done: false,
            lacking: needed.lacking.iter().map(ToString::to_string).collect(),
        }
    }
}

/// Has every replica of a node replaced by one on another node, and waits for that: the node stays in the cluster, and gets no replicas. Stops waiting after `wait`: the replacing goes on.
///
/// # Errors
/// No such node; errors of etcd.
pub fn drain(etcd: &EtcdSettings, cluster: &ClusterName, node: NodeId, wait: Duration) -> Result<Departure> {
    run(async {
        let etcd = Etcd::connect(etcd, cluster.clone()).await?;
        etcd.set_drain(node, Some(Drain { is_last: false })).await?;
        until_gone(&etcd, node, wait, false).await
    })
}

/// Lets a node have replicas again.
///
/// # Errors
/// No such node; errors of etcd.
pub fn undrain(etcd: &EtcdSettings, cluster: &ClusterName, node: NodeId) -> Result<()> {
    run(async {
        let etcd = Etcd::connect(etcd, cluster.clone()).await?;
        Ok(etcd.set_drain(node, None).await?)
    })
}

/// Has every replica of a node replaced that is gone for good, without waiting longer for it, and then removes the node from the cluster: it never joins again. Stops waiting after `wait`: the replacing goes on.
///
/// # Errors
/// The node is alive; no such node; errors of etcd.
pub fn replace(
    etcd: &EtcdSettings,
    cluster: &ClusterName,
    node: NodeId,
    wait: Duration,
) -> Result<Departure> {
    run(async {
        let etcd = Etcd::connect(etcd, cluster.clone()).await?;
        if etcd.load().await?.alive.contains_key(&node) {
            return Err(Error::Setting(format!(
                "node {node} is alive: drain it, stop its process, and wait until its lease has ended"
            )));
        }
        etcd.set_drain(node, Some(Drain { is_last: true })).await?;
        until_gone(&etcd, node, wait, true).await
    })
}

async fn until_gone(etcd: &Etcd, node: NodeId, wait: Duration, is_last: bool) -> Result<Departure> {
    let deadline = tokio::time::Instant::now() + wait;
    loop {
        let view = etcd.load().await?;
        let departure = Departure::of(&view, node);
        let is_gone = if is_last { !view.nodes.contains_key(&node) } else { departure.replicas == 0 };
        if is_gone {
            return Ok(Departure { replicas: 0, is_done: true, lacking: Vec::new() });
        }
        if tokio::time::Instant::now() >= deadline {
            return Ok(departure);
        }
        tokio::time::sleep(LOOK_PAUSE).await;
    }
}

/// The cluster's epoch.
///
/// # Errors
/// Errors of etcd; there is no such cluster.
pub fn epoch(etcd: &EtcdSettings, cluster: &ClusterName) -> Result<Epoch> {
    run(async {
        let etcd = Etcd::connect(etcd, cluster.clone()).await?;
        Ok(etcd.load().await?.meta.epoch())
    })
}

/// Raises the cluster's epoch after etcd was restored from a backup, so that nodes take what it holds. `to`: the new epoch; `None`: the next one.
///
/// # Errors
/// The epoch is as high already; errors of etcd.
pub fn raise_epoch(etcd: &EtcdSettings, cluster: &ClusterName, to: Option<Epoch>) -> Result<Epoch> {
    run(async {
        let etcd = Etcd::connect(etcd, cluster.clone()).await?;
        let now = etcd.load().await?.meta.epoch();
        let to = to.unwrap_or(Epoch(now.0 + 1));
        if to <= now {
            return Err(Error::Setting(format!("the epoch is {} already: give a higher one", now.0)));
        }
        Ok(etcd.raise_epoch(to).await?.epoch())
    })
}

/// Everything that etcd holds of a cluster, values that this version does not know too: keys and values, in the order of keys.
///
/// # Errors
/// Errors of etcd.
pub fn dump(etcd: &EtcdSettings, cluster: &ClusterName) -> Result<Vec<(String, String)>> {
    run(async {
        let etcd = Etcd::connect(etcd, cluster.clone()).await?;
        Ok(etcd.dump().await?)
    })
}
