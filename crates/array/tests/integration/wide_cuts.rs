//! Mounts after power cuts with more blocks in the drives' caches than may be in flight, and mounts with replaced drives.

use std::sync::Arc;
use std::time::Duration;

use crate::common::*;
use array::{Array, CreateOptions, OpenOptions, Pace, RebuildOptions, Slot};
use units::{Driver, VirtualDriver, block_on, sleep_until};
use zoned::emu::{Choose, Emu, EmuOptions, Latency};
use zoned::*;

/// Blocks in 32 MiB: more than an array may have in flight.
const BLOCKS_OF_32_MIB: u64 = 64 * 1024;

/// A power cut that loses a long tail of unflushed blocks of one drive, and keeps all other blocks that it may keep.
struct LoseTails;

impl Choose for LoseTails {
    fn choose(&mut self, options: usize) -> usize {
        // The first option of a choice keeps all blocks in the cache, the last one none.
        if options > 300 { options - 1 } else { 0 }
    }
}

fn latency() -> Latency {
    Latency::all(Duration::from_micros(10))
}

/// Five drives with the first `start` blocks of zone 1 flushed, and `more` in their caches.
fn drives_with_cached_blocks(start: u64, more: u64) -> Vec<Arc<Emu>> {
    let driver: Arc<dyn Driver> = VirtualDriver::new(1);
    let drive = |n| {
        let options = EmuOptions {
            name: format!("emu:{n}"),
            block_size: BLOCK_BYTES as u32,
            zones: 6 + crate::RESERVE_ZONES,
            zone_size: Blocks(32768 * u64::from(crate::SHARES)),
            zone_capacity: Blocks(32768 * u64::from(crate::SHARES)),
            max_open: Some(9),
            max_active: Some(10),
            volatile_cache: true,
            track_power_cuts: true,
            latency: latency(),
            ..EmuOptions::default()
        };
        Emu::memory(options, Arc::clone(&driver))
    };
    let drives: Vec<Arc<Emu>> = (0..5).map(drive).collect();
    block_on(&*driver, async {
        let options = CreateOptions {
            stripe_unit: Bytes(2048),
            placement: crate::PLACEMENT,
            shares: crate::SHARES,
            ..CreateOptions::default()
        };
        array::create(&devices(&drives, None), &options).await.expect("done");
        let array = Array::open(devices(&drives, None), OpenOptions::default()).await.expect("opened");
        let dev = device(&array);
        write(&dev, 1, 0, start).await;
        dev.flush().await.expect("done");
        write_blocks(&dev, start, more).await;
    });
    drives
}

/// Writes `count` blocks to zone 1 from `at` on.
async fn write_blocks(device: &Arc<dyn ZonedDevice>, at: u64, count: u64) {
    let end = at + count;
    for at in (at..end).step_by(512) {
        let to = (at + 512).min(end);
        let first = device.geometry().start(ZoneId(1)).plus(Blocks(at));
        device.write(first, blocks(1, at, to), Durability::Cached).await.expect("done");
    }
}

fn devices(drives: &[Arc<Emu>], lost: Option<usize>) -> Vec<Arc<dyn ZonedDevice>> {
    let kept = drives.iter().enumerate().filter(|(slot, _)| Some(*slot) != lost);
    kept.map(|(_, drive)| Arc::clone(drive) as Arc<dyn ZonedDevice>).collect()
}

/// The drives after a power cut in which drive `emptied` loses its cache.
fn drives_after_cut(drives: &[Arc<Emu>], emptied: usize, driver: &Arc<dyn Driver>) -> Vec<Arc<Emu>> {
    let again = |(slot, drive): (usize, &Arc<Emu>)| {
        let media = if slot == emptied { drive.power_cut(&mut LoseTails) } else { drive.media() };
        Emu::from_media(media, &format!("emu:{slot}"), latency(), Arc::clone(driver))
    };
    drives.iter().enumerate().map(again).collect()
}

/// Drive `emptied` loses its cache, and drive `lost` fails: flushed blocks survive, the zone takes writes, and any other drive
/// can fail then.
fn cut(drives: &[Arc<Emu>], start: u64, emptied: usize, lost: Option<usize>) {
    let driver: Arc<dyn Driver> = VirtualDriver::new(2);
    let again = drives_after_cut(drives, emptied, &driver);
    block_on(&*driver, async {
        let array = Array::open(devices(&again, lost), OpenOptions::default()).await.expect("opened");
        let dev = device(&array);
        let pointer = dev.report(1..2).await.expect("done")[0].pointer.0;
        assert!(
            pointer >= start,
            "drive {emptied} emptied, {lost:?} lost: {pointer} of {start} flushed blocks"
        );
        // The record of unflushed partial parity, from which a failed drive's blocks are reconstructed, may
        // be lost.
        let sure = if lost.is_some() { start } else { pointer };
        verify(&dev, 1, 0, sure).await;
        write(&dev, 1, pointer, pointer + 600).await;
        let failed = array.superblock().members.iter().filter(|member| member.failed).count();
        assert_eq!(failed, usize::from(lost.is_some()), "drive {emptied} emptied, {lost:?} lost");
        if lost.is_none() {
            array.fail(Slot((emptied as u32 + 1) % 5)).await.expect("done");
        }
        verify(&dev, 1, 0, sure).await;
        verify(&dev, 1, pointer, pointer + 600).await;
    });
}

