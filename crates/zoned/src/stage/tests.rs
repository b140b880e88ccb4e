use std::collections::BTreeMap;
use std::time::Duration;

use units::{SplitMix64, VirtualDriver, block_on, spawn};

use super::*;
use crate::conformance::failures;
use crate::emu::{Emu, EmuOptions, FaultOp, FaultSpec, Latency, Profile};
use crate::kernel::fake::{SHAPES, block, options};
use crate::{BufMut, ZoneInfo, ZoneState, emulated, join_all};

const ZONE: ZoneId = ZoneId(2);
const WINDOW: Bytes = Bytes(64 << 10);

/// A drive of 64 blocks of 4 KiB in each zone, whose operations take 10 us, and its stage.
fn staged_drive() -> (Arc<Emu>, Arc<dyn ZonedDevice>) {
    let options = EmuOptions {
        zones: 8,
        zone_size: Blocks(64),
        zone_capacity: Blocks(64),
        latency: Latency::all(Duration::from_micros(10)),
        ..EmuOptions::default()
    };
    let emu = Emu::memory(options, VirtualDriver::new(1));
    let stage = Stage::over(Arc::clone(&emu) as Arc<dyn ZonedDevice>, WINDOW).expect("a stage");
    (emu, stage)
}

fn at(n: u64) -> Lba {
    Lba(u64::from(ZONE.0) * 64 + n)
}

/// Writes block `n` of the zone, with content of its own.
fn write(device: &dyn ZonedDevice, n: u64) -> Io<()> {
    device.write(at(n), block(4096, n), Durability::Cached)
}

fn info(device: &dyn ZonedDevice) -> ZoneInfo {
    device.report(ZONE.0..ZONE.0 + 1).wait().expect("reported")[0]
}

fn pointer(device: &dyn ZonedDevice) -> u64 {
    info(device).pointer.0
}

fn check_content(device: &dyn ZonedDevice, blocks: u64) {
    for n in 0..blocks {
        let found = device.read(at(n), BufMut::zeroed(4096)).wait().expect("read");
        assert!(*found == *block(4096, n), "block {n}");
    }
}

#[test]
fn the_device_conforms_to_the_contract() {
    let timed =
        ["zones=24&zone-size=1MiB&profile=zn540", "zones=24&zone-size=1MiB&profile=smallzone&reorder=on"];
    for one_write in [false, true] {
        for shape in SHAPES.iter().chain(&timed) {
            let drive = emulated(EmuOptions { one_write, ..options(shape) }, VirtualDriver::new(1));
            let found = failures(&Stage::over(drive, WINDOW).expect("a stage"));
            assert!(found.is_empty(), "{shape}:\n{}", found.join("\n"));
        }
    }
}

#[test]
fn writes_in_any_order_within_the_window_land_and_go_out_together() {
    for seed in 0..50 {
        let mut rng = SplitMix64::new(seed);
        let (emu, stage) = staged_drive();
        // Each write lies within 16 blocks of the lowest that is missing: a shuffle of neighbours.
        let mut order: Vec<u64> = (0..64).collect();
        for part in order.chunks_mut(16) {
            for n in (1..part.len()).rev() {
                part.swap(n, (rng.draw() % (n as u64 + 1)) as usize);
            }
        }
        let ios: Vec<Io<()>> = order.iter().map(|n| write(&*stage, *n)).collect();
        for done in block_on(&**stage.driver(), join_all(ios)) {
            done.expect("written");
        }
        assert_eq!(pointer(&*emu), 64);
        check_content(&*stage, 64);
    }
}

/// A waiting write has not reached the device, and is not acknowledged.
#[test]
fn a_waiting_write_is_neither_on_the_device_nor_acknowledged() {
    let (emu, stage) = staged_drive();
    let ahead = write(&*stage, 1);
    let shown = |io: &Io<()>| format!("{io:?}");
    assert_eq!((shown(&ahead), pointer(&*emu)), ("Io(in flight)".into(), 0));
    write(&*stage, 0).wait().expect("written");
    ahead.wait().expect("written");
    check_content(&*stage, 2);
}

