//! Tests of lasting failures of the parallel log: a task that panics, and a drive without room for a void
//! entry.
#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "a test may panic")]

use std::future::poll_fn;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::sync::Arc;
use std::task::Poll;

use crate::common::parallel::{self, PATH, all};
use crate::common::{Drive, bytes, data};
use fs::{Batching, ErrorKind, Fs, MountOptions, ParallelLog, ParallelOptions, Ticket, ZoneRole};
use units::Driver;
use zoned::emu::{Emu, EmuOptions};
use zoned::{Geometry, Io, Op, ZonedDevice};

/// Byte offsets in an entry of its flags (0 for records, 4 for a void entry) and of its number of records.
const FLAGS_OFFSET: usize = 6;
const COUNT_OFFSET: usize = 64;

/// A drive whose driver panics when an entry as `at` describes is submitted.
#[derive(Debug)]
struct PanickingDrive {
    emu: Arc<Emu>,
    at: Entry,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Entry {
    /// Number of records.
    Records(u32),
    Void,
}

impl Entry {
    fn of(data: &[u8]) -> Option<Entry> {
        match data[FLAGS_OFFSET..FLAGS_OFFSET + 2] {
            _ if !data.starts_with(b"FuLe") => None,
            [0, 0] => Some(Entry::Records(u32::from_le_bytes(
                data[COUNT_OFFSET..COUNT_OFFSET + 4].try_into().unwrap(),
            ))),
            [4, 0] => Some(Entry::Void),
            _ => None,
        }
    }
}

impl ZonedDevice for PanickingDrive {
    fn geometry(&self) -> &Geometry {
        self.emu.geometry()
    }

    fn submit(&self, op: Op) -> Io {
        if let Op::Append { data, .. } | Op::Write { data, .. } = &op {
            assert_ne!(Entry::of(data), Some(self.at), "the driver's bug");
        }
        self.emu.submit(op)
    }

