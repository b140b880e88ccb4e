//! The crash explorer's target `stage`: several writers of each zone at addresses of their own, over a stage before a recorded drive.
//!
//! ```text
//!   writers ---> Stage ---> FailingWrites ---> Recorder ---> emulated drive
//! ```
//!
//! Rules at every power cut, for each zone:
//! - The zone shows one of its lives: the newest one with something promised, or a later one.
//! - Every promised write of that life is there: acknowledged as durable, or acknowledged before a flush began that succeeded.
//! - Below the write pointer every block has the content of its acknowledged write. A block whose write was not acknowledged has its
//!   content, or garbage of the drive.
//! - A zone that comes back full hides its pointer: the first block that lacks acknowledged content, above the durable blocks, stands for it.
//! - No block is there above a block that no write was submitted for.
//!
//! A trace carries one more kind of numbers: a promise of a step of task `ZONES + n` says that a step of zone `n` was acknowledged.

use std::collections::{BTreeSet, VecDeque};
use std::fmt;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use units::{VirtualDriver, block_on, sleep_until, spawn};
use zoned::emu::{Emu, Latency, Media};
use zoned::{
    Action, Blocks, Buf, BufMut, Driver, Durability, Error as DeviceError, ErrorKind, Geometry, Io, Lba, Op,
    ZoneId, ZoneInfo, ZoneState, ZonedDevice, join_all,
};

use crate::drive::latency;
use crate::model::{Fault, Progress, fault};
use crate::oracle::{Oracle, Probe};
use crate::plan::Plan;
use crate::report::FailureKind;
use crate::trace::{Drive, Trace};
use crate::{BrokenRules, Error, Recorder, Result, Rng, Step, Target};

/// Number of zones that are written.
const ZONES: usize = 3;
/// Number of writers of each zone. Writes are shuffled in groups of as many.
const WRITERS: usize = 4;
/// Number of lives of each zone. Each but the last ends with a reset.
const LIVES: usize = 3;
/// The life of the blocks that are written after a power cut.
const LIFE_AFTER_CUT: usize = LIVES;
/// Longest write in blocks.
const LONGEST_WRITE: u64 = 3;
/// Blocks of a write after a power cut.
const WRITE_AFTER_CUT: u64 = 2;
/// Number of times that a failed write is submitted in all. A write whose predecessor failed is submitted again after that one.
const TRIES: usize = 40;
/// Longest pause of a writer between two steps.
const MAX_PAUSE: Duration = Duration::from_micros(60);
/// Longest random delay of an acknowledgement.
const MAX_ACK_DELAY: Duration = Duration::from_micros(50);
/// The first bytes of every written block.
const MAGIC: [u8; 8] = *b"stagedbl";

/// A step of a zone's writers.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Act {
    /// A write of `blocks` blocks, `at` blocks from the zone's start.
    Write {
        at: u64,
        blocks: u64,
        durable: bool,
    },
    Flush,
    Close,
    Finish,
    Reset,
}

/// The drive, the stage and the steps of a workload.
struct Workload {
    drive: Drive,
    /// The stage's window in blocks.
    window: u64,
    /// Numbers of the writes that fail below the stage.
    failures: BTreeSet<u64>,
    /// For each zone its steps with their lives, in the order in which writers take them.
    zones: Vec<Vec<(usize, Act)>>,
}

impl Workload {
    fn new(seed: u64, workload: u64, volatile_cache: bool) -> Workload {
        let mut rng = Rng::at(seed, &[workload, 0x57a6e]);
        let drive = Drive {
            block_size: if rng.chance(75) { 512 } else { 4096 },
            zones: 4,
            zone_size: 32,
            zone_capacity: 20 + 4 * rng.below(4) as u32,
            atomic_write: 1 + rng.below(2) as u32,
            ..Drive::tiny(volatile_cache)
        };
        let window = [8, 12, 24].get(rng.index(3)).copied().unwrap_or(8);
        let failures = if rng.chance(40) { (0..4).map(|_| rng.below(60)).collect() } else { BTreeSet::new() };
        let zones = (0..ZONES).map(|_| plan_zone(&mut rng, u64::from(drive.zone_capacity))).collect();
        Workload { drive, window, failures, zones }
    }
}

