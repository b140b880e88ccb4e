//! Random changes of a file system, power cuts at random operations of the device, and a model of the states
//! that may survive.
//!
//! Changes of names survive as a prefix of all changes, at least up to the last sync. A file's content
//! survives as a prefix of the appended bytes, at least up to the file's last sync.
#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "a test may panic")]

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use crate::common::{Drive, data, log, read, write};
use fs::wal::LogOptions;
use fs::{BrokenRule, FileKind, Fs, MountOptions, Writer};
use parking_lot::Mutex;
use units::{Driver, VirtualDriver, block_on};
use zoned::emu::{Choose, Emu, EmuOptions, Latency, Media, Seeded};
use zoned::{Geometry, Io, Op, ZonedDevice};

/// The identity of the file at each path of the model; a directory has identity 0.
type Names = BTreeMap<String, u64>;

#[derive(Clone, Default)]
struct FileSystemModel {
    states: Vec<Names>,
    /// Index of the newest state of the names that is known to be durable.
    floor: usize,
    contents: BTreeMap<u64, Vec<u8>>,
    synced: BTreeMap<u64, usize>,
}

impl FileSystemModel {
    fn names(&self) -> Names {
        self.states.last().cloned().unwrap_or_default()
    }

    fn next(&mut self, change: impl FnOnce(&mut Names)) {
        let mut names = self.names();
        change(&mut names);
        self.states.push(names);
    }

    fn durable(&mut self) {
        self.floor = self.states.len() - 1;
    }

    /// The fault of the tree that was found after a power cut, if any.
    fn fault_of_tree(&self, found: &BTreeMap<String, Option<Vec<u8>>>) -> Result<(), String> {
        let fits = |names: &Names| {
            names.len() == found.len()
                && names.iter().zip(found).all(|((a, id), (b, content))| {
                    a == b
                        && match content {
                            None => *id == 0,
                            Some(content) => self.contents.get(id).is_some_and(|whole| {
                                whole.starts_with(content)
                                    && content.len() >= self.synced.get(id).copied().unwrap_or(0)
                            }),
                        }
                })
        };
        if self.states[self.floor..].iter().any(fits) {
            return Ok(());
        }
        let lens: Vec<_> = found.iter().map(|(p, c)| (p, c.as_ref().map(Vec::len))).collect();
        Err(format!(
            "found {lens:?}; synced {:?}; allowed {:#?}",
            self.synced,
            self.states[self.floor..].iter().collect::<Vec<_>>()
        ))
    }
}

/// A drive that keeps images of the medium after some operations, each with the model at that moment.
struct Recorder {
    emu: Arc<Emu>,
    model: Arc<Mutex<FileSystemModel>>,
    kept: Mutex<(Seeded, Vec<(Media, FileSystemModel)>)>,
}

impl Recorder {
    fn over(emu: Arc<Emu>, model: &Arc<Mutex<FileSystemModel>>, seed: u64) -> Arc<Recorder> {
        let kept = Mutex::new((Seeded::new(seed), Vec::new()));
        Arc::new(Recorder { emu, model: Arc::clone(model), kept })
    }
}

impl fmt::Debug for Recorder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("recorder")
    }
}

impl ZonedDevice for Recorder {
    fn geometry(&self) -> &Geometry {
        self.emu.geometry()
    }

    fn submit(&self, op: Op) -> Io {
        let writes = !matches!(op, Op::Read { .. } | Op::Report { .. });
        let io = self.emu.submit(op);
        let mut kept = self.kept.lock();
        if writes && kept.0.choose(6) == 0 {
            kept.1.push((self.emu.media(), self.model.lock().clone()));
        }
        io
    }

    fn driver(&self) -> &Arc<dyn Driver> {
        self.emu.driver()
    }
}

struct RandomChanges {
    fs: Fs,
    model: Arc<Mutex<FileSystemModel>>,
    random: Seeded,
    next: u64,
    /// Divisor of the file sizes, for a small drive.
    scale: usize,
    /// The open logs: path at creation, identity, writer.
    logs: Vec<(u64, Writer)>,
}

const PATHS: [&str; 8] = ["/a", "/b", "/c", "/d/a", "/d/b", "/e/a", "/x.log", "/y.log"];

/// A long path, so that a few changes of names fill a block of metadata.
fn path(random: &mut Seeded) -> String {
    PATHS[random.choose(PATHS.len())].to_owned() + &"-".repeat(200)
}

impl RandomChanges {
    fn fresh(&mut self, len: usize) -> (u64, Vec<u8>) {
        self.next += 1;
        let id = self.next;
        (id, (0..len).map(|i| (i / 5) as u8 ^ (id as u8).wrapping_mul(31)).collect())
    }

