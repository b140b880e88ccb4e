//! The crash explorer's targets `fs` and `log`: run a plan on a recorded drive, and judge the images that power cuts leave.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use fs::{CreateOptions, ErrorKind, FileKind, FormatOptions, Fs, Lifetime, MountOptions, Uuid, Writer};
use parking_lot::Mutex;
use units::{Bytes, Driver, VirtualDriver, block_on, sleep_until, spawn};
use zoned::ZonedDevice;
use zoned::emu::{Emu, Latency, Media};

use crate::act::{Act, FileNo};
use crate::drive::{latency, random_class, scheduler_goal};
use crate::model::{Fault, Model, Progress, SeenObject, Snapshot, fault};
use crate::oracle::{Oracle, Probe};
use crate::plan::{Plan, SHARED_DIRECTORY};
use crate::report::FailureKind;
use crate::second_cut::SecondCut;
use crate::shape::Shape;
use crate::trace::Trace;
use crate::tree::{Node, Tree};
use crate::{BrokenRules, Error, Recorder, Result, Rng, Target};

/// Number of steps of each task.
const STEPS_PER_TASK: usize = 110;
/// Longest pause of a task between two steps.
const MAX_PAUSE: Duration = Duration::from_micros(200);
/// Longest random delay of an acknowledgement.
const MAX_ACK_DELAY: Duration = Duration::from_micros(60);
/// The path of the file that is written after a recovery.
const FILE_AFTER_RECOVERY: &str = "/after";

/// Mount options with buffers so small that files write data before a sync.
fn mount_options(shape: &Shape, broken: BrokenRules) -> MountOptions {
    let options = MountOptions { log: shape.log, write_buffer: 16 << 10, ..MountOptions::default() };
    broken.mount_options_with_broken_rule(buffered_options(options, shape.buffered))
}

/// `options` with a page cache in which appended bytes stay for `buffered` at most, if any.
pub(crate) fn buffered_options(options: MountOptions, buffered: Option<Duration>) -> MountOptions {
    match buffered {
        Some(longest_in_memory) => MountOptions { cache: Bytes(4 << 20), longest_in_memory, ..options },
        None => options,
    }
}

/// Runs a workload of `target` on an emulated drive and records it.
pub(crate) fn record(
    target: Target,
    seed: u64,
    workload: u64,
    volatile_cache: bool,
    broken: BrokenRules,
) -> Result<Trace> {
    let shape = Shape::of(target, seed, workload, volatile_cache);
    let plan = Arc::new(plan_of(target, seed, workload, &shape));
    let driver: Arc<dyn Driver> = VirtualDriver::new(Rng::at(seed, &[workload, 1]).draw());
    let emu = Emu::memory(shape.drive.options("emu:crash", latency()), Arc::clone(&driver));
    let recorder = Recorder::new(emu, MAX_ACK_DELAY);
    let failed = |e: fs::Error| Error::Workload(format!("{target}, seed {seed}, workload {workload}: {e}"));
    block_on(&*driver, run(&plan, &recorder, (seed, workload), &shape, broken)).map_err(failed)?;
    Ok(Trace {
        target,
        seed,
        workload,
        drive: shape.drive,
        ordered: false,
        modelled: false,
        events: recorder.take(),
    })
}

/// Runs a workload of the target `fs` or `log` on a given device.
pub(crate) async fn work(
    target: Target,
    (seed, workload): (u64, u64),
    volatile_cache: bool,
    recorder: Arc<Recorder>,
    broken: BrokenRules,
) -> fs::Result<()> {
    let shape = Shape::of(target, seed, workload, volatile_cache);
    let plan = Arc::new(plan_of(target, seed, workload, &shape));
    run(&plan, &recorder, (seed, workload), &shape, broken).await
}

/// The plan of a workload: the steps of its tasks.
fn plan_of(target: Target, seed: u64, workload: u64, shape: &Shape) -> Plan {
    Plan::new(target, Rng::at(seed, &[workload]).draw(), STEPS_PER_TASK, shape.style)
}

