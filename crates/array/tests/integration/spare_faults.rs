//! Idle spares beside faults: bad source drives, refused and copied spares, failing orders, and what `status` says meanwhile.

use std::sync::Arc;
use std::time::Duration;

use array::{
    Array, CheckOptions, CreateOptions, EventKind, Health, MemberState, OpenOptions, RebuildOptions, Slot,
};
use units::{Driver, VirtualDriver, block_on, sleep_until, spawn};
use uuid::Uuid;
use zoned::emu::{Emu, EmuOptions, Latency};
use zoned::{Blocks, Bytes, Durability, ErrorKind, ZoneId, ZoneState, ZonedDevice};

use crate::common::{Bench, METADATA_ZONES, blocks, device, verify, verify_all, write, write_content};
use crate::spares::{bench_with_spares, wait_until, waiting_events};

fn is_clean(array: &Array) -> bool {
    array.status().health() == Health::Clean
}

async fn sleep(bench: &Bench, time: Duration) {
    sleep_until(&*bench.driver, bench.driver.now().after(time)).await;
}

fn shown_spares(status: &array::Status) -> Vec<(Uuid, bool)> {
    status.spares.iter().map(|spare| (spare.uuid, spare.device.is_some())).collect()
}

#[test]
fn another_drive_that_cannot_read_uses_up_one_spare_and_no_more() {
    let (bench, _) = bench_with_spares(21, 3);
    block_on(&*bench.driver, async {
        let array = bench.open(&[]).await;
        let source = &bench.drives[4];
        source.unreadable.lock().extend((0..100).map(|row| source.row(0, row)));
        array.fail(Slot(2)).await.expect("failed");
        sleep(&bench, Duration::from_secs(5)).await;
        let status = array.status();
        assert_eq!((status.health(), status.spares.len()), (Health::Degraded, 2));
        assert!(array.rebuild().expect("begun").wait().await.is_err());
    });
}

#[test]
fn a_spare_that_is_refused_for_a_moment_is_taken_afterwards() {
    let (bench, spares) = bench_with_spares(22, 1);
    block_on(&*bench.driver, async {
        let array = bench.open(&[]).await;
        *bench.drives[5].refuses.lock() = Some(ErrorKind::Host);
        array.fail(Slot(2)).await.expect("failed");
        sleep(&bench, Duration::from_millis(50)).await;
        *bench.drives[5].refuses.lock() = None;
        wait_until(&bench, &array, is_clean).await;
        assert_eq!(array.status().members[2].info.uuid, spares[0]);
    });
}

#[test]
fn a_spare_whose_drive_fails_as_it_is_taken_is_listed_as_missing_and_the_slot_as_failed() {
    let (bench, spares) = bench_with_spares(23, 1);
    block_on(&*bench.driver, async {
        let array = bench.open(&[]).await;
        let events = array.events();
        bench.drives[5].unplug(1);
        array.fail(Slot(3)).await.expect("failed");
        sleep(&bench, Duration::from_secs(2)).await;
        let status = array.status();
        assert_eq!(status.members[3].state, MemberState::Failed);
        assert_ne!(status.members[3].info.uuid, spares[0]);
        assert_eq!(shown_spares(&status), [(spares[0], false)]);
        assert!(waiting_events(&events).iter().any(|kind| matches!(kind, EventKind::SpareMissing { .. })));
    });
}

#[test]
fn a_spare_that_does_not_fit_the_array_of_the_moment_blocks_no_other_spare() {
    let driver: Arc<dyn Driver> = VirtualDriver::new(24);
    let drive = |n: u32, volatile_cache: bool| -> Arc<dyn ZonedDevice> {
        let options = EmuOptions {
            name: format!("emu:{n}"),
            block_size: 512,
            zones: 11 + crate::RESERVE_ZONES,
            zone_size: Blocks(512),
            zone_capacity: Blocks(480),
            max_open: Some(9),
            max_active: Some(10),
            volatile_cache,
            ..EmuOptions::default()
        };
        Emu::memory(options, Arc::clone(&driver))
    };
    block_on(&*driver, async {
        let drives: Vec<_> = (0..4).map(|n| drive(n, n == 3)).collect();
        let options = CreateOptions {
            stripe_unit: Bytes(2048),
            placement: crate::PLACEMENT,
            shares: crate::SHARES,
            ..CreateOptions::default()
        };
        array::create(&drives, &options).await.expect("created");
        let array = Array::open(drives.clone(), OpenOptions::default()).await.expect("opened");
        let (volatile, stable) = (drive(5, true), drive(6, false));
        let first = array.add_spare(Arc::clone(&volatile)).await.expect("added");
        let second = array.add_spare(Arc::clone(&stable)).await.expect("added");
        drop(array);
        // Without its only drive with a volatile cache the array reports none, so that the first spare does not fit.
        let named = drives[..3].iter().cloned().chain([volatile, stable]).collect();
        let array = Array::open(named, OpenOptions::default()).await.expect("opened");
        array.rebuild().expect("begun by the opening").wait().await.expect("rebuilt");
        let status = array.status();
        assert_eq!((status.members[3].info.uuid, shown_spares(&status)), (second, vec![(first, true)]));
    });
}

