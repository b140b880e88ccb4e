//! A log roll beside writes that are refused.

use std::time::Duration;

use units::{Driver, VirtualDriver, block_on, sleep_until};
use zoned::emu::{DeferredDevice, Emu, EmuOptions, Latency};
use zoned::{Buf, BufMut, Bytes, Durability, ZoneState, ZonedDevice};

use super::*;
use crate::deferred::Deferred;
use crate::layout::placement::part_zone;
use crate::{Array, CreateOptions, OpenOptions, create};

const BLOCK_BYTES: usize = 512;
const ZONE: ZoneId = ZoneId(1);

fn blocks(from: u64, to: u64) -> Buf {
    Buf::copy_from(&(from..to).flat_map(|n| [n as u8 ^ 0x5a; BLOCK_BYTES]).collect::<Vec<_>>())
}

/// A write to a stripe is in flight when the log with the stripe's parity moves, and is refused then. The acknowledged
/// blocks of the stripe can still be reconstructed from the log, whichever other drive fails.
#[test]
fn acknowledged_blocks_survive_a_write_that_is_refused_during_a_log_roll() {
    let layout = crate::Layout { width: 5, parities: 1, unit: 4, part_rows: 256 };
    let rotation = crate::Rotation { drives: 5 };
    let parity = rotation.slot(ZONE, layout.parity(Stripe(2), Parity::P));
    let worn = rotation.slot(ZONE, layout.data(Stripe(2), 1));
    for lost in (0..5).filter(|slot| *slot != worn.index()) {
        let driver: Arc<dyn Driver> = VirtualDriver::new(1);
        let drive = |n: u32| {
            let options = EmuOptions {
                name: format!("emu:{n}"),
                block_size: BLOCK_BYTES as u32,
                zones: 6,
                zone_size: Blocks(256),
                zone_capacity: Blocks(256),
                latency: Latency::all(Duration::from_micros(10)),
                ..EmuOptions::default()
            };
            Emu::memory(options, Arc::clone(&driver))
        };
        let emus: Vec<Arc<Emu>> = (0..5).map(drive).collect();
        let mut devices: Vec<Arc<dyn ZonedDevice>> =
            emus.iter().map(|emu| Arc::clone(emu) as Arc<dyn ZonedDevice>).collect();
        block_on(&*driver, async {
            let options = CreateOptions { stripe_unit: Bytes(4 * 512), ..CreateOptions::default() };
            create(&devices, &options).await.expect("created");
            let mut some = devices.clone();
            some[worn.index()] =
                DeferredDevice::over(Arc::clone(&devices[worn.index()]), Duration::from_millis(5));
            let array = Array::open(some, OpenOptions::default()).await.expect("opened");
            let device: &dyn ZonedDevice = &*array;
            let start = device.geometry().start(ZONE);
            device.write(start, blocks(0, 37), Durability::Durable).await.expect("written");
            let flight = device.write(start.plus(Blocks(37)), blocks(37, 42), Durability::Cached);
            let core = &array.core;
            let mut deferred = Deferred::default();
            core.members.roll(parity, &mut deferred);
            deferred.finish(&core.ctx);
            emus[worn.index()].wear(part_zone(ZONE), ZoneState::ReadOnly);
            flight.await.expect_err("refused");
            while core.members.member(parity).log.lock().rolling {
                sleep_until(&*driver, driver.now().after(Duration::from_millis(1))).await;
            }
            drop(array);
            devices.remove(lost);
            let array = Array::open(devices, OpenOptions::default()).await.expect("opened again");
            let device: &dyn ZonedDevice = &*array;
            let found = device.read(start, BufMut::zeroed(37 * BLOCK_BYTES)).await.expect("read");
            assert!(*found == *blocks(0, 37), "without drive {lost}");
        });
    }
}
