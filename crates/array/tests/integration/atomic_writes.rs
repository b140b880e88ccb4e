//! Arrays with atomic writes: after a power cut, with or without a drive, each zone ends behind a whole write.

use std::sync::Arc;
use std::time::Duration;

use array::{Array, BrokenRule, CreateOptions, OpenOptions, Slot};
use parking_lot::Mutex;
use units::{SplitMix64, block_on, sleep_until, spawn};
use zoned::{Action, Blocks, BufMut, Bytes, Durability, Op, ZoneId, ZoneState, ZonedDevice};

use crate::common::{BLOCK_BYTES, Bench, blocks, device, verify, write};

/// Zones that a test writes to at the same time.
const WRITTEN_ZONES: u32 = 2;

/// Where the writes of a zone end, and the end of the last durable one.
#[derive(Clone, Debug, Default)]
struct Writes {
    ends: Vec<u64>,
    durable: u64,
}

impl Writes {
    /// The fault of a zone of which a mount shows `whole` blocks with the right content.
    fn fault(&self, zone: u32, whole: u64) -> Option<String> {
        if whole < self.durable {
            return Some(format!("zone {zone}: {whole} blocks, {} were durable", self.durable));
        }
        let is_end = whole == 0 || self.ends.contains(&whole);
        (!is_end).then(|| format!("zone {zone}: a part of a write, up to block {whole}"))
    }
}

fn below(rng: &mut SplitMix64, n: u64) -> u64 {
    rng.draw() % n
}

fn bench(seed: u64, parities: u32) -> Bench {
    let bench = Bench::new(seed);
    let options = CreateOptions {
        placement: crate::PLACEMENT,
        shares: crate::SHARES,
        stripe_unit: Bytes(4 * BLOCK_BYTES as u64),
        parities,
        atomic_writes: true,
        ..CreateOptions::default()
    };
    block_on(&*bench.driver, array::create(&bench.devices(&[]), &options)).expect("created");
    bench
}

async fn open(
    bench: &Bench,
    without: &[usize],
    broken_rule: Option<BrokenRule>,
) -> Result<Arc<Array>, String> {
    let options = OpenOptions { broken_rule, ..OpenOptions::default() };
    Array::open(bench.devices(without), options).await.map_err(|e| format!("the mount: {e}"))
}

/// Writes to a zone from block `at` on, a few writes at a time, until it is full.
async fn fill(device: Arc<dyn ZonedDevice>, zone: u32, mut at: u64, seed: u64, writes: Arc<Mutex<Writes>>) {
    let mut rng = SplitMix64::new(seed);
    let capacity = device.geometry().zone_capacity.0;
    while at < capacity {
        let mut ios = Vec::new();
        for _ in 0..=below(&mut rng, 4) {
            let most = if below(&mut rng, 3) == 0 { 90 } else { 7 };
            let end = (at + 1 + below(&mut rng, most)).min(capacity);
            if at == end {
                break;
            }
            let how = if below(&mut rng, 6) == 0 { Durability::Durable } else { Durability::Cached };
            let data = blocks(zone, at, end);
            writes.lock().ends.push(end);
            let start = device.geometry().start(ZoneId(zone)).plus(Blocks(at));
            let op = match below(&mut rng, 2) {
                0 => Op::Append { zone: ZoneId(zone), data, how },
                _ => Op::Write { at: start, data, how },
            };
            ios.push((device.submit(op), end, how));
            at = end;
        }
        for (io, end, how) in ios {
            if io.await.is_ok() && (how == Durability::Durable || !device.geometry().volatile_cache) {
                let mut writes = writes.lock();
                writes.durable = writes.durable.max(end);
            }
        }
    }
}

