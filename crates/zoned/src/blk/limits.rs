//! Converts a block device's sysfs attributes and zone report to a geometry.

use std::path::Path;
use std::sync::Arc;

use sys::block::{Condition, Zone, ZoneKind as Kind};

use crate::kernel::attribute;
use crate::{Blocks, Geometry, ZoneId, ZoneInfo, ZoneKind, ZoneState};

/// Largest transfer used, in bytes, even if the block device allows more: longer transfers are not faster.
const MAX_TRANSFER: u64 = 1 << 20;

/// Limits of a block device's queue.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Limits {
    /// Bytes in a block: writes are multiples of a block.
    pub(super) block_size: u32,
    /// Longest transfer in bytes that the kernel does not split.
    pub(super) max_transfer: u64,
    pub(super) max_open: Option<u32>,
    pub(super) max_active: Option<u32>,
    pub(super) volatile_cache: bool,
}

impl Limits {
    /// Reads a block device's limits; the error says why the device is unsupported. `disk` is the disk's
    /// sysfs directory.
    pub(super) fn read(disk: &Path) -> Result<Limits, String> {
        if attribute(disk, "partition").is_some() {
            return Err("a partition: zoned drives are used whole".into());
        }
        let queue = disk.join("queue");
        let text = |name: &str| attribute(&queue, name);
        match text("zoned").as_deref() {
            Some("host-managed") => {}
            Some("host-aware") => {
                return Err("a host-aware drive: only host-managed zones are supported".into());
            }
            _ => return Err("not a zoned device: for an ordinary disk or file use emu:PATH".into()),
        }
        let number = |name: &str| text(name).and_then(|text| text.parse::<u64>().ok());
        let logical = number("logical_block_size").unwrap_or(512);
        // Disks with 512-byte sectors over 4 KiB physical blocks accept sequential writes in whole physical blocks
        // only.
        let block = logical.max(number("zone_write_granularity").unwrap_or(0));
        let limit = |name: &str| {
            let most = number(name).unwrap_or(0);
            (most > 0).then(|| u32::try_from(most).unwrap_or(u32::MAX))
        };
        // The kernel splits longer transfers and does not order the parts. A segment holds at least a page; unaligned
        // memory needs one segment more.
        let segments =
            number("max_segments").map_or(u64::MAX, |most| most.saturating_mul(block.min(4096)) / 2);
        let longest = number("max_sectors_kb").unwrap_or(128).saturating_mul(1024).min(segments).max(block);
        Ok(Limits {
            block_size: u32::try_from(block).map_err(|_| format!("blocks of {block} bytes"))?,
            max_transfer: longest,
            max_open: limit("max_open_zones"),
            max_active: limit("max_active_zones"),
            volatile_cache: text("write_cache").as_deref() != Some("write through"),
        })
    }

