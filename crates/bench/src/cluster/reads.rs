//! Reads under the leader's lease.

use std::sync::Arc;

use serde::Serialize;

use super::load::ClusterLoad;
use super::nodes::{Nodes, key, refused, with_cluster};
use crate::{Error, Result};

/// Reads under the lease.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct ReadsOutcome {
    /// Reads that were answered with the value.
    pub reads: u64,
    /// Messages that any node sent meanwhile.
    pub messages: u64,
    /// Operations of the leader's drive meanwhile.
    pub drive_operations: u64,
    /// The time that all reads took.
    pub elapsed_us: f64,
}

/// Measures reads.
pub(super) fn measure(load: &ClusterLoad) -> Result<ReadsOutcome> {
    with_cluster(load, load.seed, async |nodes| read(load, nodes).await)
}

async fn read(load: &ClusterLoad, nodes: &Arc<Nodes>) -> Result<ReadsOutcome> {
    // A leader has no lease before a majority has acknowledged one of its heartbeats.
    nodes.pause(load.election_timeout).await;
    let lost = || Error::Cluster(String::from("the leader lost its lead"));
    let leader = nodes.leader().ok_or_else(lost)?;
    let operations = || {
        let counts = leader.counts();
        counts.appends + counts.writes + counts.reads + counts.metadata_writes
    };
    let (messages, before, begin) = (nodes.network.messages(), operations(), nodes.driver.now());
    let mut reads = 0;
    for _ in 0..load.reads {
        let row = leader.group.get(&key(0)).await.map_err(refused)?;
        let value = row.and_then(|row| row.value);
        reads += u64::from(value.is_some_and(|value| value.len() as u64 == load.value.0));
    }
    Ok(ReadsOutcome {
        reads,
        messages: nodes.network.messages() - messages,
        drive_operations: operations() - before,
        elapsed_us: nodes.driver.now().since(begin).as_secs_f64() * 1e6,
    })
}
