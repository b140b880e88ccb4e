//! Tests of zones opened ahead for logs: an append waits only for the log's own writes, the device's limits
//! are kept, and an idle file system does no work.
#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "a test may panic")]

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use crate::common::{Drive, bytes, data, log, read, write};
use fs::wal::entry::EntryHeader;
use fs::wal::{IoMode, LogOptions};
use fs::{CreateOptions, ErrorKind, Fs, Lifetime, MountOptions, ZoneRole};
use parking_lot::Mutex;
use units::{Blocks, Driver, Instant, sleep_until, spawn};
use zoned::emu::{Choose, Emu, EmuOptions, FaultOp, FaultSpec, Latency, Profile, Seeded};
use zoned::{Action, Geometry, Io, Op, ZoneState, ZonedDevice};

/// A drive that records when writes of log entries were in flight, and counts its operations.
#[derive(Debug)]
struct LogWriteRecorder {
    emu: Arc<Emu>,
    ops: AtomicU64,
    opens: AtomicU64,
    resets: AtomicU64,
    /// Start and end times of each write of log entries.
    entries: Arc<Mutex<Vec<(Instant, Instant)>>>,
}

impl LogWriteRecorder {
    fn over(emu: &Arc<Emu>) -> Arc<LogWriteRecorder> {
        Arc::new(LogWriteRecorder {
            emu: Arc::clone(emu),
            ops: AtomicU64::new(0),
            opens: AtomicU64::new(0),
            resets: AtomicU64::new(0),
            entries: Arc::default(),
        })
    }

    /// The part of the time between two moments during which no write of log entries was in flight.
    fn idle(&self, from: Instant, to: Instant) -> Duration {
        let entries = self.entries.lock();
        let mut within: Vec<_> =
            entries.iter().filter(|(begun, ended)| *begun < to && *ended > from).copied().collect();
        within.sort_unstable();
        let (mut at, mut idle) = (from, Duration::ZERO);
        for (begun, ended) in within {
            idle += begun.max(at).since(at);
            at = at.max(ended);
        }
        idle + to.max(at).since(at)
    }
}

impl ZonedDevice for LogWriteRecorder {
    fn geometry(&self) -> &Geometry {
        self.emu.geometry()
    }

    fn submit(&self, op: Op) -> Io {
        self.ops.fetch_add(1, Ordering::Relaxed);
        match &op {
            Op::Zone { action: Action::Open, .. } => self.opens.fetch_add(1, Ordering::Relaxed),
            Op::Zone { action: Action::Reset, .. } => self.resets.fetch_add(1, Ordering::Relaxed),
            _ => 0,
        };
        let carried = match &op {
            Op::Write { data, .. } | Op::Append { data, .. } => Some(data),
            _ => None,
        };
        if carried.is_none_or(|data| EntryHeader::parse(data).is_err()) {
            return self.emu.submit(op);
        }
        let (driver, entries) = (Arc::clone(self.driver()), Arc::clone(&self.entries));
        let (begun, io) = (driver.now(), self.emu.submit(op));
        Io::spawn(&Arc::clone(&driver), &self.geometry().name, async move {
            let result = io.await;
            entries.lock().push((begun, driver.now()));
            result
        })
    }

    fn driver(&self) -> &Arc<dyn Driver> {
        self.emu.driver()
    }
}

/// A drive with the latencies of a profile and zones of 2 MiB.
fn drive_like_profile(profile: &str, zones: u32) -> EmuOptions {
    EmuOptions {
        zones,
        zone_size: Blocks(512),
        zone_capacity: Blocks(480),
        ..EmuOptions::of_profile(Profile::load(profile).unwrap())
    }
}

const LIFETIMES: [Lifetime; 5] =
    [Lifetime::None, Lifetime::Short, Lifetime::Medium, Lifetime::Long, Lifetime::Extreme];

async fn pause(fs: &Fs, time: Duration) {
    sleep_until(&**fs.driver(), fs.driver().now().after(time)).await;
}

