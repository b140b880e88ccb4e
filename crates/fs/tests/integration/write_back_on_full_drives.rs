//! Tests of write-back on drives that are nearly full: accepted bytes find room, whatever logs, syncs and reclaim do beside them.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc;
use std::time::Duration;

use fs::{BrokenRule, Bytes, CreateOptions, ErrorKind, Fs, Lifetime, MountOptions};
use units::{Driver, RealDriver, SplitMix64, spawn};
use zoned::Blocks;
use zoned::emu::{EmuOptions, Latency};

use crate::common::{Drive, bytes, data, log, read};
use crate::write_back::{MIB, Random, mounted, pause};

/// The state shared by the tasks of one run on a full drive.
#[derive(Clone)]
struct FullDrive {
    fs: Fs,
    seed: u64,
    no_space: Arc<AtomicU64>,
}

const LIFETIMES: [Lifetime; 4] = [Lifetime::NotSet, Lifetime::Short, Lifetime::Medium, Lifetime::Long];

impl FullDrive {
    /// Writes files and removes some where the drive is full. Accepted bytes are there until their file is removed.
    async fn write_files(self, name: u64, rounds: u64) {
        let fs = &self.fs;
        let mut random = Random(SplitMix64::new(self.seed * 97 + name));
        let mut files: BTreeMap<String, Vec<u8>> = BTreeMap::new();
        for round in 0..rounds {
            let path = format!("/{name}-{round}");
            let lifetime = LIFETIMES[random.below(4) as usize];
            // Long-lived files get zones to themselves, which few of them fill.
            let geometry = fs.device().geometry();
            let zone = geometry.zone_capacity.bytes(geometry.block_size);
            let preallocate = if lifetime == Lifetime::Long { zone } else { Bytes(0) };
            let options = CreateOptions { lifetime, preallocate, ..CreateOptions::default() };
            let Ok(writer) = fs.create(&path, &options).await else { continue };
            let (mut content, mut full) = (Vec::new(), false);
            for part in 0..=random.below(6) {
                let more = bytes(1 + random.below(60_000) as usize, (round * 7 + part) as u8);
                match writer.append(&more).await {
                    Ok(()) => content.extend_from_slice(&more),
                    Err(error) => {
                        assert_eq!(error.kind(), ErrorKind::NoSpace, "{error}");
                        self.no_space.fetch_add(1, Ordering::Relaxed);
                        full = true;
                    }
                }
                match random.below(6) {
                    0 => writer.sync().await.expect("accepted bytes have room"),
                    1 => pause(fs, Duration::from_micros(random.below(500))).await,
                    _ => {}
                }
            }
            writer.close().await.unwrap();
            drop(writer);
            match random.below(12) {
                0 => fs.sync().await.expect("accepted bytes have room"),
                1 => pause(fs, Duration::from_secs(6)).await,
                _ => {}
            }
            files.insert(path, content);
            let (path, content) = files.iter().nth(random.below(files.len() as u64) as usize).unwrap();
            assert!(read(fs, path).await.unwrap() == *content, "{path}, seed {}", self.seed);
            while full && files.len() > 1 || files.len() > 10 {
                let path = files.keys().nth(random.below(files.len() as u64) as usize).unwrap().clone();
                files.remove(&path);
                fs.unlink(&path).await.unwrap();
                full = random.below(2) == 0;
            }
        }
        fs.sync().await.expect("accepted bytes have room");
        for (path, content) in &files {
            assert!(read(fs, path).await.unwrap() == *content, "{path}, seed {}", self.seed);
        }
    }

    /// Appends to logs, of which one is kept.
    async fn write_logs(self, rounds: u64) {
        let fs = &self.fs;
        let mut random = Random(SplitMix64::new(self.seed * 89));
        for round in 0..rounds {
            let Ok(writer) = fs.create(&format!("/log-{round}"), &log()).await else { continue };
            for part in 0..random.below(12) {
                let appended = writer.append(&bytes(1 + random.below(20_000) as usize, part as u8)).await;
                let synced = writer.sync().await;
                for error in [appended, synced].into_iter().filter_map(Result::err) {
                    let kinds = [ErrorKind::NoSpace, ErrorKind::Busy, ErrorKind::Poisoned];
                    assert!(kinds.contains(&error.kind()), "{error}");
                }
            }
            let _may_be_full = writer.close().await;
            if round > 0 {
                let _was_not_created = fs.unlink(&format!("/log-{}", round - 1)).await;
            }
            pause(fs, Duration::from_micros(random.below(3000))).await;
        }
    }
}

