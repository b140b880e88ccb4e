//! Runs a workload of the crash explorer's target `array` on recorded drives.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::PathBuf;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use ::array::{Array, EventKind, Events, OpenOptions, Pace, RebuildOptions, Role, Slot};
use futures_util::future::{Either, select};
use parking_lot::Mutex;
use units::{Driver, VirtualDriver, block_on, sleep_until, spawn};
use zoned::emu::{DeferredDevice, Emu, FaultOp, FaultSpec};
use zoned::{Blocks, ErrorKind, ZoneId, ZonedDevice};

use super::model::WorkloadEvent;
use super::shape::{LOGICAL_ZONES, MissingDrive, Shape, WearTime, latency};
use super::workload::{Task, zones_of_task};
use crate::trace::Event;
use crate::{BrokenRules, CrashOptions, Error, Recorder, Result, Rng, Target};

/// Steps that each of the workload's two tasks makes.
pub(super) const STEPS_PER_TASK: usize = 90;
/// Longest time by which a late drive delays the execution of an operation.
const MAX_EXECUTION_DELAY: Duration = Duration::from_micros(50);
/// The longest time that a workload takes on its virtual clock: it ends after some milliseconds, unless an operation never ends.
const MAX_WORKLOAD_TIME: Duration = Duration::from_secs(5);
/// Time after which a drive's failure is ordered if no operation has met it.
const FAILURE_IS_FOUND: Duration = Duration::from_millis(20);
/// Time between two looks whether the array has taken its spare.
const SPARE_POLL: Duration = Duration::from_micros(5);
/// Longest random delay of an operation's acknowledgement.
const MAX_ACK_DELAY: Duration = Duration::from_micros(30);

/// An event in the recording of an array's workload.
pub(super) enum Entry {
    Io(usize, Event),
    Event(WorkloadEvent),
    /// A step of the workload of a file system or database on the array.
    Step(Event),
    Ready,
    /// The rebuild of a new drive began.
    Rebuilding,
    /// A new drive became a member of the array.
    Replaced,
    /// The move of a part began (`true`) or ended.
    Moving(bool),
    /// A reclaim began (`true`) or ended.
    Reclaiming(bool),
    /// The move of lost parts to spare room began (`true`) or ended.
    Restoring(bool),
    /// A physical zone of a drive wore out.
    Worn,
}

/// A recorded workload of an array.
pub(super) struct Recording {
    pub shape: Shape,
    pub entries: Vec<Entry>,
    /// The trace file of a workload that is no function of the seed.
    pub trace: Option<PathBuf>,
}

type Journal = Arc<Mutex<Vec<Entry>>>;

impl Recording {
    /// Runs a workload on an array and records it.
    pub(super) fn of(options: &CrashOptions, workload: u64) -> Result<Recording> {
        let shape = Shape::of(options, workload);
        let place = format!("{}, seed {}, workload {workload} ({shape:?})", Target::Array, options.seed);
        let seed = Rng::at(options.seed, &[workload]).draw();
        let run = || {
            let driver: Arc<dyn Driver> = VirtualDriver::new(seed);
            let drives: Vec<Arc<Emu>> = (0..shape.recorded())
                .map(|index| Emu::memory(shape.drive(index, latency()), Arc::clone(&driver)))
                .collect();
            let journal = Journal::default();
            let end = driver.now().after(MAX_WORKLOAD_TIME);
            let workload = pin!(run(&shape, seed, &drives, &journal, options.broken_rules));
            match block_on(&*driver, select(workload, pin!(sleep_until(&*driver, end)))) {
                Either::Left((ended, _)) => ended?,
                Either::Right(_) => {
                    return Err(format!("an operation does not end within {MAX_WORKLOAD_TIME:?}"));
                }
            }
            Ok(std::mem::take(&mut *journal.lock()))
        };
        let entries: std::result::Result<Vec<Entry>, String> = catch_unwind(AssertUnwindSafe(run))
            .unwrap_or_else(|panic| Err(format!("panic: {}", crate::exploration::panic_message(&*panic))));
        let entries = entries.map_err(|why| Error::Workload(format!("{place}: {why}")))?;
        Ok(Recording { shape, entries, trace: None })
    }

