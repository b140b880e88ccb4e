//! A drive that fails while it is written, at every point; and a second drive that fails.

use std::sync::Arc;
use std::time::Duration;

use crate::common::{BLOCK_BYTES, Bench, block, blocks, device, verify, verify_all, write_content};
use array::{Array, CreateOptions, Health, OpenOptions, Placement, Slot};
use units::{Driver, SplitMix64, VirtualDriver, block_on, sleep_until, spawn};
use zoned::emu::{Emu, EmuOptions};
use zoned::{Action, Blocks, BufMut, Durability, ErrorKind, Op, ZoneId, ZoneState, ZonedDevice};

/// The numbers of blocks that a zone must hold, and that it may hold.
#[derive(Clone, Copy, Default, Debug)]
struct Zone {
    acknowledged: u64,
    submitted: u64,
}

/// A load on `zones`: writes and appends of all lengths, a few in flight, flushes and durable writes. Returns
/// the first error, at which the load stops.
async fn write_load(
    dev: Arc<dyn ZonedDevice>,
    zones: std::ops::Range<u32>,
    seed: u64,
) -> (Vec<Zone>, Option<ErrorKind>) {
    let mut rng = SplitMix64::new(seed);
    let mut state = vec![Zone::default(); zones.len()];
    for _ in 0..25 {
        let at = (rng.draw() % zones.len() as u64) as usize;
        let zone = zones.start + at as u32;
        let mut ios = Vec::new();
        for _ in 0..1 + rng.draw() % 4 {
            let from = state[at].submitted;
            let to = (from + 1 + rng.draw() % 40).min(1920);
            if from == to {
                break;
            }
            let how = if rng.draw().is_multiple_of(5) { Durability::Durable } else { Durability::Cached };
            let data = blocks(zone, from, to);
            let start = dev.geometry().start(ZoneId(zone)).plus(Blocks(from));
            let io = match rng.draw() % 2 {
                0 => dev.submit(Op::Append { zone: ZoneId(zone), data, how }),
                _ => dev.submit(Op::Write { at: start, data, how }),
            };
            state[at].submitted = to;
            ios.push((to, io));
        }
        let mut failed = None;
        for (to, io) in ios {
            match io.await {
                Ok(_) => state[at].acknowledged = to,
                Err(e) => failed = failed.or(Some(e.kind())),
            }
        }
        if rng.draw().is_multiple_of(6) {
            failed = failed.or(dev.flush().await.err().map(|e| e.kind()));
        }
        if failed.is_some() {
            return (state, failed);
        }
    }
    (state, None)
}

async fn assert_zones_hold(dev: &Arc<dyn ZonedDevice>, zones: &[(u32, Zone)]) {
    let infos = dev.report_all().expect("report");
    for (zone, state) in zones {
        let pointer = infos[*zone as usize].pointer.0;
        assert!(pointer >= state.acknowledged, "zone {zone}: {pointer}, {state:?}");
        if state.acknowledged > 0 {
            verify(dev, *zone, 0, state.acknowledged).await;
        }
    }
}

fn placed() -> CreateOptions {
    CreateOptions { placement: crate::PLACEMENT, ..CreateOptions::default() }
}

#[test]
fn a_drive_unplugged_at_any_moment_loses_no_data() {
    for after in (0..120).step_by(3).chain([150, 200, 300, 500]) {
        let slot = after as usize % 5;
        let bench = Bench::new(after);
        let zones = block_on(&*bench.driver, async {
            let array = bench.open(&[]).await;
            bench.drives[slot].unplug(after as i64);
            let one = spawn(&*bench.driver, "load", write_load(device(&array), 0..3, after));
            let two = spawn(&*bench.driver, "load", write_load(device(&array), 3..6, after + 1000));
            let ((a, first), (b, second)) = (one.await, two.await);
            assert_eq!((first, second), (None, None), "no operation fails: unplugged after {after}");
            let states: Vec<(u32, Zone)> = (0..).zip(a.into_iter().chain(b)).collect();
            assert_zones_hold(&device(&array), &states).await;
            let health = array.status().health();
            assert!(health == Health::Degraded || after >= 150, "{health:?} after {after}");
            device(&array).flush().await.expect("flushed");
            states
        });
        // The failed drive is present again, or not. Its content is out of date, and the other superblocks
        // say so.
        bench.drives[slot].unplug(i64::MAX);
        for without in [vec![], vec![slot]] {
            block_on(&*bench.driver, async {
                let array = bench.open(&without).await;
                assert_zones_hold(&device(&array), &zones).await;
            });
        }
    }
}

