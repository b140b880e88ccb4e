//! `furrow zones`: what each zone is used for, as text or as a picture.

mod svg;
mod text;

use std::io::IsTerminal;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;

use ::fs::{ErrorKind, Fs, Lifetime, MountOptions, ZoneRole};
use anyhow::{Context as _, Result};
use clap::Args;
use serde_json::json;
use units::{Blocks, Bytes, ZoneId};
use zoned::{ZoneState, ZonedDevice};

use crate::args::DeviceArg;
use crate::context::{Context, on};
use crate::device::state;
use crate::{exit, output};

/// `furrow zones`
#[derive(Debug, Args)]
pub struct ZonesArgs {
    #[command(flatten)]
    device: DeviceArg,
    /// Draw into this file; - is stdout.
    #[arg(long, value_name = "FILE")]
    svg: Option<PathBuf>,
}

/// What the map shows of a drive.
#[derive(Debug)]
pub struct Map {
    /// The drive.
    pub device: String,
    /// The file system's label and space, where there is one.
    pub space: Option<Space>,
    /// The zones in order.
    pub zones: Vec<Cell>,
    /// Bytes in a block.
    pub block_size: u32,
}

/// The file system's space.
#[derive(Debug)]
pub struct Space {
    /// Its label.
    pub label: String,
    /// Bytes that files can hold.
    pub capacity: Bytes,
    /// Bytes in live blocks.
    pub used: Bytes,
}

/// One zone.
#[derive(Clone, Copy, Debug)]
pub struct Cell {
    /// Which.
    pub zone: ZoneId,
    /// What it is used for.
    pub paint: Paint,
    /// The device's state of it.
    pub state: ZoneState,
    /// Blocks written.
    pub pointer: Blocks,
    /// Blocks that can be written.
    pub capacity: Blocks,
    /// Blocks written and in use, where a file system says so.
    pub live: Option<Blocks>,
}

impl Cell {
    /// The written share, 0 to 1.
    pub fn filled(&self) -> f64 {
        share(self.pointer, self.capacity)
    }

    /// The live share, 0 to 1; without a file system everything written counts as live.
    pub fn alive(&self) -> f64 {
        share(self.live.unwrap_or(self.pointer), self.capacity)
    }
}

/// What is written and live. The file system counts only files' blocks, its own are never dead; and it counts what
/// a log has reserved, of which after a crash little may be written.
fn live(role: ZoneRole, counted: Blocks, pointer: Blocks) -> Blocks {
    match role {
        ZoneRole::Superblock | ZoneRole::Metadata => pointer,
        _ => counted.min(pointer),
    }
}

fn share(part: Blocks, whole: Blocks) -> f64 {
    (part.0 as f64 / whole.0.max(1) as f64).clamp(0.0, 1.0)
}

/// What a zone is used for, in the order of the legend.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Paint {
    /// A copy of the superblock.
    Superblock,
    /// The metadata log.
    Metadata,
    /// Log segments.
    Log,
    /// Data of no stated lifetime.
    Data,
    /// Data that dies first.
    Short,
    /// Data that dies before most.
    Medium,
    /// Data that lives long.
    Long,
    /// Data that lives longest.
    Extreme,
    /// Written, but no file system says by whom.
    Unknown,
    /// Read-only or offline.
    Worn,
    /// Empty.
    Free,
}

impl Paint {
    /// All of them, in the order of the legend.
    pub const ALL: [Paint; 11] = {
        use Paint as P;
        [
            P::Superblock,
            P::Metadata,
            P::Log,
            P::Data,
            P::Short,
            P::Medium,
            P::Long,
            P::Extreme,
            P::Unknown,
            P::Worn,
            P::Free,
        ]
    };