    /// The recorded events at one drive.
    pub(super) fn events(&self, drive: usize) -> impl Iterator<Item = &Event> {
        self.entries.iter().filter_map(move |entry| match entry {
            Entry::Io(of, event) if *of == drive => Some(event),
            _ => None,
        })
    }
}

async fn run(
    shape: &Shape,
    seed: u64,
    drives: &[Arc<Emu>],
    journal: &Journal,
    broken: BrokenRules,
) -> std::result::Result<(), String> {
    let sink = Arc::clone(journal);
    let recorded =
        RecordedArray::new(shape, drives, MAX_ACK_DELAY, broken, move |entry| sink.lock().push(entry))
            .await?;
    let (driver, device) = (Arc::clone(recorded.first.driver()), recorded.device());
    journal.lock().push(Entry::Ready);
    if shape.spare_drives > 0 {
        let restores = note_restores(recorded.array.events(), recorded.array.status().lost_parts, journal);
        drop(spawn(&*driver, "restores", restores));
    }
    let tasks: Vec<_> = (0..2_u32)
        .map(|task| {
            let sink = Arc::clone(journal);
            let sink = Arc::new(move |event| sink.lock().push(Entry::Event(event)));
            let zones = zones_of_task(task, &device);
            let (array, first) = (Arc::clone(&recorded.array), ZoneId(zones.start));
            // With all drives present the workload first fails a zone, so that cuts fall around the failure and the zone's reset.
            let fails_zone = shape.missing == MissingDrive::None && task == 0;
            let task = Task::new(&device, sink, seed ^ u64::from(task), zones, &[], STEPS_PER_TASK)
                .with_appends(shape.sends_appends())
                .with_classes(seed ^ u64::from(task))
                .allow_wear(shape);
            spawn(&*driver, "workload", async move {
                let task = if fails_zone {
                    task.fails_first_zone(array.fail_zone(array.locate(first, Blocks::ZERO).0)).await?
                } else {
                    task
                };
                task.run().await
            })
        })
        .collect();
    let is_over = Arc::new(AtomicBool::new(false));
    let moves = shape.moves.then(|| {
        let array = Arc::clone(&recorded.array);
        let moves = move_parts(array, (seed, *shape), Arc::clone(&is_over), Arc::clone(journal));
        spawn(&*driver, "moves", moves)
    });
    let when = Duration::from_micros(200 + seed % 3_000);
    recorded.inject_failure(shape, drives, when, &|entry| journal.lock().push(entry)).await?;
    for task in tasks {
        task.await?;
    }
    is_over.store(true, Ordering::Release);
    match moves {
        Some(moves) => moves.await,
        None => Ok(()),
    }
}