fn plan_zone(rng: &mut Rng, capacity: u64) -> Vec<(usize, Act)> {
    let mut acts = Vec::new();
    for life in 0..LIVES {
        let is_last = life + 1 == LIVES;
        let end = if rng.chance(50) { capacity } else { 4 + rng.below(capacity - 4) };
        let mut pieces: Vec<Range<u64>> = Vec::new();
        let mut at = 0;
        while at < end {
            let next = (at + 1 + rng.below(LONGEST_WRITE)).min(end);
            pieces.push(at..next);
            at = next;
        }
        // The writes above the piece that is left out wait until the zone is finished or reset.
        if !is_last && rng.chance(40) {
            let from_end = 1 + rng.index(WRITERS.min(pieces.len()));
            pieces.remove(pieces.len() - from_end);
        }
        for group in pieces.chunks_mut(WRITERS) {
            for n in (1..group.len()).rev() {
                group.swap(n, rng.index(n + 1));
            }
            for piece in group {
                let (at, blocks) = (piece.start, piece.end - piece.start);
                acts.push((life, Act::Write { at, blocks, durable: rng.chance(12) }));
                match rng.below(100) {
                    0..15 => acts.push((life, Act::Flush)),
                    15..19 => acts.push((life, Act::Close)),
                    _ => {}
                }
            }
        }
        if rng.chance(30) {
            acts.push((life, Act::Finish));
        }
        if !is_last {
            acts.push((life, Act::Reset));
        }
    }
    acts
}

/// The content of a block, which no other block of a workload has.
fn block_content(salt: u64, (zone, life, block): (usize, usize, u64), size: u32) -> Vec<u8> {
    let place = [zone as u64, life as u64, block];
    let filling = Rng::at(salt, &place).draw();
    let mut bytes = MAGIC.to_vec();
    for part in place.iter().chain(std::iter::repeat(&filling)).take(size as usize / 8 - 1) {
        bytes.extend_from_slice(&part.to_le_bytes());
    }
    bytes
}

fn write_content(salt: u64, (zone, life): (usize, usize), blocks: Range<u64>, size: u32) -> Buf {
    let bytes: Vec<u8> = blocks.flat_map(|block| block_content(salt, (zone, life, block), size)).collect();
    Buf::copy_from(&bytes)
}

/// Fails some writes before they reach the device below.
struct FailingWrites {
    inner: Arc<dyn ZonedDevice>,
    failures: BTreeSet<u64>,
    writes: Mutex<u64>,
}

impl fmt::Debug for FailingWrites {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?} whose writes {:?} fail", self.inner, self.failures)
    }
}

impl ZonedDevice for FailingWrites {
    fn geometry(&self) -> &Geometry {
        self.inner.geometry()
    }

    fn submit(&self, op: Op) -> Io {
        if let Op::Write { at, .. } = op {
            let mut writes = self.writes.lock();
            *writes += 1;
            if self.failures.contains(&*writes) {
                let error = DeviceError::new(ErrorKind::Media, &self.geometry().name, "write");
                return Io::ready(Err(error.at(at)));
            }
        }
        self.inner.submit(op)
    }

    fn driver(&self) -> &Arc<dyn Driver> {
        self.inner.driver()
    }
}

/// Runs a workload on a stage and records what reaches the drive.
pub(crate) fn record(seed: u64, workload: u64, volatile_cache: bool, broken: BrokenRules) -> Result<Trace> {
    let Workload { drive, window, failures, zones } = Workload::new(seed, workload, volatile_cache);
    let driver: Arc<dyn Driver> = VirtualDriver::new(Rng::at(seed, &[workload, 1]).draw());
    let emu = Emu::memory(drive.options("emu:crash", latency()), Arc::clone(&driver));
    let recorder = Recorder::new(emu, MAX_ACK_DELAY);
    let inner = Arc::clone(&recorder) as Arc<dyn ZonedDevice>;
    let below = Arc::new(FailingWrites { inner, failures, writes: Mutex::default() });
    let failed = |e| Error::Workload(format!("stage, seed {seed}, workload {workload}: {e}"));
    let window = Blocks(window).bytes(drive.block_size);
    let device = broken.stage(below, window).map_err(failed)?;
    recorder.ready();
    let shared = Arc::new(SharedState {
        salt: seed ^ workload,
        drive,
        device,
        recorder: Arc::clone(&recorder),
        driver: Arc::clone(&driver),
        acknowledged: Mutex::default(),
    });
    block_on(&*driver, async {
        let tasks: Vec<_> = zones
            .into_iter()
            .enumerate()
            .map(|(zone, acts)| spawn(&*driver, "zone", Arc::clone(&shared).write_zone(zone, acts)))
            .collect();
        for task in tasks {
            task.await?;
        }
        Ok(())
    })
    .map_err(failed)?;
    Ok(Trace {
        target: Target::Stage,
        seed,
        workload,
        drive,
        ordered: false,
        modelled: false,
        events: recorder.take(),
    })
}