/// The number of blocks from the start of a zone that have the content that was written.
async fn whole_blocks(device: &Arc<dyn ZonedDevice>, zone: u32) -> (ZoneState, u64, u64) {
    let info = device.report(zone..zone + 1).await.expect("reported")[0];
    let into = BufMut::zeroed(info.pointer.0 as usize * BLOCK_BYTES);
    let found = device.read(device.geometry().start(ZoneId(zone)), into).await.expect("read");
    let wrote = blocks(zone, 0, info.pointer.0);
    let same = found.chunks(BLOCK_BYTES).zip(wrote.chunks(BLOCK_BYTES)).take_while(|(a, b)| a == b);
    (info.state, info.pointer.0, same.count() as u64)
}

/// Mounts the drives, all but some, and compares the zones with what was written. Returns for each zone where the next write
/// goes, and how many blocks have the content that was written.
async fn check(
    bench: &Bench,
    without: &[usize],
    broken_rule: Option<BrokenRule>,
    writes: &[Writes],
) -> Result<Vec<(u64, u64)>, String> {
    let array = open(bench, without, broken_rule).await?;
    let mut ends = Vec::new();
    for (writes, zone) in writes.iter().zip(0..) {
        let (state, pointer, whole) = whole_blocks(&device(&array), zone).await;
        if state != ZoneState::Full && whole < pointer {
            return Err(format!("zone {zone}: block {whole} of {pointer} is wrong"));
        }
        if let Some(fault) = writes.fault(zone, whole) {
            return Err(fault);
        }
        ends.push((pointer, whole));
    }
    Ok(ends)
}

/// Writes to two zones, cuts the power, mounts, writes on, cuts again. Each mount lacks as many drives as may be lost, or fewer.
fn run(seed: u64, parities: u32, broken_rule: Option<BrokenRule>) -> Result<(), String> {
    let mut rng = SplitMix64::new(seed);
    let mut bench = bench(seed, parities);
    let mut lost: Vec<usize> = Vec::new();
    let mut known = vec![Writes::default(); WRITTEN_ZONES as usize];
    let mut from = vec![0; WRITTEN_ZONES as usize];
    for round in 0..3 {
        let array = block_on(&*bench.driver, open(&bench, &lost, broken_rule))?;
        let writes: Vec<Arc<Mutex<Writes>>> =
            known.iter().map(|known| Arc::new(Mutex::new(known.clone()))).collect();
        let time = Duration::from_micros(below(&mut rng, 4_000));
        block_on(&*bench.driver, async {
            for ((zone, at), writes) in (0..).zip(&from).zip(&writes) {
                let work = fill(device(&array), zone, *at, rng.draw(), Arc::clone(writes));
                drop(spawn(&*bench.driver, "fill", work));
            }
            sleep_until(&*bench.driver, bench.driver.now().after(time)).await;
        });
        known = writes.iter().map(|writes| writes.lock().clone()).collect();
        bench = bench.cut(seed * 3 + round);
        let next = (rng.draw() % 5) as usize;
        if lost.len() < parities as usize && !lost.contains(&next) && below(&mut rng, 2) == 0 {
            lost.push(next);
        }
        let what = |e| format!("seed {seed}, {parities} parities, round {round}, without {lost:?}: {e}");
        let ends = block_on(&*bench.driver, check(&bench, &lost, broken_rule, &known)).map_err(what)?;
        // Every later mount shows what this one showed: also one that lacks another drive.
        known = ends.iter().map(|(_, whole)| Writes { ends: vec![*whole], durable: *whole }).collect();
        from = ends.iter().map(|(pointer, _)| *pointer).collect();
        if let Some(more) = (0..5).find(|slot| lost.len() < parities as usize && !lost.contains(slot)) {
            let (copy, fewer) = (bench.copy(), [&lost[..], &[more]].concat());
            let what = |e| format!("seed {seed}, round {round}, then without {fewer:?}: {e}");
            block_on(&*copy.driver, check(&copy, &fewer, broken_rule, &known)).map_err(what)?;
        }
    }
    Ok(())
}

#[test]
fn every_write_is_there_as_a_whole_or_not_at_all_after_any_cut() {
    for parities in [1, 2] {
        let failures: Vec<String> = (0..50).filter_map(|seed| run(seed, parities, None).err()).collect();
        assert!(failures.is_empty(), "{} of 50: {:#?}", failures.len(), &failures[..failures.len().min(5)]);
    }
}

