//! The exploration of a target: workload after workload, power cut after power cut, outcome after outcome.

use std::collections::BTreeMap;
use std::panic::catch_unwind;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use zoned::emu::{Exhaustive, Media};
use zoned::{Op, ZoneId};

use crate::array;
use crate::choose::Sample;
use crate::drive::scheduler_goal;
use crate::engine::{self, EngineOracle, EngineWorkload};
use crate::exploration::{
    Exploration, catching_panics, keep_random, panic_message, probe_attempts, sort_failures,
};
use crate::file_log::{self, FileLogOracle};
use crate::files::{self, FilesOracle};
use crate::groups::{self, GroupsOracle};
use crate::model::Progress;
use crate::oracle::{Oracle, Probe, SECOND_CUT_EVERY};
use crate::plan::Plan;
use crate::replay::{Completions, Replay};
use crate::report::StateKind;
use crate::stage::{self, StageOracle};
use crate::tables::{self, TablesOracle};
use crate::trace::{Event, OpNumber, Trace};
use crate::waltz::{self, WaltzOracle};
use crate::{CrashOptions, Error, Outcome, Report, Result, Rng, StateId, Target};

/// A power cut with no more outcomes than this is explored in full.
const MAX_ENUMERATED_OUTCOMES: u64 = 16;
/// Number of random outcomes tried of a power cut with more than [`MAX_ENUMERATED_OUTCOMES`].
const SAMPLED_OUTCOMES: u64 = 12;
/// Number of workloads, roughly, over which an exploration spreads. Logs, stages and engines have more, as their workloads differ in
/// shape.
const TARGET_WORKLOADS: u64 = 10;
const TARGET_LOG_WORKLOADS: u64 = 60;
/// Least number of images that each workload contributes to an exploration.
const MIN_IMAGES_PER_WORKLOAD: u64 = 500;
/// Number of images, roughly, that one power cut gives. Decides how many cuts of a workload are taken.
const IMAGES_PER_CUT: u64 = 6;
/// An exploration ends when this many workloads in a row show no new image.
const MAX_WORKLOADS_WITHOUT_NEW_IMAGE: u32 = 8;

/// A point at which the power is cut.
struct Cut {
    /// The event after which the power is cut.
    event: usize,
    /// The steps that had begun at the cut, and the steps that were promised before the next event at the device: the strictest
    /// pair for the judge.
    progress: Arc<Progress>,
    /// Number of promised steps. Equal images under equal promises are checked once.
    promises: u64,
    /// Whether appends to several zones are in flight at the cut.
    crossing: bool,
    /// Whether appended bytes of files were in memory only, as the workload's last step saw it.
    dirty: bool,
}

/// Explores a target.
///
/// The report holds the defects. An error means that the exploration itself could not run.
pub fn crash(options: &CrashOptions) -> Result<Report> {
    if options.during.is_some() && options.target != Target::Array {
        return Err(Error::NoCutsDuring(options.target.to_string()));
    }
    if options.on_array && options.target == Target::Tables {
        return Err(Error::NotOnArray(options.target.to_string()));
    }
    // Engines' workloads, on an array too, are not functions of the seed: their traces are saved, then explored.
    if options.target == Target::Array || options.on_array && !options.target.is_engine() {
        return match (options.trace.is_some(), options.target) {
            (true, _) => Err(Error::NoTrace),
            (false, Target::Array) => array::crash(options),
            (false, _) => array::stack::crash(options),
        };
    }
    if let Some(path) = options.trace.as_deref().filter(|path| path.exists()) {
        let (path, trace) = trace_of(path, options.only)?;
        return explore(options, &trace, Some(&path), options.states);
    }
    if let Some(only) = options.only {
        if options.target.is_engine() {
            return Err(Error::NeedsTrace(only.to_string()));
        }
        let trace = record(options, only.workload)?;
        return explore(options, &trace, None, 1);
    }
    let mut report = Report::default();
    let mut without_states = 0;
    let mut workload = 0;
    while report.states < options.states && without_states < MAX_WORKLOADS_WITHOUT_NEW_IMAGE {
        let trace = record(options, workload)?;
        let saved = match (&options.trace, options.target) {
            (Some(path), _) => Some(trace_path(path, workload)),
            (None, target) if target.is_engine() => {
                let name = format!("furrow-{target}-{}-{}.trace", options.seed, std::process::id());
                Some(trace_path(&std::env::temp_dir().join(name), workload))
            }
            (None, _) => None,
        };
        if let Some(path) = &saved {
            trace.save(path)?;
        }
        let shapes = options.target.is_engine()
            || matches!(
                options.target,
                Target::Log | Target::Waltz | Target::Stage | Target::Prio | Target::Groups
            );
        let workloads = if shapes { TARGET_LOG_WORKLOADS } else { TARGET_WORKLOADS };
        let share =
            (options.states / workloads).max(MIN_IMAGES_PER_WORKLOAD).min(options.states - report.states);
        let found = explore(options, &trace, saved.as_deref(), share)?;
        if let (Some(path), None, true) = (&saved, &options.trace, found.is_clean()) {
            let _stays_in_the_temporary_directory = std::fs::remove_file(path);
        }
        without_states = if found.states == 0 { without_states + 1 } else { 0 };
        report.add(found);
        if options.first_failure && !report.is_clean() {
            break;
        }
        workload += 1;
    }
    sort_failures(&mut report);
    Ok(report)
}

