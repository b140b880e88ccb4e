//! The metadata of an array's drives as text; destroying an array.

use std::sync::Arc;

use zoned::{Action, Error, ErrorKind, Result, ZoneId, ZoneState, ZonedDevice};

use crate::Superblock;
use crate::format::frames::Frame;
use crate::format::record::{Body, Record};
use crate::layout::Parity;
use crate::layout::Slot;
use crate::layout::placement::{Place, metadata_zones};
use crate::layout::row_set::RowSet;
use crate::layout::stored_maps::{FIRST_VERSION, ZoneMap};
use crate::member::log_reader;
use crate::member::member_drive::MemberDrive;

/// The metadata of one drive of an array, as a dump shows it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct DriveDump {
    /// The drive's name.
    pub device: Arc<str>,
    /// The slot and superblock of the drive; `None` if the drive is no member of an array.
    pub claim: Option<(Slot, Superblock)>,
    /// The metadata zones.
    pub zones: Vec<MetadataZone>,
    /// The drive's metadata records, by position.
    pub records: Vec<RecordDump>,
}

/// A metadata zone.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct MetadataZone {
    /// The drive's own number of the physical zone.
    pub zone: ZoneId,
    /// The state.
    pub state: ZoneState,
    /// Blocks written.
    pub used: u64,
    /// Blocks written to the metadata zone that the drive cannot read: the dump lacks their records.
    pub unreadable: u64,
}

/// A record of a metadata log: see `format/header.rs`.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct RecordDump {
    /// The drive's own number of the record's physical zone.
    pub metadata_zone: ZoneId,
    /// The record's first block, counted from the start of its metadata zone.
    pub block: u64,
    /// The record's length in blocks.
    pub blocks: u64,
    /// The record's kind: `superblock`, `zones`, `reset-intent`, `partial-parity`, `relocated`, `rebuilt`,
    /// `checkpoint-end`, `relocated-data`, `hidden` (stale rows), `swap` (copy of a zone), `lost` (bad rows),
    /// `maps` (where the parts of zones lie).
    pub kind: &'static str,
    /// True if the record is part of a checkpoint.
    pub checkpoint: bool,
    /// The mount that wrote the record.
    pub epoch: u64,
    /// The record's position among all records of its member.
    pub sequence: u64,
    /// The slot of the member that wrote the record.
    pub member: Slot,
    /// The record's content, as text.
    pub text: String,
}

/// The superblocks and metadata records of `devices`. Reads only.
pub async fn dump(devices: &[Arc<dyn ZonedDevice>]) -> Result<Vec<DriveDump>> {
    let mut drives = Vec::new();
    for device in &MemberDrive::all(devices) {
        let name = Arc::clone(&device.geometry().name);
        let claim = log_reader::claim(device).await?;
        let mut zones = Vec::new();
        let mut records = Vec::new();
        for info in device.report(metadata_zones()).await? {
            let mut unreadable = 0;
            if let Some(claim) = &claim {
                let unit = u64::from(claim.superblock.unit);
                unreadable = log_reader::each_record(device, unit, &info, &mut |block, blocks, record| {
                    records.push(describe(device, info.zone, block, blocks, &record));
                })
                .await?;
            }
            let (zone, used) = (device.own_zone(info.zone), info.pointer.0);
            zones.push(MetadataZone { zone, state: info.state, used, unreadable });
        }
        let claim = claim.map(|claim| (claim.slot, claim.superblock));
        drives.push(DriveDump { device: name, claim, zones, records });
    }
    Ok(drives)
}

