//! Appends that go to the drives as appends: addresses, parity after a reordering, power cuts and lost drives with appends in flight.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use array::{AppendMode, Array, BrokenRule, CreateOptions, OpenOptions, ScrubOptions};
use parking_lot::Mutex;
use units::{Driver, SplitMix64, VirtualDriver, block_on, sleep_until, spawn};
use zoned::emu::{Emu, EmuOptions, Latency, Seeded};
use zoned::{Action, Blocks, Buf, BufMut, Bytes, Durability, ZoneId, ZoneState, ZonedDevice};

use crate::common::{BLOCK_BYTES, Flaky};

/// Logical zones that the workload appends to.
const ZONES: u32 = 2;

#[derive(Clone, Copy, Debug)]
struct Shape {
    drives: u32,
    parities: u32,
    unit: u64,
    capacity: u64,
    cache: bool,
    reorder: bool,
}

fn below(rng: &mut SplitMix64, end: u64) -> u64 {
    rng.draw() % end
}

impl Shape {
    fn of(seed: u64, parities: u32) -> Shape {
        let mut rng = SplitMix64::new(seed ^ 0xa99e);
        let shapes = [(3, 8), (4, 4), (5, 16), (5, 6), (4, 12)];
        let (drives, unit) = shapes[below(&mut rng, shapes.len() as u64) as usize];
        let (drives, cache) = (drives + parities - 1, below(&mut rng, 4) != 0);
        // The logs move several times.
        let capacity = Shape::least_capacity(unit) + below(&mut rng, 30);
        Shape { drives, parities, unit, capacity, cache, reorder: below(&mut rng, 5) != 0 }
    }

    /// The smallest zone whose metadata log has room for the parity of all active zones.
    fn least_capacity(unit: u64) -> u64 {
        40 + 12 * unit
    }

    fn drives(self, driver: &Arc<dyn Driver>) -> Vec<Arc<Flaky>> {
        let drive = |n| {
            let options = EmuOptions {
                name: format!("emu:{n}"),
                block_size: BLOCK_BYTES as u32,
                zones: ZONES + 4 + crate::RESERVE_ZONES,
                zone_size: Blocks(self.capacity),
                zone_capacity: Blocks(self.capacity),
                max_open: Some(8),
                max_active: Some(9),
                volatile_cache: self.cache,
                reorder: self.reorder,
                track_power_cuts: true,
                latency: Latency::all(Duration::from_micros(10 + u64::from(n))),
                seed: u64::from(n),
                ..EmuOptions::default()
            };
            Flaky::over(Emu::memory(options, Arc::clone(driver)))
        };
        (0..self.drives).map(drive).collect()
    }

    async fn create(self, drives: &[Arc<Flaky>]) {
        let options = CreateOptions {
            stripe_unit: Bytes(self.unit * BLOCK_BYTES as u64),
            parities: self.parities,
            placement: crate::PLACEMENT,
            ..CreateOptions::default()
        };
        array::create(&devices(drives), &options).await.expect("created");
    }
}

fn devices(drives: &[Arc<Flaky>]) -> Vec<Arc<dyn ZonedDevice>> {
    drives.iter().map(|drive| Arc::clone(drive) as Arc<dyn ZonedDevice>).collect()
}

fn options(appends: AppendMode, broken_rule: Option<BrokenRule>) -> OpenOptions {
    // Short rounds, so that `AppendMode::Auto` changes its mind within a workload.
    OpenOptions { appends, append_round: Some(6), broken_rule, ..OpenOptions::default() }
}

fn content(tag: u64) -> Vec<u8> {
    let mut rng = SplitMix64::new(tag);
    (0..BLOCK_BYTES / 8).flat_map(|_| rng.draw().to_le_bytes()).collect()
}

/// What the workload knows of a zone.
#[derive(Clone, Debug, Default)]
struct Known {
    submitted: u64,
    /// The tag of each block whose address was acknowledged.
    placed: BTreeMap<u64, u64>,
    /// All blocks below are acknowledged, and durable.
    acked: u64,
    durable: u64,
}

type Model = Arc<Mutex<Vec<Known>>>;

