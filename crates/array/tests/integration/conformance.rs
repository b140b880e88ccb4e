//! The conformance suite over arrays of emulated drives, in many shapes.

use std::sync::Arc;
use std::time::Duration;

use array::{Array, CreateOptions, OpenOptions};
use units::{Driver, RealDriver, VirtualDriver, block_on};
use zoned::emu::{DeferredDevice, Emu, EmuOptions, Latency};
use zoned::{Blocks, Bytes, Stage, ZonedDevice};

/// Shapes of tested arrays: drives, blocks in a stripe unit, blocks in a zone, the zone's capacity, open
/// limit, active limit.
const ARRAY_SHAPES: &[(u32, u64, u64, u64, u32, u32)] = &[
    (3, 1, 64, 56, 8, 10),
    (4, 2, 64, 61, 6, 8),
    (5, 4, 128, 128, 8, 8),
    (7, 3, 100, 97, 5, 6),
    (5, 16, 512, 400, 8, 14),
    (3, 1, 64, 64, 5, 5),
];

/// Conventional zones of the drives, by slot.
const NO_CONVENTIONAL_ZONES: [u32; 7] = [0; 7];
const CONVENTIONAL_ZONES: [u32; 7] = [0, 2, 5, 1, 0, 3, 2];

fn drives(
    shape: usize,
    latency: Latency,
    cache: bool,
    driver: &Arc<dyn Driver>,
) -> Vec<Arc<dyn ZonedDevice>> {
    smr_drives(shape, NO_CONVENTIONAL_ZONES, latency, cache, driver)
}

fn smr_drives(
    shape: usize,
    conventional: [u32; 7],
    latency: Latency,
    cache: bool,
    driver: &Arc<dyn Driver>,
) -> Vec<Arc<dyn ZonedDevice>> {
    let (count, _, zone_size, zone_capacity, open, active) = ARRAY_SHAPES[shape];
    let (open, active) = (open + crate::SPARE_ACTIVE, active + crate::SPARE_ACTIVE);
    let (zone_size, zone_capacity) =
        (zone_size * u64::from(crate::SHARES), zone_capacity * u64::from(crate::SHARES));
    (0..count)
        .zip(conventional)
        .map(|(n, conventional)| {
            let options = EmuOptions {
                name: format!("emu:{n}"),
                zones: 24 + conventional,
                conventional,
                zone_size: Blocks(zone_size),
                // One drive is larger than the others: the array ignores the excess.
                zone_capacity: Blocks(if n == 1 { zone_size } else { zone_capacity }),
                max_open: Some(open),
                max_active: Some(active),
                latency,
                volatile_cache: cache,
                read_past_pointer: n % 2 == 0,
                ..EmuOptions::default()
            };
            Emu::memory(options, Arc::clone(driver)) as Arc<dyn ZonedDevice>
        })
        .collect()
}

fn array(shape: usize, drives: Vec<Arc<dyn ZonedDevice>>, without: Option<usize>) -> Arc<dyn ZonedDevice> {
    let stripe_unit = Bytes(ARRAY_SHAPES[shape].1 * 4096);
    let driver = Arc::clone(drives[0].driver());
    block_on(&*driver, async move {
        let options = CreateOptions {
            stripe_unit,
            label: format!("shape{shape}"),
            placement: crate::PLACEMENT,
            shares: crate::SHARES,
            ..CreateOptions::default()
        };
        array::create(&drives, &options).await.expect("created");
        let mut drives = drives;
        if let Some(without) = without {
            drives.remove(without);
        }
        drives.reverse();
        Array::open(drives, OpenOptions::default()).await.expect("opened") as Arc<dyn ZonedDevice>
    })
}

fn assert_conforms(dev: &Arc<dyn ZonedDevice>) {
    let failures = zoned::conformance::failures(dev);
    assert!(failures.is_empty(), "{dev:?}:\n{}", failures.join("\n"));
}

#[test]
fn an_array_of_drives_without_latency_conforms() {
    for shape in 0..ARRAY_SHAPES.len() {
        for cache in [true, false] {
            let driver: Arc<dyn Driver> = VirtualDriver::new(1);
            assert_conforms(&array(shape, drives(shape, Latency::NONE, cache, &driver), None));
        }
    }
}

#[test]
fn an_array_of_drives_with_latency_in_virtual_time_conforms() {
    for shape in 0..ARRAY_SHAPES.len() {
        let driver: Arc<dyn Driver> = VirtualDriver::new(1);
        let latency = Latency::all(Duration::from_micros(15));
        assert_conforms(&array(shape, drives(shape, latency, true, &driver), None));
    }
}

#[test]
fn an_array_of_drives_with_latency_in_real_time_conforms() {
    let driver: Arc<dyn Driver> = RealDriver::new();
    assert_conforms(&array(1, drives(1, Latency::all(Duration::from_micros(15)), true, &driver), None));
}

#[test]
fn an_array_of_drives_that_write_at_completion_conforms() {
    for shape in 0..ARRAY_SHAPES.len() {
        let driver: Arc<dyn Driver> = VirtualDriver::new(1);
        let drives = drives(shape, Latency::NONE, true, &driver).into_iter();
        let late = |drive| DeferredDevice::over(drive, Duration::from_micros(60)) as Arc<dyn ZonedDevice>;
        assert_conforms(&array(shape, drives.map(late).collect(), None));
    }
}

#[test]
fn an_array_of_drives_with_conventional_zones_conforms() {
    for shape in 0..ARRAY_SHAPES.len() {
        for (without, late) in [(None, false), (None, true), (Some(1), false)] {
            let driver: Arc<dyn Driver> = VirtualDriver::new(1);
            let latency = if late { Latency::NONE } else { Latency::all(Duration::from_micros(15)) };
            let mut drives = smr_drives(shape, CONVENTIONAL_ZONES, latency, true, &driver);
            if late {
                let defer =
                    |drive| DeferredDevice::over(drive, Duration::from_micros(60)) as Arc<dyn ZonedDevice>;
                drives = drives.into_iter().map(defer).collect();
            }
            assert_conforms(&array(shape, drives, without));
        }
    }
}

#[test]
fn a_staged_array_conforms() {
    for shape in 0..ARRAY_SHAPES.len() {
        for (late, without) in [(false, None), (true, None), (true, Some(1))] {
            let driver: Arc<dyn Driver> = VirtualDriver::new(1);
            let latency = if late { Latency::all(Duration::from_micros(15)) } else { Latency::NONE };
            let array = array(shape, drives(shape, latency, true, &driver), without);
            let window = Bytes(16 * u64::from(array.geometry().block_size));
            assert_conforms(&Stage::over(array, window).expect("a stage"));
        }
    }
}

#[test]
fn an_array_without_one_drive_conforms() {
    for shape in 0..ARRAY_SHAPES.len() {
        for without in [0, 1, 2] {
            let driver: Arc<dyn Driver> = VirtualDriver::new(1);
            let latency = Latency::all(Duration::from_micros(15));
            assert_conforms(&array(shape, drives(shape, latency, true, &driver), Some(without)));
        }
    }
}
