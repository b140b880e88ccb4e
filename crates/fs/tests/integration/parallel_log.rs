//! Tests of the parallel log: records, zones, closing and opening.
#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "a test may panic")]

use std::sync::Arc;
use std::time::Duration;

use crate::common::parallel::{self, PATH, Records, all};
use crate::common::{Drive, bytes};
use fs::{ErrorKind, Fs, MountOptions, ParallelLog, ParallelOptions, Ticket, ZoneRole};
use units::{Blocks, Driver, block_on, spawn};
use zoned::ZonedDevice;
use zoned::emu::{EmuOptions, Latency};

fn options() -> EmuOptions {
    let small = parallel::options();
    let latency =
        Latency { finish: Duration::from_micros(400), reset: Duration::from_micros(300), ..small.latency };
    EmuOptions { zones: 40, latency, ..small }
}

fn drive(options: EmuOptions) -> (Drive, Fs) {
    Drive::formatted(options)
}

async fn open(fs: &Fs) -> (Arc<ParallelLog>, Records) {
    let (log, replay) = fs.parallel_log(PATH, &ParallelOptions::default()).await.unwrap();
    (Arc::new(log), all(replay).await)
}

fn record(n: usize) -> Vec<u8> {
    bytes(1 + (n * 379) % 9000, n as u8)
}

/// Runs `writers` tasks that append `each` records.
async fn write(fs: &Fs, log: &Arc<ParallelLog>, writers: usize, each: usize) -> Records {
    parallel::append_all(fs, log, (writers, each), 5, |writer, n| record(writer * 1000 + n)).await
}

fn log_zones(fs: &Fs) -> usize {
    fs.zone_map().iter().filter(|z| z.role == ZoneRole::Log && z.live > Blocks::ZERO).count()
}

#[test]
fn records_of_many_writers_are_replayed_in_ticket_order() {
    for volatile_cache in [true, false] {
        let (drive, fs) = drive(EmuOptions { volatile_cache, ..options() });
        let written = drive.run(async {
            let (log, before) = open(&fs).await;
            assert_eq!(before, []);
            let written = write(&fs, &log, 8, 60).await;
            assert_eq!(log.next_ticket(), Ticket(480));
            let stats = log.stats();
            assert!(stats.replaced > 10 && stats.records == 480 && stats.voids == 0, "{stats:?}");
            log.close().await.unwrap();
            written
        });
        let found = drive.run(async { all(fs.read_parallel_log(PATH).await.unwrap()).await });
        assert_eq!(found, written);
        drive.run(fs.unmount()).unwrap();
        drive.check();
        let fs = drive.mount();
        let (log, found) = drive.run(open(&fs));
        assert_eq!(found, written);
        assert!(log.next_ticket() >= Ticket(480));
        drive.run(log.close()).unwrap();
    }
}

#[test]
fn a_record_longer_than_an_append_has_parts_and_one_longer_than_a_zone_spans_zones() {
    for max_open in [14, 4] {
        let options =
            EmuOptions { max_open: Some(max_open), max_active: Some(max_open), zones: 80, ..options() };
        let (drive, fs) = drive(options);
        drive.run(async {
            let (log, _) = open(&fs).await;
            let records: Vec<Vec<u8>> = [0, 1, 4000, 40_000, 200_000, 700_000, 5, 300_000]
                .into_iter()
                .zip(0_u8..)
                .map(|(len, n)| bytes(len, n))
                .collect();
            let tasks: Vec<_> = records
                .iter()
                .map(|record| {
                    let (log, record) = (Arc::clone(&log), record.clone());
                    spawn(&**fs.driver(), "writer", async move { log.append(&record, true).await.unwrap() })
                })
                .collect();
            let mut wanted = Vec::new();
            for (task, record) in tasks.into_iter().zip(records) {
                wanted.push((task.await, record));
            }
            wanted.sort();
            log.close().await.unwrap();
            assert!(all(fs.read_parallel_log(PATH).await.unwrap()).await == wanted);
        });
    }
}