/// State shared by all writers.
struct SharedState {
    salt: u64,
    drive: Drive,
    device: Arc<dyn ZonedDevice>,
    recorder: Arc<Recorder>,
    driver: Arc<dyn Driver>,
    /// Steps that are acknowledged and not yet promised.
    acknowledged: Mutex<BTreeSet<Step>>,
}

/// One life of a zone under its writers.
struct ZoneLife {
    zone: usize,
    life: usize,
    /// Steps that no writer has taken, with their places among the zone's steps.
    acts: Mutex<VecDeque<(usize, Act)>>,
    /// True once a finish or a reset of the zone is about to be submitted.
    ended: AtomicBool,
}

impl SharedState {
    /// Writes a zone, life after life.
    async fn write_zone(self: Arc<Self>, zone: usize, acts: Vec<(usize, Act)>) -> zoned::Result<()> {
        for life in 0..LIVES {
            let of_life = acts.iter().enumerate().filter(|(_, (of, _))| *of == life);
            let acts = Mutex::new(of_life.map(|(index, (_, act))| (index, *act)).collect());
            let life = Arc::new(ZoneLife { zone, life, acts, ended: AtomicBool::new(false) });
            let writer = |_| spawn(&*self.driver, "writer", Arc::clone(&self).work(Arc::clone(&life)));
            let tasks: Vec<_> = (0..WRITERS).map(writer).collect();
            for task in tasks {
                task.await?;
            }
        }
        Ok(())
    }

    /// Takes steps of a life until none is left.
    async fn work(self: Arc<Self>, life: Arc<ZoneLife>) -> zoned::Result<()> {
        let zone = ZoneId(life.zone as u32);
        loop {
            self.pause().await;
            let next = life.acts.lock().pop_front();
            let Some((index, act)) = next else { return Ok(()) };
            let before = self.acknowledged.lock().clone();
            self.recorder.attempt(Plan::step(life.zone, index));
            match act {
                Act::Write { at, blocks, durable } => {
                    if self.write(&life, at..at + blocks, durable).await {
                        self.acknowledge(life.zone, index, durable);
                    }
                }
                Act::Flush => {
                    self.device.flush().await?;
                    self.promise(before);
                }
                Act::Close => {
                    let _an_empty_or_full_zone_refuses = self.device.zone(zone, Action::Close).await;
                }
                Act::Finish | Act::Reset => {
                    life.ended.store(true, Ordering::Relaxed);
                    let action = if act == Act::Finish { Action::Finish } else { Action::Reset };
                    self.device.zone(zone, action).await?;
                    self.acknowledge(life.zone, index, false);
                }
            }
        }
    }

    /// Submits a write, again if it fails, until the life ends. True if the write was acknowledged.
    async fn write(&self, life: &ZoneLife, blocks: Range<u64>, durable: bool) -> bool {
        let at = Lba(life.zone as u64 * u64::from(self.drive.zone_size) + blocks.start);
        let data = write_content(self.salt, (life.zone, life.life), blocks, self.drive.block_size);
        let how = if durable { Durability::Durable } else { Durability::Cached };
        for _ in 0..TRIES {
            if life.ended.load(Ordering::Relaxed) {
                return false;
            }
            if self.device.write(at, data.clone(), how).await.is_ok() {
                return true;
            }
            self.pause().await;
        }
        false
    }

    async fn pause(&self) {
        let most = u64::try_from(MAX_PAUSE.as_nanos()).unwrap_or(1);
        let pause = Duration::from_nanos(self.driver.random() % most);
        sleep_until(&*self.driver, self.driver.now().after(pause)).await;
    }

    fn acknowledge(&self, zone: usize, index: usize, durable: bool) {
        let note = Plan::step(ZONES + zone, index);
        self.recorder.attempt(note);
        self.recorder.acknowledged(note);
        let step = Plan::step(zone, index);
        self.acknowledged.lock().insert(step);
        if durable || !self.drive.volatile_cache {
            self.promise([step]);
        }
    }

