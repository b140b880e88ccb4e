//! The memory of an array of five or six whole zn540.

use std::sync::Arc;

use array::{Array, CreateOptions, OpenOptions, Placement};
use units::{Driver, VirtualDriver, block_on};
use zoned::emu::{Emu, EmuOptions, Profile};
use zoned::{Buf, Bytes, Durability, ZoneId, ZonedDevice};

/// Blocks of a stripe unit, and bytes of a block.
const UNIT_BLOCKS: u64 = 16;
const BLOCK_BYTES: u64 = 4096;

/// An array of whole drives, and the drives.
async fn whole_drives(
    driver: &Arc<dyn Driver>,
    options: &CreateOptions,
) -> (Arc<Array>, Vec<Arc<dyn ZonedDevice>>) {
    let profile = Profile::load("zn540").expect("there");
    let drive = |n| {
        let options = EmuOptions { name: format!("emu:{n}"), ..EmuOptions::of_profile(profile.clone()) };
        Emu::memory(options, Arc::clone(driver)) as Arc<dyn ZonedDevice>
    };
    let drives: Vec<_> = (0..4 + options.parities).map(drive).collect();
    array::create(&drives, options).await.expect("created");
    (Array::open(drives.clone(), OpenOptions::default()).await.expect("opened"), drives)
}

#[test]
fn tables_take_256_kib_a_terabyte_at_most_and_parity_a_unit_for_each_open_zone() {
    let cases = [(Placement::Fixed, 1, false), (Placement::Stored, 1, true), (Placement::Stored, 2, false)];
    for (placement, parities, atomic_writes) in cases {
        let driver: Arc<dyn Driver> = VirtualDriver::new(1);
        block_on(&*driver, async {
            let options = CreateOptions { placement, parities, atomic_writes, ..CreateOptions::default() };
            let (array, drives) = whole_drives(&driver, &options).await;
            let device: &dyn ZonedDevice = &*array;
            let geometry = device.geometry();
            let terabytes =
                (u64::from(geometry.zones) * geometry.zone_capacity.0 * BLOCK_BYTES) as f64 / 1e12;
            let empty = array.status().memory.expect("of an open array");
            assert_eq!((empty.parity, empty.relocated), (Bytes(0), Bytes(0)));
            let open = geometry.max_open.expect("a limit");
            for zone in (0..open).map(ZoneId) {
                let data = Buf::zeroed((UNIT_BLOCKS * BLOCK_BYTES) as usize);
                device.write(geometry.start(zone), data, Durability::Cached).await.expect("written");
            }
            let memory = array.status().memory.expect("of an open array");
            let unit = UNIT_BLOCKS * BLOCK_BYTES;
            assert_eq!(memory.parity, Bytes(u64::from(open * parities) * unit));
            assert_eq!(memory.parity, array.stripe_buffers());
            let kib = memory.tables.0 as f64 / 1024.0 / terabytes;
            println!(
                "{placement:?}, {parities} parities: {kib:.0} KiB of tables for each of {terabytes:.2} TB"
            );
            assert!(kib <= 256.0 && memory.tables >= empty.tables, "{kib:.0} KiB a TB: {memory:?}");
            // A stored map is a number for each part, and each table entry of a zone takes some hundred bytes.
            assert!(memory.tables.0 > 400 * u64::from(geometry.zones), "{memory:?}");
            device.flush().await.expect("flushed");
            drop(array);
            let status = array::status(&drives).await.expect("read");
            let found = status.memory.expect("a mount takes the array");
            assert_eq!((found.parity, found.relocated), (memory.parity, Bytes(0)));
        });
    }
}
