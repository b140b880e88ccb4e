//! mkfs: formats a device, reads superblocks, and checks that a device is the one its file system was made
//! on.

use std::collections::{BTreeSet, VecDeque};
use std::sync::Arc;

use units::{Blocks, ZoneId};
use zoned::contents::Contents;
use zoned::{
    Action, Buf, BufMut, Durability, Geometry, ZoneInfo, ZoneKind, ZoneState, ZonedDevice, join_all,
};

use crate::error::{Error, ErrorKind, Result};
use crate::files::stat::Superblock;
use crate::metadata::chain::{Chain, zones_for_snapshot};
use crate::metadata::format::header::{self, Header};
use crate::metadata::format::record::Record;
use crate::metadata::format::superblock::{self, Decoded, MAX_LABEL, VERSION};
use crate::metadata::state::ROOT_INO;
use crate::options::FormatOptions;
use crate::zones::slots::{MIN_OPEN_ZONES, OpenZoneShares};

/// Number of files for which the metadata zones are sized, on a device with room for as many.
const FILES_TO_SIZE_METADATA_FOR: u64 = 65_536;
/// Bytes that one file takes in a metadata snapshot, with a long name and some extents.
const SNAPSHOT_BYTES_PER_FILE: u64 = 512;
/// The metadata zones are sized for at most one file per this many blocks.
const BLOCKS_PER_FILE: u64 = 8;
/// The fewest zones for files: some for data, some for logs, and those kept for reclaim.
const LEAST_FILE_ZONES: u32 = 6;
/// Number of zone resets that a format keeps in flight.
const RESETS_IN_FLIGHT: usize = 64;

const DOING: &str = "formatting";
/// The first words of the problem "a zone never held a superblock", which the check compares.
const NO_SUPERBLOCK_IN_ZONE: &str = "there is no superblock in zone";

/// Fails where a device of this geometry cannot be formatted with `options`. Returns the first metadata zone and the number
/// of metadata zones.
pub(crate) fn check_format(geometry: &Geometry, options: &FormatOptions) -> Result<(u32, u32)> {
    let invalid = |why: String| Error::new(ErrorKind::Invalid, DOING).at_path(&*geometry.name).because(why);
    if options.label.len() > MAX_LABEL {
        return Err(invalid(format!("the label has more than {MAX_LABEL} bytes")));
    }
    check_slots(geometry, DOING)?;
    let first = geometry.conventional.max(2);
    let metadata = options.metadata_zones.unwrap_or_else(|| metadata_zones(geometry));
    let least = first.saturating_add(metadata).saturating_add(LEAST_FILE_ZONES);
    if metadata < 4 || geometry.zones < least {
        return Err(invalid(format!(
            "it has {} zones: too few for {first} superblock (and conventional) zones, {metadata} metadata zones (at \
             least 4) and {LEAST_FILE_ZONES} zones for files",
            geometry.zones
        )));
    }
    Ok((first, metadata))
}