    fn promise(&self, steps: impl IntoIterator<Item = Step>) {
        for step in steps {
            if self.acknowledged.lock().remove(&step) {
                self.recorder.acknowledged(step);
            }
        }
    }
}

/// The report of a zone, and the content of its readable blocks.
struct FoundZone {
    info: ZoneInfo,
    content: Vec<u8>,
}

/// Checks the drive images of one workload of the target `stage`.
pub(crate) struct StageOracle {
    workload: Workload,
    salt: u64,
    broken: BrokenRules,
}

impl StageOracle {
    pub(crate) fn new(trace: &Trace, broken: BrokenRules) -> StageOracle {
        let workload = Workload::new(trace.seed, trace.workload, trace.drive.volatile_cache);
        StageOracle { workload, salt: trace.seed ^ trace.workload, broken }
    }

    async fn read(&self, device: &Arc<dyn ZonedDevice>, zone: usize) -> zoned::Result<FoundZone> {
        let id = ZoneId(zone as u32);
        let report = device.report(id.0..id.0 + 1).await?;
        let info = *report.first().expect("a report of one zone");
        let readable = if info.state == ZoneState::Full { info.capacity } else { info.pointer };
        let bytes = usize::try_from(readable.bytes(self.workload.drive.block_size).0).unwrap_or(0);
        if bytes == 0 {
            return Ok(FoundZone { info, content: Vec::new() });
        }
        let content = device.read(device.geometry().start(id), BufMut::zeroed(bytes)).await?;
        Ok(FoundZone { info, content: content.to_vec() })
    }

    /// The rules that a zone breaks.
    fn judge(&self, zone: usize, found: &FoundZone, progress: &Progress) -> Vec<Fault> {
        let Some(acts) = self.workload.zones.get(zone) else { return Vec::new() };
        let attempted = progress.attempted.get(zone).copied().unwrap_or(0);
        let life_after = |(life, act): &(usize, Act)| life + usize::from(*act == Act::Reset);
        let promised = acts.iter().enumerate().filter(|(index, _)| progress.is_promised(zone, *index));
        let first = promised.map(|(_, act)| life_after(act)).max().unwrap_or(0);
        let last = acts.iter().take(attempted).map(life_after).max().unwrap_or(0).max(first);
        let mut faults = Vec::new();
        for life in (first..=last).rev() {
            let of_life = self.judge_life(zone, life, found, progress);
            if of_life.is_empty() {
                return Vec::new();
            }
            faults.extend(of_life);
        }
        faults
    }

    /// The rules that a zone breaks if it shows `life`.
    fn judge_life(&self, zone: usize, life: usize, found: &FoundZone, progress: &Progress) -> Vec<Fault> {
        let Some(acts) = self.workload.zones.get(zone) else { return Vec::new() };
        let size = self.workload.drive.block_size;
        let fault = |kind, what: String| fault(kind, format!("zone {zone}, life {life}: {what}"));
        let attempted = progress.attempted.get(zone).copied().unwrap_or(0);
        let is_full = found.info.state == ZoneState::Full;
        let mut faults = Vec::new();
        // The end of the blocks that are durable: the highest promised one, and all below.
        let (mut durable, mut finished) = (0, false);
        // For each block the submitted write that it belongs to.
        let mut writes: Vec<Option<usize>> = vec![None; self.workload.drive.zone_capacity as usize];
        let of_life = acts.iter().enumerate().take(attempted).filter(|(_, (of, _))| *of == life);
        for (index, (_, act)) in of_life {
            let promised = progress.is_promised(zone, index);
            match act {
                Act::Write { at, blocks, .. } => {
                    let end = at + blocks;
                    writes.iter_mut().take(end as usize).skip(*at as usize).for_each(|of| *of = Some(index));
                    durable = if promised { durable.max(end) } else { durable };
                    if promised && !is_full && found.info.pointer.0 < end {
                        let what =
                            format!("blocks {at}..{end} are promised, the pointer is {}", found.info.pointer);
                        faults.push(fault(FailureKind::Lost, what));
                    }
                }
                Act::Finish => finished |= promised,
                _ => {}
            }
        }
        let mut gap = writes.iter().position(Option::is_none).unwrap_or(writes.len());
        if !is_full && found.info.pointer.0 > gap as u64 {
            let what = format!("the pointer is {}, and block {gap} was never submitted", found.info.pointer);
            faults.push(fault(FailureKind::Invented, what));
        }
        // A finish of a zone that writes in flight have filled changes nothing.
        if finished && gap < writes.len() {
            durable = self.workload.drive.zone_capacity.into();
            if !is_full {
                faults.push(fault(FailureKind::Lost, "the finish is promised".into()));
            }
        }
        for (block, content) in found.content.chunks(size as usize).enumerate() {
            let is_durable = (block as u64) < durable;
            let write = writes.get(block).copied().flatten().filter(|_| block < gap || is_durable);
            if let Some(index) = write {
                if content == block_content(self.salt, (zone, life, block as u64), size) {
                    continue;
                }
                let acknowledged = progress.is_promised(ZONES + zone, index);
                // A zone that comes back full hides where its pointer was.
                if acknowledged && is_full && !is_durable {
                    gap = block;
                } else if acknowledged {
                    faults.push(fault(FailureKind::Lost, format!("block {block} was acknowledged")));
                    continue;
                }
            }
            if content.starts_with(&MAGIC) {
                let what = format!("block {block} holds a block that was not written there in this life");
                faults.push(fault(FailureKind::Invented, what));
            }
        }
        faults
    }

