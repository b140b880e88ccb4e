//! Tests of which files share a zone: those that are expected to fill most of a zone get one to themselves, and a flush's share none with a compaction's.
#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "a test may panic")]

use std::time::Duration;

use fs::{Bytes, CreateOptions, ErrorKind, Fs, MountOptions, ZoneRole, ZoneUse};
use units::{Driver, sleep_until};
use zoned::IoClass;
use zoned::emu::EmuOptions;

use crate::common::{Drive, bytes, data, read, write};

const BLOCK: usize = 4096;

/// Settings of a file of about a zone's size.
fn table(drive: &Drive) -> CreateOptions {
    let geometry = drive.dev().geometry().clone();
    CreateOptions { preallocate: geometry.zone_capacity.bytes(geometry.block_size), ..data() }
}

/// The data zones with live blocks.
fn data_zones(fs: &Fs) -> Vec<ZoneUse> {
    let is_live = |zone: &ZoneUse| matches!(zone.role, ZoneRole::Data { .. }) && zone.live.0 > 0;
    fs.zone_map().into_iter().filter(is_live).collect()
}

fn live(fs: &Fs) -> Vec<u64> {
    let mut live: Vec<u64> = data_zones(fs).iter().map(|zone| zone.live.0).collect();
    live.sort_unstable();
    live
}

/// Waits until the cleaner has nothing to do.
async fn pause(drive: &Drive) {
    sleep_until(&*drive.driver, drive.driver.now().after(Duration::from_millis(20))).await;
}

/// Appends blocks to a table of 12 blocks and to another file in turn.
async fn write_table_beside_another_file(drive: &Drive, fs: &Fs) {
    let writers =
        [fs.create("/table", &table(drive)).await.unwrap(), fs.create("/other", &data()).await.unwrap()];
    for block in 0..12 {
        for writer in &writers {
            writer.append(&bytes(BLOCK, block)).await.unwrap();
            writer.sync().await.unwrap();
        }
    }
    for writer in writers {
        writer.close().await.unwrap();
    }
    fs.sync().await.unwrap();
    pause(drive).await;
}

/// Appends blocks to a flush's file and to a compaction's in turn.
async fn write_flush_beside_compaction(fs: &Fs, number: u32, blocks: u8) {
    let mut tables = Vec::new();
    for (name, class) in [("flush", IoClass::Flush), ("compaction", IoClass::Compaction)] {
        let table = fs.create(&format!("/{name}{number}"), &data()).await.unwrap();
        table.set_class(class);
        tables.push(table);
    }
    for block in 0..blocks {
        for table in &tables {
            table.append(&bytes(BLOCK, block)).await.unwrap();
            table.sync().await.unwrap();
        }
    }
    for table in tables {
        table.close().await.unwrap();
    }
}

#[test]
fn flushes_and_compactions_share_zones_only_where_zones_are_few() {
    // The second drive keeps its empty zones for reclaim and for whatever lifetime comes; the third has three open zones for data, of one lifetime each.
    let together = [2, 14];
    for (zones, open, expected) in [(64, 8, [8, 8]), (12, 8, together), (64, 6, together)] {
        let drive = Drive::new(EmuOptions { zones, max_open: Some(open), ..EmuOptions::tiny() });
        drive.format();
        let fs = drive.run(Fs::mount(drive.dev(), &MountOptions::default())).unwrap();
        drive.run(async {
            write_flush_beside_compaction(&fs, 1, 8).await;
            assert_eq!(live(&fs), expected, "{zones} zones, {open} open");
            fs.unmount().await.unwrap();
            // The zones are divided after a mount too.
            let fs = Fs::mount(drive.dev(), &MountOptions::default()).await.unwrap();
            write_flush_beside_compaction(&fs, 2, 2).await;
            if expected != together {
                assert_eq!(live(&fs), [10, 10], "{zones} zones, {open} open");
            }
            fs.unmount().await.unwrap();
        });
    }
}

