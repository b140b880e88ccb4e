//! Damage: a flipped bit on the medium is reported, and never silently loses durable data.
#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "a test may panic")]

use crate::common::{Drive, bytes, log, read, write};
use fs::{ErrorKind, Fs, SequentialReader, ZoneRole};
use units::{Blocks, Bytes, Lba, ZoneId};
use zoned::emu::{EmuOptions, FaultOp, FaultSpec};
use zoned::{Action, Buf, BufMut, Durability};

const BLOCK: usize = 4096;

/// The content of a zone on the medium.
fn zone_content(drive: &Drive, zone: ZoneId) -> Vec<u8> {
    let dev = drive.dev();
    drive.run(async {
        let pointer = dev.report(zone.0..zone.0 + 1).await.unwrap()[0].pointer;
        let into = BufMut::zeroed(pointer.0 as usize * BLOCK);
        dev.read(dev.geometry().start(zone), into).await.unwrap().to_vec()
    })
}

/// Flips a bit of the byte at offset `byte` of a zone.
fn flip_bit(drive: &Drive, zone: ZoneId, byte: usize) {
    let mut bytes = zone_content(drive, zone);
    bytes[byte] ^= 0x10;
    let dev = drive.dev();
    drive.run(async {
        dev.zone(zone, Action::Reset).await.unwrap();
        let at: Lba = dev.geometry().start(zone);
        dev.write(at, Buf::copy_from(&bytes), Durability::Durable).await.unwrap();
    });
}

/// The written zones that the zone map lists with role `role`.
async fn zones(fs: &Fs, role: ZoneRole) -> Vec<ZoneId> {
    let report = fs.device().report(0..fs.device().geometry().zones).await.unwrap();
    let written = |z: &fs::ZoneUse| z.role == role && report[z.zone.index()].pointer > Blocks(0);
    fs.zone_map().into_iter().filter(written).map(|z| z.zone).collect()
}

fn check_problems(drive: &Drive) -> Vec<String> {
    let dev = drive.dev();
    drive.run(Fs::check(&dev)).unwrap().problems
}

/// The state in which the test leaves a log before it damages the medium.
#[derive(Clone, Copy, PartialEq)]
enum LeftLog {
    Open,
    Closed,
    Unmounted,
}

/// Writes ten synced log records of one block each. Returns the log's zone.
fn ten_records(drive: &Drive, fs: &Fs, left: LeftLog) -> (ZoneId, Vec<u8>) {
    let mut content = Vec::new();
    let zone = drive.run(async {
        let writer = fs.create("/a.log", &log()).await.unwrap();
        for n in 0..10 {
            let record = bytes(3000, n);
            writer.append(&record).await.unwrap();
            writer.sync().await.unwrap();
            content.extend_from_slice(&record);
        }
        let zone = zones(fs, ZoneRole::Log).await;
        assert_eq!(zone.len(), 1);
        if left != LeftLog::Open {
            writer.close().await.unwrap();
        }
        if left == LeftLog::Unmounted {
            fs.unmount().await.unwrap();
        }
        zone[0]
    });
    (zone, content)
}

/// Asserts that the log is readable before entry `lost`, and that reads behind it fail as damaged.
fn assert_read_to_damage(drive: &Drive, content: &[u8], lost: usize, size: usize) {
    let fs = drive.mount();
    drive.run(async {
        let reader = fs.open("/a.log").unwrap();
        assert!(reader.size().0 as usize >= size, "{:?}", reader.size());
        let mut before = vec![0; 3000 * lost];
        assert_eq!(reader.read_at(Bytes(0), &mut before).await.unwrap(), before.len());
        assert_eq!(before, content[..3000 * lost]);
        for (at, len) in [(0, content.len()), (3000 * lost, 1), (3000 * lost + 2000, 4000)] {
            let error = reader.read_at(Bytes(at as u64), &mut vec![0; len]).await.unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Corrupt);
            let says = format!("its first {} bytes", 3000 * lost);
            assert!(error.to_string().contains(&says), "{error}");
        }
        assert_eq!(fs.open_append("/a.log").await.unwrap_err().kind(), ErrorKind::Corrupt);
        write(&fs, "/other", b"the others live on").await.unwrap();
        fs.unmount().await.unwrap();
    });
    assert!(!check_problems(drive).is_empty());
}

