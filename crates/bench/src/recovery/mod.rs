//! The time of a database's recovery: its write-ahead log on a drive is read and replayed into the memtable, beside the
//! same log on tmpfs, replayed by the same library in the same run.
//!
//! The goal: at most 1.1 times the slower of the drive's read bandwidth and the replay from memory.

mod paced;

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use fs::wal::{IoMode, LogOptions};
use fs::{FormatOptions, Fs, MountOptions};
use rocks::{Db, DbOptions, LogReplay, WriteBatch};
use serde::Serialize;
use units::{Blocks, Bytes, Driver, RealDriver, SplitMix64, VirtualDriver, ZoneId, block_on};
use zoned::emu::{Emu, EmuOptions, Latency, Timing};
use zoned::{Buf, BufMut, DeviceUrl, Durability, ZonedDevice, join_all};

use crate::scratch::Scratch;
use crate::{Error, Result};
use paced::PacedDrive;

/// Least number of key-value pairs in a log that is worth a measurement.
const MIN_PAIRS: u64 = 16;
/// The prefix of scratch directories' names; the process id follows.
const SCRATCH_PREFIX: &str = "furrow-recovery-";
/// The directory of the database in the file system.
const DB: &str = "/db";
/// Bytes of each key in the log.
const KEY: usize = 16;
/// Time that an append takes while the log is being filled: enough for many to be in flight, so that they are taken in any
/// order.
const FILL_APPEND_TIME: Duration = Duration::from_micros(20);
/// Bytes read to measure the drive's read bandwidth.
const PROBE_BYTES: Bytes = Bytes(256 << 20);
/// Bytes of one read of the probe.
const PROBE_READ_BYTES: Bytes = Bytes(1 << 20);

/// The settings of a recovery's measurement.
#[derive(Clone, Debug)]
pub struct RecoveryLoad {
    /// The URL of the drive, in memory and with a profile's times: `emu:mem?profile=zn540&zones=16`.
    pub device: String,
    /// Sizes of the logs to recover. Default: 64 to 1,024 MiB.
    pub sizes: Vec<Bytes>,
    /// Bytes of a key-value pair, its key of 16 included. Default: 4 KiB.
    pub pair: Bytes,
    /// Bytes of the log's buffer. Default: 4 KiB, so that each pair has an entry of its own.
    pub buffer: Bytes,
    /// Whether the log is written by writes or by appends. Default: append.
    pub io: IoMode,
    /// Bytes between the log's barriers. Default: 0, a barrier at each zone's end.
    pub barrier: Bytes,
    /// Number of replays of each log; the fastest one counts. Default: 3.
    pub runs: u32,
    /// A directory on tmpfs for the log to compare with. Default: `/dev/shm`.
    pub scratch: PathBuf,
}

impl Default for RecoveryLoad {
    fn default() -> RecoveryLoad {
        RecoveryLoad {
            device: "emu:mem?profile=zn540&zones=16".into(),
            sizes: [64, 128, 256, 512, 1024].map(|mib| Bytes(mib << 20)).to_vec(),
            pair: Bytes(4 << 10),
            buffer: Bytes(4 << 10),
            io: LogOptions::default().mode,
            barrier: Bytes::ZERO,
            runs: 3,
            scratch: "/dev/shm".into(),
        }
    }
}

/// The outcome of a recovery's measurement.
#[derive(Clone, Debug, Serialize)]
pub struct RecoveryOutcome {
    /// The URL of the drive.
    pub device: String,
    /// The drive's read bandwidth, many reads of 1 MiB in flight, in virtual time.
    pub read_mib_per_s: f64,
    /// Most memory that reading a log may use for the log's bytes.
    pub memory_limit: u64,
    /// The recovered logs, one for each size.
    pub logs: Vec<RecoveredLog>,
}

