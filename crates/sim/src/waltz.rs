//! The crash explorer's target `waltz`: writers of one parallel log, each with its own records, on a recorded drive.
//!
//! Rules at every power cut: a promised record is found. If a record is found, every record acknowledged before the submission
//! of the first is found too. No other record is found, none twice, and all in the order of their tickets. A voided record is
//! not found.
//!
//! A trace carries two more kinds of numbers as attempts of steps of tasks that do not exist: a step of task `WRITERS + n` is a
//! ticket of writer `n`, in the order of the acknowledgements; a step of task `2 * WRITERS + n` is a ticket up to which writer
//! `n` retired records.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use fs::{Batching, ErrorKind, FormatOptions, Fs, MountOptions, ParallelLog, ParallelOptions, Ticket, Uuid};
use parking_lot::Mutex;
use units::{Driver, VirtualDriver, block_on, sleep_until, spawn};
use zoned::ZonedDevice;
use zoned::emu::{Emu, Latency, Media};

use crate::drive::latency;
use crate::model::{Fault, Progress, fault};
use crate::oracle::{Oracle, Probe};
use crate::plan::Plan;
use crate::report::FailureKind;
use crate::second_cut::SecondCut;
use crate::trace::{Drive, Event, Trace};
use crate::{BrokenRules, Error, Recorder, Result, Rng, Step, Target};

/// Number of writers of the parallel log.
const WRITERS: usize = 5;
/// Number of steps of each writer.
const STEPS_PER_WRITER: usize = 60;
/// Longest pause of a writer between two steps.
const MAX_PAUSE: Duration = Duration::from_micros(120);
/// Longest random delay of an acknowledgement.
const MAX_ACK_DELAY: Duration = Duration::from_micros(50);
const LOG_PATH: &str = "/waltz";
/// Number of records that are appended after a recovery.
const RECORDS_AFTER_RECOVERY: usize = 4;
/// The number of the random stream that [`LogUse`] is drawn from.
const LOG_USE_STREAM: u64 = 7;

/// A step of a parallel log's writer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Act {
    Append {
        len: usize,
        sync: bool,
    },
    /// Voids the writer's last record.
    Void,
    /// Retires all of the writer's tickets but the last `keep`.
    Retire {
        keep: u64,
    },
    Sync,
}

fn mount_options(broken: BrokenRules) -> MountOptions {
    broken.mount_options_with_broken_rule(MountOptions::default())
}

/// The emulated drive of a workload.
fn draw_drive(seed: u64, workload: u64, volatile_cache: bool) -> Drive {
    let mut rng = Rng::at(seed, &[workload, 0xd01e]);
    let tiny = Drive { zones: 64, ..Drive::of_workload(volatile_cache, workload) };
    let small = Drive { block_size: 512, max_open: 14, max_active: 14, ..tiny };
    match rng.below(8) {
        0..4 => Drive { zone_size: 32, zone_capacity: 28, max_append: 4, ..small },
        4 | 5 => Drive { zone_size: 64, zone_capacity: 60, max_append: 2, ..small },
        6 => Drive { max_open: 4, max_active: 4, ..tiny },
        _ => tiny,
    }
}

fn plan_steps(seed: u64, workload: u64, block: usize) -> Vec<Vec<Act>> {
    let writer = |writer: usize| {
        let mut rng = Rng::at(seed, &[workload, writer as u64, 0xac7]);
        let act = |_| match rng.below(20) {
            0 => Act::Void,
            1 => Act::Retire { keep: rng.below(40) },
            2 => Act::Sync,
            n => {
                let most = [1, 1, 1, 2, 2, 5, 9, 70];
                let most = most.get(rng.index(most.len())).copied().unwrap_or(1);
                // Few records are longer than a zone.
                let most = if most > 9 && n > 5 { 3 } else { most };
                Act::Append { len: rng.index(most * block), sync: rng.chance(25) }
            }
        };
        (0..STEPS_PER_WRITER).map(act).collect()
    };
    (0..WRITERS).map(writer).collect()
}

/// The bytes of a writer's append: no two steps append the same.
fn record_content(seed: u64, writer: usize, index: usize, len: usize) -> Vec<u8> {
    let mut rng = Rng::at(seed, &[writer as u64, index as u64, 0xb17e]);
    let mut bytes = format!("{writer}.{index}.").into_bytes();
    while bytes.len() < len {
        bytes.extend_from_slice(&rng.draw().to_le_bytes());
    }
    bytes
}

