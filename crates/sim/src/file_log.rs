//! The crash explorer's target `prio`: a log in an ordinary file. The file is a conventional zone of a recorded drive.
//!
//! ```text
//!   appends, syncs ---> prio::Log ---> BlockStorage ---> Recorder ---> emulated drive
//! ```
//!
//! A byte of the log is a function of its place, so that the order of appends does not matter. Requests reach the drive after random delays: those in flight
//! together land in any order.
//!
//! Rules at every power cut:
//! - All bytes below the end of a finished sync are there.
//! - Each sector above holds bytes of the log up to any place, none that was not appended, and zeros behind them.
//!
//! A share of the images is opened again where the bytes end, as a program does that finds its last record there; what lies behind is zeroed, which a file system's truncation
//! does. More is appended, the power is cut again, and the same rules hold.
//!
//! A trace's steps: those of task [`SYNCS`] are syncs, each followed by an attempt of task [`SYNC_ENDS`] whose index is the sync's end; an attempt of task [`APPENDS`] is where the bytes end
//! that are about to be appended.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use prio::{Finish, Log, Options, Request, Storage};
use units::sync::Turnstile;
use units::{VirtualDriver, block_on, sleep_until, spawn};
use zoned::emu::{Emu, Latency, Media};
use zoned::{Buf, BufMut, Driver, Durability, Lba, ZonedDevice};

use crate::drive::latency;
use crate::model::{Fault, Progress, fault};
use crate::oracle::{Oracle, Probe};
use crate::plan::Plan;
use crate::report::FailureKind;
use crate::second_cut::SecondCut;
use crate::trace::{Drive, Event, Trace};
use crate::{BrokenRules, Error, Recorder, Result, Rng, Step, Target};

const SYNCS: usize = 0;
const SYNC_ENDS: usize = 1;
const APPENDS: usize = 2;

/// Number of tasks that append and sync.
const WRITERS: usize = 4;
/// Number of steps of each task.
const STEPS_PER_WRITER: usize = 40;
/// Appends after a power cut.
const APPENDS_AFTER_CUT: usize = 6;
/// Longest pause of a task between two steps.
const MAX_PAUSE: Duration = Duration::from_micros(80);
/// Longest delay of a request before the drive has it.
const MAX_REQUEST_DELAY: Duration = Duration::from_micros(40);
/// Longest random delay of an acknowledgement.
const MAX_ACK_DELAY: Duration = Duration::from_micros(50);
/// Blocks of the drive that the file may have.
const FILE_BLOCKS: u32 = 1024;

/// The drive and the settings of a workload.
struct Workload {
    salt: u64,
    drive: Drive,
    options: Options,
    /// Longest append in bytes.
    longest: usize,
    /// Percentage of appends with a sync.
    synced: u64,
}

impl Workload {
    fn new(seed: u64, workload: u64, volatile_cache: bool, broken: BrokenRules) -> Workload {
        let mut rng = Rng::at(seed, &[workload, 0x9810]);
        let pick = |rng: &mut Rng, of: &[u64]| of.get(rng.index(of.len())).copied().unwrap_or(1);
        let drive = Drive {
            block_size: 512,
            zones: 3,
            conventional: 1,
            zone_size: FILE_BLOCKS,
            zone_capacity: FILE_BLOCKS,
            ..Drive::tiny(volatile_cache)
        };
        let block = pick(&mut rng, &[512, 1024, 4096]);
        let options = Options {
            block: u32::try_from(block).expect("small"),
            room: block * pick(&mut rng, &[0, 1, 4, 16]),
            buffer: block * pick(&mut rng, &[1, 4, 16, 64]),
            ..broken.log_options()
        };
        let longest = pick(&mut rng, &[40, 300, block, 3 * block]);
        let synced = pick(&mut rng, &[10, 40, 90]);
        let longest = usize::try_from(longest).expect("small");
        Workload { salt: seed ^ workload, drive, options, longest, synced }
    }

    /// Bytes that the log may have, so that its room fits into the file too.
    fn most_bytes(&self) -> u64 {
        let room = self.options.room * 2 + u64::from(self.options.block) * 2;
        u64::from(FILE_BLOCKS) * 512 - room - (APPENDS_AFTER_CUT * self.longest) as u64
    }
}

