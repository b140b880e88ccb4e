//! Situations that earlier file systems for zoned drives, above all ZenFS, handle wrongly: one test each.
//!
//! A unit test in `extents.rs` covers one more situation: extents are found in logarithmic steps.
#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "a test may panic")]

use std::sync::Arc;
use std::time::Duration;

use crate::common::{Counter, Drive, bytes, data, log, read, write};
use fs::{ErrorKind, Fs, MountOptions, ZoneRole};
use units::{Blocks, Bytes, ZoneId, sleep_until, spawn};
use zoned::emu::{EmuOptions, FaultOp, FaultSpec, Latency, Seeded};
use zoned::{Action, Buf, BufMut, Durability};

fn metadata_zones(fs: &Fs) -> Vec<fs::ZoneUse> {
    fs.zone_map().into_iter().filter(|z| z.role == ZoneRole::Metadata).collect()
}

#[test]
fn a_mount_succeeds_after_a_torn_metadata_record() {
    let (drive, fs) = Drive::formatted(EmuOptions::tiny());
    drive.run(async {
        write(&fs, "/a", b"before").await.unwrap();
        fs.unmount().await.unwrap();
    });
    for round in 0..20_u8 {
        let fs = drive.mount();
        let tail = metadata_zones(&fs).into_iter().find(|z| z.pointer > Blocks(0) && z.pointer < z.capacity);
        drive.run(fs.unmount()).unwrap();
        let Some(tail) = tail else { continue };
        // A torn write of the metadata log leaves bytes that are no record.
        let at = drive.dev().geometry().start(tail.zone).plus(tail.pointer);
        drive.run(drive.dev().write(at, Buf::copy_from(&[0xa5 ^ round; 4096]), Durability::Durable)).unwrap();
        let fs = drive.mount();
        drive.run(async {
            assert_eq!(read(&fs, "/a").await.unwrap(), b"before");
            let path = format!("/after{round}");
            write(&fs, &path, b"the torn record").await.unwrap();
            fs.unmount().await.unwrap();
        });
        let fs = drive.mount();
        assert_eq!(drive.run(read(&fs, &format!("/after{round}"))).unwrap(), b"the torn record");
        drive.run(fs.unmount()).unwrap();
    }
    drive.check();
}

#[test]
fn the_epoch_before_a_torn_snapshot_is_mounted() {
    let options = EmuOptions { block_size: 512, ..EmuOptions::tiny() };
    let mut torn = 0;
    for after in 0..30 {
        let (drive, fs) = Drive::formatted(options.clone());
        let metadata = metadata_zones(&fs);
        // From the second metadata zone on, writes that extend or roll the metadata log fail after some
        // writes.
        let zone = metadata[1 + after % 5].zone;
        let fault = FaultSpec { after: (after / 5) as u64, ..FaultSpec::all(FaultOp::Write) }.in_zone(zone);
        drive.emu.fail(fault);
        let mut done = 0;
        drive.run(async {
            for n in 0..150 {
                if write(&fs, &format!("/{}", n % 20), &bytes(300, n)).await.is_err() {
                    torn += 1;
                    break;
                }
                done = n;
            }
        });
        drive.emu.clear_faults();
        let drive = drive.cut(&mut Seeded::new(after as u64));
        let fs = drive.mount();
        let path = format!("/{}", done % 20);
        assert_eq!(drive.run(read(&fs, &path)).unwrap(), bytes(300, done), "fault after {after}");
        drive.run(fs.unmount()).unwrap();
        drive.check();
    }
    assert!(torn > 5, "{torn}");
}

#[test]
fn a_power_cut_in_a_replacing_rename_leaves_the_old_or_the_new_file() {
    for seed in 0..100 {
        let (drive, fs) = Drive::formatted(EmuOptions::tiny());
        drive.run(async {
            write(&fs, "/CURRENT", b"old").await.unwrap();
            write(&fs, "/tmp", b"new").await.unwrap();
            fs.rename("/tmp", "/CURRENT").await.unwrap();
            if seed % 2 == 0 {
                fs.sync().await.unwrap();
            }
        });
        let cut = drive.cut(&mut Seeded::new(seed));
        let fs = cut.mount();
        let current = cut.run(read(&fs, "/CURRENT")).unwrap();
        assert!(current == b"new" || (seed % 2 == 1 && current == b"old"), "{current:?}");
    }
}

