//! The crash explorer's targets `engine` and `leveldb`: a database on the file system.
//!
//! Three workloads of five run on RocksDB, with its own WAL, with a parallel WAL, or with a parallel WAL that batches records.
//! Threads write batches (puts, deletes, range deletes, merges, single deletes, over two column families, synced and not),
//! read, sync and flush, while RocksDB's own threads flush and compact.
//!
//! Two workloads of five run on [`model_tables`] under a parallel WAL. In these workloads families are created and dropped, one
//! family is seldom written, tables are ingested, checkpoints are written, some writes bypass the log, and flushes wait or
//! fail.
//!
//! The workloads of the target `leveldb` run on LevelDB: threads write batches of puts and deletes, synced and not, read, sync, and write memtables
//! to tables, while LevelDB's own thread flushes and compacts.
//!
//! [`judge`] has the rules at every cut.

mod contents;
mod database;
mod judge;
mod key_order;
mod model_tables;
mod plan;
mod shape;

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use fs::{FormatOptions, Fs};
use futures_util::future::join_all;
use kv::parallel_wal::{BatchBuilder, Family, WriteOptions};
use parking_lot::Mutex;
use units::{RealDriver, block_on};
use zoned::ZonedDevice;
use zoned::emu::{Emu, Latency, Media};

pub(crate) use self::database::mount_options;
use self::database::{Content, Database, Outcome};
use self::judge::{Judge, mark_answered, mark_begun};
use self::plan::{Act, Change, Key, Values};
pub(crate) use self::shape::EngineWorkload;
use self::shape::{Mode, Shape, WRITERS};
use crate::drive::scheduler_goal;
use crate::model::{Fault, Progress, fault};
use crate::oracle::{Oracle, Probe};
use crate::plan::Plan;
use crate::report::FailureKind;
use crate::second_cut::{Images, SecondCut};
use crate::trace::{Drive, Event, Trace};
use crate::{BrokenRules, Error, Recorder, Result, Rng, Step};

/// Longest random delay of an acknowledgement, so that operations of several threads overlap (`MAX_ACK_DELAY`), and of a few appends,
/// so that a memtable may be flushed while these are in flight (`MAX_LATE_APPEND_DELAY`).
pub(crate) const MAX_ACK_DELAY: Duration = Duration::from_micros(30);
pub(crate) const MAX_LATE_APPEND_DELAY: Duration = Duration::from_millis(12);
/// Number of keys that are written after a recovery, each synced.
const KEYS_AFTER_RECOVERY: u64 = 3;

fn key_after_recovery(n: u64) -> Vec<u8> {
    format!("~after{n}").into_bytes()
}

/// Runs a workload on a drive and records it. Threads make every recording different.
pub(crate) fn record(of: EngineWorkload, broken: BrokenRules) -> Result<Trace> {
    let drive = Shape::of(of).drive;
    let emu = Emu::memory(drive.options("emu:crash", Latency::NONE), RealDriver::new());
    let recorder = Recorder::with_late_appends(emu, MAX_ACK_DELAY, MAX_LATE_APPEND_DELAY);
    work(of, &recorder, broken).map_err(|e| {
        Error::Workload(format!("{}, seed {}, workload {}: {e}", of.target, of.seed, of.workload))
    })?;
    Ok(trace_of(of, drive, recorder.take()))
}

/// The trace of an engine's workload on a given device with drives like `drive`.
pub(crate) fn trace_of(of: EngineWorkload, drive: Drive, events: Vec<Event>) -> Trace {
    let Shape { ordered, modelled, .. } = Shape::of(of);
    Trace { target: of.target, seed: of.seed, workload: of.workload, drive, ordered, modelled, events }
}

