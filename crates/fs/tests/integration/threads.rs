//! Test of threads that write, read and sync files at once, on the real clock.
#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "a test may panic")]

use std::sync::Arc;

use crate::common::{bytes, log, read, write};
use fs::wal::LogOptions;
use fs::{FormatOptions, Fs, MountOptions};
use units::{Blocks, Bytes, RealDriver, block_on};
use zoned::ZonedDevice;
use zoned::emu::{Emu, EmuOptions};

#[test]
fn threads_write_read_and_sync_at_once() {
    let driver = RealDriver::new();
    let options = EmuOptions {
        zones: 64,
        zone_size: Blocks(64),
        zone_capacity: Blocks(60),
        max_open: Some(8),
        max_active: Some(8),
        ..EmuOptions::default()
    };
    let dev: Arc<dyn ZonedDevice> = Emu::memory(options, driver.clone());
    let options = MountOptions {
        write_buffer: 64 << 10,
        log: LogOptions { buffer: 16 << 10, ..LogOptions::default() },
        ..MountOptions::default()
    };
    let fs = block_on(&*driver, async {
        Fs::format(&dev, &FormatOptions::default()).await.unwrap();
        Fs::mount(Arc::clone(&dev), &options).await.unwrap()
    });
    std::thread::scope(|scope| {
        for thread in 0..6_u8 {
            let (fs, driver) = (fs.clone(), driver.clone());
            scope.spawn(move || {
                let wal = format!("/{thread}.log");
                for round in 0..30_u8 {
                    let seed = thread.wrapping_mul(40) ^ round;
                    block_on(&*driver, async {
                        if thread < 2 {
                            let writer = fs.create(&wal, &log()).await.unwrap();
                            for part in 0..20 {
                                writer.append(&bytes(2000, part ^ seed)).await.unwrap();
                                writer.sync().await.unwrap();
                            }
                            writer.close().await.unwrap();
                            assert_eq!(fs.stat(&wal).unwrap().size, Bytes(40_000));
                        } else {
                            let path = format!("/{thread}-{}", round % 4);
                            write(&fs, "/tmp", b"shared").await.ok();
                            write(&fs, &path, &bytes(300_000, seed)).await.unwrap();
                            assert_eq!(read(&fs, &path).await.unwrap(), bytes(300_000, seed));
                        }
                    });
                }
            });
        }
    });
    block_on(&*driver, fs.unmount()).unwrap();
    let report = block_on(&*driver, Fs::check(&dev)).unwrap();
    assert_eq!(report.problems, Vec::<String>::new());
}
