//! The command `furrow array create`.

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;

use ::array::{CreateOptions, Placement};
use anyhow::{Context as _, Result};
use clap::{Args, ValueEnum};
use serde_json::json;
use units::Bytes;
use zoned::emu::Emu;
use zoned::{DeviceUrl, Geometry, ZonedDevice};

use super::handle::absolute;
use super::zone_size::{self, ZoneSize};
use crate::args::{DeviceArg, ForceArg};
use crate::context::Context;
use crate::exit::Failure;
use crate::{consent, output, size};

/// Where the drives hold the parts of logical zones.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
enum PlacementArg {
    /// A logical zone has the physical zone of the same number of each drive, for good
    Fixed,
    /// A logical zone takes free physical zones at its first write, and gives them up at its reset: one that wore out costs no
    /// logical zone
    Stored,
}

impl From<PlacementArg> for Placement {
    fn from(arg: PlacementArg) -> Placement {
        match arg {
            PlacementArg::Fixed => Placement::Fixed,
            PlacementArg::Stored => Placement::Stored,
        }
    }
}

/// `furrow array create`
#[derive(Debug, Args)]
pub struct CreateArgs {
    /// The drives: nvme:, blk: or emu: URLs. Drive files that do not exist are made
    #[arg(required = true, num_args = 3.., value_name = "URL")]
    drives: Vec<String>,
    /// Bytes in a stripe unit.
    #[arg(long, default_value = "64KiB", value_name = "SIZE", value_parser = size::parse)]
    stripe_unit: Bytes,
    /// Drives that may fail at a time without loss of data: 1, or 2 of four drives or more.
    #[arg(long, default_value = "1", value_name = "1|2", value_parser = clap::value_parser!(u32).range(1..=2))]
    parities: u32,
    /// After a power cut each write is there as a whole or not at all, whatever its length.
    #[arg(long)]
    atomic_writes: bool,
    /// Where the drives hold the parts of logical zones. Stored maps keep one zone in a hundred of each drive in reserve, at least one,
    /// and need a drive that may have one zone more active.
    #[arg(long, default_value = "stored", value_name = "WHICH")]
    placement: PlacementArg,
    /// Size of a logical zone: 1/S for S logical zones that share a physical zone of each drive (not with the fixed placement), M for M
    /// physical zones of each drive, or the bytes that it holds [default: a physical zone of each drive].
    #[arg(long, value_name = "1/S|M|SIZE")]
    zone_size: Option<ZoneSize>,
    /// With M physical zones of each drive in a logical zone: stripes go to the M zones of a drive in turn, so that one logical zone
    /// has the bandwidth of all of them, and counts as M open zones of each drive.
    #[arg(long)]
    interleave: bool,
    /// Units of a stripe, parities included: each logical zone takes as many of the drives. Fewer than drives: not
    /// with the fixed placement [default: one on each drive].
    #[arg(long, value_name = "N")]
    width: Option<u32>,
    /// The number of drives whose capacity stays free for the parts of drives that fail.
    #[arg(long, default_value = "0", value_name = "N")]
    spares: u32,
    /// A name for people.
    #[arg(long, default_value = "")]
    label: String,
    /// Write a file that lists the drives: --device array:FILE names the array then.
    #[arg(long, value_name = "FILE")]
    save: Option<PathBuf>,
    #[command(flatten)]
    force: ForceArg,
}