/// Moves parts of zones to other physical zones, of their drives or of others, until the workload is over.
async fn move_parts(
    array: Arc<Array>,
    (seed, shape): (u64, Shape),
    is_over: Arc<AtomicBool>,
    journal: Journal,
) -> std::result::Result<(), String> {
    let mut rng = Rng::at(seed, &[0x307e]);
    let driver = Arc::clone(array.driver());
    let (fails_drive, wears) = (shape.fails_drive(), shape.worn().is_some());
    let (drives, zones) = (array.superblock().members.len(), LOGICAL_ZONES * array.superblock().sections);
    while !is_over.load(Ordering::Acquire) {
        let zone = ZoneId(rng.index(zones as usize) as u32);
        let role = Role(rng.index(drives) as u32);
        if array.superblock().shares > 1 && rng.chance(50) {
            journal.lock().push(Entry::Reclaiming(true));
            let reclaimed = array.reclaim(u32::MAX, Pace::UNBOUNDED).await;
            journal.lock().push(Entry::Reclaiming(false));
            match reclaimed {
                Ok(_) => {}
                // A rebuild runs, or a drive failed.
                Err(e) if e.kind() == ErrorKind::Invalid => {}
                Err(_) if array.superblock().members.iter().any(|member| member.failed) => {}
                // The drive has refused an operation, and the array has not recorded the failure yet.
                Err(e) if fails_drive && e.kind() == ErrorKind::Media => {}
                Err(e) => return Err(format!("a reclaim: {e}")),
            }
        } else if let Some((slot, _)) = array.place(zone, role) {
            let slot = if rng.chance(50) { slot } else { Slot(rng.index(drives) as u32) };
            journal.lock().push(Entry::Moving(true));
            let moved = array.move_part(zone, role, slot, Pace::UNBOUNDED).await;
            journal.lock().push(Entry::Moving(false));
            match moved {
                Ok(_) => {}
                // The zone has no content or failed meanwhile, the drive has another part of the zone or no free physical zone, or a
                // rebuild runs. A free physical zone that the part was to take may have worn out.
                Err(e)
                    if matches!(
                        e.kind(),
                        ErrorKind::Invalid | ErrorKind::NoSpace | ErrorKind::ZoneOffline
                    ) => {}
                Err(_) if array.superblock().members.iter().any(|member| member.failed) => {}
                // The drive has refused an operation, and the array has not recorded the failure yet.
                Err(e) if fails_drive && e.kind() == ErrorKind::Media => {}
                Err(e) if wears && e.kind() == ErrorKind::ZoneReadOnly => {}
                Err(e) => return Err(format!("the move of part {} of zone {zone}: {e}", role.0)),
            }
        }
        sleep_until(&*driver, driver.now().after(Duration::from_micros(rng.index(400) as u64))).await;
    }
    Ok(())
}

/// Notes when the move of lost parts begins and ends. `lost`: the parts that are lost already.
fn note_restores(events: Events, lost: u32, journal: &Journal) -> impl Future<Output = ()> + Send + use<> {
    let journal = Arc::clone(journal);
    let note = move |is_begun| journal.lock().push(Entry::Restoring(is_begun));
    if lost > 0 {
        note(true);
    }
    async move {
        loop {
            match events.next().await.kind {
                EventKind::RestoreStarted { .. } => note(true),
                EventKind::RestoreEnded { .. } => note(false),
                _ => {}
            }
        }
    }
}

/// An array over recorded drives.
pub(super) struct RecordedArray {
    /// The recorder that numbers the operations of all drives.
    pub first: Arc<Recorder>,
    pub array: Arc<Array>,
    new: Option<Arc<dyn ZonedDevice>>,
}

impl RecordedArray {
    /// Creates and opens the array; the operations of its drives go to `sink`.
    pub(super) async fn new(
        shape: &Shape,
        drives: &[Arc<Emu>],
        jitter: Duration,
        broken: BrokenRules,
        sink: impl Fn(Entry) + Send + Sync + 'static,
    ) -> std::result::Result<RecordedArray, String> {
        let one = drives.first().expect("at least three");
        let first = Recorder::new(Arc::clone(one) as Arc<dyn ZonedDevice>, jitter);
        let sink = Arc::new(sink);
        let mut devices: Vec<Arc<dyn ZonedDevice>> = Vec::new();
        for (index, emu) in drives.iter().enumerate() {
            let sink = Arc::clone(&sink);
            let write = move |event| sink(Entry::Io(index, event));
            let device = first.sibling(Arc::clone(emu) as Arc<dyn ZonedDevice>, Arc::new(write));
            // The deferring device lies above the recorder, so that the recording has each operation at the time of its
            // execution.
            let device: Arc<dyn ZonedDevice> =
                if shape.late { DeferredDevice::over(device, MAX_EXECUTION_DELAY) } else { device };
            devices.push(broken.behind_scheduler(device, shape.scheduler));
        }
        let new = devices.split_off(shape.drives).pop();
        ::array::create(&devices, &shape.create_options()).await.map_err(|e| format!("create: {e}"))?;
        let away = match shape.missing {
            MissingDrive::Before(slot) => Some(slot),
            MissingDrive::Replaced(slot) if !shape.spare => Some(slot),
            _ => None,
        };
        let is_there = |slot: usize| Some(slot) != away && Some(slot) != shape.also_missing;
        let devices: Vec<Arc<dyn ZonedDevice>> =
            (0..).zip(devices).filter(|(slot, _)| is_there(*slot)).map(|(_, device)| device).collect();
        let rebuild = RebuildOptions { pace: Pace::UNBOUNDED };
        let open = broken.array_options_with_broken_rule(OpenOptions { rebuild, ..OpenOptions::default() });
        let open = shape.with_appends(open);
        let array = Array::open(devices, open).await.map_err(|e| format!("open: {e}"))?;
        if let Some(new) = new.as_ref().filter(|_| shape.spare) {
            array.add_spare(Arc::clone(new)).await.map_err(|e| format!("adding a spare: {e}"))?;
        }
        Ok(RecordedArray { first, array, new })
    }