/// The recovery of one log. Times in seconds.
#[derive(Clone, Debug, Serialize)]
pub struct RecoveredLog {
    /// The log's size as RocksDB sees it.
    pub bytes: u64,
    /// Number of key-value pairs in the log.
    pub pairs: u64,
    /// Seconds from opening the log to its last pair in the memtable.
    pub replay_s: f64,
    /// Seconds from opening the log on tmpfs to its last pair in the memtable.
    pub tmpfs_replay_s: f64,
    /// Seconds that the drive's read bandwidth allows for the log's bytes.
    pub drive_s: f64,
    /// `replay_s` over the larger of `drive_s` and `tmpfs_replay_s`: 1.1 is the goal.
    pub ratio: f64,
    /// Seconds of the mount, which does not read a log that was closed.
    pub mount_s: f64,
    /// Seconds of opening the database as a whole.
    pub open_s: f64,
    /// Seconds of opening the database on tmpfs as a whole.
    pub tmpfs_open_s: f64,
    /// The parts of `replay_s`.
    pub breakdown: Breakdown,
    /// Most memory that the log's bytes took during the replay.
    pub peak: u64,
    /// The recovery of the same log, left by a process that was killed.
    pub killed: KilledLog,
}

/// The recovery of a log that was not closed: the mount reads it to find its end, and the replay uses the index that the mount
/// made. Times in seconds.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct KilledLog {
    /// Seconds of the mount, which reads the log once.
    pub mount_s: f64,
    /// Seconds from opening the log to its last pair in the memtable.
    pub replay_s: f64,
    /// Mount and replay over the larger of `drive_s` and `tmpfs_replay_s`.
    pub ratio: f64,
}

/// Parts of a log's replay, in seconds. The first three are of the read-ahead thread, the rest of RocksDB's.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Breakdown {
    /// Time that the read-ahead waited for the drive.
    pub read_s: f64,
    /// Time of checking and sorting the log's entries.
    pub sort_s: f64,
    /// Time that the read-ahead waited for RocksDB to make room.
    pub room_s: f64,
    /// Time that RocksDB waited for the log's bytes.
    pub wait_s: f64,
    /// Time of copying bytes to RocksDB's buffer.
    pub copy_s: f64,
    /// The remaining time of RocksDB's thread: records checked, taken apart, and put into the memtable.
    pub memtable_s: f64,
}

impl Breakdown {
    fn of(replay: &LogReplay) -> Breakdown {
        let s = |time: Duration| time.as_secs_f64();
        let stats = &replay.stats;
        Breakdown {
            read_s: s(stats.device),
            sort_s: s(stats.check),
            room_s: s(stats.room),
            wait_s: s(stats.wait),
            copy_s: s(stats.copy),
            memtable_s: s(replay.took.saturating_sub(stats.wait + stats.copy)),
        }
    }
}

/// Fills logs and opens their databases again, in real time, on drives in memory.
///
/// # Errors
/// [`Error::Settings`] where the drive is no emulated one in memory with times or has no room for a log, and where
/// the scratch directory cannot be used.
pub fn run(load: &RecoveryLoad) -> Result<RecoveryOutcome> {
    let url: DeviceUrl = load.device.parse()?;
    let options = url.options()?;
    if options.profile.as_ref().is_none_or(|profile| profile.is_instant())
        || !load.device.starts_with("emu:mem")
    {
        return Err(Error::settings(format!(
            "{} has no times to read with: name one like emu:mem?profile=zn540&zones=16",
            load.device
        )));
    }
    if load.pair.0 <= KEY as u64 {
        return Err(Error::settings(format!(
            "a pair of {} has no room for its key of {KEY} bytes",
            load.pair
        )));
    }
    check_sizes(load, &options)?;
    Scratch::sweep(&load.scratch, SCRATCH_PREFIX)?;
    let read = bandwidth(&options)?;
    let logs = load.sizes.iter().map(|size| one(load, &options, *size, read)).collect::<Result<_>>()?;
    Ok(RecoveryOutcome {
        device: load.device.clone(),
        read_mib_per_s: read / f64::from(1 << 20),
        memory_limit: fs::wal::MEMORY.0,
        logs,
    })
}

