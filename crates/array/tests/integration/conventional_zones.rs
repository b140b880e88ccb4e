//! Arrays of drives with conventional zones (host-managed SMR disks): the array uses sequential zones only, and leaves the
//! content of conventional zones as it is.

use std::sync::Arc;
use std::time::Duration;

use array::{
    Array, CheckOptions, CreateOptions, Health, OpenOptions, Pace, RebuildOptions, ScrubOptions, Slot, check,
    dump, plan, status,
};
use units::{Driver, VirtualDriver, block_on};
use zoned::contents::{Contents, Signature, guard};
use zoned::emu::{Emu, EmuOptions, Latency, Seeded};
use zoned::{Blocks, Buf, BufMut, Bytes, Durability, ErrorKind, Lba, ZoneId, ZoneState, ZonedDevice};

use crate::RESERVE_ZONES;
use crate::common::{BLOCK_BYTES, METADATA_ZONES, device, verify_all, write_content};

/// Sequential zones of each drive.
const SEQUENTIAL_ZONES: u32 = 11 + RESERVE_ZONES;

/// A drive with `conventional` conventional zones before its sequential ones.
fn drive(driver: &Arc<dyn Driver>, name: &str, conventional: u32) -> Arc<Emu> {
    let options = EmuOptions {
        name: name.into(),
        block_size: BLOCK_BYTES as u32,
        zones: conventional + SEQUENTIAL_ZONES,
        conventional,
        zone_size: Blocks(512),
        zone_capacity: Blocks(480),
        max_open: Some(9),
        max_active: Some(10),
        track_power_cuts: true,
        latency: Latency::all(Duration::from_micros(10)),
        ..EmuOptions::default()
    };
    Emu::memory(options, Arc::clone(driver))
}

/// Blocks at the start and at the end of each conventional zone.
fn sampled_blocks(emu: &Emu) -> impl Iterator<Item = Lba> {
    let geometry = emu.geometry().clone();
    (0..geometry.conventional).flat_map(move |zone| {
        let start = geometry.start(ZoneId(zone));
        [start, start.plus(Blocks(7)), start.plus(geometry.zone_size.minus(Blocks(1)))]
    })
}

/// The content of all conventional zones of a drive.
async fn conventional_content(emu: &Arc<Emu>) -> Vec<u8> {
    let device = Arc::clone(emu) as Arc<dyn ZonedDevice>;
    let (geometry, mut content) = (device.geometry().clone(), Vec::new());
    let end = geometry.start(ZoneId(geometry.conventional)).0;
    for at in 0..end {
        let block = device.read(Lba(at), BufMut::zeroed(BLOCK_BYTES)).await.expect("read");
        content.extend_from_slice(&block);
    }
    content
}

/// Writes blocks of all conventional zones of a drive.
async fn fill_conventional_zones(emu: &Arc<Emu>, byte: u8) {
    let device = Arc::clone(emu) as Arc<dyn ZonedDevice>;
    for at in sampled_blocks(emu) {
        let data: Vec<u8> = (0..BLOCK_BYTES).map(|n| byte ^ (at.0 as usize + n) as u8).collect();
        let data = Buf::copy_from(&data);
        device.write(at, data, Durability::Durable).await.expect("written");
    }
}

fn devices(drives: &[Arc<Emu>], without: Option<usize>) -> Vec<Arc<dyn ZonedDevice>> {
    let there = drives.iter().enumerate().filter(|(slot, _)| Some(*slot) != without);
    there.map(|(_, emu)| Arc::clone(emu) as Arc<dyn ZonedDevice>).collect()
}

fn create_options() -> CreateOptions {
    CreateOptions { stripe_unit: Bytes(2048), placement: crate::PLACEMENT, ..CreateOptions::default() }
}