/// A task that writes, replaces and deletes files of several lifetimes until `stop`.
async fn write_and_delete_files(fs: Fs, name: u8, files: u8, stop: Arc<AtomicBool>) {
    let mut random = Seeded::new(u64::from(name));
    for round in 0_usize.. {
        if stop.load(Ordering::Relaxed) {
            return;
        }
        let path = format!("/{name}-{}", random.choose(usize::from(files)));
        let lifetime = LIFETIMES[round % 3 + 1];
        let writer = fs.create(&path, &CreateOptions { lifetime, ..data() }).await.unwrap();
        writer.append(&bytes(200_000 + random.choose(400_000), round as u8)).await.unwrap();
        writer.sync().await.unwrap();
        writer.close().await.unwrap();
        if round % 8 == 7 {
            fs.unlink(&path).await.unwrap();
        }
        pause(&fs, Duration::from_millis(3)).await;
    }
}

/// Appends to logs that replace their zones. Returns the longest time for which an append waited while no
/// write of its own log was in flight.
async fn append_to_new_logs(
    fs: &Fs,
    watch: &LogWriteRecorder,
    logs: usize,
    records: usize,
) -> (Duration, Duration) {
    let (mut idle, mut longest) = (Duration::ZERO, Duration::ZERO);
    let record = bytes(30_000, 7);
    let mut before: Option<(String, fs::Writer)> = None;
    for n in 0..logs {
        let path = format!("/{n}.log");
        let writer = fs.create(&path, &log()).await.unwrap();
        // The first append to a log waits until the older log is synced, so it is not measured.
        writer.append(&record).await.unwrap();
        if let Some((path, writer)) = before.take() {
            writer.close().await.unwrap();
            fs.unlink(&path).await.unwrap();
        }
        for at in 0..records {
            let begun = fs.driver().now();
            writer.append(&record).await.unwrap();
            let ended = fs.driver().now();
            idle = idle.max(watch.idle(begun, ended));
            longest = longest.max(ended.since(begun));
            if at % 16 == 15 {
                // A zone takes longer to fill than to reset, like the large zones of real drives.
                writer.sync().await.unwrap();
                pause(fs, Duration::from_millis(6)).await;
            }
        }
        before = Some((path, writer));
    }
    (idle, longest)
}

/// Writes logs beside files, reclaim and flushes on a drive with the latencies of `profile`.
fn measure_append_waits(profile: &str, log: LogOptions) {
    let drive = Drive::new(drive_like_profile(profile, 72));
    drive.format();
    let watch = LogWriteRecorder::over(&drive.emu);
    let options = MountOptions { log, ..MountOptions::default() };
    let fs = drive.run(Fs::mount(watch.clone(), &options)).unwrap();
    let stop = Arc::new(AtomicBool::new(false));
    let tasks: Vec<_> = (0..3)
        .map(|n| {
            spawn(&*drive.driver, "writer", write_and_delete_files(fs.clone(), n, 40, Arc::clone(&stop)))
        })
        .collect();
    let (flusher, stopped) = (fs.clone(), Arc::clone(&stop));
    let flushes = spawn(&*drive.driver, "flusher", async move {
        while !stopped.load(Ordering::Relaxed) {
            flusher.sync().await.unwrap();
            flusher.device().flush().await.unwrap();
            pause(&flusher, Duration::from_micros(300)).await;
        }
    });
    let (idle, longest) = drive.run(async {
        // The drive is nearly full: from here on zones are reclaimed.
        pause(&fs, Duration::from_millis(400)).await;
        let measured = append_to_new_logs(&fs, &watch, 12, 260).await;
        stop.store(true, Ordering::Relaxed);
        for task in tasks {
            task.await;
        }
        flushes.await;
        measured
    });
    let count = |of: &AtomicU64| of.load(Ordering::Relaxed);
    let (waits, opens, resets) = (fs.statfs().log_waits, count(&watch.opens), count(&watch.resets));
    let what = format!("{profile}, {log:?}");
    eprintln!(
        "{what}: longest append {longest:?}, of which {idle:?} without a write of the log; {waits} waits, {opens} opens, \
         {resets} resets"
    );
    assert_eq!(waits, 0, "{what}: a log waited for a zone");
    assert_eq!(idle, Duration::ZERO, "{what}: an append waited while no write of its log was in flight");
    assert!(longest > Duration::ZERO, "{what}: some append must wait for the drive");
    assert!(opens > 30 && resets > 60, "{what}: {opens} opens, {resets} resets: too few");
    drive.run(fs.unmount()).unwrap();
    drive.check();
}

