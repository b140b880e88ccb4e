//! A file system on an array of drives with few open zones: of the 9 open zones of each drive, the array leaves 5 to the file system.
#![allow(clippy::unwrap_used, reason = "a test may panic")]

use std::sync::Arc;
use std::time::Duration;

use array::{Array, OpenOptions};
use fs::{CreateOptions, FileKind, FormatOptions, Fs, MountOptions};
use units::{Bytes, Driver, VirtualDriver, block_on, spawn};
use zoned::emu::{Emu, EmuOptions, Latency};
use zoned::{Blocks, ZonedDevice};

const DRIVES: u32 = 4;
/// Open and active limit of a drive, and the open zones that remain besides the array's metadata zones and the one that moves of parts need.
const OPEN_ZONES: u32 = 9;
const OPEN_ZONES_LEFT: u32 = 5;
/// Bytes of a file, of which a zone of the array holds a few.
const FILE_BYTES: usize = 30_000;
const ENTRY_BYTES: usize = 3_000;

fn drives(driver: &Arc<dyn Driver>) -> Vec<Arc<dyn ZonedDevice>> {
    let drive = |n| {
        let options = EmuOptions {
            name: format!("emu:{n}"),
            block_size: 512,
            zones: 28 + 3,
            zone_size: Blocks(120),
            zone_capacity: Blocks(120),
            max_open: Some(OPEN_ZONES),
            max_active: Some(OPEN_ZONES),
            latency: Latency::all(Duration::from_micros(10)),
            ..EmuOptions::default()
        };
        Emu::memory(options, Arc::clone(driver)) as Arc<dyn ZonedDevice>
    };
    (0..DRIVES).map(drive).collect()
}

fn bytes(len: usize, seed: u32) -> Vec<u8> {
    (0..len).map(|i| (i / 7) as u8 ^ (i >> 11) as u8 ^ (seed as u8).wrapping_mul(37)).collect()
}

async fn write_file(fs: &Fs, path: &str, seed: u32) {
    let writer = fs.create(path, &CreateOptions::default()).await.unwrap();
    writer.append(&bytes(FILE_BYTES, seed)).await.unwrap();
    writer.sync().await.unwrap();
    writer.close().await.unwrap();
}

/// Writes a log of a few entries.
async fn log(fs: &Fs, path: &str, entries: u32, seed: u32) {
    let options = CreateOptions { kind: FileKind::Log, ..CreateOptions::default() };
    let writer = fs.create(path, &options).await.unwrap();
    for n in 0..entries {
        writer.append(&bytes(ENTRY_BYTES, seed + n)).await.unwrap();
        writer.sync().await.unwrap();
    }
    writer.close().await.unwrap();
}

async fn is(fs: &Fs, path: &str, expected: &[u8]) {
    let reader = fs.open(path).unwrap();
    let mut content = vec![0; usize::try_from(reader.size().0).unwrap()];
    let read = reader.read_at(Bytes(0), &mut content).await.unwrap();
    assert!(read == content.len() && content == expected, "{path} has changed: {read} bytes");
}

/// Checks that the files and logs that the last round of [`churn`] left are whole.
async fn check_files(fs: &Fs, kept: u32) {
    for n in 0..kept {
        is(fs, &format!("/kept-{n}"), &bytes(FILE_BYTES, n)).await;
    }
    for n in 0..6 {
        is(fs, &format!("/file-{n}"), &bytes(FILE_BYTES, ROUNDS - 6 + n)).await;
    }
    for n in 0..3 {
        let entries: Vec<u8> = (0..6).flat_map(|entry| bytes(ENTRY_BYTES, ROUNDS - 3 + n + entry)).collect();
        is(fs, &format!("/{n}.log"), &entries).await;
    }
}

/// Number of files and logs that are written: three times as much as the array holds.
const ROUNDS: u32 = 180;

#[test]
fn five_zones_of_an_array_are_enough_for_files_logs_and_cleaning() {
    let driver: Arc<dyn Driver> = VirtualDriver::new(7);
    let drives = drives(&driver);
    let (options, open) =
        (MountOptions { write_buffer: 16 << 10, ..MountOptions::default() }, OpenOptions::default());
    block_on(&*driver, async {
        let stripe_unit = Bytes(4 * 512);
        let create = array::CreateOptions { stripe_unit, ..array::CreateOptions::default() };
        array::create(&drives, &create).await.unwrap();
        let array: Arc<dyn ZonedDevice> = Array::open(drives.clone(), open.clone()).await.unwrap();
        let limits = (array.geometry().max_open, array.geometry().max_active);
        assert_eq!(limits, (Some(OPEN_ZONES_LEFT), Some(OPEN_ZONES_LEFT)));
        Fs::format(&array, &FormatOptions::default()).await.unwrap();
        let fs = Fs::mount(Arc::clone(&array), &options).await.unwrap();

        // The array is filled, and one file in each zone or two is kept: without cleaning no zone would be free again.
        let mut written = 0;
        while fs.statfs().free.0 > 4 * FILE_BYTES as u64 {
            write_file(&fs, &format!("/{written}"), written / 4).await;
            written += 1;
        }
        let kept = written / 4;
        for n in 0..written {
            let path = format!("/{n}");
            match (n % 4, n / 4) {
                (0, nth) if nth < kept => fs.rename(&path, &format!("/kept-{nth}")).await.unwrap(),
                _ => fs.unlink(&path).await.unwrap(),
            }
        }
        let holds = fs.statfs().capacity.0;
        assert!(u64::from(ROUNDS) * (FILE_BYTES + 6 * ENTRY_BYTES) as u64 > 2 * holds, "{holds} bytes");
        // Files and logs are written side by side.
        let (beside, sides) = (fs.clone(), Arc::clone(&driver));
        let logs = spawn(&*sides, "logs", async move {
            for n in 0..ROUNDS {
                log(&beside, &format!("/{}.log", n % 3), 6, n).await;
            }
        });
        for n in 0..ROUNDS {
            write_file(&fs, &format!("/file-{}", n % 6), n).await;
        }
        logs.await;
        check_files(&fs, kept).await;
        fs.unmount().await.unwrap();
        drop(array);

        // The file system is mounted again, with all drives and with one drive less.
        for lost in [None, Some(2)] {
            let mut drives = drives.clone();
            if let Some(lost) = lost {
                drives.remove(lost);
            }
            let array: Arc<dyn ZonedDevice> = Array::open(drives, open.clone()).await.unwrap();
            assert_eq!(Fs::check(&array).await.unwrap().problems, Vec::<String>::new());
            let fs = Fs::mount(Arc::clone(&array), &options).await.unwrap();
            check_files(&fs, kept).await;
            write_file(&fs, "/file-5", ROUNDS - 1).await;
            fs.unmount().await.unwrap();
        }
    });
}
