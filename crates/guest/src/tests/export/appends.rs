//! Appends in flight at the kill of a server: each lands once or not at all.

use std::collections::BTreeMap;
use std::path::Path;

use anyhow::{Context, Result, bail, ensure};
use zoned::{Action, Buf, BufMut, Durability, Io, Lba, ZoneId, ZonedDevice};

use super::super::device;
use super::super::exported::{Exported, create_array};
use super::super::pattern;
use super::load::{Load, Survived, kill_under_load, kills, limit, repeat};
use crate::checks::Checks;
use crate::{devices, nvmet};

/// A drive without limits of open zones, which nvmet cannot pass on, whose appends are in flight together.
const DRIVE: &str = "zones=64&zone-size=16MiB&cache=none&max-open=none&max-active=none&reorder=on&delay=2ms";
/// Number of drives of the array.
const DRIVES: usize = 5;
/// Number of the export behind nvmet-loop.
const NVMET_NUMBER: usize = 8;
/// Number of threads that append.
const WRITERS: u32 = 3;
/// Zones of each writer.
const ZONES_OF_A_WRITER: u32 = 16;
/// Blocks of the reads that compare a zone's content.
const BLOCKS_OF_A_READ: usize = 32;
/// Appends to a zone, fewer than its blocks, before its writer goes to the next one.
const APPENDS_OF_A_ZONE: usize = 512;
/// Appends of a writer in flight together.
const APPENDS_IN_FLIGHT: usize = 8;

pub(super) fn run(checks: &mut Checks) -> Result<()> {
    checks.check("appends in flight at a kill land once or not at all", limit()?, |control| {
        control.note(killed(&create_array("appends", DRIVES, DRIVE)?)?)
    })
}

/// Appends by NVMe commands, through nvmet, which the kernel's block layer passes on as appends, while the server is killed.
fn killed(url: &str) -> Result<String> {
    let export = Exported::start(url, &["--queues", "2"])?;
    let serial = nvmet::make(NVMET_NUMBER, Path::new(&export.path))?;
    devices::name_drive("appended", &serial)?;
    let device = device::open("nvme:/dev/furrow/ng-appended")?;
    let append = |writer, load: &Load| append_until_over(&*device, writer, load);
    let Survived { export, results, acknowledged, .. } = kill_under_load(export, kills()?, WRITERS, append)?;
    drop(device);
    nvmet::remove(NVMET_NUMBER)?;
    export.stop()?;
    let failed: u64 = results.iter().map(|counts| counts.failed).sum();
    let landed: u64 = results.iter().map(|counts| counts.failed_and_landed).sum();
    ensure!(failed > 0, "no append was in flight at any kill");
    Ok(format!(
        "{} kills: {acknowledged} appends acknowledged, {failed} failed in flight, of which {landed} had landed",
        kills()?
    ))
}

#[derive(Default)]
struct Counts {
    failed: u64,
    failed_and_landed: u64,
}

/// The appends of a zone since its reset: by their numbers, where those that were acknowledged landed.
type Appended = BTreeMap<u64, Option<Lba>>;

fn append_until_over(device: &dyn ZonedDevice, writer: u32, load: &Load) -> Result<Counts> {
    let first = writer * ZONES_OF_A_WRITER;
    let mut zones: BTreeMap<ZoneId, Appended> = BTreeMap::new();
    let mut counts = Counts::default();
    let mut number = u64::from(writer) << 32;
    let mut next = (first..first + ZONES_OF_A_WRITER).cycle().map(ZoneId);
    while !load.is_over() {
        let zone = next.next().context("zones are repeated")?;
        if let Some(appended) = zones.remove(&zone) {
            counts.failed_and_landed += compare(device, zone, &appended)?;
        }
        repeat(|| device.zone(zone, Action::Reset))?;
        let appended = zones.entry(zone).or_default();
        while !load.is_over() && appended.len() < APPENDS_OF_A_ZONE {
            let moment = load.moment();
            let flying: Vec<(u64, Io<Lba>)> = (0..APPENDS_IN_FLIGHT)
                .map(|_| {
                    number += 1;
                    (
                        number,
                        device.append(zone, Buf::copy_from(&content(device, number)), Durability::Cached),
                    )
                })
                .collect();
            for (number, append) in flying {
                let landed = match append.wait() {
                    Ok(at) => {
                        load.acknowledge();
                        Some(at)
                    }
                    Err(error) => {
                        load.check_failure(moment, error)?;
                        counts.failed += 1;
                        None
                    }
                };
                appended.insert(number, landed);
            }
        }
    }
    for (zone, appended) in &zones {
        counts.failed_and_landed += compare(device, *zone, appended)?;
    }
    Ok(counts)
}

/// Compares a zone with its appends; returns the number of failed ones that landed.
fn compare(device: &dyn ZonedDevice, zone: ZoneId, appended: &Appended) -> Result<u64> {
    let reported = repeat(|| device.report(zone.0..zone.0 + 1))?;
    let pointer = reported.first().context("no zone is reported")?.pointer.0;
    let start = device.geometry().start(zone).0;
    let block = device.geometry().block_size as usize;
    let mut found: BTreeMap<u64, Lba> = BTreeMap::new();
    for from in (0..pointer).step_by(BLOCKS_OF_A_READ) {
        let length = block * BLOCKS_OF_A_READ.min(usize::try_from(pointer - from)?);
        let read = repeat(|| device.read(Lba(start + from), BufMut::zeroed(length)))?;
        for (at, bytes) in (start + from..).map(Lba).zip(read.chunks(block)) {
            let number = bytes.first_chunk().map(|bytes| u64::from_le_bytes(*bytes)).unwrap_or_default();
            ensure!(
                appended.contains_key(&number) && *bytes == *content(device, number),
                "block {at} of zone {zone} below the pointer holds none of the zone's appends"
            );
            if let Some(before) = found.insert(number, at) {
                bail!("append {number} landed twice: at block {before} and at block {at}");
            }
        }
    }
    for (number, landed) in appended {
        let Some(at) = landed else { continue };
        ensure!(
            found.get(number) == Some(at),
            "append {number} was acknowledged at block {at}, and is not there"
        );
    }
    let acknowledged = appended.values().flatten().count();
    Ok((found.len() - acknowledged) as u64)
}

/// The block of an append.
fn content(device: &dyn ZonedDevice, number: u64) -> Vec<u8> {
    pattern::block([number, !number], device.geometry().block_size as usize)
}
