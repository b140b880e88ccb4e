//! The target `engine`: RocksDB on the file system.
//!
//! One thread writes batches, some of them synced, while RocksDB's own threads flush and compact. The order of
//! writes is known, so that a database after a power cut must equal the result of a prefix of them, no shorter
//! than what was synced. Each batch also sets the key [`COUNT`] to its number: it says which prefix.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use fs::log::LogOptions;
use fs::{FormatOptions, Fs, MountOptions, Sabotage};
use rocks::{Db, DbOptions, WriteBatch};
use units::{Driver, RealDriver, block_on};
use zoned::ZonedDevice;
use zoned::emu::{Emu, Latency, Media};

use crate::choose::Sample;
use crate::explore::{Oracle, Probe};
use crate::model::{Fault, Progress};
use crate::replay::{Fates, Replay};
use crate::report::FailureKind;
use crate::trace::{Drive, Event, Trace};
use crate::{Error, Recorder, Result, Rng, Step, Target};

/// Batches of a workload.
const BATCHES: usize = 150;
/// Keys that batches choose from.
const KEYS: u64 = 60;
/// The key that says how many batches there were.
const COUNT: &[u8] = b"~count";
/// The key that is written after a recovery.
const AFTER: &[u8] = b"~~after";
const DIRECTORY: &str = "/db";
/// Acknowledgements come up to this much later, so that operations of several threads overlap.
const JITTER: Duration = Duration::from_micros(30);

/// A batch: keys and their new values, `None` where they are removed.
struct Batch {
    changes: Vec<(Vec<u8>, Option<Vec<u8>>)>,
    sync: bool,
    /// The memtables are written out after it.
    flush: bool,
}

fn batches(seed: u64, workload: u64) -> Vec<Batch> {
    let mut rng = Rng::at(seed, &[workload, 0xba7c]);
    let batch = |n: usize| {
        let mut changes = vec![(COUNT.to_vec(), Some((n as u64 + 1).to_be_bytes().to_vec()))];
        for _ in 0..1 + rng.below(5) {
            let key = format!("key{:03}", rng.below(KEYS)).into_bytes();
            let value = (!rng.chance(20)).then(|| {
                let len = if rng.chance(8) { 6000 + rng.index(9000) } else { rng.index(1500) };
                let mut value = Vec::with_capacity(len + 8);
                while value.len() < len {
                    value.extend_from_slice(&rng.draw().to_le_bytes());
                }
                value.truncate(len);
                value
            });
            changes.push((key, value));
        }
        Batch { changes, sync: rng.chance(30), flush: rng.chance(3) }
    };
    (0..BATCHES).map(batch).collect()
}

fn drive(volatile_cache: bool) -> Drive {
    Drive { zones: 96, zone_size: 32, zone_capacity: 28, max_append: 16, ..Drive::tiny(volatile_cache) }
}

fn db_options() -> DbOptions {
    DbOptions { write_buffer: 64 << 10, background_jobs: 2, block_cache: 1 << 20, ..DbOptions::default() }
}

fn mount_options(sabotage: Option<Sabotage>) -> MountOptions {
    MountOptions {
        log: LogOptions { buffer: 8 << 10, ..LogOptions::default() },
        write_buffer: 32 << 10,
        sabotage,
        ..MountOptions::default()
    }
}

