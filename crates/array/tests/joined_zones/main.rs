//! Arrays whose zones are joined: several physical zones of each drive make one zone.
#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "a test may panic")]

/// The placement of the arrays of [`ground::ArrayFixture`].
const PLACEMENT: array::Placement = array::Placement::Stored;
/// Physical zones of a drive beside those of the logical zones and of metadata.
const RESERVE_ZONES: u32 = 1;
/// Logical zones that share a physical zone.
const SHARES: u32 = 1;
/// Active zones of a drive that stored maps keep free.
const SPARE_ACTIVE: u32 = 1;

#[path = "../integration/ground/mod.rs"]
mod ground;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use array::{Array, CreateOptions, OpenOptions, Pace, Placement, RebuildOptions, Slot, check, create, plan};
use units::{Driver, SplitMix64, VirtualDriver, block_on, sleep_until, spawn};
use zoned::emu::{Emu, EmuOptions, Latency};
use zoned::{
    Action, Blocks, BufMut, Bytes, Durability, ErrorKind, Io, Lba, Op, ZoneId, ZoneState, ZonedDevice,
};

use ground::{ArrayFixture, BLOCK_BYTES, METADATA_ZONES, block, blocks};

/// The joined zones of a test's array.
#[derive(Clone, Copy, Debug)]
struct Size {
    drives: u32,
    unit: u64,
    /// Blocks of a physical zone.
    capacity: u64,
    sections: u32,
    interleaved: bool,
    parities: u32,
    placement: Placement,
}

const SMALL: Size = Size {
    drives: 4,
    unit: 4,
    capacity: 160,
    sections: 3,
    interleaved: true,
    parities: 1,
    placement: Placement::Stored,
};
/// A drive may have one zone less open than so many zones of all sections.
const OPEN_SECTIONS: u32 = 4;
/// Joined zones of an array.
const ZONES: u32 = 4;

/// Joined zones of both arrangements; with a short last stripe, two parities and the fixed placement among them.
fn sizes() -> Vec<Size> {
    [false, true]
        .into_iter()
        .flat_map(|interleaved| {
            [
                Size { interleaved, ..SMALL },
                Size { interleaved, sections: 2, capacity: 167, drives: 5, parities: 2, ..SMALL },
                Size { interleaved, sections: 2, drives: 3, unit: 1, placement: Placement::Fixed, ..SMALL },
            ]
        })
        .collect()
}

fn options(size: Size) -> CreateOptions {
    CreateOptions {
        stripe_unit: Bytes(size.unit * u64::from(BLOCK_BYTES)),
        parities: size.parities,
        placement: size.placement,
        sections: size.sections,
        interleaved: size.interleaved,
        ..CreateOptions::default()
    }
}

fn drives(size: Size, driver: &Arc<dyn Driver>, latency: Latency, cache: bool) -> Vec<Arc<Emu>> {
    let kept = size.placement.kept_active_zones();
    let reserve = u32::from(size.placement == Placement::Stored);
    let open = kept + OPEN_SECTIONS * size.sections - 1;
    let drive = |n| {
        let options = EmuOptions {
            name: format!("emu:{n}"),
            block_size: BLOCK_BYTES,
            zones: METADATA_ZONES + reserve + ZONES * size.sections,
            zone_size: Blocks(size.capacity),
            zone_capacity: Blocks(size.capacity),
            max_open: Some(open),
            max_active: Some(open),
            volatile_cache: cache,
            track_power_cuts: true,
            latency,
            seed: n,
            ..EmuOptions::default()
        };
        Emu::memory(options, Arc::clone(driver))
    };
    (0..u64::from(size.drives)).map(drive).collect()
}

fn fixture(size: Size) -> ArrayFixture {
    let driver: Arc<dyn Driver> = VirtualDriver::new(1);
    let emus = drives(size, &driver, Latency::all(Duration::from_micros(10)), true);
    let ground = ArrayFixture { emus, driver };
    ground.wait(async { create(&ground.devices(), &options(size)).await.expect("created") });
    ground
}

fn device(array: &Arc<Array>) -> &dyn ZonedDevice {
    &**array
}

fn capacity(array: &Arc<Array>) -> u64 {
    device(array).geometry().zone_capacity.0
}

fn act(ground: &ArrayFixture, array: &Arc<Array>, zone: u32, action: Action) {
    ground.wait(device(array).zone(ZoneId(zone), action)).expect("done");
}