/// An array's drives with the given numbers of conventional zones, with data in all conventional zones.
async fn new_array(driver: &Arc<dyn Driver>, conventional: &[u32]) -> Vec<Arc<Emu>> {
    let drives: Vec<Arc<Emu>> =
        conventional.iter().zip(0..).map(|(count, n)| drive(driver, &format!("emu:{n}"), *count)).collect();
    for (emu, byte) in drives.iter().zip(1..) {
        fill_conventional_zones(emu, byte).await;
    }
    let superblock = array::create(&devices(&drives, None), &create_options()).await.expect("created");
    assert_eq!(
        superblock.zones,
        SEQUENTIAL_ZONES - METADATA_ZONES - RESERVE_ZONES,
        "sequential zones count, conventional ones do not"
    );
    drives
}

async fn open(drives: &[Arc<Emu>], without: Option<usize>) -> Arc<Array> {
    Array::open(devices(drives, without), OpenOptions::default()).await.expect("opened")
}

/// Requires that the array is clean and that all its parity fits its data.
async fn assert_sound(drives: &[Arc<Emu>]) {
    let devices = devices(drives, None);
    assert_eq!(status(&devices).await.expect("a status").health(), Health::Clean);
    let report = check(&devices, CheckOptions { deep: true }).await.expect("checked");
    assert_eq!(report.problems, [], "{report:?}");
    let array = open(drives, None).await;
    let scrub = array.start_scrub(ScrubOptions::default()).expect("begun").wait().await.expect("scrubbed");
    assert_eq!(scrub.mismatches.len(), 0, "{scrub:?}");
    verify_all(&device(&array)).await;
}

#[test]
fn an_array_lives_in_the_sequential_zones_and_keeps_the_content_of_conventional_zones() {
    for conventional in [[0, 2, 5, 2, 0], [2; 5], [5, 5, 5, 0, 1]] {
        let driver: Arc<dyn Driver> = VirtualDriver::new(1);
        block_on(&*driver, async {
            let mut drives = new_array(&driver, &conventional).await;
            let mut before = Vec::new();
            for emu in &drives {
                before.push(conventional_content(emu).await);
            }
            let array = open(&drives, None).await;
            array.fail(Slot(1)).await.expect("failed");
            write_content(&device(&array)).await;
            verify_all(&device(&array)).await;
            drop(array);

            let array = open(&drives, Some(1)).await;
            verify_all(&device(&array)).await;
            // The new drive has another number of conventional zones than the drive that it replaces.
            let new = drive(&driver, "emu:new", conventional[1] + 1);
            fill_conventional_zones(&new, 0x77).await;
            before[1] = conventional_content(&new).await;
            array.replace(Slot(1), Arc::clone(&new) as Arc<dyn ZonedDevice>).await.expect("replaced");
            drives[1] = new;
            drop(array);

            assert_sound(&drives).await;
            for (emu, before) in drives.iter().zip(&before) {
                assert!(conventional_content(emu).await == *before, "{conventional:?}, {emu:?}");
            }
            // Each drive is needed and suffices: all data is read without any one of them.
            for slot in 0..drives.len() {
                let copies: Vec<Arc<Emu>> = (0..)
                    .zip(&drives)
                    .map(|(n, emu)| {
                        Emu::from_media(emu.media(), &format!("emu:{n}"), Latency::NONE, Arc::clone(&driver))
                    })
                    .collect();
                verify_all(&device(&open(&copies, Some(slot)).await)).await;
            }
        });
    }
}