    /// Writes every zone on, over a stage before the image, and reads everything back.
    async fn write_on(
        &self,
        stage: &Arc<dyn ZonedDevice>,
        before: &[FoundZone],
    ) -> zoned::Result<Vec<Fault>> {
        let (size, capacity) = (self.workload.drive.block_size, u64::from(self.workload.drive.zone_capacity));
        let mut faults = Vec::new();
        for (zone, before) in before.iter().enumerate().filter(|(_, z)| z.info.state != ZoneState::Full) {
            let from = before.info.pointer.0;
            let end = (from + WRITE_AFTER_CUT * WRITERS as u64).min(capacity);
            let starts: Vec<u64> = (from..end).step_by(WRITE_AFTER_CUT as usize).collect();
            let start = stage.geometry().start(ZoneId(zone as u32));
            let write = |at: &u64| {
                let blocks = *at..(at + WRITE_AFTER_CUT).min(end);
                let data = write_content(self.salt, (zone, LIFE_AFTER_CUT), blocks, size);
                stage.write(start.plus(Blocks(*at)), data, Durability::Durable)
            };
            let results = join_all(starts.iter().rev().map(write).collect()).await;
            results.into_iter().collect::<zoned::Result<Vec<()>>>()?;
            let mut wanted = before.content.clone();
            wanted.extend_from_slice(&write_content(self.salt, (zone, LIFE_AFTER_CUT), from..end, size));
            let mut after = self.read(stage, zone).await?;
            after.content.truncate(wanted.len());
            if after.info.pointer.0 < end || after.content != wanted {
                let what =
                    format!("zone {zone}: blocks {from}..{end}, written after the power cut, or those below");
                faults.push(fault(FailureKind::Lost, what));
            }
        }
        Ok(faults)
    }
}