fn describe(drive: &MemberDrive, zone: ZoneId, block: u64, blocks: u64, record: &Record) -> RecordDump {
    let place = record.place;
    let (kind, text) = describe_body(drive, &record.body);
    RecordDump {
        metadata_zone: drive.own_zone(zone),
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

/// Kind and content of a record, as text.
fn describe_body(drive: &MemberDrive, body: &Body) -> (&'static str, String) {
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
    let of = |zone: &ZoneId, generation: &u64| format!("zone {zone}, generation {generation}");
    match body {
        Body::Superblock(sb) => {
            let state = |m: &crate::MemberInfo| match (m.failed, m.rebuilding, m.vacated) {
                (false, ..) => "good",
                (true, true, _) => "rebuilding",
                (true, false, true) => "vacated",
                (true, false, false) => "failed",
            };
            let members: Vec<&str> = sb.members.iter().map(state).collect();
            let text = format!(
                "array {}, change {}, {} idle spares, members {}",
                sb.uuid,
                sb.config,
                sb.spares.len(),
                members.join(" ")
            );
            ("superblock", text)
        }
        Body::Zones { first, entries: all } => ("zones", entries(first, all)),
        Body::RebuiltZones { first, entries: all } => ("rebuilt", entries(first, all)),
        Body::ResetIntent { zone, generation } => ("reset-intent", of(zone, generation)),
        Body::PartialParity { parity, zone, generation, start, end, rows } => {
            let which = second_parity(*parity);
            let text = format!("blocks {} to {}, {} bytes{which}", start.0, end.0, rows.len());
            ("partial-parity", format!("{}, {text}", of(zone, generation)))
        }
        Body::Frames { frames, parity } => {
            let frame = |frame: &Frame| {
                let (of, start, end) = (of(&frame.zone, &frame.generation), frame.start.0, frame.end.0);
                if frame.is_mark() {
                    format!("{of}, whole below {end}")
                } else {
                    format!("{of}, {start} to {end}")
                }
            };
            let mut text: Vec<String> = frames.iter().map(frame).collect();
            text.extend(parity.as_ref().map(|parity| {
                let (kind, what) = describe_body(drive, parity);
                format!("{kind} of {what}")
            }));
            ("frames", text.join("; "))
        }
        Body::Reorder { above, parity } => {
            let (_, what) = describe_body(drive, parity);
            ("reorder", format!("{what}, in place of older ones with an end above block {}", above.0))
        }
        Body::RelocatedParity { parity, zone, generation, start, end, unit, .. } => {
            let (start, end, len, which) = (start.0, end.0, unit.len(), second_parity(*parity));
            let text = format!("stripe at block {start}, data below {end}, {len} bytes{which}");
            ("relocated", format!("parity of {}, {text}", of(zone, generation)))
        }
        Body::CheckpointEnd => ("checkpoint-end", String::new()),
        Body::RelocatedData { zone, generation, start, end, data, .. } => {
            let text = format!("blocks {} to {}, {} bytes", start.0, end.0, data.len());
            ("relocated-data", format!("{}, {text}", of(zone, generation)))
        }
        Body::StaleRows { zone, generation, rewritten: true, .. } => {
            ("hidden", format!("{}, rebuilt: nothing is hidden", of(zone, generation)))
        }
        Body::StaleRows { zone, generation, rows, .. } => {
            ("hidden", format!("{}, rows {}", of(zone, generation), describe_rows(rows)))
        }
        Body::BadRows { zone, generation, rows, .. } => {
            ("lost", format!("{}, rows {}", of(zone, generation), describe_rows(rows)))
        }
        Body::ZoneCopy { zone, generation, rows, copy, .. } => {
            let copy = drive.own_zone(*copy);
            ("swap", format!("{}, {rows} rows are copied to metadata zone {copy}", of(zone, generation)))
        }
        Body::ZoneMaps(maps) => ("maps", describe_maps(drive, maps)),
    }
}

/// The words that name the second parity in the text of a record; none for the first parity.
fn second_parity(parity: Parity) -> &'static str {
    match parity {
        Parity::P => "",
        Parity::Q => " of Q",
    }
}

/// A single map, or the zones that several maps are for.
fn describe_maps(drive: &MemberDrive, maps: &[ZoneMap]) -> String {
    let [ZoneMap { zone, generation, version, places, .. }] = maps else {
        let zones: Vec<String> = maps.iter().map(|map| map.zone.to_string()).collect();
        return format!("{} zones: {}", maps.len(), zones.join(" "));
    };
    // A physical zone has the number that this drive gives it; other drives may have other conventional zones.
    let place = |place: &Place| {
        let row = if place.row > 0 { format!("+{}", place.row) } else { String::new() };
        format!("{}:{}{row}", place.slot.0, drive.own_zone(place.zone))
    };
    let places: Vec<String> = places.iter().map(place).collect();
    format!(
        "zone {zone}, generation {generation}{}, drive, physical zone and first row of each part: {}",
        if *version == FIRST_VERSION { String::new() } else { format!(", version {version}") },
        places.join(" ")
    )
}

fn describe_rows(rows: &RowSet) -> String {
    let rows: Vec<String> =
        rows.ranges().iter().map(|range| format!("{} to {}", range.start, range.end)).collect();
    rows.join(", ")
}

/// Destroys an array: resets the metadata zones of the members among `devices`. **The data of the array cannot be
/// read again.** Returns the names of the members.
///
/// After an interruption the remaining superblocks still name the array. Errors: [`ErrorKind::Invalid`] if the drives
/// are of several arrays, [`ErrorKind::NotFound`] if none is a member of one.
pub async fn destroy(devices: &[Arc<dyn ZonedDevice>]) -> Result<Vec<Arc<str>>> {
    let mut members = Vec::new();
    for device in MemberDrive::all(devices) {
        if let Some(claim) = log_reader::claim(&device).await? {
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
        for info in device.report(metadata_zones()).await? {
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
