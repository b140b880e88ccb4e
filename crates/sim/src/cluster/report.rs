//! The report of simulated clusters.

use std::ops::AddAssign;

use serde::Serialize;

/// The most described failures of a report.
const MAX_DESCRIBED: usize = 20;

/// Counts of what happened in simulated runs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct ClusterCounts {
    /// Operations of clients that were answered.
    pub operations: u64,
    /// Of these: pairs of keys that were set together or read together.
    pub pairs: u64,
    /// Of these: additions to counters.
    pub counts: u64,
    /// Commands that were refused because their group's log was full.
    pub full: u64,
    /// Groups.
    pub groups: u64,
    /// Faults.
    pub faults: u64,
    /// Power cuts of a machine.
    pub power_cuts: u64,
    /// Drives that were lost.
    pub drives_lost: u64,
    /// Processes that ended because an operation of their drive failed.
    pub drive_errors: u64,
    /// Nodes that an operator drained.
    pub drains: u64,
    /// Plans with other members than those in whose places they were written.
    pub plans: u64,
    /// Replicas that joined a group in the places of others.
    pub joined: u64,
    /// Replicas that their groups had left out, and that their nodes deleted.
    pub deleted: u64,
    /// Creations and deletions of replicas that a power cut cut short.
    pub cut_short: u64,
    /// Times in which etcd answered nothing.
    pub etcd_outages: u64,
    /// Restores of etcd from a backup.
    pub etcd_restores: u64,
    /// Of these: backups from before a replacement.
    pub replacements_forgotten: u64,
    /// Nodes whose drives are 20 or 200 times slower.
    pub slow_drives: u64,
    /// Moments, of one in 20 ms for each group, at which a replica's tables were more than eight entries behind those of another one.
    pub tables_behind: u64,
    /// Parts of tables that a replica sent to another one, for a snapshot.
    pub table_parts: u64,
    /// Entries that the groups' leaders had retired from their logs at the end.
    pub retired: u64,
    /// Groups that were raised to a newer version.
    pub raised: u64,
    /// Programs that ended because they were too old for their group.
    pub too_old: u64,
    /// Terms in which the groups were at the end.
    pub terms: u64,
    /// Virtual time, in milliseconds.
    pub milliseconds: u64,
}

impl AddAssign for ClusterCounts {
    fn add_assign(&mut self, other: ClusterCounts) {
        self.operations += other.operations;
        self.pairs += other.pairs;
        self.counts += other.counts;
        self.full += other.full;
        self.groups += other.groups;
        self.faults += other.faults;
        self.power_cuts += other.power_cuts;
        self.drives_lost += other.drives_lost;
        self.drive_errors += other.drive_errors;
        self.drains += other.drains;
        self.plans += other.plans;
        self.joined += other.joined;
        self.deleted += other.deleted;
        self.cut_short += other.cut_short;
        self.etcd_outages += other.etcd_outages;
        self.etcd_restores += other.etcd_restores;
        self.replacements_forgotten += other.replacements_forgotten;
        self.slow_drives += other.slow_drives;
        self.tables_behind += other.tables_behind;
        self.table_parts += other.table_parts;
        self.retired += other.retired;
        self.raised += other.raised;
        self.too_old += other.too_old;
        self.terms += other.terms;
        self.milliseconds += other.milliseconds;
    }
}

/// Results of simulated runs.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct ClusterReport {
    /// Runs.
    pub runs: u64,
    /// The numbers of faults and events, all runs together.
    #[serde(flatten)]
    pub counts: ClusterCounts,
    /// Operations of the run with the fewest.
    pub least_operations: u64,
    /// Faults of the run with the fewest.
    pub least_faults: u64,
    /// Runs in which a committed value had too few copies, or two nodes applied different entries at one index.
    pub lost: u64,
    /// Runs in which a client was told of a value that nobody wrote.
    pub invented: u64,
    /// Runs whose answers no order of operations explains, or in which two nodes answered reads.
    pub not_linearizable: u64,
    /// Runs in which a group did not serve again, or nodes ended.
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
        let Ended { counts, digest, failure } = ended;
        let least = |least: u64, own: u64| if self.runs == 0 { own } else { least.min(own) };
        self.least_operations = least(self.least_operations, counts.operations);
        self.least_faults = least(self.least_faults, counts.faults);
        self.runs += 1;
        self.counts += counts;
        self.digest = self.digest.wrapping_add(digest);
        let Some((kind, what)) = failure else { return };
        match kind {
            ClusterFailureKind::Lost => self.lost += 1,
            ClusterFailureKind::Invented => self.invented += 1,
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
        self.lost + self.invented + self.not_linearizable + self.stuck + self.diverged
    }
}

/// The kind of what happened that must not.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum ClusterFailureKind {
    /// A committed value had no more copies than members may fail, or was replaced by another entry.
    Lost,
    /// A client was told of a value that nobody wrote.
    Invented,
    /// No order of operations explains the answers, or two nodes answer reads.
    NotLinearizable,
    /// A group did not serve again, or a node ended.
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
    pub counts: ClusterCounts,
    pub digest: u64,
    pub failure: Option<(ClusterFailureKind, String)>,
}
