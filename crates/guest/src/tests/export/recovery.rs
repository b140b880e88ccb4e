//! Servers of exports that are killed and replaced: their devices keep what was acknowledged.

use std::path::Path;

use anyhow::{Context, Result, ensure};
use serde_json::Value;
use zoned::ZoneId;

use super::super::device;
use super::super::exported::{Exported, LIMIT, create_array};
use super::load::{
    Load, Survived, kill_and_take_over, kill_under_load, kills, kills_of_one_drive, limit, spread,
};
use super::written_zone::WrittenZone;
use crate::checks::Checks;
use crate::{clock, shell, text};

/// A drive whose writes are on the medium when they are acknowledged, and are in flight for long enough that a kill finds some.
pub(super) const KEEPS: &str = "zones=64&zone-size=4MiB&cache=none&max-open=12&max-active=16&delay=2ms";
/// Number of drives of an array.
const DRIVES: usize = 5;
/// Number of threads that write while the server is killed.
const WRITERS: u32 = 6;
/// Zones of each writer.
const ZONES_OF_A_WRITER: u32 = 9;
/// Writes that a writer has in flight, and the blocks of each.
const BATCHES: &[&[u64]] = &[&[4], &[1, 8, 2], &[16, 1], &[3, 3, 3, 3]];
/// After so many failures of a writer it finishes the zone; after the others it goes on at the pointer.
const FAILURES_PER_FINISH: u64 = 3;

pub(super) fn run(checks: &mut Checks) -> Result<()> {
    checks.check("a server killed at the begin of its takeover is replaced", LIMIT, |_| {
        killed_at_the_begin()
    })?;
    checks.check("a killed server of an emulator is replaced under load", limit()?, |control| {
        control.note(ordered_writes(&format!("emu:/tmp/keeps?{KEEPS}"), kills_of_one_drive()?)?)
    })?;
    checks.check("a killed server of an array is replaced under load", limit()?, |control| {
        control.note(ordered_writes(&create_array("keeps", DRIVES, KEEPS)?, kills()?)?)
    })?;
    checks.check("fio verifies what it wrote while its server was killed and replaced", limit()?, |control| {
        control.note(fio(&create_array("fio", DRIVES, KEEPS)?)?)
    })
}

/// A process that tells the kernel that it takes over, and ends before it asks for requests.
fn killed_at_the_begin() -> Result<()> {
    let export = Exported::start(&format!("emu:/tmp/begun?{KEEPS}"), &[])?;
    let id = export.kill()?;
    let control = sys::ublk::Control::open()?;
    clock::wait_for("begin of a takeover", || control.start_recovery(sys::ublk::UblkId(id)).ok())?;
    let export = Exported::recover(id)?;
    shell::run_successfully(&["blkzone", "reset", &export.path], LIMIT)?;
    export.stop()
}

/// The counts of one writer of [`ordered_writes`].
struct Written {
    /// Writes that failed.
    failures: u64,
    /// Blocks in the zones at the end, whose writes were acknowledged.
    blocks: u64,
}

/// Writes zones in order while the server is killed; compares each zone after each failure, and at the end.
fn ordered_writes(url: &str, kills: usize) -> Result<String> {
    let export = Exported::start(url, &["--queues", "2"])?;
    let device = device::open(&format!("blk:{}", export.path))?;
    let write = |writer, load: &Load| write_until_over(&*device, writer, load);
    let Survived { export, results, longest, acknowledged } = kill_under_load(export, kills, WRITERS, write)?;
    drop(device);
    export.stop()?;
    let failures: u64 = results.iter().map(|written| written.failures).sum();
    let blocks: u64 = results.iter().map(|written| written.blocks).sum();
    ensure!(failures > 0, "no write was in flight at any kill");
    Ok(format!(
        "{kills} kills: {acknowledged} writes acknowledged, {failures} failed in flight, {blocks} blocks compared at the end; taken over in \
         {:.1} s at most",
        longest.as_secs_f64()
    ))
}