#[test]
fn the_zone_of_a_removed_table_needs_a_reset_alone() {
    for cache in [0, 4 << 20] {
        let drive = Drive::tiny();
        drive.format();
        let options = MountOptions { cache: Bytes(cache), write_buffer: 16 << 10, ..MountOptions::default() };
        let fs = drive.run(Fs::mount(drive.dev(), &options)).unwrap();
        drive.run(async {
            write_table_beside_another_file(&drive, &fs).await;
            assert_eq!(live(&fs), [12, 12], "cache {cache}");
            // A file written after the table gets into another zone too.
            write(&fs, "/later", &bytes(2 * BLOCK, 1)).await.unwrap();
            assert_eq!(live(&fs), [12, 14], "cache {cache}");
            fs.unlink("/table").await.unwrap();
            fs.sync().await.unwrap();
            pause(&drive).await;
            let zones = data_zones(&fs);
            assert_eq!(
                zones.iter().map(|zone| (zone.live.0, zone.pointer.0)).collect::<Vec<_>>(),
                [(14, 14)]
            );
            assert_eq!(read(&fs, "/other").await.unwrap().len(), 12 * BLOCK);
            fs.unmount().await.unwrap();
        });
        drive.check();
    }
}

#[test]
fn the_zones_of_tables_that_end_early_are_not_left_open() {
    let (drive, fs) = Drive::formatted(EmuOptions::tiny());
    drive.run(async {
        for n in 0..6 {
            let writer = fs.create(&format!("/{n}"), &table(&drive)).await.unwrap();
            writer.append(&bytes(2 * BLOCK, n)).await.unwrap();
            writer.close().await.unwrap();
            pause(&drive).await;
        }
        let open = |zones: &[ZoneUse]| zones.iter().filter(|zone| zone.state.is_active()).count();
        assert_eq!(open(&data_zones(&fs)), 1, "the others are full");
        // The rest of the open one is for all files.
        write(&fs, "/small", &bytes(3 * BLOCK, 9)).await.unwrap();
        assert_eq!(live(&fs), [2, 2, 2, 2, 2, 5]);
        for n in 0..6 {
            assert_eq!(read(&fs, &format!("/{n}")).await.unwrap(), bytes(2 * BLOCK, n));
        }
        fs.unmount().await.unwrap();
    });
    drive.check();
}

/// The number of bytes that another file gets on a drive beside an open file with settings `options`, which has a block and gets another one at the end.
fn bytes_beside(options: impl Fn(&Drive) -> CreateOptions) -> u64 {
    let (drive, fs) = Drive::formatted(EmuOptions::tiny());
    let taken = drive.run(async {
        let writer = fs.create("/first", &options(&drive)).await.unwrap();
        writer.append(&bytes(BLOCK, 1)).await.unwrap();
        writer.sync().await.unwrap();
        let other = fs.create("/other", &data()).await.unwrap();
        let full = loop {
            let appended = other.append(&bytes(4 * BLOCK, 2)).await;
            if let Err(error) = appended.and(other.sync().await) {
                break error;
            }
        };
        assert!(matches!(full.kind(), ErrorKind::NoSpace | ErrorKind::Poisoned), "{full}");
        assert!(fs.statfs().free.0 < 4 * BLOCK as u64, "{:?}", fs.statfs());
        drop(other);
        let taken = fs.stat("/other").unwrap().size.0;
        fs.unlink("/other").await.unwrap();
        fs.sync().await.unwrap();
        pause(&drive).await;
        writer.append(&bytes(BLOCK, 3)).await.unwrap();
        writer.close().await.unwrap();
        assert_eq!(read(&fs, "/first").await.unwrap(), [bytes(BLOCK, 1), bytes(BLOCK, 3)].concat());
        fs.unmount().await.unwrap();
        taken
    });
    drive.check();
    taken
}

#[test]
fn a_zone_kept_for_a_table_takes_other_bytes_before_a_write_finds_no_space() {
    let taken = bytes_beside(table);
    assert_eq!(taken, bytes_beside(|_| data()));
    assert!(taken > 300 * BLOCK as u64, "{taken}");
}