/// One run on a drive that is 95 % full. Returns how often a write found no space.
fn run_on_a_full_drive(seed: u64, broken_rule: Option<BrokenRule>) -> u64 {
    let mut random = Random(SplitMix64::new(seed));
    let limit = Some(4 + random.below(11) as u32);
    let zones = 24 + random.below(50) as u32;
    let capacity = Blocks(16 + random.below(49));
    let drive = Drive::new(EmuOptions {
        name: format!("emu:full-{seed}"),
        zones,
        zone_size: Blocks(64),
        zone_capacity: capacity,
        max_open: limit,
        max_active: limit,
        latency: Latency::all(Duration::from_micros(20)),
        ..EmuOptions::tiny()
    });
    let options = MountOptions {
        cache: Bytes(4 * MIB),
        write_buffer: 4096 << random.below(7),
        recovery_reserve: random.below(2) == 0,
        broken_rule,
        ..MountOptions::default()
    };
    let fs = mounted(&drive, &options);
    let no_space = drive.run(async {
        let capacity = fs.statfs().capacity.0;
        let mut n = 0_u32;
        while fs.statfs().used.0 < capacity * 95 / 100 {
            let writer = fs.create(&format!("/base-{n}"), &data()).await.unwrap();
            let appended = writer.append(&bytes(20_000, n as u8)).await;
            writer.sync().await.unwrap();
            writer.close().await.unwrap();
            n += 1;
            if appended.is_err() {
                break;
            }
        }
        for n in (0..n).step_by(10) {
            fs.unlink(&format!("/base-{n}")).await.unwrap();
        }
        let shared = FullDrive { fs: fs.clone(), seed, no_space: Arc::default() };
        let mut tasks: Vec<_> =
            (0..3).map(|n| spawn(&**fs.driver(), "files", shared.clone().write_files(n, 12))).collect();
        tasks.push(spawn(&**fs.driver(), "logs", shared.clone().write_logs(10)));
        for task in tasks {
            task.await;
        }
        for n in (0..n.saturating_sub(1)).filter(|n| n % 10 != 0) {
            assert!(read(&fs, &format!("/base-{n}")).await.unwrap() == bytes(20_000, n as u8));
        }
        fs.unmount().await.unwrap();
        shared.no_space.load(Ordering::Relaxed)
    });
    drive.check();
    no_space
}

/// `FURROW_FULL_DRIVES` is the number of runs.
#[test]
fn accepted_bytes_find_room_on_drives_that_are_nearly_full() {
    let runs = std::env::var("FURROW_FULL_DRIVES").map_or(80, |runs| runs.parse().expect("a number"));
    let first = std::env::var("FURROW_FULL_DRIVES_FROM").map_or(0, |seed| seed.parse().expect("a number"));
    let (done, over) = mpsc::channel();
    let runs_on = RealDriver::new();
    runs_on.spawn(
        "full-drives",
        Box::pin(async move {
            for seed in first..first + runs {
                done.send((seed, run_on_a_full_drive(seed, None))).unwrap();
            }
        }),
    );
    let mut full = 0;
    for seed in first..first + runs {
        let run = over.recv_timeout(Duration::from_secs(120));
        let (_, no_space) = run.unwrap_or_else(|error| panic!("seed {seed}: {error}"));
        full += u64::from(no_space > 0);
    }
    assert!(full * 2 > runs, "{full} of {runs} drives became full");
}

#[test]
fn without_reserved_blocks_accepted_bytes_find_no_room() {
    let quiet = std::panic::take_hook();
    std::panic::set_hook(Box::new(|_| {}));
    let lost = (0..20).any(|seed| {
        std::panic::catch_unwind(|| run_on_a_full_drive(seed, Some(BrokenRule::NoReservation))).is_err()
    });
    std::panic::set_hook(quiet);
    assert!(lost, "the broken rule is not seen");
}
