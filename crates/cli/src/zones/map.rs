//! The map of a drive's zones: for each its use, the part that is written, and the part that is live.

use std::sync::Arc;

use ::fs::{ErrorKind, Fs, Lifetime, MountOptions, ZoneRole};
use anyhow::Result;
use units::{Blocks, Bytes, ZoneId};
use zoned::{ZoneState, ZonedDevice};

use crate::context::Context;
use crate::exit;

/// The map of a drive's zones.
#[derive(Debug)]
pub struct Map {
    /// The name of the drive.
    pub device: String,
    /// The file system's label and space; `None` without a file system.
    pub space: Option<Space>,
    /// The zones of the drive in order.
    pub zones: Vec<Cell>,
    /// Bytes in a block.
    pub block_size: u32,
}

/// The file system's space.
#[derive(Debug)]
pub struct Space {
    /// The file system's label.
    pub label: String,
    /// Bytes that files can hold.
    pub capacity: Bytes,
    /// Bytes in live blocks.
    pub used: Bytes,
}

/// One zone of the map.
#[derive(Clone, Copy, Debug)]
pub struct Cell {
    /// The zone's number.
    pub zone: ZoneId,
    /// The use of the zone.
    pub category: Category,
    /// The device's state of the zone.
    pub state: ZoneState,
    /// Number of written blocks of the zone.
    pub pointer: Blocks,
    /// Number of blocks of the zone that can be written.
    pub capacity: Blocks,
    /// Number of blocks of the zone that are written and live; `None` without a file system.
    pub live: Option<Blocks>,
}

impl Cell {
    /// The written share of the zone, 0 to 1.
    pub fn written_share(&self) -> f64 {
        share(self.pointer, self.capacity)
    }

    /// The live share of the zone, 0 to 1; without a file system every written block counts as live.
    pub fn live_share(&self) -> f64 {
        share(self.live.unwrap_or(self.pointer), self.capacity)
    }
}

/// The written and live blocks of a zone. The file system counts only files' blocks, so the map counts all of a superblock's or
/// metadata zone as live; and the file system counts blocks that a log has reserved but, after a crash, not written.
fn live_blocks(role: ZoneRole, counted: Blocks, pointer: Blocks) -> Blocks {
    match role {
        ZoneRole::Superblock | ZoneRole::Metadata => pointer,
        _ => counted.min(pointer),
    }
}

fn share(part: Blocks, whole: Blocks) -> f64 {
    (part.0 as f64 / whole.0.max(1) as f64).clamp(0.0, 1.0)
}

/// The use of a zone, in the order of the legend.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Category {
    /// The zone holds a copy of the superblock.
    Superblock,
    /// The zone holds the metadata log.
    Metadata,
    /// The zone holds segments of logs.
    Log,
    /// The zone holds data of no stated lifetime.
    Data,
    /// The zone holds data of the shortest lifetime.
    Short,
    /// The zone holds data of a medium lifetime.
    Medium,
    /// The zone holds data of a long lifetime.
    Long,
    /// The zone holds data of the longest lifetime.
    Extreme,
    /// The zone is written, on a drive without a file system.
    Unknown,
    /// The zone is read-only or offline.
    Worn,
    /// The zone is empty.
    Free,
}

impl Category {
    /// All uses of zones, in the order of the legend.
    pub const ALL: [Category; 11] = {
        use Category as P;
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

    /// The name of the use in the legend.
    pub fn name(self) -> &'static str {
        match self {
            Category::Superblock => "superblock",
            Category::Metadata => "metadata",
            Category::Log => "log",
            Category::Data => "data",
            Category::Short => "data, short-lived",
            Category::Medium => "data, medium",
            Category::Long => "data, long-lived",
            Category::Extreme => "data, longest-lived",
            Category::Unknown => "written",
            Category::Worn => "read-only or offline",
            Category::Free => "free",
        }
    }

    fn of(role: Option<ZoneRole>, state: ZoneState, pointer: Blocks) -> Category {
        match role {
            _ if matches!(state, ZoneState::ReadOnly | ZoneState::Offline) => Category::Worn,
            Some(ZoneRole::Superblock) => Category::Superblock,
            Some(ZoneRole::Metadata) => Category::Metadata,
            Some(ZoneRole::Log) => Category::Log,
            Some(ZoneRole::Data { lifetime }) => match lifetime {
                Lifetime::NotSet | Lifetime::None => Category::Data,
                Lifetime::Short => Category::Short,
                Lifetime::Medium => Category::Medium,
                Lifetime::Long => Category::Long,
                Lifetime::Extreme => Category::Extreme,
            },
            Some(ZoneRole::Free) => Category::Free,
            None if pointer == Blocks::ZERO => Category::Free,
            None => Category::Unknown,
        }
    }
}

impl Map {
    /// Reads a zone map from the device's file system, or, without one, from the device's report of its zones.
    pub fn read(context: &Context, device: &Arc<dyn ZonedDevice>) -> Result<Map> {
        let name = device.geometry().name.to_string();
        let block_size = device.geometry().block_size;
        let options = MountOptions { read_only: true, ..MountOptions::default() };
        match context.wait(Fs::mount(Arc::clone(device), &options)) {
            Ok(fs) => Ok(Map::of(&fs)),
            Err(error)
                if matches!(error.kind(), ErrorKind::NotFound | ErrorKind::Corrupt | ErrorKind::Version) =>
            {
                let why = exit::message(&context.on(device, error));
                eprintln!("furrow: {why}; showing the device's own report of its zones");
                let zones = device.report_all()?.into_iter().map(|info| Cell {
                    zone: info.zone,
                    category: Category::of(None, info.state, info.pointer),
                    state: info.state,
                    pointer: info.pointer,
                    capacity: info.capacity,
                    live: None,
                });
                Ok(Map { device: name, space: None, zones: zones.collect(), block_size })
            }
            Err(error) => Err(context.on(device, error)),
        }
    }

    /// The zone map of a mounted file system.
    pub fn of(fs: &Fs) -> Map {
        let stat = fs.statfs();
        let zones = fs.zone_map().into_iter().map(|zone| Cell {
            zone: zone.zone,
            category: Category::of(Some(zone.role), zone.state, zone.pointer),
            state: zone.state,
            pointer: zone.pointer,
            capacity: zone.capacity,
            live: Some(live_blocks(zone.role, zone.live, zone.pointer)),
        });
        let geometry = fs.device().geometry();
        Map {
            device: geometry.name.to_string(),
            space: Some(Space { label: stat.label, capacity: stat.capacity, used: stat.used }),
            zones: zones.collect(),
            block_size: geometry.block_size,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_log_has_reserved_and_not_written_is_not_live() {
        assert_eq!(live_blocks(ZoneRole::Log, Blocks(1019), Blocks(100)), Blocks(100));
        let cell = |counted, pointer| Cell {
            zone: ZoneId(0),
            category: Category::Log,
            state: ZoneState::Closed,
            pointer,
            capacity: Blocks(2048),
            live: Some(live_blocks(ZoneRole::Log, counted, pointer)),
        };
        let zones = vec![cell(Blocks(1024), Blocks(100)), cell(Blocks(50), Blocks(100))];
        let map = Map { device: "emu:a".into(), space: None, zones, block_size: 4096 };
        let text = super::super::text::draw(&map, false);
        assert!(text.contains("log (2, 75 % live)"), "{text}");
    }

    #[test]
    fn what_the_file_system_keeps_for_itself_is_live() {
        assert_eq!(live_blocks(ZoneRole::Metadata, Blocks::ZERO, Blocks(7)), Blocks(7));
    }
}