    fn driver(&self) -> &Arc<dyn Driver> {
        self.emu.driver()
    }
}

async fn open_log_on_panicking_drive(
    drive: &Drive,
    at: Entry,
    options: &ParallelOptions,
) -> (Fs, ParallelLog) {
    let device = Arc::new(PanickingDrive { emu: drive.emu.clone(), at });
    let fs = Fs::mount(device, &MountOptions::default()).await.unwrap();
    let (log, _) = fs.parallel_log(PATH, options).await.unwrap();
    (fs, log)
}

/// Polls all appends until each has ended; the result is `None` for one that panicked.
async fn outcomes_of_appends(mut appends: Vec<Append<'_>>) -> Vec<Option<fs::Result<Ticket>>> {
    let mut outcomes: Vec<Option<Option<fs::Result<Ticket>>>> = vec![None; appends.len()];
    poll_fn(|context| {
        for (append, outcome) in appends.iter_mut().zip(&mut outcomes).filter(|(_, o)| o.is_none()) {
            *outcome = match catch_unwind(AssertUnwindSafe(|| append.as_mut().poll(context))) {
                Ok(Poll::Pending) => None,
                Ok(Poll::Ready(done)) => Some(Some(done)),
                Err(_) => Some(None),
            };
        }
        if outcomes.iter().all(Option::is_some) { Poll::Ready(()) } else { Poll::Pending }
    })
    .await;
    outcomes.into_iter().flatten().collect()
}

type Append<'a> = Pin<Box<dyn Future<Output = fs::Result<Ticket>> + Send + 'a>>;

#[test]
fn writers_that_wait_for_a_leader_that_panics_get_the_error() {
    let drive = Drive::new(parallel::options());
    drive.format();
    drive.run(async {
        let joined = ParallelOptions { batching: Batching::Auto, ..ParallelOptions::default() };
        let (fs, log) = open_log_on_panicking_drive(&drive, Entry::Records(3), &joined).await;
        // The first record has an entry of its own; the second writer leads a batch of three records.
        let appends = (0..4).map(|_| Box::pin(log.append(b"record", false)) as Append<'_>).collect();
        let outcomes = outcomes_of_appends(appends).await;
        assert!(matches!(outcomes[0], Some(Ok(Ticket(0)))), "{outcomes:?}");
        assert!(outcomes[1].is_none(), "the append panicked");
        for follower in &outcomes[2..] {
            let error = follower.clone().unwrap().unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Poisoned, "{error}");
            assert!(error.to_string().contains("panicked"), "{error}");
        }
        assert_eq!(log.append(b"later", false).await.unwrap_err().kind(), ErrorKind::Poisoned);
        assert_eq!(log.close().await.unwrap_err().kind(), ErrorKind::Poisoned);
        let (log, replay) = fs.parallel_log(PATH, &joined).await.unwrap();
        assert_eq!(all(replay).await, [(Ticket(0), b"record".to_vec())]);
        log.append(b"again", true).await.unwrap();
        log.close().await.unwrap();
        fs.unmount().await.unwrap();
    });
    drive.check();
}

#[test]
fn a_panic_of_a_lone_writer_delays_no_other_writer() {
    for batching in [Batching::Each, Batching::Auto] {
        let drive = Drive::new(parallel::options());
        drive.format();
        drive.run(async {
            let options = ParallelOptions { batching, ..ParallelOptions::default() };
            let (fs, log) = open_log_on_panicking_drive(&drive, Entry::Records(1), &options).await;
            let outcomes = outcomes_of_appends(vec![Box::pin(log.append(b"record", false))]).await;
            assert!(outcomes[0].is_none(), "the append panicked");
            // The ticket of the append that panicked is void, and the log left its zone.
            log.sync().await.unwrap();
            log.close().await.unwrap();
            assert_eq!(log.stats().voids, 1);
            assert_eq!(all(fs.read_parallel_log(PATH).await.unwrap()).await, []);
            fs.unmount().await.unwrap();
        });
        drive.check();
    }
}

#[test]
fn maintenance_that_panics_poisons_the_log_and_all_waiting_calls_get_the_error() {
    let drive = Drive::new(parallel::options());
    drive.format();
    drive.run(async {
        let options = ParallelOptions::default();
        let (fs, log) = open_log_on_panicking_drive(&drive, Entry::Void, &options).await;
        let kept = log.append(b"record", true).await.unwrap();
        let refused = log.append(b"refused", true).await.unwrap();
        for error in [
            log.void(refused).await.unwrap_err(),
            log.void(kept).await.unwrap_err(),
            log.append(b"later", true).await.unwrap_err(),
        ] {
            assert_eq!(error.kind(), ErrorKind::Poisoned, "{error}");
            let words = format!("{error} {:?}", error);
            assert!(words.contains("maintenance task panicked"), "{words}");
        }
        assert_eq!(log.close().await.unwrap_err().kind(), ErrorKind::Poisoned);
        let (log, replay) = fs.parallel_log(PATH, &options).await.unwrap();
        assert_eq!(all(replay).await, [(kept, b"record".to_vec()), (refused, b"refused".to_vec())]);
        log.append(b"again", true).await.unwrap();
        log.close().await.unwrap();
        fs.unmount().await.unwrap();
    });
    drive.check();
}

/// Appends records of one block until the drive is full; returns the tickets of the first and the last
/// record.
async fn fill_drive(log: &ParallelLog) -> (Ticket, Ticket) {
    let mut given = Vec::new();
    let full = loop {
        match log.append(b"small", false).await {
            Ok(ticket) => given.push(ticket),
            Err(error) => break error,
        }
    };
    assert_eq!(full.kind(), ErrorKind::NoSpace, "{full}");
    (given[0], given[given.len() - 1])
}

#[test]
fn no_record_is_written_before_a_void_entry_that_did_not_fit() {
    for volatile_cache in [false, true] {
        let (drive, fs) = Drive::formatted(EmuOptions { zones: 16, volatile_cache, ..parallel::options() });
        drive.run(async {
            let (log, _) = fs.parallel_log(PATH, &ParallelOptions::default()).await.unwrap();
            let (_, last) = fill_drive(&log).await;
            for refused in [last, Ticket(last.0 - 1)] {
                let error = log.void(refused).await.unwrap_err();
                assert_eq!(error.kind(), ErrorKind::NoSpace, "{error}");
            }
            for _ in 0..2 {
                let error = log.append(b"later", true).await.unwrap_err();
                assert_eq!(error.kind(), ErrorKind::NoSpace, "{error}");
                assert!(error.to_string().contains("void entry"), "{error}");
            }
            assert_eq!(log.stats().voids, 0);
            log.retire(Ticket(last.0 / 2)).unwrap();
            let later = log.append(b"later", true).await.unwrap();
            assert_eq!(log.stats().voids, 2);
            log.close().await.unwrap();
            let found = all(fs.read_parallel_log(PATH).await.unwrap()).await;
            let tickets: Vec<u64> = found.iter().map(|(ticket, _)| ticket.0).collect();
            let wanted: Vec<u64> = (last.0 / 2..last.0 - 1).chain([later.0]).collect();
            assert_eq!(tickets, wanted);
            fs.unmount().await.unwrap();
        });
        drive.check();
    }
}

#[test]
fn a_postponed_void_entry_is_written_once_space_is_freed_without_an_append() {
    let (drive, fs) = Drive::formatted(EmuOptions { zones: 16, ..parallel::options() });
    drive.run(async {
        let (log, _) = fs.parallel_log(PATH, &ParallelOptions::default()).await.unwrap();
        let (_, last) = fill_drive(&log).await;
        assert_eq!(log.void(last).await.unwrap_err().kind(), ErrorKind::NoSpace);
        log.retire(last).unwrap();
        log.close().await.unwrap();
        assert_eq!(log.stats().voids, 1);
        assert_eq!(all(fs.read_parallel_log(PATH).await.unwrap()).await, []);
        fs.unmount().await.unwrap();
    });
}

/// Writes a file as long as the log's zones, as an engine does when it flushes its memtables.
async fn write_file_as_long_as_log(fs: &Fs) -> fs::Result<()> {
    let zones = fs.zone_map();
    let blocks: u64 = zones.iter().filter(|z| z.role == ZoneRole::Log).map(|z| z.live.0).sum();
    let file = fs.create("/tables", &data()).await?;
    file.append(&bytes((blocks * 512) as usize, 1)).await?;
    file.close().await
}

#[test]
fn a_log_leaves_room_for_the_records_that_it_holds() {
    for spare in [true, false] {
        let (drive, fs) = Drive::formatted(EmuOptions { zones: 24, ..parallel::options() });
        drive.run(async {
            let options = ParallelOptions { spare, ..ParallelOptions::default() };
            let (log, _) = fs.parallel_log(PATH, &options).await.unwrap();
            let (_, last) = fill_drive(&log).await;
            assert!(last.0 > 300, "{last:?}");
            let flushed = write_file_as_long_as_log(&fs).await;
            assert_eq!(flushed.is_ok(), spare, "{flushed:?}");
            if spare {
                log.retire(log.next_ticket()).unwrap();
                fs.unlink("/tables").await.unwrap();
                log.append(b"later", true).await.unwrap();
            }
            log.close().await.unwrap();
        });
    }
}