    /// The block device's geometry; the error says why the device contract does not support the device.
    pub(super) fn geometry(&self, name: &Arc<str>, report: &[Zone]) -> Result<Geometry, String> {
        let size = u64::from(self.block_size);
        if !self.block_size.is_power_of_two() || !(512..=65_536).contains(&self.block_size) {
            return Err(format!("blocks of {size} bytes: a power of two from 512 to 65536 is needed"));
        }
        let first = report.first().ok_or("the kernel reports no zones")?;
        let zone_size = first.len;
        if zone_size.0 == 0 || !zone_size.0.is_multiple_of(size) {
            return Err(format!("zones of {} bytes in blocks of {size}", zone_size.0));
        }
        // A last zone that is smaller than the others is not used.
        let whole = match report.split_last() {
            Some((last, before)) if last.len < zone_size => before,
            _ => report,
        };
        for (zone, index) in whole.iter().zip(0_u64..) {
            if zone.len != zone_size || zone.start.0 != index * zone_size.0 {
                let (start, len) = (zone.start.0, zone.len.0);
                return Err(format!(
                    "zone {index} begins at byte {start} and has {len} bytes: all zones have to be as large as \
                     the first one, {}",
                    zone_size.0
                ));
            }
        }
        let conventional = whole.iter().take_while(|zone| zone.kind == Kind::Conventional).count();
        let sequential = whole.get(conventional..).unwrap_or_default();
        if let Some(place) = sequential.iter().position(|zone| zone.kind != Kind::SequentialRequired) {
            let (index, kind) = (conventional + place, sequential.get(place).map(|zone| zone.kind));
            return Err(match kind {
                Some(Kind::Conventional) => format!(
                    "zone {index} is conventional behind sequential ones: conventional zones have to come first"
                ),
                _ => format!("zone {index} is neither conventional nor sequential: {kind:?}"),
            });
        }
        let capacity = sequential.iter().map(|zone| zone.capacity).min().unwrap_or(zone_size);
        let zone_capacity = Blocks(capacity.0 / size);
        if zone_capacity == Blocks::ZERO || capacity > zone_size {
            return Err(format!("a capacity of {} bytes in zones of {}", capacity.0, zone_size.0));
        }
        let max_transfer = Blocks((self.max_transfer.min(MAX_TRANSFER) / size).max(1));
        let count =
            |n: usize| u32::try_from(n).map_err(|_| format!("{n} zones are more than can be counted"));
        Ok(Geometry {
            name: Arc::clone(name),
            block_size: self.block_size,
            zones: count(whole.len())?,
            conventional: count(conventional)?,
            zone_size: Blocks(zone_size.0 / size),
            zone_capacity,
            max_open: self.max_open.or(self.max_active),
            max_active: self.max_active,
            max_append: max_transfer.min(zone_capacity),
            max_transfer,
            atomic_write: Blocks(1),
            optimal_write: Blocks(1),
            volatile_cache: self.volatile_cache,
            // Reads past the pointer succeed: the zone queue answers them with zeros, on every device.
            ordered_cache: true,
            read_past_pointer: true,
        })
    }

    /// Details of the block device for `furrow device info`.
    pub(super) fn details(&self, disk: &Path) -> Vec<(&'static str, String)> {
        let mut details = crate::kernel::identity(disk);
        details.push(("interface", "zoned block device".into()));
        if let Some(schedulers) = attribute(&disk.join("queue"), "scheduler") {
            let chosen = schedulers.split(['[', ']']).nth(1).unwrap_or(&schedulers);
            details.push(("scheduler", format!("{chosen} (not relied on)")));
        }
        details
    }
}

/// Converts the zones of a report, the first of which is `first`.
pub(super) fn zone_infos(geometry: &Geometry, first: u32, report: &[Zone]) -> Vec<ZoneInfo> {
    (first..geometry.zones).zip(report).map(|(id, zone)| info(geometry, ZoneId(id), zone)).collect()
}

fn info(geometry: &Geometry, id: ZoneId, zone: &Zone) -> ZoneInfo {
    if geometry.is_conventional(id) {
        let state = match zone.condition {
            Condition::ReadOnly => ZoneState::ReadOnly,
            Condition::Offline => ZoneState::Offline,
            _ => ZoneState::Conventional,
        };
        let capacity = geometry.zone_size;
        return ZoneInfo { zone: id, kind: ZoneKind::Conventional, state, pointer: capacity, capacity };
    }
    let written = (zone.pointer >= zone.start)
        .then(|| Blocks((zone.pointer.0 - zone.start.0) / u64::from(geometry.block_size)));
    crate::kernel::sequential_info(geometry, id, zone.condition, written)
}

#[cfg(test)]
mod tests {
    use units::Bytes;

    use super::*;

    const MIB: u64 = 1 << 20;

    fn limits() -> Limits {
        let (max_open, max_active) = (Some(8), Some(12));
        Limits { block_size: 4096, max_transfer: MIB, max_open, max_active, volatile_cache: false }
    }

    fn zone(index: u64, kind: Kind) -> Zone {
        let condition =
            if kind == Kind::Conventional { Condition::NotWritePointer } else { Condition::Empty };
        let start = Bytes(index * 16 * MIB);
        Zone { start, len: Bytes(16 * MIB), capacity: Bytes(12 * MIB), pointer: start, kind, condition }
    }

