//! Parallel logs under power cuts at any moment, compared with a model in memory.
//!
//! After a cut a replay must give every record that was synced, or acknowledged before a sync began. With
//! each record that a replay gives, it must give all records that were acknowledged before that record was
//! submitted. It must give nothing else, and no voided record.
#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "a test may panic")]

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use crate::common::Drive;
use fs::{
    Batching, BrokenRule, ErrorKind, FormatOptions, Fs, MountOptions, ParallelLog, ParallelOptions, Ticket,
};
use parking_lot::Mutex;
use units::{Blocks, Driver, VirtualDriver, sleep_until, spawn};
use zoned::emu::{Choose, Emu, EmuOptions, Latency, Media, Seeded};

const PATH: &str = "/parallel";
const WRITERS: usize = 6;

/// The state of a record as its writer knows it. Times are counts of events.
#[derive(Clone, Debug, Default)]
struct RecordNote {
    begun: u64,
    acknowledged: Option<u64>,
    ticket: Option<Ticket>,
    /// `voiding`: the writer began to void the record. `voided`: the void succeeded.
    voiding: bool,
    voided: bool,
    /// True if a replay must give the record.
    required: bool,
}

/// The model of the log's expected content.
#[derive(Debug, Default)]
struct LogModel {
    time: u64,
    notes: BTreeMap<Vec<u8>, RecordNote>,
    /// The records that an earlier recovery of the log gave.
    replayed: BTreeMap<Ticket, Vec<u8>>,
    /// A replay need not give records with tickets below this one.
    retired: u64,
    /// The value of `retired` when the log was last opened.
    retired_before: u64,
    failed: usize,
}

impl LogModel {
    fn now(&mut self) -> u64 {
        self.time += 1;
        self.time
    }

    fn note(&mut self, record: &[u8]) -> &mut RecordNote {
        self.notes.get_mut(record).unwrap()
    }

    /// Notes that every record acknowledged before `time` is durable.
    fn make_durable(&mut self, time: u64) {
        for note in self.notes.values_mut() {
            note.required |= note.acknowledged.is_some_and(|at| at < time);
        }
    }

    /// Compares the model with the records that the recovery gave; these become the model's content.
    fn compare_with_replay(&mut self, found: Vec<(Ticket, Vec<u8>)>) -> Result<(), String> {
        let there: BTreeSet<&[u8]> = found.iter().map(|(_, record)| record.as_slice()).collect();
        if there.len() < found.len() {
            return Err("a record is there twice".into());
        }
        let mut latest = 0;
        for (ticket, record) in &found {
            if let Some(replayed) = self.replayed.get(ticket) {
                if replayed != record {
                    return Err(format!("{ticket:?} was another record"));
                }
                continue;
            }
            let Some(note) = self.notes.get(record) else {
                return Err(format!("{ticket:?} was left out before, or never written"));
            };
            if note.ticket.is_some_and(|known| known != *ticket) || note.voided {
                return Err(format!("{ticket:?} is {note:?}"));
            }
            latest = latest.max(note.begun);
        }
        let missing = |record: &[u8]| !there.contains(record);
        for (ticket, record) in self.replayed.range(Ticket(self.retired)..) {
            if missing(record) {
                return Err(format!("{ticket:?} was there before, and is gone"));
            }
        }
        for (record, note) in &self.notes {
            let retired = note.ticket.is_some_and(|ticket| ticket.0 < self.retired);
            if retired || note.voiding || !missing(record) {
                continue;
            }
            if note.required {
                return Err(format!("synced and gone: {note:?}"));
            }
            if note.acknowledged.is_some_and(|at| at < latest) {
                return Err(format!("{note:?} is gone, and one that was begun at {latest} is there"));
            }
        }
        self.replayed = found.into_iter().collect();
        self.notes.clear();
        self.retired_before = self.retired;
        Ok(())
    }
}

#[derive(Clone, Copy, Debug)]
struct LogShape {
    seed: u64,
    broken_rule: Option<BrokenRule>,
}

impl LogShape {
    fn random(&self) -> Seeded {
        Seeded::new(self.seed)
    }

    fn drive(&self) -> EmuOptions {
        let mut random = self.random();
        let open = [4, 7, 14, 14][random.choose(4)];
        let (size, capacity) = [(64, 60), (32, 28), (16, 14)][random.choose(3)];
        EmuOptions {
            block_size: [512, 4096][random.choose(2)],
            zones: 64,
            zone_size: Blocks(size),
            zone_capacity: Blocks(capacity),
            max_open: Some(open),
            max_active: Some(open),
            max_append: Blocks([1, 2, 8][random.choose(3)]),
            volatile_cache: random.choose(4) > 0,
            reorder: true,
            ..EmuOptions::tiny()
        }
    }