async fn run(
    plan: &Arc<Plan>,
    recorder: &Arc<Recorder>,
    (seed, workload): (u64, u64),
    shape: &Shape,
    broken: BrokenRules,
) -> fs::Result<()> {
    let salt = seed ^ workload;
    let device: Arc<dyn ZonedDevice> = Arc::clone(recorder) as Arc<dyn ZonedDevice>;
    let device = broken.behind_scheduler(device, scheduler_goal(seed, workload));
    let driver = Arc::clone(device.driver());
    let uuid = Some(Uuid::from_u128(u128::from(salt) << 64 | 0x4655_5252_4f57));
    Fs::format(&device, &FormatOptions { uuid, ..FormatOptions::default() }).await?;
    let fs = Fs::mount(device, &mount_options(shape, broken)).await?;
    fs.mkdir(SHARED_DIRECTORY).await?;
    fs.sync().await?;
    recorder.ready();
    let ledger = Arc::new(Mutex::new(PromiseLedger::new(plan.tasks.len())));
    let tasks: Vec<_> = (0..plan.tasks.len())
        .map(|task| {
            let (plan, ledger, recorder) = (Arc::clone(plan), Arc::clone(&ledger), Arc::clone(recorder));
            let reads = OwnReads::new(Rng::at(salt, &[task as u64, 0x4ead]));
            let (fs, writers) = (fs.clone(), BTreeMap::new());
            let classes = Rng::at(salt, &[task as u64, 0xc1a5]);
            let runner = TaskRunner { task, plan, fs, recorder, ledger, writers, reads, classes };
            spawn(&*driver, "workload", runner.run())
        })
        .collect();
    for task in tasks {
        task.await?;
    }
    if !salt.is_multiple_of(2) {
        return Ok(());
    }
    fs.unmount().await?;
    // After an unmount the files of the tasks that did all of their steps are whole.
    let mut ledger = ledger.lock();
    let done = ledger.done.clone();
    for (task, (acts, done)) in plan.tasks.iter().zip(done).enumerate() {
        let counts = |act: &Act| done == acts.len() && (act.is_metadata() || act.data_of().is_some());
        for (index, _) in acts.iter().enumerate().filter(|(_, act)| counts(act)) {
            if ledger.promised.insert((task, index)) {
                recorder.acknowledged(Plan::step(task, index));
            }
        }
    }
    Ok(())
}

/// The completed and the promised steps of all tasks.
struct PromiseLedger {
    /// For each task the number of completed steps.
    done: Vec<usize>,
    promised: BTreeSet<(usize, usize)>,
}

impl PromiseLedger {
    fn new(tasks: usize) -> PromiseLedger {
        PromiseLedger { done: vec![0; tasks], promised: BTreeSet::new() }
    }
}

/// One task of a workload on files.
struct TaskRunner {
    task: usize,
    plan: Arc<Plan>,
    fs: Fs,
    recorder: Arc<Recorder>,
    ledger: Arc<Mutex<PromiseLedger>>,
    writers: BTreeMap<FileNo, Writer>,
    reads: OwnReads,
    /// Draws the classes of half of the files' writes.
    classes: Rng,
}

/// Reads of a task's own files between its steps, compared with what the steps wrote.
struct OwnReads {
    rng: Rng,
    tree: Tree,
    contents: BTreeMap<FileNo, Vec<u8>>,
}

impl OwnReads {
    /// One step in this many is followed by a read.
    const STEPS_PER_READ: usize = 3;
    /// Most bytes of a read.
    const MOST: usize = 20_000;

    fn new(rng: Rng) -> OwnReads {
        OwnReads { rng, tree: Tree::default(), contents: BTreeMap::new() }
    }

