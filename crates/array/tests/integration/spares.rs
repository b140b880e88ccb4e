//! Idle spares: they take the place of failed drives by themselves, and no power cut loses one.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use array::{Array, CreateOptions, EventKind, Events, Health, OpenOptions, Pace, RebuildOptions, Slot};
use units::{block_on, sleep_until, spawn};
use uuid::Uuid;
use zoned::emu::{Emu, EmuOptions};
use zoned::{Blocks, Bytes, ErrorKind, ZoneId, ZoneState, ZonedDevice};

use crate::common::{Bench, Flaky, METADATA_ZONES, device, verify, verify_all, write, write_content};
use crate::{RESERVE_ZONES, SPARE_ACTIVE};

/// A bench with `count` drives more, which are idle spares of its array. Also returns the spares' identities.
pub fn bench_with_spares(seed: u64, count: usize) -> (Bench, Vec<Uuid>) {
    let mut bench = Bench::new(seed);
    let spares = block_on(&*bench.driver.clone(), async {
        let array = bench.open(&[]).await;
        write_content(&device(&array)).await;
        let mut spares = Vec::new();
        for n in 0..count {
            let drive = Bench::drive(&bench.driver, 5 + n as u32);
            spares.push(array.add_spare(Arc::clone(&drive) as Arc<dyn ZonedDevice>).await.expect("added"));
            bench.drives.push(drive);
        }
        spares
    });
    (bench, spares)
}

/// Waits until the array's condition is true, for ten seconds at most.
pub async fn wait_until(bench: &Bench, array: &Array, is_true: impl Fn(&Array) -> bool) {
    let end = bench.driver.now().after(Duration::from_secs(10));
    while !is_true(array) {
        assert!(bench.driver.now() < end, "{:?}", array.status());
        sleep_until(&*bench.driver, bench.driver.now().after(Duration::from_micros(50))).await;
    }
}

/// Waits for the end of the rebuild of the first spare that the array takes.
async fn wait_for_spare(bench: &Bench, array: &Array) {
    wait_until(bench, array, |array| array.rebuild().is_some()).await;
    array.rebuild().expect("begun").wait().await.expect("rebuilt");
}

/// Compares all that [`write_content`] wrote.
async fn verify_content(array: &Arc<Array>) {
    verify_all(&device(array)).await;
}

/// Options of a mount whose rebuilds take most of a second.
pub fn slow_rebuilds() -> OpenOptions {
    let pace = Pace { max_rate: Some(Bytes(1 << 20)), min_rate: Bytes(1 << 10), client_target: 0 };
    OpenOptions { rebuild: RebuildOptions { pace }, ..OpenOptions::default() }
}

pub fn waiting_events(events: &Events) -> Vec<EventKind> {
    std::iter::from_fn(|| events.try_next()).map(|event| event.kind).collect()
}

#[test]
fn a_drive_that_fails_is_rebuilt_onto_a_spare_without_an_order() {
    let (bench, spares) = bench_with_spares(1, 2);
    block_on(&*bench.driver, async {
        let array = bench.open(&[]).await;
        let listed: Vec<_> = array.status().spares.iter().map(|spare| spare.device.clone()).collect();
        assert_eq!(listed, [Some("emu:5".into()), Some("emu:6".into())]);
        let events = array.events();
        bench.drives[2].unplug(0);
        write(&device(&array), 1, 37, 300).await;
        wait_for_spare(&bench, &array).await;
        let names: Vec<&str> = waiting_events(&events).iter().map(EventKind::name).collect();
        assert_eq!(names, ["drive-failed", "spare-used", "rebuild-started", "rebuild-ended"]);
        let status = array.status();
        assert_eq!((status.health(), status.members[2].info.uuid), (Health::Clean, spares[0]));
        assert_eq!(status.spares.iter().map(|spare| spare.uuid).collect::<Vec<_>>(), [spares[1]]);
        // The next failure takes the second spare, and a third one leaves the array degraded.
        bench.drives[0].unplug(0);
        write(&device(&array), 1, 300, 400).await;
        sleep_until(&*bench.driver, bench.driver.now().after(Duration::from_millis(1))).await;
        array.rebuild().expect("begun").wait().await.expect("rebuilt");
        array.fail(Slot(4)).await.expect("failed");
        sleep_until(&*bench.driver, bench.driver.now().after(Duration::from_millis(1))).await;
        let status = array.status();
        assert_eq!((status.health(), status.spares.len()), (Health::Degraded, 0));
        assert_eq!(status.members[0].info.uuid, spares[1]);
        verify_content(&array).await;
        verify(&device(&array), 1, 0, 400).await;
        drop(array);
        let array = bench.open(&[0, 2, 4]).await;
        verify_content(&array).await;
        verify(&device(&array), 1, 0, 400).await;
    });
}