/// Runs an engine's workload on a given device and records its steps.
pub(crate) fn work(
    of: EngineWorkload,
    recorder: &Arc<Recorder>,
    broken: BrokenRules,
) -> std::result::Result<(), String> {
    let shape = Shape::of(of);
    let EngineWorkload { seed, workload, .. } = of;
    let device: Arc<dyn ZonedDevice> = Arc::clone(recorder) as Arc<dyn ZonedDevice>;
    let device = broken.behind_scheduler(device, scheduler_goal(seed, workload));
    block_on(&**device.driver(), Fs::format(&device, &FormatOptions::default()))
        .map_err(|e| e.to_string())?;
    let database = Database::open(&device, &shape, broken)?;
    for batch in plan::batches_before_writers(&shape) {
        database.finish(database.write(&batch, WriteOptions::SYNCED, false))?;
    }
    database.set_random_flush_faults(true);
    recorder.ready();
    let recorder = Arc::clone(recorder);
    let (values, plan) = (Values::new(seed, workload, &shape), plan::plan_steps(seed, workload, &shape));
    let run = Run { values, database, recorder, answered: Mutex::default(), mode: shape.mode, plan };
    std::thread::scope(|scope| {
        let run = &run;
        let writers: Vec<(usize, &Vec<Act>)> = run.plan.iter().enumerate().collect();
        let threads = writers.chunks(WRITERS.div_ceil(shape.threads));
        let threads = threads.map(|writers| writers.to_vec());
        let writers: Vec<_> = threads.map(|writers| scope.spawn(move || run.write_all(&writers))).collect();
        let ended = writers.into_iter().map(|w| w.join().unwrap_or_else(|_| Err("a writer panicked".into())));
        ended.collect::<std::result::Result<(), String>>()
    })?;
    run.database.set_random_flush_faults(false);
    run.database.close(shape.closes)
}

/// State shared by the writers of an engine's workload.
struct Run {
    values: Values,
    database: Database,
    recorder: Arc<Recorder>,
    /// Steps that were answered and are not yet promised.
    answered: Mutex<BTreeSet<Step>>,
    mode: Mode,
    plan: Vec<Vec<Act>>,
}

impl Run {
    /// Runs some of the workload's writers on this thread.
    fn write_all(&self, writers: &[(usize, &Vec<Act>)]) -> std::result::Result<(), String> {
        let writers = join_all(writers.iter().map(|(writer, acts)| self.write(*writer, acts)));
        self.database.finish(async { writers.await.into_iter().collect() })
    }

    async fn write(&self, writer: usize, acts: &[Act]) -> std::result::Result<(), String> {
        for (index, act) in acts.iter().enumerate() {
            let before = self.answered.lock().clone();
            mark_begun(&self.recorder, writer, index);
            self.run(act, (writer, index), before).await?;
            if let Some(bytes) = self.database.dirty_bytes() {
                self.recorder.dirty(bytes);
            }
        }
        Ok(())
    }

    /// Runs a step of a writer. `before`: the steps that were answered before the step began, and are not yet promised.
    async fn run(
        &self,
        act: &Act,
        (writer, index): (usize, usize),
        before: BTreeSet<Step>,
    ) -> std::result::Result<(), String> {
        let database = &self.database;
        let step = Plan::step(writer, index);
        let answer = |durable: BTreeSet<Step>| {
            mark_answered(&self.recorder, writer, index, None);
            self.answered.lock().insert(step);
            self.promise(durable);
        };
        let batch = |changes: &[Change]| plan::batch(self.values, plan::id(writer, index), changes);
        match act {
            Act::Write { changes, sync, logged, refused } => {
                let how = WriteOptions { synced: *sync, logged: *logged, ..WriteOptions::SYNCED };
                match database.write(&batch(changes), how, *refused).await? {
                    Outcome::Done if *sync => {
                        answer(self.logged_steps(before).into_iter().chain([step]).collect())
                    }
                    Outcome::Done => answer(BTreeSet::new()),
                    Outcome::Refused | Outcome::FlushFailed => self.recorder.failed(step),
                }
            }
            Act::Read(register) => {
                let value = database.read(&Key::register_key(*register).name)?;
                let saw = value.and_then(|v| v.first_chunk().copied()).map(u64::from_le_bytes);
                mark_answered(&self.recorder, writer, index, saw);
                self.recorder.acknowledged(step);
            }
            Act::Sync => {
                database.sync().await?;
                self.promise(self.logged_steps(before));
            }
            Act::FlushPast => {
                database.flush_past().await?;
                self.promise(self.steps_in_default_family(before));
            }
            Act::Flush => {
                if database.flush(index.is_multiple_of(4)).await? == Outcome::Done {
                    self.promise(match self.mode {
                        // A flush of RocksDB with its own WAL covers one family.
                        Mode::Group => self.steps_in_default_family(before),
                        // A compaction that joins the group of another write leaves the memtable as it is.
                        Mode::LevelDb => BTreeSet::new(),
                        Mode::Waltz | Mode::Auto => before,
                    });
                }
            }
            Act::CreateFamily(family) => {
                database.create_family(*family).await?;
                answer(BTreeSet::from([step]));
            }
            Act::DropFamily(family) => {
                database.drop_family(*family).await?;
                answer(BTreeSet::from([step]));
            }
            Act::Ingest(keys) => {
                let puts: Vec<Change> = keys.iter().cloned().map(Change::Put).collect();
                database.ingest(batch(&puts)).await?;
                answer(BTreeSet::from([step]));
            }
            Act::Checkpoint => {
                database.checkpoint(&plan::checkpoint_name(writer, index)).await?;
                answer(before.into_iter().chain([step]).collect());
            }
        }
        Ok(())
    }