impl Oracle for StageOracle {
    fn probe(&self, image: Media, progress: &Progress, probe: Probe) -> Vec<Fault> {
        let driver: Arc<dyn Driver> = VirtualDriver::new(probe.seed);
        let device: Arc<dyn ZonedDevice> =
            Emu::from_media(image, "emu:image", Latency::NONE, Arc::clone(&driver));
        let judged = || -> zoned::Result<Vec<Fault>> {
            let read = |zone| block_on(&*driver, self.read(&device, zone));
            let found = (0..ZONES).map(read).collect::<zoned::Result<Vec<FoundZone>>>()?;
            let judge = |(zone, found)| self.judge(zone, found, progress);
            let mut faults: Vec<Fault> = found.iter().enumerate().flat_map(judge).collect();
            if probe.twice {
                let window = Blocks(self.workload.window).bytes(self.workload.drive.block_size);
                let stage = self.broken.stage(Arc::clone(&device), window)?;
                faults.extend(block_on(&*driver, self.write_on(&stage, &found))?);
            }
            Ok(faults)
        };
        judged().unwrap_or_else(|error| vec![fault(FailureKind::Mount, error)])
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::trace::Event;

    /// Number of the workload's steps that `test` accepts.
    fn count(workload: &Workload, test: impl Fn(&Act) -> bool) -> usize {
        workload.zones.iter().flatten().filter(|(_, act)| test(act)).count()
    }

    #[test]
    fn writes_wait_go_out_together_and_nearly_all_are_acknowledged() {
        let (mut joined, mut failing) = (0, 0);
        for n in 0..24 {
            let trace = record(5, n, true, BrokenRules::default()).expect("runs");
            let workload = Workload::new(5, n, true);
            let (mut acknowledged, mut promised) = (0, 0);
            for event in &trace.events {
                match event {
                    Event::Acknowledged { step } if Plan::task_and_index(*step).0 >= ZONES => {
                        acknowledged += 1
                    }
                    Event::Acknowledged { .. } => promised += 1,
                    Event::Submit { what: Op::Write { data, .. }, .. } => {
                        let longest = LONGEST_WRITE as usize * trace.drive.block_size as usize;
                        joined += usize::from(data.len() > longest);
                    }
                    _ => {}
                }
            }
            failing += usize::from(!workload.failures.is_empty());
            // The writes above a piece that is left out fail at the life's end, as do some that a finish or a reset overtakes.
            let acts = count(&workload, |act| !matches!(act, Act::Flush | Act::Close));
            let lives = ZONES * LIVES;
            assert!(acknowledged + lives * (WRITERS - 1) >= acts, "workload {n}: {acknowledged} of {acts}");
            assert!(promised * 2 > acknowledged, "workload {n}: {promised} of {acknowledged} are promised");
        }
        assert!(
            joined > 100 && (4..20).contains(&failing),
            "{joined} joined writes, {failing} with failures"
        );
    }

    #[test]
    fn a_recording_is_a_function_of_its_seed() {
        let trace = || record(6, 1, true, BrokenRules::default()).expect("runs").encode();
        assert!(trace() == trace(), "two recordings differ");
    }

    #[test]
    fn a_zone_that_breaks_a_rule_is_judged_so() {
        let trace = record(7, 0, true, BrokenRules::default()).expect("runs");
        let oracle = StageOracle::new(&trace, BrokenRules::default());
        let size = trace.drive.block_size;
        let steps =
            oracle.workload.zones[0].iter().position(|(_, act)| matches!(act, Act::Write { at: 0, .. }));
        let (index, end) = match oracle.workload.zones[0].get(steps.expect("a write of block 0")) {
            Some((0, Act::Write { blocks, .. })) => (steps.expect("there"), *blocks),
            other => panic!("{other:?}"),
        };
        let found = |pointer: u64, content: Vec<u8>| FoundZone {
            info: ZoneInfo {
                zone: ZoneId(0),
                kind: zoned::ZoneKind::Sequential,
                state: if pointer == 0 { ZoneState::Empty } else { ZoneState::Closed },
                pointer: Blocks(pointer),
                capacity: Blocks(trace.drive.zone_capacity.into()),
            },
            content,
        };
        let mut progress = Progress::new(2 * ZONES);
        progress.attempt(0, index);
        let kinds = |found: &FoundZone, progress: &Progress| -> Vec<FailureKind> {
            oracle.judge(0, found, progress).into_iter().map(|fault| fault.kind).collect()
        };
        let written = write_content(oracle.salt, (0, 0), 0..end, size).to_vec();
        assert!(kinds(&found(end, written.clone()), &progress).is_empty(), "in flight, and landed");
        assert!(kinds(&found(0, Vec::new()), &progress).is_empty(), "in flight, and lost");
        assert!(kinds(&found(end, vec![0; written.len()]), &progress).is_empty(), "in flight, and garbage");
        let foreign = write_content(oracle.salt, (1, 0), 0..end, size).to_vec();
        assert!(kinds(&found(end, foreign), &progress).contains(&FailureKind::Invented), "of another zone");
        progress.promise(ZONES, index);
        assert!(kinds(&found(0, Vec::new()), &progress).is_empty(), "acknowledged, not flushed, and lost");
        let garbage = kinds(&found(end, vec![0; written.len()]), &progress);
        assert!(garbage.contains(&FailureKind::Lost), "acknowledged, and garbage below the pointer");
        progress.promise(0, index);
        assert_eq!(kinds(&found(0, Vec::new()), &progress), [FailureKind::Lost], "promised, and lost");
        assert!(kinds(&found(end, written), &progress).is_empty());
    }
}
