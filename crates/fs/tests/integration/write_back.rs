//! Tests of write-back: bytes in memory, when they are written, and what failures do to them.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use fs::{BrokenRule, Bytes, ErrorKind, FormatOptions, Fs, MountOptions, Purpose, Writer, ZoneRole};
use units::{Driver, RealDriver, SplitMix64, block_on, sleep_until, spawn};
use zoned::emu::{Emu, EmuOptions, FaultOp, FaultSpec, Latency, Seeded};
use zoned::{Blocks, Geometry, Io, Op, ZoneState, ZonedDevice};

use crate::common::{Drive, bytes, data, log, read, write};

const KIB: usize = 1 << 10;
pub const MIB: u64 = 1 << 20;

/// Seeded numbers below a limit.
pub struct Random(pub SplitMix64);

impl Random {
    pub fn below(&mut self, limit: u64) -> u64 {
        self.0.draw() % limit
    }
}

fn options() -> MountOptions {
    MountOptions { cache: Bytes(8 * MIB), write_buffer: 64 * KIB, ..MountOptions::default() }
}

fn drive() -> Drive {
    Drive::new(EmuOptions {
        name: "emu:write-back".into(),
        zones: 80,
        zone_size: Blocks(64),
        zone_capacity: Blocks(64),
        latency: Latency::all(Duration::from_micros(50)),
        track_power_cuts: true,
        ..EmuOptions::default()
    })
}

pub fn mounted(drive: &Drive, options: &MountOptions) -> Fs {
    drive.format();
    drive.run(Fs::mount(drive.dev(), options)).expect("mounts")
}

pub async fn pause(fs: &Fs, time: Duration) {
    sleep_until(&**fs.driver(), fs.driver().now().after(time)).await;
}

fn writes(fs: &Fs) -> u64 {
    fs.operations(Purpose::Write)
}

#[test]
fn appends_end_in_memory_and_are_written_after_five_seconds() {
    let drive = drive();
    let fs = mounted(&drive, &options());
    drive.run(async {
        let began = fs.driver().now();
        let writer = fs.create("/data", &data()).await.unwrap();
        writer.append(&bytes(50_000, 1)).await.unwrap();
        writer.close().await.unwrap();
        assert_eq!(
            (fs.driver().now(), writes(&fs)),
            (began, 0),
            "neither the append nor the end waits for the drive"
        );
        assert_eq!(fs.cache_stats().dirty, Bytes(50_000));
        assert_eq!(read(&fs, "/data").await.unwrap(), bytes(50_000, 1));
        pause(&fs, Duration::from_millis(4900)).await;
        assert_eq!(writes(&fs), 0);
        pause(&fs, Duration::from_millis(200)).await;
        assert!(writes(&fs) > 0);
        assert_eq!(fs.cache_stats().dirty, Bytes(0));
        assert_eq!(read(&fs, "/data").await.unwrap(), bytes(50_000, 1));
        fs.unmount().await.unwrap();
    });
    drive.check();
    let fs = drive.mount();
    assert_eq!(drive.run(read(&fs, "/data")).unwrap(), bytes(50_000, 1));
}

#[test]
fn a_full_buffer_is_written_at_once_and_the_rest_with_the_unmount() {
    let drive = drive();
    let fs = mounted(&drive, &options());
    drive.run(async {
        let writer = fs.create("/data", &data()).await.unwrap();
        writer.append(&bytes(70 * KIB, 1)).await.unwrap();
        pause(&fs, Duration::from_millis(10)).await;
        assert_eq!(fs.cache_stats().dirty, Bytes(6 * 1024));
        writer.append(&bytes(6 * KIB, 2)).await.unwrap();
        writer.close().await.unwrap();
        fs.unmount().await.unwrap();
    });
    let fs = drive.mount();
    let expected = [bytes(70 * KIB, 1), bytes(6 * KIB, 2)].concat();
    assert_eq!(drive.run(read(&fs, "/data")).unwrap(), expected);
}

#[test]
fn an_eighth_of_the_cache_is_written_although_no_buffer_is_full() {
    let drive = drive();
    let fs = mounted(&drive, &options());
    drive.run(async {
        let mut writers = Vec::new();
        for n in 0..40 {
            let writer = fs.create(&format!("/{n}"), &data()).await.unwrap();
            writer.append(&bytes(30 * KIB, n)).await.unwrap();
            writers.push(writer);
        }
        pause(&fs, Duration::from_millis(100)).await;
        let dirty = fs.cache_stats().dirty.0;
        assert!(dirty < MIB && dirty > MIB / 2, "{dirty}");
        let (used, capacity) = (fs.cache_stats().used.0, fs.cache_stats().capacity.0);
        assert!(used + dirty <= capacity, "{used} {dirty} {capacity}");
    });
}

