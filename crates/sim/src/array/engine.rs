//! The crash explorer's targets `engine` and `leveldb` on an array: RocksDB or LevelDB and the file system on an array, power cuts of all drives, and the
//! failure of one of them.
//!
//! Workload and oracle are those of the same target on one drive. The recorded events are those of the drives below the
//! array, with the workload's steps among them. The engine runs threads of its own: the recording is saved, and a replay reads the
//! file. Power cuts and drive failures are those of the target `array`. In a few states the mount is cut too; in as many the
//! database is written on and the power is cut again during those writes.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use ::array::{Array, OpenOptions};
use parking_lot::Mutex;
use units::{RealDriver, block_on};
use zoned::ZonedDevice;
use zoned::emu::{Emu, Latency};

use super::drive_failure::DriveFailure;
use super::probe::ImageDrives;
use super::record::{Entry, RecordedArray, Recording};
use super::shape::Shape;
use super::stack::{WITHOUT_DRIVES, add_mount_cuts, cut_during_mounts, cuts, open, step_sink};
use super::states::{self, Cut};
use crate::engine::{
    self, BaseDevice, EngineOracle, EngineWorkload, MAX_ACK_DELAY, MAX_LATE_APPEND_DELAY, RecordedDevice,
};
use crate::model::Fault;
use crate::oracle::{Probe, SECOND_CUT_EVERY};
use crate::report::FailureKind;
use crate::second_cut::Images;
use crate::trace::{Drive, Event, Trace};
use crate::{BrokenRules, CrashOptions, Error, Recorder, Report, Result, Rng, Target};

/// Latest time at which a drive fails, in microseconds.
const LATEST_FAILURE_US: u64 = 60_000;

/// Runs a workload on an array and records it. Threads make every recording different.
pub(crate) fn record(of: EngineWorkload, broken: BrokenRules) -> Result<Trace> {
    let EngineWorkload { seed, workload, volatile_cache, .. } = of;
    let shape = shape_of(seed, workload, volatile_cache);
    let run = || {
        let driver: Arc<dyn units::Driver> = RealDriver::new();
        let drives: Vec<Arc<Emu>> = (0..shape.recorded())
            .map(|index| Emu::memory(shape.drive(index, Latency::NONE), Arc::clone(&driver)))
            .collect();
        let journal: Arc<Mutex<Vec<Entry>>> = Arc::default();
        let sink = Arc::clone(&journal);
        let sink = move |entry| sink.lock().push(entry);
        let recorded = block_on(&*driver, RecordedArray::new(&shape, &drives, MAX_ACK_DELAY, broken, sink))?;
        let sink = Arc::clone(&journal);
        let steps = step_sink(move |step| sink.lock().push(Entry::Step(step)));
        let recorder = Recorder::above(recorded.device(), MAX_ACK_DELAY, MAX_LATE_APPEND_DELAY, steps);
        let when = Duration::from_micros(Rng::at(seed, &[workload, 3]).below(LATEST_FAILURE_US));
        std::thread::scope(|scope| {
            // No drive below a database is replaced, and no zone wears out: nothing is noted.
            let injected =
                scope.spawn(|| block_on(&*driver, recorded.inject_failure(&shape, &drives, when, &|_| {})));
            engine::work(of, &recorder, broken)?;
            injected.join().unwrap_or_else(|_| Err("a panic".into()))
        })?;
        Ok(std::mem::take(&mut *journal.lock()))
    };
    let failed = |why: String| {
        Error::Workload(format!(
            "{} on an array, seed {seed}, workload {workload} ({shape:?}): {why}",
            of.target
        ))
    };
    let events = events(run().map_err(failed)?);
    Ok(engine::trace_of(of, drive_of(&shape), events))
}

/// Explores the power cuts of a recorded workload; see [`CrashOptions`].
pub(crate) fn explore(
    options: &CrashOptions,
    trace: &Trace,
    saved: Option<&Path>,
    states: u64,
) -> Result<Report> {
    let shape = shape_of(trace.seed, trace.workload, trace.drive.volatile_cache);
    if drive_of(&shape) != trace.drive {
        return Err(Error::Replay("its drives are not those of this build".into()));
    }
    let record = Recording { shape, entries: entries(trace), trace: saved.map(Path::to_owned) };
    let options = &CrashOptions { seed: trace.seed, on_array: true, ..options.clone() };
    let stack = EngineOnArray { options, oracle: EngineOracle::new(trace, options.broken_rules) };
    let judge = |cut: &Cut<()>, failure, images, seed| stack.judge(cut.entry, failure, images, seed);
    // The engine's judge finds the steps before a cut by the cut's index among the events: these cuts carry no model.
    let cuts = cuts(&record, (), |(), _| {}, |(), ()| {});
    states::explore(options, (&record, trace.workload), states, cuts, &judge)
}

fn shape_of(seed: u64, workload: u64, volatile_cache: bool) -> Shape {
    let of =
        CrashOptions { volatile_cache: Some(volatile_cache), ..CrashOptions::new(Target::Engine, seed, 1) };
    Shape::below_engine(&of, workload)
}