/// Refuses log sizes that cannot be measured, before the first measurement.
fn check_sizes(load: &RecoveryLoad, options: &EmuOptions) -> Result<()> {
    if load.runs == 0 || load.buffer == Bytes::ZERO || load.sizes.is_empty() {
        return Err(Error::settings("runs, buffer and sizes: one at least, and a buffer of a byte"));
    }
    let driver: Arc<dyn Driver> = RealDriver::new();
    let empty = EmuOptions {
        profile: None,
        latency: Latency::NONE,
        dilation: 1,
        track_power_cuts: false,
        ..options.clone()
    };
    let device: Arc<dyn ZonedDevice> = Emu::memory(empty, Arc::clone(&driver));
    block_on(&*driver, Fs::format(&device, &FormatOptions::default()))?;
    let fs = block_on(&*driver, Fs::mount(device, &MountOptions::default()))?;
    let room = fs.statfs().free;
    block_on(&*driver, fs.unmount())?;
    for size in &load.sizes {
        if size.0 / load.pair.0 < MIN_PAIRS {
            return Err(Error::settings(format!(
                "a log of {size} has fewer than {MIN_PAIRS} pairs of {}: name a larger size",
                load.pair
            )));
        } else if *size > room {
            return Err(Error::settings(format!(
                "a log of {size} is more than the drive has room for ({room}): a smaller one, or more zones"
            )));
        }
    }
    Ok(())
}

/// The drive's read bandwidth in bytes per second.
fn bandwidth(options: &EmuOptions) -> Result<f64> {
    let driver = VirtualDriver::new(1);
    let options = EmuOptions { track_power_cuts: false, ..options.clone() };
    let emu: Arc<dyn ZonedDevice> = Emu::memory(options, Arc::clone(&driver) as Arc<dyn Driver>);
    let geometry = emu.geometry().clone();
    let blocks = Blocks(PROBE_READ_BYTES.0 / u64::from(geometry.block_size)).min(geometry.max_transfer);
    let length = blocks.bytes(geometry.block_size).0;
    let reads = (PROBE_BYTES.0 / length).min(geometry.zone_capacity.0 / blocks.0);
    let bytes = usize::try_from(length).expect("a read is short");
    let at = |n: u64| geometry.start(ZoneId(0)).plus(Blocks(n * blocks.0));
    for n in 0..reads {
        emu.write(at(n), Buf::zeroed(bytes), Durability::Cached).wait()?;
    }
    // The bandwidth's reads wait until the drive's write buffer is empty.
    let rest = driver.now().after(Duration::from_secs(10));
    block_on(&*driver, units::sleep_until(&*driver, rest));
    let begun = driver.now();
    let all =
        block_on(&*driver, join_all((0..reads).map(|n| emu.read(at(n), BufMut::zeroed(bytes))).collect()));
    for read in all {
        read?;
    }
    let took = Duration::from_nanos(driver.now().0 - begun.0);
    Ok((reads * length) as f64 / took.as_secs_f64())
}

