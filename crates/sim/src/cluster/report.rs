//! The report of simulated clusters.

use serde::Serialize;

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
    /// Adds a run.
    pub(super) fn add(&mut self, (seed, run): (u64, u64), ended: Ended) {
        self.runs += 1;
        self.operations += ended.operations;
        self.faults += ended.faults;
        self.power_cuts += ended.power_cuts;
        self.drives_lost += ended.drives_lost;
        self.terms += ended.terms;
        self.seconds += ended.seconds;
        self.digest = self.digest.wrapping_add(ended.digest);
        let Some((kind, what)) = ended.failure else { return };
        match kind {
            ClusterFailureKind::Lost => self.lost += 1,
            ClusterFailureKind::NotLinearizable => self.not_linearizable += 1,
            ClusterFailureKind::Stuck => self.stuck += 1,
            ClusterFailureKind::Diverged => self.diverged += 1,
        }
        let replay_command = format!("furrow crash --target cluster --seed {seed} --from {run} --runs 1");
        self.failures.push(ClusterFailure { run, kind, what, replay_command });
        // The first runs, whichever ended first.
        self.failures.sort();
        self.failures.truncate(MAX_DESCRIBED);
    }

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

/// The end of a run.
#[derive(Debug, Default)]
pub(super) struct Ended {
    pub operations: u64,
    pub faults: u64,
    pub power_cuts: u64,
    pub drives_lost: u64,
    pub terms: u64,
    pub seconds: u64,
    pub digest: u64,
    pub failure: Option<(ClusterFailureKind, String)>,
}