/// The bytes of a log. Bytes from `reopened` on were appended after a power cut.
#[derive(Clone, Copy)]
struct Content {
    salt: u64,
    reopened: u64,
}

impl Content {
    /// The byte at a place. Never zero, which is the content of room.
    fn byte(self, at: u64) -> u8 {
        let life = u64::from(at >= self.reopened);
        let salt = self.salt ^ life.wrapping_mul(0x94d0_49bb_1331_11eb);
        let word = (salt ^ (at / 4).wrapping_mul(0x9e37_79b9_7f4a_7c15)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let byte = (word >> (24 + 8 * (at % 4))) as u8;
        byte.max(1)
    }

    fn bytes(self, at: u64, len: usize) -> Vec<u8> {
        (at..at + len as u64).map(|at| self.byte(at)).collect()
    }

    /// Number of bytes of `found`, which lies at `at`, that are the log's.
    fn matching(self, at: u64, found: &[u8]) -> usize {
        let same = |(n, byte): (usize, &u8)| *byte == self.byte(at + n as u64);
        found.iter().enumerate().take_while(|pair| same(*pair)).count()
    }
}

/// A file that is a conventional zone of a drive.
struct BlockStorage {
    device: Arc<dyn ZonedDevice>,
    driver: Arc<dyn Driver>,
}

impl Storage for BlockStorage {
    fn start(&self, request: Request, finish: Finish) {
        let (at, data, how) = match request {
            Request::Entries { at, data } => (at, data, Durability::Durable),
            Request::Zeros { at, len, durable, .. } => {
                let how = if durable { Durability::Durable } else { Durability::Cached };
                (at, Buf::zeroed(usize::try_from(len).expect("small")), how)
            }
        };
        let device = Arc::clone(&self.device);
        let driver = Arc::clone(&self.driver);
        let at = Lba(at / u64::from(device.geometry().block_size));
        self.driver.spawn(
            "request",
            Box::pin(async move {
                pause(&*driver, MAX_REQUEST_DELAY).await;
                finish(device.write(at, data, how).await.map_err(io::Error::other));
            }),
        );
    }
}

async fn pause(driver: &dyn Driver, longest: Duration) {
    let most = u64::try_from(longest.as_nanos()).unwrap_or(1);
    let pause = Duration::from_nanos(driver.random() % most);
    sleep_until(driver, driver.now().after(pause)).await;
}

fn other(error: prio::Error) -> zoned::Error {
    zoned::Error::new(zoned::ErrorKind::Media, &"emu:crash".into(), "log").because(error.to_string())
}

/// Runs a workload on a log and records what reaches the drive.
pub(crate) fn record(seed: u64, workload: u64, volatile_cache: bool, broken: BrokenRules) -> Result<Trace> {
    let plan = Workload::new(seed, workload, volatile_cache, broken);
    let drive = plan.drive;
    let driver: Arc<dyn Driver> = VirtualDriver::new(Rng::at(seed, &[workload, 1]).draw());
    let emu = Emu::memory(drive.options("emu:crash", latency()), Arc::clone(&driver));
    let recorder = Recorder::new(emu, MAX_ACK_DELAY);
    let failed = |e: prio::Error| Error::Workload(format!("prio, seed {seed}, workload {workload}: {e}"));
    recorder.ready();
    let device = Arc::clone(&recorder) as Arc<dyn ZonedDevice>;
    let storage = BlockStorage { device, driver: Arc::clone(&driver) };
    block_on(&*driver, async {
        let log = Log::new(Arc::new(storage), &plan.options, 0, &[])?;
        let content = Content { salt: plan.salt, reopened: u64::MAX };
        let (appending, syncs) = (Turnstile::new(), Mutex::new(0));
        let recorder = Arc::clone(&recorder);
        let shared = Arc::new(SharedState {
            plan,
            log,
            content,
            recorder,
            driver: Arc::clone(&driver),
            appending,
            syncs,
        });
        let tasks: Vec<_> = (0..WRITERS)
            .map(|writer| {
                spawn(
                    &*driver,
                    "writer",
                    Arc::clone(&shared).write(Rng::at(seed, &[workload, 2, writer as u64])),
                )
            })
            .collect();
        for task in tasks {
            task.await?;
        }
        shared.log.close().await
    })
    .map_err(failed)?;
    Ok(Trace {
        target: Target::Prio,
        seed,
        workload,
        drive,
        ordered: false,
        modelled: false,
        events: recorder.take(),
    })
}

/// State shared by the tasks of a workload.
struct SharedState {
    plan: Workload,
    log: Log,
    content: Content,
    recorder: Arc<Recorder>,
    driver: Arc<dyn Driver>,
    /// Held while bytes get their place: a byte is a function of its place.
    appending: Turnstile,
    /// Number of syncs begun.
    syncs: Mutex<usize>,
}

impl SharedState {
    async fn write(self: Arc<Self>, mut rng: Rng) -> prio::Result<()> {
        for _ in 0..STEPS_PER_WRITER {
            let turn = self.appending.acquire().await;
            let at = self.log.end();
            let len = 1 + rng.index(self.plan.longest);
            if at + len as u64 > self.plan.most_bytes() {
                return Ok(());
            }
            self.recorder.attempt(Plan::step(APPENDS, usize::try_from(at).unwrap_or(0) + len));
            let end = self.log.append(&self.content.bytes(at, len)).await?;
            drop(turn);
            if rng.chance(self.plan.synced) {
                self.sync(end).await?;
            }
            if rng.chance(60) {
                pause(&*self.driver, MAX_PAUSE).await;
            }
        }
        Ok(())
    }