#[test]
fn an_append_does_not_wait_for_an_open_finish_reset_or_metadata_commit() {
    for profile in ["zn540", "confzns"] {
        for (mode, window) in [(IoMode::Append, 1), (IoMode::Append, 4), (IoMode::Write, 1)] {
            measure_append_waits(
                profile,
                LogOptions { mode, window, buffer: 16 << 10, ..LogOptions::default() },
            );
        }
    }
}

/// Writes files, and logs that replace their zones while other logs are open, on a drive with few open zones:
/// the emulator refuses operations beyond the limit.
#[test]
fn open_and_active_limits_hold_with_logs_reclaim_and_flushes() {
    for limit in 4..=14 {
        let options = EmuOptions {
            zones: 96,
            max_open: Some(limit),
            max_active: Some(limit),
            latency: Latency {
                finish: Duration::from_micros(300),
                ..Latency::all(Duration::from_micros(10))
            },
            ..EmuOptions::tiny()
        };
        let drive = Drive::new(options);
        drive.format();
        let watch = LogWriteRecorder::over(&drive.emu);
        let options = MountOptions {
            write_buffer: 16 << 10,
            // The longest entry is as long as a zone: the entries for the end of one zone are buffered when
            // the log takes the next zone.
            log: LogOptions { buffer: 56 << 10, ..LogOptions::default() },
            ..MountOptions::default()
        };
        let fs = drive.run(Fs::mount(watch.clone(), &options)).unwrap();
        let files: Vec<_> = (0..3_u8)
            .map(|n| {
                let fs = fs.clone();
                spawn(&*drive.driver, "writer", async move {
                    for round in 0..60_u8 {
                        let path = format!("/{n}-{}", round % 5);
                        let lifetime = LIFETIMES[usize::from(n + round) % LIFETIMES.len()];
                        let writer = fs.create(&path, &CreateOptions { lifetime, ..data() }).await.unwrap();
                        writer.append(&bytes(30_000, n ^ round)).await.unwrap();
                        writer.sync().await.unwrap();
                        writer.close().await.unwrap();
                        pause(&fs, Duration::from_micros(50)).await;
                    }
                })
            })
            .collect();
        let logs = {
            let fs = fs.clone();
            spawn(&*drive.driver, "logs", async move {
                let mut before: Option<(String, fs::Writer)> = None;
                for n in 0..30_u8 {
                    let path = format!("/{n}.log");
                    let writer = fs.create(&path, &log()).await.unwrap();
                    for round in 0..6 + n % 20 {
                        writer.append(&bytes(9_000, n ^ round)).await.unwrap();
                        if round % 3 == n % 3 {
                            writer.sync().await.unwrap();
                        }
                        if let Some((path, writer)) = before.take_if(|_| round == 2) {
                            writer.close().await.unwrap();
                            fs.unlink(&path).await.unwrap();
                        }
                    }
                    before = Some((path, writer));
                }
            })
        };
        drive.run(async {
            for task in files {
                task.await;
            }
            logs.await;
            for n in 0..3_u8 {
                assert_eq!(
                    read(&fs, &format!("/{n}-4")).await.unwrap(),
                    bytes(30_000, n ^ 59),
                    "limit {limit}"
                );
            }
        });
        assert_eq!(watch.opens.load(Ordering::Relaxed) > 0, limit >= 7, "limit {limit}");
        drive.run(fs.unmount()).unwrap();
        drive.check();
    }
}

