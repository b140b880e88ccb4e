//! Tests of mounts on a drive with zones that another program left open or written.
#![allow(clippy::unwrap_used, clippy::indexing_slicing)]

use crate::common::{Drive, bytes, data, log, read, write};
use fs::{ErrorKind, FormatOptions, Fs};
use zoned::emu::EmuOptions;
use zoned::{Action, Buf, Durability, ZoneId, ZoneState};

/// A drive whose last zones are active: as many as the drive allows.
fn make_last_zones_active(drive: &Drive) {
    let dev = drive.dev();
    let (zones, most) = (dev.geometry().zones, dev.geometry().max_active.unwrap());
    for n in 0..most {
        let zone = ZoneId(zones - 1 - n);
        dev.zone(zone, Action::Open).wait().unwrap();
        // Every second zone of those is written and closed.
        if n % 2 == 1 {
            let block = Buf::zeroed(dev.geometry().block_size as usize);
            dev.write(dev.geometry().start(zone), block, Durability::Cached).wait().unwrap();
            dev.zone(zone, Action::Close).wait().unwrap();
        }
    }
    // One more zone cannot be opened: the drive's limit of active zones is reached.
    dev.zone(ZoneId(zones - 1 - most), Action::Open).wait().unwrap_err();
}

fn limits_of_eight() -> EmuOptions {
    EmuOptions { max_open: Some(8), max_active: Some(8), ..EmuOptions::tiny() }
}

#[test]
fn a_drive_at_its_active_limit_is_refused_and_formatted_by_force() {
    let drive = Drive::new(limits_of_eight());
    make_last_zones_active(&drive);
    let dev = drive.dev();
    let error = drive.run(Fs::format(&dev, &FormatOptions::default())).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Exists);
    assert!(error.to_string().contains("left open by somebody"), "{error}");
    drive.run(Fs::format(&dev, &FormatOptions { force: true, ..FormatOptions::default() })).unwrap();
    let active = dev.report_all().unwrap().into_iter().filter(|zone| zone.state.is_active()).count();
    assert!(active <= 1, "{active} zones are active besides the metadata's");
    let fs = drive.mount();
    drive.run(async {
        write(&fs, "/a", &bytes(30_000, 1)).await.unwrap();
        fs.unmount().await.unwrap();
    });
}

#[test]
fn a_mount_resets_empty_zones_that_another_program_left_active() {
    let (drive, fs) = Drive::formatted(limits_of_eight());
    drive.run(async {
        write(&fs, "/before", &bytes(30_000, 1)).await.unwrap();
        fs.unmount().await.unwrap();
    });
    let dev = drive.dev();
    let limit = dev.geometry().max_active.unwrap() as usize;
    let active = || dev.report_all().unwrap().into_iter().filter(|zone| zone.state.is_active()).count();
    let mut zone = dev.geometry().zones;
    while active() < limit {
        zone -= 1;
        if dev.report_all().unwrap()[zone as usize].state == ZoneState::Empty {
            dev.zone(ZoneId(zone), Action::Open).wait().unwrap();
            if zone % 2 == 0 {
                let block = Buf::zeroed(dev.geometry().block_size as usize);
                dev.write(dev.geometry().start(ZoneId(zone)), block, Durability::Cached).wait().unwrap();
            }
        }
    }
    let fs = drive.mount();
    drive.run(async {
        let wal = fs.create("/log", &log()).await.unwrap();
        for n in 0..20_u8 {
            write(&fs, &format!("/{n}"), &bytes(9_000, n)).await.unwrap();
            wal.append(&bytes(3_000, n)).await.unwrap();
            wal.sync().await.unwrap();
        }
        wal.close().await.unwrap();
        let file = fs.create("/last", &data()).await.unwrap();
        file.append(b"fits").await.unwrap();
        file.close().await.unwrap();
        assert_eq!(read(&fs, "/before").await.unwrap(), bytes(30_000, 1));
        fs.unmount().await.unwrap();
    });
    drive.check();
}
