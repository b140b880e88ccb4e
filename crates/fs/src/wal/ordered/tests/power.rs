//! Power cuts of an ordered log: no synced byte is lost, no byte is invented, and the surviving bytes are a
//! prefix.

use std::collections::BTreeSet;
use std::time::Duration;

use units::{sleep_until, spawn};
use zoned::emu::{Exhaustive, Latency, Seeded};

use super::*;
use crate::rules::BrokenRule;

/// The bytes of the log that a power cut may leave: at least `durable`, at most `appended`.
struct SurvivingBytes {
    durable: usize,
    appended: usize,
}

/// Recovers the log from one image of the medium; returns its number of bytes, or the defect found.
fn check(media: Media, segments: &[Segment], bounds: &SurvivingBytes) -> Result<usize, String> {
    let bench = Bench::from_media(media);
    let found = bench.recover_from(&FIRST, segments);
    let all = bench.content(&found);
    if all.len() < bounds.durable {
        return Err(format!("lost: {} bytes of {} synced ones", all.len(), bounds.durable));
    }
    if all.len() > bounds.appended || all != pattern(0, all.len()) {
        return Err(format!("invented: {} bytes", all.len()));
    }
    assert_eq!(found.missing, None);
    // The log is continued in a new epoch after the power cut.
    let cuts = [FIRST[0], Cut { epoch: 2, first_sequence: found.next_sequence }];
    let zone = segments.last().map_or(1, |s| s.zone.0 + 1);
    bench.source.left.lock().retain(|s| s.zone.0 >= zone);
    let (dev, source) = (bench.dev(), bench.source.clone());
    let at = found.next_sequence;
    let writer = LogWriter::new(
        dev,
        identity(2),
        at,
        LogIndex::starting_at(Bytes(found.size)),
        LogOptions::default(),
        source,
    );
    bench.run(async {
        writer.append(&pattern(all.len(), 5000)).await.expect("room");
        writer.sync().await.expect("syncs");
    });
    let segments = [segments, &*bench.source.given.lock()].concat();
    let again = bench.recover_from(&cuts, &segments);
    if bench.content(&again) != pattern(0, all.len() + 5000) {
        return Err("lost: the reopened log does not have the appended bytes".into());
    }
    Ok(all.len())
}

/// Runs appends and syncs on a drive with `conventional` conventional zones, and cuts the power before, during and after each device operation. Checks every
/// outcome of a cut if there are at most `bound`; otherwise the first `bound` outcomes and as many random
/// ones.
fn explore(
    broken_rule: Option<BrokenRule>,
    conventional: u32,
    buffer: usize,
    transfer: u64,
    steps: &[(usize, bool)],
    bound: u64,
) -> Result<usize, String> {
    let delay =
        Latency { write: Duration::from_micros(10), flush: Duration::from_micros(100), ..Latency::NONE };
    let bench = Bench::new(EmuOptions { latency: delay, conventional, ..EmuOptions::tiny() }, transfer);
    let zones = LogZones::Conventional;
    let options = LogOptions { buffer: buffer * BLOCK, zones, broken_rule, ..LogOptions::default() };
    let writer = LogWriter::new(
        bench.dev(),
        identity(1),
        0,
        LogIndex::starting_at(Bytes(0)),
        options,
        bench.source.clone(),
    );
    *bench.drive.moments.lock() = Some(Vec::new());
    bench.run(async {
        let mut appended = 0;
        for &(len, sync) in steps {
            bench.drive.appended.store((appended + len) as u64, Ordering::Relaxed);
            writer.append(&pattern(appended, len)).await.expect("room");
            appended += len;
            if sync {
                writer.sync().await.expect("syncs");
                bench.drive.synced.store(appended as u64, Ordering::Relaxed);
            }
        }
    });
    bench.drive.remember();
    let moments = bench.drive.moments.lock().take().expect("they were wanted");
    let segments = bench.source.given.lock().clone();
    let mut images = BTreeSet::new();
    for moment in moments {
        let mut all = Exhaustive::new();
        let mut cuts = 0;
        let mut outcomes: Vec<Media> = Vec::new();
        while cuts < bound && all.next() {
            cuts += 1;
            outcomes.push(moment.media.cut(&mut all));
        }
        if cuts == bound {
            outcomes.extend((0..bound).map(|seed| moment.media.cut(&mut Seeded::new(seed))));
        }
        let bounds = SurvivingBytes { durable: moment.synced as usize, appended: moment.appended as usize };
        for media in outcomes {
            if images.insert((media.fingerprint(), moment.synced)) {
                check(media, &segments, &bounds)?;
            }
        }
    }
    Ok(images.len())
}

const STEPS: [(usize, bool); 7] =
    [(100, false), (100, true), (9000, false), (40, true), (4000, false), (20_000, false), (1, true)];