    /// Keeps the steps that a sync of the log makes durable.
    fn logged_steps(&self, steps: BTreeSet<Step>) -> BTreeSet<Step> {
        self.filter_steps(steps, Act::is_in_the_log)
    }

    /// Keeps the steps that a flush of the default family makes durable.
    fn steps_in_default_family(&self, steps: BTreeSet<Step>) -> BTreeSet<Step> {
        self.filter_steps(steps, Act::is_of_default)
    }

    fn filter_steps(&self, mut steps: BTreeSet<Step>, of: impl Fn(&Act) -> bool) -> BTreeSet<Step> {
        steps.retain(|step| {
            let (writer, index) = Plan::task_and_index(*step);
            self.plan.get(writer).and_then(|acts| acts.get(index)).is_some_and(&of)
        });
        steps
    }

    fn promise(&self, steps: impl IntoIterator<Item = Step>) {
        for step in steps {
            if self.answered.lock().remove(&step) {
                self.recorder.acknowledged(step);
            }
        }
    }
}

/// The device below the database while a state is judged: one drive, or an array.
pub(crate) trait BaseDevice {
    /// The device over these images of drives.
    fn unrecorded_device(&self, images: Images) -> std::result::Result<Arc<dyn ZonedDevice>, String>;

    /// The device over these images of drives, recorded.
    fn recorded_device(&self, images: Images) -> std::result::Result<RecordedDevice, String>;
}

/// A device whose operations are recorded.
pub(crate) struct RecordedDevice {
    /// The recorder over the device; it takes the workload's marks too.
    pub recorder: Arc<Recorder>,
    /// The events recorded so far, each with its drive.
    pub events: Box<dyn FnOnce() -> Vec<(usize, Event)>>,
}

/// The device below a database that is a single drive, not an array.
struct OneDrive;

impl BaseDevice for OneDrive {
    fn unrecorded_device(&self, mut images: Images) -> std::result::Result<Arc<dyn ZonedDevice>, String> {
        let (_, image) = images.pop().ok_or("no drive")?;
        Ok(Emu::from_media(image, "emu:image", Latency::NONE, RealDriver::new()))
    }

    fn recorded_device(&self, images: Images) -> std::result::Result<RecordedDevice, String> {
        let recorder = Recorder::new(self.unrecorded_device(images)?, Duration::ZERO);
        let log = Arc::clone(&recorder);
        let events = move || log.take().into_iter().map(|event| (0, event)).collect();
        Ok(RecordedDevice { recorder, events: Box::new(events) })
    }
}

/// Checks the drive images of one engine workload.
pub(crate) struct EngineOracle {
    shape: Shape,
    judge: Judge,
    broken: BrokenRules,
}

impl EngineOracle {
    pub(crate) fn new(trace: &Trace, broken: BrokenRules) -> EngineOracle {
        let shape = Shape::of_trace(trace);
        let plan = plan::plan_steps(trace.seed, trace.workload, &shape);
        // The drive's events: a cut is named by its index among them.
        let events: Vec<&Event> =
            trace.events.iter().filter(|event| !matches!(event, Event::Drive { .. })).collect();
        let judge = Judge::new(Values::new(trace.seed, trace.workload, &shape), plan, &events);
        EngineOracle { shape, judge, broken }
    }

    /// Mounts the image of a cut behind the event `cut`, opens the database in the mode of `shape`, calls `with` with the
    /// content, judges the checkpoints, closes, checks.
    fn judge_opening(
        &self,
        device: &Arc<dyn ZonedDevice>,
        shape: &Shape,
        cut: usize,
        with: impl FnOnce(&Database, Content) -> Vec<Fault>,
    ) -> Vec<Fault> {
        let database = match Database::open(device, shape, self.broken) {
            Ok(database) => database,
            Err(e) => return vec![fault(FailureKind::Mount, e)],
        };
        let mut faults = match database.content() {
            Ok(content) => with(&database, content),
            Err(e) => vec![fault(FailureKind::Lost, format!("the database cannot be read: {e}"))],
        };
        faults.extend(match database.checkpoints() {
            Ok(checkpoints) => self.judge.judge_checkpoints(cut, &checkpoints),
            Err(e) => vec![fault(FailureKind::Lost, format!("a checkpoint cannot be read: {e}"))],
        });
        if let Err(e) = database.close(true) {
            faults.push(fault(FailureKind::Mount, e));
        }
        match block_on(&**device.driver(), Fs::check(device)) {
            Ok(report) => {
                faults.extend(report.problems.into_iter().map(|p| fault(FailureKind::Check, p)));
            }
            Err(e) => faults.push(fault(FailureKind::Check, e)),
        }
        faults
    }