#[test]
fn a_file_that_is_removed_first_is_never_written() {
    let drive = drive();
    let fs = mounted(&drive, &options());
    drive.run(async {
        for n in 0..100 {
            let writer = fs.create("/data", &data()).await.unwrap();
            writer.append(&bytes(40 * KIB, n)).await.unwrap();
            writer.close().await.unwrap();
            drop(writer);
            fs.unlink("/data").await.unwrap();
        }
        assert_eq!((writes(&fs), fs.cache_stats().dirty), (0, Bytes(0)));
        let writer = fs.create("/open", &data()).await.unwrap();
        writer.append(&bytes(40 * KIB, 1)).await.unwrap();
        let reader = fs.open("/open").unwrap();
        fs.unlink("/open").await.unwrap();
        writer.close().await.unwrap();
        let mut into = vec![0; 40 * KIB];
        assert_eq!(reader.read_at(Bytes(0), &mut into).await.unwrap(), 40 * KIB);
        assert!(into == bytes(40 * KIB, 1));
        fs.unmount().await.unwrap();
    });
    drive.check();
}

/// A drive that takes ten seconds for each long write.
#[derive(Debug)]
struct SlowDrive(Drive);

impl ZonedDevice for SlowDrive {
    fn geometry(&self) -> &Geometry {
        self.0.emu.geometry()
    }

    fn submit(&self, op: Op) -> Io {
        let is_long = matches!(&op, Op::Write { data, .. } if data.len() > 32 * KIB);
        let written = self.0.emu.submit(op);
        if !is_long {
            return written;
        }
        let driver: Arc<dyn Driver> = self.0.driver.clone();
        let at = driver.now().after(Duration::from_secs(10));
        Io::spawn(&driver.clone(), &"slow".into(), async move {
            sleep_until(&*driver, at).await;
            written.await
        })
    }

    fn driver(&self) -> &Arc<dyn Driver> {
        self.0.emu.driver()
    }
}

#[test]
fn writers_wait_at_a_quarter_of_the_cache_and_logs_do_not() {
    let drive = drive();
    drive.format();
    let driver = Arc::clone(&drive.driver);
    let slow = Arc::new(SlowDrive(drive));
    let fs = block_on(&*driver, Fs::mount(slow, &options())).expect("mounts");
    let writer = {
        let fs = fs.clone();
        spawn(&*driver, "writer", async move {
            let writer = fs.create("/data", &data()).await.unwrap();
            writer.append(&bytes(6 << 20, 1)).await.unwrap();
            writer.close().await.unwrap();
        })
    };
    block_on(&*driver, async {
        let log = fs.create("/log", &log()).await.unwrap();
        for n in 0..50 {
            pause(&fs, Duration::from_secs(1)).await;
            let dirty = fs.cache_stats().dirty;
            assert!(dirty <= Bytes(2 * MIB) && dirty > Bytes(MIB), "{dirty}");
            let began = fs.driver().now();
            log.append(&bytes(1000, n)).await.unwrap();
            log.sync().await.unwrap();
            assert!(fs.driver().now() < began.after(Duration::from_secs(1)), "the log waited");
        }
        writer.await;
        fs.sync().await.unwrap();
        assert!(read(&fs, "/data").await.unwrap() == bytes(6 << 20, 1));
        fs.unmount().await.unwrap();
    });
}

/// Gives files new names without a sync of their data. Returns what is there under each new name after a power cut.
fn contents_under_new_names(broken_rule: Option<BrokenRule>, seed: u64) -> Vec<Option<usize>> {
    let drive = drive();
    let fs = mounted(&drive, &MountOptions { broken_rule, ..options() });
    drive.run(async {
        fs.mkdir("/directory").await.unwrap();
        write(&fs, "/replaced", &bytes(10 * KIB, 9)).await.unwrap();
        for path in ["/renamed", "/linked", "/directory/file"] {
            let writer = fs.create(path, &data()).await.unwrap();
            writer.append(&bytes(90 * KIB, 1)).await.unwrap();
            writer.close().await.unwrap();
        }
        fs.rename("/renamed", "/replaced").await.unwrap();
        fs.link("/linked", "/second").await.unwrap();
        fs.rename("/directory", "/moved").await.unwrap();
        fs.sync_names().await.unwrap();
    });
    let after = drive.cut(&mut Seeded::new(seed));
    let fs = after.mount();
    let paths = ["/replaced", "/second", "/moved/file"];
    paths
        .map(|path| {
            let content = after.run(read(&fs, path)).ok()?;
            assert!(bytes(90 * KIB, 1).starts_with(&content));
            Some(content.len())
        })
        .to_vec()
}