/// Appends to random zones, one append at a time, until the zones are full or the array refuses.
async fn append_task(dev: Arc<dyn ZonedDevice>, model: Model, seed: u64) {
    let mut rng = SplitMix64::new(seed);
    let mut tag = seed << 24;
    let capacity = dev.geometry().zone_capacity.0;
    for _ in 0..400 {
        let zone = below(&mut rng, u64::from(ZONES)) as usize;
        let id = ZoneId(zone as u32);
        if below(&mut rng, 25) == 0 {
            let before: Vec<u64> = model.lock().iter().map(|known| known.acked).collect();
            if dev.flush().await.is_ok() {
                for (known, acked) in model.lock().iter_mut().zip(before) {
                    known.durable = known.durable.max(acked);
                }
            }
            continue;
        }
        let count = if below(&mut rng, 10) == 0 { 1 + below(&mut rng, 14) } else { 1 + below(&mut rng, 2) };
        let how = if below(&mut rng, 12) == 0 { Durability::Durable } else { Durability::Cached };
        let tags: Vec<u64> = (0..count).map(|n| tag + n).collect();
        tag += count;
        let data = Buf::copy_from(&tags.iter().flat_map(|tag| content(*tag)).collect::<Vec<u8>>());
        // Address and submission belong together: a write has to be at the pointer.
        let (at, io) = {
            let mut model = model.lock();
            let known = &mut model[zone];
            if known.submitted + count > capacity {
                return;
            }
            let at = known.submitted;
            known.submitted += count;
            if below(&mut rng, 8) == 0 {
                let start = dev.geometry().start(id).plus(Blocks(at));
                (Some(at), Err(dev.write(start, data, how)))
            } else {
                (None, Ok(dev.append(id, data, how)))
            }
        };
        let at = match io {
            Err(write) => write.await.map(|()| at.expect("a write has an address")),
            Ok(append) => append.await.map(|at| at.since(dev.geometry().start(id)).0),
        };
        let Ok(at) = at else { return };
        let mut model = model.lock();
        let known = &mut model[zone];
        for (n, tag) in (at..).zip(&tags) {
            assert_eq!(known.placed.insert(n, *tag), None, "two writes have block {n} of zone {zone}");
        }
        known.acked = known.acked.max(at + count);
        if how == Durability::Durable || !dev.geometry().volatile_cache {
            known.durable = known.durable.max(at + count);
        }
    }
}

async fn read_zone(dev: &Arc<dyn ZonedDevice>, zone: u32) -> (ZoneState, Vec<Vec<u8>>) {
    let info = dev.report(zone..zone + 1).await.expect("reported")[0];
    if info.pointer == Blocks::ZERO {
        return (info.state, Vec::new());
    }
    let start = dev.geometry().start(ZoneId(zone));
    let into = BufMut::zeroed(info.pointer.0 as usize * BLOCK_BYTES);
    let found = dev.read(start, into).await.unwrap_or_else(|e| panic!("zone {zone}: {e}"));
    (info.state, found.chunks(BLOCK_BYTES).map(<[u8]>::to_vec).collect())
}

/// Compares all zones with the model. `strict`: acknowledged blocks below the pointer are right, durable or not.
async fn check(
    dev: &Arc<dyn ZonedDevice>,
    model: &[Known],
    strict: bool,
) -> Result<Vec<Vec<Vec<u8>>>, String> {
    let mut all = Vec::new();
    for (zone, known) in (0..).zip(model) {
        let (state, found) = read_zone(dev, zone).await;
        let about = || {
            let Known { submitted, acked, durable, .. } = known;
            let count = found.len();
            format!(
                "zone {zone}, {state:?}, {count} blocks, {submitted} submitted, {acked} acknowledged, {durable} durable"
            )
        };
        let full = state == ZoneState::Full;
        if (found.len() as u64) < known.durable || !full && found.len() as u64 > known.submitted {
            return Err(format!("the pointer of {}", about()));
        }
        let must = if strict && !full { known.acked.max(known.durable) } else { known.durable };
        for (n, tag) in known.placed.range(..must) {
            let Some(found) = found.get(*n as usize) else { continue };
            if *found != content(*tag) {
                return Err(format!("block {n} of {}", about()));
            }
        }
        all.push(found);
    }
    Ok(all)
}

