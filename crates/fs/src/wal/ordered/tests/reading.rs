//! Tests of reading a log with read-ahead, from its beginning to its end.

use std::future::Future;
use std::pin::pin;
use std::task::{Context, Waker};
use std::time::Duration;

use units::sync::Event;
use units::{Instant, spawn};
use zoned::emu::Latency;

use super::*;
use crate::background::BackgroundTasks;
use crate::rules::Rules;
use crate::wal::ordered::stream::MAX_HELD_BYTES;
use crate::wal::ordered::stream::{LogStream, MEMORY, UnrecoveredLog, stream};

/// Entry `sequence` of one block, whose bytes name its place in the log.
fn entry(zone: u32, sequence: u64, odd: bool) -> Vec<u8> {
    let bytes = BLOCK - HEADER_SIZE;
    let payload = pattern(usize::try_from(sequence).expect("small") * bytes, bytes);
    sealed(zone, sequence, (0, 1), odd, &payload)
}

fn sealed(zone: u32, sequence: u64, (part, parts): (u16, u16), odd: bool, payload: &[u8]) -> Vec<u8> {
    let header = EntryHeader {
        padding: false,
        odd,
        void: false,
        known: false,
        rewritten: false,
        log: LOG,
        generation: GENERATION,
        sequence,
        needs: sequence,
        epoch: 1,
        part,
        parts,
        length: u32::try_from(payload.len()).expect("short"),
        mask: 0,
        open: u32::MAX,
        crc: 0,
    };
    let mut blocks = vec![0; (HEADER_SIZE + payload.len()).next_multiple_of(BLOCK)];
    blocks[HEADER_SIZE..HEADER_SIZE + payload.len()].copy_from_slice(payload);
    header.seal(&mut blocks, &Home { uuid: uuid(), zone: ZoneId(zone) }, BLOCK);
    blocks
}

/// An emulated drive with zones of 64 MiB and a given read latency.
fn drive_with_large_zones(read: Duration) -> Bench {
    let latency = Latency { read, ..Latency::NONE };
    let (zone_size, zone_capacity) = (Blocks(16 << 10), Blocks(16 << 10));
    let options = EmuOptions { zone_size, zone_capacity, latency, ..EmuOptions::tiny() };
    Bench::new(EmuOptions { track_power_cuts: false, ..options }, 1024)
}

impl Bench {
    /// Writes entries into a zone, in the given order.
    fn put_all(&self, zone: u32, entries: impl Iterator<Item = (u64, bool)>) {
        let bytes: Vec<u8> = entries.flat_map(|(sequence, odd)| entry(zone, sequence, odd)).collect();
        bytes.chunks(1024 * BLOCK).for_each(|bytes| self.put_raw(zone, bytes));
    }

    /// Begins a stream that recovers the log; the task returns the result of the recovery.
    fn stream(&self, segments: &[Segment]) -> (LogStream, units::Spawned<Result<Recovered>>) {
        let unrecovered = UnrecoveredLog {
            uuid: uuid(),
            log: LOG,
            cuts: FIRST.to_vec(),
            segments: segments.to_vec(),
            rules: Rules::default(),
        };
        let (stream, mut filler) = stream(&self.dev(), check(), &BackgroundTasks::default());
        let filled = spawn(&*self.driver, "reader", async move {
            let found = filler.recover(&unrecovered).await;
            filler.end(found.as_ref().map(drop).map_err(Clone::clone));
            found
        });
        (stream, filled)
    }

    /// All bytes of the stream, read in steps of `step` bytes.
    fn drain(&self, stream: &mut LogStream, step: usize) -> Result<Vec<u8>> {
        self.run(async {
            let mut all = Vec::new();
            loop {
                let mut some = vec![0; step];
                let got = stream.read(&mut some).await?;
                all.extend_from_slice(&some[..got]);
                if got < step {
                    return Ok(all);
                }
            }
        })
    }
}