    fn geometry(report: &[Zone]) -> Result<Geometry, String> {
        limits().geometry(&Arc::from("blk:test"), report)
    }

    #[test]
    fn unequal_capacities_become_the_smallest_and_a_small_last_zone_is_left_out() {
        let mut report: Vec<Zone> = (0..4).map(|n| zone(n, Kind::SequentialRequired)).collect();
        report[2].capacity = Bytes(10 * MIB);
        report[3].len = Bytes(4 * MIB);
        let found = geometry(&report).expect("fits");
        assert_eq!((found.zones, found.zone_capacity, found.zone_size), (3, Blocks(2560), Blocks(4096)));
        report[0].condition = Condition::ImplicitOpen;
        report[0].pointer = Bytes(10 * MIB);
        let zone_infos = zone_infos(&found, 0, &report);
        assert_eq!(
            (zone_infos.len(), zone_infos[0].state, zone_infos[0].pointer),
            (3, ZoneState::Full, Blocks(2560))
        );
    }

    #[test]
    fn conventional_zones_behind_sequential_ones_are_refused() {
        let front = [Kind::Conventional, Kind::Conventional, Kind::SequentialRequired];
        let report: Vec<Zone> = front.into_iter().zip(0..).map(|(kind, n)| zone(n, kind)).collect();
        assert_eq!(geometry(&report).expect("a prefix").conventional, 2);
        let back = [Kind::SequentialRequired, Kind::Conventional];
        let report: Vec<Zone> = back.into_iter().zip(0..).map(|(kind, n)| zone(n, kind)).collect();
        let why = geometry(&report).expect_err("behind");
        assert!(why.contains("zone 1 is conventional"), "{why}");
    }

    #[test]
    fn zones_of_different_sizes_and_odd_blocks_are_refused() {
        let mut report: Vec<Zone> = (0..3).map(|n| zone(n, Kind::SequentialRequired)).collect();
        report[1].len = Bytes(8 * MIB);
        assert!(geometry(&report).is_err());
        assert!(geometry(&[]).is_err());
        let odd = Limits { block_size: 520, ..limits() };
        assert!(odd.geometry(&Arc::from("blk:test"), &report[..1]).is_err());
    }

    #[test]
    fn a_worn_zone_whose_pointer_means_nothing_hides_no_block() {
        let mut report = vec![zone(0, Kind::SequentialRequired)];
        let found = geometry(&report).expect("fits");
        report[0].condition = Condition::ReadOnly;
        report[0].pointer = Bytes(u64::MAX);
        let info = zone_infos(&found, 0, &report)[0];
        assert_eq!((info.state, info.pointer), (ZoneState::ReadOnly, found.zone_capacity));
    }

    #[test]
    fn sysfs_is_read_as_it_is_and_what_is_not_zoned_is_refused() {
        let folder = tempfile::tempdir().expect("a folder");
        let queue = folder.path().join("queue");
        std::fs::create_dir(&queue).expect("a folder");
        let put = |name: &str, text: &str| std::fs::write(queue.join(name), text).expect("written");
        put("zoned", "none\n");
        assert!(Limits::read(folder.path()).expect_err("not zoned").contains("not a zoned device"));
        put("zoned", "host-managed\n");
        put("logical_block_size", "512\n");
        put("zone_write_granularity", "4096\n");
        put("max_sectors_kb", "256\n");
        put("max_segments", "64\n");
        put("max_open_zones", "0\n");
        put("max_active_zones", "14\n");
        put("write_cache", "write back\n");
        let found = Limits::read(folder.path()).expect("zoned");
        let expected = Limits {
            block_size: 4096,
            max_transfer: 128 << 10,
            max_open: None,
            max_active: Some(14),
            volatile_cache: true,
        };
        assert_eq!(found, expected);
        std::fs::write(folder.path().join("partition"), "1\n").expect("written");
        assert!(Limits::read(folder.path()).expect_err("a partition").contains("partition"));
    }
}