#[test]
fn a_file_seen_under_a_new_name_has_its_data() {
    for seed in 0..20 {
        assert_eq!(contents_under_new_names(None, seed), [Some(90 * KIB); 3]);
    }
    let broken = contents_under_new_names(Some(BrokenRule::NameBeforeData), 1);
    assert!(broken.iter().any(|len| *len != Some(90 * KIB)), "the broken rule is not seen");
}

#[test]
fn what_was_synced_survives_and_the_rest_is_a_prefix() {
    for seed in 0..200 {
        let drive = drive();
        let fs = mounted(&drive, &options());
        let mut random = Random(SplitMix64::new(seed));
        let mut model: Vec<(Vec<u8>, usize)> = Vec::new();
        drive.run(async {
            for n in 0..4_u8 {
                let writer = fs.create(&format!("/{n}"), &data()).await.unwrap();
                let (mut content, mut synced) = (Vec::new(), 0);
                for part in 0..random.below(8) as u8 {
                    let more = bytes(1 + random.below(60_000) as usize, 16 * n + part);
                    writer.append(&more).await.unwrap();
                    content.extend_from_slice(&more);
                    match random.below(4) {
                        0 => {
                            writer.sync().await.unwrap();
                            synced = content.len();
                        }
                        1 => pause(&fs, Duration::from_micros(random.below(300))).await,
                        _ => {}
                    }
                }
                if random.below(4) == 0 {
                    fs.sync().await.unwrap();
                    synced = content.len();
                }
                model.push((content, synced));
            }
        });
        let after = drive.cut(&mut Seeded::new(seed));
        after.check();
        let fs = after.mount();
        for (n, (content, synced)) in model.iter().enumerate() {
            let Ok(found) = after.run(read(&fs, &format!("/{n}"))) else {
                assert_eq!(*synced, 0);
                continue;
            };
            assert!(content.starts_with(&found) && found.len() >= *synced, "seed {seed}, file {n}");
        }
    }
}

#[test]
fn bytes_that_a_zone_does_not_take_go_to_another_one() {
    for worn in [false, true] {
        let drive = drive();
        let fs = mounted(&drive, &options());
        drive.run(async {
            let writer = fs.create("/data", &data()).await.unwrap();
            writer.append(&bytes(30 * KIB, 1)).await.unwrap();
            writer.sync().await.unwrap();
            let zone = fs.zone_map().into_iter().find(|zone| zone.live.0 == 8).unwrap().zone;
            if worn {
                drive.emu.wear(zone, ZoneState::ReadOnly);
            } else {
                drive.emu.fail(FaultSpec::all(FaultOp::Write).in_zone(zone));
            }
            writer.append(&bytes(300 * KIB, 2)).await.unwrap();
            writer.sync().await.unwrap();
            writer.append(&bytes(10 * KIB, 3)).await.unwrap();
            writer.close().await.unwrap();
            fs.sync().await.unwrap();
            let expected = [bytes(30 * KIB, 1), bytes(300 * KIB, 2), bytes(10 * KIB, 3)].concat();
            assert!(read(&fs, "/data").await.unwrap() == expected);
            fs.unmount().await.unwrap();
            let fs = Fs::mount(drive.dev(), &options()).await.unwrap();
            assert!(read(&fs, "/data").await.unwrap() == expected);
        });
    }
}

/// A file whose first 30 KiB are synced and whose next bytes no zone takes.
async fn file_that_loses_bytes(drive: &Drive, fs: &Fs) -> Writer {
    let writer = fs.create("/data", &data()).await.unwrap();
    writer.append(&bytes(32 * KIB, 1)).await.unwrap();
    writer.sync().await.unwrap();
    drive.emu.fail(FaultSpec::all(FaultOp::Write));
    writer.append(&bytes(64 * KIB, 2)).await.unwrap();
    pause(fs, Duration::from_secs(6)).await;
    drive.emu.clear_faults();
    writer
}

