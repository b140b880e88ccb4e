//! An array of NVMe drives below btrfs: drives are unplugged while the file system is mounted, and an order or an idle spare
//! replaces them.

use std::path::Path;

use anyhow::{Context, Result, ensure};
use serde_json::Value;

use super::super::exported::{
    Exported, LIMIT, Mounted, array_of, compare_files, create_array_of, write_files,
};
use crate::checks::Checks;
use crate::control::Control;
use crate::{clock, shell, text};

/// Number of the array's drives; the next drive takes the place of the one that is unplugged.
const DRIVES: usize = 5;
const NEW_DRIVE: usize = DRIVES;
const UNPLUGGED_DRIVE: usize = 2;
/// The drives of the second array, from which another drive is unplugged, and its idle spare.
const DRIVES_WITH_SPARE: [usize; DRIVES] = [0, 1, 3, 4, NEW_DRIVE];
const SPARE: usize = NEW_DRIVE + 1;
const UNPLUGGED_WITH_SPARE: usize = 3;
/// Number of files written before and after each event.
const FILES: usize = 15;
/// Address of the pages for orders to the array.
const HTTP: &str = "127.0.0.1:9132";
const PAGES: &str = "http://127.0.0.1:9132";

pub(super) fn run(checks: &mut Checks) -> Result<()> {
    checks.check("btrfs goes on while a drive of its array is unplugged and replaced", LIMIT, unplugged)?;
    checks.check("an idle spare takes the place of an unplugged drive below btrfs", LIMIT, spare_taken)
}

fn url(drive: usize) -> String {
    format!("nvme:serial=ZNS{drive}")
}

fn unplugged(control: &mut Control) -> Result<()> {
    let export = Exported::start(&create_array_of((0..DRIVES).map(url))?, &["--http", HTTP])?;
    shell::run_successfully(&["mkfs.btrfs", "-q", "-f", "-m", "single", &export.path], LIMIT)?;
    let mounted = Mounted::btrfs(&export.path)?;
    write_files(&mounted.at, 0..FILES)?;

    control.ask(&format!("unplug {UNPLUGGED_DRIVE}"))?;
    clock::wait_for("end of the unplugged drive", || (!is_plugged_in(UNPLUGGED_DRIVE)).then_some(()))?;
    write_files(&mounted.at, FILES..2 * FILES)?;
    text::put("/proc/sys/vm/drop_caches", 3)?;
    compare_files(&mounted.at, 0..2 * FILES).context("without the drive")?;
    let status = shell::run(&["furrow", "array", "status", "--url", PAGES], LIMIT)?;
    ensure!(status.code == Some(1), "an array that lacks a drive is not degraded: {}", status.tail());

    let (slot, new) = (UNPLUGGED_DRIVE.to_string(), url(NEW_DRIVE));
    shell::run_successfully(&["furrow", "array", "replace", "--url", PAGES, "--force", &slot, &new], LIMIT)?;
    shell::run_successfully(&["furrow", "array", "status", "--url", PAGES], LIMIT)?;
    write_files(&mounted.at, 2 * FILES..3 * FILES)?;
    scrub()?;
    mounted.unmount()?;
    let mounted = Mounted::btrfs(&export.path)?;
    compare_files(&mounted.at, 0..3 * FILES).context("with the new drive")?;
    mounted.unmount()?;
    export.stop()?;
    control.note(format!("{} files, before and after each event; btrfs scrub finds no errors", 3 * FILES))
}

fn spare_taken(control: &mut Control) -> Result<()> {
    let export =
        Exported::start(&create_array_of(DRIVES_WITH_SPARE.into_iter().map(url))?, &["--http", HTTP])?;
    shell::run_successfully(&["mkfs.btrfs", "-q", "-f", "-m", "single", &export.path], LIMIT)?;
    let mounted = Mounted::btrfs(&export.path)?;
    write_files(&mounted.at, 0..FILES)?;
    let add = ["furrow", "array", "spare", "add", "--url", PAGES, "--force", &url(SPARE)];
    shell::run_successfully(&add, LIMIT)?;
    ensure!(spares(&status()?) == 1, "the spare is not idle: {}", status()?);

    control.ask(&format!("unplug {UNPLUGGED_WITH_SPARE}"))?;
    let start = clock::now();
    clock::wait_for("end of the unplugged drive", || (!is_plugged_in(UNPLUGGED_WITH_SPARE)).then_some(()))?;
    write_files(&mounted.at, FILES..2 * FILES)?;
    clock::wait_for("clean array", || {
        status().ok().filter(|status| status.get("health").and_then(Value::as_str) == Some("clean"))
    })?;
    let seconds = start.elapsed().as_secs_f64();
    let status = status()?;
    ensure!(spares(&status) == 0, "the array is clean, and the spare was not taken: {status}");
    let events = status.get("events").and_then(Value::as_array).into_iter().flatten();
    let used = events.filter(|event| event.get("event").and_then(Value::as_str) == Some("spare-used"));
    ensure!(used.count() == 1, "the array's events do not say that the spare was used: {status}");
    write_files(&mounted.at, 2 * FILES..3 * FILES)?;
    scrub()?;
    mounted.unmount()?;
    export.stop()?;

    // The spare is a drive of the array from now on.
    let drives = DRIVES_WITH_SPARE.into_iter().filter(|drive| *drive != UNPLUGGED_WITH_SPARE).chain([SPARE]);
    let export = Exported::start(&array_of(drives.map(url)), &[])?;
    let mounted = Mounted::btrfs(&export.path)?;
    compare_files(&mounted.at, 0..3 * FILES).context("with the spare")?;
    mounted.unmount()?;
    export.stop()?;
    control.note(format!("{} files; clean {seconds:.1} s after the drive was unplugged", 3 * FILES))
}

/// Status of the array that is exported.
fn status() -> Result<Value> {
    // The exit code says whether the array is clean.
    let said = shell::run(&["furrow", "array", "status", "--json", "--url", PAGES], LIMIT)?;
    serde_json::from_str(&said.output).with_context(|| format!("status: {}", said.tail()))
}

/// Number of the array's idle spares.
fn spares(status: &Value) -> usize {
    status.get("spares").and_then(Value::as_array).map_or(0, Vec::len)
}

/// Reads and compares everything in the mounted file system.
fn scrub() -> Result<()> {
    let scrubbed = shell::run_successfully(&["btrfs", "scrub", "start", "-B", "/tmp/mounted"], LIMIT)?;
    ensure!(scrubbed.contains("no errors found"), "btrfs scrub: {scrubbed}");
    Ok(())
}

/// True if the drive with this number is plugged in.
fn is_plugged_in(drive: usize) -> bool {
    let serial = format!("ZNS{drive}");
    text::list(Path::new("/sys/block"))
        .iter()
        .any(|disk| text::get(disk.join("device/serial")).as_deref() == Some(serial.as_str()))
}