#[test]
fn an_array_that_is_opened_without_a_drive_takes_a_spare_and_resumes_its_rebuild() {
    let (bench, spares) = bench_with_spares(2, 1);
    block_on(&*bench.driver, async {
        let array = Array::open(bench.devices(&[1]), slow_rebuilds()).await.expect("opened");
        let has_two_zones = |array: &Array| array.rebuild().is_some_and(|r| r.progress().zones_done >= 2);
        wait_until(&bench, &array, has_two_zones).await;
        let rebuild = array.rebuild().expect("begun");
        drop(array);
        assert!(rebuild.wait().await.is_err(), "the array was closed");
        let array = bench.open(&[1]).await;
        let rebuild = array.rebuild().expect("resumed by the mount");
        rebuild.wait().await.expect("rebuilt");
        let status = array.status();
        assert_eq!((status.health(), status.members[1].info.uuid), (Health::Clean, spares[0]));
        verify_content(&array).await;
    });
}

#[test]
fn a_spare_whose_drive_fails_is_passed_over_and_the_next_one_is_taken() {
    for fails_after in [0, 1, 4, 12, 40] {
        let (bench, spares) = bench_with_spares(3, 2);
        block_on(&*bench.driver, async {
            let array = bench.open(&[]).await;
            let events = array.events();
            bench.drives[5].unplug(fails_after);
            array.fail(Slot(3)).await.expect("failed");
            wait_until(&bench, &array, |array| array.status().health() == Health::Clean).await;
            assert_eq!(array.status().members[3].info.uuid, spares[1], "{fails_after}");
            let events = waiting_events(&events);
            let passed_over = |kind: &EventKind| match kind {
                EventKind::SpareMissing { spare, .. } => *spare == spares[0],
                EventKind::RebuildEnded { error, .. } => error.is_some(),
                _ => false,
            };
            assert_eq!(
                events.iter().filter(|kind| passed_over(kind)).count(),
                1,
                "{fails_after}: {events:?}"
            );
            verify_content(&array).await;
        });
    }
}

/// Number of power cuts, a microsecond apart, while a spare is taken.
const CUTS: u64 = 200;

#[test]
fn no_power_cut_while_a_spare_is_taken_loses_the_spare_or_data() {
    let (bench, spares) = bench_with_spares(4, 1);
    let mut taken_before_the_cut = 0;
    for cut in 0..CUTS {
        let copy = bench.copy();
        block_on(&*copy.driver, async {
            let array = copy.open(&[]).await;
            let failing = Arc::clone(&array);
            let driver = Arc::clone(&copy.driver);
            drop(spawn(&*driver, "fail", async move { drop(failing.fail(Slot(1)).await) }));
            sleep_until(&*driver, driver.now().after(Duration::from_micros(cut))).await;
            taken_before_the_cut += u64::from(array.superblock().spares.is_empty());
        });
        let after = copy.cut(cut);
        block_on(&*after.driver, async {
            let array = after.open(&[1]).await;
            verify_content(&array).await;
            wait_until(&after, &array, |array| array.status().health() == Health::Clean).await;
            let status = array.status();
            assert_eq!((status.health(), status.members[1].info.uuid), (Health::Clean, spares[0]), "{cut}");
            drop(array);
            let array = after.open(&[1, 4]).await;
            verify_content(&array).await;
        });
    }
    assert!(taken_before_the_cut > CUTS / 3 && taken_before_the_cut < CUTS, "{taken_before_the_cut}");
}