#[test]
fn frames_that_only_one_drive_has_are_missed_when_it_is_lost() {
    let found = (0..300).find(|seed| run(*seed, 1, Some(BrokenRule::FrameCopies)).is_err());
    println!("found by seed {:?}", found.expect("the rule was broken"));
}

#[test]
fn the_geometry_says_how_long_an_atomic_write_may_be() {
    let plain = Bench::new(1);
    let atomic = bench(1, 1);
    block_on(&*plain.driver, async {
        let array = plain.open(&[]).await;
        assert_eq!(device(&array).geometry().atomic_write, Blocks(1));
        write(&device(&array), 0, 0, 100).await;
        let dump = array::dump(&plain.devices(&[])).await.expect("dumped");
        assert!(dump.iter().flat_map(|drive| &drive.records).all(|record| record.kind != "frames"));
    });
    block_on(&*atomic.driver, async {
        let array = atomic.open(&[]).await;
        let geometry = device(&array).geometry().clone();
        assert_eq!(geometry.atomic_write, geometry.max_transfer);
        write(&device(&array), 0, 0, 100).await;
        let dump = array::dump(&atomic.devices(&[])).await.expect("dumped");
        let drives = dump.iter().filter(|drive| drive.records.iter().any(|record| record.kind == "frames"));
        assert!(drives.count() >= 2);
    });
}

#[test]
fn writes_behind_a_failed_zones_reset_a_finish_and_log_rolls_survive_without_each_drive() {
    for slot in [None, Some(0), Some(1), Some(4)] {
        let bench = bench(3, 1);
        block_on(&*bench.driver, async {
            let array = bench.open(&[]).await;
            let dev = device(&array);
            write(&dev, 0, 0, 50).await;
            array.fail_zone(ZoneId(0)).await.expect("failed");
            dev.zone(ZoneId(0), Action::Reset).await.expect("reset");
            write(&dev, 0, 0, 71).await;
            write(&dev, 2, 0, 33).await;
            dev.zone(ZoneId(2), Action::Finish).await.expect("finished");
            write(&dev, 3, 0, 5).await;
            // Single blocks: each takes a record of two logs or more, and the logs roll.
            for at in 0..700 {
                let start = dev.geometry().start(ZoneId(1)).plus(Blocks(at));
                dev.write(start, blocks(1, at, at + 1), Durability::Durable).await.expect("written");
            }
            dev.flush().await.expect("flushed");
        });
        let bench = bench.cut(1);
        block_on(&*bench.driver, async {
            let array = bench.open(&slot.into_iter().collect::<Vec<_>>()).await;
            for (zone, end) in [(0, 71), (1, 700), (2, 33), (3, 5)] {
                verify(&device(&array), zone, 0, end).await;
                let info = device(&array).report(zone..zone + 1).await.expect("reported")[0];
                // A drive may fill a zone that is open when it loses power.
                let is_end = info.state == ZoneState::Full || info.pointer == Blocks(end);
                assert!(is_end, "zone {zone} without {slot:?}: {info:?}");
            }
        });
    }
}

#[test]
fn a_rebuilt_drive_has_what_a_mount_needs_without_another_drive() {
    let bench = bench(4, 1);
    let new = Bench::drive(&bench.driver, 9);
    block_on(&*bench.driver, async {
        let array = bench.open(&[2]).await;
        write(&device(&array), 0, 0, 300).await;
        write(&device(&array), 1, 0, 41).await;
        array.replace(Slot(2), Arc::clone(&new) as Arc<dyn ZonedDevice>).await.expect("replaced");
    });
    let mut bench = bench;
    bench.drives[2] = new;
    let bench = bench.cut(2);
    for lost in [0, 1, 3] {
        let bench = bench.copy();
        block_on(&*bench.driver, async {
            let array = bench.open(&[lost]).await;
            verify(&device(&array), 0, 0, 300).await;
            verify(&device(&array), 1, 0, 41).await;
        });
    }
}