    async fn sync(&self, end: u64) -> prio::Result<()> {
        let number = {
            let mut syncs = self.syncs.lock();
            *syncs += 1;
            *syncs - 1
        };
        self.recorder.attempt(Plan::step(SYNCS, number));
        self.recorder.attempt(Plan::step(SYNC_ENDS, usize::try_from(end).unwrap_or(0)));
        self.log.sync(end).await?;
        self.recorder.acknowledged(Plan::step(SYNCS, number));
        Ok(())
    }
}

/// Checks the drive images of one workload of the target `prio`.
pub(crate) struct FileLogOracle {
    workload: Workload,
    /// Where each sync ends.
    sync_ends: Vec<u64>,
}

impl FileLogOracle {
    pub(crate) fn new(trace: &Trace, broken: BrokenRules) -> FileLogOracle {
        let workload = Workload::new(trace.seed, trace.workload, trace.drive.volatile_cache, broken);
        let attempts = trace.events.iter().filter_map(|event| match event {
            Event::Attempt { step } => Some(Plan::task_and_index(*step)),
            _ => None,
        });
        // The syncs begin in the order of their numbers, each with its end.
        let ends = attempts.filter(|(task, _)| *task == SYNC_ENDS).map(|(_, end)| end as u64);
        FileLogOracle { workload, sync_ends: ends.collect() }
    }

    /// The end of the promised syncs, and the end of all bytes that may have been appended.
    fn limits(&self, progress: &Progress) -> (u64, u64) {
        let promised = self.sync_ends.iter().enumerate().filter(|(n, _)| progress.is_promised(SYNCS, *n));
        let durable = promised.map(|(_, end)| *end).max().unwrap_or(0);
        let attempted = progress.attempted.get(APPENDS).copied().unwrap_or(0);
        (durable, attempted.saturating_sub(1) as u64)
    }