/// Writes a new file system to the device.
pub(crate) async fn format(dev: &Arc<dyn ZonedDevice>, options: &FormatOptions) -> Result<Superblock> {
    let geometry = dev.geometry();
    let (first, metadata) = check_format(geometry, options)?;
    let report = dev.report(0..geometry.zones).await.map_err(|e| Error::device(DOING, e))?;
    check_device_is_blank(dev, &report, options).await?;
    let uuid = options.uuid.unwrap_or_else(|| {
        let bytes = (u128::from(dev.driver().random()) << 64) | u128::from(dev.driver().random());
        uuid::Builder::from_random_bytes(bytes.to_be_bytes()).into_uuid()
    });
    let sb = Superblock {
        version: VERSION,
        uuid,
        label: options.label.clone(),
        block_size: geometry.block_size,
        zones: geometry.zones,
        zone_size: geometry.zone_size,
        zone_capacity: geometry.zone_capacity,
        metadata_first: ZoneId(first),
        metadata_zones: metadata,
        features_compat: 0,
        features_ro_compat: 0,
        features_incompat: if geometry.conventional > 2 { superblock::CONVENTIONAL_LOGS } else { 0 },
    };
    let flush = async || dev.flush().await.map_err(|e| Error::device(DOING, e));
    reset_zones(dev, &report).await?;
    flush().await?;
    let header = Header { uuid, epoch: 1, nonce: dev.driver().random(), index: 0, first_sequence: 0 };
    // No reset clears conventional zones: another file system with the same UUID, made on the drive before, had other generations.
    let next_generation = match sb.features_incompat & superblock::CONVENTIONAL_LOGS {
        0 => 1,
        _ => 1 + u64::from(u32::try_from(dev.driver().random() >> 32).unwrap_or_default()),
    };
    let mut chain = Chain::begin(header, ZoneId(first));
    let mut records = VecDeque::from([
        Record::Counters { next_ino: ROOT_INO + 1, next_generation },
        Record::End { count: 1 },
    ]);
    chain.write(dev, &mut records, Durability::Durable).await?;
    flush().await?;
    // A format writes the superblocks last: without them the device holds no file system.
    let mut block = superblock::encode(&sb, geometry.conventional, dev.driver().unix_millis()).to_vec();
    block.resize(geometry.block_size as usize, 0);
    for zone in [ZoneId(1), ZoneId(0)] {
        let at = geometry.start(zone);
        let write = dev.write(at, Buf::copy_from(&block), Durability::Durable).await;
        write.map_err(|e| Error::device("writing the superblock", e))?;
        if !geometry.is_conventional(zone) {
            // The superblock's zone is finished: a full zone does not count as open.
            let finish = dev.zone(zone, Action::Finish).await;
            finish.map_err(|e| Error::device("writing the superblock", e))?;
        }
        flush().await?;
    }
    Ok(sb)
}

/// Number of zones for the metadata log: enough for two snapshots of a device full of files.
fn metadata_zones(geometry: &Geometry) -> u32 {
    let blocks = u64::from(geometry.zones).saturating_mul(geometry.zone_capacity.0);
    let files = FILES_TO_SIZE_METADATA_FOR.max(u64::from(geometry.zones)).min(blocks / BLOCKS_PER_FILE);
    u32::try_from(2 * zones_for_snapshot(geometry, files * SNAPSHOT_BYTES_PER_FILE)).unwrap_or(u32::MAX)
}

async fn check_device_is_blank(
    dev: &Arc<dyn ZonedDevice>,
    report: &[ZoneInfo],
    options: &FormatOptions,
) -> Result<()> {
    if options.force {
        return Ok(());
    }
    let refuse = |what: String| {
        let why = format!("{what}: formatting would destroy it; use force to do so");
        Err(Error::new(ErrorKind::Exists, DOING).at_path(&*dev.geometry().name).because(why))
    };
    match read_superblock(dev, report).await {
        Ok((sb, _)) => return refuse(format!("it holds a Furrow file system '{}' ({})", sb.label, sb.uuid)),
        Err(e) if e.kind() == ErrorKind::Version => return refuse(format!("it holds a file system ({e})")),
        Err(_) => {}
    }
    let contents = Contents::with_report(&**dev, report).await.map_err(|e| Error::device(DOING, e))?;
    if contents.is_blank() { Ok(()) } else { refuse(contents.to_string()) }
}

async fn reset_zones(dev: &Arc<dyn ZonedDevice>, report: &[ZoneInfo]) -> Result<()> {
    let dirty = |z: &&ZoneInfo| {
        z.kind == ZoneKind::Sequential
            && !matches!(z.state, ZoneState::Empty | ZoneState::ReadOnly | ZoneState::Offline)
    };
    let zones: Vec<ZoneId> = report.iter().filter(dirty).map(|z| z.zone).collect();
    for some in zones.chunks(RESETS_IN_FLIGHT) {
        let resets = some.iter().map(|zone| dev.zone(*zone, Action::Reset)).collect();
        for reset in join_all(resets).await {
            reset.map_err(|e| Error::device(DOING, e))?;
        }
    }
    Ok(())
}