#[test]
fn joined_zones_conform() {
    for size in sizes() {
        for (cache, without) in [(true, None), (false, None), (true, Some(1))] {
            let driver: Arc<dyn Driver> = VirtualDriver::new(1);
            let latency = if cache { Latency::all(Duration::from_micros(15)) } else { Latency::NONE };
            let mut drives: Vec<Arc<dyn ZonedDevice>> = drives(size, &driver, latency, cache)
                .into_iter()
                .map(|emu| emu as Arc<dyn ZonedDevice>)
                .collect();
            let array: Arc<dyn ZonedDevice> = block_on(&*driver, async {
                create(&drives, &options(size)).await.expect("created");
                if let Some(without) = without {
                    drives.remove(without);
                }
                Array::open(drives, OpenOptions::default()).await.expect("opened")
            });
            let failures = zoned::conformance::failures(&array);
            assert!(failures.is_empty(), "{size:?} {cache} {without:?}:\n{}", failures.join("\n"));
        }
    }
}

/// The intent of a joined zone's reset, or the next generation of the first section, reaches one drive alone. The power fails in the next mount
/// too, and that drive is lost: no section may have been reset by then.
#[test]
fn a_drive_lost_after_cuts_of_a_reset_and_of_the_next_mount_leaves_all_sections_or_none() {
    let (mut whole, mut empty) = (0, 0);
    for seed in 0..600 {
        for placement in [Placement::Fixed, Placement::Stored] {
            let size = Size { sections: 2, capacity: 96, interleaved: seed % 2 == 0, placement, ..SMALL };
            let mut rng = SplitMix64::new(seed);
            let ground = fixture(size);
            let array = ground.open(OpenOptions::default());
            // More than half of the blocks of both sections.
            let written = capacity(&array) * 3 / 4;
            ground.write(&array, ZoneId(1), 1, 0, written, 16);
            ground.wait(device(&array).flush()).expect("flushed");
            let reset = spawn(&*ground.driver, "reset", async move {
                device(&array).zone(ZoneId(1), Action::Reset).await
            });
            let left = ground.cut_now_and_in_mounts(rng.draw() % 12, &mut rng);
            drop(reset);
            for (lost, left, array) in left.open_without_each() {
                let zone = left.zone(&array, ZoneId(1));
                if zone.state == ZoneState::Empty {
                    empty += 1;
                } else {
                    whole += 1;
                    let enough = zone.pointer >= Blocks(written);
                    assert!(enough, "seed {seed}, {placement:?}, without drive {lost}: {zone:?}");
                    left.check(&array, ZoneId(1), 1, written);
                }
            }
        }
    }
    assert!(whole > 20 && empty > 20, "{whole} zones were whole, {empty} empty");
}

#[test]
fn a_joined_zone_has_several_physical_zones_of_each_drive() {
    for size in sizes() {
        let ground = fixture(size);
        let array = ground.open(OpenOptions::default());
        let geometry = device(&array).geometry();
        let data = u64::from(size.drives - size.parities);
        assert_eq!(geometry.zone_capacity.0, size.capacity * data * u64::from(size.sections));
        assert_eq!(geometry.zone_size.0, geometry.zone_capacity.0.next_power_of_two());
        assert_eq!(geometry.zones, ZONES);
        let at_a_time = if size.interleaved { size.sections } else { 1 };
        assert_eq!(geometry.max_open, Some((OPEN_SECTIONS * size.sections - 1) / at_a_time), "{size:?}");
        // A stripe's worth goes to each section in turn, or all to the first one.
        let stripe = size.unit * data;
        ground.write(&array, ZoneId(1), 1, 0, 2 * stripe, stripe);
        let second = array.locate(ZoneId(1), Blocks(stripe));
        let wanted = match size.interleaved {
            true => (ZoneId(size.sections + 1), Blocks::ZERO),
            false => (ZoneId(size.sections), Blocks(stripe)),
        };
        assert_eq!(second, wanted);
    }
}

