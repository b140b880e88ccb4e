//! Tests of ordered logs in conventional zones: what they hold, what they leave to others, and where they go when those zones are full.
#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "a test may panic")]

use crate::common::{Drive, bytes, log, read, write};
use fs::wal::{LogOptions, LogZones};
use fs::{ErrorKind, FormatOptions, Fs, MountOptions, ZoneRole};
use units::{Blocks, ZoneId};
use uuid::Uuid;
use zoned::ZoneState;
use zoned::emu::{EmuOptions, Seeded};

/// A drive with two conventional zones for logs, of 14 blocks each.
fn options() -> EmuOptions {
    EmuOptions { conventional: 4, ..EmuOptions::tiny() }
}

fn mount_with(drive: &Drive, zones: LogZones) -> fs::Result<Fs> {
    let log = LogOptions { zones, ..LogOptions::default() };
    drive.run(Fs::mount(drive.dev(), &MountOptions { log, ..MountOptions::default() }))
}

/// The zones that logs have blocks in.
fn log_zones(fs: &Fs) -> Vec<u32> {
    let map = fs.zone_map();
    map.iter().filter(|z| z.role == ZoneRole::Log && z.live > Blocks::ZERO).map(|z| z.zone.0).collect()
}

async fn append_synced(fs: &Fs, path: &str, records: usize, len: usize) {
    let writer = fs.create(path, &log()).await.unwrap();
    for record in 0..records {
        writer.append(&bytes(len, record as u8)).await.unwrap();
        writer.sync().await.unwrap();
    }
    writer.close().await.unwrap();
}

fn content(records: usize, len: usize) -> Vec<u8> {
    (0..records).flat_map(|record| bytes(len, record as u8)).collect()
}

#[test]
fn short_records_share_the_blocks_of_a_conventional_zone() {
    let (drive, fs) = Drive::formatted(options());
    drive.run(fs.unmount()).unwrap();
    let fs = mount_with(&drive, LogZones::Conventional).unwrap();
    drive.run(append_synced(&fs, "/a", 300, 100));
    assert_eq!(log_zones(&fs), [2]);
    // 36 records share a block: it is not rewritten for less than an eighth of it. The segment ends behind the last block.
    assert_eq!(fs.zone_map()[2].live, Blocks(9));
    drive.run(fs.unmount()).unwrap();
    let fs = drive.mount();
    assert_eq!(drive.run(read(&fs, "/a")).unwrap(), content(300, 100));
    drive.run(fs.unlink("/a")).unwrap();
    assert_eq!((log_zones(&fs), fs.zone_map()[2].role), (vec![], ZoneRole::Free));
    drive.run(fs.unmount()).unwrap();
    drive.check();
}

#[test]
fn sequential_zones_take_the_logs_that_conventional_ones_have_no_room_for() {
    let (drive, fs) = Drive::formatted(options());
    drive.run(async {
        for (path, records) in [("/a", 40), ("/b", 60)] {
            append_synced(&fs, path, records, 2000).await;
        }
    });
    let zones = log_zones(&fs);
    assert!(zones.starts_with(&[2, 3]) && zones.len() > 2, "{zones:?}");
    // Nothing was unmounted: the logs of the cut state are recovered.
    for seed in 0..20 {
        let after = drive.cut(&mut Seeded::new(seed));
        let fs = after.mount();
        for (path, records) in [("/a", 40), ("/b", 60)] {
            assert_eq!(after.run(read(&fs, path)).unwrap(), content(records, 2000), "seed {seed}");
        }
        after.run(fs.unmount()).unwrap();
        after.check();
    }
}

#[test]
fn blocks_of_removed_logs_are_used_again_and_their_entries_do_not_come_back() {
    let (drive, fs) = Drive::formatted(options());
    drive.run(async {
        for round in 0..50 {
            append_synced(&fs, "/a", 3 + round % 5, 3000).await;
            fs.rename("/a", "/b").await.unwrap();
            fs.sync().await.unwrap();
        }
    });
    assert!(log_zones(&fs).iter().all(|zone| *zone < 4), "{:?}", log_zones(&fs));
    let after = drive.cut(&mut Seeded::new(1));
    let fs = after.mount();
    assert_eq!(after.run(read(&fs, "/b")).unwrap(), content(3 + 49 % 5, 3000));
}

#[test]
fn logs_in_conventional_zones_hold_no_open_zone() {
    let few = EmuOptions {
        max_open: Some(4),
        max_active: Some(4),
        zones: 48,
        conventional: 12,
        ..EmuOptions::tiny()
    };
    let (drive, fs) = Drive::formatted(few);
    drive.run(async {
        let mut logs = Vec::new();
        for name in 0..10 {
            let writer = fs.create(&format!("/{name}"), &log()).await.unwrap();
            writer.append(b"entry").await.unwrap();
            writer.sync().await.unwrap();
            logs.push(writer);
        }
        write(&fs, "/data", &bytes(100_000, 1)).await.unwrap();
        for writer in logs {
            writer.close().await.unwrap();
        }
    });
    assert_eq!(log_zones(&fs), (2..12).collect::<Vec<u32>>());
}