    /// Notes a step that was done, with the bytes that it appended.
    fn note(&mut self, act: &Act, appended: &[u8]) {
        self.tree.apply(act);
        match act {
            Act::Append { file, .. } => self.contents.entry(*file).or_default().extend_from_slice(appended),
            Act::Truncate { file, size, .. } => self.contents.entry(*file).or_default().truncate(*size),
            _ => {}
        }
    }

    /// Reads a part of some file, after one step in a few.
    ///
    /// # Errors
    /// The read's, or that the file shows other bytes than were written.
    async fn read(&mut self, fs: &Fs) -> fs::Result<()> {
        if self.rng.index(Self::STEPS_PER_READ) != 0 {
            return Ok(());
        }
        let names = self.tree.iter().filter_map(|(path, node)| match node {
            Node::File { file, .. } => Some((path.to_owned(), file)),
            Node::Directory => None,
        });
        let names: Vec<(String, FileNo)> = names.collect();
        let Some((path, file)) = names.get(self.rng.index(names.len())) else { return Ok(()) };
        let content = self.contents.get(file).map(Vec::as_slice).unwrap_or_default();
        let from = self.rng.index(content.len() + 1);
        let mut found = vec![0; 1 + self.rng.index(Self::MOST)];
        let read = fs.open(path)?.read_at(Bytes(from as u64), &mut found).await?;
        let wrote = content.get(from..content.len().min(from + found.len())).unwrap_or_default();
        if found.get(..read) == Some(wrote) {
            return Ok(());
        }
        let why = format!("{} bytes at {from} are not what was written", found.len());
        Err(fs::Error::new(ErrorKind::Corrupt, "reading").at_path(path).because(why))
    }
}

impl TaskRunner {
    async fn run(mut self) -> fs::Result<()> {
        let plan = Arc::clone(&self.plan);
        let acts = plan.tasks.get(self.task).map(Vec::as_slice).unwrap_or_default();
        let driver = Arc::clone(self.fs.driver());
        for (index, act) in acts.iter().enumerate() {
            let step = Plan::step(self.task, index);
            let covers = self.steps_made_durable(acts, index, act);
            self.recorder.attempt(step);
            self.note_dirty_bytes();
            if let Err(error) = self.act(act, index).await {
                self.recorder.failed(step);
                // A full drive, or more open logs than zones, is no defect. The task ends; a cut may keep or drop its last
                // step.
                let full = matches!(error.kind(), ErrorKind::NoSpace | ErrorKind::Busy);
                tracing::debug!(task = self.task, index, %error, "a step failed");
                return if full { Ok(()) } else { Err(error) };
            }
            self.note_dirty_bytes();
            let appended = match act {
                Act::Append { len, .. } => self.plan.bytes(self.task, index, *len),
                _ => Vec::new(),
            };
            self.reads.note(act, &appended);
            {
                let mut ledger = self.ledger.lock();
                if let Some(done) = ledger.done.get_mut(self.task) {
                    *done = index + 1;
                }
                for (task, index) in covers {
                    if ledger.promised.insert((task, index)) {
                        self.recorder.acknowledged(Plan::step(task, index));
                    }
                }
            }
            self.reads.read(&self.fs).await?;
            if driver.random().is_multiple_of(3) {
                let idle =
                    Duration::from_nanos(driver.random() % u64::try_from(MAX_PAUSE.as_nanos()).unwrap_or(1));
                sleep_until(&*driver, driver.now().after(idle)).await;
            }
        }
        for writer in self.writers.values() {
            writer.close().await?;
        }
        Ok(())
    }

    /// Records how many bytes of files are in memory only, in a mount with a page cache.
    fn note_dirty_bytes(&self) {
        let cache = self.fs.cache_stats();
        if cache.capacity > Bytes(0) {
            self.recorder.dirty(cache.dirty.0);
        }
    }