    pub(super) fn device(&self) -> Arc<dyn ZonedDevice> {
        Arc::clone(&self.array) as Arc<dyn ZonedDevice>
    }

    /// Fails, wears out or replaces a drive at the time `when` of the workload. The events of a replacement or of wear go to
    /// `sink`.
    pub(super) async fn inject_failure(
        &self,
        shape: &Shape,
        drives: &[Arc<Emu>],
        when: Duration,
        sink: &(dyn Fn(Entry) + Sync),
    ) -> std::result::Result<(), String> {
        let driver = self.first.driver();
        match (shape.missing, &self.new) {
            (MissingDrive::During(slot, _), _) => {
                sleep_until(&**driver, driver.now().after(when)).await;
                if let Some(emu) = drives.get(slot) {
                    fail_drive(emu);
                }
            }
            (MissingDrive::Worn(worn), _) if worn.when == WearTime::Before => {
                sleep_until(&**driver, driver.now().after(when)).await;
                if let Some(emu) = drives.get(worn.slot) {
                    emu.wear(worn.part(emu.geometry().conventional), worn.state);
                }
                sink(Entry::Worn);
            }
            (MissingDrive::Replaced(slot), _) if shape.spare => {
                sleep_until(&**driver, driver.now().after(when)).await;
                if let Some(emu) = drives.get(slot) {
                    fail_drive(emu);
                }
                // The flush finds the failure if no step of the workload does.
                self.device().flush().await.map_err(|e| format!("a flush: {e}"))?;
                let (start, mut is_ordered) = (driver.now(), false);
                while self.array.rebuild().is_none() {
                    // The workload may be over, and a flush does not reach a drive without a cache.
                    if !is_ordered && driver.now() > start.after(FAILURE_IS_FOUND) {
                        is_ordered = true;
                        let slot = Slot(u32::try_from(slot).expect("a few"));
                        // An error: the failure was found meanwhile.
                        drop(self.array.fail(slot).await);
                    }
                    if driver.now() > start.after(Duration::from_secs(1)) {
                        return Err("no spare takes the place of a failed drive".to_owned());
                    }
                    sleep_until(&**driver, driver.now().after(SPARE_POLL)).await;
                }
                sink(Entry::Rebuilding);
                let rebuild = self.array.rebuild().expect("a rebuild that has begun is kept");
                rebuild.wait().await.map_err(|e| format!("a rebuild onto a spare: {e}"))?;
                sink(Entry::Replaced);
            }
            (MissingDrive::Replaced(slot), Some(new)) => {
                sleep_until(&**driver, driver.now().after(when)).await;
                sink(Entry::Rebuilding);
                replace(&self.array, slot, Arc::clone(new)).await.map_err(|e| format!("a rebuild: {e}"))?;
                sink(Entry::Replaced);
            }
            _ => {}
        }
        Ok(())
    }
}

/// Rebuilds a new drive in a slot, at an unbounded pace.
pub(super) async fn replace(array: &Array, slot: usize, new: Arc<dyn ZonedDevice>) -> zoned::Result<()> {
    let slot = Slot(u32::try_from(slot).expect("a small number"));
    let options = RebuildOptions { pace: Pace::UNBOUNDED };
    array.start_replace(slot, new, options).await?.wait().await
}

/// Makes every later operation of an emulated drive fail.
fn fail_drive(emu: &Emu) {
    for op in [FaultOp::Read, FaultOp::Write, FaultOp::Flush, FaultOp::Zone] {
        emu.fail(FaultSpec::all(op));
    }
}