#[test]
fn a_second_failed_drive_is_an_error_and_never_wrong_data() {
    let mut broke = 0;
    for after in 0..40_u64 {
        let bench = Bench::new(after);
        block_on(&*bench.driver, async {
            let array = bench.open(&[]).await;
            let dev = device(&array);
            bench.drives[1].unplug(10);
            bench.drives[3].unplug(10 + 3 * after as i64);
            let (states, failed) = write_load(Arc::clone(&dev), 0..4, after).await;
            let broken = array.is_broken();
            broke += u32::from(broken);
            assert_eq!(failed.is_some(), broken, "{failed:?}");
            if broken {
                assert_eq!(failed, Some(ErrorKind::Gone));
                assert_eq!(array.status().health(), Health::Failed);
            }
            for (zone, state) in (0..).zip(&states) {
                for n in 0..state.acknowledged {
                    let at = dev.geometry().start(ZoneId(zone)).plus(Blocks(n));
                    match dev.read(at, BufMut::zeroed(BLOCK_BYTES)).await {
                        Ok(found) => assert!(found[..] == block(zone, n)[..], "block {n} of zone {zone}"),
                        Err(e) => assert!(array.is_broken(), "{e}"),
                    }
                }
            }
            if broken {
                let at = dev.geometry().start(ZoneId(5));
                let error = dev.write(at, blocks(5, 0, 1), Durability::Cached).await.expect_err("read only");
                assert!(error.to_string().contains("two drives of the array failed"), "{error}");
                assert_eq!(
                    dev.flush().await.expect_err("a broken array flushes nothing").kind(),
                    ErrorKind::Gone
                );
                if let Some((zone, _)) = (0..).zip(&states).find(|(_, state)| state.acknowledged > 0) {
                    assert!(dev.zone(ZoneId(zone), Action::Reset).await.is_err());
                }
            }
        });
        // With two drives missing, the array cannot be opened.
        let array = block_on(&*bench.driver, Array::open(bench.devices(&[1, 3]), OpenOptions::default()));
        let error = array.expect_err("two are missing").to_string();
        assert!(error.contains("does without one drive only"), "{error}");
    }
    assert!((20..40).contains(&broke), "{broke} of 40 lost the second drive under load");
}

#[test]
fn resets_and_finishes_complete_when_a_drive_is_unplugged() {
    for after in 0..40_i64 {
        let bench = Bench::new(after as u64);
        block_on(&*bench.driver, async {
            let array = bench.open(&[]).await;
            let dev = device(&array);
            write_content(&dev).await;
            bench.drives[after as usize % 5].unplug(after / 2);
            dev.zone(ZoneId(3), Action::Reset).await.expect("reset");
            dev.zone(ZoneId(1), Action::Finish).await.expect("finished");
            crate::common::write(&dev, 3, 0, 802).await;
            dev.zone(ZoneId(0), Action::Reset).await.expect("reset");
            crate::common::write(&dev, 0, 0, 1920).await;
            verify_all(&dev).await;
            dev.flush().await.expect("flushed");
        });
        block_on(&*bench.driver, async {
            let array = bench.open(&[after as usize % 5]).await;
            verify_all(&device(&array)).await;
        });
    }
}

#[test]
fn a_drive_that_an_operator_fails_is_said_to_be_failed_by_order() {
    let bench = Bench::new(1);
    block_on(&*bench.driver, async {
        let array = bench.open(&[]).await;
        let events = array.events();
        array.fail(Slot(4)).await.expect("failed");
        let said: Vec<String> =
            std::iter::from_fn(|| events.try_next()).map(|event| event.kind.to_string()).collect();
        assert_eq!(said, ["drive 4 failed, the array goes on without it: an operator ordered it"]);
    });
}

#[test]
fn the_handle_of_a_failed_drive_is_released() {
    let bench = Bench::new(1);
    block_on(&*bench.driver, async {
        let array = bench.open(&[]).await;
        write_content(&device(&array)).await;
        assert!(Arc::strong_count(&bench.drives[4]) > 1);
        array.fail(Slot(4)).await.expect("failed");
        sleep_until(&*bench.driver, bench.driver.now().after(Duration::from_millis(1))).await;
        assert_eq!(Arc::strong_count(&bench.drives[4]), 1, "another user may open the drive");
        verify_all(&device(&array)).await;
    });
}

