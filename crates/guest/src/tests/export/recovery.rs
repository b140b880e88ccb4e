//! Servers of exports that are killed: what their devices keep goes on, what they forget is a power cut.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use zoned::{Action, Buf, BufMut, Durability, Lba, ZoneId, ZonedDevice};

use super::super::device;
use super::super::exported::{Exported, LIMIT, Mounted, compare_files, create_array, list, write_files};
use crate::checks::Checks;
use crate::{clock, shell};

/// Number of times that a server is killed.
const KILLS: usize = 10;
/// Number of threads that write while the server is killed, each to zones of its own.
const WRITERS: u32 = 3;
/// Zones of each writer.
const ZONES_OF_A_WRITER: u32 = 16;
/// Least number of writes between two kills.
const WRITES_BETWEEN_KILLS: u64 = 60;
/// Bytes in each write.
const WRITE: usize = 16 << 10;
/// Number of files written in each life of a server whose end is a power cut.
const FILES_IN_A_LIFE: usize = 6;

/// A drive whose writes are on the medium when they are acknowledged, and are in flight for long enough that a kill finds some.
const KEEPS: &str = "zones=64&zone-size=4MiB&cache=none&max-open=12&max-active=16&delay=2ms";
/// Number of drives of an array.
const DRIVES: usize = 5;
/// A drive whose cache is lost with its process.
const FORGETS: &str =
    "emu:/tmp/forgets?zones=64&zone-size=16MiB&zone-capacity=12MiB&max-open=8&max-active=12";

pub(super) fn run(checks: &mut Checks) -> Result<()> {
    checks.check("a killed server of an emulator is replaced ten times under load", LIMIT, |control| {
        control.note(replaced_under_load(&format!("emu:/tmp/keeps?{KEEPS}"))?)
    })?;
    checks.check("a killed server of an array is replaced ten times under load", LIMIT, |control| {
        control.note(replaced_under_load(&create_array("keeps", DRIVES, KEEPS)?)?)
    })?;
    checks.check("a kill of a server with a volatile cache is a power cut to btrfs", LIMIT, |control| {
        control.note(power_cuts()?)
    })
}

/// Writes that were acknowledged: their addresses, and the number that each repeats.
type Acknowledged = BTreeMap<Lba, u64>;

fn data(number: u64) -> Buf {
    let bytes: Vec<u8> = number.to_le_bytes().into_iter().cycle().take(WRITE).collect();
    Buf::copy_from(&bytes)
}

fn replaced_under_load(url: &str) -> Result<String> {
    let mut export = Exported::start(url, &["--queues", "2"])?;
    let device = device::open(&format!("blk:{}", export.path))?;
    let (stop, count) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicU64::new(0)));
    let mut writers = Vec::new();
    for writer in 0..WRITERS {
        let (device, stop, count) = (Arc::clone(&device), Arc::clone(&stop), Arc::clone(&count));
        let work = move || write_until(&device, writer, &stop, &count);
        writers.push(std::thread::Builder::new().name("writer".into()).spawn(work)?);
    }
    let mut longest = Duration::ZERO;
    for _ in 0..KILLS {
        let before = count.load(Ordering::Acquire);
        clock::wait_for("progress of the writers", || {
            (count.load(Ordering::Acquire) >= before + WRITES_BETWEEN_KILLS).then_some(())
        })?;
        let start = clock::now();
        export = Exported::recover(export.kill()?)?;
        longest = longest.max(start.elapsed());
    }
    stop.store(true, Ordering::Release);
    let (mut written, mut failures) = (0, 0);
    for writer in writers {
        let (acknowledged, failed) = writer.join().ok().context("a writer panicked")??;
        failures += failed;
        written += acknowledged.len();
        for (at, number) in acknowledged {
            let found = device.read(at, BufMut::zeroed(WRITE)).wait()?;
            ensure!(*found == *data(number), "the acknowledged write {number} at block {at} is lost");
        }
    }
    drop(device);
    export.stop()?;
    ensure!(failures > 0, "no write was in flight at any kill");
    Ok(format!(
        "{KILLS} kills: {written} acknowledged writes read back, {failures} failed in flight; taken over in {:.1} s at \
         most",
        longest.as_secs_f64()
    ))
}

