//! Power cuts in the reset of a zone, in the mounts that follow, and the loss of a drive then: the zone is whole or empty.

use std::sync::Arc;

use array::OpenOptions;
use units::{SplitMix64, spawn};
use zoned::{Action, Blocks, ZoneId, ZoneState, ZonedDevice};

use crate::ground::ArrayFixture;

const ZONE: ZoneId = ZoneId(1);
const WRITTEN: u64 = 30;

/// The intent of a reset reaches the log of one drive alone. The power fails in the next mount too, and that drive is lost: no physical zone
/// may have been reset by then.
#[test]
fn a_drive_lost_after_cuts_of_a_reset_and_of_the_next_mount_leaves_all_of_the_zone_or_nothing() {
    let (mut whole, mut empty) = (0, 0);
    for seed in 0..500 {
        let mut rng = SplitMix64::new(seed);
        let ground = ArrayFixture::new(4, 4, 96, 4);
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