#[test]
fn retired_segments_are_freed_and_a_log_without_records_holds_no_zone() {
    let (drive, fs) = drive(options());
    drive.run(async {
        let (log, _) = open(&fs).await;
        // The log writes far more bytes than the drive has.
        for round in 0..30 {
            let written = write(&fs, &log, 4, 20).await;
            assert!(log_zones(&fs) <= 12, "round {round}: {} zones", log_zones(&fs));
            let (last, _) = written.last().unwrap();
            log.retire(Ticket(last.0 + 1)).unwrap();
        }
        let written = write(&fs, &log, 1, 3).await;
        log.retire(written[2].0).unwrap();
        log.close().await.unwrap();
        assert_eq!(all(fs.read_parallel_log(PATH).await.unwrap()).await, written[2..]);
        let (log, found) = open(&fs).await;
        assert_eq!(found, written[2..]);
        log.retire(log.next_ticket()).unwrap();
        log.close().await.unwrap();
        assert_eq!((log_zones(&fs), fs.stat(PATH).unwrap().size.0), (0, 0));
    });
    drive.run(fs.unmount()).unwrap();
    drive.check();
}

#[test]
fn removing_a_log_frees_its_zones() {
    let (drive, fs) = drive(options());
    drive.run(async {
        let (log, _) = open(&fs).await;
        write(&fs, &log, 4, 30).await;
        log.close().await.unwrap();
        drop(log);
        assert!(log_zones(&fs) > 3);
        fs.unlink(PATH).await.unwrap();
        assert_eq!(log_zones(&fs), 0);
    });
    drive.run(fs.unmount()).unwrap();
    drive.check();
}

#[test]
fn a_voided_record_is_not_replayed() {
    let (drive, fs) = drive(options());
    drive.run(async {
        let (log, _) = open(&fs).await;
        let mut tickets = Vec::new();
        for n in 0..6_u8 {
            tickets.push(log.append(&[n], false).await.unwrap());
        }
        log.void(tickets[2]).await.unwrap();
        log.void(tickets[5]).await.unwrap();
        let early = log.void(log.next_ticket()).await.unwrap_err();
        assert_eq!(early.kind(), ErrorKind::Invalid);
        log.close().await.unwrap();
        let left = all(fs.read_parallel_log(PATH).await.unwrap()).await;
        assert_eq!(left.iter().map(|(_, r)| r[0]).collect::<Vec<_>>(), [0, 1, 3, 4]);
        // Records of an earlier opening cannot be voided: the replay has decided that they count.
        let (log, _) = open(&fs).await;
        let late = log.void(tickets[3]).await.unwrap_err();
        assert_eq!(late.kind(), ErrorKind::Invalid, "{late}");
        let own = log.append(&[6], false).await.unwrap();
        log.void(own).await.unwrap();
    });
}

#[test]
fn a_parallel_log_cannot_be_opened_as_a_file_and_has_one_writer() {
    let (drive, fs) = drive(options());
    drive.run(async {
        let (log, _) = open(&fs).await;
        log.append(b"record", true).await.unwrap();
        let again = fs.parallel_log(PATH, &ParallelOptions::default()).await.unwrap_err();
        assert_eq!(again.kind(), ErrorKind::Busy);
        assert_eq!(fs.read_parallel_log(PATH).await.unwrap_err().kind(), ErrorKind::Busy);
        log.close().await.unwrap();
        assert_eq!(log.append(b"late", true).await.unwrap_err().kind(), ErrorKind::Closed);
        assert_eq!(fs.open_append(PATH).await.unwrap_err().kind(), ErrorKind::Invalid);
        let read = crate::common::read(&fs, PATH).await.unwrap_err();
        assert_eq!(read.kind(), ErrorKind::Invalid);
        crate::common::write(&fs, "/data", b"data").await.unwrap();
        let other = fs.parallel_log("/data", &ParallelOptions::default()).await.unwrap_err();
        assert_eq!(other.kind(), ErrorKind::Invalid);
    });
}