#[test]
fn a_closed_log_that_is_damaged_is_never_read_short() {
    for lost in 0..10 {
        let (drive, fs) = Drive::formatted(EmuOptions::tiny());
        let (zone, content) = ten_records(&drive, &fs, LeftLog::Unmounted);
        flip_bit(&drive, zone, lost * BLOCK + 100);
        assert_read_to_damage(&drive, &content, lost, content.len());
        assert_read_to_damage(&drive, &content, lost, content.len());
    }
}

#[test]
fn an_open_log_that_lost_a_durable_entry_is_never_read_short() {
    for lost in 0..9 {
        let (drive, fs) = Drive::formatted(EmuOptions::tiny());
        let (zone, content) = ten_records(&drive, &fs, LeftLog::Open);
        let drive = Drive::from_media(drive.emu.media());
        flip_bit(&drive, zone, lost * BLOCK + 100);
        assert_read_to_damage(&drive, &content, lost, 3000 * 9);
        // The first mount has closed the damaged log: a second mount finds the same damage.
        assert_read_to_damage(&drive, &content, lost, 3000 * 9);
    }
}

#[test]
fn a_damaged_log_can_be_removed_and_its_zones_are_freed() {
    let (drive, fs) = Drive::formatted(EmuOptions::tiny());
    let (zone, content) = ten_records(&drive, &fs, LeftLog::Open);
    let drive = Drive::from_media(drive.emu.media());
    flip_bit(&drive, zone, 3 * BLOCK);
    assert_read_to_damage(&drive, &content, 3, 0);
    let fs = drive.mount();
    drive.run(fs.unlink("/a.log")).unwrap();
    drive.run(fs.unmount()).unwrap();
    drive.check();
}

/// Asserts, in the mount that wrote the log, that both kinds of reader read the log up to record `lost`, and no further.
fn assert_damage_is_reported(drive: &Drive, fs: &Fs, content: &[u8], lost: usize) {
    drive.run(async {
        let reader = fs.open("/a.log").unwrap();
        let mut sequential = SequentialReader::new(reader.clone());
        let mut before = vec![0; 3000 * lost];
        assert_eq!(reader.read_at(Bytes(0), &mut before).await.unwrap(), before.len());
        assert_eq!(before, content[..3000 * lost]);
        let mut before = vec![0; 3000 * lost];
        assert_eq!(sequential.read_at(Bytes(0), &mut before).await.unwrap(), before.len());
        assert_eq!(before, content[..3000 * lost]);
        let at = Bytes(before.len() as u64);
        let mut errors = vec![sequential.read_at(at, &mut [0; 100]).await.unwrap_err()];
        errors.push(
            SequentialReader::new(reader.clone()).read_at(Bytes(0), &mut [0; 30_000]).await.unwrap_err(),
        );
        // A read of a few bytes of the damaged entry fails too.
        for (at, len) in [(0, content.len()), (3000 * lost, 1), (3000 * lost + 2999, 1)] {
            errors.push(reader.read_at(Bytes(at as u64), &mut vec![0; len]).await.unwrap_err());
        }
        for error in errors {
            assert_eq!(error.kind(), ErrorKind::Corrupt, "{error}");
            assert!(
                error.to_string().contains(&format!("lost its 3000 bytes from {} on", 3000 * lost)),
                "{error}"
            );
        }
    });
}

#[test]
fn damage_after_the_close_of_a_log_fails_its_reads() {
    for lost in 0..10 {
        // Two damaged bits: one of an entry's header, and one of its payload.
        for byte in [9, 24, 50, 100, 3063] {
            let (drive, fs) = Drive::formatted(EmuOptions::tiny());
            let (zone, content) = ten_records(&drive, &fs, LeftLog::Closed);
            flip_bit(&drive, zone, lost * BLOCK + byte);
            assert_damage_is_reported(&drive, &fs, &content, lost);
        }
    }
}

