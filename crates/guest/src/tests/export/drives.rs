//! An array of NVMe drives below btrfs: a drive is unplugged and replaced while the file system is mounted.

use std::path::Path;

use anyhow::{Context, Result, ensure};

use super::super::exported::{Exported, LIMIT, Mounted, compare_files, create_array_of, write_files};
use crate::checks::Checks;
use crate::control::Control;
use crate::{clock, shell, text};

/// Number of the array's drives; the next drive takes the place of the one that is unplugged.
const DRIVES: usize = 5;
const NEW_DRIVE: usize = DRIVES;
const UNPLUGGED_DRIVE: usize = 2;
/// Number of files written before and after each event.
const FILES: usize = 15;
/// Address of the pages for orders to the array.
const HTTP: &str = "127.0.0.1:9132";
const PAGES: &str = "http://127.0.0.1:9132";

pub(super) fn run(checks: &mut Checks) -> Result<()> {
    checks.check("btrfs goes on while a drive of its array is unplugged and replaced", LIMIT, unplugged)
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
    let scrubbed = shell::run_successfully(&["btrfs", "scrub", "start", "-B", "/tmp/mounted"], LIMIT)?;
    ensure!(scrubbed.contains("no errors found"), "btrfs scrub: {scrubbed}");
    mounted.unmount()?;
    let mounted = Mounted::btrfs(&export.path)?;
    compare_files(&mounted.at, 0..3 * FILES).context("with the new drive")?;
    mounted.unmount()?;
    export.stop()?;
    control.note(format!("{} files, before and after each event; btrfs scrub finds no errors", 3 * FILES))
}

/// True if the drive with this number is plugged in.
fn is_plugged_in(drive: usize) -> bool {
    let serial = format!("ZNS{drive}");
    text::list(Path::new("/sys/block"))
        .iter()
        .any(|disk| text::get(disk.join("device/serial")).as_deref() == Some(serial.as_str()))
}