/// Runs a workload on a parallel log and records it.
pub(crate) fn record(seed: u64, workload: u64, volatile_cache: bool, broken: BrokenRules) -> Result<Trace> {
    let drive = draw_drive(seed, workload, volatile_cache);
    let driver: Arc<dyn Driver> = VirtualDriver::new(Rng::at(seed, &[workload, 1]).draw());
    let emu = Emu::memory(drive.options("emu:crash", latency()), Arc::clone(&driver));
    let recorder = Recorder::new(emu, MAX_ACK_DELAY);
    let failed = |e: fs::Error| Error::Workload(format!("waltz, seed {seed}, workload {workload}: {e}"));
    let plan = plan_steps(seed, workload, drive.block_size as usize);
    block_on(&*driver, run(seed ^ workload, plan, &recorder, &mount_options(broken))).map_err(failed)?;
    Ok(Trace {
        target: Target::Waltz,
        seed,
        workload,
        drive,
        ordered: false,
        modelled: false,
        events: recorder.take(),
    })
}

async fn run(
    salt: u64,
    plan: Vec<Vec<Act>>,
    recorder: &Arc<Recorder>,
    options: &MountOptions,
) -> fs::Result<()> {
    let device: Arc<dyn ZonedDevice> = Arc::clone(recorder) as Arc<dyn ZonedDevice>;
    let driver = Arc::clone(device.driver());
    let uuid = Some(Uuid::from_u128(u128::from(salt) << 64 | 0x5741_4c54_5a00));
    Fs::format(&device, &FormatOptions { uuid, ..FormatOptions::default() }).await?;
    let fs = Fs::mount(device, options).await?;
    let LogUse { log, close } = LogUse::of(salt, 0);
    let (log, _) = fs.parallel_log(LOG_PATH, &log).await?;
    fs.sync().await?;
    recorder.ready();
    let shared = Arc::new(SharedState {
        seed: salt,
        log,
        recorder: Arc::clone(recorder),
        driver: Arc::clone(&driver),
        acknowledged: Mutex::default(),
    });
    let tasks: Vec<_> = plan
        .into_iter()
        .enumerate()
        .map(|(me, acts)| spawn(&*driver, "writer", Arc::clone(&shared).write(me, acts)))
        .collect();
    for task in tasks {
        task.await?;
    }
    if close {
        shared.log.close().await?;
        fs.unmount().await?;
    }
    Ok(())
}

/// How a workload uses its log. Each field is drawn independently of the others and of the drive.
struct LogUse {
    log: ParallelOptions,
    /// Whether the workload closes the log at its end.
    close: bool,
}

impl LogUse {
    /// How a workload's recording, or the work after a recovery, uses the log.
    fn of(salt: u64, place: u64) -> LogUse {
        let mut rng = Rng::at(salt, &[LOG_USE_STREAM, place]);
        LogUse {
            log: ParallelOptions {
                open: 64,
                batching: if rng.chance(75) { Batching::Auto } else { Batching::Each },
                zones: 1 + rng.index(3),
                ..ParallelOptions::default()
            },
            close: rng.chance(50),
        }
    }
}

/// State shared by the writers of a parallel log.
struct SharedState {
    seed: u64,
    log: ParallelLog,
    recorder: Arc<Recorder>,
    driver: Arc<dyn Driver>,
    /// Steps whose records are acknowledged and not yet promised.
    acknowledged: Mutex<BTreeSet<Step>>,
}

