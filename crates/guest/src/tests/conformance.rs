//! The contract's conformance suite on every kind of kernel device, with io_uring and without, and a count of the
//! appends that a stock kernel reorders.

use std::time::Duration;

use anyhow::{Result, bail};

use super::order;
use crate::checks::Checks;
use crate::{shell, text};

/// The devices: QEMU's drive both ways, null_blk, nvmet-loop.
const DEVICES: &[&str] = &[
    "blk:/dev/furrow/zns0",
    "nvme:/dev/furrow/ng-zns0",
    "blk:/dev/furrow/nullb0",
    "nvme:/dev/furrow/ng-loop0",
];

/// Rounds of appends until some are reordered: what the kernel does is a matter of its workers.
const ATTEMPTS: u32 = 5;

/// For one device.
const LIMIT: Duration = Duration::from_secs(60);

pub fn run(checks: &mut Checks, device: &str) -> Result<()> {
    let one = [device];
    for device in if device == "-" { DEVICES } else { &one } {
        check(checks, device, "")?;
    }
    checks.check("nvmet-loop reorders appends, and each says where it landed", LIMIT, |control| {
        for _ in 0..ATTEMPTS {
            let count = order::out_of_order("nvme:/dev/furrow/ng-loop0")?;
            control.note(format!("nvmet-loop: {count}"))?;
            if count.reordered > 0 {
                return Ok(());
            }
        }
        bail!("no append landed out of order: this kernel no longer shows what the test is for")
    })?;
    checks.check("QEMU's drive takes appends as they come", LIMIT, |control| {
        let count = order::out_of_order("nvme:/dev/furrow/ng-zns0")?;
        control.note(format!("QEMU: {count}"))
    })?;
    text::put("/proc/sys/kernel/io_uring_disabled", 2)?;
    for device in DEVICES {
        check(checks, device, " without io_uring")?;
    }
    Ok(())
}

fn check(checks: &mut Checks, device: &str, how: &str) -> Result<()> {
    checks.check(&format!("{device}{how}"), LIMIT, |control| {
        let text = shell::good(&["furrow", "device", "check", "--force", "-d", device], LIMIT)?;
        control.note(text.lines().last().unwrap_or_default())
    })
}
