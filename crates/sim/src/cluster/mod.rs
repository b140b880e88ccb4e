//! The target `cluster`: simulated groups of whole nodes, each with a replica, its log on an emulated drive, and a model of tables that loses what was not flushed.
//!
//! Faults: messages lost, repeated, late; nodes cut off, one-way too; power cuts of one node and of all, with any outcome that the drives allow; drives lost; clocks that drift; slow drives; leaders that hand over, members that are replaced. Then all heals.
//!
//! Of each run: the last committed value of each key has more copies on members' drives than may fail, where no change of members is under way; one node answers reads at a time; the answers that clients got are linearizable, by key; after healing every node holds the same records, backups and the leader with their values; the group serves again.

mod faults;
mod history;
mod node;
mod rules;
mod tables;
mod world;

use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::Mutex;
use serde::Serialize;

pub use self::rules::ClusterRules;
use self::world::World;

/// The most described failures of a report.
const MAX_DESCRIBED: usize = 20;

/// Results of simulated runs.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct ClusterReport {
    /// Runs.
    pub runs: u64,
    /// Operations of clients that were answered.
    pub operations: u64,
    /// Faults.
    pub faults: u64,
    /// Power cuts of a machine.
    pub power_cuts: u64,
    /// Drives that were lost.
    pub drives_lost: u64,
    /// Terms in which the groups were at the end.
    pub terms: u64,
    /// Virtual time, in seconds.
    pub seconds: u64,
    /// Runs in which a committed value had too few copies.
    pub lost: u64,
    /// Runs whose answers no order of operations explains, or in which two nodes answered reads.
    pub not_linearizable: u64,
    /// Runs in which the group did not serve again, or nodes ended.
    pub stuck: u64,
    /// Runs in which nodes held different records at the end, or lacked values.
    pub diverged: u64,
    /// The first failures that were found, by run.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub failures: Vec<ClusterFailure>,
    /// The digest of all runs: the same in each process.
    pub digest: u64,
}

impl ClusterReport {
    /// Runs in which something happened that must not.
    pub fn failed(&self) -> u64 {
        self.lost + self.not_linearizable + self.stuck + self.diverged
    }
}

/// The kind of what happened that must not.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum ClusterFailureKind {
    /// A committed value had no more copies than members may fail.
    Lost,
    /// No order of operations explains the answers, or two nodes answer reads.
    NotLinearizable,
    /// The group did not serve again, or a node ended.
    Stuck,
    /// Nodes held different records at the end, or lacked values.
    Diverged,
}

/// A run in which something happened that must not.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub struct ClusterFailure {
    /// The number of the run.
    pub run: u64,
    /// The kind of the failure.
    pub kind: ClusterFailureKind,
    /// A description.
    pub what: String,
    /// The command that repeats the run.
    pub replay_command: String,
}

/// Simulates `runs` clusters of `seed`, from run number `first` on, on all processors. `first_failure`: until one fails.
pub fn explore_cluster(
    seed: u64,
    first: u64,
    runs: u64,
    rules: ClusterRules,
    first_failure: bool,
) -> ClusterReport {
    let (next, report) = (AtomicU64::new(first), Mutex::new(ClusterReport::default()));
    let threads = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
    std::thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| {
                loop {
                    let run = next.fetch_add(1, Ordering::Relaxed);
                    if run >= first.saturating_add(runs) || first_failure && report.lock().failed() > 0 {
                        return;
                    }
                    let ended = World::new(seed, run, rules).run();
                    add(&mut report.lock(), (seed, run), ended);
                }
            });
        }
    });
    let mut report = report.into_inner();
    report.failures.sort();
    report
}

/// The end of a run.
#[derive(Debug, Default)]
struct Ended {
    operations: u64,
    faults: u64,
    power_cuts: u64,
    drives_lost: u64,
    terms: u64,
    seconds: u64,
    digest: u64,
    failure: Option<(ClusterFailureKind, String)>,
}

fn add(report: &mut ClusterReport, (seed, run): (u64, u64), ended: Ended) {
    report.runs += 1;
    report.operations += ended.operations;
    report.faults += ended.faults;
    report.power_cuts += ended.power_cuts;
    report.drives_lost += ended.drives_lost;
    report.terms += ended.terms;
    report.seconds += ended.seconds;
    report.digest = report.digest.wrapping_add(ended.digest);
    let Some((kind, what)) = ended.failure else { return };
    match kind {
        ClusterFailureKind::Lost => report.lost += 1,
        ClusterFailureKind::NotLinearizable => report.not_linearizable += 1,
        ClusterFailureKind::Stuck => report.stuck += 1,
        ClusterFailureKind::Diverged => report.diverged += 1,
    }
    if report.failures.len() < MAX_DESCRIBED {
        let replay_command = format!("furrow crash --target cluster --seed {seed} --from {run} --runs 1");
        report.failures.push(ClusterFailure { run, kind, what, replay_command });
    }
}