impl SharedState {
    async fn write(self: Arc<SharedState>, me: usize, acts: Vec<Act>) -> fs::Result<()> {
        let mut last = None;
        for (index, act) in acts.into_iter().enumerate() {
            let step = Plan::step(me, index);
            let before = self.acknowledged.lock().clone();
            self.recorder.attempt(step);
            match act {
                Act::Append { len, sync } => {
                    let record = record_content(self.seed, me, index, len);
                    match self.log.append(&record, sync).await {
                        Ok(ticket) => {
                            last = Some(ticket);
                            self.recorder.attempt(as_step(WRITERS + me, ticket.0));
                            self.acknowledged.lock().insert(step);
                            if sync {
                                self.promise(before.into_iter().chain([step]));
                            }
                        }
                        Err(error) if error.kind() == ErrorKind::NoSpace => {
                            // In the trace the n-th ticket belongs to the n-th append of a writer, so a failed append records
                            // one too.
                            self.recorder.attempt(as_step(WRITERS + me, u64::from(u32::MAX)));
                            self.retire(me, 0)?;
                        }
                        Err(error) => return Err(error),
                    }
                }
                Act::Void => {
                    if let Some(ticket) = last.take() {
                        match self.log.void(ticket).await {
                            Ok(()) => self.recorder.acknowledged(step),
                            // A full drive has no room for the void entry: the voided record may come back.
                            Err(error) if error.kind() == ErrorKind::NoSpace => {}
                            Err(error) => return Err(error),
                        }
                    }
                }
                Act::Retire { keep } => self.retire(me, keep)?,
                Act::Sync => {
                    self.log.sync().await?;
                    self.promise(before);
                }
            }
            if self.driver.random().is_multiple_of(3) {
                let idle = self.driver.random() % u64::try_from(MAX_PAUSE.as_nanos()).unwrap_or(1);
                sleep_until(&*self.driver, self.driver.now().after(Duration::from_nanos(idle))).await;
            }
        }
        Ok(())
    }

    fn retire(&self, me: usize, keep: u64) -> fs::Result<()> {
        let below = self.log.acknowledged().0.saturating_sub(keep);
        self.recorder.attempt(as_step(2 * WRITERS + me, below));
        self.log.retire(Ticket(below))
    }

    fn promise(&self, steps: impl IntoIterator<Item = Step>) {
        for step in steps {
            if self.acknowledged.lock().remove(&step) {
                self.recorder.acknowledged(step);
            }
        }
    }
}

/// A number that a trace carries as the step of a task.
fn as_step(task: usize, number: u64) -> Step {
    Plan::step(task, usize::try_from(number).unwrap_or(usize::MAX))
}

/// A record of the parallel log, as the trace describes it. Places are indices of events.
#[derive(Debug)]
struct AppendNote {
    writer: usize,
    index: usize,
    begun: usize,
    acknowledged: Option<usize>,
    ticket: Option<Ticket>,
    /// The step that voids the record, and the step's place.
    void: Option<(usize, usize)>,
}

/// Checks the drive images of one workload of the target `waltz`.
pub(crate) struct WaltzOracle {
    notes: BTreeMap<Vec<u8>, AppendNote>,
    options: MountOptions,
}

type FoundRecords = Vec<(Ticket, Vec<u8>)>;

impl WaltzOracle {
    pub(crate) fn new(trace: &Trace, broken: BrokenRules) -> WaltzOracle {
        let plan = plan_steps(trace.seed, trace.workload, trace.drive.block_size as usize);
        let salt = trace.seed ^ trace.workload;
        let mut notes = BTreeMap::new();
        for (writer, acts) in plan.iter().enumerate() {
            let (mut open, mut last): (Option<AppendNote>, Option<Vec<u8>>) = (None, None);
            for (place, event) in trace.events.iter().enumerate() {
                let Event::Attempt { step } = event else { continue };
                let (task, index) = Plan::task_and_index(*step);
                if task == WRITERS + writer {
                    let ticket = (index as u64 != u64::from(u32::MAX)).then_some(Ticket(index as u64));
                    if let Some(mut note) = open.take() {
                        (note.acknowledged, note.ticket) = (ticket.map(|_| place), ticket);
                        let Some(record) = record_of(salt, acts, &note) else { continue };
                        last = ticket.map(|_| record.clone()).or(last);
                        notes.insert(record, note);
                    }
                } else if task == writer {
                    match acts.get(index) {
                        Some(Act::Append { .. }) => {
                            let (begun, acknowledged, ticket, void) = (place, None, None, None);
                            open = Some(AppendNote { writer, index, begun, acknowledged, ticket, void });
                        }
                        Some(Act::Void) => {
                            if let Some(note) = last.take().and_then(|record| notes.get_mut(&record)) {
                                note.void = Some((index, place));
                            }
                        }
                        _ => {}
                    }
                }
            }
            if let Some(note) = open
                && let Some(record) = record_of(salt, acts, &note)
            {
                notes.insert(record, note);
            }
        }
        WaltzOracle { notes, options: mount_options(broken) }
    }