#[test]
fn an_idle_file_system_submits_no_operations_once_zones_are_opened_ahead() {
    for limit in [Some(4), Some(7), Some(8), Some(9), Some(14), None] {
        let latency = Latency::all(Duration::from_micros(10));
        let drive =
            Drive::new(EmuOptions { max_open: limit, max_active: limit, latency, ..EmuOptions::tiny() });
        drive.format();
        let watch = LogWriteRecorder::over(&drive.emu);
        let fs = drive.run(Fs::mount(watch.clone(), &MountOptions::default())).unwrap();
        drive.run(async {
            write(&fs, "/a", &bytes(100_000, 1)).await.unwrap();
            let writer = fs.create("/a.log", &log()).await.unwrap();
            for n in 0..20 {
                // The log leaves its zone while the last entries for the zone are buffered.
                writer.append(&bytes(9_000, n)).await.unwrap();
                pause(&fs, Duration::from_millis(20)).await;
            }
            pause(&fs, Duration::from_secs(1)).await;
            let before = watch.ops.load(Ordering::Relaxed);
            pause(&fs, Duration::from_secs(60)).await;
            assert_eq!(
                watch.ops.load(Ordering::Relaxed),
                before,
                "limit {limit:?}: an operation on an idle file system"
            );
            writer.close().await.unwrap();
            fs.unmount().await.unwrap();
        });
    }
}

/// Number of zones that are open and empty.
fn count_open_empty_zones(drive: &Drive) -> usize {
    let report = drive.dev().report_all().unwrap();
    report.iter().filter(|z| z.state == ZoneState::ExplicitOpen && z.pointer == Blocks::ZERO).count()
}

#[test]
fn two_zones_are_open_before_the_first_log_needs_one_and_none_after_an_unmount() {
    for (limit, expected) in [(4, 0), (6, 0), (7, 1), (9, 1), (10, 2), (14, 2)] {
        let options = EmuOptions { max_open: Some(limit), max_active: Some(limit), ..EmuOptions::tiny() };
        let (drive, fs) = Drive::formatted(options);
        drive.run(pause(&fs, Duration::from_millis(1)));
        assert_eq!(count_open_empty_zones(&drive), expected, "limit {limit}");
        drive.run(fs.unmount()).unwrap();
        assert_eq!(count_open_empty_zones(&drive), 0, "limit {limit}");
        // A killed process leaves the zones opened ahead open: the next mount resets them.
        let fs = drive.mount();
        drive.run(pause(&fs, Duration::from_millis(1)));
        drive.run(async {
            // The log takes the zones opened ahead, further zones are opened, and zones with lower numbers
            // become empty.
            write(&fs, "/a", &bytes(300_000, 1)).await.unwrap();
            let writer = fs.create("/a.log", &log()).await.unwrap();
            for n in 0..20 {
                writer.append(&bytes(9_000, n)).await.unwrap();
                writer.sync().await.unwrap();
            }
            fs.unlink("/a").await.unwrap();
            fs.sync().await.unwrap();
            pause(&fs, Duration::from_millis(10)).await;
        });
        drop(fs);
        let left = count_open_empty_zones(&drive);
        // The rest of the log's zone holds an open-zone slot too.
        let fits = |n: usize| n <= expected && n >= expected.min(1);
        assert!(fits(left), "limit {limit}: {left}");
        let killed = Drive { driver: drive.driver.clone(), emu: drive.emu.clone() };
        let fs = killed.mount();
        killed.run(pause(&fs, Duration::from_millis(1)));
        assert!(
            fits(count_open_empty_zones(&killed)),
            "limit {limit}: {} after {left}",
            count_open_empty_zones(&killed)
        );
        killed.run(async {
            for n in 0..40 {
                write(&fs, &format!("/{}", n % 6), &bytes(60_000, n)).await.unwrap();
            }
            fs.unmount().await.unwrap();
        });
        killed.check();
    }
}

#[test]
fn a_log_that_is_closed_without_entries_takes_no_zone() {
    let options = EmuOptions { max_open: Some(14), max_active: Some(14), ..EmuOptions::tiny() };
    let drive = Drive::new(options);
    drive.format();
    let watch = LogWriteRecorder::over(&drive.emu);
    let fs = drive.run(Fs::mount(watch.clone(), &MountOptions::default())).unwrap();
    drive.run(async {
        pause(&fs, Duration::from_millis(1)).await;
        let opens = watch.opens.load(Ordering::Relaxed);
        for n in 0..20 {
            let writer = fs.create(&format!("/{n}.log"), &log()).await.unwrap();
            writer.close().await.unwrap();
        }
        assert_eq!(watch.opens.load(Ordering::Relaxed), opens);
        assert_eq!(fs.zone_map().iter().filter(|z| z.role == ZoneRole::Log).count(), 0);
        fs.unmount().await.unwrap();
    });
    drive.check();
}