    /// Opens the database of a cut behind the event `cut`, in a mode that the seed gives, and judges its content.
    pub(crate) fn judge_first_cut(&self, device: &Arc<dyn ZonedDevice>, seed: u64, cut: usize) -> Vec<Fault> {
        let shape = self.shape.reopened(seed, 0);
        let mut faults =
            self.judge_opening(device, &shape, cut, |_, content| self.judge.judge(cut, &content));
        add_mode_to_faults(&mut faults, &shape);
        faults
    }

    /// Opens the database after a cut, writes on, cuts the power again during the writes, and opens the database again.
    pub(crate) fn judge_second_cut(&self, images: Images, base: &dyn BaseDevice, probe: Probe) -> Vec<Fault> {
        let recorded = match base.recorded_device(images.clone()) {
            Ok(recorded) => recorded,
            Err(e) => return vec![fault(FailureKind::Mount, e)],
        };
        let recorder = &recorded.recorder;
        let device: Arc<dyn ZonedDevice> = Arc::clone(recorder) as Arc<dyn ZonedDevice>;
        let mut between = None;
        let shape = self.shape.reopened(probe.seed, 0);
        let mut faults = self.judge_opening(&device, &shape, probe.event, |database, content| {
            recorder.ready();
            between = Some(content);
            for n in 0..KEYS_AFTER_RECOVERY {
                recorder.attempt(Step(n));
                let batch =
                    BatchBuilder::new().put(Family::DEFAULT, &key_after_recovery(n), &n.to_le_bytes());
                let batch = batch.build();
                if let Err(e) = database.finish(database.write(&batch, WriteOptions::SYNCED, false)) {
                    return vec![fault(FailureKind::Mount, format!("a write after the recovery: {e}"))];
                }
                recorder.acknowledged(Step(n));
            }
            Vec::new()
        });
        add_mode_to_faults(&mut faults, &shape);
        let mut cut = SecondCut::of_drives(images, &(recorded.events)(), &mut Rng::new(probe.seed));
        let place = cut.place();
        let device = match base.unrecorded_device(std::mem::take(&mut cut.images)) {
            Ok(device) => device,
            Err(e) => return vec![fault(FailureKind::Mount, e + &place)],
        };
        let shape = self.shape.reopened(probe.seed, 1);
        let mut again = self.judge_opening(&device, &shape, probe.event, |_, mut content| {
            let there: Vec<u64> = (0..KEYS_AFTER_RECOVERY)
                .filter(|n| content.remove(&(0, key_after_recovery(*n))).is_some())
                .collect();
            let mut faults = self.judge.judge(probe.event, &content);
            if there.len() < cut.promised.len() {
                faults.push(fault(FailureKind::Lost, "a key synced after the first recovery is gone"));
            }
            // Each key was written after the acknowledgement of the one before: the found keys must be a prefix.
            if !(0..cut.begun.len() as u64).take(there.len()).eq(there.iter().copied()) {
                faults.push(fault(FailureKind::Invented, format!("after the first recovery: {there:?}")));
            }
            if cut.ready && between.is_some_and(|between| between != content) {
                faults.push(fault(FailureKind::Lost, "an earlier opening showed other content"));
            }
            faults
        });
        add_mode_to_faults(&mut again, &shape);
        faults.append(&mut again);
        for fault in &mut faults {
            fault.what += &place;
        }
        faults
    }
}

/// Adds the mode in which the database was opened to the descriptions of faults.
fn add_mode_to_faults(faults: &mut [Fault], shape: &Shape) {
    for fault in faults {
        fault.what += &format!(" (opened in {:?})", shape.mode);
    }
}

impl Oracle for EngineOracle {
    fn probe(&self, image: Media, _: &Progress, probe: Probe) -> Vec<Fault> {
        let images = vec![(0, image)];
        if probe.twice {
            return self.judge_second_cut(images, &OneDrive, probe);
        }
        OneDrive.unrecorded_device(images).map_or_else(
            |e| vec![fault(FailureKind::Mount, e)],
            |device| self.judge_first_cut(&device, probe.seed, probe.event),
        )
    }
}