/// Loads the trace that holds the workload of the crash state `only`: the file itself, or the file beside it with the
/// workload's number.
fn trace_of(path: &Path, only: Option<StateId>) -> Result<(PathBuf, Trace)> {
    let fits = |trace: &Trace| only.is_none_or(|only| only.workload == trace.workload);
    let trace = Trace::load(path)?;
    if fits(&trace) {
        return Ok((path.to_owned(), trace));
    }
    let beside = only.map(|only| trace_path(path, only.workload)).filter(|path| path.exists());
    let loaded = beside.map(|path| Trace::load(&path).map(|trace| (path, trace))).transpose()?;
    let wrong =
        || Error::OtherWorkload(only.map_or_else(String::new, |only| only.to_string()), trace.workload);
    loaded.filter(|(_, trace)| fits(trace)).ok_or_else(wrong)
}

/// The file of a workload's trace: `path` for workload 0, `path` with the number appended for any other.
fn trace_path(path: &Path, workload: u64) -> PathBuf {
    if workload == 0 { path.to_owned() } else { PathBuf::from(format!("{}.{workload}", path.display())) }
}

fn record(options: &CrashOptions, workload: u64) -> Result<Trace> {
    let volatile = options.volatile_cache.unwrap_or(workload % 4 != 3);
    let run = || match options.target {
        Target::Fs | Target::Log => {
            files::record(options.target, options.seed, workload, volatile, options.broken_rules)
        }
        Target::Engine | Target::LevelDb => {
            let CrashOptions { target, seed, broken_rules, .. } = *options;
            let of = EngineWorkload { target, seed, workload, volatile_cache: volatile };
            if options.on_array {
                array::engine::record(of, broken_rules)
            } else {
                engine::record(of, broken_rules)
            }
        }
        Target::Array => unreachable!("the target array records its own workloads"),
        Target::Waltz => waltz::record(options.seed, workload, volatile, options.broken_rules),
        Target::Stage => stage::record(options.seed, workload, volatile, options.broken_rules),
        Target::Prio => file_log::record(options.seed, workload, volatile, options.broken_rules),
        Target::Groups => groups::record(options.seed, workload, volatile, options.broken_rules),
        Target::Tables => tables::record(options.seed, workload, volatile, options.broken_rules),
    };
    catch_unwind(run).unwrap_or_else(|panic| {
        let place = format!("{}, seed {}, workload {workload}", options.target, options.seed);
        Err(Error::Workload(format!("{place}: panic: {}", panic_message(&*panic))))
    })
}

fn oracle_of(trace: &Trace, options: &CrashOptions) -> Box<dyn Oracle> {
    match trace.target {
        Target::Fs | Target::Log => Box::new(FilesOracle::new(trace, options.broken_rules)),
        Target::Engine | Target::LevelDb => Box::new(EngineOracle::new(trace, options.broken_rules)),
        Target::Array => unreachable!("a trace is of one drive"),
        Target::Waltz => Box::new(WaltzOracle::new(trace, options.broken_rules)),
        Target::Stage => Box::new(StageOracle::new(trace, options.broken_rules)),
        Target::Prio => Box::new(FileLogOracle::new(trace, options.broken_rules)),
        Target::Groups => Box::new(GroupsOracle::new(trace, options.broken_rules)),
        Target::Tables => Box::new(TablesOracle::new(trace, options.broken_rules)),
    }
}

