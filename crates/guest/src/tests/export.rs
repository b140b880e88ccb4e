//! Tests of `furrow export`: devices of this project as zoned block devices of the guest's kernel.

use std::fs;
use std::path::Path;
use std::time::Duration;

use anyhow::{Result, ensure};
use serde_json::Value;

use super::exported::{Exported, LIMIT, Mounted, compare_files, create_array, list, write_files};
use crate::checks::Checks;
use crate::{clock, devices, nvmet, shell, text};

mod appends;
mod drives;
mod load;
mod page;
mod power_cuts;
mod recovery;
mod written_zone;

/// Geometry of the emulated drives: zones below their size in capacity, few of them open.
const DRIVE: &str = "zones=64&zone-size=16MiB&zone-capacity=12MiB&max-open=8&max-active=12";
/// Number of an array's drives: four of data make zones whose size is a power of two.
const DRIVES: usize = 5;
/// Number of the export behind nvmet-loop.
const NVMET_NUMBER: usize = 7;
/// Number of files that the test of a file system writes.
const FILES: usize = 60;

pub fn run(checks: &mut Checks) -> Result<()> {
    let drive = format!("emu:/tmp/drive?{DRIVE}");
    checks
        .check("conformance of an exported emulator", LIMIT, |control| control.note(conformance(&drive)?))?;
    checks.check("conformance of an exported array", LIMIT, |control| {
        let array = create_array("conformance", DRIVES, DRIVE)?;
        control.note(conformance(&array)?)
    })?;
    checks.check("conformance of an export with conventional zones and small blocks", LIMIT, |control| {
        let url = "emu:/tmp/small?zones=32&zone-size=1MiB&zone-capacity=768KiB&conventional=4&block-size=512&cache=none";
        control.note(conformance(url)?)
    })?;
    checks.check(
        "conformance of an export behind nvmet, whose appends are in flight together",
        LIMIT,
        |control| control.note(behind_nvmet()?),
    )?;
    checks.check("an export that cannot be is refused, and says why", LIMIT, |_| refusals())?;
    checks.check("blkzone sees zones, pointers and resets", LIMIT, |_| blkzone(&drive))?;
    checks.check("fio writes to zones and reads back what it wrote", LIMIT, |_| fio(&drive))?;
    checks.check("btrfs on an exported array keeps its files", LIMIT, |control| {
        let array = create_array("btrfs", DRIVES, DRIVE)?;
        control.note(btrfs(&array)?)
    })?;
    page::run(checks)?;
    recovery::run(checks)?;
    appends::run(checks)?;
    power_cuts::run(checks)?;
    drives::run(checks)
}

/// The tests of file systems that Debian's full kernel has alone.
pub fn run_f2fs(checks: &mut Checks) -> Result<()> {
    power_cuts::run_f2fs(checks)
}

/// Runs the conformance suite on the block device of an export; returns its last line.
fn conformance(url: &str) -> Result<String> {
    let export = Exported::start(url, &[])?;
    let device = format!("blk:{}", export.path);
    let said = shell::run_successfully(&["furrow", "device", "check", "--force", "-d", &device], LIMIT)?;
    export.stop()?;
    Ok(said.lines().last().unwrap_or_default().to_owned())
}

/// Runs the conformance suite by NVMe commands on an export behind nvmet-loop: its appends reach the kernel's block layer as
/// appends. Returns the suite's last line.
fn behind_nvmet() -> Result<String> {
    let url =
        "emu:/tmp/nvmet?zones=64&zone-size=4MiB&zone-capacity=3MiB&max-open=none&max-active=none&reorder=on";
    let export = Exported::start(url, &[])?;
    let serial = nvmet::make(NVMET_NUMBER, Path::new(&export.path))?;
    devices::name_drive("exported", &serial)?;
    let device = "nvme:/dev/furrow/ng-exported";
    let said = shell::run_successfully(&["furrow", "device", "check", "--force", "-d", device], LIMIT)?;
    refused(3, "is", &["furrow", "export", "--stop", &export.id.to_string()])?;
    nvmet::remove(NVMET_NUMBER)?;
    export.stop()?;
    Ok(said.lines().last().unwrap_or_default().to_owned())
}