    /// The steps that the return of `act` promises to be durable, computed when `act` begins.
    fn steps_made_durable(&self, acts: &[Act], index: usize, act: &Act) -> Vec<(usize, usize)> {
        match act {
            Act::Sync { file } => {
                let mine = |act: &Act| {
                    act.data_of() == Some(*file) || matches!(act, Act::Create { file: f, .. } if f == file)
                };
                let steps = acts.iter().take(index).enumerate().filter(|(_, act)| mine(act));
                steps.map(|(index, _)| (self.task, index)).collect()
            }
            Act::SyncAll => {
                let done = self.ledger.lock().done.clone();
                // A mount with a page cache writes the data of all files.
                let with_data = self.fs.cache_stats().capacity > Bytes(0);
                let of = |(task, done): (usize, usize)| {
                    let acts = self.plan.tasks.get(task).map(Vec::as_slice).unwrap_or_default();
                    let covered = |act: &Act| {
                        let is_data = with_data && act.data_of().is_some_and(|file| is_data_file(acts, file));
                        act.is_metadata() || is_data
                    };
                    let steps = acts.iter().take(done).enumerate().filter(|(_, act)| covered(act));
                    steps.map(|(index, _)| (task, index)).collect::<Vec<_>>()
                };
                done.into_iter().enumerate().flat_map(of).collect()
            }
            _ => Vec::new(),
        }
    }

    async fn act(&mut self, act: &Act, index: usize) -> fs::Result<()> {
        match act {
            Act::Mkdir { path } => self.fs.mkdir(path).await,
            Act::Rmdir { path } => self.fs.rmdir(path).await,
            Act::Create { file, path, kind, lifetime } => {
                // Of long-lived files a zone's bytes are expected, although few of them get so long: their zones are theirs until they are closed.
                let geometry = self.fs.device().geometry();
                let zone = geometry.zone_capacity.bytes(geometry.block_size);
                let preallocate = if *lifetime == Lifetime::Long { zone } else { Bytes(0) };
                let options = CreateOptions { kind: *kind, lifetime: *lifetime, preallocate };
                let writer = self.fs.create(path, &options).await?;
                if self.classes.chance(50) {
                    writer.set_class(random_class(&mut self.classes));
                }
                self.writers.insert(*file, writer);
                Ok(())
            }
            Act::Reopen { file, path } => {
                let writer = self.fs.open_append(path).await?;
                self.writers.insert(*file, writer);
                Ok(())
            }
            Act::Append { file, len } => {
                let data = self.plan.bytes(self.task, index, *len);
                match self.writers.get(file) {
                    Some(writer) => writer.append(&data).await,
                    None => Ok(()),
                }
            }
            Act::Flush { file } => match self.writers.get(file) {
                Some(writer) => writer.flush().await,
                None => Ok(()),
            },
            Act::Sync { file } => match self.writers.get(file) {
                Some(writer) => writer.sync().await,
                None => Ok(()),
            },
            Act::Close { file } => match self.writers.remove(file) {
                Some(writer) => writer.close().await,
                None => Ok(()),
            },
            Act::Truncate { file, size, path } => {
                let size = Bytes(*size as u64);
                match (path, self.writers.get(file)) {
                    (Some(path), _) => self.fs.truncate(path, size).await,
                    (None, Some(writer)) => writer.truncate(size).await,
                    (None, None) => Ok(()),
                }
            }
            Act::Rename { from, to } => self.fs.rename(from, to).await,
            Act::Link { from, to } => self.fs.link(from, to).await,
            Act::Unlink { path } => self.fs.unlink(path).await,
            Act::SyncAll => self.fs.sync().await,
        }
    }
}

/// True if the steps `acts` create `file` as a data file.
fn is_data_file(acts: &[Act], file: FileNo) -> bool {
    let created = |act: &Act| matches!(act, Act::Create { file: f, kind: FileKind::Data, .. } if *f == file);
    acts.iter().any(created)
}

/// Checks the drive images of one workload of the target `fs` or `log`.
pub(crate) struct FilesOracle {
    plan: Plan,
    model: Model,
    options: MountOptions,
}