/// Writes to the zones of `writer`, one after the other, until `stop`. After a failure the zone is finished, because the
/// outcome of the failed write is unknown. Returns the acknowledged writes and the number of failures.
fn write_until(
    device: &Arc<dyn ZonedDevice>,
    writer: u32,
    stop: &AtomicBool,
    count: &AtomicU64,
) -> Result<(Acknowledged, u64)> {
    let (mut acknowledged, mut failures, mut number) = (Acknowledged::new(), 0, 0);
    let blocks = WRITE as u64 / u64::from(device.geometry().block_size);
    loop {
        for index in 0..ZONES_OF_A_WRITER {
            let zone = ZoneId(writer * ZONES_OF_A_WRITER + index);
            let start = device.geometry().start(zone);
            act(device, zone, Action::Reset)?;
            acknowledged.retain(|at, _| device.geometry().zone_of(*at) != Some(zone));
            for write in 0..device.geometry().zone_capacity.0 / blocks {
                if stop.load(Ordering::Acquire) {
                    return Ok((acknowledged, failures));
                }
                number += 1;
                let (at, name) = (Lba(start.0 + write * blocks), number << 8 | u64::from(writer));
                if device.write(at, data(name), Durability::Cached).wait().is_err() {
                    failures += 1;
                    act(device, zone, Action::Finish)?;
                    break;
                }
                acknowledged.insert(at, name);
                count.fetch_add(1, Ordering::AcqRel);
            }
        }
    }
}

/// Gives a zone a command. One that was in flight at a kill has failed, and is given again.
fn act(device: &Arc<dyn ZonedDevice>, zone: ZoneId, action: Action) -> Result<()> {
    const ATTEMPTS: u32 = 5;
    let mut attempts = 0;
    loop {
        attempts += 1;
        match device.zone(zone, action).wait() {
            Err(error) if attempts == ATTEMPTS => {
                return Err(error).context("a zone command fails again and again");
            }
            Err(_) => {}
            Ok(()) => return Ok(()),
        }
    }
}

fn power_cuts() -> Result<String> {
    let export = Exported::start(FORGETS, &[])?;
    shell::run_successfully(&["mkfs.btrfs", "-q", "-f", "-m", "single", &export.path], LIMIT)?;
    export.stop()?;
    for life in 0..KILLS {
        let export = Exported::start(FORGETS, &[])?;
        let mounted = Mounted::btrfs(&export.path)?;
        compare_files(&mounted.at, 0..life * FILES_IN_A_LIFE)
            .with_context(|| format!("after {life} kills"))?;
        write_files(&mounted.at, life * FILES_IN_A_LIFE..(life + 1) * FILES_IN_A_LIFE)?;
        let path = export.path.clone();
        export.kill()?;
        drop(mounted);
        clock::wait_for("end of the block device", || (!std::path::Path::new(&path).exists()).then_some(()))?;
        // The number of the block device is free when the file system has let go of it.
        clock::wait_for("end of the file system", || stop_dead_exports().ok())?;
    }
    let export = Exported::start(FORGETS, &[])?;
    shell::run_successfully(&["btrfs", "check", &export.path], LIMIT)?;
    let mounted = Mounted::btrfs(&export.path)?;
    compare_files(&mounted.at, 0..KILLS * FILES_IN_A_LIFE)?;
    mounted.unmount()?;
    export.stop()?;
    Ok(format!("{KILLS} kills: {} synced files compared", KILLS * FILES_IN_A_LIFE))
}

/// Frees the numbers of exports whose servers were killed.
fn stop_dead_exports() -> Result<()> {
    let listed = list()?;
    for export in listed.as_array().into_iter().flatten() {
        let id = export.get("id").and_then(serde_json::Value::as_u64).context("an export has a number")?;
        shell::run_successfully(&["furrow", "export", "--stop", &id.to_string()], LIMIT)?;
    }
    Ok(())
}
