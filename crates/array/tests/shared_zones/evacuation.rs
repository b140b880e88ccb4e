//! Parts leave worn physical zones that several zones share.

use std::sync::Arc;

use array::{Array, CreateOptions, OpenOptions, Role, Slot};
use zoned::{Bytes, ZoneId, ZoneState, ZonedDevice};

use crate::ground::{ArrayFixture, BLOCK_BYTES};

const DRIVES: u32 = 3;
const DRIVE: Slot = Slot(0);

fn place(array: &Arc<Array>, zone: ZoneId) -> ZoneId {
    let part = |role| array.place(zone, role).filter(|(slot, _)| *slot == DRIVE);
    (0..DRIVES).map(Role).find_map(part).expect("a part on each drive").1
}

/// Two full zones share a physical zone that wears out, in use or before a mount. Both parts leave it and lie behind one another again,
/// so that as many zones as the array promises can still be active, and nothing is lost without any drive.
#[test]
fn all_parts_leave_a_worn_physical_zone_and_take_no_active_zone() {
    // The array finds no read-only zone in use without writes to it.
    for (state, in_use) in
        [(ZoneState::ReadOnly, false), (ZoneState::Offline, false), (ZoneState::Offline, true)]
    {
        let what = format!("{state:?}, in use: {in_use}");
        let stripe_unit = Bytes(4 * u64::from(BLOCK_BYTES));
        let create = CreateOptions { stripe_unit, shares: 2, ..CreateOptions::default() };
        let ground = ArrayFixture::created(DRIVES, 16, 96, 8, &create);
        let mut array = ground.open(OpenOptions::default());
        let device = |array: &Arc<Array>| Arc::clone(array) as Arc<dyn ZonedDevice>;
        let capacity = device(&array).geometry().zone_capacity.0;
        let full = [0, 1].map(ZoneId);
        for zone in full {
            ground.write(&array, zone, 1, 0, capacity, 8);
        }
        ground.wait(device(&array).flush()).expect("flushed");
        let worn = place(&array, full[0]);
        assert_eq!(place(&array, full[1]), worn, "{what}: the zones share it");
        ground.emus[DRIVE.index()].wear(worn, state);
        if !in_use {
            drop(array);
            array = ground.open(OpenOptions::default());
        }
        ground.check(&array, full[0], 1, capacity);
        ground.settle();
        assert_eq!(array.status().worn, [], "{what}");
        let left = full.map(|zone| place(&array, zone));
        assert!(left[0] == left[1] && left[0] != worn, "{what}: {left:?}");
        let active = device(&array).geometry().max_active.expect("a limit");
        let others: Vec<ZoneId> = (2..).map(|n| ZoneId(2 * n)).take(active as usize).collect();
        for zone in &others {
            ground.write(&array, *zone, 2, 0, 6, 3);
        }
        drop(array);
        for lost in [None, Some(0), Some(1), Some(2)] {
            let left = ArrayFixture::of(ground.emus.iter().map(|emu| emu.media()));
            let array = left.open_perhaps_without(lost);
            full.iter().for_each(|zone| left.check(&array, *zone, 1, capacity));
            others.iter().for_each(|zone| left.check(&array, *zone, 2, 6));
        }
    }
}
