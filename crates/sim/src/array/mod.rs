//! The target `array`: every point at which the power may go, times an outcome of its own for each drive, times one
//! lost drive.
//!
//! A workload runs on an array of recorded drives, some of them without a drive from the beginning, some losing one on
//! the way. Each cut is taken in as many variants as there are drives to lose: none, each *at* the cut, each *after* the
//! mount. Every state is mounted, compared with the model and read again; one in a few is written on, cut again, and
//! mounted again, and in one in a few the mount itself is cut.

mod model;
mod workload;

use std::collections::HashSet;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use ::array::{Array, CreateOptions, OpenOptions, Sabotage};
use parking_lot::Mutex;
use units::{Bytes, Driver, VirtualDriver, block_on, sleep_until, spawn};
use zoned::emu::{Emu, EmuOptions, FaultOp, FaultSpec, Latency, Media};
use zoned::{Blocks, ZonedDevice};

use crate::array::model::{Mark, Shown, ZonesModel};
use crate::array::workload::{Task, show};
use crate::choose::Sample;
use crate::model::Fault;
use crate::replay::{Fates, Replay};
use crate::report::FailureKind;
use crate::trace::Event;
use crate::{CrashOptions, Error, Failure, Outcome, Recorder, Report, Result, Rng, StateId, Target};

/// Logical zones.
const ZONES: u32 = 6;
/// Steps of each of two tasks.
const STEPS: usize = 90;
/// Acknowledgements come up to this much later than the drive's own delay.
const JITTER: Duration = Duration::from_micros(30);
/// Samples of a cut with the same drive lost.
const ROUNDS: u64 = 2;
/// One state in this many is written on and cut again, and as many have their mount cut.
const TWICE: u64 = 4;
/// Failures that a report describes.
const DESCRIBED: usize = 20;
/// An exploration spreads over about so many workloads.
const WORKLOADS: u64 = 20;
/// But looks at so many states of each at least.
const SHARE: u64 = 300;

/// What happened, on which drive.
enum Entry {
    Io(usize, Event),
    Did(Mark),
    Ready,
}

/// Which drive is lost before the cut.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Lost {
    None,
    /// The array never had it.
    Before(usize),
    /// It fails in the middle of the workload; at the mount it is there again, or not.
    During(usize, bool),
}

/// What a workload runs on: a function of the seed and its number.
#[derive(Clone, Copy, Debug)]
struct Shape {
    drives: usize,
    unit: u64,
    capacity: u64,
    cache: bool,
    lost: Lost,
}

impl Shape {
    fn of(options: &CrashOptions, workload: u64) -> Shape {
        let mut rng = Rng::at(options.seed, &[workload, 0xa44a]);
        let shapes = [(3, 1, 48), (4, 2, 61), (5, 2, 64), (5, 4, 90), (3, 5, 93)];
        let (drives, unit, capacity) = shapes.get(rng.index(shapes.len())).copied().unwrap_or((3, 1, 48));
        let slot = rng.index(drives);
        let lost = match workload % 4 {
            1 => Lost::Before(slot),
            3 => Lost::During(slot, rng.chance(50)),
            _ => Lost::None,
        };
        let cache = options.volatile_cache.unwrap_or(workload % 5 != 4);
        Shape { drives, unit, capacity, cache, lost }
    }

    fn drive(&self, slot: usize, latency: Latency) -> EmuOptions {
        EmuOptions {
            name: format!("emu:{slot}"),
            block_size: 512,
            zones: ZONES + 3,
            zone_size: Blocks(self.capacity),
            zone_capacity: Blocks(self.capacity),
            max_open: Some(8),
            max_active: Some(9),
            volatile_cache: self.cache,
            track_power_cuts: true,
            latency,
            seed: slot as u64,
            ..EmuOptions::default()
        }
    }
}

fn latency() -> Latency {
    Latency { flush: Duration::from_micros(30), ..Latency::all(Duration::from_micros(10)) }
}

/// A recorded workload.
struct Record {
    shape: Shape,
    entries: Vec<Entry>,
}

/// Explores; see [`CrashOptions`].
pub(crate) fn crash(options: &CrashOptions) -> Result<Report> {
    if let Some(only) = options.only {
        let record = record(options, only.workload)?;
        return explore(options, &record, only.workload, 1);
    }
    let mut report = Report::default();
    let mut workload = 0;
    while report.states < options.states {
        let record = record(options, workload)?;
        let share = (options.states / WORKLOADS).max(SHARE).min(options.states - report.states);
        report.add(explore(options, &record, workload, share)?);
        if options.first_failure && !report.is_clean() {
            break;
        }
        workload += 1;
    }
    report.failures.sort();
    report.failures.truncate(DESCRIBED);
    Ok(report)
}

