//! Creates an array.

use std::sync::Arc;

use uuid::{Builder, Uuid};
use zoned::{
    Action, Blocks, Driver, Durability, Error, ErrorKind, Result, ZoneId, ZoneInfo, ZoneState, ZonedDevice,
};

use crate::CreateOptions;
use crate::format::record::{self, Body, RecordId};
use crate::format::superblock::{
    FEATURE_BAD_ROWS, FEATURE_RELOCATION, LEFT_SYMMETRIC, Limits, MAX_LABEL, MemberInfo, Superblock,
};
use crate::format::zone_entries::{self, ZoneEntry, per_block};
use crate::layout::placement::{METADATA_ZONES, is_metadata_zone};
use crate::layout::{MAX_MEMBERS, Slot};
use crate::member::SUPERBLOCK_RESERVE_BLOCKS;
use crate::member::member_drive::MemberDrive;

/// The first epoch of a new array.
const FIRST_EPOCH: u64 = 1;
/// The first generation of the zones of a new array.
const FIRST_GENERATION: u64 = 1;
/// The least number of open logical zones that an array must allow. `fs` needs more and checks that itself.
const MIN_OPEN_ZONES: u32 = 1;

/// Creates an array of `devices`, in this order. **All data on the devices is lost.**
///
/// The array needs at least three drives with the same block size. It uses as many sequential zones of each drive as all
/// drives have, and of each zone the capacity of the smallest drive. Conventional zones stay as they are. A data zone that is read-only or
/// offline stays as it is: its logical zone takes no writes. The array is durable when this returns.
///
/// Errors: those of [`plan`]; [`ErrorKind::ZoneReadOnly`] or [`ErrorKind::ZoneOffline`] if a metadata zone of a drive
/// is worn: no data is lost then.
pub async fn create(devices: &[Arc<dyn ZonedDevice>], options: &CreateOptions) -> Result<Superblock> {
    let drives = MemberDrive::all(devices);
    let superblock = plan_drives(&drives, options)?;
    let mut reports = Vec::with_capacity(drives.len());
    // All drives are checked before data of any drive is lost.
    for device in &drives {
        let zones = device.report(0..device.geometry().zones).await?;
        refuse_worn_zones(device, "create", zones.iter().take(METADATA_ZONES as usize))?;
        reports.push(zones);
    }
    for (device, zones) in drives.iter().zip(&reports) {
        reset_all_zones(device, zones).await?;
    }
    for (device, slot) in drives.iter().zip((0..).map(Slot)) {
        write_member_checkpoint(device, slot, &superblock).await?;
    }
    Ok(superblock)
}

/// Refuses a drive if one of its physical `zones` takes no writes.
pub(crate) fn refuse_worn_zones<'a>(
    device: &MemberDrive,
    operation: &'static str,
    mut zones: impl Iterator<Item = &'a ZoneInfo>,
) -> Result<()> {
    let Some(worn) = zones.find(|info| is_worn(info.state)) else { return Ok(()) };
    let (kind, how) = match worn.state {
        ZoneState::Offline => (ErrorKind::ZoneOffline, "is offline"),
        _ => (ErrorKind::ZoneReadOnly, "can be read only"),
    };
    let what = if is_metadata_zone(worn.zone) { "metadata" } else { "data" };
    let error = device.error(kind, operation).in_zone(worn.zone);
    Err(error.because(format!("the zone {how}, and the array's {what} has to go there: use another drive")))
}

fn is_worn(state: ZoneState) -> bool {
    matches!(state, ZoneState::ReadOnly | ZoneState::Offline)
}

/// Resets all zones of a drive.
pub(crate) async fn reset_all_zones(device: &MemberDrive, zones: &[ZoneInfo]) -> Result<()> {
    for info in zones.iter().filter(|info| info.state != ZoneState::Empty && !is_worn(info.state)) {
        device.zone(info.zone, Action::Reset).await?;
    }
    device.flush().await
}

/// Writes the first checkpoint of a member.
async fn write_member_checkpoint(device: &MemberDrive, slot: Slot, superblock: &Superblock) -> Result<()> {
    let mut bodies = vec![Body::Superblock(superblock.clone())];
    let entries = vec![ZoneEntry { generation: FIRST_GENERATION, end: None }; superblock.zones as usize];
    let zones = zone_entries::split(&entries, superblock.block_size);
    bodies.extend(zones.map(|(first, entries)| Body::Zones { first, entries }));
    bodies.push(Body::CheckpointEnd);
    let mut at = device.geometry().start(ZoneId(0));
    let array = superblock.uuid;
    for (body, sequence) in bodies.iter().zip(0..) {
        let place = RecordId { array, member: slot, epoch: FIRST_EPOCH, sequence, checkpoint: true };
        let bytes = record::encode(place, body, superblock.block_size);
        let last = matches!(body, Body::CheckpointEnd);
        let how = if last { Durability::Durable } else { Durability::Cached };
        device.write(at, bytes, how).await?;
        at = at.plus(Blocks(body.blocks(superblock.block_size)));
    }
    Ok(())
}

pub(crate) fn random_uuid(driver: &dyn Driver) -> Uuid {
    let bits = (u128::from(driver.random()) << 64) | u128::from(driver.random());
    Builder::from_random_bytes(bits.to_le_bytes()).into_uuid()
}

