//! Which drives a durable write flushes.

use crate::ground::{ArrayFixture, blocks};
use array::OpenOptions;
use zoned::{Durability, Lba, ZoneId, ZonedDevice};

const ZONE: ZoneId = ZoneId(1);

#[test]
fn a_durable_write_flushes_the_drives_with_unflushed_blocks_of_its_zone_only() {
    let ground = ArrayFixture::new(5, 5, 96, 4);
    let array = ground.open(OpenOptions::default());
    let device: &dyn ZonedDevice = &*array;
    // A durable write of one block flushes the drive of the block, and the drive with the record of its
    // parity.
    let durable = |at, to| {
        let before = array.counters();
        ground.wait(device.write(Lba(at), blocks(1, at, to), Durability::Durable)).expect("written");
        let after = array.counters();
        (after.flushes - before.flushes, after.flushes_spared - before.flushes_spared)
    };
    assert_eq!(durable(0, 1), (2, 3));
    assert_eq!(durable(1, 2), (2, 3));
    // A durable write also flushes the drives with cached blocks of the zone: a whole stripe is on all five.
    ground.write(&array, ZoneId(0), 1, 2, 16, 14);
    assert_eq!(durable(16, 17), (5, 0));
    assert_eq!(durable(17, 18), (2, 3));
    // Cached writes to another zone cause no flush.
    ground.write(&array, ZONE, 1, 0, 32, 4);
    assert_eq!(durable(18, 19), (2, 3));
}
