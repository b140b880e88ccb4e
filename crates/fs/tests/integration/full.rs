//! Tests of a full drive: no writer waits for ever, `NoSpace` is returned only if no space is left, and
//! deletes free space.
#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "a test may panic")]

use std::sync::{Arc, Mutex};
use std::time::Duration;

use crate::common::{Drive, bytes, log};
use fs::wal::LogOptions;
use fs::{CreateOptions, ErrorKind, FormatOptions, Fs, Lifetime, MountOptions, Purpose, ZoneRole};
use units::{Blocks, Driver, RealDriver, block_on, spawn};
use zoned::emu::{Emu, EmuOptions, Latency};
use zoned::{Geometry, Io, Op, ZonedDevice};

const LIFETIMES: [Lifetime; 4] = [Lifetime::NotSet, Lifetime::Short, Lifetime::Medium, Lifetime::Long];

/// A drive with a short longest transfer: one write of a file becomes many operations.
#[derive(Debug)]
struct ShortTransferDrive {
    emu: Arc<Emu>,
    geometry: Geometry,
}

impl ShortTransferDrive {
    fn over(emu: &Arc<Emu>, blocks: u64) -> Arc<dyn ZonedDevice> {
        let geometry = Geometry { max_transfer: Blocks(blocks), ..emu.geometry().clone() };
        Arc::new(ShortTransferDrive { emu: Arc::clone(emu), geometry })
    }
}

impl ZonedDevice for ShortTransferDrive {
    fn geometry(&self) -> &Geometry {
        &self.geometry
    }

    fn submit(&self, op: Op) -> Io {
        self.emu.submit(op)
    }

    fn driver(&self) -> &Arc<dyn Driver> {
        self.emu.driver()
    }
}

/// Random numbers that follow from a seed.
struct SeededNumbers(u64);

impl SeededNumbers {
    fn below(&mut self, limit: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % limit
    }
}

fn data(lifetime: Lifetime) -> CreateOptions {
    CreateOptions { lifetime, ..CreateOptions::default() }
}

/// True if `result` is an error that a full drive may return.
fn may_be_full<T>(result: fs::Result<T>) -> bool {
    match result {
        Ok(_) => true,
        Err(e) => {
            let mut kind = e.kind();
            if kind == ErrorKind::Poisoned {
                kind = ErrorKind::NoSpace;
            }
            assert!(matches!(kind, ErrorKind::NoSpace | ErrorKind::Busy), "{e}");
            false
        }
    }
}

/// A task that writes files of random sizes with some syncs, and deletes a file when the drive is full.
async fn write_files(fs: Fs, name: u64, seed: u64, rounds: u64) {
    let mut numbers = SeededNumbers(seed * 31 + name);
    let mut files: Vec<String> = Vec::new();
    for round in 0..rounds {
        let path = format!("/{name}-{round}");
        let lifetime = LIFETIMES[numbers.below(4) as usize];
        let Ok(writer) = fs.create(&path, &data(lifetime)).await else { continue };
        files.push(path);
        let mut full = false;
        for _ in 0..=numbers.below(6) {
            let part = bytes(1 + numbers.below(100_000) as usize, round as u8);
            full |= !may_be_full(writer.append(&part).await);
            if numbers.below(2) == 0 {
                full |= !may_be_full(writer.sync().await);
            }
        }
        may_be_full(writer.close().await);
        drop(writer);
        while full && files.len() > 2 || files.len() > 12 {
            let at = numbers.below(files.len() as u64) as usize;
            fs.unlink(&files.swap_remove(at)).await.unwrap();
            full = numbers.below(2) == 0;
        }
    }
    for path in files {
        fs.unlink(&path).await.unwrap();
    }
}

/// A task that appends to a log with a sync each, and begins a new log from time to time.
async fn write_logs(fs: Fs, name: u64, seed: u64, rounds: u64) {
    let mut numbers = SeededNumbers(seed * 17 + name);
    let mut before = None;
    for round in 0..rounds {
        let path = format!("/{name}-{round}.log");
        let Ok(writer) = fs.create(&path, &log()).await else { continue };
        for _ in 0..numbers.below(12) {
            let part = bytes(1 + numbers.below(20_000) as usize, round as u8);
            may_be_full(writer.append(&part).await);
            may_be_full(writer.sync().await);
        }
        may_be_full(writer.close().await);
        if let Some(before) = before.replace(path) {
            fs.unlink(&before).await.unwrap();
        }
    }
    if let Some(before) = before {
        fs.unlink(&before).await.unwrap();
    }
}

