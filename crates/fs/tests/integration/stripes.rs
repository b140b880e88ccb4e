//! Tests of a device whose optimal writes are stripes: writes end with stripes, and a partial stripe stays in
//! memory until a sync, a close or a truncate.
#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "a test may panic")]

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::common::{Drive, bytes, data, log, read};
use fs::wal::LogOptions;
use fs::{Fs, MountOptions, ZoneRole};
use parking_lot::Mutex;
use units::{Bytes, Driver};
use zoned::emu::{Emu, EmuOptions};
use zoned::{Blocks, Geometry, Io, Op, ZoneId, ZonedDevice};

const BLOCK: usize = 4096;
/// Blocks of an optimal write: a stripe of the array that the test's device models.
const STRIPE_BLOCKS: u64 = 8;
/// Blocks in a zone, not a multiple of a stripe: a zone's last stripe is shorter.
const ZONE_BLOCKS: u64 = 252;

/// A drive whose optimal write is a stripe. It records where writes begin and end.
#[derive(Debug)]
struct StripedDrive {
    emu: Arc<Emu>,
    geometry: Geometry,
    writes: Mutex<Vec<(ZoneId, u64, u64)>>,
    /// The block where the last write of each zone ended.
    ends: Mutex<BTreeMap<ZoneId, u64>>,
}

impl ZonedDevice for StripedDrive {
    fn geometry(&self) -> &Geometry {
        &self.geometry
    }

    fn submit(&self, op: Op) -> Io {
        let zone_size = self.geometry.zone_size.0;
        let note = |zone: ZoneId, at: u64, len: usize| {
            let end = at + (len / BLOCK) as u64;
            self.writes.lock().push((zone, at, end));
            self.ends.lock().insert(zone, end);
        };
        match &op {
            Op::Write { at, data, .. } => {
                note(ZoneId(u32::try_from(at.0 / zone_size).unwrap()), at.0 % zone_size, data.len());
            }
            Op::Append { zone, data, .. } => {
                // The drive under test does not reorder appends: each lands behind the previous one.
                let at = self.ends.lock().get(zone).copied().unwrap_or(0);
                note(*zone, at, data.len());
            }
            _ => {}
        }
        self.emu.submit(op)
    }

    fn driver(&self) -> &Arc<dyn Driver> {
        self.emu.driver()
    }
}

struct StripedFileSystem {
    drive: Drive,
    device: Arc<StripedDrive>,
    fs: Fs,
}

fn striped_file_system(options: MountOptions) -> StripedFileSystem {
    let drive = Drive::new(EmuOptions {
        zones: 48,
        zone_size: Blocks(256),
        zone_capacity: Blocks(ZONE_BLOCKS),
        ..EmuOptions::tiny()
    });
    let geometry = Geometry { optimal_write: Blocks(STRIPE_BLOCKS), ..drive.emu.geometry().clone() };
    let emu = Arc::clone(&drive.emu);
    let device = Arc::new(StripedDrive { emu, geometry, writes: Mutex::default(), ends: Mutex::default() });
    drive.format();
    let fs = drive.run(Fs::mount(Arc::clone(&device) as Arc<dyn ZonedDevice>, &options)).unwrap();
    StripedFileSystem { drive, device, fs }
}

fn mount_with_write_buffer(blocks: usize) -> MountOptions {
    MountOptions { write_buffer: blocks * BLOCK, ..MountOptions::default() }
}

impl StripedFileSystem {
    /// The number of writes to log zones, or to data zones, since the last call, and how many of them end
    /// within a stripe.
    fn take(&self, log: bool) -> (usize, usize) {
        let map = self.fs.zone_map();
        let wanted = |zone: ZoneId| match map.iter().find(|z| z.zone == zone).map(|z| z.role) {
            Some(ZoneRole::Log) => log,
            Some(ZoneRole::Data { .. }) => !log,
            _ => false,
        };
        let mut writes = std::mem::take(&mut *self.device.writes.lock());
        writes.retain(|(zone, ..)| wanted(*zone));
        let within =
            writes.iter().filter(|(.., end)| !end.is_multiple_of(STRIPE_BLOCKS) && *end != ZONE_BLOCKS);
        (writes.len(), within.count())
    }
}

#[test]
fn files_are_written_in_whole_stripes_until_a_sync() {
    // The write buffer is no multiple of a stripe, less than a stripe, or longer than several zones.
    for buffer in [1, 27, 600] {
        let g = striped_file_system(mount_with_write_buffer(buffer));
        let content = bytes(700 * BLOCK + 77, 5);
        g.drive.run(async {
            let long = g.fs.create("/long", &data()).await.unwrap();
            let short = g.fs.create("/short", &data()).await.unwrap();
            for (n, part) in content.chunks(10_000).enumerate() {
                long.append(part).await.unwrap();
                assert_eq!(g.take(false).1, 0, "piece {n}");
                if n % 5 == 0 {
                    // The sync ends within a stripe, which the next write fills.
                    short.append(&content[..n]).await.unwrap();
                    short.sync().await.unwrap();
                    let (writes, within) = g.take(false);
                    assert!(writes <= 2 && within <= 1, "{writes} writes, {within} within a stripe");
                }
                // Readers of the file see the partial stripe in memory.
                if n % 16 == 3 {
                    let len = n * 10_000 + part.len();
                    assert_eq!(read(&g.fs, "/long").await.unwrap(), &content[..len]);
                }
            }
            long.sync().await.unwrap();
            assert!(g.take(false).1 <= 1, "a sync ends within one stripe");
            long.close().await.unwrap();
            short.close().await.unwrap();
            assert_eq!(g.take(false), (0, 0), "nothing is left to write after the sync");
            drop((long, short));
            g.fs.unmount().await.unwrap();
        });
        let fs = g.drive.mount();
        assert_eq!(g.drive.run(read(&fs, "/long")).unwrap(), content);
        g.drive.run(fs.unmount()).unwrap();
        g.drive.check();
    }
}

