//! Creates an array.

use std::sync::Arc;

use uuid::{Builder, Uuid};
use zoned::{
    Action, Blocks, Driver, Durability, Error, ErrorKind, Result, ZoneId, ZoneInfo, ZoneState, ZonedDevice,
};

use crate::CreateOptions;
use crate::format::frames;
use crate::format::record::{self, Body, RecordId};
use crate::format::superblock::{
    FEATURE_BAD_ROWS, FEATURE_FRAMES, FEATURE_INTERLEAVED, FEATURE_JOINED, FEATURE_RELOCATION,
    FEATURE_TWO_PARITIES, FEATURE_WIDTH, Limits, MAX_LABEL, MAX_SECTIONS, MemberInfo, Placement, Superblock,
};
use crate::format::zone_entries::{self, ZoneEntry, per_block};
use crate::format::zone_maps;
use crate::layout::placement::{METADATA_ZONES, is_metadata_zone};
use crate::layout::stored_maps::MAX_PHYSICAL_ZONES;
use crate::layout::{MAX_MEMBERS, Slot};
use crate::member::member_drive::MemberDrive;
use crate::member::superblock_reserve;

/// The first epoch of a new array.
const FIRST_EPOCH: u64 = 1;
/// The first generation of the zones of a new array.
const FIRST_GENERATION: u64 = 1;
/// The most units of parity in a stripe.
const MAX_PARITIES: u32 = 2;
/// The least number of open logical zones that an array must allow. `fs` needs more and checks that itself.
const MIN_OPEN_ZONES: u32 = 1;