#[test]
fn every_later_call_returns_the_first_device_error() {
    let (drive, fs) = Drive::formatted(EmuOptions::tiny());
    drive.run(async {
        write(&fs, "/kept", b"kept").await.unwrap();
        let writer = fs.create("/a", &data()).await.unwrap();
        writer.append(&bytes(5000, 1)).await.unwrap();
        drive.emu.fail(FaultSpec::next(FaultOp::Write));
        let first = writer.sync().await.unwrap_err();
        assert_eq!(first.kind(), ErrorKind::Device(zoned::ErrorKind::Media));
        for error in
            [writer.sync().await, writer.append(b"x").await, writer.flush().await, writer.close().await]
        {
            let error = error.unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Poisoned);
            assert!(error.to_string().contains("injected"), "the cause is kept: {error}");
        }
        let again = fs.create("/a", &data()).await.unwrap();
        again.append(b"again").await.unwrap();
        again.sync().await.unwrap();
        again.close().await.unwrap();
        drive.emu.fail(FaultSpec::next(FaultOp::Flush));
        let error = write(&fs, "/b", b"b").await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Device(zoned::ErrorKind::Media));
        // The failed flush belonged to a metadata commit: the file system is read-only.
        assert_eq!(fs.create("/c", &data()).await.unwrap_err().kind(), ErrorKind::ReadOnly);
        assert_eq!(read(&fs, "/kept").await.unwrap(), b"kept");
    });
    let fs = drive.mount();
    assert_eq!(drive.run(read(&fs, "/a")).unwrap(), b"again");
    drive.run(fs.unmount()).unwrap();
}

#[test]
fn synced_bytes_are_on_the_medium() {
    for seed in 0..60 {
        let (drive, fs) = Drive::formatted(EmuOptions::tiny());
        drive.run(async {
            let log = fs.create("/a.log", &log()).await.unwrap();
            log.append(&bytes(30_000, 1)).await.unwrap();
            log.sync().await.unwrap();
            write(&fs, "/a", &bytes(50_000, 2)).await.unwrap();
        });
        let cut = drive.cut(&mut Seeded::new(seed));
        let fs = cut.mount();
        assert_eq!(cut.run(read(&fs, "/a.log")).unwrap(), bytes(30_000, 1));
        assert_eq!(cut.run(read(&fs, "/a")).unwrap(), bytes(50_000, 2));
    }
}

#[test]
fn a_failed_write_of_reclaim_loses_nothing() {
    for after in (0..400).step_by(9) {
        let (drive, fs) = Drive::formatted(EmuOptions::tiny());
        let mut kept: Vec<Option<Vec<u8>>> = vec![None; 14];
        drive.run(async {
            for n in 0..14 {
                write(&fs, &format!("/{n}"), &bytes(80_000, n)).await.unwrap();
                kept[usize::from(n)] = Some(bytes(80_000, n));
            }
            drive.emu.fail(FaultSpec { after, ..FaultSpec::next(FaultOp::Write) });
            for n in 0..60_u8 {
                let slot = usize::from(n.wrapping_mul(5) % 14);
                let (path, tmp) = (format!("/{slot}"), "/tmp");
                // Whichever write fails, the old file stays until the new file is complete.
                if write(&fs, tmp, &bytes(40_000, n)).await.is_ok() && fs.rename(tmp, &path).await.is_ok() {
                    kept[slot] = Some(bytes(40_000, n));
                }
            }
            for (slot, expected) in kept.iter().enumerate() {
                let content = read(&fs, &format!("/{slot}")).await.unwrap();
                let expected = expected.as_ref().unwrap();
                assert_eq!(content.len(), expected.len(), "file {slot}, fault after {after}");
                assert!(content == *expected, "file {slot}, fault after {after}");
            }
        });
    }
}

#[test]
fn a_writer_waits_for_a_zone_that_another_writer_is_filling() {
    let latency = Latency::all(Duration::from_micros(100));
    let options = EmuOptions { max_open: Some(5), max_active: Some(5), latency, ..EmuOptions::tiny() };
    let (drive, fs) = Drive::formatted(options);
    let tasks: Vec<_> = (0..8_u8)
        .map(|n| {
            let fs = fs.clone();
            spawn(&*drive.driver, "writer", async move {
                for round in 0..12 {
                    let error = write(&fs, &format!("/{n}"), &bytes(60_000, n ^ round)).await.err();
                    assert!(error.is_none(), "writer {n}, round {round}: {}", error.unwrap());
                }
            })
        })
        .collect();
    drive.run(async {
        for task in tasks {
            task.await;
        }
        for n in 0..8_u8 {
            assert_eq!(read(&fs, &format!("/{n}")).await.unwrap(), bytes(60_000, n ^ 11));
        }
        fs.unmount().await.unwrap();
    });
    drive.check();
}