    fn on(&self, media: Media, number: u64) -> Drive {
        let driver = VirtualDriver::new(self.seed ^ number << 32);
        Drive { emu: Emu::from_media(media, "emu:cut", latency(), driver.clone()), driver }
    }

    /// The log's stripe width: more than one if the drive's cache is not volatile.
    fn zones(&self) -> usize {
        1 + (self.seed % 3) as usize
    }

    fn mount(&self) -> MountOptions {
        MountOptions { broken_rule: self.broken_rule, ..MountOptions::default() }
    }
}

fn latency() -> Latency {
    let micros = Duration::from_micros;
    Latency {
        write: micros(20),
        flush: micros(50),
        read: micros(5),
        finish: micros(60),
        reset: micros(40),
        ..Latency::NONE
    }
}

/// A test record that differs from all other ones.
fn record(random: &mut Seeded, round: u64, writer: usize, n: usize, block: usize) -> Vec<u8> {
    let len = match random.choose(20) {
        0 => 70 * block,
        1 | 2 => 9 * block,
        3..6 => 2 * block,
        _ => block,
    };
    let len = 16 + random.choose(len);
    let mut record = format!("{round:04}-{writer:04}-{n:05}-").into_bytes();
    record.resize_with(len.max(record.len()), || 1 + random.choose(255) as u8);
    record
}

async fn writer(
    log: Arc<ParallelLog>,
    model: Arc<Mutex<LogModel>>,
    driver: Arc<dyn Driver>,
    seed: u64,
    (round, me, block): (u64, usize, usize),
) {
    let mut random = Seeded::new(seed);
    for n in 0.. {
        let record = record(&mut random, round, me, n, block);
        {
            let mut model = model.lock();
            let begun = model.now();
            model.notes.insert(record.clone(), RecordNote { begun, ..RecordNote::default() });
        }
        let begun = model.lock().now();
        let sync = random.choose(4) == 0;
        match log.append(&record, sync).await {
            Ok(ticket) => {
                let mut model = model.lock();
                let now = model.now();
                let note = model.note(&record);
                (note.acknowledged, note.ticket) = (Some(now), Some(ticket));
                if sync {
                    note.required = true;
                    model.make_durable(begun);
                }
            }
            Err(error) => {
                assert!(matches!(error.kind(), ErrorKind::NoSpace), "{error}");
                let mut model = model.lock();
                model.failed += 1;
                model.note(&record).voiding = true;
                // Retiring records frees space.
                let ticket = log.acknowledged();
                model.retired = model.retired.max(ticket.0);
                log.retire(ticket).unwrap();
            }
        }
        let known = model.lock().note(&record).ticket;
        match random.choose(40) {
            0 => {
                let begun = model.lock().now();
                log.sync().await.unwrap();
                model.lock().make_durable(begun);
            }
            1 | 2 => {
                if let Some(ticket) = known {
                    model.lock().note(&record).voiding = true;
                    // If the drive is full, the void entry may have no room, and the voided record may be
                    // replayed.
                    match log.void(ticket).await {
                        Ok(()) => model.lock().note(&record).voided = true,
                        Err(error) => assert_eq!(error.kind(), ErrorKind::NoSpace, "{error}"),
                    }
                }
            }
            3 | 4 => {
                let mut model = model.lock();
                let below = log.acknowledged().0.saturating_sub(random.choose(60) as u64);
                model.retired = model.retired.max(below);
                log.retire(Ticket(below)).unwrap();
            }
            _ => {}
        }
        if random.choose(3) == 0 {
            let pause = Duration::from_micros(random.choose(150) as u64);
            sleep_until(&*driver, driver.now().after(pause)).await;
        }
    }
}

type ReplayedRecords = Vec<(Ticket, Vec<u8>)>;

async fn open(fs: &Fs, batching: Batching, zones: usize) -> fs::Result<(ParallelLog, ReplayedRecords)> {
    let options = ParallelOptions { open: 64, batching, zones, ..ParallelOptions::default() };
    let (log, mut replay) = fs.parallel_log(PATH, &options).await?;
    let mut found = Vec::new();
    while let Some(record) = replay.next().await? {
        found.push(record);
    }
    Ok((log, found))
}

