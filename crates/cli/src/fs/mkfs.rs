//! The command `furrow fs mkfs`.

use std::process::ExitCode;

use ::fs::{ErrorKind, FormatOptions, Fs};
use anyhow::Result;
use clap::Args;
use serde_json::json;
use zoned::DeviceUrl;

use crate::args::{DeviceArg, ForceArg};
use crate::context::Context;
use crate::exit::{self, Failure};
use crate::{consent, output, size};

/// `furrow fs mkfs`
#[derive(Debug, Args)]
pub struct MkfsArgs {
    #[command(flatten)]
    device: DeviceArg,
    /// A name for people.
    #[arg(long, default_value = "")]
    label: String,
    /// Zones for the metadata log, at least 2 [default: enough for a drive full of files]
    #[arg(long, value_name = "N")]
    metadata_zones: Option<u32>,
    #[command(flatten)]
    force: ForceArg,
}

/// Makes a file system on a drive.
pub fn run(context: &Context, args: &MkfsArgs) -> Result<ExitCode> {
    let options = FormatOptions {
        force: args.force.force,
        label: args.label.clone(),
        metadata_zones: args.metadata_zones,
        ..FormatOptions::default()
    };
    let url: DeviceUrl = args.device.device.parse()?;
    if !url.exists() {
        // The options are checked before the drive file is made.
        let geometry = url.options()?.geometry()?;
        Fs::check_format(&geometry, &options)?;
        if args.force.dry_run {
            let (name, zones) = (&geometry.name, geometry.zones);
            output::line(format!(
                "would make the drive file {name} of {zones} zones and a file system on it"
            ))?;
            return Ok(ExitCode::SUCCESS);
        }
    }
    let device = context.open_or_create(&args.device)?;
    if !consent::given(context, &device, args.force, "make a file system on it")? {
        return Ok(ExitCode::SUCCESS);
    }
    let made = context.wait(Fs::format(&device, &options)).map_err(|error| match error.kind() {
        ErrorKind::Exists => {
            Failure::refused(format!("{} (--force)", exit::message(&context.on(&device, error))))
        }
        _ => context.on(&device, error),
    })?;
    let size = made.zone_capacity.bytes(made.block_size).0 * u64::from(made.zones);
    if context.json {
        output::json(&json!({
            "device": &*device.geometry().name,
            "uuid": made.uuid.to_string(),
            "label": made.label,
            "version": made.version,
            "zones": made.zones,
            "metadata_zones": made.metadata_zones,
            "bytes": size,
        }))?;
    } else {
        output::line(format!(
            "{}: file system {} (version {}), {} zones, {}",
            device.geometry().name,
            made.uuid,
            made.version,
            made.zones,
            size::show(units::Bytes(size)),
        ))?;
    }
    Ok(ExitCode::SUCCESS)
}