#[test]
fn a_write_to_a_worn_zone_and_a_failed_drive_records_both() {
    let mut met = 0;
    for lost in 0..5 {
        let bench = Bench::new(1);
        block_on(&*bench.driver, async {
            let array = bench.open(&[]).await;
            let dev = device(&array);
            crate::common::write(&dev, 1, 0, 37).await;
            let worn = (lost + 2) % 5;
            bench.drives[worn].inner.wear(ZoneId(1 + crate::common::METADATA_ZONES), ZoneState::ReadOnly);
            bench.drives[lost].unplug(0);
            let at = dev.geometry().start(ZoneId(1)).plus(Blocks(37));
            let refused = dev.write(at, blocks(1, 37, 80), Durability::Cached).await;
            assert_eq!(refused.expect_err("worn").kind(), ErrorKind::ZoneReadOnly);
            let status = array.status();
            assert_eq!(status.worn.len(), 1, "{status:?}");
            assert_eq!(status.health(), Health::Degraded, "{status:?}");
            assert_eq!(status.members[lost].state, array::MemberState::Failed);
            verify(&dev, 1, 0, 37).await;
            met += 1;
        });
    }
    assert_eq!(met, 5);
}

#[test]
fn a_zone_finished_by_its_drive_is_full_and_the_drive_goes_on() {
    for slot in 0..5 {
        let bench = Bench::new(1);
        block_on(&*bench.driver, async {
            let array = bench.open(&[]).await;
            let dev = device(&array);
            write_content(&dev).await;
            let raw = Arc::clone(&bench.drives[slot].inner) as Arc<dyn ZonedDevice>;
            raw.zone(ZoneId(1 + crate::common::METADATA_ZONES), Action::Finish).await.expect("finished");
            let at = dev.geometry().start(ZoneId(1)).plus(Blocks(37));
            let refused = dev.write(at, blocks(1, 37, 80), Durability::Cached).await.expect_err("full");
            assert_eq!(refused.kind(), ErrorKind::ZoneFull);
            assert_eq!(array.status().health(), Health::Clean, "a worn zone fails no drive");
            assert!(dev.write(at, blocks(1, 37, 38), Durability::Cached).await.is_err());
            verify_all(&dev).await;
            crate::common::write(&dev, 3, 802, 1000).await;
        });
        block_on(&*bench.driver, async {
            let array = bench.open(&[]).await;
            let dev = device(&array);
            verify_all(&dev).await;
            assert_eq!(dev.report(1..2).await.expect("reported")[0].state, ZoneState::Full);
            dev.zone(ZoneId(1), Action::Reset).await.expect("reset");
            crate::common::write(&dev, 1, 0, 100).await;
            verify(&dev, 1, 0, 100).await;
        });
    }
}

#[test]
fn a_drive_with_a_volatile_cache_cannot_join_an_array_without_one() {
    let driver: Arc<dyn Driver> = VirtualDriver::new(1);
    let drive = |n: u32, volatile_cache| {
        let options =
            EmuOptions { name: format!("emu:{n}"), zones: 8, volatile_cache, ..EmuOptions::default() };
        Emu::memory(options, Arc::clone(&driver)) as Arc<dyn ZonedDevice>
    };
    block_on(&*driver, async {
        let drives: Vec<_> = (0..3).map(|n| drive(n, false)).collect();
        array::create(&drives, &placed()).await.expect("created");
        let array = Array::open(drives, OpenOptions::default()).await.expect("opened");
        array.fail(Slot(1)).await.expect("failed");
        let refused =
            array.replace(Slot(1), drive(8, true)).await.expect_err("its writes would not be durable");
        assert!(refused.to_string().contains("volatile"), "{refused}");
        array.replace(Slot(1), drive(9, false)).await.expect("replaced");
    });
}

#[test]
fn limits_of_open_zones_are_the_same_whichever_drive_is_missing() {
    let driver: Arc<dyn Driver> = VirtualDriver::new(1);
    let drives: Vec<Arc<dyn ZonedDevice>> = (0..4)
        .map(|n| {
            let (max_open, max_active) = (Some(8 + n), Some(14 - n));
            let name = format!("emu:{n}");
            let options = EmuOptions { name, zones: 8, max_open, max_active, ..EmuOptions::default() };
            Emu::memory(options, Arc::clone(&driver)) as Arc<dyn ZonedDevice>
        })
        .collect();
    block_on(&*driver, async {
        array::create(&drives, &placed()).await.expect("created");
        for without in [None, Some(0)] {
            let there = drives.iter().enumerate().filter(|(n, _)| Some(*n) != without);
            let there = there.map(|(_, drive)| Arc::clone(drive)).collect();
            let array = Array::open(there, OpenOptions::default()).await.expect("opened");
            let geometry = array.geometry();
            // Stored maps keep one active zone for a part that moves.
            let kept = u32::from(crate::PLACEMENT == Placement::Stored);
            let limits = (geometry.max_open, geometry.max_active);
            assert_eq!(limits, (Some(5 - kept), Some(8 - kept)), "without {without:?}");
        }
    });
}

