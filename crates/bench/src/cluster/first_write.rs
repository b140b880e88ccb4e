//! The first write after the primary was lost.
//!
//! In every second run the witnesses are stale: entries that the backups acknowledged did not reach them, so that a backup has to bring a witness up before it leads.

use std::sync::Arc;
use std::time::Duration;

use serde::Serialize;

use replica::Role;

use super::load::ClusterLoad;
use super::nodes::{Nodes, with_cluster};
use crate::{Latencies, Recorder, Result};

/// Writes before the primary is lost, of which the last do not reach stale witnesses.
const WRITES: u64 = 20;
const WITHHELD_WRITES: u64 = 5;

/// First writes after a lost primary.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct FirstWriteOutcome {
    /// Clusters that lost their primary.
    pub runs: u64,
    /// The election timeout, `T`.
    pub election_timeout_us: f64,
    /// From the loss to the acknowledgement of the first write, where the witnesses had every committed entry.
    pub fresh_us: Latencies,
    /// The same, where they lacked some.
    pub stale_us: Latencies,
    /// All runs together.
    pub all_us: Latencies,
    /// The longest time of all runs by `T`.
    pub longest_over_timeout: f64,
    /// The share of the runs whose first write took 2 `T` at most.
    pub within_two_timeouts: f64,
}

/// Measures the first write after each of the losses.
pub(super) fn measure(load: &ClusterLoad) -> Result<FirstWriteOutcome> {
    let (mut fresh, mut stale, mut within) = (Recorder::new(), Recorder::new(), 0);
    for run in 0..load.lost_primaries {
        let is_stale = run % 2 == 1;
        let seed = load.seed.wrapping_mul(1_000_003).wrapping_add(run);
        let took = with_cluster(load, seed, async |nodes| lose_primary(load, nodes, is_stale).await)?;
        within += u64::from(took <= 2 * load.election_timeout);
        if is_stale { &mut stale } else { &mut fresh }.record(took);
    }
    let mut all = fresh.clone();
    all.add(&stale);
    let (all_us, timeout_us) = (all.summary(1), load.election_timeout.as_secs_f64() * 1e6);
    Ok(FirstWriteOutcome {
        runs: load.lost_primaries,
        election_timeout_us: timeout_us,
        fresh_us: fresh.summary(1),
        stale_us: stale.summary(1),
        longest_over_timeout: all_us.max / timeout_us,
        all_us,
        within_two_timeouts: within as f64 / load.lost_primaries as f64,
    })
}

/// The time from the loss of the primary to the acknowledgement of the next write.
async fn lose_primary(load: &ClusterLoad, nodes: &Arc<Nodes>, is_stale: bool) -> Result<Duration> {
    // The loss comes at a random time between heartbeats.
    nodes.pause(load.election_timeout + nodes.time_below(load.election_timeout)).await;
    let leader = nodes.wait_for_leader().await?;
    for number in 0..WRITES {
        if is_stale && number == WRITES - WITHHELD_WRITES {
            let places = nodes.nodes.iter().map(|node| node.group.place());
            let witnesses = places.filter(|place| place.role == Role::Witness);
            nodes.network.withhold_entries(witnesses.map(|place| place.replica));
        }
        nodes.write(&leader, number).await?;
    }
    nodes.network.disconnect(leader.place().replica);
    leader.close();
    nodes.network.withhold_entries([]);
    let begin = nodes.driver.now();
    loop {
        let leader = nodes.wait_for_leader().await?;
        // A leader may lose its lead again before the write is committed.
        if nodes.write(&leader, WRITES).await.is_ok() {
            return Ok(nodes.driver.now().since(begin));
        }
        nodes.pause(super::nodes::LOOK_PAUSE).await;
    }
}
