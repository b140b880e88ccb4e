//! Defects of published parallel logs, one test each: Furrow's parallel log in the same situation. Defects of
//! the memtable (snapshots that see gaps) are tested with the engine.
#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "a test may panic")]

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use crate::common::parallel::{PATH, Records, append_all, options, try_all};
use crate::common::{Drive, bytes};
use fs::wal::entry::EntryHeader;
use fs::{BrokenRule, ErrorKind, FormatOptions, Fs, MountOptions, ParallelLog, ParallelOptions, Ticket};
use parking_lot::Mutex;
use units::{Blocks, Driver, VirtualDriver, sleep_until, spawn};
use zoned::emu::{Emu, EmuOptions, FaultOp, FaultSpec, Latency, Seeded};
use zoned::{Action, Buf, BufMut, Durability, Geometry, Io, Op, ZoneId, ZonedDevice};

const BLOCK: usize = 4096;

/// A drive that records the log entries of each append, and counts all operations.
#[derive(Debug)]
struct LogEntryRecorder {
    emu: Arc<Emu>,
    sent: Mutex<Vec<EntryHeader>>,
    operations: AtomicU64,
}

impl ZonedDevice for LogEntryRecorder {
    fn geometry(&self) -> &Geometry {
        self.emu.geometry()
    }

    fn submit(&self, op: Op) -> Io {
        self.operations.fetch_add(1, Ordering::Relaxed);
        if let Op::Append { data, .. } = &op
            && let Ok(entry) = EntryHeader::parse(data)
        {
            self.sent.lock().push(entry);
        }
        self.emu.submit(op)
    }

    fn driver(&self) -> &Arc<dyn Driver> {
        self.emu.driver()
    }
}

struct RecordedLog {
    drive: Drive,
    watch: Arc<LogEntryRecorder>,
    fs: Fs,
    log: Arc<ParallelLog>,
}

fn recorded_log(seed: u64, options: EmuOptions, broken_rule: Option<BrokenRule>) -> RecordedLog {
    let driver = VirtualDriver::new(seed);
    let drive = Drive { emu: Emu::memory(options, driver.clone()), driver };
    let watch = Arc::new(LogEntryRecorder {
        emu: Arc::clone(&drive.emu),
        sent: Mutex::default(),
        operations: AtomicU64::new(0),
    });
    let dev: Arc<dyn ZonedDevice> = watch.clone();
    let (fs, log) = drive.run(async {
        Fs::format(&dev, &FormatOptions::default()).await.unwrap();
        let fs = Fs::mount(dev, &MountOptions { broken_rule, ..MountOptions::default() }).await.unwrap();
        let (log, _) = fs.parallel_log(PATH, &ParallelOptions::default()).await.unwrap();
        // After its first append the log has a zone.
        log.append(b"first", true).await.unwrap();
        (fs, Arc::new(log))
    });
    RecordedLog { drive, watch, fs, log }
}

async fn records(fs: &Fs) -> fs::Result<Records> {
    try_all(fs.read_parallel_log(PATH).await?).await
}

/// The records of the log that a power cut at this moment leaves.
fn records_after_power_cut(world: &RecordedLog, seed: u64) -> fs::Result<Records> {
    let drive = world.drive.cut(&mut Seeded::new(seed));
    let fs = drive.mount();
    drive.run(records(&fs))
}

/// Appends records from several writers at once; returns the records in ticket order.
async fn write(world: &RecordedLog, writers: usize, each: usize, len: usize) -> Records {
    let record = move |writer, n| [bytes(len, writer as u8), format!("{writer} {n}").into_bytes()].concat();
    append_all(&world.fs, &world.log, (writers, each), usize::MAX, record).await
}

#[test]
fn a_record_carries_its_ticket_when_it_is_submitted() {
    let world = recorded_log(1, options(), None);
    world.watch.sent.lock().clear();
    let written = world.drive.run(write(&world, 8, 20, 100));
    let sent = world.watch.sent.lock().clone();
    let mut tickets: Vec<u64> = sent.iter().filter(|e| !e.padding).map(|e| e.sequence).collect();
    tickets.sort_unstable();
    assert_eq!(tickets, (1..=160).collect::<Vec<_>>());
    assert!(
        written.iter().map(|(ticket, _)| ticket.0).eq(tickets),
        "each writer got the ticket of its entry"
    );
    assert!(sent.iter().all(|e| e.needs <= e.sequence && (e.needs > 0 || e.padding)));
}

