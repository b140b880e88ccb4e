//! One target under libFuzzer, which brings the main function. `FURROW_FUZZ_TARGET` names the target.
#![no_main]
#![forbid(unsafe_code)]

use std::sync::LazyLock;

use fuzz::{TARGETS, Target};

static TARGET: LazyLock<&Target> = LazyLock::new(|| {
    let name = std::env::var("FURROW_FUZZ_TARGET").unwrap_or_default();
    fuzz::find(&name).unwrap_or_else(|| {
        let names: Vec<&str> = TARGETS.iter().map(|target| target.name).collect();
        panic!("FURROW_FUZZ_TARGET is '{name}': it must be one of {}", names.join(", "))
    })
});

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| (TARGET.run)(bytes));
