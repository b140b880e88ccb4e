//! The crash states of a workload on several drives: every cut, an outcome of the cut for each drive, every failed drive.

use zoned::emu::{Latency, Media};

use super::drive_failure::DriveFailure;
use super::record::{Entry, Recording};
use super::shape::Shape;
use crate::choose::Sample;
use crate::exploration::{Exploration, catching_panics, keep_random, probe_attempts, sort_failures};
use crate::model::Fault;
use crate::replay::{Completions, Replay};
use crate::report::StateKind;
use crate::second_cut::Images;
use crate::{CrashOptions, During, Error, Outcome, Report, Result, Rng, StateId};

/// Number of workloads, roughly, over which an exploration of an array spreads.
const TARGET_WORKLOADS: u64 = 24;
/// Least number of states that each workload contributes to an exploration.
const MIN_STATES_PER_WORKLOAD: u64 = 300;
/// From this many states on, an exploration takes every cut of one workload of each kind.
const EVERY_CUT_FROM_STATES: u64 = 80_000;
/// An exploration that takes every cut of a workload gives the workload one in `EVERY_CUT_SHARE` of its states, so that the four such
/// workloads take half of them. For a workload with more states, some of the drive failures are drawn for each cut.
const EVERY_CUT_SHARE: u64 = 8;
/// Workloads that show each kind of failed drive once. Workloads with worn zones come after these.
const DRIVE_FAILURE_KINDS: u64 = 4;
/// Outcomes of a cut while lost parts move to spare room, for each outcome of other cuts: such moves are few operations. An exploration
/// that takes every cut takes one outcome of each.
const RESTORE_ROUNDS: u64 = 8;
/// Most workloads in a row that may be without the work during which an exploration cuts the power (`--during`).
const MAX_WORKLOADS_WITHOUT_STATES: u64 = 1000;
/// Most outcomes tried of one cut with one failed drive.
const MAX_OUTCOMES_PER_CUT: u64 = 24;

/// A point at which the power is cut. The model holds the steps that had begun, and the promises made before the next event.
pub(super) struct Cut<M> {
    pub entry: usize,
    pub model: M,
    /// Number of promises in the cut's model.
    pub promises: u64,
    /// Whether the new drive had become a member at the cut.
    pub replaced: bool,
    /// Whether a rebuild was under way at the cut.
    pub rebuilding: bool,
    /// Whether a part of a zone was being moved at the cut.
    pub moving: bool,
    /// Whether a reclaim was under way at the cut.
    pub reclaiming: bool,
    /// Whether lost parts moved to spare room at the cut.
    pub restoring: bool,
    /// Whether clients' writes, most of them appends, were in flight at the cut, in an array that sends appends to its drives.
    pub appending: bool,
    /// Whether a client's reset of a logical zone was in flight at the cut.
    pub resetting: bool,
}

impl<M> Cut<M> {
    /// True if the power is cut during this work of the array.
    fn is_during(&self, during: During) -> bool {
        match during {
            During::Rebuild => self.rebuilding,
            During::Restore => self.restoring,
            During::Move => self.moving,
            During::Reclaim => self.reclaiming,
            During::Appends => self.appending,
            During::Reset => self.resetting,
        }
    }
}

/// A function that judges one crash state: the cut, the failed drive, the images of the present drives, a seed.
pub(super) type Judge<'a, M> = &'a (dyn Fn(&Cut<M>, DriveFailure, Images, u64) -> Vec<Fault> + Sync);

/// Explores one workload after the other until enough states are checked.
pub(super) fn explore_workloads(
    options: &CrashOptions,
    explore: impl Fn(u64, u64) -> Result<Report>,
) -> Result<Report> {
    if let Some(only) = options.only {
        return explore(only.workload, 1);
    }
    let mut report = Report::default();
    let (mut workload, mut last_with_states) = (0, 0);
    while report.states < options.states {
        if let Some(during) =
            options.during.filter(|_| workload - last_with_states > MAX_WORKLOADS_WITHOUT_STATES)
        {
            return Err(Error::NothingDuring(during.to_string(), workload - last_with_states));
        }
        let left = options.states - report.states;
        let share = (options.states / TARGET_WORKLOADS).max(MIN_STATES_PER_WORKLOAD).min(left);
        let takes_all = options.states >= EVERY_CUT_FROM_STATES && options.during.is_none();
        let whole = takes_all && workload < DRIVE_FAILURE_KINDS;
        let explored = explore(workload, if whole { u64::MAX } else { share })?;
        if explored.states > 0 {
            last_with_states = workload;
        }
        report.add(explored);
        if options.first_failure && !report.is_clean() {
            break;
        }
        workload += 1;
    }
    sort_failures(&mut report);
    Ok(report)
}