/// Reads `blocks` blocks of `zone`, from block `from` of the zone on.
pub(crate) async fn read_blocks(
    dev: &Arc<dyn ZonedDevice>,
    zone: ZoneId,
    from: Blocks,
    blocks: u64,
) -> Result<BufMut, zoned::Error> {
    let geometry = dev.geometry();
    let len = usize::try_from(Blocks(blocks).bytes(geometry.block_size).0).unwrap_or(0);
    dev.read(geometry.start(zone).plus(from), BufMut::zeroed(len)).await
}

/// The superblock, and the problems of its two copies. Of two good copies that differ, the one counts whose
/// file system wrote the metadata zones.
pub(crate) async fn read_superblock(
    dev: &Arc<dyn ZonedDevice>,
    report: &[ZoneInfo],
) -> Result<(Superblock, Vec<String>)> {
    let (mut good, mut problems, mut refused) = (Vec::new(), Vec::new(), None);
    for zone in [ZoneId(0), ZoneId(1)] {
        let written = report.get(zone.index()).is_some_and(|z| z.pointer > Blocks::ZERO);
        let block = match written {
            true => read_blocks(dev, zone, Blocks::ZERO, 1).await,
            false => Ok(BufMut::default()),
        };
        let found = match block {
            Ok(block) => superblock::decode(&block),
            Err(error) => {
                problems.push(format!("the superblock in zone {zone} cannot be read: {error}"));
                continue;
            }
        };
        match found {
            Ok(Decoded::Good(sb)) => good.push((zone, sb)),
            Ok(Decoded::Damaged) => problems.push(format!("the superblock in zone {zone} is damaged")),
            Ok(Decoded::Absent) => problems.push(format!("{NO_SUPERBLOCK_IN_ZONE} {zone}")),
            Err(error) => refused = refused.or(Some(error)),
        }
    }
    match (good.is_empty(), refused) {
        (false, _) => choose_superblock(dev, report, good, problems).await,
        (true, Some(error)) => Err(error.at_path(&*dev.geometry().name)),
        (true, None) => Err(no_superblock(dev.geometry(), report, &problems)),
    }
}

fn no_superblock(geometry: &Geometry, report: &[ZoneInfo], problems: &[String]) -> Error {
    const DOING: &str = "reading the superblock";
    // A conventional zone does not report whether it was written; its first block was read before.
    let absent = problems.iter().all(|p| p.starts_with(NO_SUPERBLOCK_IN_ZONE));
    let blank = absent
        && report.iter().all(|z| {
            matches!(z.state, ZoneState::Empty | ZoneState::Offline) || z.kind == ZoneKind::Conventional
        });
    if blank {
        return Error::new(ErrorKind::NotFound, DOING)
            .at_path(&*geometry.name)
            .because("the device is blank, it holds no file system: `furrow fs mkfs` makes one");
    }
    Error::new(ErrorKind::Corrupt, DOING).at_path(&*geometry.name).because(format!(
        "{}, though zones of the device are written; restore a backup, or give up what it holds with `furrow fs mkfs \
         --force`",
        problems.join(", ")
    ))
}

