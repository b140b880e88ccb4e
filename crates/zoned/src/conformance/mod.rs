//! One suite for every backend: what the contract says a device does. It adapts to the geometry, and **it
//! destroys what the device holds**.
//!
//! What a power cut leaves behind is not among it: a device cannot be asked to lose its power. The emulator's own
//! tests and the crash explorer hold that half.

mod ground;
mod limits;
mod states;
mod transfers;

use std::sync::Arc;

use crate::ZonedDevice;
use crate::conformance::ground::{Check, Ground};

/// Runs every check; `report` is told the name of each and what was wrong. Waits on the calling thread.
pub fn run(dev: &Arc<dyn ZonedDevice>, report: &mut dyn FnMut(&str, Result<(), String>)) {
    for (name, check) in checks() {
        let result = Ground::new(dev).and_then(|mut ground| check(&mut ground));
        report(name, result);
    }
    // Leaves the device as empty as it was found, whatever the last check did.
    report("every zone can be emptied again", Ground::new(dev).map(drop));
}

/// Runs every check, and says what was wrong: nothing, from a device that conforms.
pub fn complaints(dev: &Arc<dyn ZonedDevice>) -> Vec<String> {
    let mut found = Vec::new();
    run(dev, &mut |name, result| {
        if let Err(why) = result {
            found.push(format!("{name}: {why}"));
        }
    });
    found
}

/// The names of the checks, in order.
pub fn names() -> Vec<&'static str> {
    checks().map(|(name, _)| name).collect()
}

fn checks() -> impl Iterator<Item = (&'static str, Check)> {
    transfers::CHECKS.iter().chain(states::CHECKS).chain(limits::CHECKS).copied()
}
