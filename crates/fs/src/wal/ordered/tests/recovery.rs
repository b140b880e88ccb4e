//! Tests of an ordered log's recovery with damaged, foreign and old content in zones.

use super::*;

/// A log of three entries of `blocks` blocks each in zone 1.
fn three_entries(blocks: usize) -> (Bench, Vec<u8>, usize) {
    let bench = Bench::tiny();
    let writer = bench.writer(blocks);
    let each = blocks * BLOCK - HEADER_SIZE;
    bench.run(async {
        writer.append(&pattern(0, 3 * each)).await.expect("room");
        writer.sync().await.expect("syncs");
    });
    assert_eq!(bench.pointer(1), 3 * blocks as u64);
    let raw = bench.raw(1);
    (bench, raw, each)
}

#[test]
fn a_torn_entry_is_refused_wherever_it_is_torn() {
    const BLOCKS: usize = 4;
    let (bench, raw, each) = three_entries(BLOCKS);
    for torn in 0..BLOCKS {
        for garbage in [0_u8, 0xff] {
            bench.reset(1);
            let mut image = raw.clone();
            image[(2 * BLOCKS + torn) * BLOCK..].fill(garbage);
            bench.put_raw(1, &image);
            let found = bench.recover(&FIRST);
            assert_eq!(bench.content(&found), pattern(0, 2 * each), "torn after {torn} blocks");
            assert_eq!((found.used, found.next_sequence, found.dropped), (vec![Blocks(8)], 2, 0));
        }
    }
}

#[test]
fn one_lost_block_within_an_entry_is_noticed() {
    const BLOCKS: usize = 4;
    let (bench, raw, each) = three_entries(BLOCKS);
    for lost in 0..3 * BLOCKS {
        bench.reset(1);
        let mut image = raw.clone();
        image[lost * BLOCK..(lost + 1) * BLOCK].fill(0);
        bench.put_raw(1, &image);
        let found = bench.recover(&FIRST);
        let kept = lost / BLOCKS;
        assert_eq!(bench.content(&found), pattern(0, kept * each), "block {lost} lost");
        assert_eq!(found.dropped, 2 - kept, "the entries after the gap are valid, and not kept");
    }
}

#[test]
fn a_log_is_continued_after_a_torn_entry_within_a_zone() {
    let (bench, raw, each) = three_entries(4);
    bench.reset(1);
    bench.put_raw(1, &raw[..10 * BLOCK]);
    let found = bench.recover(&FIRST);
    assert_eq!(found.next_sequence, 2);
    // The log is opened again behind the torn entry: a new epoch with a recorded cut.
    let cuts = [FIRST[0], Cut { epoch: 2, first_sequence: 2 }];
    bench.source.left.lock().push_front(segment(1, 10, 14));
    let (dev, source) = (bench.dev(), bench.source.clone());
    let options = LogOptions { buffer: 2 * BLOCK, ..LogOptions::default() };
    let writer =
        LogWriter::new(dev, identity(2), 2, LogIndex::starting_at(Bytes(found.size)), options, source);
    bench.run(async {
        writer.append(b"more").await.expect("room");
        writer.sync().await.expect("syncs");
    });
    let found = bench.recover_from(&cuts, &[segment(1, 0, 14)]);
    let expected = [pattern(0, 2 * each), b"more".to_vec()].concat();
    assert_eq!((bench.content(&found), found.used), (expected, vec![Blocks(11)]));
}

#[test]
fn entries_of_an_older_epoch_after_the_cut_do_not_count() {
    let bench = Bench::tiny();
    let writer = bench.writer(1);
    bench.run(async {
        for record in [b"a", b"b", b"c"] {
            writer.append(record).await.expect("room");
            writer.sync().await.expect("syncs");
        }
    });
    // Entry "c" reappears on the medium after the log was reopened without it.
    let cuts = [FIRST[0], Cut { epoch: 2, first_sequence: 2 }];
    let found = bench.recover(&cuts);
    assert_eq!((bench.content(&found), found.next_sequence), (b"ab".to_vec(), 2));
}

#[test]
fn entries_of_an_earlier_use_of_the_zone_are_refused() {
    let (bench, _, each) = three_entries(2);
    let old = Segment { generation: GENERATION + 1, ..segment(1, 0, 14) };
    assert_eq!(bench.recover_from(&FIRST, &[old]).size, 0);
    assert_eq!(bench.recover_from(&FIRST, &[segment(1, 0, 14)]).size, 3 * each as u64);
}

#[test]
fn a_log_of_another_file_system_is_empty() {
    let (bench, ..) = three_entries(2);
    let other = Uuid::from_bytes([9; 16]);
    let found =
        bench.run(recover(&bench.dev(), other, LOG, &FIRST, &[segment(1, 0, 14)])).expect("no failure");
    assert_eq!(found.size, 0);
}

