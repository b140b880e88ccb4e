//! Tests of a log's last block in a conventional zone, which is rewritten in place.

use super::*;

fn conventional() -> Bench {
    Bench::new(EmuOptions { conventional: 32, ..EmuOptions::tiny() }, 64)
}

/// Appends and syncs `records` records of `len` bytes each, from byte `from` of the stream on.
async fn sync_records(writer: &LogWriter, from: usize, len: usize, records: usize) {
    for record in 0..records {
        writer.append(&pattern(from + record * len, len)).await.expect("room");
        writer.sync().await.expect("syncs");
    }
}

#[test]
fn short_synced_records_share_blocks() {
    let bench = conventional();
    let writer = bench.writer(16);
    bench.run(sync_records(&writer, 0, 100, 200));
    assert_eq!(bench.drive.writes.load(Ordering::Relaxed), 200, "a write for each sync");
    let index = writer.index();
    // A block takes 36 records: it is not rewritten for less than an eighth of it.
    assert_eq!(index.len(), 6);
    let found = bench.recover(&FIRST);
    assert_eq!((found.size, found.dropped, found.missing), (20_000, 0, None));
    assert_eq!(found.index, index);
    assert_eq!(bench.content(&found), pattern(0, 20_000));
}

#[test]
fn an_automatic_log_measures_two_writes_before_it_rewrites_a_block() {
    let latency = zoned::emu::Latency::all(std::time::Duration::from_micros(20));
    let bench =
        Bench::new(EmuOptions { conventional: 32, latency, volatile_cache: false, ..EmuOptions::tiny() }, 64);
    let writer = bench.writer_in(LogZones::Auto, 16);
    bench.run(sync_records(&writer, 0, 100, 2));
    assert_eq!(writer.index().len(), 2, "a block each");
    bench.run(sync_records(&writer, 200, 100, 2));
    assert_eq!(writer.index().len(), 3, "the first rewrite");
    bench.run(sync_records(&writer, 400, 100, 34));
    assert_eq!(writer.index().len(), 4, "one block for 34 records");
}

#[test]
fn an_ended_writer_sends_nothing_more() {
    let latency = zoned::emu::Latency::all(std::time::Duration::from_micros(20));
    let bench = Bench::new(EmuOptions { conventional: 32, latency, ..EmuOptions::tiny() }, 64);
    let writer = Arc::new(bench.writer(2));
    let appending = Arc::clone(&writer);
    let append = units::spawn(&*bench.driver, "append", async move {
        // The window takes a part of this record at a time.
        appending.append(&pattern(0, 400 * BLOCK)).await
    });
    bench.run(async {
        units::sleep_until(&*bench.driver, bench.driver.now().after(std::time::Duration::from_micros(30)))
            .await;
        writer.end(Error::new(ErrorKind::Closed, "a test")).await;
        let writes = bench.drive.writes.load(Ordering::Relaxed);
        assert!((1..200).contains(&writes), "{writes} writes before the end");
        assert_eq!(append.await.expect_err("the writer was ended").kind(), ErrorKind::Closed);
        assert_eq!(bench.drive.writes.load(Ordering::Relaxed), writes);
    });
}

#[test]
fn sequential_zones_keep_a_block_for_each_sync() {
    let bench = Bench::tiny();
    let writer = bench.writer(16);
    bench.run(sync_records(&writer, 0, 100, 20));
    assert_eq!(writer.index().len(), 20);
}

#[test]
fn every_byte_is_read_at_every_moment() {
    let latency = zoned::emu::Latency {
        write: std::time::Duration::from_micros(50),
        flush: std::time::Duration::from_micros(20),
        ..zoned::emu::Latency::NONE
    };
    let bench = Bench::new(EmuOptions { conventional: 32, latency, ..EmuOptions::tiny() }, 64);
    let writer = Arc::new(bench.writer(3));
    let reader = Arc::clone(&writer);
    let driver = Arc::clone(&bench.driver);
    let reads = units::spawn(&*bench.driver, "reader", async move {
        let mut partly_in_memory = 0;
        for round in 0..4000_u64 {
            let size = usize::try_from(reader.size().0).expect("small");
            let from = (round as usize * 37).min(size);
            let mut bytes = vec![0; size - from];
            let got = reader.read_at(Bytes(from as u64), &mut bytes).await.expect("reads");
            assert!(got >= bytes.len(), "{got} of {} bytes", bytes.len());
            assert_eq!(bytes, pattern(from, bytes.len()), "round {round}");
            partly_in_memory += usize::from(reader.index().size().0 > from as u64);
            units::sleep_until(&*driver, driver.now().after(std::time::Duration::from_micros(7))).await;
        }
        partly_in_memory
    });
    bench.run(async {
        for (round, from) in (0..60).zip((0..).step_by(700)) {
            writer.append(&pattern(from, 700)).await.expect("room");
            if round % 3 != 0 {
                writer.sync().await.expect("syncs");
            }
        }
        assert!(reads.await > 100);
    });
}

#[test]
fn a_log_goes_on_in_a_segment_of_its_own_after_a_close() {
    let bench = conventional();
    let writer = bench.writer(16);
    bench.run(sync_records(&writer, 0, 300, 3));
    let index = bench.run(writer.close()).expect("closes");
    let first = bench.source.given.lock().clone();
    let cuts = [FIRST[0], Cut { epoch: 2, first_sequence: writer.next_sequence() }];
    let next = LogWriter::new(
        bench.dev(),
        identity(2),
        writer.next_sequence(),
        index,
        LogOptions::default(),
        bench.source.clone(),
    );
    bench.run(sync_records(&next, 900, 300, 3));
    assert_eq!(bench.source.given.lock().len(), first.len() + 1);
    let found = bench.recover(&cuts);
    assert_eq!(bench.content(&found), pattern(0, 1800));
}

#[test]
fn blocks_of_an_earlier_generation_do_not_count() {
    let bench = conventional();
    let writer = bench.writer(1);
    bench.run(sync_records(&writer, 0, 3000, 3));
    let segments = bench.source.given.lock().clone();
    // Another log gets the same blocks.
    let again: Vec<Segment> = segments.iter().map(|s| Segment { generation: GENERATION + 1, ..*s }).collect();
    let found = bench.recover_from(&FIRST, &again);
    assert_eq!((found.size, found.missing), (0, None));
    bench.source.left.lock().push_front(again[0]);
    let second = bench.writer(1);
    bench.run(sync_records(&second, 0, 100, 1));
    let found = bench.recover_from(&FIRST, &again);
    assert_eq!(bench.content(&found), pattern(0, 100), "the older entries behind the block do not count");
}