fn record(options: &CrashOptions, workload: u64) -> Result<Record> {
    let shape = Shape::of(options, workload);
    let place = format!("{}, seed {}, workload {workload} ({shape:?})", Target::Array, options.seed);
    let seed = Rng::at(options.seed, &[workload]).draw();
    let run = || {
        let driver: Arc<dyn Driver> = VirtualDriver::new(seed);
        let drives: Vec<Arc<Emu>> = (0..shape.drives)
            .map(|slot| Emu::memory(shape.drive(slot, latency()), Arc::clone(&driver)))
            .collect();
        let journal: Arc<Mutex<Vec<Entry>>> = Arc::default();
        block_on(&*driver, run(&shape, seed, &drives, &journal, options.array_sabotage))?;
        Ok(std::mem::take(&mut *journal.lock()))
    };
    let entries: std::result::Result<Vec<Entry>, String> = catch_unwind(AssertUnwindSafe(run))
        .unwrap_or_else(|panic| Err(format!("panic: {}", crate::explore::words(&*panic))));
    Ok(Record { shape, entries: entries.map_err(|why| Error::Workload(format!("{place}: {why}")))? })
}

async fn run(
    shape: &Shape,
    seed: u64,
    drives: &[Arc<Emu>],
    journal: &Arc<Mutex<Vec<Entry>>>,
    sabotage: Option<Sabotage>,
) -> std::result::Result<(), String> {
    let driver = Arc::clone(drives.first().expect("at least three").driver());
    let first =
        Recorder::new(Arc::clone(drives.first().expect("at least three")) as Arc<dyn ZonedDevice>, JITTER);
    let mut devices: Vec<Arc<dyn ZonedDevice>> = Vec::new();
    for (slot, emu) in drives.iter().enumerate() {
        let sink = Arc::clone(journal);
        let write = move |event| sink.lock().push(Entry::Io(slot, event));
        devices.push(first.sibling(Arc::clone(emu) as Arc<dyn ZonedDevice>, Arc::new(write)));
    }
    let unit = Bytes(shape.unit * 512);
    let create = CreateOptions { stripe_unit: unit, ..CreateOptions::default() };
    ::array::create(&devices, &create).await.map_err(|e| format!("create: {e}"))?;
    if let Lost::Before(slot) = shape.lost {
        devices.remove(slot);
    }
    let array = Array::open(devices, OpenOptions { sabotage, ..OpenOptions::default() })
        .await
        .map_err(|e| format!("open: {e}"))?;
    let device: Arc<dyn ZonedDevice> = array;
    journal.lock().push(Entry::Ready);
    let tasks: Vec<_> = (0..2_u32)
        .map(|task| {
            let sink = Arc::clone(journal);
            let sink = Arc::new(move |mark| sink.lock().push(Entry::Did(mark)));
            let zones = task * ZONES / 2..(task + 1) * ZONES / 2;
            let task = Task::new(&device, sink, seed ^ u64::from(task), zones, &[], STEPS);
            spawn(&*driver, "workload", task.run())
        })
        .collect();
    if let Lost::During(slot, _) = shape.lost {
        let when = Duration::from_micros(200 + seed % 3_000);
        sleep_until(&*driver, driver.now().after(when)).await;
        if let Some(emu) = drives.get(slot) {
            fail(emu);
        }
    }
    for task in tasks {
        task.await?;
    }
    Ok(())
}

/// Everything that the drive is asked from now on fails.
fn fail(emu: &Emu) {
    for op in [FaultOp::Read, FaultOp::Write, FaultOp::Flush, FaultOp::Zone] {
        emu.fail(FaultSpec::all(op));
    }
}

/// Which drive is lost at or after a cut.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Loss {
    None,
    At(usize),
    After(usize),
}

/// A point at which the power is cut, and the model then: begun by then, and promised before anything else happens.
struct Cut {
    entry: usize,
    model: ZonesModel,
}