#[test]
fn a_rebuild_onto_a_drive_with_conventional_zones_resumes_after_a_power_cut() {
    let driver: Arc<dyn Driver> = VirtualDriver::new(3);
    block_on(&*driver, async {
        let mut drives = new_array(&driver, &[5, 0, 2, 1, 0]).await;
        let array = open(&drives, None).await;
        write_content(&device(&array)).await;
        array.fail(Slot(0)).await.expect("failed");
        let new = drive(&driver, "emu:new", 3);
        fill_conventional_zones(&new, 0x55).await;
        let before = conventional_content(&new).await;
        let options = RebuildOptions { pace: Pace { max_rate: Some(Bytes(1 << 20)), ..Pace::default() } };
        let rebuild = array
            .start_replace(Slot(0), Arc::clone(&new) as Arc<dyn ZonedDevice>, options)
            .await
            .expect("begun");
        units::sleep_until(&*driver, driver.now().after(Duration::from_millis(150))).await;
        assert!(!rebuild.is_over(), "the power is cut during the rebuild");
        drives[0] = new;
        let cut = |(n, emu): (u64, &Arc<Emu>)| {
            let media = emu.power_cut(&mut Seeded::new(n));
            Emu::from_media(media, &format!("emu:{n}"), Latency::NONE, Arc::clone(&driver))
        };
        let drives: Vec<Arc<Emu>> = (0..).zip(&drives).map(cut).collect();
        drop(array);
        let array = open(&drives, None).await;
        let rebuild = array.rebuild().expect("the mount resumes the rebuild");
        rebuild.wait().await.expect("rebuilt");
        drop(array);
        assert_sound(&drives).await;
        assert!(conventional_content(&drives[0]).await == before);
    });
}

#[test]
fn an_idle_spare_with_conventional_zones_takes_the_place_of_a_failed_drive() {
    let driver: Arc<dyn Driver> = VirtualDriver::new(1);
    block_on(&*driver, async {
        let mut drives = new_array(&driver, &[0, 2, 0, 1, 0]).await;
        let array = open(&drives, None).await;
        write_content(&device(&array)).await;
        let spare = drive(&driver, "emu:spare", 5);
        fill_conventional_zones(&spare, 0x33).await;
        let before = conventional_content(&spare).await;
        let uuid = array.add_spare(Arc::clone(&spare) as Arc<dyn ZonedDevice>).await.expect("added");
        drives.push(spare);
        drop(array);
        let found = status(&devices(&drives, None)).await.expect("a status");
        assert_eq!(
            found.spares.iter().map(|spare| spare.device.clone()).collect::<Vec<_>>(),
            [Some("emu:spare".into())]
        );
        let array = open(&drives, None).await;
        array.fail(Slot(3)).await.expect("failed");
        units::sleep_until(&*driver, driver.now().after(Duration::from_millis(1))).await;
        array.rebuild().expect("begun").wait().await.expect("rebuilt");
        assert_eq!(array.status().members[3].info.uuid, uuid);
        drop(array);
        drives.remove(3);
        assert_sound(&drives).await;
        assert!(conventional_content(&drives[4]).await == before);
    });
}

#[test]
fn messages_name_a_drives_own_zones() {
    let driver: Arc<dyn Driver> = VirtualDriver::new(1);
    block_on(&*driver, async {
        let drives = new_array(&driver, &[0, 5, 2]).await;
        let all = devices(&drives, None);
        let dumped = dump(&all).await.expect("dumped");
        let zones = |slot: usize| dumped[slot].zones.iter().map(|zone| zone.zone.0).collect::<Vec<_>>();
        assert_eq!((zones(0), zones(1), zones(2)), (vec![0, 1, 2], vec![5, 6, 7], vec![2, 3, 4]));
        assert!(dumped[1].records.iter().all(|record| record.metadata_zone == ZoneId(5)), "{dumped:?}");

        drives[1].wear(ZoneId(7), ZoneState::ReadOnly);
        let report = check(&all, CheckOptions::default()).await.expect("checked");
        assert!(report.problems.iter().any(|p| p.what.contains("metadata zone 7 is ReadOnly")), "{report:?}");
        let error = array::create(&all, &create_options()).await.expect_err("a worn metadata zone");
        assert_eq!((error.kind(), error.zone()), (ErrorKind::ZoneReadOnly, Some(ZoneId(2))));
        assert!(
            error.to_string().contains("metadata has to go there") && error.to_string().contains("zone 7"),
            "{error}"
        );
    });
}