#[test]
fn a_file_whose_bytes_no_zone_takes_ends_before_them_and_each_caller_hears_of_it() {
    let drive = drive();
    let fs = mounted(&drive, &options());
    drive.run(async {
        let writer = file_that_loses_bytes(&drive, &fs).await;
        let reader = fs.open("/data").unwrap();
        for _ in 0..2 {
            assert_eq!(writer.append(b"more").await.unwrap_err().kind(), ErrorKind::Poisoned);
            assert_eq!(writer.sync().await.unwrap_err().kind(), ErrorKind::Poisoned);
            assert_eq!(fs.rename("/data", "/other").await.unwrap_err().kind(), ErrorKind::Poisoned);
            assert_eq!(fs.link("/data", "/other").await.unwrap_err().kind(), ErrorKind::Poisoned);
        }
        assert!(matches!(fs.sync().await.unwrap_err().kind(), ErrorKind::Device(_)));
        fs.sync().await.unwrap();
        assert_eq!(writer.close().await.unwrap_err().kind(), ErrorKind::Poisoned);
        let mut lost = vec![0; 64 * KIB];
        assert_eq!(reader.read_at(Bytes(32 * 1024), &mut lost).await.unwrap(), 64 * KIB);
        assert!(lost == bytes(64 * KIB, 2), "lost bytes are readable while the file is open");
        assert_eq!(fs.cache_stats().dirty, Bytes(0));
        drop((reader, writer));
        assert_eq!(read(&fs, "/data").await.unwrap(), bytes(32 * KIB, 1));
        let writer = fs.open_append("/data").await.unwrap();
        writer.append(&bytes(5 * KIB, 3)).await.unwrap();
        writer.sync().await.unwrap();
        writer.close().await.unwrap();
        let expected = [bytes(32 * KIB, 1), bytes(5 * KIB, 3)].concat();
        assert_eq!(read(&fs, "/data").await.unwrap(), expected);
        fs.rename("/data", "/other").await.unwrap();
        fs.unmount().await.unwrap();
    });
    drive.check();
}

#[test]
fn lost_bytes_that_count_as_written_are_found() {
    let drive = drive();
    let fs = mounted(&drive, &MountOptions { broken_rule: Some(BrokenRule::LostBytes), ..options() });
    drive.run(async {
        let writer = file_that_loses_bytes(&drive, &fs).await;
        assert!(writer.sync().await.is_ok(), "the broken rule is not seen");
        assert!(read(&fs, "/data").await.unwrap() != [bytes(32 * KIB, 1), bytes(64 * KIB, 2)].concat());
    });
}

/// A closed file of 32 KiB that lost as many bytes behind them, of which nobody has heard.
async fn file_with_an_untold_loss(drive: &Drive, fs: &Fs) {
    let writer = fs.create("/data", &data()).await.unwrap();
    writer.append(&bytes(32 * KIB, 1)).await.unwrap();
    writer.sync().await.unwrap();
    drive.emu.fail(FaultSpec::all(FaultOp::Write));
    writer.append(&bytes(32 * KIB, 2)).await.unwrap();
    writer.close().await.unwrap();
    drop(writer);
    pause(fs, Duration::from_secs(6)).await;
    drive.emu.clear_faults();
}

#[test]
fn the_next_reader_hears_of_a_loss_that_nobody_heard_of() {
    let drive = drive();
    let fs = mounted(&drive, &options());
    drive.run(async {
        file_with_an_untold_loss(&drive, &fs).await;
        assert!(matches!(fs.open("/data").unwrap_err().kind(), ErrorKind::Device(_)));
        assert_eq!(read(&fs, "/data").await.unwrap(), bytes(32 * KIB, 1));
        assert_eq!(fs.open_append("/data").await.unwrap().size(), Bytes(32 * 1024));
        assert!(fs.unmount().await.is_err(), "the unmount tells of the loss");
    });
    drive.check();
}