fn cuts(record: &Record, options: &CrashOptions, workload: u64, states: u64) -> Vec<Cut> {
    let mut model = ZonesModel::new(ZONES as usize);
    let mut cuts: Vec<Cut> = Vec::new();
    let ready = record.entries.iter().position(|entry| matches!(entry, Entry::Ready)).unwrap_or(0);
    let points: Vec<usize> = (ready..record.entries.len())
        .filter(|at| matches!(record.entries.get(*at), Some(Entry::Io(..))))
        .collect();
    // As many as the states that are wanted, spread over the whole of it.
    let per_cut = variants(&record.shape).len() as u64 * ROUNDS;
    let wanted = usize::try_from(states / per_cut + 1).unwrap_or(usize::MAX).min(points.len());
    let mut rng = Rng::at(options.seed, &[workload, 0xc07]);
    let mut chosen = HashSet::new();
    for (left, (n, at)) in points.iter().enumerate().map(|(n, at)| (points.len() - n, (n, at))) {
        let _ = n;
        if rng.index(left) < wanted - chosen.len().min(wanted) {
            chosen.insert(*at);
        }
    }
    if let Some(only) = options.only {
        chosen = [usize::try_from(only.event).unwrap_or(usize::MAX)].into_iter().collect();
    }
    let mut last_io = None;
    for (at, entry) in record.entries.iter().enumerate() {
        match entry {
            Entry::Io(..) => {
                last_io = Some(at);
                if chosen.contains(&at) && at > ready {
                    cuts.push(Cut { entry: at, model: model.clone() });
                }
            }
            Entry::Did(mark) => {
                model.apply(mark);
                if let Some(cut) =
                    cuts.last_mut().filter(|cut| mark.is_promise() && Some(cut.entry) == last_io)
                {
                    cut.model.apply(mark);
                }
            }
            Entry::Ready => {}
        }
    }
    cuts
}

fn variants(shape: &Shape) -> Vec<Loss> {
    if shape.lost != Lost::None {
        return vec![Loss::None];
    }
    let slots = || 0..shape.drives;
    [Loss::None].into_iter().chain(slots().map(Loss::At)).chain(slots().map(Loss::After)).collect()
}

struct Walk<'a> {
    options: &'a CrashOptions,
    record: &'a Record,
    workload: u64,
    cuts: Vec<Cut>,
    fates: Vec<Fates>,
    limit: u64,
    next: AtomicUsize,
    stop: AtomicBool,
    found: Mutex<Found>,
}

#[derive(Default)]
struct Found {
    states: HashSet<(u128, usize)>,
    report: Report,
}

fn explore(options: &CrashOptions, record: &Record, workload: u64, states: u64) -> Result<Report> {
    let cuts = cuts(record, options, workload, states);
    if let (Some(only), true) = (options.only, cuts.is_empty()) {
        return Err(Error::NoState(only.to_string()));
    }
    let events = |slot| {
        record.entries.iter().filter_map(move |entry| match entry {
            Entry::Io(of, event) if *of == slot => Some(event),
            _ => None,
        })
    };
    let fates = (0..record.shape.drives).map(|slot| Fates::of(events(slot))).collect();
    let walk = Walk {
        options,
        record,
        workload,
        cuts,
        fates,
        limit: states,
        next: AtomicUsize::new(0),
        stop: AtomicBool::new(false),
        found: Mutex::default(),
    };
    let processors = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
    let threads = if options.only.is_some() { 1 } else { options.threads.unwrap_or(processors).max(1) };
    std::thread::scope(|scope| {
        let threads: Vec<_> = (0..threads).map(|_| scope.spawn(|| walk.run())).collect();
        threads.into_iter().for_each(|thread| thread.join().expect("a walker catches panics"));
    });
    let found = walk.found.into_inner();
    let mut report = found.report;
    report.states = found.states.len() as u64;
    report.failures.sort();
    report.failures.truncate(DESCRIBED);
    Ok(report)
}