/// A zone is written to its capacity and read back by the same mount, by the next ones with all drives and without each, and after a
/// rebuild.
#[test]
fn a_full_joined_zone_is_read_with_and_without_drives() {
    for size in sizes() {
        let ground = fixture(size);
        let array = ground.open(OpenOptions::default());
        let all = capacity(&array);
        ground.write(&array, ZoneId(0), 1, 0, all, 37);
        ground.write(&array, ZoneId(2), 2, 0, all / 2 + 3, 5);
        ground.check(&array, ZoneId(0), 1, all);
        assert_eq!(ground.zone(&array, ZoneId(0)).state, ZoneState::Full);
        ground.wait(device(&array).flush()).expect("flushed");
        drop(array);
        for lost in (0..ground.emus.len()).map(Some).chain([None]) {
            let left = ArrayFixture::of(ground.emus.iter().map(|emu| emu.media()));
            let array = left.open_perhaps_without(lost);
            left.check(&array, ZoneId(0), 1, all);
            left.check(&array, ZoneId(2), 2, all / 2 + 3);
            let info = left.zone(&array, ZoneId(2));
            assert_eq!((info.state, info.pointer.0), (ZoneState::Closed, all / 2 + 3), "{size:?}");
            left.write(&array, ZoneId(2), 2, all / 2 + 3, all, 11);
            left.check(&array, ZoneId(2), 2, all);
            let Some(lost) = lost else { continue };
            let new = Arc::clone(&drives(size, &left.driver, Latency::NONE, true)[lost]);
            left.wait(async {
                let slot = Slot(u32::try_from(lost).unwrap());
                let options = RebuildOptions { pace: Pace::UNBOUNDED };
                array.start_replace(slot, new, options).await.expect("begun").wait().await.expect("rebuilt");
            });
            left.check(&array, ZoneId(2), 2, all);
        }
    }
}

/// One write that covers a zone's blocks of several sections, and appends whose addresses follow one another.
#[test]
fn writes_and_appends_go_over_the_borders_of_sections() {
    for size in sizes() {
        let ground = fixture(size);
        let array = ground.open(OpenOptions::default());
        let all = capacity(&array);
        let most = device(&array).geometry().max_transfer.0;
        ground.write(&array, ZoneId(1), 1, 0, all, most);
        ground.check(&array, ZoneId(1), 1, all);
        let stripe = size.unit * u64::from(size.drives - size.parities);
        let (mut ios, mut at): (Vec<Io<Lba>>, u64) = (Vec::new(), 0);
        while at < all {
            let end = (at + stripe - 1).min(all);
            ios.push(device(&array).append(ZoneId(3), blocks(4, at, end), Durability::Cached));
            at = end;
        }
        let start = device(&array).geometry().start(ZoneId(3));
        let found: Vec<u64> =
            ios.into_iter().map(|io| ground.wait(io).expect("appended").since(start).0).collect();
        let wanted: Vec<u64> = (0..found.len() as u64).map(|n| n * (stripe - 1)).collect();
        assert_eq!(found, wanted);
        ground.check(&array, ZoneId(3), 4, all);
        let at = all - most;
        let into = BufMut::zeroed((most * u64::from(BLOCK_BYTES)) as usize);
        let read = ground.wait(device(&array).read(start.plus(Blocks(at)), into)).expect("read");
        assert!(*read == *blocks(4, at, all));
    }
}

#[test]
fn a_finish_and_a_reset_concern_all_sections() {
    for size in sizes() {
        let ground = fixture(size);
        let array = ground.open(OpenOptions::default());
        ground.write(&array, ZoneId(0), 1, 0, 30, 7);
        act(&ground, &array, 0, Action::Finish);
        act(&ground, &array, 1, Action::Finish);
        drop(array);
        for _ in 0..2 {
            let array = ground.open(OpenOptions::default());
            ground.check(&array, ZoneId(0), 1, 30);
            for (zone, blank) in [(0, 30), (1, 0)] {
                let info = ground.zone(&array, ZoneId(zone));
                assert_eq!((info.state, info.pointer.0), (ZoneState::Full, capacity(&array)), "{size:?}");
                let at = device(&array).geometry().start(ZoneId(zone)).plus(Blocks(blank));
                let read = ground.wait(device(&array).read(at, BufMut::zeroed(BLOCK_BYTES as usize)));
                assert!(read.expect("read").iter().all(|byte| *byte == 0));
            }
        }
        let array = ground.open(OpenOptions::default());
        act(&ground, &array, 0, Action::Reset);
        let all = capacity(&array);
        ground.write(&array, ZoneId(0), 2, 0, all, 23);
        ground.check(&array, ZoneId(0), 2, all);
        act(&ground, &array, 0, Action::Reset);
        drop(array);
        let array = ground.open(OpenOptions::default());
        assert_eq!(ground.zone(&array, ZoneId(0)).state, ZoneState::Empty);
        ground.write(&array, ZoneId(0), 3, 0, 50, 50);
        ground.check(&array, ZoneId(0), 3, 50);
    }
}