#[test]
fn a_stream_gives_what_recovery_and_the_index_give() {
    // Log entries longer than a block, with parts, across zones and chunks; and a payload that needs a mask.
    let bench = Bench::new(
        EmuOptions {
            zone_size: Blocks(1024),
            zone_capacity: Blocks(1000),
            track_power_cuts: false,
            ..EmuOptions::tiny()
        },
        37,
    );
    let writer = bench.writer(50);
    let mut record = pattern(0, 9_000_000);
    for at in (0..record.len() - 4).step_by(BLOCK / 2) {
        record[at..at + 4].copy_from_slice(b"FuLe");
    }
    bench.run(async {
        writer.append(&record).await.expect("room");
        writer.sync().await.expect("syncs");
    });
    let segments = bench.source.given.lock().clone();
    let expected = bench.recover(&FIRST);
    for step in [1000, 4096, 32 << 10, 3 << 20] {
        let (mut stream, filled) = bench.stream(&segments);
        assert!(bench.drain(&mut stream, step).expect("reads") == record, "in steps of {step}");
        assert_eq!(stream.position(), record.len() as u64);
        assert_eq!(bench.run(filled).expect("recovers"), expected);
        // The index gives the same bytes as the stream.
        let (mut stream, mut filler) = stream_of(&bench);
        let index = expected.index.clone();
        let _filled = spawn(&*bench.driver, "reader", async move {
            let end = filler.follow(&index).await;
            filler.end(end);
        });
        assert!(bench.drain(&mut stream, step).expect("reads") == record, "by the index in steps of {step}");
    }
}

fn stream_of(bench: &Bench) -> (LogStream, crate::wal::ordered::stream::Filler) {
    stream(&bench.dev(), check(), &BackgroundTasks::default())
}

#[test]
fn reading_a_log_reads_each_block_once() {
    let bench = drive_with_large_zones(Duration::ZERO);
    bench.put_all(1, (0..2000).map(|n| (n, false)));
    let (mut stream, _filled) = bench.stream(&[segment(1, 0, 16 << 10)]);
    let all = bench.drain(&mut stream, 32 << 10).expect("reads");
    assert!(all == pattern(0, 2000 * (BLOCK - HEADER_SIZE)));
    assert_eq!(bench.drive.blocks_read.load(Ordering::Relaxed), 2000);
}

#[test]
fn a_slow_drive_is_read_at_its_full_rate() {
    // A read takes a millisecond, whatever its length: twelve reads in flight give 12 MiB in each
    // millisecond.
    let bench = drive_with_large_zones(Duration::from_millis(1));
    bench.put_all(1, (0..16 << 10).map(|n| (n, false)));
    let (mut stream, _filled) = bench.stream(&[segment(1, 0, 16 << 10)]);
    let begun = bench.driver.now();
    let all = bench.drain(&mut stream, 32 << 10).expect("reads");
    let took = bench.driver.now().0 - begun.0;
    assert_eq!(all.len(), (16 << 10) * (BLOCK - HEADER_SIZE));
    assert!(took <= Duration::from_millis(7).as_nanos() as u64, "64 MiB took {took} ns");
}

/// Times in which a profile's drive delivers `mib` MiB of log to a stream, and the same blocks to plain
/// reads.
fn read_times_on_profile(name: &str, mib: u64) -> (u64, u64) {
    let profile = zoned::emu::Profile::load(name).expect("a profile");
    let base = EmuOptions { track_power_cuts: false, zones: 4, ..EmuOptions::tiny() };
    let (zone_size, zone_capacity) = (Blocks(mib * 256), Blocks(mib * 256));
    let options = EmuOptions { profile: Some(Arc::new(profile)), zone_size, zone_capacity, ..base };
    let bench = Bench::new(options, 1024);
    bench.put_all(1, (0..mib * 256).map(|n| (n, false)));
    let time = |work: &mut dyn FnMut()| {
        let before: Instant = bench.driver.now();
        work();
        bench.driver.now().0 - before.0
    };
    let by_stream = time(&mut || {
        let (mut stream, _filled) = bench.stream(&[segment(1, 0, mib * 256)]);
        bench.drain(&mut stream, 32 << 10).expect("reads");
    });
    let raw = time(&mut || {
        let start = bench.drive.geometry.start(ZoneId(1));
        // Plain reads in flight: as many as the drive serves at once.
        let ios = (0..mib)
            .map(|n| bench.drive.emu_dev().read(start.plus(Blocks(n * 256)), BufMut::zeroed(1 << 20)));
        let all = bench.run(zoned::join_all(ios.collect()));
        assert!(all.iter().all(std::result::Result::is_ok));
    });
    (by_stream, raw)
}