/// Runs rounds of writes, a power cut and a recovery; the recovery is cut, too. Returns the number of records
/// that survived.
fn run(shape: LogShape) -> Result<usize, String> {
    let mut random = shape.random();
    let options = shape.drive();
    let block = options.block_size as usize;
    let mut drive =
        Drive { driver: VirtualDriver::new(shape.seed), emu: Emu::memory(options, VirtualDriver::new(0)) };
    drive = shape.on(drive.emu.media(), 0);
    let dev = drive.dev();
    drive.run(Fs::format(&dev, &FormatOptions::default())).unwrap();
    let model = Arc::new(Mutex::new(LogModel::default()));
    let mut survived = 0;
    for round in 1..4 {
        let fs = drive.run(Fs::mount(drive.dev(), &shape.mount())).map_err(|e| format!("mount: {e}"))?;
        let batching = if shape.seed.is_multiple_of(2) { Batching::Auto } else { Batching::Each };
        let (log, found) = drive.run(open(&fs, batching, shape.zones())).map_err(|e| format!("open: {e}"))?;
        survived += found.len();
        model.lock().compare_with_replay(found)?;
        let log = Arc::new(log);
        let driver: Arc<dyn Driver> = drive.driver.clone();
        for me in 0..WRITERS {
            let seed = shape.seed ^ round << 40 ^ (me as u64) << 50;
            let (log, model, d) = (Arc::clone(&log), Arc::clone(&model), Arc::clone(&driver));
            drop(spawn(&*driver, "writer", writer(log, model, d, seed, (round, me, block))));
        }
        let until = driver.now().after(Duration::from_micros(200 + random.choose(6000) as u64));
        drive.run(sleep_until(&*driver, until));
        drive = shape.on(drive.emu.power_cut(&mut random), round);
        std::mem::forget(log);
        // Recoveries after one that a power cut interrupted all give the same records.
        for again in 0..random.choose(3) as u64 {
            let fate = Arc::new(Mutex::new(None));
            let (dev, mount, to) = (drive.dev(), shape.mount(), Arc::clone(&fate));
            drop(spawn(&*drive.driver, "opener", async move {
                let Ok(fs) = Fs::mount(dev, &mount).await else { return };
                let found = open(&fs, Batching::Auto, 1).await;
                *to.lock() = found.ok().map(|(log, found)| {
                    std::mem::forget(log);
                    found
                });
                std::mem::forget(fs);
            }));
            let until = drive.driver.now().after(Duration::from_micros(random.choose(3000) as u64));
            drive.run(sleep_until(&*drive.driver, until));
            if let Some(found) = fate.lock().take() {
                model.lock().compare_with_replay(found)?;
            }
            drive = shape.on(drive.emu.power_cut(&mut random), round | again << 8 | 1 << 7);
        }
        let dev = drive.dev();
        let report = drive.run(Fs::check(&dev)).map_err(|e| format!("check: {e}"))?;
        if !report.problems.is_empty() {
            return Err(format!("check: {:?}", report.problems));
        }
    }
    Ok(survived)
}

fn seeds() -> std::ops::Range<u64> {
    let asked = std::env::var("FURROW_SEEDS").ok().and_then(|n| n.parse().ok());
    0..asked.unwrap_or(200)
}

#[test]
fn no_power_cut_loses_a_synced_record_or_replays_a_voided_one() {
    let mut survived = 0;
    for seed in seeds() {
        let found = run(LogShape { seed, broken_rule: None });
        survived += found.unwrap_or_else(|fault| panic!("seed {seed}: {fault}"));
    }
    println!("{survived} records survived");
    assert!(survived > 20 * seeds().end as usize, "{survived}");
}

/// True if one of the seeds fails while a safety rule is broken.
fn is_broken_rule_noticed(broken_rule: BrokenRule) -> bool {
    let mut faults = seeds().filter_map(|seed| run(LogShape { seed, broken_rule: Some(broken_rule) }).err());
    let (one, another) = (faults.next(), faults.next());
    println!("{broken_rule:?}: {one:?}");
    another.is_some()
}

#[test]
fn a_sync_that_does_not_flush_is_noticed() {
    assert!(is_broken_rule_noticed(BrokenRule::Sync));
}

#[test]
fn a_recovery_that_ignores_the_needs_of_entries_is_noticed() {
    assert!(is_broken_rule_noticed(BrokenRule::Needs));
}

#[test]
fn a_log_without_void_entries_is_noticed() {
    assert!(is_broken_rule_noticed(BrokenRule::Void));
}

#[test]
fn a_zone_that_is_left_with_appends_in_flight_is_noticed() {
    assert!(is_broken_rule_noticed(BrokenRule::Replacement));
}