/// Drives like SMR disks: few zones may be open, and all may be partly written.
#[test]
fn partial_parity_of_all_active_zones_fits_the_logs_of_drives_without_a_limit() {
    let driver: Arc<dyn Driver> = VirtualDriver::new(1);
    let drive = |n| {
        let name = format!("emu:{n}");
        let (zones, zone_size) = (256, Blocks(256));
        let options = EmuOptions {
            name,
            zones,
            zone_size,
            zone_capacity: zone_size,
            max_open: Some(8),
            max_active: None,
            ..EmuOptions::default()
        };
        Emu::memory(options, Arc::clone(&driver)) as Arc<dyn ZonedDevice>
    };
    let drives: Vec<_> = (0..5).map(drive).collect();
    block_on(&*driver, async {
        array::create(&drives, &placed()).await.expect("created");
        let array = Array::open(drives.clone(), OpenOptions::default()).await.expect("opened");
        let dev = device(&array);
        let (most, zones) = (dev.geometry().max_active.expect("limited"), dev.geometry().zones);
        assert!(most >= dev.geometry().max_open.expect("the drives'"), "{most}");
        let unit = |n: u8| zoned::Buf::copy_from(&vec![n; 64 << 10]);
        for id in (0..zones).map(ZoneId) {
            let written = dev.write(dev.geometry().start(id), unit(id.0 as u8), Durability::Cached).await;
            match id.0 < most {
                true => written.expect("it is one of those that may be active"),
                false => {
                    let refused = written.expect_err("one too many");
                    assert_eq!(refused.kind(), ErrorKind::TooManyActive, "{refused}");
                }
            }
        }
        // The metadata logs roll a few times.
        for n in 16..28 {
            for id in (0..most).map(ZoneId) {
                let at = dev.geometry().start(id).plus(Blocks(n));
                let data = zoned::Buf::copy_from(&[n as u8; 4096]);
                dev.write(at, data, Durability::Cached).await.expect("written");
            }
        }
        assert_eq!(array.status().health(), Health::Clean);
        dev.flush().await.expect("flushed");
        drop((array, dev));
        for without in [None, Some(0), Some(4)] {
            let mut drives = drives.clone();
            without.map(|slot| drives.remove(slot));
            let array = Array::open(drives, OpenOptions::default()).await.expect("opened");
            let dev = device(&array);
            assert_eq!(dev.geometry().max_active, Some(most));
            for id in (0..most).map(ZoneId) {
                let found =
                    dev.read(dev.geometry().start(id), BufMut::zeroed(28 * 4096)).await.expect("read");
                assert!(found[..16 * 4096].iter().all(|byte| *byte == id.0 as u8), "zone {id}");
                for n in 16..28 {
                    assert!(found[n * 4096..(n + 1) * 4096].iter().all(|byte| *byte == n as u8), "zone {id}");
                }
            }
            if without.is_some() {
                // A later mount lacks another drive.
                assert_eq!(array.status().health(), Health::Degraded);
                break;
            }
        }
    });
}

/// The power is cut when the other superblocks name the new drive, before anything is written to the new
/// drive: no mount recognises that drive.
#[test]
fn a_drive_whose_rebuild_was_cut_at_its_start_can_be_replaced_again() {
    let bench = Bench::new(1);
    let new = Bench::drive(&bench.driver, 9);
    let again = block_on(&*bench.driver, async {
        let array = bench.open(&[]).await;
        write_content(&device(&array)).await;
        array.fail(Slot(2)).await.expect("failed");
        let drive = Arc::clone(&new) as Arc<dyn ZonedDevice>;
        let _rebuild =
            array.start_replace(Slot(2), drive, array::RebuildOptions::default()).await.expect("begun");
        bench.copy()
    });
    block_on(&*again.driver, async {
        let array = again.open(&[2]).await;
        assert!(array.rebuild().is_none(), "the drive has no superblock");
        let status = array.status();
        assert_eq!(status.members[2].state, array::MemberState::Rebuilding);
        assert!(
            status.advice().iter().any(|advice| advice.contains("replace it again")),
            "{:?}",
            status.advice()
        );
        let drive = Bench::drive(&again.driver, 9);
        array.replace(Slot(2), drive).await.expect("replaced again");
        assert_eq!(array.status().health(), Health::Clean);
        verify_all(&device(&array)).await;
    });
}