/// A drive of the array, as a trace's header describes it.
fn drive_of(shape: &Shape) -> Drive {
    let of = shape.drive(0, Latency::NONE);
    let small = |number: u64| u32::try_from(number).expect("a small drive");
    Drive {
        block_size: of.block_size,
        zones: of.zones,
        conventional: of.conventional,
        zone_size: small(of.zone_size.0),
        zone_capacity: small(of.zone_capacity.0),
        max_open: of.max_open.unwrap_or_default(),
        max_active: of.max_active.unwrap_or_default(),
        max_append: small(of.max_append.0),
        atomic_write: small(of.atomic_write.0),
        volatile_cache: of.volatile_cache,
        reorders: of.reorder,
    }
}

/// The events of a trace: before the events of each drive stands an [`Event::Drive`].
fn events(entries: Vec<Entry>) -> Vec<Event> {
    let mut events = Vec::with_capacity(entries.len());
    let mut of = None;
    for entry in entries {
        match entry {
            Entry::Io(drive, event) => {
                if of.replace(drive) != Some(drive) {
                    events.push(Event::Drive { drive: u32::try_from(drive).expect("few drives") });
                }
                events.push(event);
            }
            Entry::Step(event) => events.push(event),
            Entry::Event(_)
            | Entry::Ready
            | Entry::Rebuilding
            | Entry::Replaced
            | Entry::Moving(_)
            | Entry::Reclaiming(_)
            | Entry::Restoring(_)
            | Entry::Worn => {}
        }
    }
    events
}

/// The entries of a trace: the reverse of [`events`].
fn entries(trace: &Trace) -> Vec<Entry> {
    let mut of = 0;
    let mut entries = Vec::with_capacity(trace.events.len());
    for event in &trace.events {
        match event {
            Event::Drive { drive } => of = *drive as usize,
            event if event.is_io() || matches!(event, Event::Refused { .. }) => {
                entries.push(Entry::Io(of, event.clone()));
            }
            event => entries.push(Entry::Step(event.clone())),
        }
    }
    entries
}

struct EngineOnArray<'a> {
    options: &'a CrashOptions,
    oracle: EngineOracle,
}

impl EngineOnArray<'_> {
    fn judge(&self, cut: usize, failure: DriveFailure, mut images: Images, seed: u64) -> Vec<Fault> {
        let mut rng = Rng::at(seed, &[2]);
        let mount = engine::mount_options(None, self.options.broken_rules);
        let cuts = cut_during_mounts(&mut images, &mut rng, self.options, &mount);
        let after = failure.after();
        let mut faults = if !after.is_empty() {
            let drives = image_drives(images);
            let mut faults = self.judge_mount(&drives, &[], rng.draw(), cut);
            if faults.is_empty() {
                faults = self.judge_mount(&drives, &after, rng.draw(), cut);
                faults.iter_mut().for_each(|fault| fault.what += WITHOUT_DRIVES);
            }
            faults
        } else if rng.below(SECOND_CUT_EVERY) == 0 {
            let probe = Probe { twice: true, seed: rng.draw(), event: cut };
            self.oracle.judge_second_cut(images, self, probe)
        } else {
            self.judge_mount(&image_drives(images), &[], rng.draw(), cut)
        };
        add_mount_cuts(&mut faults, cuts);
        faults
    }

    fn judge_mount(&self, drives: &ImageDrives, without: &[usize], seed: u64, cut: usize) -> Vec<Fault> {
        match block_on(&*drives.driver, open(drives, without, self.options)) {
            Ok(device) => self.oracle.judge_first_cut(&device, seed, cut),
            Err(e) => vec![Fault { kind: FailureKind::Mount, what: format!("the array: {e}") }],
        }
    }
}

/// The engines' threads need the real clock.
fn image_drives(images: Images) -> ImageDrives {
    ImageDrives::on(RealDriver::new(), images, 0, Latency::NONE)
}

impl BaseDevice for EngineOnArray<'_> {
    fn unrecorded_device(&self, images: Images) -> std::result::Result<Arc<dyn ZonedDevice>, String> {
        let drives = image_drives(images);
        block_on(&*drives.driver, open(&drives, &[], self.options)).map_err(|e| format!("the array: {e}"))
    }

    fn recorded_device(&self, images: Images) -> std::result::Result<RecordedDevice, String> {
        let journal: Arc<Mutex<Vec<(usize, Event)>>> = Arc::default();
        let numbers: Vec<usize> = images.iter().map(|(number, _)| *number).collect();
        let drives = image_drives(images).devices_without(&[]);
        let first = Recorder::new(Arc::clone(drives.first().ok_or("no drive")?), Duration::ZERO);
        let sibling = |(number, drive): (usize, Arc<dyn ZonedDevice>)| {
            let journal = Arc::clone(&journal);
            let write = move |event| journal.lock().push((number, event));
            first.sibling(drive, Arc::new(write)) as Arc<dyn ZonedDevice>
        };
        let devices = numbers.into_iter().zip(drives).map(sibling).collect();
        let options = self.options.broken_rules.array_options_with_broken_rule(OpenOptions::default());
        let array = block_on(&**first.driver(), Array::open(devices, options));
        let array = array.map_err(|e| format!("the array: {e}"))?;
        let sink = Arc::clone(&journal);
        let steps = step_sink(move |step| sink.lock().push((0, step)));
        let recorder = Recorder::above(array, Duration::ZERO, Duration::ZERO, steps);
        Ok(RecordedDevice { recorder, events: Box::new(move || std::mem::take(&mut *journal.lock())) })
    }
}