fn write_until_over(device: &dyn zoned::ZonedDevice, writer: u32, load: &Load) -> Result<Written> {
    let first = writer * ZONES_OF_A_WRITER;
    let mut zones: Vec<WrittenZone<'_>> =
        (first..first + ZONES_OF_A_WRITER).map(|zone| WrittenZone::new(device, ZoneId(zone))).collect();
    let (mut batches, mut turns) = (BATCHES.iter().cycle(), (0..zones.len()).cycle());
    let mut failures = 0;
    while !load.is_over() {
        let zone = turns.next().and_then(|turn| zones.get_mut(turn)).context("a writer has zones")?;
        zone.compare()?;
        zone.reset()?;
        while !load.is_over() && !zone.is_full() {
            let batch = batches.next().context("batches are repeated")?;
            let failed = zone.write(batch.iter().copied(), load)?;
            failures += failed;
            if failed > 0 && failures.is_multiple_of(FAILURES_PER_FINISH) {
                zone.finish()?;
            }
        }
    }
    let mut blocks = 0;
    for zone in &zones {
        zone.compare()?;
        blocks += zone.acknowledged();
    }
    Ok(Written { failures, blocks })
}

/// Lets fio write and verify zones while the server is killed. What fio had in flight fails, and fio goes on; it verifies all
/// that was acknowledged.
fn fio(url: &str) -> Result<String> {
    /// Writes of fio that a kill comes behind: below this number.
    const WRITES_BEFORE_A_KILL: u64 = 80;
    let mut export = Exported::start(url, &["--queues", "2"])?;
    let mut errors = 0;
    for kill in 0..kills()? {
        let before = writes_completed(&export.path)?;
        let due = before + 10 + spread(kill, WRITES_BEFORE_A_KILL);
        let path = export.path.clone();
        let (next, failed) = std::thread::scope(|scope| {
            let fio = scope.spawn(|| run_fio(&path));
            clock::wait_for("progress of fio", || {
                (fio.is_finished() || writes_completed(&path).is_ok_and(|count| count >= due)).then_some(())
            })?;
            let next = kill_and_take_over(kill, export)?;
            let failed = fio.join().ok().context("the thread of fio panicked")??;
            Ok::<_, anyhow::Error>((next, failed))
        })?;
        export = next;
        errors += failed;
    }
    export.stop()?;
    ensure!(errors > 0, "fio had no write in flight at any kill");
    Ok(format!("{} kills: {errors} requests of fio failed, and all others are verified", kills()?))
}

/// Runs fio to its end; returns the number of its requests that failed.
fn run_fio(path: &str) -> Result<u64> {
    let filename = format!("--filename={path}");
    let line = [
        "fio",
        "--name=killed",
        "--thread",
        "--direct=1",
        "--zonemode=zbd",
        "--max_open_zones=4",
        "--ioengine=io_uring",
        "--rw=randwrite",
        "--bs=32k",
        "--iodepth=4",
        "--size=64m",
        "--io_size=4m",
        "--verify=crc32c",
        // Failed requests do not end the run; blocks with other content do.
        "--continue_on_error=io",
        "--output-format=json",
        &filename,
    ];
    let said = shell::run_successfully(&line, LIMIT)?;
    let report = said.find('{').and_then(|at| said.get(at..)).context("fio printed no JSON")?;
    let report: Value = serde_json::from_str(report).with_context(|| format!("fio: {said}"))?;
    report.pointer("/jobs/0/total_err").and_then(Value::as_u64).with_context(|| format!("fio: {said}"))
}

/// Number of writes that the block device has completed.
fn writes_completed(path: &str) -> Result<u64> {
    const WRITES: usize = 4;
    let name = path.trim_start_matches("/dev/");
    let stat = text::get(Path::new("/sys/block").join(name).join("stat")).unwrap_or_default();
    let count = stat.split_whitespace().nth(WRITES).with_context(|| format!("no statistics: {stat}"))?;
    Ok(count.parse()?)
}
