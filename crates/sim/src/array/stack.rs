//! The crash explorer's targets `fs` and `log` on an array: power cuts of all drives, and the failure of one of them or of two.
//!
//! Workload and oracle are those of the targets on one drive. The recorded events are those of the drives below the array, with
//! the workload's steps among them. Power cuts and drive failures are those of the target `array`. In a few states the mounts
//! of the array and of the file system are cut too.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::Duration;

use ::array::{Array, OpenOptions};
use fs::MountOptions;
use parking_lot::Mutex;
use units::{Driver, VirtualDriver, block_on, sleep_until, spawn};
use zoned::ZonedDevice;
use zoned::emu::{Emu, Latency};

use super::drive_failure::DriveFailure;
use super::probe::ImageDrives;
use super::record::{Entry, RecordedArray, Recording};
use super::shape::{Shape, latency};
use super::states::{self, Cut};
use crate::exploration::panic_message;
use crate::files::{self, FilesOracle};
use crate::model::{Fault, Progress};
use crate::oracle::SECOND_CUT_EVERY;
use crate::recorder::EventSink;
use crate::report::FailureKind;
use crate::second_cut::Images;
use crate::trace::{Drive, Event, Trace};
use crate::{CrashOptions, Error, Recorder, Report, Result, Rng, Target};

/// Longest time that an acknowledgement is delayed beyond the drive's own latency.
const MAX_ACK_DELAY: Duration = Duration::from_micros(40);
/// Text added to the description of a fault that a mount without further drives shows.
pub(super) const WITHOUT_DRIVES: &str = " (mounted again without the drives that fail after the mount)";
/// Latest time at which a drive fails or is replaced, in microseconds.
const LATEST_FAILURE_US: u64 = 20_000;

/// Explores the target `fs` or `log` on an array; see [`CrashOptions`].
pub(crate) fn crash(options: &CrashOptions) -> Result<Report> {
    if !matches!(options.target, Target::Fs | Target::Log) {
        return Err(Error::NotOnArray(options.target.to_string()));
    }
    states::explore_workloads(options, |workload, share| {
        let record = record(options, workload)?;
        let (target, seed) = (options.target, options.seed);
        // The oracle derives the plan from the trace's header. The drives' events stay in the recording.
        let drive = Drive::tiny(record.shape.cache);
        let trace =
            Trace { target, seed, workload, drive, ordered: false, modelled: false, events: Vec::new() };
        let stack = FilesOnArray { options, oracle: FilesOracle::new(&trace, options.broken_rules) };
        let judge =
            |cut: &Cut<Progress>, failure, images, seed| stack.judge(&cut.model, failure, images, seed);
        let promised = |cut: &mut Progress, now: &Progress| cut.promised.clone_from(&now.promised);
        let cuts = cuts(&record, Progress::new(stack.oracle.tasks()), Progress::did, promised);
        states::explore(options, (&record, workload), share, cuts, &judge)
    })
}

fn record(options: &CrashOptions, workload: u64) -> Result<Recording> {
    let shape = Shape::below(options, workload);
    let (target, seed) = (options.target, options.seed);
    let place = format!("{target} on an array, seed {seed}, workload {workload} ({shape:?})");
    let clock = Rng::at(seed, &[workload, 2]).draw();
    let run = || {
        let driver: Arc<dyn Driver> = VirtualDriver::new(clock);
        let drives: Vec<Arc<Emu>> = (0..shape.recorded())
            .map(|index| Emu::memory(shape.drive(index, latency()), Arc::clone(&driver)))
            .collect();
        let journal: Arc<Mutex<Vec<Entry>>> = Arc::default();
        block_on(&*driver, async {
            let sink = Arc::clone(&journal);
            let broken = options.broken_rules;
            let recorded = RecordedArray::new(&shape, &drives, MAX_ACK_DELAY, broken, move |entry| {
                sink.lock().push(entry)
            })
            .await?;
            let sink = Arc::clone(&journal);
            let steps = step_sink(move |step| sink.lock().push(Entry::Step(step)));
            let recorder = Recorder::above(recorded.device(), MAX_ACK_DELAY, Duration::ZERO, steps);
            let work = files::work(target, (seed, workload), shape.cache, recorder, options.broken_rules);
            let work = spawn(&*driver, "files", work);
            let when = Duration::from_micros(clock % LATEST_FAILURE_US);
            recorded.inject_failure(&shape, &drives, when, &|entry| journal.lock().push(entry)).await?;
            work.await.map_err(|e| e.to_string())
        })?;
        Ok(std::mem::take(&mut *journal.lock()))
    };
    let entries: std::result::Result<Vec<Entry>, String> = catch_unwind(AssertUnwindSafe(run))
        .unwrap_or_else(|panic| Err(format!("panic: {}", panic_message(&*panic))));
    let entries = entries.map_err(|why| Error::Workload(format!("{place}: {why}")))?;
    Ok(Recording { shape, entries, trace: None })
}

