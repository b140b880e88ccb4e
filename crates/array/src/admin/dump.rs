//! The metadata of an array's drives in words, and its end.

use std::ops::Range;
use std::sync::Arc;

use zoned::{Action, Error, ErrorKind, Result, ZoneId, ZoneState, ZonedDevice};

use crate::Superblock;
use crate::format::record::{Body, Record};
use crate::layout::Slot;
use crate::member::METADATA_ZONES;
use crate::mount::log_contents;

/// A drive's metadata.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct DriveDump {
    /// The drive's name.
    pub device: Arc<str>,
    /// Its place, and what it says of its array; `None` where it is no member of one.
    pub claim: Option<(Slot, Superblock)>,
    /// Its metadata zones.
    pub zones: Vec<MetadataZone>,
    /// The records, in the order of their places.
    pub records: Vec<RecordDump>,
}

/// A metadata zone.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct MetadataZone {
    /// The physical zone.
    pub zone: ZoneId,
    /// Its state.
    pub state: ZoneState,
    /// Blocks written.
    pub used: u64,
    /// Of these, blocks that the drive cannot read: records there are missing below.
    pub unreadable: u64,
}

/// A record of a metadata log: see `format/header.rs`.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct RecordDump {
    /// The physical zone that it lies in.
    pub metadata_zone: ZoneId,
    /// Its first block there.
    pub block: u64,
    /// Its length in blocks.
    pub blocks: u64,
    /// What it is: `superblock`, `zones`, `reset-intent`, `partial-parity`, `relocated`, `rebuilt`, `checkpoint-end`,
    /// `relocated-data`, `hidden`, `swap`, `lost`.
    pub kind: &'static str,
    /// Part of a checkpoint.
    pub checkpoint: bool,
    /// Which assembly of the array wrote it.
    pub epoch: u64,
    /// Counts the records of a member.
    pub sequence: u64,
    /// Which member wrote it.
    pub member: Slot,
    /// What it says, in words.
    pub text: String,
}

/// The superblocks and metadata records of `devices`. Reads only.
pub async fn dump(devices: &[Arc<dyn ZonedDevice>]) -> Result<Vec<DriveDump>> {
    let mut drives = Vec::new();
    for device in devices {
        let name = Arc::clone(&device.geometry().name);
        let claim = log_contents::claim(device).await?;
        let mut zones = Vec::new();
        let mut records = Vec::new();
        for info in device.report(0..METADATA_ZONES).await? {
            let mut unreadable = 0;
            if let Some(claim) = &claim {
                let unit = u64::from(claim.superblock.unit);
                unreadable = log_contents::each_record(device, unit, &info, &mut |block, blocks, record| {
                    records.push(describe(info.zone, block, blocks, &record));
                })
                .await?;
            }
            zones.push(MetadataZone { zone: info.zone, state: info.state, used: info.pointer.0, unreadable });
        }
        let claim = claim.map(|claim| (claim.slot, claim.superblock));
        drives.push(DriveDump { device: name, claim, zones, records });
    }
    Ok(drives)
}

fn describe(metadata_zone: ZoneId, block: u64, blocks: u64, record: &Record) -> RecordDump {
    let place = record.place;
    let (kind, text) = words(&record.body);
    RecordDump {
        metadata_zone,
        block,
        blocks,
        kind,
        checkpoint: place.checkpoint,
        epoch: place.epoch,
        sequence: place.sequence,
        member: place.member,
        text,
    }
}