#[test]
fn no_power_cut_while_a_spare_is_added_or_removed_loses_data() {
    let bench = Bench::new(5);
    block_on(&*bench.driver, async { write_content(&device(&bench.open(&[]).await)).await });
    for cut in 0..40 {
        let mut copy = bench.copy();
        let spare = Bench::drive(&copy.driver, 5);
        copy.drives.push(Arc::clone(&spare));
        let driver = Arc::clone(&copy.driver);
        let done = Arc::new(std::sync::atomic::AtomicU32::new(0));
        block_on(&*driver, async {
            let array = copy.open(&[]).await;
            let (array, done) = (Arc::clone(&array), Arc::clone(&done));
            drop(spawn(&*driver, "spare", async move {
                let uuid = array.add_spare(spare).await.expect("added");
                done.store(1, Ordering::Relaxed);
                array.remove_spare(uuid).await.expect("removed");
                done.store(2, Ordering::Relaxed);
            }));
            sleep_until(&*driver, driver.now().after(Duration::from_micros(cut * 10))).await;
        });
        let after = copy.cut(cut);
        block_on(&*after.driver, async {
            let array = after.open(&[]).await;
            verify_content(&array).await;
            let listed = array.status().spares.len();
            match done.load(Ordering::Relaxed) {
                0 => assert!(listed <= 1),
                2 => assert_eq!(listed, 0, "{cut}"),
                _ => {}
            }
        });
    }
}

#[test]
fn a_removed_spare_is_blank_and_takes_no_drives_place() {
    let (bench, spares) = bench_with_spares(6, 2);
    block_on(&*bench.driver, async {
        let array = bench.open(&[6]).await;
        let status = array.status();
        assert_eq!(status.spares[1].device, None);
        assert!(status.advice().concat().contains(&format!("Spare {} is missing", spares[1])), "{status:?}");
        for spare in &spares {
            array.remove_spare(*spare).await.expect("removed");
        }
        assert_eq!(array.remove_spare(spares[0]).await.expect_err("gone").kind(), ErrorKind::NotFound);
        let report = bench.devices(&[])[5].report(0..11).await.expect("a report");
        assert!(report.iter().all(|info| info.state == ZoneState::Empty), "{report:?}");
        array.fail(Slot(0)).await.expect("failed");
        drop(array);
        // The drive of the second spare still has its mark, and the array does not list it.
        let array = bench.open(&[0]).await;
        sleep_until(&*bench.driver, bench.driver.now().after(Duration::from_millis(5))).await;
        assert!(array.rebuild().is_none() && array.status().health() == Health::Degraded);
        verify_content(&array).await;
    });
}

#[test]
fn drives_that_cannot_take_a_members_place_are_refused_as_spares_and_keep_their_data() {
    let bench = Bench::new(7);
    block_on(&*bench.driver, async {
        let array = bench.open(&[]).await;
        let drive = |zones: u32, capacity: u64, open: u32| {
            let options = EmuOptions {
                name: "emu:odd".into(),
                block_size: 512,
                zones,
                zone_size: Blocks(512),
                zone_capacity: Blocks(capacity),
                max_open: Some(open),
                max_active: Some(open),
                ..EmuOptions::default()
            };
            Emu::memory(options, Arc::clone(&bench.driver))
        };
        let worn = drive(11 + RESERVE_ZONES, 480, 10 + SPARE_ACTIVE);
        worn.wear(ZoneId(METADATA_ZONES + 1), ZoneState::ReadOnly);
        for (spare, kind) in [
            (drive(9, 480, 10), ErrorKind::Damaged),
            (drive(11 + RESERVE_ZONES, 479, 10), ErrorKind::Damaged),
            (drive(11 + RESERVE_ZONES, 480, 5), ErrorKind::Invalid),
            (worn, ErrorKind::ZoneReadOnly),
        ] {
            let spare: Arc<dyn ZonedDevice> = spare;
            write(&spare, 0, 0, 3).await;
            assert_eq!(array.add_spare(Arc::clone(&spare)).await.expect_err("odd").kind(), kind);
            verify(&spare, 0, 0, 3).await;
        }
        for n in 0..8 {
            let spare: Arc<Flaky> = Bench::drive(&bench.driver, 5 + n);
            array.add_spare(spare).await.expect("added");
        }
        let ninth = Bench::drive(&bench.driver, 13);
        let error = array.add_spare(ninth).await.expect_err("too many");
        assert!(error.to_string().contains("8 idle spares"), "{error}");
    });
}