impl FilesOracle {
    pub(crate) fn new(trace: &Trace, broken: BrokenRules) -> FilesOracle {
        let shape = Shape::of(trace.target, trace.seed, trace.workload, trace.drive.volatile_cache);
        let plan = plan_of(trace.target, trace.seed, trace.workload, &shape);
        let model = Model::new(&plan, trace.target == Target::Log, shape.buffered.is_some());
        FilesOracle { plan, model, options: mount_options(&shape, broken) }
    }

    /// Number of tasks of the workload.
    pub(crate) fn tasks(&self) -> usize {
        self.plan.tasks.len()
    }

    /// The mount options of the workload.
    pub(crate) fn options(&self) -> &MountOptions {
        &self.options
    }

    async fn judge_first_cut(
        &self,
        image: Media,
        driver: &Arc<dyn Driver>,
        progress: &Progress,
    ) -> Vec<Fault> {
        let device: Arc<dyn ZonedDevice> =
            Emu::from_media(image, "emu:image", Latency::NONE, Arc::clone(driver));
        self.judge_mounted(&device, progress).await
    }

    /// Mounts a device, compares its content with the model, and checks its structures.
    pub(crate) async fn judge_mounted(
        &self,
        device: &Arc<dyn ZonedDevice>,
        progress: &Progress,
    ) -> Vec<Fault> {
        let fs = match Fs::mount(Arc::clone(device), &self.options).await {
            Ok(fs) => fs,
            Err(e) => return vec![fault(FailureKind::Mount, e)],
        };
        let (seen, mut faults) = snapshot(&fs).await;
        faults.extend(self.model.judge(&self.plan, progress, &seen));
        if let Err(e) = fs.unmount().await {
            faults.push(fault(FailureKind::Mount, format!("unmount: {e}")));
        }
        faults.extend(check_problems(device, "after a mount").await);
        faults
    }

    /// Mounts an image, writes on, cuts the power again during the writes, and judges the image of the second cut.
    async fn judge_second_cut(
        &self,
        image: Media,
        driver: &Arc<dyn Driver>,
        progress: &Progress,
        rng: &mut Rng,
    ) -> Vec<Fault> {
        let emu = Emu::from_media(image.clone(), "emu:image", latency(), Arc::clone(driver));
        let recorder = Recorder::new(emu, MAX_ACK_DELAY);
        let device: Arc<dyn ZonedDevice> = Arc::clone(&recorder) as Arc<dyn ZonedDevice>;
        let mut faults = check_problems(&device, "before a mount").await;
        let first = self.write_on(&device, &recorder, rng).await;
        let between = match first {
            Ok(seen) => Some(seen),
            Err(e) => {
                // A drive that was full before the cut may be full after the cut.
                if e.kind() != ErrorKind::NoSpace {
                    faults.push(fault(FailureKind::Mount, e));
                    return faults;
                }
                None
            }
        };
        let mut cut = SecondCut::of(image, recorder.take(), rng);
        let after = AfterProgress::of(&cut);
        let place = cut.place();
        let device: Arc<dyn ZonedDevice> =
            Emu::from_media(cut.image(), "emu:image", Latency::NONE, Arc::clone(driver));
        let fs = match Fs::mount(Arc::clone(&device), &self.options).await {
            Ok(fs) => fs,
            Err(e) => {
                faults.push(fault(FailureKind::Mount, format!("second mount: {e}")));
                return faults;
            }
        };
        let (mut seen, problems) = snapshot(&fs).await;
        faults.extend(problems);
        faults.extend(after.judge(seen.remove(FILE_AFTER_RECOVERY)));
        faults.extend(self.model.judge(&self.plan, progress, &seen));
        if let (Some(between), true) = (between, cut.ready)
            && let Some(what) = snapshot_difference(&between, &seen)
        {
            faults.push(fault(FailureKind::Lost, format!("an earlier mount showed other content: {what}")));
        }
        if let Err(e) = fs.unmount().await {
            faults.push(fault(FailureKind::Mount, format!("second unmount: {e}")));
        }
        faults.extend(check_problems(&device, "after the second mount").await);
        for fault in &mut faults {
            fault.what += &place;
        }
        faults
    }

