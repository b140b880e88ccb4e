//! Tests of a parallel log that is striped over several zones.
#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "a test may panic")]

use std::sync::Arc;

use crate::common::parallel::{self, PATH, Records, all, append_all};
use crate::common::{Drive, bytes};
use fs::{Batching, FormatOptions, Fs, MountOptions, ParallelLog, ParallelOptions, Ticket, ZoneRole};
use units::{Blocks, Driver, VirtualDriver, block_on};
use zoned::emu::EmuOptions;

fn drive(volatile_cache: bool) -> (Drive, Fs) {
    Drive::formatted(EmuOptions { volatile_cache, ..parallel::options() })
}

async fn open(fs: &Fs, zones: usize, batching: Batching) -> (Arc<ParallelLog>, Records) {
    let options = ParallelOptions { zones, batching, ..ParallelOptions::default() };
    let (log, replay) = fs.parallel_log(PATH, &options).await.unwrap();
    (Arc::new(log), all(replay).await)
}

async fn write(fs: &Fs, log: &Arc<ParallelLog>, writers: usize, each: usize) -> Records {
    let record = |writer, n| bytes(1 + ((writer * 1000 + n) * 379) % 9000, n as u8);
    append_all(fs, log, (writers, each), 5, record).await
}

/// Zones with log data.
fn log_zones(fs: &Fs) -> usize {
    fs.zone_map().iter().filter(|z| z.role == ZoneRole::Log && z.live > Blocks::ZERO).count()
}

#[test]
fn records_striped_over_several_zones_are_replayed_in_ticket_order() {
    for (zones, batching) in [(2, Batching::Each), (3, Batching::Each), (3, Batching::Auto)] {
        let (drive, fs) = drive(false);
        let written = drive.run(async {
            let (log, _) = open(&fs, zones, batching).await;
            let mut written = write(&fs, &log, 8, 5).await;
            // The next operations on the drive open zones ahead.
            units::sleep_until(&**fs.driver(), fs.driver().now().after(std::time::Duration::from_millis(2)))
                .await;
            written.extend(write(&fs, &log, 8, 2).await);
            assert_eq!(log.stats().zones, zones as u64);
            written.extend(write(&fs, &log, 8, 60).await);
            let stats = log.stats();
            assert!(stats.replaced > 8 && stats.voids == 0, "{stats:?}");
            log.close().await.unwrap();
            written
        });
        let found = drive.run(async { all(fs.read_parallel_log(PATH).await.unwrap()).await });
        assert!(found == written, "{zones} zones: {} of {}", found.len(), written.len());
        drive.run(fs.unmount()).unwrap();
        drive.check();
        let fs = drive.mount();
        let (log, found) = drive.run(open(&fs, 1, batching));
        assert!(found == written);
        drive.run(async {
            log.retire(log.next_ticket()).unwrap();
            log.close().await.unwrap();
        });
        assert_eq!((log_zones(&fs), fs.stat(PATH).unwrap().size.0), (0, 0));
    }
}

#[test]
fn with_a_volatile_cache_one_zone_is_written_at_a_time() {
    let (drive, fs) = drive(true);
    drive.run(async {
        let (log, _) = open(&fs, 3, Batching::Each).await;
        write(&fs, &log, 4, 2).await;
        assert_eq!(log.stats().zones, 1);
    });
}

#[test]
fn a_kill_of_the_process_loses_no_acknowledged_record_of_a_striped_log() {
    let (drive, fs) = drive(false);
    let written = drive.run(async {
        let (log, _) = open(&fs, 3, Batching::Each).await;
        let written = write(&fs, &log, 8, 40).await;
        // The process is killed: the log is not closed, and the file system is not unmounted.
        std::mem::forget(log);
        written
    });
    let fs = drive.mount();
    let (log, found) = drive.run(open(&fs, 3, Batching::Each));
    assert!(found == written);
    drive.run(log.close()).unwrap();
}

#[test]
fn zones_of_a_striped_log_are_freed_as_their_records_are_retired() {
    let (drive, fs) = drive(false);
    drive.run(async {
        let (log, _) = open(&fs, 3, Batching::Auto).await;
        // The log writes far more bytes than the drive has.
        for round in 0..30 {
            let written = write(&fs, &log, if round % 3 == 0 { 1 } else { 4 }, 20).await;
            assert!(log_zones(&fs) <= 14, "round {round}: {} zones", log_zones(&fs));
            let (last, _) = written.last().unwrap();
            log.retire(Ticket(last.0 + 1)).unwrap();
        }
        log.retire(log.next_ticket()).unwrap();
        log.close().await.unwrap();
        assert_eq!((log_zones(&fs), fs.stat(PATH).unwrap().size.0), (0, 0));
    });
    drive.run(fs.unmount()).unwrap();
    drive.check();
}

/// Records per second of `writers` writers on a drive of `profile`, and the log's stripe width at the end.
fn records_per_second(profile: &str, zones: usize, writers: usize) -> (f64, u64) {
    let driver: Arc<dyn Driver> = VirtualDriver::new(1);
    let dev = zoned::open(&format!("emu:mem?profile={profile}"), Arc::clone(&driver)).unwrap();
    block_on(&*driver, async {
        Fs::format(&dev, &FormatOptions::default()).await.unwrap();
        let fs = Fs::mount(dev, &MountOptions::default()).await.unwrap();
        let (log, _) = open(&fs, zones, Batching::Each).await;
        let begin = fs.driver().now();
        append_all(&fs, &log, (writers, 500), 1, |_, n| bytes(3800, n as u8)).await;
        let took = fs.driver().now().since(begin).as_secs_f64();
        let zones = log.stats().zones;
        log.close().await.unwrap();
        ((writers * 500) as f64 / took, zones)
    })
}

#[test]
fn where_zones_have_dies_of_their_own_several_writers_get_several_zones_and_a_lone_writer_one() {
    const DRIVE: &str = "smallzone&zones=64";
    let ((one, _), (more, zones)) = (records_per_second(DRIVE, 1, 4), records_per_second(DRIVE, 0, 4));
    assert!(more > 1.7 * one && zones == 8, "{one:.0} and {more:.0} with {zones} zones");
    assert_eq!(records_per_second(DRIVE, 0, 1).1, 1);
    // The ZN540 drive has few open zones, and each zone uses all dies.
    assert_eq!(records_per_second("zn540&zones=16&zone-size=64MiB&zone-capacity=64MiB", 0, 4).1, 1);
}