/// Runs a workload and records it. RocksDB's threads make every recording different.
pub(crate) fn record(
    seed: u64,
    workload: u64,
    volatile_cache: bool,
    sabotage: Option<Sabotage>,
) -> Result<Trace> {
    let drive = drive(volatile_cache);
    let driver: Arc<dyn Driver> = RealDriver::new();
    let emu = Emu::memory(drive.options("emu:crash", Latency::NONE), Arc::clone(&driver));
    let recorder = Recorder::new(emu, JITTER);
    let device: Arc<dyn ZonedDevice> = Arc::clone(&recorder) as Arc<dyn ZonedDevice>;
    let failed =
        |e: &dyn std::fmt::Display| Error::Workload(format!("engine, seed {seed}, workload {workload}: {e}"));
    let fs = block_on(&*driver, async {
        Fs::format(&device, &FormatOptions::default()).await?;
        Fs::mount(Arc::clone(&device), &mount_options(sabotage)).await
    })
    .map_err(|e| failed(&e))?;
    recorder.ready();
    let db = Db::open(&fs, DIRECTORY, &db_options()).map_err(|e| failed(&e))?;
    let mut synced = 0;
    for (n, batch) in batches(seed, workload).iter().enumerate() {
        recorder.attempt(Step(n as u64));
        write(&db, &batch.changes, batch.sync).map_err(|e| failed(&e))?;
        if batch.sync {
            (synced..=n).for_each(|step| recorder.acknowledged(Step(step as u64)));
            synced = n + 1;
        }
        if batch.flush {
            db.flush().map_err(|e| failed(&e))?;
        }
    }
    db.close().map_err(|e| failed(&e))?;
    block_on(&*driver, fs.unmount()).map_err(|e| failed(&e))?;
    Ok(Trace { target: Target::Engine, seed, workload, drive, events: recorder.take() })
}

fn write(db: &Db, changes: &[(Vec<u8>, Option<Vec<u8>>)], sync: bool) -> rocks::Result<()> {
    let mut batch = WriteBatch::new();
    for (key, value) in changes {
        match value {
            Some(value) => batch.put(key, value),
            None => batch.delete(key),
        }
    }
    db.write(&batch, sync)
}

type Content = BTreeMap<Vec<u8>, Vec<u8>>;

/// Checks images of one workload.
pub(crate) struct EngineOracle {
    /// The database after 0, 1, 2, ... batches.
    contents: Vec<Content>,
    sabotage: Option<Sabotage>,
}

impl EngineOracle {
    pub(crate) fn new(trace: &Trace, sabotage: Option<Sabotage>) -> EngineOracle {
        let mut contents = vec![Content::new()];
        let mut content = Content::new();
        for batch in batches(trace.seed, trace.workload) {
            for (key, value) in batch.changes {
                match value {
                    Some(value) => content.insert(key, value),
                    None => content.remove(&key),
                };
            }
            contents.push(content.clone());
        }
        EngineOracle { contents, sabotage }
    }

    /// Mounts, opens, does something with the content, closes.
    fn session(
        &self,
        device: &Arc<dyn ZonedDevice>,
        with: impl FnOnce(&Db, Content) -> Vec<Fault>,
    ) -> Vec<Fault> {
        let driver = Arc::clone(device.driver());
        let fs = match block_on(&*driver, Fs::mount(Arc::clone(device), &mount_options(self.sabotage))) {
            Ok(fs) => fs,
            Err(e) => return vec![fault(FailureKind::Mount, e)],
        };
        let mut faults = Vec::new();
        match Db::open(&fs, DIRECTORY, &db_options()) {
            Ok(db) => {
                match content(&db) {
                    Ok(content) => faults.extend(with(&db, content)),
                    Err(e) => {
                        faults.push(fault(FailureKind::Lost, format!("the database cannot be read: {e}")))
                    }
                }
                if let Err(e) = db.close() {
                    faults.push(fault(FailureKind::Mount, format!("close: {e}")));
                }
            }
            Err(e) => faults.push(fault(FailureKind::Mount, e)),
        }
        if let Err(e) = block_on(&*driver, fs.unmount()) {
            faults.push(fault(FailureKind::Mount, format!("unmount: {e}")));
        }
        match block_on(&*driver, Fs::check(device)) {
            Ok(report) => {
                faults.extend(report.problems.into_iter().map(|p| fault(FailureKind::Check, p)));
            }
            Err(e) => faults.push(fault(FailureKind::Check, e)),
        }
        faults
    }