#[test]
fn the_spare_of_another_array_is_left_out() {
    let (bench, _) = bench_with_spares(8, 1);
    let other = Bench { driver: Arc::clone(&bench.driver), drives: Vec::new() };
    block_on(&*bench.driver, async {
        let drives: Vec<Arc<dyn ZonedDevice>> =
            (20..23).map(|n| Bench::drive(&other.driver, n) as Arc<dyn ZonedDevice>).collect();
        let options = CreateOptions {
            stripe_unit: Bytes(2048),
            placement: crate::PLACEMENT,
            shares: crate::SHARES,
            ..CreateOptions::default()
        };
        array::create(&drives, &options).await.expect("created");
        let mut named = drives[..2].to_vec();
        named.push(Arc::clone(&bench.drives[5]) as Arc<dyn ZonedDevice>);
        let array = Array::open(named, OpenOptions::default()).await.expect("opened");
        sleep_until(&*bench.driver, bench.driver.now().after(Duration::from_millis(5))).await;
        assert!(array.rebuild().is_none() && array.status().spares.is_empty());
        drop(array);
        let array = bench.open(&[]).await;
        assert!(array.status().spares[0].device.is_some(), "the spare kept its mark");
    });
}

#[test]
fn a_cancelled_rebuild_takes_no_other_spare() {
    let (bench, spares) = bench_with_spares(9, 2);
    block_on(&*bench.driver, async {
        let array = Array::open(bench.devices(&[]), slow_rebuilds()).await.expect("opened");
        let events = array.events();
        array.fail(Slot(0)).await.expect("failed");
        wait_until(&bench, &array, |array| array.rebuild().is_some()).await;
        let rebuild = array.rebuild().expect("begun");
        rebuild.cancel();
        assert_eq!(rebuild.wait().await.expect_err("cancelled").kind(), ErrorKind::Cancelled);
        sleep_until(&*bench.driver, bench.driver.now().after(Duration::from_millis(20))).await;
        let status = array.status();
        assert_eq!(
            (status.health(), status.spares.len()),
            (Health::Degraded, 1),
            "{:?}",
            waiting_events(&events)
        );
        drop(array);
        let array = bench.open(&[0]).await;
        wait_for_spare(&bench, &array).await;
        assert_eq!(array.status().members[0].info.uuid, spares[1]);
    });
}

#[test]
fn a_spare_can_be_added_while_a_rebuild_runs() {
    let (bench, _) = bench_with_spares(11, 1);
    block_on(&*bench.driver, async {
        let array = Array::open(bench.devices(&[]), slow_rebuilds()).await.expect("opened");
        array.fail(Slot(0)).await.expect("failed");
        wait_until(&bench, &array, |array| array.rebuild().is_some()).await;
        let added = array.add_spare(Bench::drive(&bench.driver, 6)).await.expect("added");
        let rebuild = array.rebuild().expect("begun");
        assert!(!rebuild.is_over(), "the order does not wait for the rebuild");
        rebuild.wait().await.expect("rebuilt");
        let spares: Vec<Uuid> = array.status().spares.iter().map(|spare| spare.uuid).collect();
        assert_eq!(spares, [added]);
    });
}

#[test]
fn a_spare_that_is_added_to_a_degraded_array_is_taken_at_once() {
    let bench = Bench::new(10);
    block_on(&*bench.driver, async {
        let array = bench.open(&[]).await;
        write_content(&device(&array)).await;
        array.fail(Slot(2)).await.expect("failed");
        let spare = array.add_spare(Bench::drive(&bench.driver, 5)).await.expect("added");
        array.rebuild().expect("begun").wait().await.expect("rebuilt");
        let status = array.status();
        assert_eq!((status.health(), status.members[2].info.uuid), (Health::Clean, spare));
        assert!(status.spares.is_empty());
        verify_content(&array).await;
    });
}