#[test]
fn reading_a_log_reaches_the_bandwidth_of_published_drives() {
    for name in ["confzns", "zn540"] {
        let (stream, raw) = read_times_on_profile(name, 64);
        assert!(
            stream * 10 <= raw * 11,
            "{name}: {stream} ns by the stream, {raw} ns at the drive's bandwidth"
        );
    }
}

#[test]
fn the_bytes_of_entries_that_wait_long_are_dropped_and_memory_is_bounded() {
    let bench = drive_with_large_zones(Duration::ZERO);
    // The log's first entry has the highest address.
    let count = 12 << 10;
    bench.put_all(1, (1..count).chain([0]).map(|n| (n, false)));
    let (mut stream, filled) = bench.stream(&[segment(1, 0, 16 << 10)]);
    let all = bench.drain(&mut stream, 32 << 10).expect("reads");
    assert!(all == pattern(0, count as usize * (BLOCK - HEADER_SIZE)));
    let stats = stream.stats();
    assert_eq!(stats.bytes, Bytes(all.len() as u64));
    assert!(stats.again.0 > all.len() as u64 - 2 * MAX_HELD_BYTES, "{stats:?}");
    assert!(stats.peak <= MEMORY, "{stats:?}");
    assert_eq!(bench.run(filled).expect("recovers").size, all.len() as u64);
}

#[test]
fn an_entry_that_is_read_a_second_time_is_checked_again() {
    let bench = drive_with_large_zones(Duration::ZERO);
    let count = 12 << 10;
    bench.put_all(1, (1..count).chain([0]).map(|n| (n, false)));
    let (mut stream, filled) = bench.stream(&[segment(1, 0, 16 << 10)]);
    bench.run(async { stream.read(&mut [0; 100]).await.expect("reads") });
    bench.run(filled).expect("recovers");
    // A bit of entry 5 flips on the medium before the second read.
    bench.reset(1);
    bench.put_all(1, (1..5).map(|n| (n, false)));
    let mut damaged = entry(1, 5, false);
    damaged[1000] ^= 1;
    bench.put_raw(1, &damaged);
    bench.put_all(1, (6..count).chain([0]).map(|n| (n, false)));
    let each = BLOCK - HEADER_SIZE;
    let mut before = vec![0; 5 * each - 100];
    assert_eq!(bench.run(stream.read(&mut before)).expect("reads"), before.len());
    assert_eq!(before, pattern(100, before.len()));
    let error = bench.run(stream.read(&mut [0; 10])).expect_err("damage");
    assert_eq!(error.kind(), ErrorKind::Corrupt);
    assert!(error.to_string().contains(&format!("lost its {each} bytes from {} on", 5 * each)), "{error}");
}