/// Runs a command that has to fail with this exit code and these words.
fn refused(code: i32, words: &str, line: &[&str]) -> Result<()> {
    let ended = shell::run(line, LIMIT)?;
    let line = line.join(" ");
    ensure!(ended.code == Some(code), "{line} ended with {:?}, not {code}: {}", ended.code, ended.tail());
    ensure!(ended.error.contains(words), "{line} does not say '{words}': {}", ended.tail());
    Ok(())
}

fn refusals() -> Result<()> {
    let odd = "emu:mem?zones=8&zone-size=12MiB";
    refused(2, "powers of two", &["furrow", "export", "-d", odd])?;
    let large = "emu:mem?zones=8&zone-size=16MiB&block-size=65536";
    refused(2, "blocks of 65536", &["furrow", "export", "-d", large])?;
    refused(2, "is none", &["furrow", "export", "-d", "emu:mem?zones=8", "--http", "127.0.0.1:0"])?;
    refused(2, "from 1 to 1024", &["furrow", "export", "-d", "emu:mem?zones=8", "--depth", "0"])?;
    refused(1, "--list", &["furrow", "export", "--stop", "77"])?;
    refused(1, "--list", &["furrow", "export", "--recover", "77"])?;

    let url = format!("emu:/tmp/refusals?{DRIVE}");
    let export = Exported::start(&url, &[])?;
    let id = export.id.to_string();
    refused(3, "held by another process", &["furrow", "export", "-d", &url])?;
    refused(2, "forgets with its process", &["furrow", "export", "--recover", &id])?;
    let open = fs::File::open(&export.path)?;
    refused(3, "open in process", &["furrow", "export", "--stop", &id])?;
    let listed = list()?;
    let users = listed.pointer("/0/users/0").and_then(Value::as_str).unwrap_or_default();
    ensure!(users.starts_with("open in process"), "the list does not name the user: {listed}");
    ensure!(listed.pointer("/0/device").and_then(Value::as_str) == Some(&url), "no URL: {listed}");
    drop(open);
    export.stop()?;
    ensure!(list()?.as_array().is_some_and(Vec::is_empty), "a stopped export is listed");

    let keeps = format!("emu:/tmp/refusals-kept?{DRIVE}&cache=none");
    let export = Exported::start(&keeps, &[])?;
    let id = export.id.to_string();
    refused(3, "its server is alive", &["furrow", "export", "--recover", &id])?;
    export.kill()?;
    // Another drive with the same zones has other data.
    let other = format!("emu:/tmp/refusals-other?{DRIVE}&cache=none");
    refused(
        2,
        "its device is emu:/tmp/refusals-kept",
        &["furrow", "export", "--recover", &id, "-d", &other],
    )?;
    let listed = list()?;
    ensure!(listed.pointer("/0/state").and_then(Value::as_str) == Some("recoverable"), "{listed}");
    shell::run_successfully(&["furrow", "export", "--stop", &id], LIMIT)?;

    let array = create_array("refusals", DRIVES, DRIVE)?;
    let taken = std::net::TcpListener::bind("127.0.0.1:0")?;
    let address = taken.local_addr()?.to_string();
    refused(1, "listening on", &["furrow", "export", "-d", &array, "--http", &address])?;
    let listed = list()?;
    ensure!(listed.as_array().is_some_and(Vec::is_empty), "a refused export left something: {listed}");
    Ok(())
}

/// The words of blkzone's line for a zone.
fn zone_line(path: &str, zone: usize) -> Result<String> {
    let report = shell::run_successfully(&["blkzone", "report", path], LIMIT)?;
    ensure!(report.lines().count() == 64, "blkzone reports {} zones", report.lines().count());
    Ok(report.lines().nth(zone).unwrap_or_default().to_owned())
}