/// Creates an array of `devices`, in this order. **All data on the devices is lost.**
///
/// The array needs at least three drives with the same block size, four with two parities. It uses as many sequential zones of each drive as all
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
    let parities = options.parities;
    if !(1..=MAX_PARITIES).contains(&parities) {
        let why = format!("{parities} units of parity in a stripe: an array has 1 to {MAX_PARITIES}");
        return refuse(ErrorKind::Invalid, why);
    }
    let Some(first) = devices.first().filter(|_| (2 + parities..=MAX_MEMBERS).contains(&count)) else {
        let with = if parities == 1 { "" } else { " with two parities" };
        let why = format!("{count} drives; an array{with} has {} to {MAX_MEMBERS}", 2 + parities);
        return refuse(ErrorKind::Invalid, why);
    };
    let width = options.width.unwrap_or(count);
    if !(2 + parities..=count).contains(&width) {
        let why =
            format!("a width of {width}: stripes of {count} drives have {} to {count} units", 2 + parities);
        return refuse(ErrorKind::Invalid, why);
    }
    if width < count && options.placement != Placement::Stored {
        let why = format!("a width of {width} of {count} drives needs stored maps");
        return refuse(ErrorKind::Invalid, why);
    }
    let spare_drives = options.spare_drives;
    if spare_drives > count - width {
        let why = format!(
            "capacity of {spare_drives} drives left free: {count} drives with a width of {width} can spare {}",
            count - width
        );
        return refuse(ErrorKind::Invalid, why);
    }
    let shares = options.shares;
    if shares != 1 && options.placement != Placement::Stored {
        let why = format!("{shares} logical zones in a physical one need stored maps");
        return refuse(ErrorKind::Invalid, why);
    }
    if shares != 1 && spare_drives > 0 {
        let why = format!(
            "{shares} logical zones in a physical one and capacity of {spare_drives} drives left free do not go together yet: lost parts \
             are not restored there. Leave one of them out"
        );
        return refuse(ErrorKind::Invalid, why);
    }
    let sections = options.sections;
    if !(1..=MAX_SECTIONS).contains(&sections) {
        let why =
            format!("{sections} physical zones of each drive in a zone: there may be 1 to {MAX_SECTIONS}");
        return refuse(ErrorKind::Invalid, why);
    }
    if options.interleaved && sections == 1 {
        let why = "stripes take turns where a zone has several physical zones of each drive: say how many (--zone-size M)";
        return refuse(ErrorKind::Invalid, why.to_owned());
    }
    if sections > 1 && (shares > 1 || options.atomic_writes) {
        let why = match shares > 1 {
            true => "zones are joined, or share physical zones: not both",
            false => "writes of joined zones cannot be atomic: a write may go to several of the sections",
        };
        return refuse(ErrorKind::Invalid, why.to_owned());
    }
    let kept = options.placement.kept_active_zones();
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
        if limit.is_some_and(|limit| limit < kept + MIN_OPEN_ZONES) {
            let fixed = match options.placement {
                Placement::Stored => ". The fixed placement takes one less",
                Placement::Fixed => "",
            };
            let why = format!(
                "{} can have {} zones open; the array itself takes {kept}, and at least one more is \
                 needed{fixed}",
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
    if !(1..=capacity / unit).contains(&u64::from(shares)) {
        let why = format!(
            "{shares} logical zones in a physical one of {capacity} blocks: each has whole stripe units of {unit} blocks, so \
             that 1 to {} fit",
            capacity / unit
        );
        return refuse(ErrorKind::Invalid, why);
    }
    let open = devices.iter().filter_map(|d| d.geometry().max_active.or(d.geometry().max_open)).min();
    // A checkpoint has the superblock, the zone entries, partial parity of every open zone and the end
    // record. A metadata zone has room for two checkpoints, so that records fit between two log rolls.
    let open = u64::from(open.unwrap_or(zones).saturating_sub(kept));
    let logical = u64::from(zones) * u64::from(shares) * u64::from(count) / u64::from(width);
    let logical = u32::try_from(logical).unwrap_or(u32::MAX);
    let entries = u64::from(logical).div_ceil(per_block(block).max(1) as u64);
    // With atomic writes it has marks twice, and each open zone's next frames need a block before the log roll ends.
    let (marks, next) = match options.atomic_writes {
        true => (2 * frames::mark_blocks(logical, block), 1),
        false => (0, 0),
    };
    let maps = match options.placement {
        Placement::Fixed => 0,
        Placement::Stored => zone_maps::blocks(u64::from(logical), width, block),
    };
    let fixed = 1 + superblock_reserve(devices.len(), block) + entries + marks + maps + 1;
    let needed = 2 * (fixed + open * (unit + 1 + next));
    let part_zones = zones.saturating_sub(METADATA_ZONES);
    let mut limits = Limits::of(devices.iter().map(|d| d.geometry()), kept);
    if shares > 1 {
        limits = limits_of_shared_zones(limits, part_zones);
    }
    let reserve = reserve(options, part_zones, limits.max_active);
    if part_zones <= reserve {
        let why = format!(
            "{zones} sequential zones: the array takes {METADATA_ZONES} for metadata and keeps {reserve} of each drive in reserve, so \
             that it needs {} at least",
            METADATA_ZONES + reserve + 1
        );
        return refuse(ErrorKind::Invalid, why);
    }
    if part_zones > MAX_PHYSICAL_ZONES - METADATA_ZONES && options.placement == Placement::Stored
        || capacity < needed.min(MAX_METADATA_ZONE_BLOCKS)
    {
        let why = format!(
            "{zones} sequential zones of {capacity} blocks: the array's metadata takes {METADATA_ZONES} zones of at least \
             {} blocks, with this stripe unit",
            needed.min(MAX_METADATA_ZONE_BLOCKS)
        );
        return refuse(ErrorKind::Invalid, why);
    }
    // A drive without a limit of active zones may have all zones partly written. The array limits the active
    // zones to the number whose partial parity fits the log of one drive.
    let parts = u64::from(part_zones - reserve) * u64::from(shares) * u64::from(count - spare_drives);
    let data = u32::try_from(parts / u64::from(width)).unwrap_or(u32::MAX);
    let room = u32::try_from((capacity / 2).saturating_sub(fixed) / (unit + 1 + next)).unwrap_or(u32::MAX);
    let most = limits.max_active.unwrap_or(data).min(room).max(MIN_OPEN_ZONES);
    if most < data {
        limits.max_active = Some(most);
    }
    let data = data / sections * sections;
    if data == 0 {
        let why = format!(
            "{sections} physical zones of each drive in a zone: the drives have {part_zones} for parts, {reserve} of them in reserve"
        );
        return refuse(ErrorKind::Invalid, why);
    }
    let open = limits.max_open.into_iter().chain(limits.max_active).min();
    if options.interleaved
        && let Some(open) = open.filter(|open| *open < sections)
    {
        let why = format!(
            "{sections} sections whose stripes take turns are open at a time: the array can have {open} open"
        );
        return refuse(ErrorKind::Invalid, why);
    }
    let driver = first.driver();
    let member = |_: &MemberDrive| MemberInfo::good(random_uuid(&**driver));
    Ok(Superblock {
        uuid: random_uuid(&**driver),
        config: 1,
        compat: 0,
        ro_compat: 0,
        incompat: FEATURE_RELOCATION
            | FEATURE_BAD_ROWS
            | if parities > 1 { FEATURE_TWO_PARITIES } else { 0 }
            | if options.atomic_writes { FEATURE_FRAMES } else { 0 }
            | if width < count { FEATURE_WIDTH } else { 0 }
            | if sections > 1 { FEATURE_JOINED } else { 0 }
            | if options.interleaved { FEATURE_INTERLEAVED } else { 0 },
        parities,
        placement: options.placement,
        width,
        spare_drives,
        shares,
        sections,
        interleaved: options.interleaved,
        block_size: block,
        unit: u32::try_from(unit).expect("below the longest transfer"),
        metadata_zones: METADATA_ZONES,
        zones: data,
        part_zones,
        zone_size: Blocks(devices.iter().map(|d| d.geometry().zone_size.0).max().unwrap_or(0)),
        zone_capacity: Blocks(capacity),
        limits: Some(limits),
        created_ms: driver.unix_millis(),
        label: options.label.clone(),
        members: devices.iter().map(member).collect(),
        spares: Vec::new(),
    })
}

/// The limits of an array whose logical zones share physical ones: each zone that is written has the open end of a physical zone for
/// itself, and as many physical zones stay in [`reserve`], which is half of all at most.
fn limits_of_shared_zones(limits: Limits, part_zones: u32) -> Limits {
    let most = (part_zones / 2).saturating_sub(RESERVE_BESIDE_ACTIVE).max(1);
    let max_active = limits.max_active.map_or(most, |limit| limit.min(most));
    Limits { max_open: limits.max_open.map(|limit| limit.min(max_active)), max_active: Some(max_active) }
}

/// Physical zones in reserve beside one for each active logical zone, where logical zones share physical ones: one that a reclaim
/// copies to, and one that may wear out.
const RESERVE_BESIDE_ACTIVE: u32 = 2;

/// Physical zones of each drive that stored maps keep beside those that the parts of all logical zones fill: as many may wear out
/// before the array has no room. One in a hundred, at least one.
///
/// Where logical zones share physical ones, each active zone may leave shares behind it empty, and reset zones leave shares that take
/// nothing before the whole physical zone is reset. With one physical zone for each active zone and two more a reclaim always finds
/// room (`zone::shared_zones`, a test).
fn reserve(options: &CreateOptions, part_zones: u32, active: Option<u32>) -> u32 {
    let worn = (part_zones / 100).max(1);
    match options.placement {
        Placement::Fixed => 0,
        Placement::Stored if options.shares == 1 => worn,
        Placement::Stored => worn.max(active.unwrap_or(part_zones).saturating_add(RESERVE_BESIDE_ACTIVE)),
    }
}

/// A metadata zone of this many blocks is always large enough.
const MAX_METADATA_ZONE_BLOCKS: u64 = 1 << 20;