#[test]
fn an_entry_copied_to_another_zone_is_refused() {
    let (bench, raw, _) = three_entries(2);
    bench.put_raw(9, &raw);
    assert_eq!(bench.recover_from(&FIRST, &[segment(9, 0, 14)]).size, 0);
}

#[test]
fn logs_that_share_a_zone_find_their_own() {
    let bench = Bench::tiny();
    let log = |id: u64, parts: [Segment; 2]| {
        let source = Zones { left: Mutex::new(parts.into()), ..Zones::default() };
        let options = LogOptions { buffer: 2 * BLOCK, ..LogOptions::default() };
        LogWriter::new(
            bench.dev(),
            LogIdentity { log: id, ..identity(1) },
            0,
            LogIndex::starting_at(Bytes(0)),
            options,
            Arc::new(source),
        )
    };
    let one = log(1, [segment(1, 0, 3), segment(1, 6, 9)]);
    let two = log(2, [segment(1, 3, 6), segment(1, 9, 12)]);
    bench.run(async {
        let each = 3 * BLOCK - 2 * HEADER_SIZE;
        for (log, from) in [(&one, 0), (&two, 1 << 20), (&one, each), (&two, (1 << 20) + each)] {
            log.append(&pattern(from, each)).await.expect("room");
            log.sync().await.expect("syncs");
        }
    });
    for (id, from) in [(1, 0), (2, 1 << 20)] {
        let whole = [segment(1, 0, 14)];
        let found = bench.run(recover(&bench.dev(), uuid(), id, &FIRST, &whole)).expect("recovers");
        let all = bench.content_of(id, &found);
        assert_eq!(all, pattern(from, all.len()), "log {id}");
        assert_eq!((all.len(), found.missing), (6 * BLOCK - 4 * HEADER_SIZE, None));
    }
}

#[test]
fn the_parts_of_an_entry_above_the_transfer_limit_count_all_or_not_at_all() {
    let bench = Bench::new(EmuOptions::tiny(), 2);
    let writer = bench.writer(6);
    let each = 6 * BLOCK - 3 * HEADER_SIZE;
    bench.run(async {
        writer.append(&pattern(0, 2 * each)).await.expect("room");
        writer.sync().await.expect("syncs");
    });
    let (raw, found) = (bench.raw(1), bench.recover(&FIRST));
    assert_eq!((raw.len(), found.next_sequence, found.index.len()), (12 * BLOCK, 2, 6));
    assert_eq!(bench.content(&found), pattern(0, 2 * each));
    for lost in 0..12 {
        bench.reset(1);
        let mut image = raw.clone();
        image[lost * BLOCK..(lost + 1) * BLOCK].fill(0);
        bench.put_raw(1, &image);
        let found = bench.recover(&FIRST);
        assert_eq!(bench.content(&found), pattern(0, lost / 6 * each), "block {lost} lost");
    }
}

#[test]
fn an_entry_across_two_zones_counts_as_one() {
    let bench = Bench::tiny();
    let writer = bench.writer(10);
    bench.run(async {
        writer.append(&pattern(0, 18 * BLOCK)).await.expect("room");
        writer.sync().await.expect("syncs");
    });
    let found = bench.recover(&FIRST);
    assert_eq!((bench.content(&found), found.next_sequence), (pattern(0, 18 * BLOCK), 2));
    assert_eq!(found.used, vec![Blocks(14), Blocks(5)]);
    let (first, second) = (segment(1, 0, 14), segment(2, 0, 14));
    assert_eq!(bench.recover_from(&FIRST, &[first, second]).index, found.index);
    let half = bench.recover_from(&FIRST, &[first]);
    assert_eq!((half.next_sequence, half.dropped), (1, 1));
}

/// A valid entry of this log with the next sequence, to be embedded in the second block of a record.
fn forged_entry(sequence: u64) -> Vec<u8> {
    let header = EntryHeader {
        padding: false,
        odd: false,
        void: false,
        known: false,
        rewritten: false,
        log: LOG,
        generation: GENERATION,
        sequence,
        needs: sequence,
        epoch: 1,
        part: 0,
        parts: 1,
        length: 6,
        mask: 0,
        open: u32::MAX,
        crc: 0,
    };
    let mut block = vec![0; BLOCK];
    block[HEADER_SIZE..HEADER_SIZE + 6].copy_from_slice(b"forged");
    header.seal(&mut block, &Home { uuid: uuid(), zone: ZoneId(1) }, BLOCK);
    block
}

