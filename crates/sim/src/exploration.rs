//! The exploration of one workload's power cuts, for every target: threads take cut after cut, count each crash state once and
//! describe failures.

use std::collections::HashSet;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use parking_lot::Mutex;

use crate::model::Fault;
use crate::report::{FailureKind, StateKind};
use crate::{CrashOptions, Failure, Report, Result, Rng, StateId};

/// Most failures that a report describes.
pub(crate) const MAX_DESCRIBED_FAILURES: usize = 20;
/// Number of times that a replay repeats an engine's second cut.
const SECOND_CUT_REPLAYS: u32 = 64;

/// The exploration of one workload's power cuts.
pub(crate) struct Exploration<'a, C> {
    pub options: &'a CrashOptions,
    cuts: Vec<C>,
    limit: u64,
    next: AtomicUsize,
    stop: AtomicBool,
    found: Mutex<FoundStates>,
}

#[derive(Default)]
struct FoundStates {
    states: HashSet<u128>,
    checked: HashSet<(u128, u64)>,
    report: Report,
}

impl<'a, C: Sync> Exploration<'a, C> {
    /// An exploration of `cuts` that ends when `limit` states are checked.
    pub(crate) fn new(options: &'a CrashOptions, cuts: Vec<C>, limit: u64) -> Exploration<'a, C> {
        Exploration {
            options,
            cuts,
            limit,
            next: AtomicUsize::new(0),
            stop: AtomicBool::new(false),
            found: Mutex::default(),
        }
    }

    /// Runs `work` on as many threads as the options say; `work` takes cuts until none is left. Each crash state has a clock of
    /// its own: the threads share the list of cuts alone.
    pub(crate) fn run(self, work: impl Fn(&Exploration<'a, C>) -> Result<()> + Sync) -> Result<Report> {
        let processors = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
        let threads =
            if self.options.only.is_some() { 1 } else { self.options.threads.unwrap_or(processors).max(1) };
        let results = std::thread::scope(|scope| {
            let threads: Vec<_> = (0..threads).map(|_| scope.spawn(|| work(&self))).collect();
            threads.into_iter().map(|t| t.join().expect("an explorer catches panics")).collect::<Vec<_>>()
        });
        results.into_iter().collect::<Result<Vec<()>>>()?;
        let found = self.found.into_inner();
        let mut report = found.report;
        report.states = found.states.len() as u64;
        sort_failures(&mut report);
        Ok(report)
    }

    /// The next power cut to explore; `None` at the end of the exploration.
    pub(crate) fn next(&self) -> Option<&C> {
        if self.is_over() { None } else { self.cuts.get(self.next.fetch_add(1, Ordering::Relaxed)) }
    }

    /// Whether enough states are checked, or a failure ends the exploration.
    pub(crate) fn is_over(&self) -> bool {
        self.stop.load(Ordering::Relaxed)
    }

    /// Counts a crash state and its kinds. True if it must be checked: equal states under equal promises are checked once.
    pub(crate) fn is_new(&self, state: u128, promises: u64, kinds: &[StateKind]) -> bool {
        let mut found = self.found.lock();
        let new = found.checked.insert((state, promises));
        if found.states.insert(state) {
            kinds.iter().for_each(|kind| *found.report.kinds.entry(*kind).or_default() += 1);
        }
        if found.states.len() as u64 >= self.limit {
            self.stop.store(true, Ordering::Relaxed);
        }
        new
    }

    /// Adds the faults of a crash state. `in_context` adds the context to a description; `command` gives the command that
    /// replays the state.
    pub(crate) fn add(
        &self,
        state: StateId,
        faults: &[Fault],
        in_context: impl Fn(String) -> String,
        command: impl Fn() -> String,
    ) {
        if faults.is_empty() {
            return;
        }
        let mut found = self.found.lock();
        for kind in [FailureKind::Lost, FailureKind::Invented, FailureKind::Mount, FailureKind::Check] {
            let what: Vec<&str> = faults.iter().filter(|f| f.kind == kind).map(|f| f.what.as_str()).collect();
            if what.is_empty() {
                continue;
            }
            found.report.count(kind);
            let described = found.report.failures.iter().filter(|f| f.kind == kind).count();
            if described < MAX_DESCRIBED_FAILURES {
                let (what, replay_command) = (in_context(what.join("; ")), command());
                found.report.failures.push(Failure { kind, state, what, replay_command });
            }
        }
        if self.options.first_failure {
            self.stop.store(true, Ordering::Relaxed);
        }
    }
}

/// Sorts a report's failures and keeps the first [`MAX_DESCRIBED_FAILURES`].
pub(crate) fn sort_failures(report: &mut Report) {
    report.failures.sort();
    report.failures.truncate(MAX_DESCRIBED_FAILURES);
}

/// Keeps `wanted` cuts, chosen at random over the whole workload.
pub(crate) fn keep_random<C>(cuts: &mut Vec<C>, wanted: u64, seed: u64) {
    let mut rng = Rng::at(seed, &[0xc07]);
    let mut left = cuts.len();
    let mut take = usize::try_from(wanted).unwrap_or(usize::MAX).min(left);
    cuts.retain(|_| {
        let keep = rng.index(left) < take;
        left -= 1;
        take -= usize::from(keep);
        keep
    });
}

/// The faults that judging a crash state finds. A panic counts as a failed mount.
pub(crate) fn catching_panics(probe: impl FnOnce() -> Vec<Fault>) -> Vec<Fault> {
    catch_unwind(AssertUnwindSafe(probe)).unwrap_or_else(|panic| {
        vec![Fault { kind: FailureKind::Mount, what: format!("panic: {}", panic_message(&*panic)) }]
    })
}

/// Number of times that a crash state is judged. RocksDB's threads decide what a second cut of the engine meets, so that a
/// replay repeats the cut.
pub(crate) fn probe_attempts(options: &CrashOptions, twice: bool) -> u32 {
    if options.only.is_some() && twice && options.target.is_engine() { SECOND_CUT_REPLAYS } else { 1 }
}

/// The text of the message of a panic.
pub(crate) fn panic_message(panic: &(dyn std::any::Any + Send)) -> &str {
    let owned = panic.downcast_ref::<String>().map(String::as_str);
    owned.or_else(|| panic.downcast_ref::<&str>().copied()).unwrap_or("without a message")
}