#[test]
fn the_next_writer_hears_of_a_loss_that_nobody_heard_of() {
    let drive = drive();
    let fs = mounted(&drive, &options());
    drive.run(async {
        file_with_an_untold_loss(&drive, &fs).await;
        assert!(matches!(fs.open_append("/data").await.unwrap_err().kind(), ErrorKind::Device(_)));
        let writer = fs.open_append("/data").await.unwrap();
        assert_eq!(writer.size(), Bytes(32 * 1024));
        for n in 3..6 {
            writer.append(&bytes(KIB, n)).await.unwrap();
            writer.sync().await.unwrap();
        }
        writer.close().await.unwrap();
        let expected = [bytes(32 * KIB, 1), bytes(KIB, 3), bytes(KIB, 4), bytes(KIB, 5)].concat();
        assert!(read(&fs, "/data").await.unwrap() == expected);
        assert!(fs.unmount().await.is_err(), "the unmount tells of the loss");
    });
    drive.check();
}

#[test]
fn a_failed_flush_ends_all_writing_and_nobody_waits_for_ever() {
    let drive =
        Drive::new(EmuOptions { latency: Latency::all(Duration::from_micros(50)), ..EmuOptions::tiny() });
    let fs = mounted(&drive, &options());
    drive.run(async {
        let writer = fs.create("/data", &data()).await.unwrap();
        writer.append(&bytes(30 * KIB, 1)).await.unwrap();
        drive.emu.fail(FaultSpec::all(FaultOp::Flush));
        assert!(writer.sync().await.is_err());
        let more = fs.open_append("/data").await.is_err() && fs.create("/more", &data()).await.is_err();
        assert!(more && fs.sync().await.is_err() && writer.append(&bytes(30 * KIB, 1)).await.is_err());
        pause(&fs, Duration::from_secs(20)).await;
        assert!(fs.unmount().await.is_err());
    });
}

#[test]
fn the_end_of_writing_waits_for_no_write() {
    let drive = drive();
    drive.format();
    let driver = Arc::clone(&drive.driver);
    let fs = block_on(&*driver, Fs::mount(Arc::new(SlowDrive(drive)), &options())).expect("mounts");
    block_on(&*driver, async {
        let writer = fs.create("/data", &data()).await.unwrap();
        writer.append(&bytes(100 * KIB, 1)).await.unwrap();
        pause(&fs, Duration::from_secs(1)).await;
        let began = fs.driver().now();
        writer.append(&bytes(10 * KIB, 2)).await.unwrap();
        writer.close().await.unwrap();
        assert_eq!(fs.driver().now(), began, "a write of ten seconds is under way");
        let expected = [bytes(100 * KIB, 1), bytes(10 * KIB, 2)].concat();
        assert!(read(&fs, "/data").await.unwrap() == expected);
        fs.unmount().await.unwrap();
    });
}

#[test]
fn files_that_nobody_has_open_keep_no_lost_bytes_in_memory() {
    let drive = drive();
    let fs = mounted(&drive, &options());
    drive.run(async {
        for zone in fs.zone_map().into_iter().filter(|zone| zone.role == ZoneRole::Free) {
            drive.emu.fail(FaultSpec::all(FaultOp::Write).in_zone(zone.zone));
        }
        for n in 0..50 {
            let writer = fs.create(&format!("/{n}"), &data()).await.unwrap();
            writer.append(&bytes(100 * KIB, n)).await.unwrap();
            let _lost = writer.close().await;
        }
        pause(&fs, Duration::from_secs(6)).await;
        drive.emu.clear_faults();
        for n in 0..50 {
            assert_eq!(fs.stat(&format!("/{n}")).unwrap().size, Bytes(0));
        }
        assert!(fs.sync().await.is_err());
        fs.sync().await.unwrap();
    });
}

/// A buffer is at least one optimal write of the drive, also where that is a large part of a small cache.
#[test]
fn a_small_cache_on_a_drive_with_long_optimal_writes_makes_nobody_wait() {
    let drive = drive();
    drive.format();
    let driver = Arc::clone(&drive.driver);
    let geometry = Geometry { optimal_write: Blocks(160), ..drive.emu.geometry().clone() };
    let mount = MountOptions { cache: Bytes(4 * MIB), ..options() };
    let wide = Arc::new(LongOptimalWrites(drive, geometry));
    let fs = block_on(&*driver, Fs::mount(wide, &mount)).expect("mounts");
    block_on(&*driver, async {
        let other = fs.create("/other", &data()).await.unwrap();
        other.append(&bytes(400 * KIB, 1)).await.unwrap();
        let writer = fs.create("/data", &data()).await.unwrap();
        let began = fs.driver().now();
        for n in 0..4 {
            writer.append(&bytes(640 * KIB, n)).await.unwrap();
        }
        assert!(fs.driver().now() < began.after(Duration::from_secs(1)));
        fs.unmount().await.unwrap();
    });
}