impl Walk<'_> {
    fn run(&self) {
        let shape = &self.record.shape;
        let mut replays: Vec<Replay<'_>> = (0..shape.drives)
            .zip(&self.fates)
            .map(|(slot, fates)| Replay::new(Media::new(&shape.drive(slot, Latency::NONE)), fates))
            .collect();
        let mut entries = self.record.entries.iter().enumerate();
        let mut at = None;
        while !self.stop.load(Ordering::Relaxed) {
            let Some(cut) = self.cuts.get(self.next.fetch_add(1, Ordering::Relaxed)) else { break };
            while at.is_none_or(|at| at < cut.entry) {
                let Some((index, entry)) = entries.next() else { break };
                if let Entry::Io(slot, event) = entry
                    && let Some(replay) = replays.get_mut(*slot)
                {
                    replay.step(event);
                }
                at = Some(index);
            }
            self.outcomes(&replays, cut);
        }
    }

    fn outcomes(&self, replays: &[Replay<'_>], cut: &Cut) {
        let variants = variants(&self.record.shape);
        let only = self.options.only.map(|only| only.outcome);
        for n in 0..ROUNDS * variants.len() as u64 {
            if only.is_some_and(|only| only != Outcome::Sampled(n)) {
                continue;
            }
            if self.stop.load(Ordering::Relaxed) {
                return;
            }
            let loss =
                variants.get(usize::try_from(n).unwrap_or(0) % variants.len()).copied().unwrap_or(Loss::None);
            // Variants of one round share their outcome: what the loss makes of it is to be seen.
            let round = n / variants.len() as u64;
            let place = [self.workload, cut.entry as u64, round];
            let images: Vec<Media> = replays
                .iter()
                .zip(0..)
                .map(|(replay, slot)| {
                    let rng = Rng::at(self.options.seed, &place).draw();
                    replay.image().cut(&mut Sample::new(Rng::at(rng, &[slot])))
                })
                .collect();
            self.state(images, cut, n, loss);
        }
    }

    fn state(&self, images: Vec<Media>, cut: &Cut, n: u64, loss: Loss) {
        let mix =
            |sum: u128, image: &Media| sum.wrapping_mul(0x0100_0000_01b3).wrapping_add(image.fingerprint());
        let fingerprint = images.iter().fold(n as u128 % variants(&self.record.shape).len() as u128, mix);
        {
            let mut found = self.found.lock();
            if !found.states.insert((fingerprint, cut.entry)) {
                return;
            }
            if found.states.len() as u64 >= self.limit {
                self.stop.store(true, Ordering::Relaxed);
            }
        }
        let probe = || self.probe(images, cut, loss, fingerprint as u64);
        let faults = catch_unwind(AssertUnwindSafe(probe)).unwrap_or_else(|panic| {
            let what = format!("panic: {}", crate::explore::words(&*panic));
            vec![Fault { kind: FailureKind::Mount, what }]
        });
        if faults.is_empty() {
            return;
        }
        let state = StateId {
            workload: self.workload,
            event: cut.entry as u64,
            outcome: Outcome::Sampled(n),
            twice: false,
        };
        let mut found = self.found.lock();
        for kind in [FailureKind::Lost, FailureKind::Invented, FailureKind::Mount, FailureKind::Check] {
            let what: Vec<&str> = faults.iter().filter(|f| f.kind == kind).map(|f| f.what.as_str()).collect();
            if what.is_empty() {
                continue;
            }
            found.report.count(kind);
            if found.report.failures.len() < DESCRIBED {
                let mut replay_command = format!("furrow crash --target array --seed {}", self.options.seed);
                if let Some(volatile) = self.options.volatile_cache {
                    replay_command += &format!(" --volatile-cache {volatile}");
                }
                replay_command += &format!(" --state {state}");
                let what = format!("{:?}, {loss:?}: {}", self.record.shape, what.join("; "));
                found.report.failures.push(Failure { kind, state, what, replay_command });
            }
        }
        if self.options.first_failure {
            self.stop.store(true, Ordering::Relaxed);
        }
    }

    /// Mounts, compares, goes on.
    fn probe(&self, mut images: Vec<Media>, cut: &Cut, loss: Loss, seed: u64) -> Vec<Fault> {
        let shape = &self.record.shape;
        let gone = match (loss, shape.lost) {
            (Loss::At(slot), _) | (_, Lost::Before(slot) | Lost::During(slot, false)) => Some(slot),
            _ => None,
        };
        if let Some(slot) = gone {
            images.remove(slot);
        }
        let strict = gone.is_none() && shape.lost == Lost::None;
        let mut rng = Rng::at(seed, &[1]);
        // The mount is cut, perhaps more than once.
        while rng.below(TWICE) == 0 {
            let bench = Bench::over(images, rng.draw());
            let time = Duration::from_micros(rng.below(1_500));
            let open = Array::open(bench.devices(None), self.open(bench.seed));
            block_on(&*bench.driver, async {
                drop(spawn(&*bench.driver, "mount", async move { drop(open.await) }));
                sleep_until(&*bench.driver, bench.driver.now().after(time)).await;
            });
            images = bench.cut(&mut rng);
        }
        let bench = Bench::over(images, rng.draw());
        let (shown, mut faults) = match self.mount(&bench, None) {
            Ok((device, shown)) => {
                let faults = cut.model.judge(&shown, strict);
                if faults.is_empty() && loss == Loss::None && rng.below(TWICE) == 0 {
                    return self.write_on(&bench, &device, &shown, &mut rng);
                }
                (shown, faults)
            }
            Err(fault) => return vec![fault],
        };
        if let Loss::After(slot) = loss {
            match self.mount(&bench, Some(slot)) {
                Ok((_, again)) => faults.extend(cut.model.judge_again(&shown, &again)),
                Err(fault) => faults.push(fault),
            }
        }
        faults
    }

    /// Half of all mounts rebuild every zone with hidden rows, the others relocate what is written there.
    fn open(&self, seed: u64) -> OpenOptions {
        let rebuild_above = Bytes(if seed.is_multiple_of(2) { 0 } else { 1 << 20 });
        OpenOptions { sabotage: self.options.array_sabotage, rebuild_above, ..OpenOptions::default() }
    }

    fn mount(
        &self,
        bench: &Bench,
        without: Option<usize>,
    ) -> std::result::Result<(Arc<dyn ZonedDevice>, Vec<Shown>), Fault> {
        let fault = |kind, what| Fault { kind, what };
        block_on(&*bench.driver, async {
            let array = Array::open(bench.devices(without), self.open(bench.seed))
                .await
                .map_err(|e| fault(FailureKind::Mount, format!("the mount: {e}")))?;
            let device: Arc<dyn ZonedDevice> = array;
            let shown = show(&device).await.map_err(|what| fault(FailureKind::Lost, what))?;
            Ok((device, shown))
        })
    }

    /// Writes on after the mount, cuts the power again, perhaps with a drive less, and mounts again.
    fn write_on(
        &self,
        bench: &Bench,
        device: &Arc<dyn ZonedDevice>,
        shown: &[Shown],
        rng: &mut Rng,
    ) -> Vec<Fault> {
        let model = Arc::new(Mutex::new(ZonesModel::shown(shown)));
        let time = Duration::from_micros(rng.below(3_000));
        let error = Arc::new(Mutex::new(None));
        block_on(&*bench.driver, async {
            for task in 0..2_u32 {
                let sink = Arc::clone(&model);
                let sink = Arc::new(move |mark: Mark| sink.lock().apply(&mark));
                let zones = task * ZONES / 2..(task + 1) * ZONES / 2;
                let task = Task::new(device, sink, rng.draw(), zones, shown, STEPS);
                let error = Arc::clone(&error);
                drop(spawn(&*bench.driver, "more", async move {
                    if let Err(why) = task.run().await {
                        *error.lock() = Some(why);
                    }
                }));
            }
            sleep_until(&*bench.driver, bench.driver.now().after(time)).await;
        });
        if let Some(why) = error.lock().take() {
            return vec![Fault { kind: FailureKind::Check, what: format!("after the mount: {why}") }];
        }
        let model = model.lock().clone();
        let mut images = bench.cut(rng);
        let whole = images.len() == self.record.shape.drives && self.record.shape.lost == Lost::None;
        let loses = whole && rng.chance(50);
        if loses {
            images.remove(rng.index(images.len()));
        }
        let bench = Bench::over(images, rng.draw());
        match self.mount(&bench, None) {
            Ok((_, shown)) => model.judge(&shown, whole && !loses),
            Err(fault) => vec![fault],
        }
    }
}

/// Drives over images, on a clock of their own.
struct Bench {
    driver: Arc<dyn Driver>,
    drives: Vec<Arc<Emu>>,
    seed: u64,
}

impl Bench {
    fn over(images: Vec<Media>, seed: u64) -> Bench {
        let driver: Arc<dyn Driver> = VirtualDriver::new(seed);
        let emu = |(n, image)| Emu::from_media(image, &format!("emu:{n}"), latency(), Arc::clone(&driver));
        let drives = images.into_iter().enumerate().map(emu).collect();
        Bench { drives, driver, seed }
    }

    fn devices(&self, without: Option<usize>) -> Vec<Arc<dyn ZonedDevice>> {
        let all = self.drives.iter().enumerate().filter(|(slot, _)| Some(*slot) != without);
        all.map(|(_, emu)| Arc::clone(emu) as Arc<dyn ZonedDevice>).collect()
    }

    fn cut(&self, rng: &mut Rng) -> Vec<Media> {
        self.drives.iter().map(|emu| emu.power_cut(&mut Sample::new(Rng::new(rng.draw())))).collect()
    }
}