    /// Opens the log where its bytes end, appends, cuts the power again, and judges what is left.
    async fn judge_second_cut(
        &self,
        image: Media,
        driver: &Arc<dyn Driver>,
        (durable, attempted): (u64, u64),
        rng: &mut Rng,
    ) -> zoned::Result<Vec<Fault>> {
        let emu = Emu::from_media(image.clone(), "emu:image", latency(), Arc::clone(driver));
        let recorder = Recorder::new(emu, MAX_ACK_DELAY);
        let device = Arc::clone(&recorder) as Arc<dyn ZonedDevice>;
        let found = read_file(&device).await?;
        let first = Content { salt: self.workload.salt, reopened: u64::MAX };
        let end = first.matching(0, &found) as u64;
        let content = Content { reopened: end, ..first };
        self.write_on(&device, driver, &recorder, content, &found).await?;
        let mut cut = SecondCut::of(image, recorder.take(), rng);
        let place = cut.place();
        let device: Arc<dyn ZonedDevice> =
            Emu::from_media(cut.image(), "emu:image", Latency::NONE, Arc::clone(driver));
        let found = read_file(&device).await?;
        let last = |steps: &[Step]| steps.iter().map(|step| step.0).max();
        let mut faults = if cut.ready {
            let ends = (last(&cut.promised).unwrap_or(end), last(&cut.begun).unwrap_or(end));
            judge(content, ends, &found)
        } else {
            // The bytes behind the end were being zeroed.
            judge(first, (durable, attempted), &found)
        };
        faults.iter_mut().for_each(|fault| fault.what += &place);
        Ok(faults)
    }

