//! A new drive that becomes a member while clients fill its log.

use std::sync::Arc;
use std::time::Duration;

use crate::common::{BLOCK_BYTES, blocks, device, verify, write};
use array::{Array, CreateOptions, DriveDump, OpenOptions, Pace, RebuildOptions, Slot};
use units::{Driver, VirtualDriver, block_on, sleep_until, spawn};
use zoned::emu::{Emu, EmuOptions, Latency, Media};
use zoned::{Blocks, Bytes, Durability, ZoneId, ZonedDevice};

/// Blocks of a physical zone of a test drive, and so of its log.
const ZONE_BLOCKS: u64 = 120;
const ZONES: u32 = 8;
/// Blocks that each zone has before the rebuild.
const BLOCKS_BEFORE_REBUILD: u64 = 3;

/// Latencies of drives that flush slowly: a hundred writes are submitted during one flush.
fn latency() -> Latency {
    Latency { flush: Duration::from_millis(2), ..Latency::all(Duration::from_micros(10)) }
}

fn drive(driver: &Arc<dyn Driver>, n: u32) -> Arc<Emu> {
    let options = EmuOptions {
        name: format!("emu:{n}"),
        block_size: BLOCK_BYTES as u32,
        zones: ZONES + 3 + crate::RESERVE_ZONES,
        zone_size: Blocks(ZONE_BLOCKS),
        zone_capacity: Blocks(ZONE_BLOCKS),
        max_open: None,
        max_active: None,
        volatile_cache: true,
        latency: latency(),
        ..EmuOptions::default()
    };
    Emu::memory(options, Arc::clone(driver))
}

fn devices(drives: &[Arc<Emu>]) -> Vec<Arc<dyn ZonedDevice>> {
    drives.iter().map(|drive| Arc::clone(drive) as Arc<dyn ZonedDevice>).collect()
}

/// The records in the metadata logs of drives with the given images.
fn dump(images: Vec<Media>) -> Vec<DriveDump> {
    let driver: Arc<dyn Driver> = VirtualDriver::new(2);
    let emu = |media| Emu::from_media(media, "emu", Latency::NONE, Arc::clone(&driver));
    let drives: Vec<Arc<Emu>> = images.into_iter().map(emu).collect();
    block_on(&*driver, array::dump(&devices(&drives))).expect("dumped")
}

/// True if the newest superblock on a drive marks all members as good.
fn all_are_good(drive: &DriveDump) -> bool {
    let change = |text: &str| {
        let (_, rest) = text.split_once("change ")?;
        rest.split_once(',')?.0.parse::<u64>().ok()
    };
    let superblocks = drive.records.iter().filter(|record| record.kind == "superblock");
    let newest = superblocks.max_by_key(|record| change(&record.text)).expect("a member has one");
    newest.text.ends_with("members good good good good good")
}

#[test]
fn a_new_drive_becomes_a_member_only_after_the_other_superblocks_name_it() {
    let driver: Arc<dyn Driver> = VirtualDriver::new(1);
    let drives: Vec<Arc<Emu>> = (0..5).map(|n| drive(&driver, n)).collect();
    let new = drive(&driver, 9);
    let mut images: Vec<Vec<Media>> = Vec::new();
    block_on(&*driver, async {
        let create = CreateOptions {
            stripe_unit: Bytes(2048),
            placement: crate::PLACEMENT,
            shares: crate::SHARES,
            ..CreateOptions::default()
        };
        array::create(&devices(&drives), &create).await.expect("created");
        let array = Array::open(devices(&drives), OpenOptions::default()).await.expect("opened");
        let dev = device(&array);
        for zone in 0..ZONES {
            write(&dev, zone, 0, BLOCKS_BEFORE_REBUILD).await;
        }
        array.fail(Slot(1)).await.expect("done");
        let options = RebuildOptions { pace: Pace::UNBOUNDED };
        let target = Arc::clone(&new) as Arc<dyn ZonedDevice>;
        let rebuild = array.start_replace(Slot(1), target, options).await.expect("begun");
        while rebuild.progress().zones_done < ZONES {
            sleep_until(&*driver, driver.now().after(Duration::from_micros(20))).await;
        }
        let writers: Vec<_> = (0..ZONES)
            .map(|zone| {
                let dev = Arc::clone(&dev);
                spawn(&*driver, "writer", async move {
                    let start = dev.geometry().start(ZoneId(zone));
                    for n in BLOCKS_BEFORE_REBUILD..4 * ZONE_BLOCKS {
                        let data = blocks(zone, n, n + 1);
                        dev.write(start.plus(Blocks(n)), data, Durability::Cached).await.expect("written");
                    }
                })
            })
            .collect();
        while !rebuild.is_over() {
            images.push(drives.iter().chain([&new]).map(|drive| drive.media()).collect());
            sleep_until(&*driver, driver.now().after(Duration::from_micros(200))).await;
        }
        rebuild.wait().await.expect("rebuilt");
        for writer in writers {
            writer.await;
        }
        array.fail(Slot(3)).await.expect("done");
        for zone in 0..ZONES {
            verify(&dev, zone, 0, 4 * ZONE_BLOCKS).await;
        }
    });
    let (mut crowded, mut before) = (false, 0);
    for (n, images) in images.into_iter().enumerate() {
        let dumps = dump(images);
        let (new, others) = dumps.split_last().expect("six");
        let whole = new.records.iter().any(|record| record.kind == "checkpoint-end");
        let named = [0, 2, 3, 4].iter().all(|slot| all_are_good(&others[*slot]));
        assert!(
            !whole || named,
            "image {n}: the checkpoint is complete, and no other superblock names the member"
        );
        before += u32::from(!whole);
        crowded |= !whole && new.zones.iter().any(|zone| zone.used > ZONE_BLOCKS * 3 / 4);
    }
    assert!(
        before > 0 && crowded,
        "its log moved, or did not fill up, in {before} looks before it was a member"
    );
}
