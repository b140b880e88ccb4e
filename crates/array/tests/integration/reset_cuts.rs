//! Power cuts in the reset of a zone, in the mounts that follow, and the loss of a drive then: the zone is whole or empty.

use std::sync::Arc;
use std::time::Duration;

use array::{CreateOptions, OpenOptions};
use units::{Driver, SplitMix64, VirtualDriver, spawn};
use zoned::emu::{Emu, EmuOptions, Latency};
use zoned::{Action, Blocks, Bytes, ZoneId, ZoneState, ZonedDevice};

use crate::ground::{ArrayFixture, BLOCK_BYTES, METADATA_ZONES};

const ZONE: ZoneId = ZoneId(1);
const DRIVES: u32 = 4;
const WRITTEN: u64 = 30;

/// An array whose drives remember what a power cut may lose.
fn array_that_can_be_cut() -> ArrayFixture {
    let driver: Arc<dyn Driver> = VirtualDriver::new(1);
    let drive = |n| {
        let options = EmuOptions {
            name: format!("emu:{n}"),
            block_size: BLOCK_BYTES,
            zones: 4 + METADATA_ZONES + crate::RESERVE_ZONES,
            zone_size: Blocks(96 * u64::from(crate::SHARES)),
            zone_capacity: Blocks(96 * u64::from(crate::SHARES)),
            max_open: Some(8 + crate::SPARE_ACTIVE),
            max_active: Some(9 + crate::SPARE_ACTIVE),
            volatile_cache: true,
            track_power_cuts: true,
            latency: Latency::all(Duration::from_micros(10)),
            ..EmuOptions::default()
        };
        Emu::memory(options, Arc::clone(&driver))
    };
    let ground = ArrayFixture { emus: (0..DRIVES).map(drive).collect(), driver };
    let options = CreateOptions {
        stripe_unit: Bytes(4 * u64::from(BLOCK_BYTES)),
        placement: crate::PLACEMENT,
        shares: crate::SHARES,
        ..CreateOptions::default()
    };
    ground.wait(array::create(&ground.devices(), &options)).expect("created");
    ground
}

/// What says that the reset began may have reached one drive alone. A mount that acts on it is cut too, and then that drive is lost: a
/// part of the zone's physical zones must not be reset by then.
#[test]
fn a_drive_lost_after_cuts_of_a_reset_and_of_the_next_mount_leaves_all_of_the_zone_or_nothing() {
    let (mut whole, mut empty) = (0, 0);
    for seed in 0..500 {
        let mut rng = SplitMix64::new(seed);
        let ground = array_that_can_be_cut();
        let array = ground.open(OpenOptions::default());
        ground.write(&array, ZONE, 1, 0, WRITTEN, 4);
        let device: Arc<dyn ZonedDevice> = array;
        ground.wait(device.flush()).expect("flushed");
        let reset = spawn(&*ground.driver, "reset", async move { device.zone(ZONE, Action::Reset).await });
        let left = ground.cut_now_and_in_mounts(rng.draw() % 12, &mut rng);
        drop(reset);
        for (lost, left, array) in left.open_without_each() {
            let zone = left.zone(&array, ZONE);
            if zone.state == ZoneState::Empty {
                empty += 1;
            } else {
                whole += 1;
                assert!(zone.pointer >= Blocks(WRITTEN), "seed {seed}, without drive {lost}: {zone:?}");
                left.check(&array, ZONE, 1, WRITTEN);
            }
        }
    }
    assert!(whole > 20 && empty > 20, "{whole} zones were whole, {empty} empty");
}