#[test]
fn a_gap_fails_after_30_s_with_the_first_missing_block() {
    let (emu, stage) = staged_drive();
    write(&*stage, 0).wait().expect("written");
    let (three, five) = (write(&*stage, 3), write(&*stage, 5));
    let error = five.wait().expect_err("a gap");
    assert_eq!((error.kind(), error.address(), error.zone()), (ErrorKind::Gap, Some(at(5)), Some(ZONE)));
    assert!(error.to_string().contains(&format!("the first missing block is {}", at(1))), "{error}");
    assert_eq!(three.wait().expect_err("a gap").kind(), ErrorKind::Gap);
    let waited = Duration::from_nanos(stage.driver().now().0);
    assert!((PATIENCE..PATIENCE + Duration::from_secs(1)).contains(&waited), "{waited:?}");
    // The zone goes on at its pointer, and a pointer that moves gives the writes above it more time.
    let five = write(&*stage, 5);
    for n in 1..5 {
        let driver = Arc::clone(stage.driver());
        block_on(&*driver, sleep_until(&*driver, driver.now().after(Duration::from_secs(20))));
        write(&*stage, n).wait().expect("written");
    }
    five.wait().expect("written");
    assert_eq!(pointer(&*emu), 6);
    check_content(&*stage, 6);
}

#[test]
fn a_finish_a_close_and_a_reset_fail_what_waits() {
    for (action, state) in [
        (Action::Finish, ZoneState::Full),
        (Action::Close, ZoneState::Closed),
        (Action::Reset, ZoneState::Empty),
    ] {
        let (emu, stage) = staged_drive();
        write(&*stage, 0).wait().expect("written");
        let ahead = write(&*stage, 4);
        stage.zone(ZONE, action).wait().expect("done");
        let error = ahead.wait().expect_err("a gap");
        assert_eq!(error.kind(), ErrorKind::Gap, "{action:?}");
        assert!(error.to_string().contains(&format!("the first missing block is {}", at(1))), "{error}");
        assert_eq!(info(&*emu).state, state);
        if state == ZoneState::Empty {
            write(&*stage, 0).wait().expect("a new life");
        }
    }
}

#[test]
fn a_failed_write_fails_all_above_it_and_the_zone_goes_on_at_its_pointer() {
    let (emu, stage) = staged_drive();
    emu.fail(FaultSpec { after: 1, ..FaultSpec::next(FaultOp::Write) });
    let ios: Vec<Io<()>> = [0, 1, 4, 2].iter().map(|n| write(&*stage, *n)).collect();
    let done = block_on(&**stage.driver(), join_all(ios));
    let kinds: Vec<Option<ErrorKind>> =
        done.iter().map(|done| done.as_ref().err().map(Error::kind)).collect();
    assert_eq!(kinds[..2], [None, Some(ErrorKind::Media)]);
    assert_eq!(kinds[2], Some(ErrorKind::Gap), "it waited");
    assert!(kinds[3].is_some(), "it was in flight behind the failed one");
    assert_eq!(pointer(&*emu), 1);
    for done in block_on(&**stage.driver(), join_all([3, 2, 1].map(|n| write(&*stage, n)).into())) {
        done.expect("written");
    }
    check_content(&*stage, 4);
}

#[test]
fn writes_beyond_the_window_and_beyond_the_stages_memory_are_refused_at_once() {
    let (_emu, stage) = staged_drive();
    let now = stage.driver().now();
    let error = write(&*stage, 16).wait().expect_err("beyond");
    assert_eq!((error.kind(), error.address()), (ErrorKind::NotAtWritePointer, Some(at(16))));
    assert!(error.to_string().contains("16 blocks ahead"), "{error}");
    assert_eq!(stage.driver().now(), now, "at once");
    // Sixteen windows of 16 blocks: 15 blocks of each of 17 zones, and one of another zone.
    let options = EmuOptions {
        zones: 24,
        zone_size: Blocks(64),
        zone_capacity: Blocks(64),
        max_open: None,
        max_active: None,
        ..EmuOptions::default()
    };
    let drive = Emu::memory(options, VirtualDriver::new(1));
    let stage = Stage::over(drive, WINDOW).expect("a stage");
    let ahead = |zone: u64, n| stage.write(Lba(zone * 64 + n), block(4096, n), Durability::Cached);
    let waiting: Vec<Io<()>> =
        (0..17).flat_map(|zone| (1..16).map(move |n| (zone, n))).map(|(zone, n)| ahead(zone, n)).collect();
    let last = ahead(20, 1);
    let error = ahead(20, 2).wait().expect_err("the stage is full");
    assert_eq!(error.kind(), ErrorKind::Busy, "{error}");
    assert!(error.to_string().contains("256 blocks wait"), "{error}");
    // Writes at the pointer go on, and make room.
    for zone in 0..17 {
        ahead(zone, 0).wait().expect("written");
    }
    for io in waiting {
        io.wait().expect("written");
    }
    let later = ahead(20, 2);
    ahead(20, 0).wait().expect("written");
    last.wait().expect("written");
    later.wait().expect("written");
}