#[test]
fn damage_after_a_read_of_a_log_fails_the_next_reads() {
    for lost in 0..10 {
        let (drive, fs) = Drive::formatted(EmuOptions::tiny());
        let (zone, content) = ten_records(&drive, &fs, LeftLog::Unmounted);
        let fs = drive.mount();
        let mut all = vec![0; content.len()];
        drive.run(async {
            let mut reader = SequentialReader::new(fs.open("/a.log").unwrap());
            assert_eq!(reader.read_at(Bytes(0), &mut all).await.unwrap(), content.len());
        });
        assert_eq!(all, content);
        flip_bit(&drive, zone, lost * BLOCK + 100);
        assert_damage_is_reported(&drive, &fs, &content, lost);
    }
}

/// Writes metadata commits over several metadata zones, without a roll. Returns the zones of the metadata
/// log.
fn write_commits(count: u32) -> (Drive, Vec<ZoneId>) {
    let (drive, fs) = Drive::formatted(EmuOptions::tiny());
    drive.run(async {
        for n in 0..count {
            fs.mkdir(&format!("/{n}")).await.unwrap();
            fs.sync().await.unwrap();
        }
    });
    let zones = drive.run(zones(&fs, ZoneRole::Metadata));
    (Drive::from_media(drive.emu.media()), zones)
}

#[test]
fn a_damaged_commit_before_the_last_one_fails_the_mount() {
    let (drive, zones) = write_commits(20);
    assert!(zones.len() > 1, "{zones:?}");
    let media = drive.emu.media();
    let last = zones.iter().map(|z| zone_content(&drive, *z).len() / BLOCK).collect::<Vec<_>>();
    let mut seen = 0;
    for (&zone, &blocks) in zones.iter().zip(&last) {
        for block in 0..blocks {
            // A damaged last commit of the metadata log looks like a torn one.
            if zone == zones[zones.len() - 1] && block + 1 >= blocks {
                continue;
            }
            let drive = Drive::from_media(media.clone());
            flip_bit(&drive, zone, block * BLOCK + 16);
            let error = drive.try_mount().map(|_| ()).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Corrupt, "zone {zone} block {block}: {error}");
            let dev = drive.dev();
            assert_eq!(drive.run(Fs::check(&dev)).unwrap_err().kind(), ErrorKind::Corrupt);
            seen += 1;
        }
    }
    assert!(seen > 15, "{seen}");
    drive.run(drive.mount().unmount()).unwrap();
}

#[test]
fn a_damaged_snapshot_fails_the_mount() {
    let options = EmuOptions { block_size: 4096, ..EmuOptions::tiny() };
    let (drive, fs) = Drive::formatted(options);
    let mut media = None;
    drive.run(async {
        for n in 0..300 {
            write(&fs, &format!("/{}-{}", n % 40, "x".repeat(200)), b"x").await.unwrap();
            let now = zones(&fs, ZoneRole::Metadata).await;
            if n > 150 && now.len() > 1 {
                media = Some((drive.emu.media(), now));
                break;
            }
        }
    });
    let (media, zones) = media.expect("a chain of several zones");
    let first = *zones
        .iter()
        .max_by_key(|z| zone_content(&Drive::from_media(media.clone()), **z).len())
        .expect("there are zones");
    for block in 0..3 {
        let drive = Drive::from_media(media.clone());
        flip_bit(&drive, first, block * BLOCK + 40);
        assert_eq!(drive.try_mount().map(|_| ()).unwrap_err().kind(), ErrorKind::Corrupt, "block {block}");
    }
}

#[test]
fn a_metadata_zone_that_cannot_be_read_fails_the_mount() {
    let (drive, zones) = write_commits(20);
    for zone in zones {
        drive.emu.fail(FaultSpec::all(FaultOp::Read).in_zone(zone));
        let error = drive.try_mount().map(|_| ()).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Device(zoned::ErrorKind::Media), "{error}");
        drive.emu.clear_faults();
    }
    let fs = drive.mount();
    drive.run(read(&fs, "/0")).unwrap_err();
    drive.run(fs.unmount()).unwrap();
}