    async fn step(&mut self) {
        let model = Arc::clone(&self.model);
        let (path, other) = (&*path(&mut self.random), &*path(&mut self.random));
        let len = [100, 5_000, 20_000, 45_000][self.random.choose(4)] / self.scale;
        let names = model.lock().names();
        let there = names.contains_key(path);
        match self.random.choose(13) {
            0 | 1 => {
                let (id, content) = self.fresh(len);
                {
                    let mut m = model.lock();
                    m.contents.insert(id, content.clone());
                    m.next(|names| {
                        names.insert(path.into(), id);
                    });
                }
                let writer = self.fs.create(path, &data()).await.unwrap();
                writer.append(&content).await.unwrap();
                if self.random.choose(2) == 0 {
                    writer.sync().await.unwrap();
                    let mut m = model.lock();
                    m.synced.insert(id, content.len());
                    m.durable();
                }
                writer.close().await.unwrap();
            }
            2 if there && names[path] < 1_000_000 => {
                let (id, more) = (names[path], self.fresh(len / 2).1);
                let Ok(writer) = self.fs.open_append(path).await else { return };
                model.lock().contents.get_mut(&id).unwrap().extend_from_slice(&more);
                writer.append(&more).await.unwrap();
                if self.random.choose(2) == 0 {
                    writer.sync().await.unwrap();
                    let mut m = model.lock();
                    let len = m.contents[&id].len();
                    m.synced.insert(id, len);
                }
                writer.close().await.unwrap();
            }
            // Both names are of one file, so the rename changes nothing.
            3 | 4 if there && path != other && names.get(other) != names.get(path) => {
                model.lock().next(|names| {
                    let id = names.remove(path).unwrap();
                    names.insert(other.into(), id);
                });
                self.fs.rename(path, other).await.unwrap();
            }
            5 if there => {
                model.lock().next(|names| {
                    names.remove(path);
                });
                self.fs.unlink(path).await.unwrap();
            }
            6 if there && !names.contains_key(other) => {
                model.lock().next(|names| {
                    names.insert(other.into(), names[path]);
                });
                self.fs.link(path, other).await.unwrap();
            }
            7 => {
                self.fs.sync().await.unwrap();
                model.lock().durable();
            }
            8 if self.logs.len() < 2 => {
                let (id, _) = self.fresh(0);
                {
                    let mut m = model.lock();
                    m.contents.insert(id, Vec::new());
                    m.next(|names| {
                        names.insert(path.into(), id);
                    });
                }
                let writer = self.fs.create(path, &log()).await.unwrap();
                self.logs.push((id, writer));
            }
            9..=11 if !self.logs.is_empty() => {
                let more = self.fresh(len / 2).1;
                let at = self.random.choose(self.logs.len().max(2)) % self.logs.len();
                let (id, writer) = &self.logs[at];
                model.lock().contents.get_mut(id).unwrap().extend_from_slice(&more);
                writer.append(&more).await.unwrap();
                if self.random.choose(2) == 0 {
                    writer.sync().await.unwrap();
                    let mut m = model.lock();
                    let len = m.contents[id].len();
                    m.synced.insert(*id, len);
                }
                if self.random.choose(4) == 0 {
                    self.logs.remove(at).1.close().await.unwrap();
                }
            }
            _ => {}
        }
    }
}

async fn tree(fs: &Fs) -> Result<BTreeMap<String, Option<Vec<u8>>>, String> {
    let mut found = BTreeMap::new();
    let mut todo = vec![String::new()];
    while let Some(dir) = todo.pop() {
        for entry in fs.read_dir(&format!("{dir}/")).map_err(|e| e.to_string())? {
            let path = format!("{dir}/{}", entry.name);
            if entry.kind == FileKind::Directory {
                todo.push(path.clone());
                found.insert(path, None);
            } else {
                let content = read(fs, &path).await.map_err(|e| e.to_string())?;
                found.insert(path, Some(content));
            }
        }
    }
    Ok(found)
}

fn options(broken_rule: Option<BrokenRule>) -> MountOptions {
    MountOptions {
        write_buffer: 8192,
        log: LogOptions { buffer: 8192, ..LogOptions::default() },
        broken_rule,
        ..MountOptions::default()
    }
}

/// Mounts the medium that one power cut left, and compares its tree with the model.
fn check_image(image: Media, model: &FileSystemModel, broken_rule: Option<BrokenRule>) -> Result<(), String> {
    let drive = Drive::from_media(image);
    let dev = drive.dev();
    drive.run(async {
        let text = |e: fs::Error| e.to_string();
        let fs = Fs::mount(Arc::clone(&dev), &options(broken_rule)).await.map_err(text)?;
        model.fault_of_tree(&tree(&fs).await?)?;
        write(&fs, "/after", b"the cut").await.map_err(text)?;
        fs.unmount().await.map_err(text)?;
        let report = Fs::check(&dev).await.map_err(text)?;
        if !report.problems.is_empty() {
            return Err(format!("{:?}", report.problems));
        }
        let fs = Fs::mount(Arc::clone(&dev), &options(broken_rule)).await.map_err(text)?;
        let after = read(&fs, "/after").await.map_err(text)?;
        fs.unmount().await.map_err(text)?;
        if after == b"the cut" { Ok(()) } else { Err("what was synced after the cut is gone".into()) }
    })
}