#[test]
fn writers_on_a_full_drive_never_wait_for_each_other() {
    for seed in 0..60 {
        let mut numbers = SeededNumbers(seed);
        let limit = [None, Some(5), Some(6), Some(8), Some(14)][numbers.below(5) as usize];
        let zone = 14 + numbers.below(40);
        let options = EmuOptions {
            zones: 12 + numbers.below(12) as u32,
            zone_size: Blocks(64),
            zone_capacity: Blocks(zone),
            max_open: limit,
            max_active: limit,
            latency: Latency { flush: Duration::from_micros(70), ..Latency::all(Duration::from_micros(15)) },
            ..EmuOptions::tiny()
        };
        let drive = Drive::new(options);
        drive.format();
        let buffers = MountOptions {
            write_buffer: 4096 << numbers.below(9),
            log: LogOptions { buffer: 16 << 10, ..LogOptions::default() },
            ..MountOptions::default()
        };
        let dev = ShortTransferDrive::over(&drive.emu, 2 << numbers.below(5));
        let fs = drive.run(Fs::mount(dev, &buffers)).unwrap();
        let writers = 1 + numbers.below(4);
        let mut tasks: Vec<_> = (0..writers)
            .map(|n| spawn(&*drive.driver, "writer", write_files(fs.clone(), n, seed, 25)))
            .collect();
        tasks.push(spawn(&*drive.driver, "log", write_logs(fs.clone(), 100, seed, 25)));
        drive.run(async {
            for task in tasks {
                task.await;
            }
        });
        let used = fs.statfs().used;
        assert_eq!(used.0, 0, "seed {seed}: all files were deleted");
        drive.run(fs.unmount()).unwrap();
        drive.check();
    }
}

#[test]
#[expect(clippy::disallowed_methods, reason = "a scope would wait for ever for a thread that does")]
fn threads_on_a_full_drive_never_wait_for_each_other() {
    for round in 0..150 {
        let driver = RealDriver::new();
        let options = EmuOptions {
            zones: 16,
            zone_size: Blocks(64),
            zone_capacity: Blocks(40),
            track_power_cuts: false,
            ..EmuOptions::tiny()
        };
        let dev = ShortTransferDrive::over(&Emu::memory(options, driver.clone()), 2 << (round % 4));
        let buffers = MountOptions {
            write_buffer: 16384 << (round % 5),
            log: LogOptions { buffer: 16 << 10, ..LogOptions::default() },
            ..MountOptions::default()
        };
        let fs = block_on(&*driver, async {
            Fs::format(&dev, &FormatOptions::default()).await.unwrap();
            Fs::mount(Arc::clone(&dev), &buffers).await.unwrap()
        });
        let (done, over) = std::sync::mpsc::channel();
        for thread in 0..5_u64 {
            let (fs, driver, done) = (fs.clone(), driver.clone(), done.clone());
            std::thread::spawn(move || {
                match thread {
                    0 => block_on(&*driver, write_logs(fs, 100, round, 30)),
                    n => block_on(&*driver, write_files(fs, n, round, 30)),
                }
                done.send(thread).unwrap();
            });
        }
        for _ in 0..5 {
            over.recv_timeout(Duration::from_secs(120)).expect("no writer waits for ever");
        }
        assert_eq!(fs.statfs().used.0, 0, "all files were deleted");
        block_on(&*driver, fs.unmount()).unwrap();
        let report = block_on(&*driver, Fs::check(&dev)).unwrap();
        assert_eq!(report.problems, Vec::<String>::new());
    }
}