    /// Mounts a file system, reads everything, writes the file [`FILE_AFTER_RECOVERY`]. Records `Ready` after the mount.
    async fn write_on(
        &self,
        device: &Arc<dyn ZonedDevice>,
        recorder: &Recorder,
        rng: &mut Rng,
    ) -> fs::Result<Snapshot> {
        let fs = Fs::mount(Arc::clone(device), &self.options).await?;
        let (seen, _) = snapshot(&fs).await;
        recorder.ready();
        recorder.attempt(AfterProgress::CREATE);
        let kind = if rng.chance(50) { FileKind::Log } else { FileKind::Data };
        let writer =
            fs.create(FILE_AFTER_RECOVERY, &CreateOptions { kind, ..CreateOptions::default() }).await?;
        recorder.attempt(AfterProgress::APPEND);
        writer.append(AfterProgress::CONTENT).await?;
        writer.sync().await?;
        recorder.acknowledged(AfterProgress::APPEND);
        if rng.chance(50) {
            fs.sync().await?;
            writer.close().await?;
            fs.unmount().await?;
        }
        Ok(seen)
    }
}

/// Progress of the writes to the file [`FILE_AFTER_RECOVERY`] after a recovery.
struct AfterProgress {
    created: bool,
    appended: bool,
    promised: bool,
}

impl AfterProgress {
    const CREATE: crate::Step = crate::Step(u64::MAX);
    const APPEND: crate::Step = crate::Step(u64::MAX - 1);
    const CONTENT: &[u8] = &[0xaf; 5000];

    fn of(cut: &SecondCut) -> AfterProgress {
        AfterProgress {
            created: cut.begun.contains(&Self::CREATE),
            appended: cut.begun.contains(&Self::APPEND),
            promised: cut.promised.contains(&Self::APPEND),
        }
    }

    fn judge(&self, seen: Option<SeenObject>) -> Option<Fault> {
        let (kind, what) = match seen {
            None if self.promised => (FailureKind::Lost, "is gone"),
            None => return None,
            Some(SeenObject::Directory) => (FailureKind::Invented, "is a directory"),
            Some(SeenObject::File { .. }) if !self.created => (FailureKind::Invented, "was never created"),
            Some(SeenObject::File { content, .. }) => {
                let most = if self.appended { Self::CONTENT } else { &[] };
                if self.promised && content.len() < most.len() {
                    (FailureKind::Lost, "is too short")
                } else if !most.starts_with(&content) {
                    (FailureKind::Invented, "has other content")
                } else {
                    return None;
                }
            }
        };
        Some(fault(kind, format!("{FILE_AFTER_RECOVERY}, synced after the first recovery, {what}")))
    }
}

impl Oracle for FilesOracle {
    fn probe(&self, image: Media, progress: &Progress, probe: Probe) -> Vec<Fault> {
        let mut rng = Rng::new(probe.seed);
        let driver: Arc<dyn Driver> = VirtualDriver::new(rng.draw());
        block_on(&*driver, async {
            if probe.twice {
                self.judge_second_cut(image, &driver, progress, &mut rng).await
            } else {
                self.judge_first_cut(image, &driver, progress).await
            }
        })
    }
}

/// The problems that the file system's `check` reports.
async fn check_problems(device: &Arc<dyn ZonedDevice>, when: &str) -> Vec<Fault> {
    match Fs::check(device).await {
        Ok(report) => {
            let problems = report.problems.into_iter();
            problems.map(|p| fault(FailureKind::Check, format!("check {when}: {p}"))).collect()
        }
        Err(e) => vec![fault(FailureKind::Check, format!("check {when} failed: {e}"))],
    }
}