#[test]
fn nothing_synced_is_lost_and_a_prefix_survives() {
    let states = explore(None, 0, 3, 64, &STEPS, 300).expect("no state is wrong");
    assert!(states >= 100, "{states} distinct images");
}

#[test]
fn entries_in_parts_and_across_zones_survive_power_cuts() {
    let steps =
        [(30_000, true), (25_000, false), (100, false), (33_000, true), (9000, false), (50_000, true)];
    let states = explore(None, 0, 5, 2, &steps, 200).expect("no state is wrong");
    assert!(states >= 100, "{states} distinct images");
}

/// Records that fill a block of a conventional zone in several versions, with and without a sync in between, and records longer than a block.
const SHORT_STEPS: [(usize, bool); 14] = [
    (100, true),
    (50, false),
    (900, true),
    (1, true),
    (2500, false),
    (300, true),
    (5000, false),
    (200, true),
    (3000, true),
    (3500, false),
    (10, true),
    (9000, true),
    (700, false),
    (20, true),
];

#[test]
fn blocks_rewritten_in_place_survive_power_cuts() {
    let mut states = 0;
    for (conventional, buffer, transfer) in [(32, 1, 64), (32, 3, 64), (32, 5, 2), (2, 2, 64)] {
        states += explore(None, conventional, buffer, transfer, &SHORT_STEPS, 300)
            .unwrap_or_else(|found| panic!("{conventional} conventional zones, buffer {buffer}: {found}"));
    }
    assert!(states >= 100, "{states} distinct images");
}

#[test]
fn versions_of_a_block_under_one_sequence_are_found_out() {
    let found = explore(Some(BrokenRule::RewriteSequence), 32, 1, 64, &SHORT_STEPS, 300)
        .expect_err("the broken rule shows");
    assert!(found.starts_with("invented"), "{found}");
}

#[test]
fn a_sync_that_does_not_flush_is_found_out() {
    let found = explore(Some(BrokenRule::Sync), 0, 3, 64, &STEPS, 300).expect_err("the broken rule shows");
    assert!(found.starts_with("lost"), "{found}");
}

#[test]
fn records_that_concurrent_tasks_synced_survive_every_cut() {
    const TASKS: u8 = 6;
    const ROUNDS: u8 = 5;
    let delay =
        Latency { write: Duration::from_micros(10), flush: Duration::from_micros(25), ..Latency::NONE };
    let bench = Bench::new(EmuOptions { latency: delay, ..EmuOptions::tiny() }, 2);
    let writer = Arc::new(bench.writer(3));
    *bench.drive.moments.lock() = Some(Vec::new());
    let tasks: Vec<_> = (0..TASKS)
        .map(|task| {
            let (writer, drive, driver) = (writer.clone(), bench.drive.clone(), bench.driver.clone());
            spawn(&*bench.driver, "syncer", async move {
                for round in 0..ROUNDS {
                    // A test record: two bytes of name, two of length, and the record's other bytes.
                    let len = 4 + usize::from(task) * 700 + usize::from(round);
                    let mut record = vec![task; len];
                    record[1] = round;
                    record[2..4].copy_from_slice(&(len as u16).to_le_bytes());
                    writer.append(&record).await.expect("room");
                    if (task + round) % 2 == 0 {
                        writer.sync().await.expect("syncs");
                        // Each record has a bit in `synced`, set once the record is safe from a power cut.
                        drive.synced.fetch_or(1 << (task * ROUNDS + round), Ordering::Relaxed);
                    }
                    let pause = Duration::from_micros(u64::from(task) * 7);
                    sleep_until(&*driver, driver.now().after(pause)).await;
                }
            })
        })
        .collect();
    bench.run(async {
        for task in tasks {
            task.await;
        }
    });
    let segments = bench.source.given.lock().clone();
    let moments = bench.drive.moments.lock().take().expect("they were wanted");
    assert!(moments.len() > 20, "{} moments", moments.len());
    for (number, moment) in moments.iter().enumerate() {
        for seed in 0..40 {
            let after = Bench::from_media(moment.media.cut(&mut Seeded::new(seed)));
            let all = after.content(&after.recover_from(&FIRST, &segments));
            let (mut at, mut rounds, mut seen) = (0, [0; TASKS as usize], 0_u64);
            while let Some(&[task, round, a, b]) = all[at..].first_chunk() {
                assert_eq!(round, rounds[usize::from(task)], "a task's records come in its order");
                rounds[usize::from(task)] += 1;
                at += usize::from(u16::from_le_bytes([a, b]));
                if at > all.len() {
                    break;
                }
                seen |= 1 << (task * ROUNDS + round);
            }
            assert_eq!(moment.synced & !seen, 0, "synced records lost at moment {number}, seed {seed}");
        }
    }
}