#[test]
fn the_zones_of_logs_can_be_chosen() {
    let (drive, fs) = Drive::formatted(options());
    drive.run(fs.unmount()).unwrap();
    for (zones, conventional) in
        [(LogZones::Sequential, false), (LogZones::Conventional, true), (LogZones::Auto, true)]
    {
        let fs = mount_with(&drive, zones).unwrap();
        drive.run(append_synced(&fs, "/a", 3, 100));
        assert_eq!(log_zones(&fs).iter().all(|zone| *zone < 4), conventional, "{zones:?}");
        drive.run(async {
            fs.unlink("/a").await.unwrap();
            fs.unmount().await.unwrap();
        });
    }
    // The superblocks take two conventional zones.
    for conventional in [0, 2] {
        let (drive, fs) = Drive::formatted(EmuOptions { conventional, ..EmuOptions::tiny() });
        drive.run(fs.unmount()).unwrap();
        let error = mount_with(&drive, LogZones::Conventional).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Unsupported);
        assert!(error.to_string().contains("conventional"), "{error}");
        drive.run(append_synced(&mount_with(&drive, LogZones::Auto).unwrap(), "/a", 3, 100));
    }
}

#[test]
fn a_file_system_made_again_under_its_uuid_reads_no_log_of_the_one_before() {
    let drive = Drive::new(options());
    let format = FormatOptions { uuid: Some(Uuid::from_u128(7)), force: true, ..FormatOptions::default() };
    let dev = drive.dev();
    drive.run(Fs::format(&dev, &format)).unwrap();
    let fs = drive.mount();
    drive.run(append_synced(&fs, "/a", 5, 3000));
    drive.run(fs.unmount()).unwrap();
    drive.run(Fs::format(&dev, &format)).unwrap();
    let fs = drive.mount();
    let writer = drive.run(async {
        let writer = fs.create("/a", &log()).await.unwrap();
        writer.append(b"new").await.unwrap();
        writer.sync().await.unwrap();
        writer
    });
    // The log was not closed: its recovery looks at all blocks of its segment.
    let after = drive.cut(&mut Seeded::new(3));
    assert_eq!(after.run(read(&after.mount(), "/a")).unwrap(), b"new");
    drop(writer);
}

#[test]
fn a_worn_zone_ends_its_log_and_takes_no_other() {
    let (drive, fs) = Drive::formatted(options());
    drive.run(async {
        let worn = fs.create("/a", &log()).await.unwrap();
        worn.append(b"durable").await.unwrap();
        worn.sync().await.unwrap();
        drive.emu.wear(ZoneId(2), ZoneState::ReadOnly);
        worn.append(b"lost").await.unwrap();
        worn.sync().await.unwrap_err();
        worn.close().await.unwrap_err();
        append_synced(&fs, "/b", 3, 100).await;
        assert_eq!(read(&fs, "/a").await.unwrap(), b"durable");
        assert_eq!(read(&fs, "/b").await.unwrap(), content(3, 100));
    });
    assert_eq!(log_zones(&fs), [2, 3]);
    drive.run(fs.unmount()).unwrap();
    // The next mount finds the zone worn.
    let fs = drive.mount();
    drive.run(async {
        append_synced(&fs, "/c", 3, 100).await;
        assert_eq!(read(&fs, "/a").await.unwrap(), b"durable");
        fs.unmount().await.unwrap();
    });
    drive.check();
}

/// A log whose zone goes offline while the log is open loses its entries. Everything else can be read after the next mount.
#[test]
fn an_offline_zone_with_an_open_log_does_not_prevent_the_mount() {
    let (drive, fs) = Drive::formatted(options());
    drive.run(fs.unmount()).unwrap();
    let fs = mount_with(&drive, LogZones::Conventional).unwrap();
    drive.run(async {
        write(&fs, "/data", &bytes(9000, 3)).await.unwrap();
        fs.sync().await.unwrap();
        let writer = fs.create("/open", &log()).await.unwrap();
        writer.append(&bytes(100, 1)).await.unwrap();
        writer.sync().await.unwrap();
        assert_eq!(log_zones(&fs), [2]);
        fs.unmount().await.unwrap();
        writer.close().await.unwrap_err();
    });
    drive.emu.wear(ZoneId(2), ZoneState::Offline);
    let fs = drive.run(Fs::mount(drive.dev(), &MountOptions::default())).expect("mounts");
    assert_eq!(drive.run(read(&fs, "/data")).unwrap(), bytes(9000, 3));
    drive.run(fs.unmount()).unwrap();
}

/// A mount gives the blocks of an open log's segment to other logs. The older mount's writer, in the middle of an append, writes nothing more.
#[test]
fn a_writer_of_an_ended_mount_writes_over_no_log_of_the_next_one() {
    let latency = zoned::emu::Latency::all(std::time::Duration::from_micros(50));
    let (drive, fs) = Drive::formatted(EmuOptions { latency, ..options() });
    drive.run(fs.unmount()).unwrap();
    let options = |window| {
        let log = LogOptions { zones: LogZones::Conventional, window, buffer: 4096, ..LogOptions::default() };
        MountOptions { log, ..MountOptions::default() }
    };
    drive.run(async {
        let first = Fs::mount(drive.dev(), &options(1)).await.unwrap();
        let writer = std::sync::Arc::new(first.create("/older", &log()).await.unwrap());
        first.sync().await.unwrap();
        let appending = std::sync::Arc::clone(&writer);
        let append = units::spawn(&**first.driver(), "append", async move {
            // Ten blocks, one at a time.
            appending.append(&bytes(40_000, 1)).await
        });
        let soon = first.driver().now().after(std::time::Duration::from_micros(120));
        units::sleep_until(&**first.driver(), soon).await;
        first.unmount().await.unwrap();
        let second = Fs::mount(drive.dev(), &options(64)).await.unwrap();
        append_synced(&second, "/newer", 20, 3000).await;
        append.await.expect_err("the mount has ended");
        assert_eq!(read(&second, "/newer").await.unwrap(), content(20, 3000));
        second.unmount().await.unwrap();
        let third = Fs::mount(drive.dev(), &options(64)).await.unwrap();
        assert_eq!(read(&third, "/newer").await.unwrap(), content(20, 3000));
        third.unmount().await.unwrap();
    });
}