/// What a record says.
fn words(body: &Body) -> (&'static str, String) {
    let entries = |first: &ZoneId, entries: &[crate::format::zone_entries::ZoneEntry]| {
        let full = entries.iter().filter(|entry| entry.end.is_some()).count();
        match entries {
            [one] => {
                let end = one.end.map_or("no end".to_owned(), |end| format!("end {}", end.0));
                format!("zone {first}: generation {}, {end}", one.generation)
            }
            _ => format!("{} zones from {first} on, {full} of them with an end", entries.len()),
        }
    };
    match body {
        Body::Superblock(sb) => {
            let state = |m: &crate::MemberInfo| match (m.failed, m.rebuilding) {
                (false, _) => "good",
                (true, true) => "rebuilding",
                (true, false) => "failed",
            };
            let members: Vec<&str> = sb.members.iter().map(state).collect();
            ("superblock", format!("array {}, change {}, members {}", sb.uuid, sb.config, members.join(" ")))
        }
        Body::Zones { first, entries: all } => ("zones", entries(first, all)),
        Body::Rebuilt { first, entries: all } => ("rebuilt", entries(first, all)),
        Body::ResetIntent { zone, generation } => {
            ("reset-intent", format!("zone {zone}, generation {generation}"))
        }
        Body::PartialParity { zone, generation, start, end, rows } => (
            "partial-parity",
            format!(
                "zone {zone}, generation {generation}, blocks {} to {}, {} bytes",
                start.0,
                end.0,
                rows.len()
            ),
        ),
        Body::Relocated { zone, generation, start, end, unit } => (
            "relocated",
            format!(
                "parity of zone {zone}, generation {generation}, stripe at block {}, data below {}, {} bytes",
                start.0,
                end.0,
                unit.len()
            ),
        ),
        Body::CheckpointEnd => ("checkpoint-end", String::new()),
        Body::RelocatedData { zone, generation, start, end, data } => (
            "relocated-data",
            format!(
                "zone {zone}, generation {generation}, blocks {} to {}, {} bytes",
                start.0,
                end.0,
                data.len()
            ),
        ),
        Body::Hidden { zone, generation, rebuilt: true, .. } => {
            ("hidden", format!("zone {zone}, generation {generation}, rebuilt: nothing is hidden"))
        }
        Body::Hidden { zone, generation, ranges, .. } => {
            ("hidden", format!("zone {zone}, generation {generation}, rows {}", rows(ranges)))
        }
        Body::Lost { zone, generation, ranges } => {
            ("lost", format!("zone {zone}, generation {generation}, rows {}", rows(ranges)))
        }
        Body::Swap { zone, generation, rows, swap, .. } => (
            "swap",
            format!("zone {zone}, generation {generation}, {rows} rows are copied to metadata zone {swap}"),
        ),
    }
}

fn rows(ranges: &[Range<u64>]) -> String {
    let rows: Vec<String> = ranges.iter().map(|range| format!("{} to {}", range.start, range.end)).collect();
    rows.join(", ")
}

/// Ends an array: the metadata zones of those of `devices` that are members are reset, so that nobody takes them for
/// an array any more. **What the array held cannot be read again.** Gives the names of the drives that were members.
///
/// The last drive's superblock goes last: cut short, what is left says that it was an array. Errors:
/// [`ErrorKind::Invalid`] where the drives are of several arrays, and [`ErrorKind::NotFound`] where none is of one.
pub async fn destroy(devices: &[Arc<dyn ZonedDevice>]) -> Result<Vec<Arc<str>>> {
    let mut members = Vec::new();
    for device in devices {
        if let Some(claim) = log_contents::claim(device).await? {
            members.push((device, claim.superblock.uuid));
        }
    }
    let refuse = |kind, why: &str| Err(Error::new(kind, &Arc::from("array"), "destroy").because(why));
    let Some((_, uuid)) = members.first() else {
        return refuse(ErrorKind::NotFound, "none of the drives is a member of an array");
    };
    if members.iter().any(|(_, other)| other != uuid) {
        return refuse(ErrorKind::Invalid, "the drives are of several arrays: name those of one only");
    }
    let mut names = Vec::new();
    for (device, _) in members {
        for info in device.report(0..METADATA_ZONES).await? {
            let gone = matches!(info.state, ZoneState::Empty | ZoneState::Offline | ZoneState::ReadOnly);
            if !gone {
                device.zone(info.zone, Action::Reset).await?;
            }
        }
        device.flush().await?;
        names.push(Arc::clone(&device.geometry().name));
    }
    Ok(names)
}