#[test]
fn a_failed_append_is_reported_and_its_record_is_never_replayed() {
    for seed in 0..40 {
        let world =
            recorded_log(seed, EmuOptions { volatile_cache: seed.is_multiple_of(2), ..options() }, None);
        let (lost, after) = world.drive.run(async {
            world.log.append(b"before", false).await.unwrap();
            // The failed append may still have put the record on the medium.
            let fault = FaultSpec::next(FaultOp::Write);
            world.drive.emu.fail(FaultSpec { landed: seed % 4 > 1, ..fault });
            let lost = world.log.append(b"lost", false).await.unwrap_err();
            let after = world.log.append(b"after", true).await.unwrap();
            (lost, after)
        });
        assert!(matches!(lost.kind(), ErrorKind::Device(_)), "{lost}");
        assert_eq!(after, Ticket(3), "the ticket of the failed record stays void");
        let found = records_after_power_cut(&world, seed).unwrap();
        let found: Vec<_> = found.iter().map(|(ticket, record)| (ticket.0, record.as_slice())).collect();
        assert_eq!(found, [(0, &b"first"[..]), (1, b"before"), (3, b"after")], "seed {seed}");
        world.drive.run(async {
            assert_eq!(world.log.acknowledged(), Ticket(4));
            assert_eq!((world.log.stats().voids, world.log.failed().is_none()), (1, true));
            world.log.close().await.unwrap();
        });
    }
}

#[test]
fn a_failed_part_fails_the_whole_record() {
    let world = recorded_log(3, options(), None);
    world.drive.run(async {
        world.drive.emu.fail(FaultSpec { after: 2, ..FaultSpec::next(FaultOp::Write) });
        let long = bytes(30 * BLOCK, 1);
        world.log.append(&long, true).await.unwrap_err();
        world.log.append(&long, true).await.unwrap();
        world.log.append(b"after", true).await.unwrap();
    });
    let found = records_after_power_cut(&world, 4).unwrap();
    assert_eq!(
        found.iter().map(|(t, r)| (t.0, r.len())).collect::<Vec<_>>(),
        [(0, 5), (2, 30 * BLOCK), (3, 5)]
    );
}

#[test]
fn records_of_every_length_around_the_limits_are_replayed() {
    let world = recorded_log(5, EmuOptions { zones: 120, ..options() }, None);
    let append = 8 * BLOCK;
    let lens = [BLOCK, 2 * BLOCK, append, 2 * append, 60 * BLOCK, 70 * BLOCK];
    let lens = lens.into_iter().flat_map(|len| (len - 100..len + 30).step_by(9)).chain(0..10);
    let mut written = vec![(Ticket(0), b"first".to_vec())];
    world.drive.run(async {
        for (len, n) in lens.zip(0_u8..) {
            let record = bytes(len, n);
            written.push((world.log.append(&record, false).await.unwrap(), record));
            if written.len().is_multiple_of(8) {
                // All records of the test together do not fit on the drive.
                let half = written.len() / 2;
                world.log.retire(written[half].0).unwrap();
                written.drain(..half);
            }
        }
        world.log.sync().await.unwrap();
    });
    let first = written[0].0;
    let found = records_after_power_cut(&world, 6).unwrap();
    assert!(found.into_iter().filter(|(ticket, _)| *ticket >= first).eq(written));
}

#[test]
fn no_ticket_counts_as_acknowledged_before_its_record_is_on_the_drive() {
    let world = recorded_log(7, options(), None);
    world.drive.run(async {
        let driver = Arc::clone(world.fs.driver());
        for round in 1..20 {
            let log = Arc::clone(&world.log);
            let task = spawn(&*driver, "writer", async move { log.append(b"slow", false).await.unwrap() });
            sleep_until(&*driver, driver.now().after(Duration::from_micros(60))).await;
            assert_eq!(world.log.next_ticket(), Ticket(round + 1), "the record has its ticket");
            assert_eq!(world.log.acknowledged(), Ticket(round), "the drive has not acknowledged the record");
            assert_eq!(task.await, Ticket(round));
            assert_eq!(world.log.acknowledged(), Ticket(round + 1));
        }
    });
}

