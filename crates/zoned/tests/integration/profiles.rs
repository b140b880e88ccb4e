//! Profiles in a drive's URL: which settings count, users' own files, dilation, the real clock. The `bench`
//! crate tests how near profiles come to published figures.
#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "a test may panic")]

use std::sync::Arc;
use std::time::Duration;

use units::{Driver, VirtualDriver};
use zoned::emu::Profile;
use zoned::{Blocks, Buf, DeviceUrl, Durability, Instant, ZoneId, ZonedDevice};

const KIB: usize = 1024;

/// A drive with the profile that the URL names, and its clock, without power-cut tracking.
fn drive(url: &str) -> (Arc<dyn ZonedDevice>, Arc<dyn Driver>) {
    let driver: Arc<dyn Driver> = VirtualDriver::new(1);
    let url: DeviceUrl = format!("emu:mem?{url}").parse().unwrap();
    (url.open(Arc::clone(&driver)).unwrap(), driver)
}

#[test]
fn an_url_says_more_than_the_profile_and_the_profile_more_than_the_default() {
    let options = |url: &str| url.parse::<DeviceUrl>().unwrap().options().unwrap();
    let mib = |n: u64| Blocks(n * 256);
    let plain = options("emu:mem?profile=zn540");
    assert_eq!((plain.zones, plain.zone_size, plain.zone_capacity), (904, mib(2048), mib(1077)));
    assert_eq!((plain.max_open, plain.max_append, plain.volatile_cache), (Some(14), mib(1), false));
    let own = options("emu:mem?profile=zn540&zones=8&zone-size=64MiB&max-open=4&cache=volatile");
    assert_eq!((own.zones, own.zone_size, own.zone_capacity), (8, mib(64), mib(64)));
    assert_eq!((own.max_open, own.max_active, own.volatile_cache), (Some(4), Some(14), true));
    let small = options("emu:mem?profile=smr&zones=400&zone-size=1MiB");
    assert_eq!((small.zones, small.conventional), (400, 4));
    let big = options("emu:mem?profile=zn540&block-size=16384");
    assert_eq!((big.zone_size, big.max_append), (Blocks(2048 * 64), Blocks(64)));
}

#[test]
fn a_profile_of_ones_own_is_read_from_its_file_and_a_bad_line_is_named() {
    let file = tempfile::Builder::new().suffix(".toml").tempfile().unwrap();
    let url = format!("emu:mem?profile={}&zones=4", file.path().display());
    std::fs::write(file.path(), Profile::text("confzns").unwrap().replace("8.8us", "108.8us")).unwrap();
    let (device, driver) = drive(url.trim_start_matches("emu:mem?"));
    device.append(ZoneId(0), Buf::copy_from(&[1; 8 * KIB]), Durability::Cached).wait().unwrap();
    assert_eq!(driver.now().0, 583_800);
    std::fs::write(file.path(), "[geometry]\nzones = 4\n\n[flush]\nlatency = \"1us\"\nlatncy = \"1us\"\n")
        .unwrap();
    let refusal = url.parse::<DeviceUrl>().unwrap_err().to_string();
    assert!(refusal.contains(&format!("{}:6: ", file.path().display())), "{refusal}");
    assert!(refusal.contains("latncy"), "{refusal}");
}

#[test]
fn on_the_real_clock_operations_take_at_least_their_time() {
    let driver: Arc<dyn Driver> = units::RealDriver::new();
    let device = zoned::open("emu:mem?profile=confzns&dilated=2", Arc::clone(&driver)).unwrap();
    let begin = driver.now();
    let data = Buf::copy_from(&[1; 8 * KIB]);
    let ios: Vec<_> = (0..2).map(|_| device.append(ZoneId(0), data.clone(), Durability::Cached)).collect();
    for io in ios {
        io.wait().unwrap();
    }
    // The second operation's turn at the controller comes after the first one's.
    assert!(driver.now().since(begin) >= Duration::from_nanos(2 * (483_800 + 28_120)));
}

#[test]
fn a_drive_without_times_completes_at_once() {
    let (device, driver) = drive("profile=null&dilated=7");
    let append = device.append(ZoneId(0), Buf::copy_from(&[1; 4 * KIB]), Durability::Cached);
    assert_eq!(format!("{append:?}"), "Io(ready)");
    append.wait().unwrap();
    assert_eq!(driver.now(), Instant::ORIGIN);
}

#[test]
fn dilation_also_stretches_drives_without_a_profile() {
    let (device, driver) = drive("delay=15us&dilated=3");
    device.flush().wait().unwrap();
    assert_eq!(driver.now().0, 45_000);
}
