//! Tests of `furrow export` that need no ublk driver. What needs one is tested in a guest: `cargo xtask guest test export`.

use std::path::Path;

use crate::common::{refused, run, stderr_of};

#[test]
fn a_device_that_no_kernel_takes_is_refused_before_the_driver_is_asked() {
    let export = |url: &str, more: &[&str]| {
        let args: Vec<&str> = ["export", "-d", url].into_iter().chain(more.iter().copied()).collect();
        run(None, &args)
    };
    refused(&export("emu:mem?zones=8&zone-size=12MiB", &[]), 2, &["powers of two", "8388608", "16777216"]);
    refused(&export("emu:mem?zones=8&block-size=65536", &[]), 2, &["blocks of 65536"]);
    refused(&export("emu:mem?zones=8", &["--depth", "1025"]), 2, &["from 1 to 1024"]);
    refused(&export("emu:mem?zones=8", &["--http", "127.0.0.1:0"]), 2, &["orders to an array", "is none"]);
}

#[test]
fn an_export_names_its_device_or_what_else_it_is_asked_for() {
    let output = run(None, &["export", "--queues", "2"]);
    assert_eq!(output.status.code(), Some(2));
    assert!(stderr_of(&output).contains("--device"), "{}", stderr_of(&output));
    let output = run(None, &["export", "--list", "--stop", "1"]);
    assert_eq!(output.status.code(), Some(2), "{}", stderr_of(&output));
}

#[test]
fn a_machine_without_the_driver_is_told_what_to_load() {
    if Path::new("/dev/ublk-control").exists() {
        return eprintln!("SKIPPED: this machine has the ublk driver; the guest's tests cover it");
    }
    for args in [
        ["export", "-d", "emu:mem?zones=8&zone-size=16MiB"].as_slice(),
        &["export", "--list"],
        &["export", "--stop", "0"],
        &["export", "--recover", "0"],
    ] {
        refused(&run(None, args), 2, &["/dev/ublk-control", "modprobe ublk_drv", "6.6"]);
    }
}