/// Writes files one after the other until the drive is full. Returns the names of the files that fit.
async fn fill_drive(fs: &Fs, prefix: &str, lifetime: Lifetime, size: usize) -> Vec<String> {
    for n in 0.. {
        let path = format!("/{prefix}-{n}");
        let writer = fs.create(&path, &data(lifetime)).await.unwrap();
        let written = async {
            writer.append(&bytes(size, n as u8)).await?;
            writer.sync().await
        };
        if let Err(error) = written.await {
            assert_eq!(error.kind(), ErrorKind::NoSpace, "{error}");
            assert_eq!(writer.append(b"more").await.unwrap_err().kind(), ErrorKind::Poisoned);
            writer.close().await.unwrap_err();
            drop(writer);
            fs.unlink(&path).await.unwrap();
            return (0..n).map(|n| format!("/{prefix}-{n}")).collect();
        }
        writer.close().await.unwrap();
    }
    unreachable!()
}

const BLOCK: u64 = 4096;

fn small_drive(zones: u32) -> EmuOptions {
    EmuOptions { zones, zone_size: Blocks(64), zone_capacity: Blocks(60), ..EmuOptions::tiny() }
}

/// Number of blocks in all zones that files may use.
fn usable_blocks(fs: &Fs) -> u64 {
    let fixed = |role| matches!(role, ZoneRole::Superblock | ZoneRole::Metadata);
    fs.zone_map().iter().filter(|z| !fixed(z.role)).map(|z| z.capacity.0).sum()
}

#[test]
fn one_writer_gets_every_block_but_those_kept_for_reclaim_before_no_space() {
    for zones in [12, 24, 70] {
        let (drive, fs) = Drive::formatted(small_drive(zones));
        let reserve = if zones < 64 { 60 } else { 120 };
        assert_eq!(fs.statfs().capacity.0, (usable_blocks(&fs) - reserve) * BLOCK);
        assert_eq!(fs.statfs().free, fs.statfs().capacity, "nothing is written yet");
        let files = drive.run(fill_drive(&fs, "a", Lifetime::NotSet, 16 << 10));
        let stat = fs.statfs();
        assert_eq!(stat.used.0, files.len() as u64 * 4 * BLOCK);
        // The next file of four blocks did not fit on the drive.
        assert!(stat.capacity.0 - stat.used.0 < 4 * BLOCK, "{zones} zones: {stat:?}");
        assert!(stat.free.0 < 4 * BLOCK, "{zones} zones: {stat:?}");
        drive.run(fs.unmount()).unwrap();
        drive.check();
    }
}

#[test]
fn writers_of_several_lifetimes_get_every_block_but_those_kept_for_reclaim_before_no_space() {
    for zones in [12, 24, 70] {
        let drive = Drive::new(small_drive(zones));
        drive.format();
        let fs = drive.mount();
        let tasks: Vec<_> = LIFETIMES
            .into_iter()
            .enumerate()
            .map(|(n, lifetime)| {
                let fs = fs.clone();
                spawn(&*drive.driver, "writer", async move {
                    fill_drive(&fs, &n.to_string(), lifetime, 13_000 + 9_000 * n).await;
                    let stat = fs.statfs();
                    // Each writer may have failed with one file while the files of the other writers were in
                    // flight.
                    assert!(stat.capacity.0 - stat.used.0 < 40 * BLOCK, "{zones} zones: {stat:?}");
                })
            })
            .collect();
        drive.run(async {
            for task in tasks {
                task.await;
            }
        });
        drive.run(fill_drive(&fs, "last", Lifetime::Extreme, 4096));
        let stat = fs.statfs();
        assert!(stat.capacity.0 - stat.used.0 < 2 * BLOCK, "{zones} zones: {stat:?}");
        assert_eq!(stat.free.0, 0, "{zones} zones: {stat:?}");
        drive.run(fs.unmount()).unwrap();
        drive.check();
    }
}