#[test]
fn a_spare_that_is_named_twice_or_copied_takes_one_place() {
    let (bench, spares) = bench_with_spares(25, 1);
    for copied in [false, true] {
        let bench = bench.copy();
        block_on(&*bench.driver, async {
            let media = bench.drives[5].inner.media();
            let twin: Arc<dyn ZonedDevice> = match copied {
                true => Emu::from_media(media, "emu:twin", Latency::NONE, Arc::clone(&bench.driver)),
                false => Arc::clone(&bench.drives[5]) as Arc<dyn ZonedDevice>,
            };
            let named = bench.devices(&[]).into_iter().chain([twin]).collect();
            let array = Array::open(named, OpenOptions::default()).await.expect("opened");
            for slot in [1, 2] {
                array.fail(Slot(slot)).await.expect("failed");
                sleep(&bench, Duration::from_secs(2)).await;
            }
            let status = array.status();
            assert_eq!((status.health(), status.members[1].info.uuid), (Health::Degraded, spares[0]));
            verify_all(&device(&array)).await;
        });
    }
}

#[test]
fn status_shows_the_spares_that_a_mount_takes_after_any_power_cut() {
    let bench = Bench::new(26);
    block_on(&*bench.driver, async { write_content(&device(&bench.open(&[]).await)).await });
    for cut in 0..60 {
        let mut copy = bench.copy();
        let spare = Bench::drive(&copy.driver, 5);
        copy.drives.push(Arc::clone(&spare));
        let driver = Arc::clone(&copy.driver);
        block_on(&*driver, async {
            let array = copy.open(&[]).await;
            drop(spawn(&*driver, "spare", async move { drop(array.add_spare(spare).await) }));
            sleep_until(&*driver, driver.now().after(Duration::from_micros(cut * 3))).await;
        });
        let after = copy.cut(cut);
        block_on(&*after.driver, async {
            let shown = array::status(&after.devices(&[])).await.expect("a status");
            let mounted = after.open(&[]).await.status();
            assert_eq!(shown_spares(&shown), shown_spares(&mounted), "{cut}");
        });
    }
}

#[test]
fn status_shows_a_taken_spare_as_the_drive_that_is_rebuilt_after_any_power_cut() {
    let (bench, spares) = bench_with_spares(27, 1);
    let mut rebuilding = 0;
    for cut in 0..120_u64 {
        let copy = bench.copy();
        block_on(&*copy.driver, async {
            let array = copy.open(&[]).await;
            let driver = Arc::clone(&copy.driver);
            let failing = Arc::clone(&array);
            drop(spawn(&*driver, "fail", async move { drop(failing.fail(Slot(1)).await) }));
            sleep_until(&*driver, driver.now().after(Duration::from_micros(cut * 4))).await;
        });
        let after = copy.cut(cut);
        block_on(&*after.driver, async {
            let status = array::status(&after.devices(&[1])).await.expect("a status");
            let member = &status.members[1];
            if member.info.uuid == spares[0] {
                let expected = (MemberState::Rebuilding, Some("emu:5".into()));
                assert_eq!((member.state, member.device.clone()), expected, "{cut}");
                rebuilding += 1;
            } else {
                assert_eq!(shown_spares(&status), [(spares[0], true)], "{cut}");
            }
        });
    }
    assert!(rebuilding > 30, "{rebuilding}");
}

#[test]
fn status_and_check_pass_over_the_spare_of_another_array_as_a_mount_does() {
    let (bench, _) = bench_with_spares(28, 1);
    block_on(&*bench.driver, async {
        let mut named: Vec<Arc<dyn ZonedDevice>> =
            (20..23).map(|n| Bench::drive(&bench.driver, n) as Arc<dyn ZonedDevice>).collect();
        let options = CreateOptions {
            stripe_unit: Bytes(2048),
            placement: crate::PLACEMENT,
            shares: crate::SHARES,
            ..CreateOptions::default()
        };
        array::create(&named, &options).await.expect("created");
        named.push(Arc::clone(&bench.drives[5]) as Arc<dyn ZonedDevice>);
        let status = array::status(&named).await.expect("a status");
        assert!(status.health() == Health::Clean && status.spares.is_empty(), "{status:?}");
        assert!(array::check(&named, CheckOptions::default()).await.expect("checked").is_sound());
    });
}

