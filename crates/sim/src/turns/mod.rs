//! The target `turns`: simulated groups whose machines die, part, drift and change members, under the rules of the crate `turns`.
//!
//! Of each run: never more turns at once than the group allows, by true time; each turn rests on enough other nodes that were undisturbed and in reach of the leader
//! within a report age; nobody writes after a lease; never a turn on a leader that could hand over, or during a recovery; where nothing fails, no node reaches its
//! hard limit; and after all faults every snapshot that is due is taken.

mod group;
mod machine;
mod rules;

use parking_lot::Mutex;
use serde::Serialize;

use self::group::Group;
pub use self::rules::TurnsRules;
use crate::runs::on_all_processors;

/// The most described failures of a report.
const MAX_DESCRIBED: usize = 20;

/// Results of simulated runs.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct TurnsReport {
    /// Runs.
    pub runs: u64,
    /// Snapshots that became durable.
    pub snapshots: u64,
    /// Times that a node began a snapshot, or went on with one, at its hard limit without a turn. In runs without faults this is a failure.
    pub forced: u64,
    /// Runs in which something happened that must not.
    pub failed: u64,
    /// The first failures that were found, by run.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub failures: Vec<TurnsFailure>,
}

/// A run in which something happened that must not.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub struct TurnsFailure {
    /// The number of the run.
    pub run: u64,
    /// The time in the run, and a description.
    pub what: String,
    /// The command that repeats the run.
    pub replay_command: String,
}

/// Simulates `runs` groups of `seed`, from run number `first` on, on all processors. `first_failure`: until one fails.
pub fn explore_turns(
    seed: u64,
    first: u64,
    runs: u64,
    rules: TurnsRules,
    first_failure: bool,
) -> TurnsReport {
    let report = Mutex::new(TurnsReport::default());
    let is_over = || first_failure && report.lock().failed > 0;
    on_all_processors(first, runs, &is_over, &|run| {
        let mut group = Group::new(seed, run, rules);
        group.run();
        add(&mut report.lock(), seed, run, group);
    });
    let mut report = report.into_inner();
    report.failures.sort();
    report
}

fn add(report: &mut TurnsReport, seed: u64, run: u64, group: Group) {
    report.runs += 1;
    report.snapshots += group.done;
    report.forced += group.forced;
    let Some(what) = group.violation else { return };
    report.failed += 1;
    if report.failures.len() < MAX_DESCRIBED {
        let replay_command = format!("furrow crash --target turns --seed {seed} --from {run} --runs 1");
        report.failures.push(TurnsFailure { run, what, replay_command });
    }
}