/// Appends in flight are cut at many times: the zone ends before the first block that is not there, what was durable is there, and the
/// zone takes blocks at its pointer.
#[test]
fn sections_that_are_ahead_end_before_the_gap() {
    let mut cut_behind = 0;
    for size in sizes() {
        for seed in 0..24_u64 {
            let ground = fixture(size);
            let array = ground.open(OpenOptions::default());
            let all = capacity(&array);
            ground.write(&array, ZoneId(0), 1, 0, 9, 9);
            let start = device(&array).geometry().start(ZoneId(0));
            let at = start.plus(Blocks(9));
            ground.wait(device(&array).write(at, blocks(1, 9, 20), Durability::Durable)).expect("written");
            let mut ios = Vec::new();
            for n in 0..40_u64.min((all - 20) / 5) {
                let at = start.plus(Blocks(20 + 5 * n));
                let data = blocks(1, 20 + 5 * n, 25 + 5 * n);
                ios.push(array.submit(Op::Write { at, data, how: Durability::Cached }));
            }
            let acked = Arc::new(AtomicU64::new(20));
            let counted = Arc::clone(&acked);
            drop(spawn(&*ground.driver, "writes", async move {
                for io in ios {
                    io.await.expect("written");
                    counted.fetch_add(5, Ordering::Relaxed);
                }
            }));
            let time = Duration::from_micros(4 * seed);
            ground.wait(sleep_until(&*ground.driver, ground.driver.now().after(time)));
            let acked = acked.load(Ordering::Relaxed);
            let left = ArrayFixture::of(ground.cut(seed).into_iter());
            let lost = (seed % 3 == 0).then_some(seed as usize % ground.emus.len());
            let array = left.open_perhaps_without(lost);
            let info = left.zone(&array, ZoneId(0));
            if info.state == ZoneState::Full {
                // A drive filled its part as it lost power: what the zone holds is known up to the durable blocks.
                left.check(&array, ZoneId(0), 1, 20);
                continue;
            }
            assert!(info.pointer.0 >= 20, "{size:?} {seed}: {info:?}");
            cut_behind += usize::from(acked > 20 && info.pointer.0 > 20);
            // Beside a lost drive only durable blocks are known, and blocks in flight may be torn.
            let known = if lost.is_none() { acked.min(info.pointer.0) } else { 20 };
            left.check(&array, ZoneId(0), 1, known);
            // Other content follows, which no block of the earlier writes may show through.
            left.wait(async {
                for n in info.pointer.0..all {
                    let at = device(&array).geometry().start(ZoneId(0)).plus(Blocks(n));
                    device(&array).write(at, blocks(2, n, n + 1), Durability::Cached).await.expect("written");
                }
                device(&array).flush().await.expect("flushed");
            });
            drop(array);
            let array = left.open_perhaps_without(lost);
            left.wait(async {
                for n in (0..known).chain(info.pointer.0..all) {
                    let at = device(&array).geometry().start(ZoneId(0)).plus(Blocks(n));
                    let found =
                        device(&array).read(at, BufMut::zeroed(BLOCK_BYTES as usize)).await.expect("read");
                    let life = if n < info.pointer.0 { 1 } else { 2 };
                    assert!(*found == *block(life, n), "block {n}: {size:?} {seed}");
                }
            });
        }
    }
    assert!(cut_behind > 20, "{cut_behind} cuts kept acknowledged blocks");
}

/// A reset is cut: the zone holds everything or nothing.
#[test]
fn a_joined_zone_is_reset_as_a_whole() {
    let (mut whole, mut gone) = (0, 0);
    for size in sizes() {
        for seed in 0..40_u64 {
            let ground = fixture(size);
            let array = ground.open(OpenOptions::default());
            let all = capacity(&array);
            ground.write(&array, ZoneId(0), 1, 0, all, 64);
            ground.wait(device(&array).flush()).expect("flushed");
            let reset = array.submit(Op::Zone { zone: ZoneId(0), action: Action::Reset });
            ground.wait(sleep_until(&*ground.driver, ground.driver.now().after(Duration::from_micros(seed))));
            let left = ArrayFixture::of(ground.cut(seed).into_iter());
            drop(reset);
            let array = left.open(OpenOptions::default());
            match left.zone(&array, ZoneId(0)).state {
                ZoneState::Empty => {
                    gone += 1;
                    left.write(&array, ZoneId(0), 2, 0, all, 64);
                    left.check(&array, ZoneId(0), 2, all);
                }
                ZoneState::Full => {
                    whole += 1;
                    left.check(&array, ZoneId(0), 1, all);
                }
                state => panic!("{state:?} after {seed}: {size:?}"),
            }
            let checked = left.wait(check(&left.devices(), array::CheckOptions::default())).expect("checked");
            assert!(checked.problems.is_empty(), "{:?}", checked.problems);
        }
    }
    assert!(whole > 20 && gone > 20, "{whole} whole, {gone} gone");
}

