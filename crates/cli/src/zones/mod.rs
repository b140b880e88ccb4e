//! The command `furrow zones`, which shows the use of each zone as text or as a picture.

mod map;
mod svg;
mod text;

use std::io::IsTerminal;
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{Context as _, Result};
use clap::Args;
use serde_json::json;
use units::Blocks;

use self::map::Map;
use crate::args::DeviceArg;
use crate::context::Context;
use crate::{describe, output};

/// `furrow zones`
#[derive(Debug, Args)]
pub struct ZonesArgs {
    #[command(flatten)]
    device: DeviceArg,
    /// Draw into this file; - is stdout.
    #[arg(long, value_name = "FILE")]
    svg: Option<PathBuf>,
}

/// Draws the zone map of a drive.
pub fn run(context: &Context, args: &ZonesArgs) -> Result<ExitCode> {
    let device = context.open(&args.device)?;
    let map = Map::read(context, &device)?;
    match &args.svg {
        Some(path) if path.as_os_str() == "-" => output::line(svg::draw(&map))?,
        Some(path) => {
            std::fs::write(path, svg::draw(&map)).with_context(|| format!("writing {}", path.display()))?;
            if !context.json {
                output::line(format!("{}: {} zones drawn", path.display(), map.zones.len()))?;
            }
        }
        None if context.json => {}
        None => output::line(text::draw(&map, wants_colour()))?,
    }
    if context.json {
        let bytes = |blocks: Blocks| blocks.bytes(map.block_size).0;
        let zones = map.zones.iter().map(|cell| {
            json!({
                "zone": cell.zone.0, "use": cell.category.name(), "state": describe::zone_state(cell.state),
                "pointer": bytes(cell.pointer), "capacity": bytes(cell.capacity), "live": cell.live.map(bytes),
            })
        });
        output::json(&zones.collect())?;
    }
    Ok(ExitCode::SUCCESS)
}

/// Prints the zone map of the device's file system.
pub fn print(context: &Context, at: &DeviceArg) -> Result<()> {
    let map = Map::read(context, &context.open(at)?)?;
    output::line(text::draw(&map, wants_colour()))
}

/// Whether stdout is a terminal that may be coloured.
fn wants_colour() -> bool {
    std::io::stdout().is_terminal() && std::env::var_os("NO_COLOR").is_none()
}