/// Explores one workload of an array. With `u64::MAX` states each cut is taken once, with as many of the drives that may fail as the
/// workload's share allows.
pub(super) fn explore<M: Send + Sync>(
    options: &CrashOptions,
    (record, workload): (&Recording, u64),
    states: u64,
    mut cuts: Vec<Cut<M>>,
    judge: Judge<'_, M>,
) -> Result<Report> {
    if let (Some(during), None) = (options.during, options.only) {
        cuts.retain(|cut| cut.is_during(during));
        if cuts.is_empty() {
            return Ok(Report::default());
        }
    }
    let per_cut = DriveFailure::all_of(&record.shape, true).len() as u64;
    let rounds = match states {
        u64::MAX => 1,
        _ => (states / (cuts.len() as u64 * per_cut).max(1)).clamp(1, MAX_OUTCOMES_PER_CUT),
    };
    let (restore_rounds, failures_per_cut) = match states {
        u64::MAX => {
            let share = options.states / EVERY_CUT_SHARE / (cuts.len() as u64).max(1);
            (rounds, share.clamp(1, per_cut))
        }
        _ => ((rounds * RESTORE_ROUNDS).min(MAX_OUTCOMES_PER_CUT), per_cut),
    };
    if let Some(only) = options.only {
        cuts.retain(|cut| cut.entry as u64 == only.event);
        if cuts.is_empty() {
            return Err(Error::NoState(only.to_string()));
        }
    } else if options.during.is_some() {
        keep_random(&mut cuts, states / (per_cut * rounds) + 1, options.seed ^ workload);
        cuts.sort_unstable_by_key(|cut| cut.entry);
    } else {
        let wanted = (states / (per_cut * rounds)).saturating_add(1);
        // A rebuild is short beside its workload, and so are moves and reclaims: half of the cuts fall into a rebuild, on a new drive or
        // to spare room, half of the others into a reclaim, and half of what is left into moves.
        let (mut in_rebuild, others): (Vec<_>, Vec<_>) =
            cuts.into_iter().partition(|cut| cut.rebuilding || cut.restoring);
        let (mut in_reclaim, others): (Vec<_>, Vec<_>) = others.into_iter().partition(|cut| cut.reclaiming);
        let (mut in_move, mut others): (Vec<_>, Vec<_>) = others.into_iter().partition(|cut| cut.moving);
        keep_random(&mut in_rebuild, wanted.div_ceil(2), options.seed ^ workload);
        let left = wanted.saturating_sub(in_rebuild.len() as u64);
        keep_random(&mut in_reclaim, left.div_ceil(2), options.seed ^ workload);
        let left = left.saturating_sub(in_reclaim.len() as u64);
        keep_random(&mut in_move, left.div_ceil(2), options.seed ^ workload);
        let left = left.saturating_sub(in_move.len() as u64);
        keep_random(&mut others, left, options.seed ^ workload);
        cuts = others.into_iter().chain(in_move).chain(in_reclaim).chain(in_rebuild).collect();
        cuts.sort_unstable_by_key(|cut| cut.entry);
    }
    let completions: Vec<Completions> =
        (0..record.shape.recorded()).map(|drive| Completions::of(record.events(drive))).collect();
    let explorer = CutExplorer {
        options,
        record,
        workload,
        completions,
        rounds,
        restore_rounds,
        failures_per_cut,
        judge,
    };
    Exploration::new(options, cuts, states).run(|exploration| {
        explorer.run(exploration);
        Ok(())
    })
}

/// Explores the power cuts of one workload of an array.
struct CutExplorer<'a, M> {
    options: &'a CrashOptions,
    record: &'a Recording,
    workload: u64,
    completions: Vec<Completions>,
    /// Outcomes of a cut with each failed drive.
    rounds: u64,
    /// Outcomes of a cut with each failed drive, while lost parts move to spare room.
    restore_rounds: u64,
    /// The mean number of drive failures that are drawn for each cut.
    failures_per_cut: u64,
    judge: Judge<'a, M>,
}

/// The kinds of a crash state that a report counts.
fn kinds<M>(shape: &Shape, failure: DriveFailure, cut: &Cut<M>) -> Vec<StateKind> {
    [
        (StateKind::TwoDrivesLost, failure.lacking(shape, cut.replaced) >= 2),
        (StateKind::CutInRebuild, cut.rebuilding),
        (StateKind::CutInMove, cut.moving),
        (StateKind::CutInReclaim, cut.reclaiming),
        (StateKind::CutInRestore, cut.restoring),
        (StateKind::CutInAppends, cut.appending),
        (StateKind::CutInReset, cut.resetting),
        (StateKind::SpareRoom, shape.spare_drives > 0),
        (StateKind::TwoParities, shape.parities == 2),
        (StateKind::StoredMaps, shape.stored),
        (StateKind::SharedZones, shape.shares > 1),
        (StateKind::JoinedZones, shape.sections > 1),
        (StateKind::AtomicWrites, shape.atomic),
        (StateKind::Scheduler, shape.scheduler.is_some()),
        (StateKind::WornZone, shape.worn().is_some()),
    ]
    .into_iter()
    .filter_map(|(kind, is_one)| is_one.then_some(kind))
    .collect()
}