#[test]
fn dropping_a_log_closes_it() {
    let (drive, fs) = drive(options());
    drive.run(async {
        let (log, _) = open(&fs).await;
        log.append(b"record", false).await.unwrap();
        drop(log);
        units::sleep_until(&**fs.driver(), fs.driver().now().after(Duration::from_millis(1))).await;
        let (_, found) = open(&fs).await;
        assert_eq!(found, [(Ticket(0), b"record".to_vec())]);
    });
}

#[test]
fn acknowledged_records_survive_a_kill_of_the_process() {
    let (drive, fs) = drive(options());
    let written = drive.run(async {
        let (log, _) = open(&fs).await;
        let written = write(&fs, &log, 8, 40).await;
        // The process is killed: the log is not closed, and the file system is not unmounted.
        std::mem::forget(log);
        written
    });
    let fs = drive.mount();
    let found = drive.run(async { all(fs.read_parallel_log(PATH).await.unwrap()).await });
    assert_eq!(found, written);
}

#[test]
fn a_full_drive_refuses_records_until_space_is_freed_and_loses_none() {
    let (drive, fs) = drive(EmuOptions { zones: 16, ..options() });
    drive.run(async {
        let (log, _) = open(&fs).await;
        let mut written = Vec::new();
        let full = loop {
            let record = record(written.len());
            match log.append(&record, false).await {
                Ok(ticket) => written.push((ticket, record)),
                Err(error) => break error,
            }
        };
        assert_eq!(full.kind(), ErrorKind::NoSpace, "{full}");
        // The first part of the record fits on the drive and the second does not: the record's ticket must
        // not block later records for good.
        let long = log.append(&bytes(600_000, 1), false).await.unwrap_err();
        assert_eq!(long.kind(), ErrorKind::NoSpace, "{long}");
        let (middle, _) = written[written.len() / 2];
        log.retire(middle).unwrap();
        for n in 0..50 {
            let record = record(n);
            let ticket = log.append(&record, true).await.unwrap();
            written.push((ticket, record));
        }
        log.close().await.unwrap();
        let found = all(fs.read_parallel_log(PATH).await.unwrap()).await;
        let wanted: Vec<_> = written.into_iter().filter(|(ticket, _)| *ticket >= middle).collect();
        assert!(found == wanted, "{} of {}", found.len(), wanted.len());
    });
}

/// A task that kept a reference a little longer would keep the lock of a drive's file: the next mount would find the drive held.
#[test]
fn no_task_references_the_device_after_an_unmount() {
    let driver: Arc<dyn Driver> = units::RealDriver::new();
    let dev: Arc<dyn ZonedDevice> = zoned::emu::Emu::memory(options(), Arc::clone(&driver));
    block_on(&*driver, Fs::format(&dev, &fs::FormatOptions::default())).unwrap();
    for round in 0..200 {
        block_on(&*driver, async {
            let fs = Fs::mount(Arc::clone(&dev), &MountOptions::default()).await.unwrap();
            let (log, _) = open(&fs).await;
            let ticket = log.append(&record(round), true).await.unwrap();
            log.retire(ticket).unwrap();
            log.close().await.unwrap();
            fs.unmount().await.unwrap();
        });
        assert_eq!(Arc::strong_count(&dev), 1, "in round {round}");
    }
}

#[test]
fn threads_append_on_the_real_clock() {
    let driver: Arc<dyn Driver> = units::RealDriver::new();
    let emu = zoned::emu::Emu::memory(options(), Arc::clone(&driver));
    let dev: Arc<dyn ZonedDevice> = emu;
    let fs = block_on(&*driver, async {
        Fs::format(&dev, &fs::FormatOptions::default()).await.unwrap();
        Fs::mount(Arc::clone(&dev), &MountOptions::default()).await.unwrap()
    });
    let (log, _) = block_on(&*driver, open(&fs));
    let record = |thread, n| record(thread * 1000 + n);
    let written = parallel::append_all_from_threads(&driver, &log, (8, 60), 7, record);
    block_on(&*driver, log.close()).unwrap();
    let found = block_on(&*driver, async { all(fs.read_parallel_log(PATH).await.unwrap()).await });
    assert_eq!(found, written);
    block_on(&*driver, fs.unmount()).unwrap();
}
