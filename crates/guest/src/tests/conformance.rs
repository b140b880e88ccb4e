//! The conformance suite of the device contract on every kind of kernel device, with io_uring and without,
//! and whether a stock kernel and its drives reorder appends.

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use serde_json::Value;

use super::exported::create_array_of;
use super::order;
use crate::checks::Checks;
use crate::{clock, shell, text};

/// The devices under test: QEMU's drive by both interfaces, null_blk without conventional zones and with
/// some, nvmet-loop.
const DEVICES: &[&str] = &[
    "blk:/dev/furrow/zns0",
    "nvme:/dev/furrow/ng-zns0",
    "blk:/dev/furrow/nullb0",
    NULL_BLK_WITH_CONVENTIONAL_ZONES,
    "nvme:/dev/furrow/ng-loop0",
];

/// The null_blk device whose first zones are conventional.
const NULL_BLK_WITH_CONVENTIONAL_ZONES: &str = "blk:/dev/furrow/nullb1";

/// Members of an array, one of them with conventional zones.
const ARRAY_DRIVES: [&str; 3] =
    ["blk:/dev/furrow/nullb0", NULL_BLK_WITH_CONVENTIONAL_ZONES, "nvme:/dev/furrow/ng-loop0"];

/// Limit of the rounds of appends until the kernel reorders some, which depends on its workers and the
/// processors. Every round checks the address of each append.
const REORDER_ROUNDS_LIMIT: Duration = Duration::from_secs(30);

/// For one device.
const PROGRAM_LIMIT: Duration = Duration::from_secs(180);

pub fn run(checks: &mut Checks, device: &str) -> Result<()> {
    let one = [device];
    for device in if device == "-" { DEVICES } else { &one } {
        check(checks, device, "")?;
    }
    checks.check("null_blk's first zones are conventional", PROGRAM_LIMIT, |_| {
        let info = device_info(NULL_BLK_WITH_CONVENTIONAL_ZONES)?;
        let count = info.get("conventional").and_then(Value::as_u64);
        ensure!(count.is_some_and(|count| count > 0), "it has {count:?} conventional zones");
        Ok(())
    })?;
    checks.check("an array of drives with and without conventional zones", PROGRAM_LIMIT, |control| {
        let array = create_array_of(ARRAY_DRIVES.into_iter().map(str::to_owned))?;
        let check = ["furrow", "device", "check", "--force", "-d", &array];
        let text = shell::run_successfully(&check, PROGRAM_LIMIT)?;
        control.note(text.lines().last().unwrap_or_default())
    })?;
    checks.check(
        "nvmet-loop may reorder appends, and each says where it landed",
        PROGRAM_LIMIT,
        |control| {
            let start = clock::now();
            for round in 1.. {
                let count = order::out_of_order("nvme:/dev/furrow/ng-loop0")?;
                if count.reordered > 0 {
                    return control.note(format!("nvmet-loop, round {round}: {count}"));
                }
                if start.elapsed() > REORDER_ROUNDS_LIMIT {
                    return control.note(format!(
                        "nvmet-loop: NO APPEND WAS REORDERED in {round} rounds, the last: {count}"
                    ));
                }
            }
            Ok(())
        },
    )?;
    checks.check("each append to QEMU's drive lands where the drive says", PROGRAM_LIMIT, |control| {
        let count = order::out_of_order("nvme:/dev/furrow/ng-zns0")?;
        control.note(format!("QEMU: {count}"))
    })?;
    text::put("/proc/sys/kernel/io_uring_disabled", 2)?;
    checks.check("without io_uring the engine is threads, and says why", PROGRAM_LIMIT, |control| {
        for device in DEVICES {
            let info = device_info(device)?;
            let engine = info.pointer("/details/engine").and_then(Value::as_str).unwrap_or_default();
            control.note(format!("{device}: {engine}"))?;
            ensure!(
                engine.starts_with("system calls") && engine.contains("io_uring_disabled"),
                "the engine of {device} is '{engine}'"
            );
        }
        Ok(())
    })?;
    for device in DEVICES {
        check(checks, device, " without io_uring")?;
    }
    Ok(())
}

/// The output of `furrow device info` for the device.
fn device_info(device: &str) -> Result<Value> {
    let text = shell::run_successfully(&["furrow", "device", "info", "--json", "-d", device], PROGRAM_LIMIT)?;
    serde_json::from_str(&text).with_context(|| format!("it printed {text}"))
}

fn check(checks: &mut Checks, device: &str, how: &str) -> Result<()> {
    checks.check(&format!("{device}{how}"), PROGRAM_LIMIT, |control| {
        let text =
            shell::run_successfully(&["furrow", "device", "check", "--force", "-d", device], PROGRAM_LIMIT)?;
        control.note(text.lines().last().unwrap_or_default())
    })
}