    /// The rules that the records found in a log break.
    fn judge(&self, progress: &Progress, found: &FoundRecords) -> Vec<Fault> {
        let mut faults = Vec::new();
        let attempted = |task: usize| progress.attempted.get(task).copied().unwrap_or(0);
        let begun = |note: &AppendNote| note.index < attempted(note.writer);
        let retired = (0..WRITERS).map(|n| attempted(2 * WRITERS + n).saturating_sub(1)).max().unwrap_or(0);
        let present: BTreeSet<&[u8]> = found.iter().map(|(_, record)| record.as_slice()).collect();
        if present.len() < found.len() || !found.is_sorted_by(|(a, _), (b, _)| a < b) {
            faults.push(fault(FailureKind::Invented, "records are present twice, or out of order"));
        }
        let mut latest = 0;
        for (ticket, record) in found {
            let Some(note) = self.notes.get(record).filter(|note| begun(note)) else {
                faults.push(fault(FailureKind::Invented, format!("ticket {} was never written", ticket.0)));
                continue;
            };
            if note.ticket.is_some_and(|known| known != *ticket) {
                let what = format!("record {}.{} has ticket {}", note.writer, note.index, ticket.0);
                faults.push(fault(FailureKind::Invented, what));
            }
            if note.void.is_some_and(|(step, _)| progress.is_promised(note.writer, step)) {
                let what = format!("record {}.{} was voided", note.writer, note.index);
                faults.push(fault(FailureKind::Invented, what));
            }
            latest = latest.max(note.begun);
        }
        for (record, note) in &self.notes {
            let gone = note.ticket.is_some_and(|ticket| ticket.0 < retired as u64)
                || note.void.is_some_and(|(step, _)| step < attempted(note.writer));
            if gone || present.contains(record.as_slice()) {
                continue;
            }
            if progress.is_promised(note.writer, note.index) {
                let what = format!("record {}.{} was promised", note.writer, note.index);
                faults.push(fault(FailureKind::Lost, what));
            } else if note.acknowledged.is_some_and(|at| at < latest) {
                let what =
                    format!("record {}.{}, and one begun after it is present", note.writer, note.index);
                faults.push(fault(FailureKind::Lost, what));
            }
        }
        faults
    }

    async fn judge_first_cut(
        &self,
        image: Media,
        driver: &Arc<dyn Driver>,
        progress: &Progress,
    ) -> Vec<Fault> {
        let device: Arc<dyn ZonedDevice> =
            Emu::from_media(image, "emu:image", Latency::NONE, Arc::clone(driver));
        match self.read_back(&device).await {
            Err(e) => vec![fault(FailureKind::Mount, e)],
            Ok(found) => {
                let mut faults = self.judge(progress, &found);
                faults.extend(check_problems(&device).await);
                faults
            }
        }
    }

    /// Opens the log, reads all records, and closes the log and the file system.
    async fn read_back(&self, device: &Arc<dyn ZonedDevice>) -> fs::Result<FoundRecords> {
        let fs = Fs::mount(Arc::clone(device), &self.options).await?;
        let (log, found) = open_log(&fs, &ParallelOptions { open: 64, ..ParallelOptions::default() }).await?;
        log.close().await?;
        fs.unmount().await?;
        Ok(found)
    }