/// Passes on the workload's steps that a recorder above an array sees, without the operations, which are recorded at the
/// drives.
pub(super) fn step_sink(sink: impl Fn(Event) + Send + Sync + 'static) -> EventSink {
    Arc::new(move |event| {
        if !event.is_io() && !matches!(event, Event::Refused { .. }) {
            sink(event);
        }
    })
}

/// Every point of a recording at which the power may be cut. `did` applies a step to the model. `promised` copies the promises
/// of the second model, made before the next event at a drive, to the first.
pub(super) fn cuts<M: Clone>(
    record: &Recording,
    mut model: M,
    did: impl Fn(&mut M, &Event),
    promised: impl Fn(&mut M, &M),
) -> Vec<Cut<M>> {
    let (mut promises, mut ready, mut replaced, mut rebuilding) = (0, false, false, false);
    let mut cuts: Vec<Cut<M>> = Vec::new();
    for (entry, at) in record.entries.iter().zip(0..) {
        match entry {
            Entry::Io(_, event) if ready && event.is_io() => {
                let model = model.clone();
                let (moving, reclaiming, restoring) = (false, false, false);
                cuts.push(Cut {
                    entry: at,
                    model,
                    promises,
                    replaced,
                    rebuilding,
                    moving,
                    reclaiming,
                    restoring,
                    appending: false,
                    resetting: false,
                });
            }
            Entry::Step(Event::Ready) => ready = true,
            Entry::Step(event) => {
                did(&mut model, event);
                promises += u64::from(matches!(event, Event::Acknowledged { .. }));
                if let Some(cut) = cuts.last_mut() {
                    promised(&mut cut.model, &model);
                    cut.promises = promises;
                }
            }
            Entry::Rebuilding => rebuilding = true,
            Entry::Replaced => (replaced, rebuilding) = (true, false),
            _ => {}
        }
    }
    cuts
}

/// In a few states, mounts the array and the file system and cuts the power during the mount, in some of them several times.
/// Gives the number of cuts.
pub(super) fn cut_during_mounts(
    images: &mut Images,
    rng: &mut Rng,
    options: &CrashOptions,
    mount: &MountOptions,
) -> u32 {
    let mut cuts = 0;
    while rng.below(SECOND_CUT_EVERY) == 0 {
        let drives = ImageDrives::on_own_clock(std::mem::take(images), rng.draw(), latency());
        let time = Duration::from_micros(rng.below(6_000));
        let (open, mount) = (open(&drives, &[], options), mount.clone());
        block_on(&*drives.driver, async {
            drop(spawn(&*drives.driver, "mount", async move {
                if let Ok(device) = open.await {
                    drop(fs::Fs::mount(device, &mount).await);
                }
            }));
            sleep_until(&*drives.driver, drives.driver.now().after(time)).await;
        });
        *images = drives.cut(rng);
        cuts += 1;
    }
    cuts
}

/// Adds the number of cut mounts to the descriptions of faults.
pub(super) fn add_mount_cuts(faults: &mut [Fault], cuts: u32) {
    if cuts > 0 {
        faults.iter_mut().for_each(|fault| fault.what += &format!(" (after {cuts} interrupted mounts)"));
    }
}

/// Opens the array over emulated drives, all but some.
pub(super) fn open(
    drives: &ImageDrives,
    without: &[usize],
    options: &CrashOptions,
) -> impl Future<Output = zoned::Result<Arc<dyn ZonedDevice>>> + Send + use<> {
    let open = options.broken_rules.array_options_with_broken_rule(OpenOptions::default());
    let devices = drives.devices_without(without);
    async move { Ok(Array::open(devices, open).await? as Arc<dyn ZonedDevice>) }
}

struct FilesOnArray<'a> {
    options: &'a CrashOptions,
    oracle: FilesOracle,
}

impl FilesOnArray<'_> {
    fn judge(&self, progress: &Progress, failure: DriveFailure, mut images: Images, seed: u64) -> Vec<Fault> {
        let mut rng = Rng::at(seed, &[2]);
        let cuts = cut_during_mounts(&mut images, &mut rng, self.options, self.oracle.options());
        let drives = ImageDrives::on_own_clock(images, rng.draw(), Latency::NONE);
        let mut faults = self.judge_mount(&drives, &[], progress);
        let after = failure.after();
        if !after.is_empty() && faults.is_empty() {
            faults = self.judge_mount(&drives, &after, progress);
            faults.iter_mut().for_each(|fault| fault.what += WITHOUT_DRIVES);
        }
        add_mount_cuts(&mut faults, cuts);
        faults
    }

    fn judge_mount(&self, drives: &ImageDrives, without: &[usize], progress: &Progress) -> Vec<Fault> {
        block_on(&*drives.driver, async {
            match open(drives, without, self.options).await {
                Ok(device) => self.oracle.judge_mounted(&device, progress).await,
                Err(e) => vec![Fault { kind: FailureKind::Mount, what: format!("the array: {e}") }],
            }
        })
    }
}