fn blkzone(url: &str) -> Result<()> {
    let export = Exported::start(url, &[])?;
    let path = export.path.as_str();
    shell::run_successfully(&["blkzone", "reset", path], LIMIT)?;
    let line = zone_line(path, 3)?;
    ensure!(line.contains("cap 0x006000") && line.contains("(em)"), "zone 3: {line}");
    let start = (3 * (16 << 20) / 512).to_string();
    shell::run_successfully(&["blkzone", "open", "-o", &start, "-c", "1", path], LIMIT)?;
    ensure!(zone_line(path, 3)?.contains("(oe)"), "zone 3 is not open: {}", zone_line(path, 3)?);
    shell::run_successfully(&["blkzone", "finish", "-o", &start, "-c", "1", path], LIMIT)?;
    ensure!(zone_line(path, 3)?.contains("(fu)"), "zone 3 is not full: {}", zone_line(path, 3)?);
    shell::run_successfully(&["blkzone", "reset", "-o", &start, "-c", "1", path], LIMIT)?;
    ensure!(zone_line(path, 3)?.contains("(em)"), "zone 3 is not empty: {}", zone_line(path, 3)?);
    let attribute = |name: &str| {
        let disk = Path::new("/sys/block").join(path.trim_start_matches("/dev/"));
        text::get(disk.join("queue").join(name)).unwrap_or_default()
    };
    let limits =
        ["zoned", "max_open_zones", "max_active_zones", "chunk_sectors", "write_cache"].map(attribute);
    ensure!(limits == ["host-managed", "8", "12", "32768", "write back"], "the queue's limits: {limits:?}");
    export.stop()
}

fn fio(url: &str) -> Result<()> {
    let export = Exported::start(url, &[])?;
    shell::run_successfully(&["blkzone", "reset", &export.path], LIMIT)?;
    for (pattern, depth, block) in [("write", "8", "64k"), ("randwrite", "4", "16k")] {
        shell::run_successfully(
            &[
                "fio",
                "--name=verify",
                "--thread",
                "--direct=1",
                "--zonemode=zbd",
                "--max_open_zones=4",
                "--ioengine=io_uring",
                "--verify=crc32c",
                "--io_size=24m",
                "--size=128m",
                &format!("--rw={pattern}"),
                &format!("--iodepth={depth}"),
                &format!("--bs={block}"),
                &format!("--filename={}", export.path),
            ],
            LIMIT,
        )?;
        shell::run_successfully(&["blkzone", "reset", &export.path], LIMIT)?;
    }
    export.stop()
}

fn btrfs(url: &str) -> Result<String> {
    let start = clock::now();
    let export = Exported::start(url, &[])?;
    shell::run_successfully(&["mkfs.btrfs", "-q", "-f", "-m", "single", &export.path], LIMIT)?;
    let mounted = Mounted::btrfs(&export.path)?;
    write_files(&mounted.at, 0..FILES / 2)?;
    refused(3, "mounted at", &["furrow", "export", "--stop", &export.id.to_string()])?;
    mounted.unmount()?;
    let mounted = Mounted::btrfs(&export.path)?;
    compare_files(&mounted.at, 0..FILES / 2)?;
    write_files(&mounted.at, FILES / 2..FILES)?;
    // A signal waits for the file system to be unmounted.
    export.terminate()?;
    clock::sleep(Duration::from_secs(1));
    compare_files(&mounted.at, 0..FILES)?;
    mounted.unmount()?;
    export.wait()?;

    let http = "127.0.0.1:9131";
    let export = Exported::start(url, &["--queues", "1", "--depth", "16", "--http", http])?;
    let mounted = Mounted::btrfs(&export.path)?;
    compare_files(&mounted.at, 0..FILES)?;
    // An order to the array while its block device is mounted: without the drive the files are the same.
    let pages = format!("http://{http}");
    shell::run_successfully(&["furrow", "array", "fail", "--url", &pages, "1"], LIMIT)?;
    let status = shell::run(&["furrow", "array", "status", "--url", &pages], LIMIT)?;
    ensure!(status.code == Some(1), "an array that lacks a drive is not degraded: {}", status.tail());
    text::put("/proc/sys/vm/drop_caches", 3)?;
    compare_files(&mounted.at, 0..FILES)?;
    write_files(&mounted.at, 0..FILES)?;
    mounted.unmount()?;
    shell::run_successfully(&["btrfs", "check", &export.path], LIMIT)?;
    shell::run_successfully(&["furrow", "export", "--stop", &export.id.to_string()], LIMIT)?;
    export.wait()?;
    Ok(format!("{FILES} files, two mounts and two servers in {:.1} s", start.elapsed().as_secs_f64()))
}