    /// Opens the log, appends, cuts the power again during the appends, and judges the image of the second cut.
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
        let mut faults = check_problems(&device).await;
        let between = match self.write_on(&device, &recorder, rng.draw()).await {
            Ok(found) => Some(found),
            Err(e) if e.kind() == ErrorKind::NoSpace => None,
            Err(e) => {
                faults.push(fault(FailureKind::Mount, e));
                return faults;
            }
        };
        let mut cut = SecondCut::of(image, recorder.take(), rng);
        let place = cut.place();
        let device: Arc<dyn ZonedDevice> =
            Emu::from_media(cut.image(), "emu:image", Latency::NONE, Arc::clone(driver));
        let second = match self.read_back(&device).await {
            Ok(found) => found,
            Err(e) => {
                faults.push(fault(FailureKind::Mount, format!("after a second cut: {e}")));
                return faults;
            }
        };
        let (after, before): (FoundRecords, FoundRecords) =
            second.into_iter().partition(|(_, r)| r.starts_with(b"after"));
        faults.extend(self.judge(progress, &before));
        if cut.ready && between.is_some_and(|between| between != before) {
            faults.push(fault(FailureKind::Lost, "an earlier opening showed other records"));
        }
        // The records after the recovery were appended in order, each after the acknowledgement of the one before.
        let wanted = (0..cut.begun.len()).map(after_record);
        if !after.iter().map(|(_, record)| record.clone()).eq(wanted.take(after.len())) {
            faults.push(fault(FailureKind::Invented, "records written after the recovery differ"));
        }
        let promised = cut.promised.len();
        if after.len() < promised {
            let what = format!("{} of {promised} records synced after the recovery", after.len());
            faults.push(fault(FailureKind::Lost, what));
        }
        faults.extend(check_problems(&device).await);
        for fault in &mut faults {
            fault.what += &place;
        }
        faults
    }

    /// Opens the log and appends records. Records `Ready` once the log is open.
    async fn write_on(
        &self,
        device: &Arc<dyn ZonedDevice>,
        recorder: &Recorder,
        salt: u64,
    ) -> fs::Result<FoundRecords> {
        let fs = Fs::mount(Arc::clone(device), &self.options).await?;
        let (log, found) = open_log(&fs, &LogUse::of(salt, 1).log).await?;
        recorder.ready();
        for n in 0..RECORDS_AFTER_RECOVERY {
            recorder.attempt(Step(n as u64));
            log.append(&after_record(n), true).await?;
            recorder.acknowledged(Step(n as u64));
        }
        log.close().await?;
        Ok(found)
    }
}

fn record_of(salt: u64, acts: &[Act], note: &AppendNote) -> Option<Vec<u8>> {
    match acts.get(note.index) {
        Some(Act::Append { len, .. }) => Some(record_content(salt, note.writer, note.index, *len)),
        _ => None,
    }
}

fn after_record(n: usize) -> Vec<u8> {
    format!("after {n} {}", "x".repeat(600 * n)).into_bytes()
}

async fn open_log(fs: &Fs, options: &ParallelOptions) -> fs::Result<(ParallelLog, FoundRecords)> {
    let (log, mut replay) = fs.parallel_log(LOG_PATH, options).await?;
    let mut found = Vec::new();
    while let Some(record) = replay.next().await? {
        found.push(record);
    }
    Ok((log, found))
}

async fn check_problems(device: &Arc<dyn ZonedDevice>) -> Vec<Fault> {
    match Fs::check(device).await {
        Ok(report) => report.problems.into_iter().map(|p| fault(FailureKind::Check, p)).collect(),
        Err(e) => vec![fault(FailureKind::Check, e)],
    }
}

impl Oracle for WaltzOracle {
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn workloads_leave_zones_and_rarely_fill_the_drive() {
        for workload in 0..6 {
            let trace = record(5, workload, true, BrokenRules::default()).expect("runs");
            let oracle = WaltzOracle::new(&trace, BrokenRules::default());
            let acknowledged = oracle.notes.values().filter(|note| note.acknowledged.is_some()).count();
            let voided = oracle.notes.values().filter(|note| note.void.is_some()).count();
            let promised = trace.events.iter().filter(|e| matches!(e, Event::Acknowledged { .. })).count();
            println!("workload {workload}: {acknowledged} records, {voided} voided, {promised} promises");
            assert!(acknowledged * 10 > WRITERS * STEPS_PER_WRITER * 7, "{acknowledged}");
            assert!(promised * 2 > acknowledged && voided > 3, "{promised}, {voided}");
        }
    }

    #[test]
    fn every_use_of_a_log_comes_on_drives_without_a_volatile_cache() {
        // Logs are striped over several zones only on drives without a volatile cache, which every fourth workload has.
        let used = (3..400).step_by(4).map(|workload| LogUse::of(1 ^ workload, 0));
        let seen: BTreeSet<_> = used.map(|used| (used.log.batching, used.log.zones, used.close)).collect();
        assert_eq!(seen.len(), 2 * 3 * 2, "{seen:?}");
    }

    #[test]
    fn a_recording_is_a_function_of_its_seed() {
        let trace = || record(6, 1, true, BrokenRules::default()).expect("runs").encode();
        assert!(trace() == trace(), "two recordings differ");
    }
}