/// Every point of a trace at which the power may be cut.
fn cuts(trace: &Trace) -> Vec<Cut> {
    let tasks = 1 + trace
        .events
        .iter()
        .filter_map(|e| match e {
            Event::Attempt { step } => Some(Plan::task_and_index(*step).0),
            _ => None,
        })
        .max()
        .unwrap_or(0);
    let mut progress = Progress::new(tasks);
    let mut promises = 0;
    let (mut ready, mut dirty) = (false, false);
    let mut cuts: Vec<Cut> = Vec::new();
    let mut in_flight: BTreeMap<OpNumber, ZoneId> = BTreeMap::new();
    for (at, event) in trace.events.iter().enumerate() {
        match event {
            Event::Attempt { .. } => progress.did(event),
            Event::Acknowledged { .. } => {
                progress.did(event);
                promises += 1;
                if let Some(cut) = cuts.last_mut() {
                    let strict = Progress {
                        attempted: cut.progress.attempted.clone(),
                        promised: progress.promised.clone(),
                    };
                    cut.progress = Arc::new(strict);
                    cut.promises = promises;
                }
            }
            Event::Ready => ready = true,
            Event::Dirty { bytes } => dirty = *bytes > 0,
            Event::Submit { op, what: Op::Append { zone, .. } } => drop(in_flight.insert(*op, *zone)),
            Event::Acked { op, .. } | Event::Refused { op } => drop(in_flight.remove(op)),
            Event::Submit { .. } | Event::Failed { .. } | Event::Drive { .. } => {}
        }
        if ready && matches!(event, Event::Submit { .. } | Event::Acked { .. }) {
            let mut zones = in_flight.values();
            let first = zones.next();
            let crossing = zones.any(|zone| Some(zone) != first);
            cuts.push(Cut { event: at, progress: Arc::new(progress.clone()), promises, crossing, dirty });
        }
    }
    cuts
}

fn explore(options: &CrashOptions, trace: &Trace, saved: Option<&Path>, states: u64) -> Result<Report> {
    if trace.is_of_an_array() {
        return array::engine::explore(options, trace, saved, states);
    }
    explore_trace(options, trace, saved, states, &*oracle_of(trace, options))
}

fn explore_trace(
    options: &CrashOptions,
    trace: &Trace,
    saved: Option<&Path>,
    states: u64,
    oracle: &dyn Oracle,
) -> Result<Report> {
    let mut cuts = cuts(trace);
    if let Some(only) = options.only {
        cuts.retain(|cut| cut.event as u64 == only.event);
        if cuts.is_empty() {
            return Err(Error::NoState(only.to_string()));
        }
    } else {
        keep_cuts(&mut cuts, states / IMAGES_PER_CUT + 1, trace);
    }
    let explorer = CutExplorer { options, trace, saved, oracle };
    Exploration::new(options, cuts, states).run(|exploration| explorer.run(exploration))
}

/// Keeps `wanted` power cuts, chosen at random. The engine's logs seldom replace a zone: half of an engine's cuts find appends
/// to several zones in flight.
fn keep_cuts(cuts: &mut Vec<Cut>, wanted: u64, trace: &Trace) {
    let seed = trace.seed ^ trace.workload;
    if !trace.target.is_engine() {
        return keep_random(cuts, wanted, seed);
    }
    let (mut crossing, mut others): (Vec<Cut>, Vec<Cut>) = cuts.drain(..).partition(|cut| cut.crossing);
    keep_random(&mut crossing, wanted.div_ceil(2), seed);
    keep_random(&mut others, wanted - crossing.len() as u64, seed);
    cuts.append(&mut crossing);
    cuts.append(&mut others);
    cuts.sort_by_key(|cut| cut.event);
}

/// Explores the power cuts of one trace.
struct CutExplorer<'a> {
    options: &'a CrashOptions,
    trace: &'a Trace,
    saved: Option<&'a Path>,
    oracle: &'a dyn Oracle,
}