/// A drive whose writes to metadata zones are slow.
#[derive(Debug)]
struct SlowMetadata {
    emu: Arc<Emu>,
    zones: std::ops::Range<u32>,
}

impl ZonedDevice for SlowMetadata {
    fn geometry(&self) -> &Geometry {
        self.emu.geometry()
    }

    fn submit(&self, op: Op) -> Io {
        let slow = matches!(&op, Op::Write { at, .. } if self.geometry().zone_of(*at).is_some_and(|zone| self.zones.contains(&zone.0)));
        if !slow {
            return self.emu.submit(op);
        }
        let (driver, emu) = (Arc::clone(self.driver()), Arc::clone(&self.emu));
        Io::spawn(&Arc::clone(&driver), &self.geometry().name, async move {
            sleep_until(&*driver, driver.now().after(Duration::from_millis(1))).await;
            emu.submit(op).await
        })
    }

    fn driver(&self) -> &Arc<dyn Driver> {
        self.emu.driver()
    }
}

#[test]
fn synced_entries_in_a_zone_that_the_log_has_just_taken_survive_a_power_cut() {
    for records in 1..24 {
        let (drive, fs) = Drive::formatted(EmuOptions::tiny());
        let metadata = fs.superblock().metadata_first.0;
        let zones = metadata..metadata + fs.superblock().metadata_zones;
        drive.run(fs.unmount()).unwrap();
        let slow = Arc::new(SlowMetadata { emu: drive.emu.clone(), zones });
        let fs = drive.run(Fs::mount(slow, &MountOptions::default())).unwrap();
        let content = drive.run(async {
            pause(&fs, Duration::from_millis(20)).await;
            let writer = fs.create("/a.log", &log()).await.unwrap();
            let mut content = Vec::new();
            for n in 0..records {
                content.extend_from_slice(&bytes(9_000, n));
                writer.append(&bytes(9_000, n)).await.unwrap();
                writer.sync().await.unwrap();
            }
            content
        });
        let cut = drive.cut(&mut Seeded::new(u64::from(records)));
        let fs = cut.mount();
        let found = cut.run(read(&fs, "/a.log")).unwrap();
        assert!(found == content, "{records} records: {} bytes of {}", found.len(), content.len());
    }
}

#[test]
fn logs_work_on_a_device_that_refuses_to_open_a_zone() {
    let options = EmuOptions { max_open: Some(14), max_active: Some(14), ..EmuOptions::tiny() };
    let drive = Drive::new(options);
    drive.format();
    drive.emu.fail(FaultSpec::all(FaultOp::Zone));
    let fs = drive.mount();
    drive.run(async {
        let writer = fs.create("/a.log", &log()).await.unwrap();
        let mut content = Vec::new();
        for n in 0..30 {
            writer.append(&bytes(9_000, n)).await.unwrap();
            content.extend_from_slice(&bytes(9_000, n));
        }
        writer.sync().await.unwrap();
        writer.close().await.unwrap();
        assert_eq!(read(&fs, "/a.log").await.unwrap(), content);
        fs.unmount().await.unwrap();
    });
}

#[test]
fn the_sync_of_a_log_returns_the_error_of_a_failed_metadata_write() {
    let (drive, fs) = Drive::formatted(EmuOptions::tiny());
    drive.run(async {
        pause(&fs, Duration::from_millis(1)).await;
        let writer = fs.create("/a.log", &log()).await.unwrap();
        let metadata =
            fs.zone_map().into_iter().find(|z| z.role == ZoneRole::Metadata && z.pointer > Blocks(0));
        drive.emu.fail(FaultSpec::all(FaultOp::Write).in_zone(metadata.unwrap().zone));
        writer.append(b"this log is in no metadata").await.unwrap();
        writer.sync().await.unwrap_err();
        let error = writer.sync().await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::ReadOnly, "the next sync too: {error}");
    });
    assert_eq!(
        drive.cut(&mut Seeded::new(1)).mount().stat("/a.log").unwrap_err().kind(),
        ErrorKind::NotFound
    );
}