/// Appends on an array, cut at a random time, drives lost before, at and after the cut. Returns the number of reorderings.
fn run_in(mode: AppendMode, seed: u64, parities: u32, broken: Option<BrokenRule>) -> Result<u64, String> {
    let mut rng = SplitMix64::new(seed ^ 0x51ab);
    let shape = Shape::of(seed, parities);
    let driver: Arc<dyn Driver> = VirtualDriver::new(seed);
    let drives = shape.drives(&driver);
    let model: Model = Arc::new(Mutex::new(vec![Known::default(); ZONES as usize]));
    let when = Duration::from_micros(50 + below(&mut rng, 1500));
    // A drive that is unplugged while appends are in flight, and drives that are lost at the cut.
    let unplugged = (below(&mut rng, 3) == 0).then(|| below(&mut rng, u64::from(shape.drives)) as usize);
    let mut lost: Vec<usize> = unplugged.into_iter().collect();
    while lost.len() < parities as usize && below(&mut rng, 4) != 0 {
        let other = below(&mut rng, u64::from(shape.drives)) as usize;
        if !lost.contains(&other) {
            lost.push(other);
        }
    }
    let what = format!("seed {seed}: {shape:?}, {when:?}, unplugged {unplugged:?}, lost {lost:?}");
    let reorderings = block_on(&*driver, async {
        shape.create(&drives).await;
        let array = Array::open(devices(&drives), options(mode, broken)).await.expect("opened");
        if let Some(unplugged) = unplugged {
            drives[unplugged].left.store(40 + below(&mut rng, 120) as i64, Ordering::Relaxed);
        }
        let dev: Arc<dyn ZonedDevice> = Arc::clone(&array) as Arc<dyn ZonedDevice>;
        for task in 0..8 {
            let work = append_task(Arc::clone(&dev), Arc::clone(&model), seed * 16 + task + 1);
            drop(spawn(&*driver, "appends", work));
        }
        sleep_until(&*driver, driver.now().after(when)).await;
        array.counters().reorderings
    });
    let model = model.lock().clone();
    let after: Arc<dyn Driver> = VirtualDriver::new(seed ^ 1);
    let mut drives: Vec<Arc<Flaky>> = (0..)
        .zip(&drives)
        .map(|(n, drive)| {
            let media = drive.inner.power_cut(&mut Seeded::new(seed << 8 | n));
            let latency = Latency::all(Duration::from_micros(10));
            Flaky::over(Emu::from_media(media, &format!("emu:{n}"), latency, Arc::clone(&after)))
        })
        .collect();
    lost.sort_unstable();
    lost.iter().rev().for_each(|slot| drop(drives.remove(*slot)));
    block_on(&*after, async {
        let open = async |drives: &[Arc<Flaky>], mode| {
            let array = Array::open(devices(drives), options(mode, None)).await;
            array.map_err(|e| format!("{what}: mount: {e}"))
        };
        let mode = if seed.is_multiple_of(2) { AppendMode::Ordered } else { mode };
        let array = open(&drives, mode).await?;
        let dev: Arc<dyn ZonedDevice> = Arc::clone(&array) as Arc<dyn ZonedDevice>;
        let shown = check(&dev, &model, lost.is_empty()).await.map_err(|e| format!("{what}: {e}"))?;
        if lost.is_empty() {
            let report = array.scrub(ScrubOptions::default()).await.expect("scrubbed");
            if report.mismatch_count != 0 {
                return Err(format!("{what}: {} stripes do not match", report.mismatch_count));
            }
        }
        drop((dev, array));
        if lost.len() < parities as usize {
            drives.remove(seed as usize % drives.len());
            let array = open(&drives, mode).await?;
            let dev: Arc<dyn ZonedDevice> = array;
            for (zone, shown) in (0..).zip(&shown) {
                if read_zone(&dev, zone).await.1 != *shown {
                    return Err(format!("{what}: zone {zone} changed without another drive"));
                }
            }
        }
        Ok(reorderings)
    })
}

fn run(seed: u64, parities: u32, broken: Option<BrokenRule>) -> Result<u64, String> {
    run_in(AppendMode::Append, seed, parities, broken)
}

fn nothing_is_lost(mode: AppendMode, parities: u32, count: u64) {
    let (from, count) = match std::env::var("SEEDS").ok().and_then(|seeds| seeds.parse().ok()) {
        Some(count) => (1_000_000, count),
        None => (0, count),
    };
    let results: Vec<Result<u64, String>> =
        (from..from + count).map(|seed| run_in(mode, seed, parities, None)).collect();
    let failures: Vec<String> = results.iter().filter_map(|result| result.clone().err()).collect();
    assert!(
        failures.is_empty(),
        "{} of {}: {}",
        failures.len(),
        results.len(),
        failures.iter().take(5).cloned().collect::<Vec<_>>().join("\n")
    );
    let reordered = results.iter().filter(|result| matches!(result, Ok(n) if *n > 0)).count();
    assert!(reordered * 2 > results.len(), "only {reordered} of {} were reordered", results.len());
}

#[test]
fn no_durable_append_is_lost_at_any_cut_without_any_one_drive() {
    nothing_is_lost(AppendMode::Append, 1, 400);
}

#[test]
fn with_two_parities_no_durable_append_is_lost_at_any_cut_without_any_two_drives() {
    nothing_is_lost(AppendMode::Append, 2, 400);
}