/// A drive that has another geometry.
#[derive(Debug)]
struct LongOptimalWrites(Drive, Geometry);

impl ZonedDevice for LongOptimalWrites {
    fn geometry(&self) -> &Geometry {
        &self.1
    }

    fn submit(&self, op: Op) -> Io {
        self.0.emu.submit(op)
    }

    fn driver(&self) -> &Arc<dyn Driver> {
        self.0.emu.driver()
    }
}

#[test]
fn truncations_see_bytes_in_memory() {
    let drive = drive();
    let fs = mounted(&drive, &options());
    drive.run(async {
        let writer = fs.create("/data", &data()).await.unwrap();
        writer.append(&bytes(100_000, 1)).await.unwrap();
        writer.truncate(Bytes(50_001)).await.unwrap();
        writer.append(&bytes(1000, 2)).await.unwrap();
        writer.close().await.unwrap();
        fs.truncate("/data", Bytes(51_500)).await.unwrap();
        let writer = fs.open_append("/data").await.unwrap();
        writer.append(&bytes(100, 3)).await.unwrap();
        writer.close().await.unwrap();
        let expected =
            [&bytes(100_000, 1)[..50_001], &bytes(1000, 2), &vec![0; 499], &bytes(100, 3)].concat();
        assert_eq!(read(&fs, "/data").await.unwrap(), expected);
        fs.unmount().await.unwrap();
    });
    let fs = drive.mount();
    assert_eq!(fs.stat("/data").unwrap().size, Bytes(51_600));
}

#[test]
fn a_writer_goes_on_where_an_earlier_one_left_bytes_in_memory() {
    let drive = drive();
    let fs = mounted(&drive, &options());
    drive.run(async {
        let mut expected = Vec::new();
        for n in 0..60_u8 {
            let writer = match n {
                0 => fs.create("/data", &data()).await.unwrap(),
                _ => fs.open_append("/data").await.unwrap(),
            };
            let more = bytes(1 + usize::from(n) * 331, n);
            writer.append(&more).await.unwrap();
            expected.extend_from_slice(&more);
            match n % 7 {
                3 => writer.sync().await.unwrap(),
                5 => fs.sync().await.unwrap(),
                6 => pause(&fs, Duration::from_secs(6)).await,
                _ => {}
            }
            writer.close().await.unwrap();
            assert!(read(&fs, "/data").await.unwrap() == expected, "{n}");
        }
        fs.unmount().await.unwrap();
    });
    let fs = drive.mount();
    assert!(!drive.run(read(&fs, "/data")).unwrap().is_empty());
}