#[test]
fn flushed_blocks_survive_an_emptied_cache_and_a_lost_drive() {
    let drives = drives_with_cached_blocks(101, BLOCKS_OF_32_MIB);
    for lost in [0, 1, 3, 4] {
        cut(&drives, 101, 2, Some(lost));
    }
    cut(&drives, 101, 0, Some(1));
}

#[test]
fn a_zone_takes_writes_after_one_drive_lost_its_cache() {
    for start in [101, 103] {
        let drives = drives_with_cached_blocks(start, BLOCKS_OF_32_MIB);
        cut(&drives, start, 2, None);
        cut(&drives, start, 4, None);
    }
}

/// Power cuts of a zone with stale rows, whose content is in the log of the drive that loses its cache.
#[test]
fn flushed_blocks_among_stale_rows_survive_an_emptied_cache_and_a_lost_drive() {
    let drives = drives_with_cached_blocks(101, 2048);
    let driver: Arc<dyn Driver> = VirtualDriver::new(3);
    let drives = drives_after_cut(&drives, 2, &driver);
    let flushed = 203;
    block_on(&*driver, async {
        let array = Array::open(devices(&drives, None), OpenOptions::default()).await.expect("opened");
        let dev = device(&array);
        let pointer = dev.report(1..2).await.expect("done")[0].pointer.0;
        assert!(pointer < flushed, "{pointer}: rows above are hidden");
        write(&dev, 1, pointer, flushed).await;
        dev.flush().await.expect("done");
        write_blocks(&dev, flushed, BLOCKS_OF_32_MIB).await;
    });
    for emptied in 0..5 {
        for lost in (0..5).filter(|lost| *lost != emptied) {
            cut(&drives, flushed, emptied, Some(lost));
        }
        cut(&drives, flushed, emptied, None);
    }
}

/// Later records of the logs say that slot 0 has a new drive, which is present or missing: the old drive is
/// no member, wherever it is in the list of devices.
#[test]
fn a_replaced_drive_that_comes_back_is_left_out_in_any_order_of_the_drives() {
    for (place, present) in [(0, false), (2, false), (4, false), (0, true), (5, true)] {
        let bench = Bench::new(1);
        let fresh = Bench::drive(&bench.driver, 9);
        block_on(&*bench.driver, async {
            let array = bench.open(&[]).await;
            let dev = device(&array);
            write_content(&dev).await;
            array.fail(Slot(0)).await.expect("done");
            write(&dev, 1, 37, 200).await;
            dev.flush().await.expect("done");
            let fresh = Arc::clone(&fresh) as Arc<dyn ZonedDevice>;
            array.replace(Slot(0), Arc::clone(&fresh)).await.expect("done");
            let start = dev.geometry().start(ZoneId(6));
            dev.zone(ZoneId(6), Action::Reset).await.expect("done");
            dev.write(start, blocks(6, 0, 3), Durability::Cached).await.expect("done");
            dev.flush().await.expect("done");
            drop(dev);
            drop(array);
            let mut members = bench.devices(&[0]);
            members.extend(present.then_some(fresh));
            members.insert(place, bench.devices(&[1, 2, 3, 4]).remove(0));
            let array = Array::open(members, OpenOptions::default()).await.expect("opened");
            let failed: Vec<bool> = array.superblock().members.iter().map(|member| member.failed).collect();
            assert_eq!(failed, [!present, false, false, false, false], "the old drive at place {place}");
            verify(&device(&array), 1, 0, 200).await;
            verify(&device(&array), 6, 0, 3).await;
        });
    }
}

/// A resumed rebuild keeps the noted zones: blocks that clients write to a noted zone before its turn in the
/// rebuild are on the new drive too.
#[test]
fn writes_between_a_resumed_rebuilds_check_and_copy_are_rebuilt() {
    let options = RebuildOptions { pace: Pace::UNBOUNDED };
    for delay in (0..500).step_by(20) {
        let bench = Bench::new(1);
        let fresh = Bench::drive(&bench.driver, 9);
        block_on(&*bench.driver, async {
            let array = bench.open(&[]).await;
            write_content(&device(&array)).await;
            array.fail(Slot(1)).await.expect("done");
            let new = Arc::clone(&fresh) as Arc<dyn ZonedDevice>;
            let rebuild = array.start_replace(Slot(1), new, options).await.expect("begun");
            while rebuild.progress().zones_done < 2 {
                sleep_until(&*bench.driver, bench.driver.now().after(Duration::from_micros(50))).await;
            }
            drop(array);
            rebuild.wait().await.expect_err("it ended early");
            let mut members = bench.devices(&[1]);
            members.push(Arc::clone(&fresh) as Arc<dyn ZonedDevice>);
            let array = Array::open(members, OpenOptions::default()).await.expect("opened");
            let (dev, rebuild) = (device(&array), array.rebuild().expect("it goes on"));
            sleep_until(&*bench.driver, bench.driver.now().after(Duration::from_micros(delay))).await;
            write(&dev, 1, 37, 70).await;
            rebuild.wait().await.expect("rebuilt");
            write(&dev, 1, 70, 90).await;
            array.fail(Slot(3)).await.expect("done");
            verify(&dev, 1, 0, 90).await;
            for (zone, end) in BLOCKS_BY_ZONE {
                verify(&dev, zone, 0, end).await;
            }
        });
    }
}