#[test]
fn a_part_longer_than_a_transfer_is_read_in_several_and_checked() {
    let bench = drive_with_large_zones(Duration::ZERO);
    let whole = pattern(0, 60_000);
    bench.put_raw(1, &sealed(1, 0, (0, 2), false, &whole[..30_000]));
    bench.put_raw(1, &sealed(1, 0, (1, 2), false, &whole[30_000..]));
    let found = bench.recover_from(&FIRST, &[segment(1, 0, 16 << 10)]);
    let geometry = Geometry { max_transfer: Blocks(2), ..bench.drive.geometry.clone() };
    for (from, len) in [(0, 60_000), (4000, 200), (29_999, 2), (59_999, 1), (12_345, 40_000)] {
        let plan = found.index.plan(&geometry, from as u64, len);
        assert!(plan.runs.len() >= 4 && plan.runs.iter().all(|run| run.blocks <= Blocks(2)));
        let mut into = vec![0; len];
        assert_eq!(bench.run(plan.read(&bench.dev(), check(), &mut into)).expect("reads"), len);
        assert!(into == whole[from..from + len], "{len} bytes at {from}");
    }
}

#[test]
fn a_reader_that_pauses_stops_the_read_ahead() {
    let bench = drive_with_large_zones(Duration::from_micros(10));
    bench.put_all(1, (0..16 << 10).map(|n| (n, false)));
    let (mut stream, _filled) = bench.stream(&[segment(1, 0, 16 << 10)]);
    let mut first = vec![0; 100];
    bench.run(async {
        stream.read(&mut first).await.expect("reads");
        let later = bench.driver.now().after(Duration::from_secs(1));
        units::sleep_until(&*bench.driver, later).await;
    });
    assert_eq!(first, pattern(0, 100));
    let read = bench.drive.blocks_read.load(Ordering::Relaxed) * BLOCK as u64;
    assert!(read <= MEMORY.0 + (1 << 20), "{read} bytes were read for a reader that wants no more");
    assert!(stream.stats().peak <= MEMORY);
    let rest = bench.drain(&mut stream, 1 << 20).expect("reads");
    assert_eq!(rest.len() + 100, (16 << 10) * (BLOCK - HEADER_SIZE));
}

#[test]
fn dropping_a_stream_ends_its_filler() {
    let bench = drive_with_large_zones(Duration::from_micros(10));
    bench.put_all(1, (0..16 << 10).map(|n| (n, false)));
    let (mut stream, filled) = bench.stream(&[segment(1, 0, 16 << 10)]);
    bench.run(async { stream.read(&mut [0; 100]).await.expect("reads") });
    drop(stream);
    assert_eq!(bench.run(filled).expect_err("the stream was dropped").kind(), ErrorKind::Closed);
}

#[test]
fn a_gap_ends_the_stream_and_later_entries_prove_the_damage() {
    let bench = drive_with_large_zones(Duration::ZERO);
    bench.put_all(1, (0..10).chain(11..5000).map(|n| (n, false)));
    // The log's last entry proves that the lost one was durable.
    let segments = [segment(1, 0, 16 << 10)];
    let mut last = entry(1, 5000, false);
    let mut header = EntryHeader::parse(&last).expect("a header");
    header.open = 0;
    header.seal(&mut last, &Home { uuid: uuid(), zone: ZoneId(1) }, BLOCK);
    bench.put_raw(1, &last);
    let (mut stream, filled) = bench.stream(&segments);
    let all = bench.drain(&mut stream, 1000).expect("reads");
    assert!(all == pattern(0, 10 * (BLOCK - HEADER_SIZE)));
    let found = bench.run(filled).expect("recovers");
    assert_eq!((found.missing, found.dropped), (Some(10), 4990));
    assert_eq!(found, bench.recover_from(&FIRST, &segments));
}

#[test]
fn a_read_error_reaches_the_reader_instead_of_an_end() {
    let bench = drive_with_large_zones(Duration::ZERO);
    bench.put_all(1, (0..100).map(|n| (n, false)));
    bench.drive.emu.fail(zoned::emu::FaultSpec::next(zoned::emu::FaultOp::Read));
    let (mut stream, _filled) = bench.stream(&[segment(1, 0, 16 << 10)]);
    let failed = bench.drain(&mut stream, 1000).expect_err("the device fails");
    assert_eq!(failed.kind(), ErrorKind::Device(zoned::ErrorKind::Media));
}