/// A part of a section moves while the joined zone is written.
#[test]
fn parts_of_sections_move_while_the_zone_is_written() {
    for size in sizes().into_iter().filter(|size| size.placement == Placement::Stored) {
        let ground = fixture(size);
        let array = ground.open(OpenOptions::default());
        let all = capacity(&array);
        ground.write(&array, ZoneId(0), 1, 0, all / 2, 16);
        let moving = Arc::clone(&array);
        let (section, _) = array.locate(ZoneId(0), Blocks(all / 2));
        let task = spawn(&*ground.driver, "move", async move {
            moving.move_part(section, array::Role(1), Slot(1), Pace::UNBOUNDED).await
        });
        ground.write(&array, ZoneId(0), 1, all / 2, all, 16);
        // The part lies on whichever drive: the move succeeds, or is refused for the drive that has another part.
        drop(ground.wait(task));
        ground.check(&array, ZoneId(0), 1, all);
        drop(array);
        let array = ground.open_without(0);
        ground.check(&array, ZoneId(0), 1, all);
    }
}

/// A section that lost too many parts takes its blocks along; those of the other sections are read, and a reset gives the zone back.
#[test]
fn a_failed_section_leaves_the_others_readable() {
    let ground = fixture(SMALL);
    let array = ground.open(OpenOptions::default());
    let stripe = SMALL.unit * u64::from(SMALL.drives - 1);
    ground.write(&array, ZoneId(0), 1, 0, 6 * stripe, stripe);
    ground.wait(array.fail_zone(array.locate(ZoneId(0), Blocks(stripe)).0)).expect("failed");
    for reopened in [false, true] {
        let array = if reopened { ground.open(OpenOptions::default()) } else { Arc::clone(&array) };
        assert_eq!(ground.zone(&array, ZoneId(0)).state, ZoneState::Offline);
        let start = device(&array).geometry().start(ZoneId(0));
        for n in 0..6 {
            let at = start.plus(Blocks(n * stripe));
            let read = ground.wait(device(&array).read(at, BufMut::zeroed(BLOCK_BYTES as usize)));
            match n % 3 {
                1 => assert_eq!(read.expect_err("lost").kind(), ErrorKind::ZoneOffline),
                _ => assert!(*read.expect("read") == *block(1, n * stripe), "{n} {reopened}"),
            }
        }
        let at = start.plus(Blocks(6 * stripe));
        let refused = ground.wait(device(&array).write(at, blocks(1, 0, 1), Durability::Cached));
        if reopened {
            assert_eq!(refused.expect_err("lost").kind(), ErrorKind::ZoneOffline);
        }
    }
    drop(array);
    let array = ground.open(OpenOptions::default());
    act(&ground, &array, 0, Action::Reset);
    ground.write(&array, ZoneId(0), 2, 0, capacity(&array), 40);
    ground.check(&array, ZoneId(0), 2, capacity(&array));
}

#[test]
fn sizes_that_do_not_fit_are_refused_in_words() {
    let ground = fixture(SMALL);
    let devices = ground.devices();
    let refusal = |options: CreateOptions| {
        let error = plan(&devices, &options).expect_err("refused");
        assert_eq!(error.kind(), ErrorKind::Invalid);
        error.to_string()
    };
    for (options, why) in [
        (CreateOptions { sections: 0, ..options(SMALL) }, "there may be 1 to 64"),
        (CreateOptions { sections: 1, ..options(SMALL) }, "say how many"),
        (CreateOptions { shares: 2, ..options(SMALL) }, "not both"),
        (CreateOptions { atomic_writes: true, ..options(SMALL) }, "cannot be atomic"),
        (CreateOptions { sections: 12, ..options(SMALL) }, "the array can have 11 open"),
        (CreateOptions { sections: 14, interleaved: false, ..options(SMALL) }, "14 physical zones"),
    ] {
        let found = refusal(options);
        assert!(found.contains(why), "{found}");
    }
}
