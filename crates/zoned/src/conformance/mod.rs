//! The conformance suite of the device contract, for every backend. The suite adapts to the geometry. **It destroys
//! the device's contents.**
//!
//! Power cuts are not tested here, because no command makes a device lose power. The emulator's tests and the crash
//! explorer test them.

mod fixture;
mod limits;
mod states;
mod transfers;

use std::sync::Arc;

use crate::ZonedDevice;
use crate::conformance::fixture::{Check, Fixture};

/// Runs every conformance check on the calling thread. `report` gets each check's name and result.
pub fn run(dev: &Arc<dyn ZonedDevice>, report: &mut dyn FnMut(&str, Result<(), String>)) {
    for (name, check) in checks() {
        let result = Fixture::new(dev).and_then(|mut fixture| check(&mut fixture));
        report(name, result);
    }
    // Creating a fixture resets every zone that the last check wrote.
    report("every zone can be emptied again", Fixture::new(dev).map(drop));
}

/// Runs every conformance check; returns the failures, none for a device that conforms.
pub fn failures(dev: &Arc<dyn ZonedDevice>) -> Vec<String> {
    let mut found = Vec::new();
    run(dev, &mut |name, result| {
        if let Err(why) = result {
            found.push(format!("{name}: {why}"));
        }
    });
    found
}

/// The names of the conformance checks, in order.
pub fn names() -> Vec<&'static str> {
    checks().map(|(name, _)| name).collect()
}

fn checks() -> impl Iterator<Item = (&'static str, Check)> {
    transfers::CHECKS.iter().chain(states::CHECKS).chain(limits::CHECKS).copied()
}