impl CutExplorer<'_> {
    /// Takes cut after cut and replays the trace up to each.
    fn run(&self, exploration: &Exploration<'_, Cut>) -> Result<()> {
        let completions = Completions::of(&self.trace.events);
        let mut replay = Replay::new(self.trace.drive.medium()?, &completions);
        let mut events = self.trace.events.iter().enumerate();
        let mut at = None;
        while let Some(cut) = exploration.next() {
            while at.is_none_or(|at| at < cut.event) {
                let Some((index, event)) = events.next() else { break };
                replay.step(event);
                at = Some(index);
            }
            self.outcomes(exploration, &replay.image(), cut);
        }
        Ok(())
    }

    fn outcomes(&self, exploration: &Exploration<'_, Cut>, media: &Media, cut: &Cut) {
        let id = |outcome| StateId {
            workload: self.trace.workload,
            event: cut.event as u64,
            outcome,
            twice: false,
        };
        let mut all = Exhaustive::new();
        all.next();
        let only = self.options.only.map(|only| only.outcome);
        let mut enumerated = 0;
        let more = loop {
            let image = media.cut(&mut all);
            if only.is_none_or(|only| only == Outcome::Enumerated(enumerated)) {
                self.probe_image(exploration, image, cut, id(Outcome::Enumerated(enumerated)));
            }
            enumerated += 1;
            let more = all.next();
            if !more || enumerated == MAX_ENUMERATED_OUTCOMES || exploration.is_over() {
                break more;
            }
        };
        let samples = match only {
            Some(Outcome::Sampled(n)) => n..n + 1,
            Some(Outcome::Enumerated(_)) => 0..0,
            None if more => 0..SAMPLED_OUTCOMES,
            None => 0..0,
        };
        for n in samples {
            if exploration.is_over() {
                return;
            }
            let place = [self.trace.workload, cut.event as u64, n];
            let image = media.cut(&mut Sample::new(Rng::at(self.trace.seed, &place)));
            self.probe_image(exploration, image, cut, id(Outcome::Sampled(n)));
        }
    }

    /// Whether the drive of the recorded workload had a scheduler.
    fn has_scheduler(&self) -> bool {
        let may_have =
            matches!(self.trace.target, Target::Fs | Target::Log | Target::Engine | Target::LevelDb);
        may_have && scheduler_goal(self.trace.seed, self.trace.workload).is_some()
    }

    fn probe_image(&self, exploration: &Exploration<'_, Cut>, image: Media, cut: &Cut, mut id: StateId) {
        let fingerprint = image.fingerprint();
        match self.options.only {
            Some(only) => id.twice = only.twice,
            None => id.twice = Rng::at(self.trace.seed, &[fingerprint as u64]).below(SECOND_CUT_EVERY) == 0,
        }
        let kinds = [
            (
                StateKind::ConventionalZones,
                self.trace.drive.conventional > 0 && self.trace.target != Target::Prio,
            ),
            (StateKind::DirtyPages, cut.dirty),
            (StateKind::Scheduler, self.has_scheduler()),
        ];
        let kinds: Vec<StateKind> = kinds.into_iter().filter(|(_, is)| *is).map(|(kind, _)| kind).collect();
        if !exploration.is_new(fingerprint, cut.promises, &kinds) {
            return;
        }
        let probe = Probe { twice: id.twice, seed: fingerprint as u64, event: cut.event };
        let mut faults = Vec::new();
        for _ in 0..probe_attempts(self.options, id.twice) {
            let image = image.clone();
            faults = catching_panics(|| self.oracle.probe(image, &cut.progress, probe));
            if !faults.is_empty() {
                break;
            }
        }
        exploration.add(id, &faults, |what| what, || self.replay_command(id));
    }

    /// The command that replays a crash state. A rule broken on purpose has no flag: tests break it, and replay by calls.
    fn replay_command(&self, id: StateId) -> String {
        let mut command = format!("furrow crash --target {} --seed {}", self.trace.target, self.trace.seed);
        if let Some(volatile) = self.options.volatile_cache {
            command += &format!(" --volatile-cache {volatile}");
        }
        if let Some(path) = self.saved {
            command += &format!(" --trace {}", path.display());
        }
        command + &format!(" --state {id}")
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::time::Duration;

    use units::{Driver, VirtualDriver, block_on};
    use zoned::emu::{Emu, Latency, Media};
    use zoned::{Buf, BufMut, Durability, Lba, ZonedDevice};

    use super::*;
    use crate::model::Fault;
    use crate::report::FailureKind;
    use crate::trace::Drive;
    use crate::{Recorder, Step};

    /// A trace of a workload that needs no file system: block after block in one zone, each promised once a flush that began
    /// after its acknowledgement is through. `early`: blocks are promised before that flush.
    fn trace_of_block_writes(early: bool, volatile: bool) -> Trace {
        let drive = Drive::tiny(volatile);
        let driver: Arc<dyn Driver> = VirtualDriver::new(1);
        let latency = Latency::all(Duration::from_micros(10));
        let recorder = Recorder::new(Emu::memory(drive.options("emu:test", latency), driver), Duration::ZERO);
        let device = Arc::clone(&recorder) as Arc<dyn ZonedDevice>;
        block_on(&**device.driver(), async {
            recorder.ready();
            for n in 0..8 {
                recorder.attempt(Step(n));
                let data = Buf::copy_from(&[n as u8 + 1; 4096]);
                device.write(Lba(16 + n), data, Durability::Cached).await.expect("written");
                if early {
                    recorder.acknowledged(Step(n));
                }
                if n % 2 == 1 {
                    device.flush().await.expect("flushed");
                    recorder.acknowledged(Step(n - 1));
                    recorder.acknowledged(Step(n));
                }
            }
        });
        Trace {
            target: Target::Log,
            seed: 1,
            workload: 0,
            drive,
            ordered: false,
            modelled: false,
            events: recorder.take(),
        }
    }

    struct BlockOracle;

    impl Oracle for BlockOracle {
        fn probe(&self, image: Media, progress: &Progress, _: Probe) -> Vec<Fault> {
            let driver: Arc<dyn Driver> = VirtualDriver::new(1);
            let device: Arc<dyn ZonedDevice> = Emu::from_media(image, "emu:test", Latency::NONE, driver);
            // The judge of the test's blocks does not use the zone's write pointer: an open zone may come back full.
            let there = |n: usize| {
                let block = device.read(Lba(16 + n as u64), BufMut::zeroed(4096)).wait().expect("read");
                block[..] == [n as u8 + 1; 4096]
            };
            let mut faults = Vec::new();
            let mut fault = |kind, n| faults.push(Fault { kind, what: format!("block {n}") });
            (0..progress.promised[0].len()).filter(|n| !there(*n)).for_each(|n| fault(FailureKind::Lost, n));
            (progress.attempted[0]..14).filter(|n| there(*n)).for_each(|n| fault(FailureKind::Invented, n));
            faults
        }
    }

    fn run(trace: &Trace, only: Option<StateId>) -> Report {
        // The exploration runs on one thread, so that always the same one of two cuts with equal images counts the state.
        let threads = Some(1);
        let options = CrashOptions { only, threads, ..CrashOptions::new(Target::Log, 1, 100_000) };
        explore_trace(&options, trace, None, 100_000, &BlockOracle).expect("runs")
    }

    #[test]
    fn blocks_that_a_flush_covers_survive_every_cut() {
        for volatile in [true, false] {
            let report = run(&trace_of_block_writes(false, volatile), None);
            assert!(report.is_clean() && report.states > 16, "{report:?}");
        }
    }

    #[test]
    fn a_promise_before_the_flush_is_found_and_its_state_replays() {
        assert!(
            run(&trace_of_block_writes(true, false), None).is_clean(),
            "without a cache the promise holds"
        );
        let trace = trace_of_block_writes(true, true);
        let report = run(&trace, None);
        assert!(report.lost > 0 && report.invented == 0, "{report:?}");
        for failure in &report.failures {
            let again = run(&trace, Some(failure.state));
            assert_eq!((again.states, again.lost), (1, 1), "{failure:?}");
        }
    }

    #[test]
    fn a_state_is_looked_for_in_the_trace_of_its_workload() {
        let directory = tempfile::tempdir().expect("a directory");
        let path = directory.path().join("blocks.trace");
        for workload in [0, 3] {
            let trace = Trace { workload, ..trace_of_block_writes(true, true) };
            trace.save(&trace_path(&path, workload)).expect("saved");
        }
        let state = |id: &str| Some(id.parse::<StateId>().expect("a state"));
        for (id, workload) in [(None, 0), (state("0.4.e0"), 0), (state("3.4.e0"), 3)] {
            assert_eq!(trace_of(&path, id).expect("there").1.workload, workload);
        }
        let (file, trace) = trace_of(&trace_path(&path, 3), state("3.4.e0")).expect("there");
        assert_eq!((file, trace.workload), (trace_path(&path, 3), 3));
        let error = trace_of(&path, state("2.4.e0")).expect_err("no trace of workload 2");
        assert!(matches!(error, Error::OtherWorkload(_, 0)), "{error}");
    }

    #[test]
    fn a_decoded_trace_explores_like_the_recorded_one() {
        let trace = trace_of_block_writes(true, true);
        let again = Trace::decode(&trace.encode()).expect("valid");
        assert_eq!(run(&trace, None), run(&again, None));
    }
}