#[test]
fn a_snapshot_longer_than_a_metadata_zone_rolls_and_mounts() {
    let options = EmuOptions { block_size: 512, zones: 64, ..EmuOptions::tiny() };
    let (drive, fs) = Drive::formatted(options);
    let path = |n: u32| format!("/{n}-{}", "x".repeat(200));
    drive.run(async {
        for round in 0..20 {
            for n in 0..36 {
                let writer = fs.create(&path(n), &data()).await.unwrap();
                writer.append(&bytes(100, (round ^ n) as u8)).await.unwrap();
                writer.close().await.unwrap();
                fs.sync().await.unwrap();
            }
        }
        fs.unmount().await.unwrap();
    });
    let dev = drive.dev();
    let dump = drive.run(Fs::dump(&dev)).unwrap();
    let snapshot: usize = dump.iter().take_while(|line| !line.contains("End {")).map(String::len).sum();
    assert!(snapshot > 2 * 14 * 512, "{snapshot}");
    assert!(
        dump.last().unwrap().starts_with("epoch") && !dump.last().unwrap().starts_with("epoch 1 "),
        "{dump:?}"
    );
    drive.check();
    let fs = drive.mount();
    for n in 0..36 {
        assert_eq!(drive.run(read(&fs, &path(n))).unwrap(), bytes(100, (19 ^ n) as u8));
    }
    drive.run(fs.unmount()).unwrap();
}

/// The longest duration of many runs of `work`.
async fn longest_duration<F: Future<Output = ()>>(
    fs: &Fs,
    times: usize,
    mut work: impl FnMut(usize) -> F,
) -> Duration {
    let mut longest = Duration::ZERO;
    for n in 0..times {
        let begun = fs.driver().now();
        work(n).await;
        longest = longest.max(fs.driver().now().since(begun));
    }
    longest
}

fn slow_zones() -> EmuOptions {
    let latency = Latency {
        reset: Duration::from_millis(50),
        finish: Duration::from_millis(50),
        ..Latency::all(Duration::from_micros(10))
    };
    EmuOptions { max_open: Some(14), max_active: Some(14), zones: 200, latency, ..EmuOptions::tiny() }
}

#[test]
fn a_log_does_not_wait_for_an_allocation_finish_or_reset() {
    let (drive, fs) = Drive::formatted(slow_zones());
    drive.run(async {
        for n in 0..10 {
            let path = format!("/{n}.log");
            let writer = fs.create(&path, &log()).await.unwrap();
            let longest = longest_duration(&fs, 60, |_| async {
                writer.append(&bytes(5000, 1)).await.unwrap();
                writer.sync().await.unwrap();
            })
            .await;
            assert!(longest < Duration::from_millis(5), "{longest:?}");
            writer.close().await.unwrap();
            fs.unlink(&path).await.unwrap();
        }
        fs.unmount().await.unwrap();
    });
    drive.check();
}

#[test]
fn writers_do_not_wait_for_a_metadata_roll() {
    let zone = Blocks(64);
    let (drive, fs) = Drive::formatted(EmuOptions { zone_size: zone, zone_capacity: zone, ..slow_zones() });
    drive.run(async {
        let mut longest = Duration::ZERO;
        for n in 0..1500 {
            let begun = fs.driver().now();
            write(&fs, &format!("/{}", n % 30), &bytes(3000, n as u8)).await.unwrap();
            longest = longest.max(fs.driver().now().since(begun));
            // A metadata zone takes longer to fill than to reset.
            sleep_until(&**fs.driver(), fs.driver().now().after(Duration::from_millis(1))).await;
        }
        assert!(longest < Duration::from_millis(5), "{longest:?}");
        fs.unmount().await.unwrap();
    });
    let dev = drive.dev();
    let dump = drive.run(Fs::dump(&dev)).unwrap();
    assert!(!dump.last().unwrap().starts_with("epoch 1 "), "no roll: {:?}", dump.last());
}