#[test]
fn without_void_entries_a_failed_append_that_reached_the_medium_is_replayed() {
    let world = recorded_log(1, options(), Some(BrokenRule::Void));
    world.drive.run(async {
        world.drive.emu.fail(FaultSpec::next(FaultOp::Write).landed());
        world.log.append(b"lost", false).await.unwrap_err();
        world.log.append(b"after", true).await.unwrap();
    });
    let found = records_after_power_cut(&world, 1).unwrap();
    assert!(found.iter().any(|(_, record)| record == b"lost"), "{found:?}");
}

/// The number of records that are lost after a clean close of the log: 8 writers, and a zone replacement
/// every few appends.
fn records_lost_at_replacements(seed: u64, broken_rule: Option<BrokenRule>) -> usize {
    let volatile_cache = seed.is_multiple_of(2);
    let world = recorded_log(
        seed,
        EmuOptions { zone_capacity: Blocks(59), volatile_cache, ..options() },
        broken_rule,
    );
    world.drive.run(async {
        let written = write(&world, 8, 80, 5000).await;
        assert!(world.log.stats().replaced > 12);
        world.log.close().await.unwrap();
        // A lost record that was durable is damage: then the replay fails, and all records count as lost.
        let found = records(&world.fs).await.unwrap_or_default();
        written.iter().filter(|record| !found.contains(record)).count()
    })
}

#[test]
fn an_append_that_races_the_replacement_of_its_zone_is_not_lost() {
    for seed in 0..10 {
        assert_eq!(records_lost_at_replacements(seed, None), 0, "seed {seed}");
    }
    let lost: usize =
        (0..10).map(|seed| records_lost_at_replacements(seed, Some(BrokenRule::Replacement))).sum();
    assert!(lost > 5, "a log that takes its padding's address for the end of the zone loses records: {lost}");
}

#[test]
fn a_lasting_device_error_is_retried_a_bounded_number_of_times_and_poisons_the_log() {
    let world = recorded_log(9, options(), None);
    world.drive.run(async {
        world.drive.emu.fail(FaultSpec::all(FaultOp::Write));
        let before = world.watch.operations.load(Ordering::Relaxed);
        let first = world.log.append(b"lost", true).await.unwrap_err();
        // The void entry failed too, so whether the voided record exists is unknown.
        assert!(matches!(first.kind(), ErrorKind::Poisoned), "{first}");
        for _ in 0..10 {
            let next = world.log.append(b"lost", false).await.unwrap_err();
            assert!(matches!(next.kind(), ErrorKind::Poisoned), "{next}");
        }
        let spent = world.watch.operations.load(Ordering::Relaxed) - before;
        assert!(spent < 20, "{spent} operations");
        assert!(world.log.failed().is_some());
        assert!(world.log.close().await.is_err());
    });
}

#[test]
fn a_failed_flush_poisons_the_log() {
    let world = recorded_log(11, options(), None);
    world.drive.run(async {
        world.log.append(b"unsynced", false).await.unwrap();
        world.drive.emu.fail(FaultSpec::next(FaultOp::Flush));
        // The record is in the device's cache and may survive: the replay below gives it.
        assert_eq!(world.log.append(b"synced", true).await.unwrap_err().kind(), ErrorKind::Poisoned);
        assert_eq!(world.log.append(b"next", false).await.unwrap_err().kind(), ErrorKind::Poisoned);
        assert_eq!(world.log.sync().await.unwrap_err().kind(), ErrorKind::Poisoned);
        assert!(world.log.close().await.is_err());
        // Opening the log again tells which records exist.
        let (log, mut replay) = world.fs.parallel_log(PATH, &ParallelOptions::default()).await.unwrap();
        let mut found = Vec::new();
        while let Some((_, record)) = replay.next().await.unwrap() {
            found.push(record);
        }
        assert_eq!(found, [&b"first"[..], b"unsynced", b"synced"]);
        log.append(b"next", true).await.unwrap();
        log.close().await.unwrap();
    });
}