impl<M: Sync> CutExplorer<'_, M> {
    /// Takes cut after cut and replays the drives' events up to each.
    fn run(&self, exploration: &Exploration<'_, Cut<M>>) {
        let shape = &self.record.shape;
        let mut replays: Vec<Replay<'_>> = (0..shape.recorded())
            .zip(&self.completions)
            .map(|(drive, completions)| {
                Replay::new(Media::new(&shape.drive(drive, Latency::NONE)), completions)
            })
            .collect();
        let mut entries = self.record.entries.iter().enumerate();
        let mut at = None;
        while let Some(cut) = exploration.next() {
            while at.is_none_or(|at| at < cut.entry) {
                let Some((index, entry)) = entries.next() else { break };
                match (entry, shape.worn()) {
                    (Entry::Io(drive, event), _) => {
                        if let Some(replay) = replays.get_mut(*drive) {
                            replay.step(event);
                        }
                    }
                    (Entry::Worn, Some(worn)) => {
                        if let Some(replay) = replays.get(worn.slot) {
                            replay.wear(worn.part(shape.conventional(worn.slot)), worn.state);
                        }
                    }
                    _ => {}
                }
                at = Some(index);
            }
            self.outcomes(exploration, &replays, cut);
        }
    }

    fn outcomes(&self, exploration: &Exploration<'_, Cut<M>>, replays: &[Replay<'_>], cut: &Cut<M>) {
        let failures = DriveFailure::all_of(&self.record.shape, cut.replaced);
        let of = failures.len() as u64;
        let rounds = match self.options.only.map(|only| only.outcome) {
            Some(Outcome::Sampled(n)) => n / of..n / of + 1,
            Some(Outcome::Enumerated(_)) => 0..0,
            None if cut.restoring => 0..self.restore_rounds,
            None => 0..self.rounds,
        };
        for round in rounds {
            // The states of a round share the cut's outcome and differ in the failed drive alone.
            let place = [self.workload, cut.entry as u64, round];
            let images: Vec<Media> = replays
                .iter()
                .zip(0..)
                .map(|(replay, slot)| {
                    let rng = Rng::at(self.options.seed, &place).draw();
                    replay.image().cut(&mut Sample::new(Rng::at(rng, &[slot])))
                })
                .collect();
            let fingerprints: Vec<u128> = images.iter().map(Media::fingerprint).collect();
            let mut drawn = Rng::at(self.options.seed, &[self.workload, cut.entry as u64, round, 0xfa11]);
            for (n, failure) in (round * of..).zip(&failures) {
                let outcome = Outcome::Sampled(n);
                let is_drawn = drawn.below(of) < self.failures_per_cut;
                let is_wanted = self.options.only.map_or(is_drawn, |only| only.outcome == outcome);
                if exploration.is_over() || !is_wanted {
                    continue;
                }
                self.state(exploration, (&images, &fingerprints), cut, outcome, *failure);
            }
        }
    }

    fn state(
        &self,
        exploration: &Exploration<'_, Cut<M>>,
        (images, fingerprints): (&[Media], &[u128]),
        cut: &Cut<M>,
        outcome: Outcome,
        failure: DriveFailure,
    ) {
        let shape = &self.record.shape;
        let present = failure.present(shape);
        let after = failure.after().into_iter().fold(0, |sum, drive| sum << 8 | (drive as u128 + 1));
        let mix =
            |sum: u128, part: u128| (sum ^ part).wrapping_mul(0x0100_0000_0000_0000_0000_0000_0000_013b);
        let parts = present.iter().filter_map(|drive| Some(*drive as u128 ^ *fingerprints.get(*drive)?));
        let fingerprint = parts.fold(mix(1, after), mix);
        if !exploration.is_new(fingerprint, cut.promises, &kinds(shape, failure, cut)) {
            return;
        }
        let images: Images =
            present.iter().filter_map(|drive| Some((*drive, images.get(*drive)?.clone()))).collect();
        let mut faults = Vec::new();
        for _ in 0..probe_attempts(self.options, true) {
            faults = catching_panics(|| (self.judge)(cut, failure, images.clone(), fingerprint as u64));
            if !faults.is_empty() {
                break;
            }
        }
        let id = StateId { workload: self.workload, event: cut.entry as u64, outcome, twice: false };
        exploration.add(
            id,
            &faults,
            |what| format!("{shape:?}, {failure:?}: {what}"),
            || self.replay_command(id),
        );
    }

    fn replay_command(&self, id: StateId) -> String {
        let (target, seed) = (self.options.target, self.options.seed);
        let mut command = format!("furrow crash --target {target} --seed {seed}");
        if self.options.on_array {
            command += " --on array";
        }
        if let Some(volatile) = self.options.volatile_cache {
            command += &format!(" --volatile-cache {volatile}");
        }
        if let Some(path) = &self.record.trace {
            command += &format!(" --trace {}", path.display());
        }
        command + &format!(" --state {id}")
    }
}