fn one(load: &RecoveryLoad, options: &EmuOptions, size: Bytes, read: f64) -> Result<RecoveredLog> {
    let pairs = size.0 / load.pair.0;
    // The memtable must hold more bytes than the log, whose pairs have small headers.
    let write_buffer = usize::try_from(size.0 + size.0 / 2 + (64 << 20)).expect("it is to fit the memory");
    let settings = DbOptions { write_buffer, keep_recovered: true, ..DbOptions::default() };

    let driver: Arc<dyn Driver> = RealDriver::new();
    let emu = Emu::memory(
        EmuOptions {
            profile: None,
            latency: Latency { write: FILL_APPEND_TIME, ..Latency::NONE },
            reorder: true,
            track_power_cuts: false,
            ..options.clone()
        },
        Arc::clone(&driver),
    );
    let timing = Timing::of(options, emu.geometry());
    let paced = PacedDrive::new(emu, timing);
    let device: Arc<dyn ZonedDevice> = Arc::clone(&paced) as Arc<dyn ZonedDevice>;
    let buffer = usize::try_from(load.buffer.0).expect("a buffer fits the memory");
    let barrier = usize::try_from(load.barrier.0).unwrap_or(usize::MAX);
    let log = LogOptions { mode: load.io, buffer, barrier, ..LogOptions::default() };
    let mount = MountOptions { log, ..MountOptions::default() };
    block_on(&*driver, Fs::format(&device, &FormatOptions::default()))?;
    let fs = block_on(&*driver, Fs::mount(Arc::clone(&device), &mount))?;
    let db = Db::open(&fs, DB, &settings)?;
    write_pairs(&db, load, pairs)?;
    db.sync_wal()?;
    let killed = paced.media();
    db.close()?;
    block_on(&*driver, fs.unmount())?;
    drop(fs);

    let scratch = Scratch::new(&load.scratch, SCRATCH_PREFIX)?;
    let db = Db::open_on_host(scratch.path(), &settings)?;
    write_pairs(&db, load, pairs)?;
    db.close()?;

    paced.start_read_times();
    let now = || driver.now().0;
    let since = |before: u64| Duration::from_nanos(now() - before).as_secs_f64();
    let open = |device: &Arc<dyn ZonedDevice>| -> Result<(f64, f64, LogReplay)> {
        let before = now();
        let fs = block_on(&*driver, Fs::mount(Arc::clone(device), &mount))?;
        let mounted = since(before);
        let before = now();
        let db = Db::open(&fs, DB, &settings)?;
        let opened = since(before);
        let replay = longest_replay(&db)?;
        db.close()?;
        block_on(&*driver, fs.unmount())?;
        Ok((mounted, opened, replay))
    };
    let (mut ours, mut theirs, mut after_a_kill) = (Vec::new(), Vec::new(), Vec::new());
    for _ in 0..load.runs.max(1) {
        ours.push(open(&device)?);

        let before = now();
        let db = Db::open_on_host(scratch.path(), &settings)?;
        theirs.push((since(before), longest_replay(&db)?));
        db.close()?;

        // A mount closes the log, so each replay of a log that was not closed gets a fresh copy of the drive.
        let emu = Emu::from_media(killed.clone(), "after a kill", Latency::NONE, Arc::clone(&driver));
        let drive = PacedDrive::new(emu, Timing::of(options, device.geometry()));
        drive.start_read_times();
        after_a_kill.push(open(&(drive as Arc<dyn ZonedDevice>))?);
    }
    let best = ours.iter().min_by_key(|(.., replay)| replay.took);
    let other = theirs.iter().min_by_key(|(_, replay)| replay.took);
    let total = |mounted: f64, replay: &LogReplay| mounted + replay.took.as_secs_f64();
    let left = after_a_kill.iter().min_by(|a, b| total(a.0, &a.2).total_cmp(&total(b.0, &b.2)));
    let (Some((mount_s, open_s, replay)), Some((tmpfs_open_s, tmpfs)), Some(left)) = (best, other, left)
    else {
        return Err(Error::settings("no log was replayed"));
    };
    let bytes = replay.stats.bytes.0;
    let (replay_s, tmpfs_replay_s) = (replay.took.as_secs_f64(), tmpfs.took.as_secs_f64());
    let drive_s = bytes as f64 / read;
    let slower = tmpfs_replay_s.max(drive_s);
    Ok(RecoveredLog {
        bytes,
        pairs,
        replay_s,
        tmpfs_replay_s,
        drive_s,
        ratio: replay_s / slower,
        mount_s: *mount_s,
        open_s: *open_s,
        tmpfs_open_s: *tmpfs_open_s,
        breakdown: Breakdown::of(replay),
        peak: ours.iter().map(|(.., replay)| replay.stats.peak.0).max().unwrap_or(0),
        killed: KilledLog {
            mount_s: left.0,
            replay_s: left.2.took.as_secs_f64(),
            ratio: total(left.0, &left.2) / slower,
        },
    })
}