/// Flips a bit of the byte at offset `byte` of a zone.
fn flip_bit(drive: &Drive, zone: ZoneId, byte: usize) {
    let dev = drive.dev();
    drive.run(async {
        let pointer = dev.report(zone.0..zone.0 + 1).await.unwrap()[0].pointer;
        let into = BufMut::zeroed(pointer.0 as usize * BLOCK);
        let at = dev.geometry().start(zone);
        let mut bytes = dev.read(at, into).await.unwrap().to_vec();
        bytes[byte] ^= 0x10;
        dev.zone(zone, Action::Reset).await.unwrap();
        dev.write(at, Buf::copy_from(&bytes), Durability::Durable).await.unwrap();
    });
}

#[test]
fn a_lost_record_that_was_durable_is_reported_as_damage() {
    let world = recorded_log(13, options(), None);
    let zone = world.drive.run(async {
        for n in 0..9_u8 {
            world.log.append(&[n; 100], true).await.unwrap();
        }
        let zones = world.fs.zone_map();
        zones.iter().find(|z| z.role == fs::ZoneRole::Log && z.live > Blocks::ZERO).unwrap().zone
    });
    let drive = world.drive.cut(&mut Seeded::new(1));
    flip_bit(&drive, zone, 4 * BLOCK + 80);
    let dev = drive.dev();
    let report = drive.run(Fs::check(&dev)).unwrap();
    assert!(report.problems.iter().any(|p| p.contains("lost ticket 4")), "{:?}", report.problems);
    let fs = drive.mount();
    let opened = drive.run(fs.parallel_log(PATH, &ParallelOptions::default()));
    assert_eq!(opened.unwrap_err().kind(), ErrorKind::Corrupt);
}

/// The latency of each append, in the order in which the appends ended, and the number of zone replacements.
fn append_latencies(options: EmuOptions, writers: usize, each: usize) -> (Vec<Duration>, u64) {
    let world = recorded_log(17, options, None);
    let all = Arc::new(Mutex::new(Vec::new()));
    let replaced = world.drive.run(async {
        let driver = Arc::clone(world.fs.driver());
        let tasks: Vec<_> = (0..writers)
            .map(|_| {
                let (log, d, all) = (Arc::clone(&world.log), Arc::clone(&driver), Arc::clone(&all));
                spawn(&*driver, "writer", async move {
                    for n in 0..each {
                        let begun = d.now();
                        let ticket = log.append(&[7; 3000], false).await.unwrap();
                        all.lock().push(d.now().since(begun));
                        if n.is_multiple_of(64) {
                            log.retire(Ticket(ticket.0.saturating_sub(500))).unwrap();
                        }
                    }
                })
            })
            .collect();
        for task in tasks {
            task.await;
        }
        world.log.stats().replaced
    });
    (Arc::try_unwrap(all).unwrap().into_inner(), replaced)
}

#[test]
fn no_append_takes_three_times_the_median_of_its_neighbours_because_a_zone_is_replaced() {
    let latency = Latency {
        write: Duration::from_micros(100),
        flush: Duration::from_micros(300),
        reset: Duration::from_millis(10),
        finish: Duration::from_millis(50),
        other: Duration::from_micros(20),
        ..Latency::NONE
    };
    for volatile_cache in [true, false] {
        let options = EmuOptions {
            zone_size: Blocks(512),
            zone_capacity: Blocks(500),
            volatile_cache,
            latency,
            reorder: false,
            track_power_cuts: false,
            ..options()
        };
        let (latencies, replaced) = append_latencies(options, 8, 2000);
        assert!(replaced >= 30, "{replaced} zones were replaced");
        for (at, latency) in latencies.iter().enumerate() {
            let mut around = latencies[at.saturating_sub(32)..(at + 32).min(latencies.len())].to_vec();
            around.sort_unstable();
            let median = around[around.len() / 2];
            assert!(*latency <= 3 * median, "append {at} took {latency:?}, its neighbours {median:?}");
        }
        let slowest = latencies.iter().max();
        println!("volatile {volatile_cache}: {replaced} zones left, the slowest append took {slowest:?}");
    }
}