/// Reads all names and all contents of a file system.
async fn snapshot(fs: &Fs) -> (Snapshot, Vec<Fault>) {
    let (mut seen, mut faults) = (Snapshot::new(), Vec::new());
    let mut directories = vec![String::new()];
    while let Some(directory) = directories.pop() {
        let path = if directory.is_empty() { "/" } else { directory.as_str() };
        let entries = match fs.read_dir(path) {
            Ok(entries) => entries,
            Err(e) => {
                faults.push(fault(FailureKind::Lost, e));
                continue;
            }
        };
        for entry in entries {
            let path = format!("{directory}/{}", entry.name);
            let kind = entry.kind;
            if kind == FileKind::Directory {
                directories.push(path.clone());
                seen.insert(path, SeenObject::Directory);
                continue;
            }
            match content(fs, &path).await {
                Ok(content) => {
                    seen.insert(path, SeenObject::File { ino: entry.ino, kind, content });
                }
                Err(e) => faults.push(fault(FailureKind::Lost, format!("{path} cannot be read: {e}"))),
            }
        }
    }
    (seen, faults)
}

async fn content(fs: &Fs, path: &str) -> fs::Result<Vec<u8>> {
    let reader = fs.open(path)?;
    let mut content = vec![0; usize::try_from(reader.size().0).unwrap_or(usize::MAX)];
    let read = reader.read_at(Bytes(0), &mut content).await?;
    content.truncate(read);
    Ok(content)
}

/// The differences between two snapshots of one file system.
fn snapshot_difference(before: &Snapshot, after: &Snapshot) -> Option<String> {
    let paths: BTreeSet<&String> = before.keys().chain(after.keys()).collect();
    let path = paths.into_iter().find(|path| before.get(*path) != after.get(*path))?;
    let describe = |seen: Option<&SeenObject>| match seen {
        None => "nothing".to_owned(),
        Some(SeenObject::Directory) => "a directory".to_owned(),
        Some(SeenObject::File { ino, content, .. }) => format!("file {ino} of {} bytes", content.len()),
    };
    Some(format!("{path} was {}, now {}", describe(before.get(path)), describe(after.get(path))))
}

#[cfg(test)]
mod tests {
    use zoned::{Action, Op};

    use super::*;
    use crate::Event;

    /// The number of matching events in the first workloads of a target.
    fn count_events(target: Target, matches: impl Fn(&Event) -> bool) -> usize {
        let trace = |workload| record(target, 5, workload, true, BrokenRules::default()).expect("runs");
        (0..4).map(|workload| trace(workload).events.iter().filter(|e| matches(e)).count()).sum()
    }

    #[test]
    fn workloads_use_zones_again_and_rarely_fill_the_drive() {
        for target in [Target::Fs, Target::Log] {
            let attempted = count_events(target, |e| matches!(e, Event::Attempt { .. }));
            let failed = count_events(target, |e| matches!(e, Event::Failed { .. }));
            let promised = count_events(target, |e| matches!(e, Event::Acknowledged { .. }));
            let reset = |e: &Event| matches!(e, Event::Submit { what: Op::Zone { action: Action::Reset, zone }, .. } if zone.0 >= 8);
            let resets = count_events(target, reset);
            println!(
                "{target}: {attempted} steps, {failed} failed, {promised} promised, {resets} resets of data zones"
            );
            assert!(
                attempted > 4 * 3 * STEPS_PER_TASK * 8 / 10 && failed < 4,
                "{target}: {attempted}, {failed} failed"
            );
            assert!(promised * 3 > attempted, "{target}: {promised} of {attempted} promised");
            assert!(resets > 20, "{target}: {resets} resets of data zones");
        }
    }

    #[test]
    fn a_recording_is_a_function_of_its_seed() {
        for target in [Target::Fs, Target::Log] {
            let trace = || record(target, 6, 1, true, BrokenRules::default()).expect("runs").encode();
            assert!(trace() == trace(), "two recordings differ");
        }
    }
}