/// The replay of the filled log: the database's other logs are nearly empty.
fn longest_replay(db: &Db) -> Result<LogReplay> {
    let replays = db.replayed();
    replays
        .into_iter()
        .max_by_key(|replay| replay.stats.bytes)
        .ok_or_else(|| Error::settings("opening the database replayed no log"))
}

/// Writes the key-value pairs to the database in any order of keys, unsynced.
fn write_pairs(db: &Db, load: &RecoveryLoad, pairs: u64) -> Result<()> {
    let mut random = SplitMix64::new(1);
    let len = usize::try_from(load.pair.0).expect("a pair fits the memory") - KEY;
    let mut value: Vec<u8> = Vec::with_capacity(len + 8);
    let mut batch = WriteBatch::new();
    for _ in 0..pairs {
        let key = format!("{:016x}", random.draw());
        value.clear();
        while value.len() < len {
            value.extend_from_slice(&random.draw().to_le_bytes());
        }
        value.truncate(len);
        batch.put(key.as_bytes(), &value);
        db.write(&batch, false)?;
        batch.clear();
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_small_log_comes_back_whole_and_in_bounded_memory() {
        let load = RecoveryLoad {
            device: "emu:mem?profile=zn540&zones=12".into(),
            sizes: vec![Bytes(8 << 20)],
            runs: 1,
            scratch: std::env::temp_dir(),
            ..RecoveryLoad::default()
        };
        let outcome = run(&load).expect("it is measured");
        assert!((2800.0..3600.0).contains(&outcome.read_mib_per_s), "{}", outcome.read_mib_per_s);
        let log = outcome.logs.first().expect("one size");
        assert_eq!(log.pairs, 2048);
        assert!(log.bytes > 8 << 20 && log.bytes < 9 << 20, "{}", log.bytes);
        assert!(log.peak > 0 && log.peak <= outcome.memory_limit);
        assert!(log.replay_s > log.drive_s && log.ratio > 0.0);
        assert!(log.killed.mount_s > log.drive_s && log.killed.replay_s > 0.0);
    }

    #[test]
    fn what_cannot_be_measured_is_refused_first() {
        let small = || RecoveryLoad {
            device: "emu:mem?profile=zn540&zones=12&zone-size=4MiB".into(),
            sizes: vec![Bytes(8 << 20)],
            ..RecoveryLoad::default()
        };
        for (load, word) in [
            (RecoveryLoad { runs: 0, ..small() }, "runs"),
            (RecoveryLoad { buffer: Bytes::ZERO, ..small() }, "buffer"),
            (RecoveryLoad { sizes: vec![Bytes::ZERO], ..small() }, "fewer"),
            (RecoveryLoad { sizes: vec![Bytes(1 << 20), Bytes(60_000)], ..small() }, "fewer"),
            (RecoveryLoad { sizes: vec![Bytes(1 << 20), Bytes(1 << 30)], ..small() }, "room"),
            (RecoveryLoad { scratch: "/nosuch".into(), ..small() }, "/nosuch"),
        ] {
            let error = run(&load).expect_err(word).to_string();
            assert!(error.contains(word), "{error}");
        }
    }

    #[test]
    fn a_drive_without_times_is_refused() {
        for device in ["emu:mem", "emu:mem?profile=null"] {
            let load = RecoveryLoad { device: device.into(), ..RecoveryLoad::default() };
            assert!(matches!(run(&load), Err(Error::Settings(_))), "{device}");
        }
    }
}