#[test]
fn no_durable_append_is_lost_while_latencies_change_the_way_of_appends() {
    nothing_is_lost(AppendMode::Auto, 1, 200);
    nothing_is_lost(AppendMode::Auto, 2, 200);
}

/// Appends with eight in flight to drives on which a zone has one write in flight at a time.
fn appends_with_eight_in_flight(mode: AppendMode) -> (Duration, array::Counters) {
    let driver: Arc<dyn Driver> = VirtualDriver::new(1);
    let drive = |n: u32| {
        let options = EmuOptions {
            name: format!("emu:{n}"),
            zones: 6,
            one_write: true,
            latency: Latency::all(Duration::from_micros(50)),
            ..EmuOptions::default()
        };
        zoned::emulated(options, Arc::clone(&driver))
    };
    let drives: Vec<Arc<dyn ZonedDevice>> = (0..5).map(drive).collect();
    let counters = block_on(&*driver, async {
        array::create(&drives, &CreateOptions::default()).await.expect("created");
        let open = OpenOptions { appends: mode, ..OpenOptions::default() };
        let array = Array::open(drives.clone(), open).await.expect("opened");
        let dev: Arc<dyn ZonedDevice> = Arc::clone(&array) as Arc<dyn ZonedDevice>;
        let mut flying = std::collections::VecDeque::new();
        for _ in 0..6000 {
            if flying.len() == 8 {
                let oldest: zoned::Io<zoned::Lba> = flying.pop_front().expect("eight");
                oldest.await.expect("appended");
            }
            flying.push_back(dev.append(ZoneId(0), Buf::zeroed(4096), Durability::Cached));
        }
        for io in flying {
            io.await.expect("appended");
        }
        array.counters()
    });
    (Duration::from_nanos(driver.now().0), counters)
}

#[test]
fn measured_latencies_send_appends_in_the_faster_way() {
    let [(ordered, _), (appended, _), (auto, counters)] =
        [AppendMode::Ordered, AppendMode::Append, AppendMode::Auto].map(appends_with_eight_in_flight);
    assert!(appended < ordered, "{appended:?} {ordered:?}");
    assert!(counters.append_changes == 1, "{counters:?}");
    assert!(auto < appended.mul_f64(1.06), "{auto:?} beside {appended:?} and {ordered:?}");
}

/// The incompatible feature bit of reorder records.
const FEATURE_APPENDS: u64 = 1 << 8;

#[test]
fn only_an_array_that_may_append_keeps_older_builds_out() {
    for (mode, atomic_writes, expected) in [
        (AppendMode::Ordered, false, false),
        (AppendMode::Append, false, true),
        (AppendMode::Auto, false, true),
        (AppendMode::Auto, true, false),
    ] {
        let driver: Arc<dyn Driver> = VirtualDriver::new(1);
        let drive = |n: u32| {
            let options = EmuOptions { name: format!("emu:{n}"), zones: 6, ..EmuOptions::default() };
            zoned::emulated(options, Arc::clone(&driver))
        };
        let drives: Vec<Arc<dyn ZonedDevice>> = (0..4).map(drive).collect();
        block_on(&*driver, async {
            let create = CreateOptions { atomic_writes, ..CreateOptions::default() };
            array::create(&drives, &create).await.expect("created");
            let array = Array::open(drives, options(mode, None)).await.expect("opened");
            let has_feature = array.superblock().incompat & FEATURE_APPENDS != 0;
            assert_eq!(has_feature, expected, "{mode:?}, atomic: {atomic_writes}");
        });
    }
}

/// One drive fails while the array writes and another is lost with the power, and the records of the two parities end at different
/// blocks: a block of the one follows from a record that does not cover it, and from a record of the other parity.
#[test]
fn records_of_two_parities_that_end_at_different_blocks_give_the_blocks_of_two_drives() {
    for seed in [1_000_830, 1_001_093, 1_002_513, 1_006_755, 1_006_860] {
        run(seed, 2, None).unwrap_or_else(|what| panic!("{what}"));
    }
}

#[test]
fn parity_that_is_not_corrected_behind_reordered_appends_is_found() {
    let rule = BrokenRule::Reordered;
    let broken = |seed: &u64| {
        std::panic::catch_unwind(|| run(*seed, 1, Some(rule))).is_ok_and(|result| result.is_err())
    };
    let found = (0..2000).find(broken).expect("found");
    assert!(run(found, 1, None).is_ok(), "seed {found}, with the rule intact");
    println!("{rule:?} is found by seed {found}");
}