/// Eight tasks write 16 MiB of a zone in pieces of 32 KiB, in shuffled order; one task writes it in order, with as many in flight. Returns
/// the bytes per second of both, in virtual time.
#[test]
fn eight_threads_in_any_order_write_as_fast_as_one_in_order() {
    const PIECE: u64 = 8;
    const PIECES: u64 = 512;
    let rate = |window: Option<Bytes>, order: Vec<u64>| {
        let driver: Arc<dyn Driver> = VirtualDriver::new(1);
        let profile = Profile::load("zn540").expect("built in");
        let options = EmuOptions {
            zones: 4,
            zone_size: Blocks(1 << 15),
            zone_capacity: Blocks(1 << 15),
            ..EmuOptions::of_profile(profile)
        };
        let drive = emulated(options, Arc::clone(&driver)) as Arc<dyn ZonedDevice>;
        let device = window.map_or_else(
            || Arc::clone(&drive),
            |window| Stage::over(Arc::clone(&drive), window).expect("a stage"),
        );
        let began = driver.now();
        let next = Arc::new(Mutex::new(order.into_iter()));
        let task = |_| {
            let (device, next) = (Arc::clone(&device), Arc::clone(&next));
            async move {
                loop {
                    let Some(piece) = next.lock().next() else { return };
                    let data = Buf::zeroed((PIECE * 4096) as usize);
                    device.write(Lba(piece * PIECE), data, Durability::Cached).await.expect("written");
                }
            }
        };
        let tasks: Vec<_> = (0..8).map(|n| spawn(&*driver, "writer", task(n))).collect();
        block_on(&*driver, async {
            for task in tasks {
                task.await;
            }
        });
        let took = driver.now().since(began).as_secs_f64();
        (PIECES * PIECE * 4096) as f64 / took
    };
    let ordered = rate(None, (0..PIECES).collect());
    let mut rng = SplitMix64::new(5);
    // Neighbours among eight threads: no thread is further ahead than seven pieces.
    let mut order: Vec<u64> = (0..PIECES).collect();
    for part in order.chunks_mut(8) {
        for n in (1..part.len()).rev() {
            part.swap(n, (rng.draw() % (n as u64 + 1)) as usize);
        }
    }
    let shuffled = rate(Some(Bytes(1 << 20)), order);
    let ratio = shuffled / ordered;
    println!("shuffled {shuffled:.0} B/s, in order {ordered:.0} B/s: {ratio:.3}");
    assert!(ratio >= 0.95, "{ratio}");
}

/// Acknowledged writes are on the drive, below its pointer, and no block is acknowledged twice, whatever fails in between.
#[test]
fn random_writes_and_commands_leave_what_was_acknowledged() {
    for seed in 0..300 {
        let mut rng = SplitMix64::new(seed);
        let (emu, stage) = staged_drive();
        let driver = Arc::clone(stage.driver());
        if rng.draw().is_multiple_of(2) {
            let after = rng.draw() % 20;
            emu.fail(FaultSpec { after, ..FaultSpec::next(FaultOp::Write) });
        }
        // The blocks whose writes were acknowledged since the last reset.
        let mut acked: BTreeMap<u64, u64> = BTreeMap::new();
        let mut in_flight: Vec<(u64, u64, Io<()>)> = Vec::new();
        for step in 0..60 {
            match rng.draw() % 16 {
                0 => {
                    for (n, tag, io) in in_flight.drain(..) {
                        if block_on(&*driver, io).is_ok() {
                            acked.insert(n, tag);
                        }
                    }
                    if rng.draw().is_multiple_of(3) {
                        stage.zone(ZONE, Action::Reset).wait().expect("reset");
                        acked.clear();
                    }
                }
                _ => {
                    let n = pointer(&*emu).saturating_add(rng.draw() % 6).min(63);
                    let tag = seed << 32 | step << 8 | n;
                    in_flight.push((n, tag, stage.write(at(n), block(4096, tag), Durability::Cached)));
                }
            }
        }
        for (n, tag, io) in in_flight {
            if block_on(&*driver, io).is_ok() {
                assert_eq!(acked.insert(n, tag), None, "seed {seed}: block {n} was acknowledged twice");
            }
        }
        let end = pointer(&*emu);
        assert!(acked.keys().all(|n| *n < end), "seed {seed}: acknowledged above the pointer {end}");
        for (n, tag) in acked {
            let found = stage.read(at(n), BufMut::zeroed(4096)).wait().expect("read");
            assert!(*found == *block(4096, tag), "seed {seed}: block {n}");
        }
    }
}