/// The superblock that [`create`] would write, or the reason why `devices` cannot form an array. Reads and writes no
/// drive.
pub fn plan(devices: &[Arc<dyn ZonedDevice>], options: &CreateOptions) -> Result<Superblock> {
    plan_drives(&MemberDrive::all(devices), options)
}

fn plan_drives(devices: &[MemberDrive], options: &CreateOptions) -> Result<Superblock> {
    let name: Arc<str> = Arc::from("array");
    let refuse = |kind, why: String| Err(Error::new(kind, &name, "create").because(why));
    let count = u32::try_from(devices.len()).unwrap_or(u32::MAX);
    let Some(first) = devices.first().filter(|_| (3..=MAX_MEMBERS).contains(&count)) else {
        let why = format!("{count} drives; an array has 3 to {MAX_MEMBERS}");
        return refuse(ErrorKind::Invalid, why);
    };
    let block = first.geometry().block_size;
    for device in devices {
        let g = device.geometry();
        if g.block_size != block {
            let why = format!(
                "{} has blocks of {} bytes, {} of {block}: all drives need the same",
                g.name,
                g.block_size,
                first.geometry().name
            );
            return refuse(ErrorKind::Invalid, why);
        }
        let limit = g.max_open.into_iter().chain(g.max_active).min();
        if limit.is_some_and(|limit| limit < METADATA_ZONES + MIN_OPEN_ZONES) {
            let why = format!(
                "{} can have {} zones open; the array's metadata takes {METADATA_ZONES}, and at least one more is \
                 needed",
                g.name,
                limit.unwrap_or(0)
            );
            return refuse(ErrorKind::Invalid, why);
        }
    }
    let bytes = options.stripe_unit.0;
    let unit = bytes / u64::from(block);
    let least = |of: fn(&zoned::Geometry) -> u64| devices.iter().map(|d| of(d.geometry())).min().unwrap_or(0);
    let most = least(|g| g.max_transfer.0).saturating_sub(1);
    if unit == 0 || !bytes.is_multiple_of(u64::from(block)) || unit > most {
        let why = format!(
            "a stripe unit of {bytes} bytes: it must be whole blocks of {block} bytes, and no more than {most} of them"
        );
        return refuse(ErrorKind::Invalid, why);
    }
    if options.label.len() > MAX_LABEL {
        return refuse(ErrorKind::Invalid, format!("the label is longer than {MAX_LABEL} bytes"));
    }
    let zones = u32::try_from(least(|g| u64::from(g.zones))).unwrap_or(u32::MAX);
    let capacity = least(|g| g.zone_capacity.0);
    let open = devices.iter().filter_map(|d| d.geometry().max_active.or(d.geometry().max_open)).min();
    // A checkpoint has the superblock, the zone entries, partial parity of every open zone and the end
    // record. A metadata zone has room for two checkpoints, so that records fit between two log rolls.
    let open = u64::from(open.unwrap_or(zones).saturating_sub(METADATA_ZONES));
    let entries = u64::from(zones).div_ceil(per_block(block).max(1) as u64);
    let fixed = 1 + SUPERBLOCK_RESERVE_BLOCKS + entries + 1;
    let needed = 2 * (fixed + open * (unit + 1));
    if zones <= METADATA_ZONES || capacity < needed.min(MAX_METADATA_ZONE_BLOCKS) {
        let why = format!(
            "{zones} sequential zones of {capacity} blocks: the array's metadata takes {METADATA_ZONES} zones of at least \
             {} blocks, with this stripe unit",
            needed.min(MAX_METADATA_ZONE_BLOCKS)
        );
        return refuse(ErrorKind::Invalid, why);
    }
    let mut limits = Limits::of(devices.iter().map(|d| d.geometry()), METADATA_ZONES);
    // A drive without a limit of active zones may have all zones partly written. The array limits the active
    // zones to the number whose partial parity fits the log of one drive.
    let data = zones - METADATA_ZONES;
    let room = u32::try_from((capacity / 2).saturating_sub(fixed) / (unit + 1)).unwrap_or(u32::MAX);
    let most = limits.max_active.unwrap_or(data).min(room).max(MIN_OPEN_ZONES);
    if most < data {
        limits.max_active = Some(most);
    }
    let driver = first.driver();
    let member =
        |_: &MemberDrive| MemberInfo { uuid: random_uuid(&**driver), failed: false, rebuilding: false };
    Ok(Superblock {
        uuid: random_uuid(&**driver),
        config: 1,
        compat: 0,
        ro_compat: 0,
        incompat: FEATURE_RELOCATION | FEATURE_BAD_ROWS,
        parities: 1,
        placement: LEFT_SYMMETRIC,
        block_size: block,
        unit: u32::try_from(unit).expect("below the longest transfer"),
        metadata_zones: METADATA_ZONES,
        zones: data,
        zone_size: Blocks(devices.iter().map(|d| d.geometry().zone_size.0).max().unwrap_or(0)),
        zone_capacity: Blocks(capacity),
        limits: Some(limits),
        created_ms: driver.unix_millis(),
        label: options.label.clone(),
        members: devices.iter().map(member).collect(),
        spares: Vec::new(),
    })
}

/// A metadata zone of this many blocks is always large enough.
const MAX_METADATA_ZONE_BLOCKS: u64 = 1 << 20;
