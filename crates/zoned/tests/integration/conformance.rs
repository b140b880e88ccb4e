//! The conformance suite over the emulated drive, in memory and in a file, in many shapes.

use std::sync::Arc;

use units::{Driver, RealDriver, VirtualDriver};
use zoned::ZonedDevice;

const DRIVE_URL_QUERIES: &[&str] = &[
    "zones=32&zone-size=64KiB&zone-capacity=56KiB&max-open=6&max-active=8",
    "zones=32&zone-size=64KiB&zone-capacity=56KiB&max-open=6&max-active=8&cache=none",
    "zones=20&zone-size=1MiB&conventional=3&max-open=none&max-active=none",
    "zones=40&zone-size=100KiB&block-size=512&max-append=8KiB&conventional=1",
    "zones=20&zone-size=8MiB&zone-capacity=5MiB&max-open=2&max-active=2",
    "zones=4&zone-size=4KiB",
];

fn assert_conforms(dev: &Arc<dyn ZonedDevice>) {
    let failures = zoned::conformance::failures(dev);
    assert!(failures.is_empty(), "{dev:?}:\n{}", failures.join("\n"));
}

fn run_suite_on_shapes(place: &str, extra: &str, driver: fn() -> Arc<dyn Driver>) {
    for shape in DRIVE_URL_QUERIES {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let path = folder.path().join("drive.img");
        let place = if place == "mem" { place.to_string() } else { path.display().to_string() };
        let url = format!("emu:{place}?{shape}{extra}");
        assert_conforms(&zoned::open_or_create(&url, driver()).expect(&url));
    }
}

#[test]
fn memory_without_delay() {
    run_suite_on_shapes("mem", "", || VirtualDriver::new(1));
}

#[test]
fn memory_with_a_delay_in_virtual_time() {
    run_suite_on_shapes("mem", "&delay=15us", || VirtualDriver::new(1));
}

#[test]
fn memory_with_a_delay_in_real_time() {
    run_suite_on_shapes("mem", "&delay=15us", || RealDriver::new());
}

#[test]
fn drives_with_times_of_their_own() {
    for profile in zoned::emu::Profile::names() {
        run_suite_on_shapes("mem", &format!("&profile={profile}"), || VirtualDriver::new(1));
    }
    run_suite_on_shapes("file", "&profile=zn540", || VirtualDriver::new(1));
}

#[test]
fn drives_whose_appends_land_in_any_order() {
    run_suite_on_shapes("mem", "&delay=15us&reorder=on", || VirtualDriver::new(1));
    run_suite_on_shapes("mem", "&delay=15us&reorder=on", || RealDriver::new());
    run_suite_on_shapes("file", "&delay=15us&reorder=on", || VirtualDriver::new(1));
    run_suite_on_shapes("mem", "&profile=confzns&reorder=on", || VirtualDriver::new(1));
}

#[test]
fn a_file_in_virtual_time() {
    run_suite_on_shapes("file", "", || VirtualDriver::new(1));
}

#[test]
fn a_file_with_a_delay_in_real_time() {
    run_suite_on_shapes("file", "&delay=15us", || RealDriver::new());
}

#[test]
fn a_drive_tracks_power_cuts_and_refuses_reads_past_the_pointer() {
    for volatile_cache in [true, false] {
        let options = zoned::emu::EmuOptions {
            volatile_cache,
            read_past_pointer: false,
            conventional: 2,
            ..zoned::emu::EmuOptions::tiny()
        };
        let dev: Arc<dyn ZonedDevice> = zoned::emu::Emu::memory(options, VirtualDriver::new(1));
        assert_conforms(&dev);
    }
}

#[test]
fn the_suite_finds_a_device_that_does_not_conform() {
    let options = zoned::emu::EmuOptions::tiny();
    let emu = zoned::emu::Emu::memory(options, VirtualDriver::new(1));
    emu.fail(zoned::emu::FaultSpec::all(zoned::emu::FaultOp::Flush));
    let dev: Arc<dyn ZonedDevice> = emu;
    assert!(zoned::conformance::failures(&dev).len() >= 2);
}
