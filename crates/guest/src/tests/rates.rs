//! Rates of the device backends: 4 KiB appends compared with a bare passthrough loop, block writes with fio,
//! alternating in one run. The rates are reported, not checked, because the machine is emulated and shared.

use std::collections::VecDeque;
use std::fs::{File, canonicalize};
use std::future::Future;
use std::path::Path;
use std::pin::Pin;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use anyhow::{Context, Result};
use serde_json::Value;
use units::block_on;
use zoned::{Action, Blocks, Buf, Durability, Io, ZoneId, ZonedDevice};

use super::device::open;
use crate::checks::Checks;
use crate::{clock, shell};

const RATES_LIMIT: Duration = Duration::from_secs(900);
/// Pairs of runs.
const RUNS_PER_RATE: usize = 5;
/// Number of device operations that a measurement keeps in flight.
const OPERATIONS_IN_FLIGHT: u32 = 8;
/// Number of zones in a run, each of which is filled.
const ZONES_PER_RUN: u32 = 4;

pub fn run(checks: &mut Checks) -> Result<()> {
    checks.check("4 KiB appends beside a bare passthrough loop", RATES_LIMIT, |control| {
        let url = "nvme:/dev/furrow/ng-zns0";
        let (mut ours, mut bare) = (Vec::new(), Vec::new());
        for _ in 0..RUNS_PER_RATE {
            ours.push(appends(url)?);
            bare.push(bare_loop(url)?);
        }
        let (ours, bare) = (median(ours), median(bare));
        control.measured("nvme: appends of 4 KiB, 8 in flight", ours, "1/s")?;
        control.measured("a bare passthrough loop", bare, "1/s")?;
        control.measured("nvme: of the bare loop (0.9 is wanted)", ours / bare, "times")
    })?;
    for kib in [4, 64] {
        checks.check(&format!("{kib} KiB block writes beside fio's"), RATES_LIMIT, |control| {
            let url = "blk:/dev/furrow/zns0";
            let (mut ours, mut theirs) = (Vec::new(), Vec::new());
            for _ in 0..RUNS_PER_RATE {
                ours.push(writes(url, kib)?);
                theirs.push(fio(url, kib)?);
            }
            let (ours, theirs) = (median(ours), median(theirs));
            control.measured(&format!("blk: writes of {kib} KiB, 8 in flight"), ours, "1/s")?;
            control.measured(&format!("fio's of {kib} KiB, io_uring, 8 in flight"), theirs, "1/s")?;
            control.measured(&format!("blk: of fio, {kib} KiB"), ours / theirs, "times")
        })?;
    }
    Ok(())
}

fn median(mut figures: Vec<f64>) -> f64 {
    figures.sort_by(f64::total_cmp);
    figures.get(figures.len() / 2).copied().unwrap_or_default()
}

fn rate(count: u64, time: Duration) -> f64 {
    f64::from(u32::try_from(count).unwrap_or(u32::MAX)) / time.as_secs_f64()
}

/// Opens the device and resets the zones of a run.
fn open_with_empty_zones(url: &str) -> Result<Arc<dyn ZonedDevice>> {
    let device = open(url)?;
    for zone in 0..ZONES_PER_RUN {
        device.zone(ZoneId(zone), Action::Reset).wait()?;
    }
    Ok(device)
}

fn appends(url: &str) -> Result<f64> {
    let device = open_with_empty_zones(url)?;
    let data = Buf::zeroed(4096);
    let each = device.geometry().zone_capacity.0;
    let start = clock::now();
    keep_busy(&device, (0..ZONES_PER_RUN).flat_map(|zone| (0..each).map(move |_| ZoneId(zone))), |zone| {
        device.append(zone, data.clone(), Durability::Cached)
    })?;
    Ok(rate(each * u64::from(ZONES_PER_RUN), start.elapsed()))
}

fn writes(url: &str, kib: u64) -> Result<f64> {
    let device = open_with_empty_zones(url)?;
    let geometry = device.geometry().clone();
    let data = Buf::zeroed(usize::try_from(kib << 10)?);
    let blocks = (kib << 10) / u64::from(geometry.block_size);
    let each = geometry.zone_capacity.0 / blocks;
    let start = clock::now();
    keep_busy(
        &device,
        (0..ZONES_PER_RUN).flat_map(|zone| (0..each).map(move |write| (ZoneId(zone), write))),
        |(zone, write)| {
            let at = zoned::Lba(geometry.start(zone).0 + write * blocks);
            device.write(at, data.clone(), Durability::Cached)
        },
    )?;
    Ok(rate(each * u64::from(ZONES_PER_RUN), start.elapsed()))
}

/// Keeps `depth` device operations in flight from one task, waiting for the oldest one each time.
fn keep_busy<W, T: zoned::FromDone>(
    device: &Arc<dyn ZonedDevice>,
    work: impl Iterator<Item = W>,
    start: impl Fn(W) -> Io<T>,
) -> Result<()> {
    let mut work = work.map(start);
    let mut flying: VecDeque<Io<T>> = work.by_ref().take(OPERATIONS_IN_FLIGHT as usize).collect();
    let busy = std::future::poll_fn(|context| {
        while let Some(oldest) = flying.front_mut() {
            match Pin::new(oldest).poll(context) {
                Poll::Pending => return Poll::Pending,
                Poll::Ready(Err(error)) => return Poll::Ready(Err(error)),
                Poll::Ready(Ok(_)) => {
                    flying.pop_front();
                    flying.extend(work.next());
                }
            }
        }
        Poll::Ready(Ok(()))
    });
    Ok(block_on(&**device.driver(), busy)?)
}

fn bare_loop(url: &str) -> Result<f64> {
    let device = open_with_empty_zones(url)?;
    let geometry = device.geometry().clone();
    drop(device);
    let path = url.trim_start_matches("nvme:");
    let file = File::options().read(true).write(true).open(path)?;
    let zones: Vec<_> = (0..ZONES_PER_RUN).map(|zone| geometry.start(ZoneId(zone))).collect();
    let each = u32::try_from(geometry.zone_capacity.0)?;
    let nsid = sys::nvme::namespace_of(&file)?;
    let start = clock::now();
    sys::bare_appends(&file, nsid, &zones, each, &Buf::zeroed(4096), Blocks(1), OPERATIONS_IN_FLIGHT)?;
    Ok(rate(u64::from(each) * u64::from(ZONES_PER_RUN), start.elapsed()))
}

fn fio(url: &str, kib: u64) -> Result<f64> {
    let device = open_with_empty_zones(url)?;
    let geometry = device.geometry().clone();
    drop(device);
    let path = canonicalize(Path::new(url.trim_start_matches("blk:")))?;
    let bytes = geometry.zone_capacity.bytes(geometry.block_size).0 * u64::from(ZONES_PER_RUN);
    let text = shell::run_successfully(
        &[
            "fio",
            "--name=writes",
            "--thread",
            "--direct=1",
            "--zonemode=zbd",
            "--rw=write",
            "--ioengine=io_uring",
            "--output-format=json",
            &format!("--filename={}", path.display()),
            &format!("--bs={kib}k"),
            &format!("--iodepth={OPERATIONS_IN_FLIGHT}"),
            &format!("--io_size={bytes}"),
        ],
        RATES_LIMIT,
    )?;
    let from = text.find('{').unwrap_or_default();
    let found: Value = serde_json::from_str(text.get(from..).unwrap_or_default())
        .with_context(|| format!("fio printed {text}"))?;
    found.pointer("/jobs/0/write/iops").and_then(Value::as_f64).with_context(|| format!("fio printed {text}"))
}