#[test]
fn a_close_and_a_truncate_write_a_partial_stripe() {
    let g = striped_file_system(mount_with_write_buffer(8));
    let content = bytes(21 * BLOCK + 5, 9);
    g.drive.run(async {
        for (path, cut) in [("/closed", None), ("/cut", Some(19 * BLOCK + 100))] {
            let writer = g.fs.create(path, &data()).await.unwrap();
            writer.append(&content).await.unwrap();
            if let Some(cut) = cut {
                writer.truncate(Bytes(cut as u64)).await.unwrap();
                writer.append(&content).await.unwrap();
            }
            writer.close().await.unwrap();
            drop(writer);
        }
        g.fs.sync().await.unwrap();
        assert_eq!(read(&g.fs, "/closed").await.unwrap(), content);
        let wanted = [&content[..19 * BLOCK + 100], &content].concat();
        assert_eq!(read(&g.fs, "/cut").await.unwrap(), wanted);
        g.fs.unmount().await.unwrap();
    });
    g.drive.check();
}

#[test]
fn a_sync_pads_the_last_stripe_of_a_long_file_and_not_of_a_short_one() {
    // Number of blocks of a file, and of blocks of padding that its sync may write.
    for (blocks, padding) in [(511, 0), (1023, 1), (1022, 0), (1534, 2), (2047, 1), (2043, 0), (2045, 3)] {
        let g = striped_file_system(mount_with_write_buffer(64));
        let content = bytes(blocks * BLOCK - 9, 1);
        g.drive.run(async {
            let writer = g.fs.create("/file", &data()).await.unwrap();
            writer.append(&content).await.unwrap();
            g.take(false);
            writer.sync().await.unwrap();
            let ended = g.take(false);
            let wanted = usize::from(padding == 0);
            assert_eq!(ended, (1, wanted), "{blocks} blocks, {padding} of padding");
            // A file's partial last block is written again with its next bytes.
            writer.append(&content[..20]).await.unwrap();
            writer.sync().await.unwrap();
            writer.close().await.unwrap();
            drop(writer);
            let live: u64 = g.fs.zone_map().iter().map(|z| z.live.0).sum();
            assert!(live <= blocks as u64 + 200, "padding is not live: {live} blocks");
            assert_eq!(read(&g.fs, "/file").await.unwrap(), [&content[..], &content[..20]].concat());
            g.fs.unmount().await.unwrap();
        });
        let fs = g.drive.mount();
        let found = g.drive.run(read(&fs, "/file")).unwrap();
        assert_eq!(found.len(), content.len() + 20);
        assert!(found.starts_with(&content));
        g.drive.run(fs.unmount()).unwrap();
        g.drive.check();
    }
}

#[test]
fn many_syncs_of_a_long_file_keep_the_bound_of_padding() {
    let g = striped_file_system(mount_with_write_buffer(64));
    let content = bytes(2000 * BLOCK, 1);
    g.drive.run(async {
        let writer = g.fs.create("/file", &data()).await.unwrap();
        writer.append(&content).await.unwrap();
        writer.sync().await.unwrap();
        g.take(false);
        let mut written = 0;
        for part in content.chunks(BLOCK).take(100) {
            writer.append(part).await.unwrap();
            writer.sync().await.unwrap();
            written += g.device.writes.lock().drain(..).map(|(_, from, to)| to - from).sum::<u64>();
        }
        // Each sync writes a block of data and one of metadata; 2,100 blocks of data allow four blocks of
        // padding.
        assert!(written <= 100 + 120 + 4, "{written} blocks");
        writer.close().await.unwrap();
    });
}

#[test]
fn log_entries_end_with_stripes_also_where_the_log_begins_within_a_stripe() {
    // Log entries of one stripe, of several stripes, and of a part of one.
    for entry in [STRIPE_BLOCKS, 3 * STRIPE_BLOCKS, 3] {
        let options = LogOptions { buffer: entry as usize * BLOCK, ..LogOptions::default() };
        let g = striped_file_system(MountOptions { log: options, ..MountOptions::default() });
        let content = bytes(150 * BLOCK, 3);
        g.drive.run(async {
            for n in 0..6 {
                let path = format!("/{n}.log");
                let writer = g.fs.create(&path, &log()).await.unwrap();
                let part = &content[..(20 + 21 * n) * BLOCK + n];
                for piece in part.chunks(1000) {
                    writer.append(piece).await.unwrap();
                }
                let (writes, within) = g.take(true);
                assert!(writes > 0 || part.len() < entry as usize * BLOCK);
                match entry {
                    3 => assert!(
                        within <= writes - writes / 4,
                        "{within} of {writes}: one of three ends a stripe"
                    ),
                    _ => assert_eq!(within, 0, "log {n}"),
                }
                writer.sync().await.unwrap();
                assert!(g.take(true).1 <= 1);
                writer.close().await.unwrap();
                drop(writer);
                assert_eq!(read(&g.fs, &path).await.unwrap(), part);
            }
            g.fs.unmount().await.unwrap();
        });
        let fs = g.drive.mount();
        for n in 0..6 {
            let found = g.drive.run(read(&fs, &format!("/{n}.log"))).unwrap();
            assert_eq!(found, &content[..(20 + 21 * n) * BLOCK + n]);
        }
        g.drive.run(fs.unmount()).unwrap();
        g.drive.check();
    }
}
