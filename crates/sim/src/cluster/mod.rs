//! The target `cluster`: simulated groups of whole nodes, each with a replica, its log on an emulated drive, and a model of tables that loses what was not flushed.
//!
//! Faults: messages lost, repeated, late; nodes cut off, one-way too; power cuts of one node and of all, with any outcome that the drives allow; drives lost; clocks that drift; slow drives; leaders that hand over, members that are replaced. Then all heals.
//!
//! Of each run: the last committed value of each key has more copies on members' drives than may fail, where no change of members is under way; one node answers reads at a time; the answers that clients got are linearizable, by key; after healing every node holds the same records, backups and the leader with their values; the group serves again.

mod faults;
mod history;
mod node;
mod report;
mod rules;
mod tables;
mod world;

use parking_lot::Mutex;

pub use self::report::{ClusterFailure, ClusterFailureKind, ClusterReport};
pub use self::rules::ClusterRules;
use self::world::World;
use crate::runs::on_all_processors;

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
        let ended = World::new(seed, run, rules).run();
        report.lock().add((seed, run), ended);
    });
    report.into_inner()
}
