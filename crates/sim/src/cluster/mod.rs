//! The target `cluster`: simulated clusters of whole nodes, each with replicas of one to three groups, their log on an emulated drive, and a model of tables that loses what was not flushed; beside them a model of etcd. Decision: ADR 0050.
//!
//! Nodes follow etcd as real ones do: they register, create and delete replicas by the groups' plans, tell who leads, and place where they are elected to.
//!
//! Clients set, delete and read keys, set and read pairs of keys together, add to counters, and set keys that expire; a part of them through the group itself, the rest through a model of the engine over [`shard::GroupStore`].
//!
//! Faults: messages lost, repeated, late; nodes cut off, one-way too; power cuts of one node and of all, with any outcome that the drives allow; drives lost, drives with errors, slow drives; tables whose work takes time; clocks that drift, wall clocks that jump; leaders that hand over; nodes that are drained; nodes that start with an older or a newer program, and groups that are raised to its version; etcd that is gone, or restored from a backup. Then all heals.
//!
//! Of each run: the last committed value of each key has more copies on members' drives than may fail, where no change of members is under way; one node answers reads at a time; the answers that clients got are linearizable, by key or pair of keys, and nothing in them is invented; after healing every group has the members of its plan, no node has a replica that its group left out, every node holds the same records, backups and the leader with their values; the groups serve again.

mod agreement;
mod clients;
mod driver;
mod engine;
mod etcd;
mod faults;
mod group;
mod history;
mod node;
mod objects;
mod programs;
mod report;
mod rules;
mod tables;
mod world;

use std::panic::{AssertUnwindSafe, catch_unwind};

use parking_lot::Mutex;

use self::report::Ended;
pub use self::report::{ClusterCounts, ClusterFailure, ClusterFailureKind, ClusterReport};
pub use self::rules::ClusterRules;
#[cfg(feature = "broken-rules")]
pub use self::rules::NodeRule;
use self::world::World;
use crate::runs::on_all_processors;

/// The words of Raft's panic where the leader's log contradicts what this replica knows to be committed.
const CONTRADICTION: &str = "conflict with committed entry";

/// Simulates `runs` clusters of `seed`, from run number `first` on, on all processors. `first_failure`: until one fails.
pub fn explore_cluster(
    seed: u64,
    first: u64,
    runs: u64,
    rules: ClusterRules,
    first_failure: bool,
) -> ClusterReport {
    let report = Mutex::new(ClusterReport::default());
    let is_over = || first_failure && report.lock().failed() > 0;
    on_all_processors(first, runs, &is_over, &|run| {
        let ended = catch_unwind(AssertUnwindSafe(|| World::new(seed, run, rules).run()));
        let ended = ended.unwrap_or_else(|payload| ended_by_panic(&*payload));
        report.lock().add((seed, run), ended);
    });
    report.into_inner()
}

/// The end of a run in which a node panicked.
fn ended_by_panic(payload: &(dyn std::any::Any + Send)) -> Ended {
    let text = payload.downcast_ref::<String>().map(String::as_str);
    let why = text.or_else(|| payload.downcast_ref::<&str>().copied()).unwrap_or("no text");
    let kind = if why.contains(CONTRADICTION) { ClusterFailureKind::Lost } else { ClusterFailureKind::Stuck };
    Ended { failure: Some((kind, format!("a node panicked: {why}"))), ..Ended::default() }
}