/// Threads that append to files, sync and read them, beside each other on the real clock.
#[test]
fn threads_find_the_bytes_that_they_appended() {
    let driver: Arc<dyn Driver> = RealDriver::new();
    let options = EmuOptions {
        name: "emu:threads".into(),
        zones: 200,
        zone_size: Blocks(256),
        zone_capacity: Blocks(256),
        ..EmuOptions::default()
    };
    let dev: Arc<dyn ZonedDevice> = Emu::memory(options, Arc::clone(&driver));
    let mount = MountOptions { cache: Bytes(4 * MIB), ..MountOptions::default() };
    let fs = block_on(&*driver, async {
        Fs::format(&dev, &FormatOptions::default()).await.unwrap();
        Fs::mount(Arc::clone(&dev), &mount).await.unwrap()
    });
    let left: parking_lot::Mutex<BTreeMap<String, Vec<u8>>> = parking_lot::Mutex::default();
    std::thread::scope(|scope| {
        for thread in 0..4_u64 {
            let (fs, driver, left) = (fs.clone(), Arc::clone(&driver), &left);
            scope.spawn(move || {
                let mut random = Random(SplitMix64::new(thread));
                for round in 0..12_u64 {
                    let path = format!("/{thread}-{round}");
                    let writer = block_on(&*driver, fs.create(&path, &data())).unwrap();
                    let reader = fs.open(&path).unwrap();
                    let mut content = Vec::new();
                    while content.len() < 2 << 20 {
                        let more = bytes(1 + random.below(200_000) as usize, random.below(256) as u8);
                        block_on(&*driver, writer.append(&more)).unwrap();
                        content.extend_from_slice(&more);
                        if random.below(8) == 0 {
                            block_on(&*driver, writer.sync()).unwrap();
                        }
                        let at = random.below(content.len() as u64) as usize;
                        let mut into = vec![0; random.below(100_000) as usize];
                        let len = block_on(&*driver, reader.read_at(Bytes(at as u64), &mut into)).unwrap();
                        assert!(
                            into[..len] == content[at..content.len().min(at + into.len())],
                            "{path} at {at}"
                        );
                    }
                    block_on(&*driver, writer.close()).unwrap();
                    drop(writer);
                    assert!(block_on(&*driver, read(&fs, &path)).unwrap() == content);
                    if round % 2 == 0 {
                        let name = format!("/{thread}");
                        block_on(&*driver, fs.rename(&path, &name)).unwrap();
                        let writer = block_on(&*driver, fs.open_append(&name)).unwrap();
                        let more = bytes(random.below(100_000) as usize, 7);
                        std::thread::scope(|scope| {
                            // Syncs of everything beside appends.
                            scope.spawn(|| (0..20).for_each(|_| block_on(&*driver, fs.sync()).unwrap()));
                            for part in more.chunks(3000) {
                                block_on(&*driver, writer.append(part)).unwrap();
                            }
                        });
                        block_on(&*driver, writer.close()).unwrap();
                        content.extend_from_slice(&more);
                        left.lock().insert(name, content);
                    } else {
                        block_on(&*driver, fs.unlink(&path)).unwrap();
                    }
                }
            });
        }
    });
    block_on(&*driver, fs.unmount()).unwrap();
    let fs = block_on(&*driver, Fs::mount(Arc::clone(&dev), &mount)).unwrap();
    for (path, content) in left.into_inner() {
        assert!(block_on(&*driver, read(&fs, &path)).unwrap() == content, "{path} after an unmount");
    }
    block_on(&*driver, fs.unmount()).unwrap();
    let report = block_on(&*driver, Fs::check(&dev)).unwrap();
    assert_eq!(report.problems, Vec::<String>::new());
}

/// Eight files that are written side by side share a zone in pieces of 1 MiB or more: what is read in a row lies in a row.
#[test]
fn files_that_are_written_side_by_side_lie_in_runs_of_a_mebibyte() {
    const FILES: u8 = 8;
    const BLOCK: usize = 4 * KIB;
    let drive = Drive::new(EmuOptions {
        zones: 40,
        zone_size: Blocks(1024),
        zone_capacity: Blocks(1024),
        latency: Latency::all(Duration::from_micros(50)),
        ..EmuOptions::default()
    });
    let fs = mounted(&drive, &MountOptions { cache: Bytes(64 * MIB), ..MountOptions::default() });
    drive.run(async {
        let mut writers = Vec::new();
        for n in 0..FILES {
            writers.push(fs.create(&format!("/{n}"), &data()).await.unwrap());
        }
        for _ in 0..80 {
            for (writer, n) in writers.iter().zip(1..) {
                writer.append(&[n; 64 * KIB]).await.unwrap();
            }
        }
        for writer in &writers {
            writer.close().await.unwrap();
        }
        fs.unmount().await.unwrap();
    });
    let fs = drive.mount();
    let dev = drive.dev();
    let mut written = [0; FILES as usize];
    for zone in fs.zone_map().into_iter().filter(|zone| matches!(zone.role, ZoneRole::Data { .. })) {
        let into = zoned::BufMut::zeroed(1024 * BLOCK);
        let content = drive.run(dev.read(dev.geometry().start(zone.zone), into)).unwrap();
        let owners: Vec<u8> = content.chunks(BLOCK).map(|block| block[0]).collect();
        let runs: Vec<&[u8]> = owners.chunk_by(|one, other| one == other).collect();
        for (run, at) in runs.iter().zip(0..) {
            let Some(blocks) = run[0].checked_sub(1).map(|file| &mut written[usize::from(file)]) else {
                continue;
            };
            *blocks += run.len();
            // A run ends with its zone, or with its file.
            let is_last = at + 1 == runs.len() || *blocks == 80 * 16;
            let is_first_of_zone = at == 0;
            assert!(
                run.len() >= 256 || is_last || is_first_of_zone,
                "{} blocks of file {}",
                run.len(),
                run[0]
            );
        }
    }
    assert_eq!(written, [80 * 16; FILES as usize], "every block is somewhere");
}