#[test]
fn after_no_space_reads_work_and_half_dead_zones_are_reclaimed_for_new_files() {
    for (zones, every) in [(12, 2), (12, 3), (24, 2), (24, 5), (24, 7)] {
        let (drive, fs) = Drive::formatted(small_drive(zones));
        drive.run(async {
            let files = fill_drive(&fs, "a", Lifetime::Long, 16 << 10).await;
            for (n, path) in files.iter().enumerate() {
                assert_eq!(crate::common::read(&fs, path).await.unwrap(), bytes(16 << 10, n as u8));
            }
            // Up to every other file is removed: each zone is partly dead, and no zone is empty.
            let (gone, kept): (Vec<_>, Vec<_>) = files.iter().enumerate().partition(|(n, _)| n % every == 0);
            for (_, path) in &gone {
                fs.unlink(path).await.unwrap();
            }
            let free = fs.statfs().free.0;
            assert!(free >= gone.len() as u64 * 4 * BLOCK, "{free}");
            let more = fill_drive(&fs, "b", Lifetime::Short, 16 << 10).await;
            assert!(
                more.len() + 1 >= gone.len(),
                "{} files fit after {} were deleted",
                more.len(),
                gone.len()
            );
            for (n, path) in kept {
                assert_eq!(crate::common::read(&fs, path).await.unwrap(), bytes(16 << 10, n as u8));
            }
            fs.unmount().await.unwrap();
        });
        drive.check();
        let fs = drive.mount();
        assert!(fs.statfs().free.0 < 4 * BLOCK, "a mount sees the same: {:?}", fs.statfs());
        drive.run(fs.unmount()).unwrap();
    }
}

/// Keeps the warnings of this thread, which runs all tasks of a mount in virtual time.
#[derive(Clone, Default)]
struct Warnings(Arc<Mutex<Vec<String>>>);

/// The text of a warning's message.
struct Message(String);

impl tracing::field::Visit for Message {
    fn record_debug(&mut self, field: &tracing::field::Field, value: &dyn std::fmt::Debug) {
        if field.name() == "message" {
            self.0 = format!("{value:?}");
        }
    }
}

impl tracing::Subscriber for Warnings {
    fn enabled(&self, metadata: &tracing::Metadata<'_>) -> bool {
        *metadata.level() <= tracing::Level::WARN
    }

    fn new_span(&self, _: &tracing::span::Attributes<'_>) -> tracing::span::Id {
        tracing::span::Id::from_u64(1)
    }

    fn record(&self, _: &tracing::span::Id, _: &tracing::span::Record<'_>) {}

    fn record_follows_from(&self, _: &tracing::span::Id, _: &tracing::span::Id) {}

    fn event(&self, event: &tracing::Event<'_>) {
        let mut message = Message(String::new());
        event.record(&mut message);
        self.0.lock().unwrap().push(message.0);
    }

    fn enter(&self, _: &tracing::span::Id) {}

    fn exit(&self, _: &tracing::span::Id) {}
}

#[test]
fn an_unmount_during_a_reclaim_is_no_failure_of_the_reclaim() {
    let warnings = Warnings::default();
    let _counted = tracing::subscriber::set_default(warnings.clone());
    let mut interrupted = 0;
    for micros in (0..20_000).step_by(250) {
        let (drive, fs) = Drive::formatted(EmuOptions {
            latency: Latency::all(Duration::from_micros(20)),
            ..small_drive(24)
        });
        drive.run(async {
            let files = fill_drive(&fs, "a", Lifetime::Long, 16 << 10).await;
            for path in files.iter().step_by(2) {
                fs.unlink(path).await.unwrap();
            }
            let reads = fs.operations(Purpose::Reclaim);
            let writer = {
                let fs = fs.clone();
                spawn(&*drive.driver, "writer", async move {
                    for n in 0.. {
                        let created = fs.create(&format!("/b-{n}"), &data(Lifetime::Short)).await;
                        let Ok(writer) = created else { return };
                        let appended = writer.append(&bytes(16 << 10, n as u8)).await;
                        if writer.close().await.is_err() || appended.is_err() {
                            return;
                        }
                    }
                })
            };
            units::sleep_until(&*drive.driver, drive.driver.now().after(Duration::from_micros(micros))).await;
            fs.unmount().await.unwrap();
            interrupted += usize::from(fs.operations(Purpose::Reclaim) > reads);
            writer.await;
        });
        drive.check();
    }
    assert!(interrupted > 5, "{interrupted} unmounts came during reclaims");
    assert_eq!(*warnings.0.lock().unwrap(), Vec::<String>::new());
}