#[test]
fn parts_and_regions_in_any_order_are_read_in_the_order_of_the_stream() {
    let bench = drive_with_large_zones(Duration::ZERO);
    let whole = pattern(0, 7 * 3000);
    let piece = |n: usize| &whole[n * 3000..(n + 1) * 3000];
    // Entry 0 has one part, entry 1 three and entry 2 one; then a barrier; then entries 3 and 4.
    let places = [
        sealed(1, 2, (0, 1), false, piece(4)),
        sealed(1, 1, (2, 3), false, piece(3)),
        sealed(1, 1, (0, 3), false, piece(1)),
        sealed(1, 0, (0, 1), false, piece(0)),
        sealed(1, 1, (1, 3), false, piece(2)),
        sealed(1, 4, (0, 1), true, piece(6)),
        sealed(1, 3, (0, 1), true, piece(5)),
    ];
    places.iter().for_each(|bytes| bench.put_raw(1, bytes));
    let segments = [segment(1, 0, 16 << 10)];
    let (mut stream, filled) = bench.stream(&segments);
    assert!(bench.drain(&mut stream, 700).expect("reads") == whole);
    // Random reads of the log, by stream offset.
    let found = bench.run(filled).expect("recovers");
    for (from, len) in
        [(0, 1), (2999, 2), (3000, 9000), (100, 20_000), (20_999, 1), (20_999, 50), (21_000, 5)]
    {
        let mut into = vec![0; len];
        let got = bench
            .run(found.index.read_at(&bench.dev(), check(), Bytes(from as u64), &mut into))
            .expect("reads");
        let expected = &whole[from..(from + len).min(whole.len())];
        assert_eq!((got, &into[..got]), (expected.len(), expected));
    }
    // All parts of the entries are adjacent: one device operation reads them in any order.
    bench.drive.reads.store(0, Ordering::Relaxed);
    let mut all = vec![0; whole.len()];
    bench.run(found.index.read_at(&bench.dev(), check(), Bytes(0), &mut all)).expect("reads");
    assert_eq!((all == whole, bench.drive.reads.load(Ordering::Relaxed)), (true, 1));
}

#[test]
fn an_unmount_waits_for_the_filler_of_a_dropped_stream() {
    let bench = drive_with_large_zones(Duration::ZERO);
    let (background, space) = (BackgroundTasks::default(), Event::default());
    let unmounted = || all_ended_now(&background, &space);
    let (stream, filler) = stream(&bench.dev(), check(), &background);
    assert!(unmounted(), "a reader that its caller holds stops no unmount");
    drop(stream);
    assert!(!unmounted(), "the filler still references the device");
    filler.end(Ok(()));
    assert!(unmounted());
}

/// Whether an unmount that waits for the background tasks has nothing to wait for.
fn all_ended_now(background: &BackgroundTasks, space: &Event) -> bool {
    let ended = pin!(background.all_ended(space));
    ended.poll(&mut Context::from_waker(Waker::noop())).is_ready()
}

#[test]
fn small_entries_are_read_along_their_index_in_bounded_memory() {
    // A log whose records were synced one by one: 100 bytes in each block.
    let bench = drive_with_large_zones(Duration::ZERO);
    let content = pattern(0, 1_200_000);
    let blocks: Vec<u8> = content
        .chunks(100)
        .zip(0_u64..)
        .flat_map(|(bytes, sequence)| sealed(1, sequence, (0, 1), false, bytes))
        .collect();
    blocks.chunks(1024 * BLOCK).for_each(|bytes| bench.put_raw(1, bytes));
    let found = bench.recover_from(&FIRST, &[segment(1, 0, 16 << 10)]);
    let (mut stream, mut filler) = stream_of(&bench);
    let _filled = spawn(&*bench.driver, "reader", async move {
        let end = filler.follow(&found.index).await;
        filler.end(end);
    });
    assert!(bench.drain(&mut stream, 32 << 10).expect("reads") == content);
    assert!(stream.stats().peak <= MEMORY, "{:?}", stream.stats());
}