#[test]
fn a_member_is_recognized_behind_its_conventional_zones_and_guarded() {
    let driver: Arc<dyn Driver> = VirtualDriver::new(1);
    block_on(&*driver, async {
        for conventional in [2, 5, 70] {
            let drives: Vec<Arc<Emu>> =
                (0..3).map(|n| drive(&driver, &format!("emu:{n}"), conventional)).collect();
            let superblock =
                array::create(&devices(&drives, None), &create_options()).await.expect("created");
            for (emu, slot) in drives.iter().zip(0..) {
                let contents = Contents::read(&**emu).await.expect("read");
                assert_eq!(contents.signatures, [Signature::FurrowArray]);
                let member = contents.array.expect("a member");
                assert_eq!((member.array, member.drive, member.drives), (superblock.uuid, slot, 3));
                let refused = guard(&**emu, false).await.expect_err("a member of an array");
                assert_eq!(refused.kind(), ErrorKind::HoldsData);
            }
        }
    });
}

#[test]
fn data_in_a_conventional_zone_is_noticed_before_a_drive_is_used() {
    let driver: Arc<dyn Driver> = VirtualDriver::new(1);
    block_on(&*driver, async {
        let emu = drive(&driver, "emu:0", 2);
        guard(&*emu, false).await.expect("blank");
        fill_conventional_zones(&emu, 9).await;
        let refused = guard(&*emu, false).await.expect_err("it holds data");
        assert!(refused.to_string().contains("2 conventional zones hold data"), "{refused}");
    });
}

#[test]
fn sequential_zones_alone_count_for_the_size_of_an_array() {
    let driver: Arc<dyn Driver> = VirtualDriver::new(1);
    let with = |counts: [u32; 3]| -> Vec<Arc<dyn ZonedDevice>> {
        counts.map(|count| drive(&driver, "emu:d", count) as Arc<dyn ZonedDevice>).to_vec()
    };
    for counts in [[0; 3], [1, 0, 40], [9; 3]] {
        let superblock = plan(&with(counts), &create_options()).expect("planned");
        assert_eq!(superblock.zones, SEQUENTIAL_ZONES - METADATA_ZONES - RESERVE_ZONES);
    }
    let options = EmuOptions {
        zones: 40,
        conventional: 38,
        zone_size: Blocks(512),
        zone_capacity: Blocks(480),
        ..EmuOptions::default()
    };
    let few = Emu::memory(EmuOptions { block_size: BLOCK_BYTES as u32, ..options }, Arc::clone(&driver));
    let mut drives = with([0; 3]);
    drives[2] = few;
    let error = plan(&drives, &create_options()).expect_err("two sequential zones");
    assert!(error.to_string().contains("2 sequential zones"), "{error}");
}

#[test]
fn a_new_drive_with_too_few_sequential_zones_is_refused_and_keeps_its_content() {
    let driver: Arc<dyn Driver> = VirtualDriver::new(1);
    block_on(&*driver, async {
        let drives = new_array(&driver, &[0, 0, 2]).await;
        let array = open(&drives, None).await;
        array.fail(Slot(0)).await.expect("failed");
        let options = EmuOptions {
            block_size: BLOCK_BYTES as u32,
            zones: SEQUENTIAL_ZONES + 3,
            conventional: 4,
            zone_size: Blocks(512),
            zone_capacity: Blocks(480),
            ..EmuOptions::default()
        };
        let new: Arc<dyn ZonedDevice> = Emu::memory(options, Arc::clone(&driver));
        let start = new.geometry().start(ZoneId(4));
        new.write(start, Buf::copy_from(&[3; BLOCK_BYTES]), Durability::Durable).await.expect("written");
        let error = array.replace(Slot(0), Arc::clone(&new)).await.expect_err("too few sequential zones");
        let few = format!("{} sequential zones", SEQUENTIAL_ZONES - 1);
        assert!(error.to_string().contains(&few), "{error}");
        assert_eq!(new.read(start, BufMut::zeroed(BLOCK_BYTES)).await.expect("read")[0], 3);
    });
}