/// Makes an array of the drives in the arguments.
pub fn run(context: &Context, args: CreateArgs) -> Result<ExitCode> {
    let CreateArgs {
        drives,
        stripe_unit,
        parities,
        atomic_writes,
        placement,
        zone_size,
        interleave,
        width,
        spares,
        label,
        save,
        force,
    } = args;
    if let Some(file) = save.as_ref().filter(|file| file.exists()) {
        return Err(Failure::refused(format!("{} is there already: name another file", file.display())));
    }
    for (number, url) in drives.iter().enumerate() {
        if url.contains(',') || url.starts_with("array:") {
            return Err(Failure::usage(format!(
                "{url}: each drive is an argument of its own (nvme:, blk: or emu:), and not an array"
            )));
        }
        if drives.iter().take(number).any(|other| without_parameters(other) == without_parameters(url)) {
            return Err(Failure::usage(format!("{url} is named twice")));
        }
    }
    if save.is_some() {
        for url in &drives {
            ::array::url::listable(&absolute(url)?).map_err(|error| Failure::usage(error.to_string()))?;
        }
    }
    let placement = placement.into();
    let mut options = CreateOptions {
        stripe_unit,
        parities,
        placement,
        width,
        spare_drives: spares,
        label,
        atomic_writes,
        interleaved: interleave,
        ..CreateOptions::default()
    };
    let mut devices: Vec<Arc<dyn ZonedDevice>> = Vec::new();
    let mut go_on = true;
    for url in &drives {
        let parsed: DeviceUrl = url.parse()?;
        if parsed.exists() {
            let device = context.open(&DeviceArg { device: url.clone() })?;
            go_on &= consent::given(context, &device, force, "make it a member of an array")?;
            devices.push(device);
        } else {
            // The drive file is made once the array is planned: a refusal leaves none behind.
            let emulated = Emu::memory(parsed.options()?, Arc::clone(context.driver()));
            if force.dry_run {
                output::line(format!("would make the drive file {}", emulated.geometry().name))?;
                go_on = false;
            }
            devices.push(emulated);
        }
    }
    if let Some(size) = zone_size {
        zone_size::set_size(&mut options, &devices, size)?;
    }
    let planned = ::array::plan(&devices, &options)?;
    let (capacity, unused) = (array_capacity(&planned), unused_bytes_of_drives(&planned, &devices));
    if !context.json {
        print_unused_bytes(&planned, &unused)?;
    }
    if !go_on {
        if !context.json {
            output::line(format!(
                "the array would hold {} in {} zones",
                size::show(capacity),
                planned.shown_zones()
            ))?;
        }
        return Ok(ExitCode::SUCCESS);
    }
    for (device, url) in devices.iter_mut().zip(&drives) {
        if !url.parse::<DeviceUrl>()?.exists() {
            *device = context.open_or_create(&DeviceArg { device: url.clone() })?;
        }
    }
    let superblock = context.wait(::array::create(&devices, &options))?;
    let url = match &save {
        Some(file) => {
            write_member_list(file, &superblock, &drives)
                .with_context(|| format!("writing {}", file.display()))?;
            format!("array:{}", file.display())
        }
        None => format!(
            "array:{}",
            drives.iter().map(|url| without_parameters(url)).collect::<Vec<_>>().join(",")
        ),
    };
    if context.json {
        output::json(&json!({
            "array": superblock.uuid.to_string(), "url": url, "capacity": capacity.0, "zones": superblock.shown_zones(),
            "unused": unused.iter().map(|(drive, bytes)| json!({ "drive": &*drive.name, "bytes": bytes.0 })).collect::<Vec<_>>(),
        }))?;
        return Ok(ExitCode::SUCCESS);
    }
    output::line(format!("array {} of {} drives, {}", superblock.uuid, devices.len(), size::show(capacity)))?;
    output::line(format!("use it as --device '{url}'"))?;
    Ok(ExitCode::SUCCESS)
}

/// A drive's URL without its parameters, which an existing drive file does not need.
fn without_parameters(url: &str) -> &str {
    url.split('?').next().unwrap_or_default()
}

/// The drives that are larger than the array needs, and the bytes of each that stay unused.
fn unused_bytes_of_drives(
    superblock: &::array::Superblock,
    devices: &[Arc<dyn ZonedDevice>],
) -> Vec<(Geometry, Bytes)> {
    let zone = superblock.zone_capacity.bytes(superblock.block_size).0;
    let used = zone * u64::from(superblock.part_zones + superblock.metadata_zones);
    let geometries = devices.iter().map(|device| device.geometry());
    let unused =
        geometries.map(|geometry| (geometry.clone(), geometry.capacity_bytes().saturating_sub(used)));
    unused.filter(|(_, bytes)| *bytes > 0).map(|(geometry, bytes)| (geometry, Bytes(bytes))).collect()
}

/// Prints how much of each drive stays unused.
fn print_unused_bytes(planned: &::array::Superblock, unused: &[(Geometry, Bytes)]) -> Result<()> {
    for (drive, bytes) in unused {
        let conventional = match drive.conventional {
            0 => String::new(),
            count => format!("; its {count} conventional zones stay as they are"),
        };
        output::line(format!(
            "{}: {} of {} stay unused: the array takes {} zones of {} of each drive, as of the smallest{conventional}",
            drive.name,
            size::show(*bytes),
            size::show(Bytes(drive.capacity_bytes())),
            planned.part_zones + planned.metadata_zones,
            size::show(planned.zone_capacity.bytes(planned.block_size)),
        ))?;
    }
    Ok(())
}

fn array_capacity(superblock: &::array::Superblock) -> Bytes {
    Bytes(zone_size::zone_bytes(superblock).0 * u64::from(superblock.shown_zones()))
}

/// Writes the file that lists an array's members, with absolute paths.
fn write_member_list(file: &Path, superblock: &::array::Superblock, drives: &[String]) -> Result<()> {
    let mut text = format!("# Array {} {}\n", superblock.uuid, superblock.label.replace('\n', " "));
    for url in drives {
        text.push_str(&absolute(url)?);
        text.push('\n');
    }
    Ok(std::fs::write(file, text)?)
}