    fn judge(&self, progress: &Progress, found: &Content) -> Vec<Fault> {
        let promised =
            progress.promised.first().map_or(0, |p| p.iter().rposition(|p| *p).map_or(0, |at| at + 1));
        let attempted = progress.attempted.first().copied().unwrap_or(0).max(promised);
        let count = found.get(COUNT).and_then(|v| v.as_slice().try_into().ok()).map_or(0, u64::from_be_bytes);
        let count = usize::try_from(count).unwrap_or(usize::MAX);
        let range = format!("{count} batches are there, {promised} promised, {attempted} attempted");
        if count < promised {
            return vec![fault(FailureKind::Lost, range)];
        }
        let Some(expected) = self.contents.get(count).filter(|_| count <= attempted) else {
            return vec![fault(FailureKind::Invented, range)];
        };
        let differs = |key: &&Vec<u8>| expected.get(*key) != found.get(*key);
        match expected.keys().chain(found.keys()).find(differs) {
            None => Vec::new(),
            Some(key) => {
                let kind = if found.contains_key(key) { FailureKind::Invented } else { FailureKind::Lost };
                let what = format!("{range}, but key {} is another", String::from_utf8_lossy(key));
                vec![fault(kind, what)]
            }
        }
    }
}

impl Oracle for EngineOracle {
    fn probe(&self, image: Media, progress: &Progress, probe: Probe) -> Vec<Fault> {
        let driver: Arc<dyn Driver> = RealDriver::new();
        let on = |media: Media| -> Arc<dyn ZonedDevice> {
            Emu::from_media(media, "emu:image", Latency::NONE, Arc::clone(&driver))
        };
        if !probe.twice {
            return self.session(&on(image), |_, content| self.judge(progress, &content));
        }
        let recorder = Recorder::new(on(image.clone()), Duration::ZERO);
        let device: Arc<dyn ZonedDevice> = Arc::clone(&recorder) as Arc<dyn ZonedDevice>;
        let mut faults = self.session(&device, |db, _| {
            recorder.attempt(Step(0));
            match write(db, &[(AFTER.to_vec(), Some(vec![1]))], true) {
                Ok(()) => recorder.acknowledged(Step(0)),
                Err(e) => return vec![fault(FailureKind::Mount, format!("a write after the recovery: {e}"))],
            }
            Vec::new()
        });
        let events = recorder.take();
        let mut rng = Rng::new(probe.seed);
        let io = events.iter().filter(|e| e.is_io()).count() as u64;
        let cut = rng.below(io + 1);
        let (mut done, mut attempted, mut promised) = (0, false, false);
        let fates = Fates::of(&events);
        let mut replay = Replay::new(image, &fates);
        for event in &events {
            match event {
                Event::Attempt { .. } => attempted = true,
                Event::Acknowledged { .. } => promised = true,
                _ if done == cut => break,
                event => {
                    done += 1;
                    replay.step(event);
                }
            }
        }
        let image = replay.image().cut(&mut Sample::new(rng));
        faults.extend(self.session(&on(image), |_, mut content| {
            let after = content.remove(AFTER);
            let mut faults = self.judge(progress, &content);
            if after.is_none() && promised {
                faults.push(fault(FailureKind::Lost, "what was synced after the first recovery is gone"));
            }
            if after.is_some() && !attempted {
                faults.push(fault(FailureKind::Invented, "a write after the first recovery came too early"));
            }
            faults
        }));
        for fault in &mut faults {
            fault.what += &format!(" (second cut after {cut} of {io} events)");
        }
        faults
    }
}

fn content(db: &Db) -> rocks::Result<Content> {
    let mut content = Content::new();
    let mut cursor = db.iter(&[])?;
    while cursor.valid() {
        content.insert(cursor.key().to_vec(), cursor.value().to_vec());
        cursor.next();
    }
    cursor.status()?;
    Ok(content)
}

fn fault(kind: FailureKind, what: impl std::fmt::Display) -> Fault {
    Fault { kind, what: what.to_string() }
}