/// The superblock copy whose file system wrote the metadata zones. Copies differ if blocks of another drive
/// were written over one.
async fn choose_superblock(
    dev: &Arc<dyn ZonedDevice>,
    report: &[ZoneInfo],
    good: Vec<(ZoneId, Superblock)>,
    mut problems: Vec<String>,
) -> Result<(Superblock, Vec<String>)> {
    let mut carried = BTreeSet::new();
    for (_, sb) in &good {
        let last = sb.metadata_first.0.saturating_add(sb.metadata_zones);
        for info in report.iter().filter(|z| (sb.metadata_first.0..last).contains(&z.zone.0)) {
            if info.pointer == Blocks::ZERO {
                continue;
            }
            // A metadata zone that cannot be read does not tell which superblock copy is right.
            let Ok(block) = read_blocks(dev, info.zone, Blocks::ZERO, 1).await else { continue };
            carried.extend(block.get(..header::SIZE).and_then(Header::decode).map(|header| header.uuid));
        }
    }
    let says = |good: &[(ZoneId, Superblock)]| {
        let each = good.iter().map(|(zone, sb)| format!("the superblock in zone {zone} says {}", sb.uuid));
        each.collect::<Vec<_>>().join(", ")
    };
    let at = match good.iter().position(|(_, sb)| carried.contains(&sb.uuid)) {
        Some(at) => at,
        // No metadata header was found: the replay fails later with an error of its own.
        None if carried.is_empty() => 0,
        None => {
            let uuids: Vec<String> = carried.iter().map(ToString::to_string).collect();
            let why = format!(
                "the zone headers of the metadata belong to file system {}, {}: blocks of another drive were written \
                 here; restore a backup",
                uuids.join(" and "),
                says(&good)
            );
            return Err(Error::new(ErrorKind::Corrupt, "reading the superblock")
                .at_path(&*dev.geometry().name)
                .because(why));
        }
    };
    let chosen = good.get(at).map(|(_, sb)| sb.clone()).expect("the position of one of them");
    if good.iter().any(|(_, sb)| sb.uuid != chosen.uuid) {
        problems.push(format!("{}; the metadata belongs to {}", says(&good), chosen.uuid));
    } else if good.iter().any(|(_, sb)| *sb != chosen) {
        problems.push(format!("the two superblocks of file system {} differ", chosen.uuid));
    }
    Ok((chosen, problems))
}

/// Fails if the device allows too few open zones for the file system.
pub(crate) fn check_slots(geometry: &Geometry, doing: &'static str) -> Result<()> {
    let total = OpenZoneShares::of(geometry).total;
    if total >= MIN_OPEN_ZONES {
        return Ok(());
    }
    let why = format!(
        "the device allows {total} open (or active) zones at once, at least {MIN_OPEN_ZONES} are needed: one for metadata, \
         two for logs, one for data; use a device that allows more"
    );
    Err(Error::new(ErrorKind::Invalid, doing).at_path(&*geometry.name).because(why))
}

/// Fails if the device is not the one that was formatted.
pub(crate) fn check_geometry(sb: &Superblock, geometry: &Geometry) -> Result<()> {
    let wrong = |what: &str, formatted: u64, found: u64| {
        let why = format!(
            "the file system was made for {what} {formatted}, the device has {found}: it is another or a truncated \
             device"
        );
        Err(Error::new(ErrorKind::Invalid, "mounting").at_path(&*geometry.name).because(why))
    };
    if sb.block_size != geometry.block_size {
        return wrong("block size", sb.block_size.into(), geometry.block_size.into());
    }
    if sb.zones != geometry.zones {
        return wrong("zone count", sb.zones.into(), geometry.zones.into());
    }
    if sb.zone_size != geometry.zone_size {
        return wrong("zone size", sb.zone_size.0, geometry.zone_size.0);
    }
    if sb.zone_capacity != geometry.zone_capacity {
        return wrong("zone capacity", sb.zone_capacity.0, geometry.zone_capacity.0);
    }
    let files_from = sb.metadata_first.0.checked_add(sb.metadata_zones);
    if sb.metadata_first.0 < 2 || sb.metadata_zones < 4 || files_from.is_none_or(|n| n >= sb.zones) {
        return Err(Error::new(ErrorKind::Corrupt, "mounting")
            .because("the superblock's metadata zones make no sense"));
    }
    Ok(())
}