#[test]
fn spares_are_taken_in_the_order_that_status_shows() {
    let (bench, spares) = bench_with_spares(29, 2);
    block_on(&*bench.driver, async {
        let mut named = bench.devices(&[]);
        named.swap(5, 6);
        let array = Array::open(named, OpenOptions::default()).await.expect("opened");
        assert_eq!(
            shown_spares(&array.status()),
            spares.iter().map(|uuid| (*uuid, true)).collect::<Vec<_>>()
        );
        array.fail(Slot(1)).await.expect("failed");
        wait_until(&bench, &array, is_clean).await;
        assert_eq!(array.status().members[1].info.uuid, spares[0]);
    });
}

#[test]
fn a_broken_array_takes_no_spare_and_leaves_the_drive_as_it_is() {
    let bench = Bench::new(30);
    block_on(&*bench.driver, async {
        let array = bench.open(&[]).await;
        write_content(&device(&array)).await;
        bench.drives[0].unplug(0);
        bench.drives[1].unplug(0);
        let start = array.superblock().zones - 1;
        let at = device(&array).geometry().start(ZoneId(start));
        assert!(device(&array).write(at, blocks(7, 0, 200), Durability::Durable).await.is_err());
        let spare = Bench::drive(&bench.driver, 5) as Arc<dyn ZonedDevice>;
        write(&spare, METADATA_ZONES, 0, 3).await;
        assert_eq!(array.add_spare(Arc::clone(&spare)).await.expect_err("broken").kind(), ErrorKind::Gone);
        verify(&spare, METADATA_ZONES, 0, 3).await;
    });
}

#[test]
fn a_replacement_that_fails_before_its_rebuild_leaves_the_place_to_a_spare() {
    let (bench, spares) = bench_with_spares(31, 1);
    block_on(&*bench.driver, async {
        let array = bench.open(&[]).await;
        let worn = Bench::drive(&bench.driver, 9);
        worn.inner.wear(ZoneId(METADATA_ZONES + 1), ZoneState::ReadOnly);
        // The order comes before the array takes its spare.
        array.fail(Slot(3)).await.expect("failed");
        let refused = array.start_replace(Slot(3), worn, RebuildOptions::default()).await;
        assert_eq!(refused.expect_err("worn").kind(), ErrorKind::ZoneReadOnly);
        wait_until(&bench, &array, is_clean).await;
        assert_eq!(array.status().members[3].info.uuid, spares[0]);
    });
}

#[test]
fn an_idle_spare_and_a_member_are_no_new_drives() {
    let (bench, _) = bench_with_spares(32, 1);
    block_on(&*bench.driver, async {
        let options = OpenOptions { resume: false, ..OpenOptions::default() };
        let array = Array::open(bench.devices(&[1]), options).await.expect("opened");
        for drive in [4, 5] {
            let drive = Arc::clone(&bench.drives[drive]);
            let added = array.add_spare(Arc::clone(&drive) as Arc<dyn ZonedDevice>).await;
            assert_eq!(added.expect_err("of the array").kind(), ErrorKind::Invalid);
            let replaced = array.replace(Slot(1), drive).await;
            assert_eq!(replaced.expect_err("of the array").kind(), ErrorKind::Invalid);
        }
        verify_all(&device(&array)).await;
    });
}

#[test]
fn a_spare_whose_drive_is_dead_is_given_up() {
    let (bench, spares) = bench_with_spares(33, 1);
    block_on(&*bench.driver, async {
        let array = bench.open(&[]).await;
        bench.drives[5].unplug(0);
        array.remove_spare(spares[0]).await.expect("removed");
        assert!(array.status().spares.is_empty());
    });
}

#[test]
fn no_drive_is_held_once_an_array_with_spares_is_closed() {
    let (bench, _) = bench_with_spares(34, 2);
    block_on(&*bench.driver, async {
        let is_held = || bench.drives.iter().any(|drive| Arc::strong_count(drive) > 1);
        drop(bench.open(&[]).await);
        assert!(!is_held(), "right after the drop");
        let array = bench.open(&[]).await;
        array.fail(Slot(1)).await.expect("failed");
        wait_until(&bench, &array, is_clean).await;
        array.rebuild().expect("begun").wait().await.expect("rebuilt");
        drop(array);
        assert!(!is_held(), "after a rebuild onto a spare");
        drop(bench.open(&[1]).await);
    });
}