#[test]
fn an_entry_embedded_in_a_payload_is_not_recovered() {
    let bench = Bench::tiny();
    bench.put_raw(1, &forged_entry(0));
    assert_eq!(
        bench.content(&bench.recover_from(&FIRST, &[segment(1, 0, 14)])),
        b"forged",
        "the embedded entry is valid by itself"
    );
    bench.reset(1);

    let writer = bench.writer(4);
    let record = [pattern(0, BLOCK - HEADER_SIZE), forged_entry(0), forged_entry(1)].concat();
    bench.run(async {
        writer.append(&record).await.expect("room");
        let mut unwritten = vec![0; record.len()];
        writer.read_at(Bytes(0), &mut unwritten).await.expect("reads");
        assert_eq!(unwritten, record);
        writer.sync().await.expect("syncs");
    });
    let found = bench.recover(&FIRST);
    assert_eq!((bench.content(&found), found.dropped), (record, 0));
    // The outer entry is torn: the entry embedded in it is still not recovered.
    let mut image = bench.raw(1);
    image[..BLOCK].fill(0);
    bench.reset(1);
    bench.put_raw(1, &image);
    let found = bench.recover(&FIRST);
    assert_eq!((found.size, found.dropped), (0, 0));
}

#[test]
fn padding_entries_are_skipped() {
    let bench = Bench::tiny();
    let mut block = vec![0; BLOCK];
    let header = EntryHeader::parse(&forged_entry(0)).expect("a header");
    EntryHeader { padding: true, length: 0, ..header }.seal(
        &mut block,
        &Home { uuid: uuid(), zone: ZoneId(1) },
        BLOCK,
    );
    bench.put_raw(1, &block);
    bench.put_raw(1, &forged_entry(0));
    let found = bench.recover_from(&FIRST, &[segment(1, 0, 14)]);
    assert_eq!((bench.content(&found), found.dropped), (b"forged".to_vec(), 0));
}

#[test]
fn recovery_reads_each_written_block_once() {
    for zones in [1_usize, 4, 16] {
        let options =
            EmuOptions { zone_size: Blocks(1024), zone_capacity: Blocks(1000), ..EmuOptions::tiny() };
        let bench = Bench::new(EmuOptions { track_power_cuts: false, ..options }, 1024);
        let writer = bench.writer(7);
        let len = zones * 1000 * BLOCK - BLOCK * 500;
        bench.run(async {
            writer.append(&pattern(0, len)).await.expect("room");
            writer.sync().await.expect("syncs");
        });
        let written: u64 = (1..32).map(|zone| bench.pointer(zone)).sum();
        let found = bench.recover(&FIRST);
        assert_eq!(found.size, len as u64);
        assert_eq!(bench.drive.blocks_read.load(Ordering::Relaxed), written);
        let most = written.div_ceil(256) + zones as u64;
        assert!(bench.drive.reads.load(Ordering::Relaxed) <= most, "reads are large");
        assert_eq!(bench.content(&found), pattern(0, len));
    }
}

#[test]
fn recovery_reads_nothing_past_the_write_pointer() {
    let bench = Bench::new(EmuOptions { read_past_pointer: false, ..EmuOptions::tiny() }, 64);
    let writer = bench.writer(4);
    bench.run(async {
        writer.append(b"some").await.expect("room");
        writer.sync().await.expect("syncs");
    });
    assert_eq!(bench.content(&bench.recover(&FIRST)), b"some");
}

#[test]
fn a_log_without_segments_is_recovered_as_empty() {
    let bench = Bench::tiny();
    let found = bench.recover_from(&FIRST, &[]);
    assert_eq!((found.size, found.next_sequence, found.used), (0, 0, vec![]));
    assert_eq!(bench.recover_from(&FIRST, &[segment(3, 0, 14)]).used, vec![Blocks(0)]);
}

#[test]
fn epochs_out_of_order_are_refused() {
    let bench = Bench::tiny();
    let cuts = [Cut { epoch: 2, first_sequence: 0 }, Cut { epoch: 1, first_sequence: 5 }];
    let refused = bench.run(recover(&bench.dev(), uuid(), LOG, &cuts, &[])).expect_err("out of order");
    assert_eq!(refused.kind(), ErrorKind::Corrupt);
}

#[test]
fn a_read_error_fails_the_recovery_instead_of_shortening_the_log() {
    let (bench, ..) = three_entries(2);
    bench.drive.emu.fail(zoned::emu::FaultSpec::next(zoned::emu::FaultOp::Read));
    let segments = [segment(1, 0, 14)];
    let failed =
        bench.run(recover(&bench.dev(), uuid(), LOG, &FIRST, &segments)).expect_err("the device fails");
    assert_eq!(failed.kind(), ErrorKind::Device(zoned::ErrorKind::Media));
    assert_eq!(Lba(0), bench.drive.geometry.start(ZoneId(0)));
}
