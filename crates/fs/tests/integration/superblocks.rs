//! Tests of which of two superblocks counts, and which devices a mount refuses.
#![allow(clippy::unwrap_used, reason = "a test")]

use crate::common::{Drive, read, write};
use fs::{ErrorKind, FormatOptions, Fs};
use uuid::Uuid;
use zoned::emu::EmuOptions;
use zoned::{Buf, BufMut, Durability, Lba, ZoneId};

/// A drive whose superblocks can be overwritten: both copies lie in conventional zones.
fn drive(uuid: u128) -> Drive {
    let drive = Drive::new(EmuOptions { conventional: 2, ..EmuOptions::tiny() });
    let options = FormatOptions { uuid: Some(Uuid::from_u128(uuid)), ..FormatOptions::default() };
    let dev = drive.dev();
    drive.run(Fs::format(&dev, &options)).unwrap();
    drive
}

fn at(drive: &Drive, zone: u32) -> Lba {
    drive.dev().geometry().start(ZoneId(zone))
}

/// Writes the superblock of drive `from` over the copy in zone `zone` of drive `to`.
fn copy_superblock(from: &Drive, to: &Drive, zone: u32) {
    let block = from.run(from.dev().read(at(from, 0), BufMut::zeroed(4096))).unwrap();
    to.run(to.dev().write(at(to, zone), Buf::copy_from(&block), Durability::Durable)).unwrap();
}

#[test]
fn of_two_superblocks_the_one_whose_file_system_wrote_the_metadata_counts() {
    let (mine, other) = (drive(1), drive(2));
    for zone in [0, 1] {
        let mine = drive(1);
        copy_superblock(&other, &mine, zone);
        let fs = mine.mount();
        assert_eq!(fs.statfs().uuid, Uuid::from_u128(1), "copy {zone} is of another file system");
        mine.run(async {
            write(&fs, "/a", b"a").await.unwrap();
            assert_eq!(read(&fs, "/a").await.unwrap(), b"a");
            fs.unmount().await.unwrap();
        });
        let dev = mine.dev();
        let problems = mine.run(Fs::check(&dev)).unwrap().problems.join("\n");
        for uuid in [1, 2] {
            assert!(problems.contains(&Uuid::from_u128(uuid).to_string()), "{problems}");
        }
    }
    mine.check();
}

#[test]
fn superblocks_of_another_file_system_are_refused_and_the_error_names_all() {
    let (mine, second, third) = (drive(1), drive(2), drive(3));
    copy_superblock(&second, &mine, 0);
    copy_superblock(&third, &mine, 1);
    let error = mine.try_mount().unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Corrupt, "{error}");
    for uuid in [1, 2, 3] {
        assert!(error.to_string().contains(&Uuid::from_u128(uuid).to_string()), "{error}");
    }
    copy_superblock(&second, &mine, 1);
    assert_eq!(mine.try_mount().unwrap_err().kind(), ErrorKind::Corrupt);
}

#[test]
fn a_blank_device_is_not_found_and_a_written_one_is_corrupt() {
    for conventional in [0, 2] {
        let drive = Drive::new(EmuOptions { conventional, ..EmuOptions::tiny() });
        let error = drive.try_mount().unwrap_err();
        assert_eq!(error.kind(), ErrorKind::NotFound, "{error}");
        assert!(error.to_string().contains("furrow fs mkfs"), "{error}");
        let dev = drive.dev();
        drive.run(dev.append(ZoneId(9), Buf::copy_from(&[7; 4096]), Durability::Durable)).unwrap();
        assert_eq!(drive.try_mount().unwrap_err().kind(), ErrorKind::Corrupt);
    }
}

#[test]
fn a_device_of_three_open_zones_is_refused_and_one_of_four_is_enough() {
    let limited = |limit| EmuOptions { max_open: Some(limit), max_active: Some(limit), ..EmuOptions::tiny() };
    let drive = Drive::new(limited(3));
    let dev = drive.dev();
    let error = drive.run(Fs::format(&dev, &FormatOptions::default())).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Invalid);
    assert!(error.to_string().contains("at least 4"), "{error}");
    let geometry = limited(3).geometry().unwrap();
    assert_eq!(
        Fs::check_format(&geometry, &FormatOptions::default()).unwrap_err().kind(),
        ErrorKind::Invalid
    );

    let (drive, fs) = Drive::formatted(limited(4));
    drive.run(async {
        // The load of the test: two logs of a database, and data files.
        let logs = [
            fs.create("/1", &crate::common::log()).await.unwrap(),
            fs.create("/2", &crate::common::log()).await.unwrap(),
        ];
        for log in &logs {
            log.append(b"entry").await.unwrap();
            log.sync().await.unwrap();
        }
        write(&fs, "/a", &crate::common::bytes(100_000, 1)).await.unwrap();
        fs.unmount().await.unwrap();
    });
    drive.check();
    drop(fs);
}