/// One run of `steps` random changes, with several power cuts of every image. Returns the number of cuts.
fn explore(seed: u64, steps: usize, cuts: u64, broken_rule: Option<BrokenRule>) -> Result<u64, String> {
    let kept = record_images(seed, steps, broken_rule);
    let mut done = 0;
    for (n, (media, model)) in kept.iter().enumerate() {
        for cut in 0..cuts {
            let image = media.cut(&mut Seeded::new(seed.wrapping_mul(1000) + cut));
            check_image(image, model, broken_rule)
                .map_err(|e| format!("seed {seed}, image {n}, cut {cut}: {e}"))?;
            done += 1;
        }
    }
    Ok(done)
}

/// One run of `steps` random changes. Returns images of the medium, each with its model.
fn record_images(seed: u64, steps: usize, broken_rule: Option<BrokenRule>) -> Vec<(Media, FileSystemModel)> {
    let driver = VirtualDriver::new(seed);
    // Blocks are short, so that a metadata commit takes several blocks, between which a power cut can tear
    // it. With a delay, operations are in flight when an image is taken.
    let latency = Latency::all(Duration::from_micros(10));
    let (block_size, scale) = if seed.is_multiple_of(2) { (4096, 1) } else { (512, 12) };
    // With few open zones metadata commits wait for a roll; with many they do not.
    let limit = Some(if seed % 4 < 2 { 6 } else { 14 });
    let emu = Emu::memory(
        EmuOptions { block_size, latency, max_open: limit, max_active: limit, ..EmuOptions::tiny() },
        driver.clone(),
    );
    let model = Arc::new(Mutex::new(FileSystemModel::default()));
    let plain: Arc<dyn ZonedDevice> = emu.clone();
    let recorder = Recorder::over(emu, &model, seed ^ 0xabcd);
    let dev: Arc<dyn ZonedDevice> = recorder.clone();
    block_on(&*driver, async {
        Fs::format(&plain, &fs::FormatOptions::default()).await.unwrap();
        let mut names = Names::new();
        model.lock().states.push(names.clone());
        let fs = Fs::mount(dev, &options(broken_rule)).await.unwrap();
        for dir in ["/d", "/e"] {
            names.insert(dir.into(), 0);
            model.lock().states.push(names.clone());
            fs.mkdir(dir).await.unwrap();
        }
        let mut world = RandomChanges {
            fs,
            model: Arc::clone(&model),
            random: Seeded::new(seed),
            next: 0,
            scale,
            logs: Vec::new(),
        };
        for _ in 0..steps {
            world.step().await;
        }
        for (_, writer) in world.logs {
            writer.close().await.unwrap();
        }
        world.fs.unmount().await.unwrap();
        model.lock().durable();
    });
    std::mem::take(&mut recorder.kept.lock().1)
}

/// The model of a mounted file system after a power cut: all its files are durable.
async fn model_of(fs: &Fs) -> Result<FileSystemModel, String> {
    let mut model = FileSystemModel::default();
    let mut names = Names::new();
    for (path, content) in tree(fs).await? {
        // Identities of files from before the power cut are above those of files that the test creates later.
        let ino = content.as_ref().map(|_| fs.stat(&path).map(|stat| stat.ino << 32));
        let id = ino.transpose().map_err(|e| e.to_string())?.unwrap_or(0);
        names.insert(path, id);
        if let Some(content) = content {
            model.synced.insert(id, content.len());
            model.contents.insert(id, content);
        }
    }
    model.states.push(names);
    Ok(model)
}