#[test]
fn reading_a_file_of_many_extents_reads_each_block_once() {
    let (drive, fs) = Drive::formatted(EmuOptions { zones: 128, ..EmuOptions::tiny() });
    drive.run(async {
        let (a, b) = (fs.create("/a", &data()).await.unwrap(), fs.create("/b", &data()).await.unwrap());
        let mut content = Vec::new();
        for n in 0..150 {
            for writer in [&a, &b] {
                writer.append(&bytes(4096, n)).await.unwrap();
                writer.sync().await.unwrap();
            }
            content.extend_from_slice(&bytes(4096, n));
        }
        for writer in [a, b] {
            writer.close().await.unwrap();
        }
        fs.unmount().await.unwrap();
        let counter = Counter::over(&drive);
        let fs = Fs::mount(counter.clone(), &MountOptions::default()).await.unwrap();
        counter.take();
        assert_eq!(read(&fs, "/a").await.unwrap(), content);
        let (reads, blocks) = counter.take();
        assert_eq!(blocks, 150);
        assert!((30..=150).contains(&reads), "{reads} reads");
        let reader = fs.open("/b").unwrap();
        let mut two = [0; 2];
        assert_eq!(reader.read_at(Bytes(77 * 4096 + 4095), &mut two).await.unwrap(), 2);
        assert_eq!(two, [content[77 * 4096 + 4095], content[78 * 4096]]);
        assert_eq!(counter.take().1, 2);
        fs.unmount().await.unwrap();
    });
}

#[test]
fn a_mount_uses_the_copy_of_a_damaged_superblock() {
    let (drive, fs) = Drive::formatted(EmuOptions { conventional: 2, ..EmuOptions::tiny() });
    drive.run(async {
        write(&fs, "/a", b"a").await.unwrap();
        fs.unmount().await.unwrap();
        let damage = Buf::copy_from(&[0x55; 4096]);
        drive
            .dev()
            .write(drive.dev().geometry().start(ZoneId(0)), damage, Durability::Durable)
            .await
            .unwrap();
        let fs = Fs::mount(drive.dev(), &MountOptions::default()).await.unwrap();
        assert_eq!(read(&fs, "/a").await.unwrap(), b"a");
        fs.unmount().await.unwrap();
        let dev: Arc<_> = drive.dev();
        let report = Fs::check(&dev).await.unwrap();
        assert_eq!(report.problems, ["there is no superblock in zone 0"]);
    });
}

#[test]
fn a_changed_length_in_an_entry_header_is_damage() {
    // The bytes of an entry header that hold the entry's payload length.
    for byte in 48..52 {
        let (drive, fs) = Drive::formatted(EmuOptions::tiny());
        drive.run(async {
            let writer = fs.create("/a.log", &log()).await.unwrap();
            for n in 0..3 {
                writer.append(&bytes(3000, n)).await.unwrap();
                writer.sync().await.unwrap();
            }
            writer.close().await.unwrap();
            let zone = fs.zone_map().into_iter().find(|z| z.role == ZoneRole::Log && z.pointer > Blocks(0));
            fs.unmount().await.unwrap();
            let (dev, zone) = (drive.dev(), zone.unwrap().zone);
            let at = dev.geometry().start(zone);
            let mut image = dev.read(at, BufMut::zeroed(3 * 4096)).await.unwrap().to_vec();
            image[4096 + byte] ^= 1;
            dev.zone(zone, Action::Reset).await.unwrap();
            dev.write(at, Buf::copy_from(&image), Durability::Durable).await.unwrap();
        });
        let fs = drive.mount();
        drive.run(async {
            assert_eq!(read(&fs, "/a.log").await.unwrap_err().kind(), ErrorKind::Corrupt, "byte {byte}");
            let mut first = vec![0; 3000];
            assert_eq!(fs.open("/a.log").unwrap().read_at(Bytes(0), &mut first).await.unwrap(), 3000);
            assert_eq!(first, bytes(3000, 0));
            fs.unmount().await.unwrap();
        });
    }
}

#[test]
fn recovery_of_a_log_reads_twice_as_much_for_twice_the_entries() {
    let size = Blocks(1024);
    let blocks = |entries: u64| {
        let options = EmuOptions { zone_size: size, zone_capacity: size, ..EmuOptions::tiny() };
        let (drive, fs) = Drive::formatted(options);
        drive.run(async {
            let writer = fs.create("/a.log", &log()).await.unwrap();
            for _ in 0..entries {
                writer.append(&bytes(3000, 1)).await.unwrap();
                writer.sync().await.unwrap();
            }
        });
        let drive = Drive::from_media(drive.emu.media());
        let counter = Counter::over(&drive);
        drive.run(async {
            let fs = Fs::mount(counter.clone(), &MountOptions::default()).await.unwrap();
            assert_eq!(fs.stat("/a.log").unwrap().size, Bytes(entries * 3000));
            fs.unmount().await.unwrap();
        });
        counter.take().1
    };
    let (one, two) = (blocks(1500), blocks(3000));
    assert!((1500..1600).contains(&one), "{one} blocks");
    assert!(two < 2 * one + 50, "{one} blocks for 1500 entries, {two} for 3000");
}