    /// The name in the legend.
    pub fn name(self) -> &'static str {
        match self {
            Paint::Superblock => "superblock",
            Paint::Metadata => "metadata",
            Paint::Log => "log",
            Paint::Data => "data",
            Paint::Short => "data, short-lived",
            Paint::Medium => "data, medium",
            Paint::Long => "data, long-lived",
            Paint::Extreme => "data, longest-lived",
            Paint::Unknown => "written",
            Paint::Worn => "read-only or offline",
            Paint::Free => "free",
        }
    }

    fn of(role: Option<ZoneRole>, state: ZoneState, pointer: Blocks) -> Paint {
        match role {
            _ if matches!(state, ZoneState::ReadOnly | ZoneState::Offline) => Paint::Worn,
            Some(ZoneRole::Superblock) => Paint::Superblock,
            Some(ZoneRole::Metadata) => Paint::Metadata,
            Some(ZoneRole::Log) => Paint::Log,
            Some(ZoneRole::Data { lifetime }) => match lifetime {
                Lifetime::NotSet | Lifetime::None => Paint::Data,
                Lifetime::Short => Paint::Short,
                Lifetime::Medium => Paint::Medium,
                Lifetime::Long => Paint::Long,
                Lifetime::Extreme => Paint::Extreme,
            },
            Some(ZoneRole::Free) => Paint::Free,
            None if pointer == Blocks::ZERO => Paint::Free,
            None => Paint::Unknown,
        }
    }
}

impl Map {
    /// Reads the map from a device: by its file system, or without one from the device's own report.
    pub fn read(context: &Context, device: &Arc<dyn ZonedDevice>) -> Result<Map> {
        let name = device.geometry().name.to_string();
        let block_size = device.geometry().block_size;
        let options = MountOptions { read_only: true, ..MountOptions::default() };
        match context.wait(Fs::mount(Arc::clone(device), &options)) {
            Ok(fs) => Ok(Map::of(&fs)),
            Err(error)
                if matches!(error.kind(), ErrorKind::NotFound | ErrorKind::Corrupt | ErrorKind::Version) =>
            {
                let why = exit::message(&on(device, error));
                eprintln!("furrow: showing the device's own view: {why}");
                let zones = device.report_all()?.into_iter().map(|info| Cell {
                    zone: info.zone,
                    paint: Paint::of(None, info.state, info.pointer),
                    state: info.state,
                    pointer: info.pointer,
                    capacity: info.capacity,
                    live: None,
                });
                Ok(Map { device: name, space: None, zones: zones.collect(), block_size })
            }
            Err(error) => Err(on(device, error)),
        }
    }

    /// The map of a mounted file system.
    pub fn of(fs: &Fs) -> Map {
        let stat = fs.statfs();
        let zones = fs.zone_map().into_iter().map(|zone| Cell {
            zone: zone.zone,
            paint: Paint::of(Some(zone.role), zone.state, zone.pointer),
            state: zone.state,
            pointer: zone.pointer,
            capacity: zone.capacity,
            live: Some(live(zone.role, zone.live, zone.pointer)),
        });
        let geometry = fs.device().geometry();
        Map {
            device: geometry.name.to_string(),
            space: Some(Space { label: stat.label, capacity: stat.capacity, used: stat.used }),
            zones: zones.collect(),
            block_size: geometry.block_size,
        }
    }

    /// The map as text, in colour or without.
    pub fn text(&self, colour: bool) -> String {
        text::draw(self, colour)
    }
}

/// Draws.
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
        None => output::line(map.text(colourful()))?,
    }
    if context.json {
        let bytes = |blocks: Blocks| blocks.bytes(map.block_size).0;
        let zones = map.zones.iter().map(|cell| {
            json!({
                "zone": cell.zone.0, "use": cell.paint.name(), "state": state(cell.state),
                "pointer": bytes(cell.pointer), "capacity": bytes(cell.capacity), "live": cell.live.map(bytes),
            })
        });
        output::json(&zones.collect())?;
    }
    Ok(ExitCode::SUCCESS)
}

/// Whether stdout takes colour.
pub fn colourful() -> bool {
    std::io::stdout().is_terminal() && std::env::var_os("NO_COLOR").is_none()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_log_has_reserved_and_not_written_is_not_live() {
        assert_eq!(live(ZoneRole::Log, Blocks(1019), Blocks(100)), Blocks(100));
        let cell = |counted, pointer| Cell {
            zone: ZoneId(0),
            paint: Paint::Log,
            state: ZoneState::Closed,
            pointer,
            capacity: Blocks(2048),
            live: Some(live(ZoneRole::Log, counted, pointer)),
        };
        let zones = vec![cell(Blocks(1024), Blocks(100)), cell(Blocks(50), Blocks(100))];
        let text = Map { device: "emu:a".into(), space: None, zones, block_size: 4096 }.text(false);
        assert!(text.contains("log (2, 75 % live)"), "{text}");
    }

    #[test]
    fn what_the_file_system_keeps_for_itself_is_live() {
        assert_eq!(live(ZoneRole::Metadata, Blocks::ZERO, Blocks(7)), Blocks(7));
    }
}