/// A power cut, more changes, and a second power cut: changes that the first cut lost must not reappear after
/// the second.
fn explore_twice(seed: u64, cuts: u64) -> Result<u64, String> {
    let mut random = Seeded::new(seed);
    let first = record_images(seed, 60, None);
    let mut done = 0;
    for round in 0..cuts {
        let Some((media, _)) = first.get(random.choose(first.len().max(2)) % first.len()) else { break };
        let driver = VirtualDriver::new(seed + round);
        let image = media.cut(&mut Seeded::new(seed * 77 + round));
        let emu = Emu::from_media(image, "emu:mem", Latency::all(Duration::from_micros(10)), driver.clone());
        let model = Arc::new(Mutex::new(FileSystemModel::default()));
        let recorder = Recorder::over(emu, &model, seed ^ round);
        block_on(&*driver, async {
            let fs = Fs::mount(recorder.clone(), &options(None)).await.map_err(|e| e.to_string())?;
            let found = model_of(&fs).await?;
            recorder.kept.lock().1.clear();
            // The changes that follow need both directories.
            if !["/d", "/e"].iter().all(|dir| found.names().contains_key(*dir)) {
                return Ok(());
            }
            *model.lock() = found;
            let random = Seeded::new(seed * 5 + round);
            let scale = if seed.is_multiple_of(2) { 1 } else { 12 };
            let mut world =
                RandomChanges { fs, model: Arc::clone(&model), random, next: 0, scale, logs: Vec::new() };
            for _ in 0..40 {
                world.step().await;
            }
            Ok::<(), String>(())
        })?;
        let kept = std::mem::take(&mut recorder.kept.lock().1);
        for (n, (media, model)) in kept.iter().enumerate() {
            let image = media.cut(&mut Seeded::new(seed * 1000 + round));
            check_image(image, model, None)
                .map_err(|e| format!("seed {seed}, round {round}, image {n}: {e}"))?;
            done += 1;
        }
    }
    Ok(done)
}

/// A power cut removes a log, a second log gets its zone and its name, and a second cut follows: no entry of the first log may
/// be read as the second log's.
fn log_after_log(seed: u64, broken_rule: Option<BrokenRule>) -> Result<(), String> {
    let (first, second) = (crate::common::bytes(30_000, 1), crate::common::bytes(30_000, 2));
    let drive = Drive::tiny();
    drive.format();
    let live = async |drive: &Drive, content: &[u8], durable: bool| {
        let fs = Fs::mount(drive.dev(), &options(broken_rule)).await.unwrap();
        let writer = fs.create("/log", &log()).await.unwrap();
        writer.append(content).await.unwrap();
        writer.flush().await.unwrap();
        if durable {
            // The test makes the names and the uses of the zones durable, without the zones' content.
            fs.sync().await.unwrap();
        }
    };
    drive.run(live(&drive, &first, false));
    let drive = drive.cut(&mut Seeded::new(seed));
    drive.run(live(&drive, &second, true));
    let drive = drive.cut(&mut Seeded::new(seed + 1_000_000));
    let fs = drive.run(Fs::mount(drive.dev(), &options(broken_rule))).map_err(|e| e.to_string())?;
    let found = drive.run(read(&fs, "/log")).map_err(|e| e.to_string())?;
    if second.starts_with(&found) { Ok(()) } else { Err(format!("seed {seed}: {} bytes", found.len())) }
}

fn seeds() -> std::ops::Range<u64> {
    let first = std::env::var("SEED").ok().and_then(|s| s.parse().ok());
    let count = std::env::var("SEEDS").ok().and_then(|s| s.parse().ok());
    first.map_or(0..count.unwrap_or(12), |seed| seed..seed + 1)
}

#[test]
fn a_power_cut_loses_nothing_synced_and_invents_nothing() {
    let mut cuts = 0;
    for seed in seeds() {
        cuts += explore(seed, 150, 3, None).unwrap_or_else(|e| panic!("{e}"));
    }
    assert!(cuts > 500 || seeds().count() == 1, "only {cuts} cuts");
}

#[test]
fn a_second_power_cut_loses_nothing_synced_and_invents_nothing() {
    let mut cuts = 0;
    for seed in seeds() {
        cuts += explore_twice(seed, 8).unwrap_or_else(|e| panic!("{e}"));
    }
    assert!(cuts > 500 || seeds().count() == 1, "only {cuts} cuts");
}

#[test]
fn entries_of_an_earlier_log_in_a_zone_are_not_read_as_the_next_logs() {
    for seed in 0..400 {
        log_after_log(seed, None).unwrap_or_else(|e| panic!("{e}"));
    }
}

#[test]
fn a_zone_used_under_a_generation_that_is_not_durable_is_found() {
    assert!((0..400).any(|seed| log_after_log(seed, Some(BrokenRule::Generation)).is_err()));
}

fn is_broken_rule_found(broken_rule: BrokenRule) -> bool {
    (0..40).any(|seed| explore(seed, 300, 4, Some(broken_rule)).is_err())
}

#[test]
fn a_sync_without_a_flush_is_found() {
    assert!(is_broken_rule_found(BrokenRule::Sync));
}

#[test]
fn a_rename_in_two_steps_is_found() {
    assert!(is_broken_rule_found(BrokenRule::Rename));
}

#[test]
fn a_write_behind_a_torn_tail_is_found() {
    assert!(is_broken_rule_found(BrokenRule::TornTail));
}

#[test]
fn an_early_reset_is_found() {
    assert!(is_broken_rule_found(BrokenRule::Reset));
}