    /// Opens the log at the place where `content` has it reopened, and appends. Records `Ready` once nothing lies behind that place.
    async fn write_on(
        &self,
        device: &Arc<dyn ZonedDevice>,
        driver: &Arc<dyn Driver>,
        recorder: &Arc<Recorder>,
        content: Content,
        found: &[u8],
    ) -> zoned::Result<()> {
        let (end, sector) = (content.reopened, u64::from(self.workload.drive.block_size));
        let sector_start = end - end % sector;
        let mut cleared = BufMut::zeroed(found.len());
        cleared.copy_from_slice(found);
        cleared.iter_mut().skip(end as usize).for_each(|byte| *byte = 0);
        let rest = cleared.freeze().slice(sector_start as usize..);
        device.write(Lba(sector_start / sector), rest, Durability::Durable).await?;
        recorder.ready();
        let block = u64::from(self.workload.options.block);
        let tail = found.get((end - end % block) as usize..end as usize).unwrap_or_default();
        let storage = BlockStorage { device: Arc::clone(device), driver: Arc::clone(driver) };
        let log = Log::new(Arc::new(storage), &self.workload.options, end, tail).map_err(other)?;
        for _ in 0..APPENDS_AFTER_CUT {
            let at = log.end();
            let len = 1 + (driver.random() % self.workload.longest as u64) as usize;
            recorder.attempt(Step(at + len as u64));
            let end = log.append(&content.bytes(at, len)).await.map_err(other)?;
            if !driver.random().is_multiple_of(3) {
                log.sync(end).await.map_err(other)?;
                recorder.acknowledged(Step(end));
            }
        }
        log.close().await.map_err(other)?;
        Ok(())
    }
}

/// The content of the whole file.
async fn read_file(device: &Arc<dyn ZonedDevice>) -> zoned::Result<Vec<u8>> {
    let bytes = FILE_BLOCKS as usize * device.geometry().block_size as usize;
    Ok(device.read(Lba(0), BufMut::zeroed(bytes)).await?.to_vec())
}

/// The rules that a file breaks whose bytes below `durable` are promised and of which no byte from `attempted` on was appended.
fn judge(content: Content, (durable, attempted): (u64, u64), found: &[u8]) -> Vec<Fault> {
    const SECTOR: usize = 512;
    let mut faults = Vec::new();
    let there = content.matching(0, found) as u64;
    if there < durable {
        faults.push(fault(
            FailureKind::Lost,
            format!("byte {there} differs, and {durable} bytes are promised"),
        ));
    }
    for (n, sector) in found.chunks(SECTOR).enumerate() {
        let at = (n * SECTOR) as u64;
        let matching = content.matching(at, sector);
        let end = at + matching as u64;
        if matching > 0 && end > attempted {
            let what = format!("bytes up to {end} are there, and only {attempted} were appended");
            faults.push(fault(FailureKind::Invented, what));
        }
        if sector.iter().skip(matching).any(|byte| *byte != 0) {
            let what = format!("byte {end} is neither the log's nor zero");
            faults.push(fault(FailureKind::Invented, what));
        }
    }
    faults
}

impl Oracle for FileLogOracle {
    fn probe(&self, image: Media, progress: &Progress, probe: Probe) -> Vec<Fault> {
        let mut rng = Rng::new(probe.seed);
        let driver: Arc<dyn Driver> = VirtualDriver::new(rng.draw());
        let limits = self.limits(progress);
        let judged = block_on(&*driver, async {
            if probe.twice {
                return self.judge_second_cut(image, &driver, limits, &mut rng).await;
            }
            let device: Arc<dyn ZonedDevice> =
                Emu::from_media(image, "emu:image", Latency::NONE, Arc::clone(&driver));
            let content = Content { salt: self.workload.salt, reopened: u64::MAX };
            Ok(judge(content, limits, &read_file(&device).await?))
        });
        judged.unwrap_or_else(|error| vec![fault(FailureKind::Mount, error)])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn workloads_have_entries_and_zeros_in_flight_together_and_blocks_written_again() {
        let (mut together, mut again, mut zeros) = (0, 0, 0);
        for n in 0..24 {
            let trace = record(5, n, true, BrokenRules::default()).expect("runs");
            let mut in_flight = 0;
            let mut starts = std::collections::BTreeSet::new();
            for event in &trace.events {
                match event {
                    Event::Submit { what: zoned::Op::Write { at, data, .. }, .. } => {
                        in_flight += 1;
                        together += usize::from(in_flight > 1);
                        let is_zero = data.iter().all(|byte| *byte == 0);
                        zeros += usize::from(is_zero);
                        again += usize::from(!is_zero && !starts.insert(*at));
                    }
                    Event::Acked { .. } => in_flight -= 1,
                    _ => {}
                }
            }
        }
        assert!(together > 200 && again > 200 && zeros > 50, "{together}, {again}, {zeros}");
    }

    #[test]
    fn a_recording_is_a_function_of_its_seed() {
        let trace = || record(6, 1, true, BrokenRules::default()).expect("runs").encode();
        assert!(trace() == trace(), "two recordings differ");
    }

    #[test]
    fn bytes_from_before_a_reopening_are_not_those_appended_afterwards() {
        let before = Content { salt: 7, reopened: u64::MAX };
        let after = Content { reopened: 1000, ..before };
        let differ = (1000..11_000).filter(|at| before.byte(*at) != after.byte(*at)).count();
        assert!(differ > 9_900, "{differ} of 10,000 bytes differ");
        assert!(before.bytes(0, 1000) == after.bytes(0, 1000));
        // Bytes of the life before came back behind the end, where nothing, or something else, was appended.
        let mut file = before.bytes(0, 2048);
        let kinds = |file: &[u8], durable, attempted| -> Vec<FailureKind> {
            judge(after, (durable, attempted), file).into_iter().map(|fault| fault.kind).collect()
        };
        assert!(kinds(&file, 1000, 1000).contains(&FailureKind::Invented));
        assert!(kinds(&file, 1500, 2048).contains(&FailureKind::Lost));
        file.truncate(1000);
        file.extend_from_slice(&after.bytes(1000, 1048));
        assert!(kinds(&file, 2048, 2048).is_empty());
    }

    #[test]
    fn a_file_that_breaks_a_rule_is_judged_so() {
        let content = Content { salt: 7, reopened: u64::MAX };
        let file = |len: usize| {
            let mut file = content.bytes(0, len);
            file.resize(2048, 0);
            file
        };
        let kinds = |durable, attempted, file: &[u8]| -> Vec<FailureKind> {
            judge(content, (durable, attempted), file).into_iter().map(|fault| fault.kind).collect()
        };
        assert!(kinds(700, 900, &file(700)).is_empty() && kinds(700, 900, &file(900)).is_empty());
        assert_eq!(kinds(701, 900, &file(700)), [FailureKind::Lost]);
        assert_eq!(kinds(0, 899, &file(900)), [FailureKind::Invented]);
        let mut garbage = file(700);
        garbage[1500] = 9;
        assert_eq!(kinds(700, 900, &garbage), [FailureKind::Invented]);
        let mut gap = file(1300);
        gap[512..1024].fill(0);
        assert!(kinds(512, 1300, &gap).is_empty(), "a sector that did not land, below one that did");
    }
}