#[test]
fn appends_get_the_addresses_of_their_drives_and_are_read_there_without_any_drive() {
    for (seed, parities) in [(1, 1), (2, 1), (3, 2)] {
        let shape = Shape {
            drives: 5,
            parities,
            unit: 16,
            capacity: Shape::least_capacity(16),
            cache: true,
            reorder: true,
        };
        let driver: Arc<dyn Driver> = VirtualDriver::new(seed);
        let drives = shape.drives(&driver);
        block_on(&*driver, async {
            shape.create(&drives).await;
            let mode = options(AppendMode::Append, None);
            let array = Array::open(devices(&drives), mode.clone()).await.expect("opened");
            let dev: Arc<dyn ZonedDevice> = Arc::clone(&array) as Arc<dyn ZonedDevice>;
            let mut placed = BTreeMap::new();
            let start = dev.geometry().start(ZoneId(1));
            let mut order = Vec::new();
            for round in 0..20_u64 {
                let tags: Vec<u64> = (0..8).map(|n| round * 8 + n).collect();
                let append =
                    |tag: &u64| dev.append(ZoneId(1), Buf::copy_from(&content(*tag)), Durability::Cached);
                let ios: Vec<_> = tags.iter().map(append).collect();
                for (tag, io) in tags.iter().zip(ios) {
                    let at = io.await.expect("appended").since(start).0;
                    assert_eq!(placed.insert(at, *tag), None, "block {at}");
                    order.push(at);
                }
            }
            assert_eq!(placed.keys().copied().collect::<Vec<_>>(), (0..160).collect::<Vec<_>>());
            assert!(!order.is_sorted() && array.counters().reorderings > 0);
            dev.flush().await.expect("flushed");
            drop((dev, array));
            for lost in 0..drives.len() {
                let mut some = drives.clone();
                some.remove(lost);
                if parities > 1 {
                    some.remove(lost % some.len());
                }
                let copies: Vec<Arc<Flaky>> = some
                    .iter()
                    .map(|drive| {
                        let name = drive.geometry().name.to_string();
                        Flaky::over(Emu::from_media(
                            drive.inner.media(),
                            &name,
                            Latency::NONE,
                            Arc::clone(&driver),
                        ))
                    })
                    .collect();
                let array = Array::open(devices(&copies), mode.clone()).await.expect("opened without drives");
                let dev: Arc<dyn ZonedDevice> = array;
                let (_, found) = read_zone(&dev, 1).await;
                for (at, tag) in &placed {
                    assert!(found[*at as usize] == content(*tag), "block {at} without drive {lost}");
                }
            }
        });
    }
}

#[test]
fn a_zone_of_appends_is_filled_finished_and_reset_like_any_other() {
    let shape = Shape {
        drives: 4,
        parities: 1,
        unit: 8,
        capacity: Shape::least_capacity(8),
        cache: true,
        reorder: true,
    };
    let driver: Arc<dyn Driver> = VirtualDriver::new(5);
    let drives = shape.drives(&driver);
    block_on(&*driver, async {
        shape.create(&drives).await;
        let array = Array::open(devices(&drives), options(AppendMode::Append, None)).await.expect("opened");
        let dev: Arc<dyn ZonedDevice> = Arc::clone(&array) as Arc<dyn ZonedDevice>;
        let capacity = dev.geometry().zone_capacity.0;
        for round in 0..3 {
            let append = |n: u64| dev.append(ZoneId(0), Buf::copy_from(&content(n)), Durability::Cached);
            let count = [capacity, capacity - 5, 21][round as usize];
            let ios: Vec<_> = (0..count).map(append).collect();
            // A finish waits for the appends before it.
            let finished = (round > 0).then(|| dev.zone(ZoneId(0), Action::Finish));
            let mut placed = BTreeMap::new();
            for (tag, io) in (0..).zip(ios) {
                let at = io.await.expect("appended").since(dev.geometry().start(ZoneId(0))).0;
                placed.insert(at, tag);
            }
            if let Some(finished) = finished {
                finished.await.expect("finished");
            }
            assert_eq!(placed.len() as u64, count);
            let report = array.scrub(ScrubOptions::default()).await.expect("scrubbed");
            assert_eq!((report.mismatch_count, report.read_errors), (0, 0));
            let (state, found) = read_zone(&dev, 0).await;
            assert_eq!(state, ZoneState::Full);
            for (at, tag) in placed {
                assert!(found[at as usize] == content(tag), "block {at}");
            }
            dev.zone(ZoneId(0), Action::Reset).await.expect("reset");
        }
    });
}
