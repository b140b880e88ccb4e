//! The payload of a superblock record: the array, its members and their failures.
//!
//! The first record of every metadata zone in use is a superblock, so that one block identifies a member. The
//! record's header has the member's slot. The superblock with the highest `config` counts.
//!
//! | offset | size | field | meaning |
//! |---|---|---|---|
//! | 0 | 4 | version | 1 |
//! | 4 | 4 | members | number of drives |
//! | 8 | 8 | compat | features that older builds may ignore |
//! | 16 | 8 | ro_compat | features that older builds may read, not write |
//! | 24 | 8 | incompat | features that older builds must refuse: bit 0, stale rows and relocated data; bit 1, bad rows; bit 3, frames; bit 4, two parities; bit 5, stripes narrower than the array; bit 6, joined zones; bit 7, stripes of their sections in turn; bit 8, reorder records |
//! | 32 | 8 | config | counts changes of this superblock |
//! | 40 | 4 | parities | units of parity in a stripe: 1, or 2 with feature bit 4 |
//! | 44 | 4 | placement | 1: left-symmetric rotation over all drives; 2: stored maps ([`super::zone_maps`]) |
//! | 48 | 4 | block_size | bytes |
//! | 52 | 4 | unit | blocks in a stripe unit |
//! | 56 | 4 | metadata_zones | first sequential zones of each drive |
//! | 60 | 4 | zones | logical zones; of joined zones, sections |
//! | 64 | 8 | zone_size | blocks between the starts of two physical zones, as the array counts |
//! | 72 | 8 | zone_capacity | blocks used of each physical zone |
//! | 80 | 4 | share_of | physical zones of a drive in a logical zone: 1, or with feature bit 6 the sections of a joined zone |
//! | 84 | 4 | share_by | logical zones that share a physical zone: 1, or more with placement 2 |
//! | 88 | 8 | created_ms | milliseconds since 1970 |
//! | 96 | 4 | label_len | bytes of the label |
//! | 100 | 4 | reserved | zero |
//! | 104 | 64 | label | UTF-8, zero-filled |
//! | 168 | 4 | max_open | logical zones that may be open: all ones for no limit, 0 where none is recorded |
//! | 172 | 4 | max_active | the same of active ones |
//! | 176 | 4 | spares | number of idle spares, 8 at most |
//! | 180 | 4 | part_zones | physical zones of each drive for parts of logical zones; 0 with placement 1: as many as logical zones |
//! | 184 | 4 | width | units of a stripe, with feature bit 5; 0 without: as many as drives |
//! | 188 | 4 | spare_drives | drives whose capacity no logical zone takes, with feature bit 5 |
//! | 192 | 64 | reserved | zero |
//! | 256 | 32 each | members | UUID (16), state (4: 0 good; 1 failed; 2 failed, and this new drive is being filled; 4 vacated; 5 vacated, and this new drive is being filled), reserved (12) |
//! | then | 32 each | spares | UUID (16), state (4: 3), reserved (12) |
//!
//! The first record of an idle spare's metadata zone 0 is a superblock too. The record's header has the slot
//! `members + index of the spare`. Older builds take vacated members for failed ones (state 5 too, so that they leave a new drive out whose
//! rebuild is not complete), and refuse an array that lacks more drives than it has parities that way. Older builds ignore spares, and leave them out of the superblocks that they write.

use units::Blocks;
use uuid::Uuid;
use zerocopy::little_endian::{U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use super::{HIGHEST_COUNTER, header};
use crate::layout::placement::METADATA_ZONES;
use crate::layout::stored_maps::MAX_PHYSICAL_ZONES;
use crate::layout::{MAX_MEMBERS, Slot};
use zoned::Geometry;

/// The superblock version that this build writes and reads.
const VERSION: u32 = 1;
/// Bytes of a superblock before its table of members.
const FIXED_BYTES: usize = 256;
/// Bytes of a member.
const MEMBER_BYTES: usize = 32;
/// The state of a member that failed.
const MEMBER_STATE_FAILED: u32 = 1;
/// The state of a new drive whose rebuild is not complete.
const MEMBER_STATE_REBUILDING: u32 = 2;
/// The state of an idle spare.
const MEMBER_STATE_SPARE: u32 = 3;
/// The state of a failed member of which no zone has a part any more.
const MEMBER_STATE_VACATED: u32 = 4;
/// The state of a new drive in the slot of a vacated member, whose rebuild is not complete.
const MEMBER_STATE_VACATED_REBUILDING: u32 = 5;
/// The most idle spares of an array.
pub(crate) const MAX_SPARES: usize = 8;
/// The most sections of a joined zone.
pub(crate) const MAX_SECTIONS: u32 = 64;
/// The longest label.
pub(crate) const MAX_LABEL: usize = 64;
/// The read-only-compatible features this build knows.
const KNOWN_RO_COMPAT: u64 = 0;
/// Feature bit: zones may have stale rows with relocated content. Without this bit a zone with stale rows is
/// full after a mount.
pub(crate) const FEATURE_RELOCATION: u64 = 1;
/// Feature bit: bad rows are recorded. Without this bit a row that cannot be reconstructed ends a rebuild.
pub(crate) const FEATURE_BAD_ROWS: u64 = 2;
/// Feature bit: writes are atomic. Frames say which blocks were written together, and partial parity may lie in the same
/// record.
pub(crate) const FEATURE_FRAMES: u64 = 1 << 3;
/// Feature bit: stripes have two units of parity.
pub(crate) const FEATURE_TWO_PARITIES: u64 = 1 << 4;
/// Feature bit: a stripe has fewer units than the array has drives.
pub(crate) const FEATURE_WIDTH: u64 = 1 << 5;
/// Feature bit: consecutive zones are sections of joined zones.
pub(crate) const FEATURE_JOINED: u64 = 1 << 6;
/// Feature bit: the stripes of the sections of a joined zone take turns.
pub(crate) const FEATURE_INTERLEAVED: u64 = 1 << 7;
/// Feature bit: appends are sent to the drives as appends, and reorder records correct partial parity.
pub(crate) const FEATURE_APPENDS: u64 = 1 << 8;
/// The incompatible features this build knows.
const KNOWN_INCOMPAT: u64 = FEATURE_RELOCATION
    | FEATURE_BAD_ROWS
    | FEATURE_FRAMES
    | FEATURE_TWO_PARITIES
    | FEATURE_WIDTH
    | FEATURE_JOINED
    | FEATURE_INTERLEAVED
    | FEATURE_APPENDS;
/// Where the drives hold the parts of logical zones.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Placement {
    /// Placement 1: each drive has a part of every logical zone, in the physical zone of the same number.
    #[default]
    Fixed,
    /// Placement 2: each logical zone has a map from its first write to its reset. A reset zone takes other physical zones than
    /// those that wore out.
    Stored,
}

impl Placement {
    /// Active zones of each drive that the array keeps for itself: its metadata zones, of which two hold records and the next mount writes
    /// the third, and with stored maps a physical zone that a part moves to or has left, or one with room left for another part.
    pub fn kept_active_zones(self) -> u32 {
        METADATA_ZONES + u32::from(self == Placement::Stored)
    }

    /// The number in the superblock.
    fn number(self) -> u32 {
        match self {
            Placement::Fixed => 1,
            Placement::Stored => 2,
        }
    }
}

#[derive(FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned, Clone)]
#[repr(C)]
struct Raw {
    version: U32,
    members: U32,
    compat: U64,
    ro_compat: U64,
    incompat: U64,
    config: U64,
    parities: U32,
    placement: U32,
    block_size: U32,
    unit: U32,
    metadata_zones: U32,
    zones: U32,
    zone_size: U64,
    zone_capacity: U64,
    share_of: U32,
    share_by: U32,
    created_ms: U64,
    label_len: U32,
    reserved: U32,
    label: [u8; MAX_LABEL],
    max_open: U32,
    max_active: U32,
    spares: U32,
    part_zones: U32,
    width: U32,
    spare_drives: U32,
    reserved_2: [u8; 64],
}

#[derive(FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned, Clone)]
#[repr(C)]
struct RawMember {
    uuid: [u8; 16],
    state: U32,
    reserved: [u8; 12],
}

const _: () = assert!(size_of::<Raw>() == FIXED_BYTES);
const _: () = assert!(size_of::<RawMember>() == MEMBER_BYTES);
const _: () = assert!(std::mem::offset_of!(Raw, config) == 32);
const _: () = assert!(std::mem::offset_of!(Raw, zone_size) == 64);
const _: () = assert!(std::mem::offset_of!(Raw, label) == 104);
const _: () = assert!(std::mem::offset_of!(Raw, max_active) == 172);
const _: () = assert!(std::mem::offset_of!(Raw, spares) == 176);
const _: () = assert!(std::mem::offset_of!(Raw, part_zones) == 180);
const _: () = assert!(std::mem::offset_of!(Raw, width) == 184);

/// Value of a zone limit that no build has recorded yet.
const LIMIT_NOT_RECORDED: u32 = 0;
/// No limit.
const LIMIT_UNLIMITED: u32 = u32::MAX;

/// The superblock's entry of a drive.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct MemberInfo {
    /// The drive's identity in the array, written when the drive joined.
    pub uuid: Uuid,
    /// True if the array works without the drive: the content of the drive is out of date.
    pub failed: bool,
    /// True if the drive is new and its rebuild is not complete. The drive counts as failed until then.
    pub rebuilding: bool,
    /// True if the drive failed, all its parts of zones lie on other drives, and so do all copies of records that count: the array lacks
    /// nothing of the drive, and one more may fail.
    pub vacated: bool,
}

impl MemberInfo {
    /// The entry of a drive that works.
    pub(crate) fn good(uuid: Uuid) -> MemberInfo {
        MemberInfo { uuid, failed: false, rebuilding: false, vacated: false }
    }

    /// True if the drive failed and the array lacks something of it.
    pub fn is_lacking(&self) -> bool {
        self.failed && !self.vacated
    }
}

/// How many logical zones may be open and active: the limits of the drives at the array's creation, whichever drives
/// are present now.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Limits {
    /// Most open zones; `None` for no limit.
    pub max_open: Option<u32>,
    /// Most active zones; `None` for no limit.
    pub max_active: Option<u32>,
}

impl Limits {
    /// The limits of an array of `drives` that uses `metadata_zones` zones of each for metadata.
    pub(crate) fn of<'a>(drives: impl Iterator<Item = &'a Geometry> + Clone, metadata_zones: u32) -> Limits {
        let limit = |of: fn(&Geometry) -> Option<u32>| {
            drives.clone().filter_map(of).min().map(|limit| limit.saturating_sub(metadata_zones).max(1))
        };
        Limits { max_open: limit(|g| g.max_open), max_active: limit(|g| g.max_active) }
    }
}

/// The content of a superblock.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Superblock {
    /// The array's identity, from the record's header.
    pub uuid: Uuid,
    /// Counts changes of the superblock.
    pub config: u64,
    /// Features that older builds may ignore.
    pub compat: u64,
    /// Features that older builds may read, not write.
    pub ro_compat: u64,
    /// Features that older builds must refuse.
    pub incompat: u64,
    /// Units of parity in a stripe.
    pub parities: u32,
    /// Where the drives hold the parts of logical zones.
    pub placement: Placement,
    /// Units of a stripe, parities included: with stored maps there may be fewer than drives.
    pub width: u32,
    /// The number of drives whose capacity no logical zone takes: room for the parts of drives that fail.
    pub spare_drives: u32,
    /// Logical zones whose parts share a physical zone: 1, or more with stored maps.
    pub shares: u32,
    /// Sections of a joined zone: 1 where each zone is for itself.
    pub sections: u32,
    /// True if the stripes of the sections of a joined zone take turns; false if one section lies behind the other.
    pub interleaved: bool,
    /// Bytes in a block.
    pub block_size: u32,
    /// Blocks in a stripe unit.
    pub unit: u32,
    /// Physical zones of each drive, from its first on, that hold metadata.
    pub metadata_zones: u32,
    /// Logical zones, or the sections of all joined zones.
    pub zones: u32,
    /// Physical zones of each drive for parts of logical zones: with stored maps more than logical zones.
    pub part_zones: u32,
    /// Blocks between the starts of two physical zones, of the drive with the largest zones.
    pub zone_size: Blocks,
    /// Blocks used of each physical zone: the capacity of the smallest drive.
    pub zone_capacity: Blocks,
    /// Limits of open and active zones; `None` if no build has recorded limits yet: the next mount with all
    /// drives does.
    pub limits: Option<Limits>,
    /// The time of the array's creation, in milliseconds since 1970.
    pub created_ms: u64,
    /// A label for people.
    pub label: String,
    /// The drives, by slot.
    pub members: Vec<MemberInfo>,
    /// The identities of the idle spares: drives that take the place of a failed one.
    pub spares: Vec<Uuid>,
}

impl Superblock {
    /// True if the array has more drives than a stripe has units.
    pub fn is_wider_than_a_stripe(&self) -> bool {
        (self.width as usize) < self.members.len()
    }

    /// The zones that the array shows: logical zones, or joined ones.
    pub fn shown_zones(&self) -> u32 {
        self.zones / self.sections
    }

    /// Data units of a stripe.
    pub fn data_units(&self) -> u32 {
        self.width.saturating_sub(self.parities)
    }

    /// Blocks of a drive's part of a logical zone: a physical zone, or whole stripe units of a share of one.
    pub fn part_rows(&self) -> Blocks {
        Blocks(part_rows(self.zone_capacity.0, self.shares, self.unit))
    }

    /// Changes the entry of the drive in `slot`.
    pub(crate) fn set_member(&mut self, slot: Slot, failed: bool, rebuilding: bool) {
        if let Some(info) = self.members.get_mut(slot.index()) {
            (info.failed, info.rebuilding, info.vacated) = (failed, rebuilding, false);
        }
    }

    /// The slot in the records of the idle spare with this number: behind the members' slots.
    pub(crate) fn slot_of_spare(&self, index: usize) -> Slot {
        Slot(u32::try_from(self.members.len() + index).expect("no more than MAX_MEMBERS and MAX_SPARES"))
    }

    /// The idle spare whose records have `slot`; `None` for a member's slot.
    pub(crate) fn spare_in_slot(&self, slot: Slot) -> Option<Uuid> {
        self.spares.get(slot.index().checked_sub(self.members.len())?).copied()
    }

    /// The entry of the drive in `slot`.
    pub fn member(&self, slot: Slot) -> Option<&MemberInfo> {
        self.members.get(slot.index())
    }
}

/// Why a superblock is not usable.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum SuperblockRefusal {
    /// The payload is no superblock, or its numbers contradict each other.
    Malformed,
    /// The superblock is another build's; holds the message for the user.
    Foreign(String),
}

/// Blocks of the largest superblock record of an array with `members` members: with all idle spares.
pub(crate) fn largest_blocks(members: usize, block_size: u32) -> u64 {
    let bytes = header::SIZE + FIXED_BYTES + (members + MAX_SPARES) * MEMBER_BYTES;
    (bytes as u64).div_ceil(u64::from(block_size))
}

/// Encodes the payload.
pub(crate) fn encode(sb: &Superblock) -> Vec<u8> {
    let mut label = [0; MAX_LABEL];
    label.iter_mut().zip(sb.label.as_bytes()).for_each(|(to, from)| *to = *from);
    let limit = |of: fn(Limits) -> Option<u32>| {
        U32::new(sb.limits.map_or(LIMIT_NOT_RECORDED, |limits| of(limits).unwrap_or(LIMIT_UNLIMITED)))
    };
    let raw = Raw {
        version: VERSION.into(),
        members: u32::try_from(sb.members.len()).expect("no more than MAX_MEMBERS").into(),
        compat: sb.compat.into(),
        ro_compat: sb.ro_compat.into(),
        incompat: sb.incompat.into(),
        config: sb.config.into(),
        parities: sb.parities.into(),
        placement: sb.placement.number().into(),
        block_size: sb.block_size.into(),
        unit: sb.unit.into(),
        metadata_zones: sb.metadata_zones.into(),
        zones: sb.zones.into(),
        zone_size: sb.zone_size.0.into(),
        zone_capacity: sb.zone_capacity.0.into(),
        share_of: sb.sections.into(),
        share_by: sb.shares.into(),
        created_ms: sb.created_ms.into(),
        label_len: u32::try_from(sb.label.len().min(MAX_LABEL)).unwrap_or(0).into(),
        reserved: 0.into(),
        label,
        max_open: limit(|limits| limits.max_open),
        max_active: limit(|limits| limits.max_active),
        spares: u32::try_from(sb.spares.len()).expect("no more than MAX_SPARES").into(),
        part_zones: match sb.placement {
            Placement::Fixed => 0,
            Placement::Stored => sb.part_zones,
        }
        .into(),
        width: if sb.incompat & FEATURE_WIDTH == 0 { 0 } else { sb.width }.into(),
        spare_drives: sb.spare_drives.into(),
        reserved_2: [0; 64],
    };
    let mut bytes = raw.as_bytes().to_vec();
    let mut add = |uuid: &Uuid, state: u32| {
        let raw = RawMember { uuid: *uuid.as_bytes(), state: state.into(), reserved: [0; 12] };
        bytes.extend_from_slice(raw.as_bytes());
    };
    for member in &sb.members {
        let state = match (member.failed, member.vacated, member.rebuilding) {
            (false, ..) => 0,
            (true, false, false) => MEMBER_STATE_FAILED,
            (true, false, true) => MEMBER_STATE_REBUILDING,
            (true, true, false) => MEMBER_STATE_VACATED,
            (true, true, true) => MEMBER_STATE_VACATED_REBUILDING,
        };
        add(&member.uuid, state);
    }
    sb.spares.iter().for_each(|spare| add(spare, MEMBER_STATE_SPARE));
    bytes
}

/// Decodes the payload of a superblock record of the array `uuid`.
pub(crate) fn decode(uuid: Uuid, payload: &[u8]) -> Result<Superblock, SuperblockRefusal> {
    let (raw, mut rest) = Raw::read_from_prefix(payload).map_err(|_| SuperblockRefusal::Malformed)?;
    let version = raw.version.get();
    if version != VERSION {
        return Err(SuperblockRefusal::Foreign(format!(
            "the array has format version {version}, this build reads version {VERSION}: use a build that reads \
             version {version}"
        )));
    }
    let unknown = raw.incompat.get() & !KNOWN_INCOMPAT;
    if unknown != 0 {
        return Err(SuperblockRefusal::Foreign(format!(
            "the array uses features that this build does not know (incompat bits {unknown:#x}): use a newer build"
        )));
    }
    let (parities, number) = (raw.parities.get(), raw.placement.get());
    let placement = [Placement::Fixed, Placement::Stored].into_iter().find(|known| known.number() == number);
    let (share_of, shares) = (raw.share_of.get(), raw.share_by.get());
    let joins = raw.incompat.get() & FEATURE_JOINED != 0;
    let known_parities = if raw.incompat.get() & FEATURE_TWO_PARITIES == 0 { 1 } else { 2 };
    let Some(placement) = placement.filter(|_| parities == known_parities && joins == (share_of != 1)) else {
        return Err(SuperblockRefusal::Foreign(format!(
            "the array has {parities} units of parity in a stripe, placement {number} and {share_of} physical zones in a \
             logical zone; this build knows one unit of parity, or two with their feature bit, placements 1 and 2, and one \
             physical zone, or more with their feature bit: use a newer build"
        )));
    };
    let part_zones = match placement {
        Placement::Fixed => raw.zones.get(),
        Placement::Stored => raw.part_zones.get(),
    };
    let count = raw.members.get();
    let (width, spare_drives) = match raw.incompat.get() & FEATURE_WIDTH {
        0 => (count, 0),
        _ => (raw.width.get(), raw.spare_drives.get()),
    };
    let interleaved = raw.incompat.get() & FEATURE_INTERLEAVED != 0;
    let spare_count = raw.spares.get() as usize;
    let mut next_entry = || {
        let (entry, left) = RawMember::read_from_prefix(rest).map_err(|_| SuperblockRefusal::Malformed)?;
        rest = left;
        Ok((Uuid::from_bytes(entry.uuid), entry.state.get()))
    };
    let mut members = Vec::new();
    for _ in 0..count.min(MAX_MEMBERS) {
        let (uuid, state) = next_entry()?;
        let rebuilding = matches!(state, MEMBER_STATE_REBUILDING | MEMBER_STATE_VACATED_REBUILDING);
        let vacated = matches!(state, MEMBER_STATE_VACATED | MEMBER_STATE_VACATED_REBUILDING);
        members.push(MemberInfo { uuid, failed: state != 0, rebuilding, vacated });
    }
    let mut spares = Vec::new();
    for _ in 0..spare_count.min(MAX_SPARES) {
        let (uuid, state) = next_entry()?;
        if state != MEMBER_STATE_SPARE {
            return Err(SuperblockRefusal::Malformed);
        }
        spares.push(uuid);
    }
    let block = raw.block_size.get();
    // The array's bytes and `config` must fit 64 bits, and its zones 32.
    let bytes = u64::from(part_zones)
        .checked_mul(u64::from(count))
        .and_then(|parts| parts.checked_mul(raw.zone_size.get()))
        .and_then(|blocks| blocks.checked_mul(u64::from(block)));
    let sound = (2 + parities..=MAX_MEMBERS).contains(&count)
        && spare_count <= MAX_SPARES
        && bytes.is_some()
        && raw.config.get() <= HIGHEST_COUNTER
        && part_zones.checked_add(raw.metadata_zones.get()).is_some()
        && (2 + parities..=count).contains(&width)
        && (placement == Placement::Stored || width == count)
        && spare_drives <= count - width
        && (1..=MAX_SECTIONS).contains(&share_of)
        && raw.zones.get().is_multiple_of(share_of)
        && (!joins || shares == 1 && raw.incompat.get() & FEATURE_FRAMES == 0)
        && (joins || !interleaved)
        && is_sound_share(placement, shares, raw.zone_capacity.get(), raw.unit.get())
        && (placement == Placement::Fixed || part_zones <= MAX_PHYSICAL_ZONES - METADATA_ZONES)
        && u128::from(raw.zones.get()) * u128::from(width)
            <= u128::from(part_zones) * u128::from(shares) * u128::from(count - spare_drives)
        && block.is_power_of_two()
        && (512..=65_536).contains(&block)
        && raw.unit.get() > 0
        && raw.zones.get() > 0
        && raw.metadata_zones.get() >= 3
        && raw.zone_capacity.get() > 0
        && raw.zone_capacity.get() <= raw.zone_size.get()
        && raw.zone_size.get() <= u64::from(u32::MAX);
    let label = raw.label.get(..raw.label_len.get() as usize).and_then(|label| str::from_utf8(label).ok());
    let limit = |raw: U32| match raw.get() {
        LIMIT_NOT_RECORDED => None,
        LIMIT_UNLIMITED => Some(None),
        limit => Some(Some(limit)),
    };
    let limits = limit(raw.max_open).zip(limit(raw.max_active));
    let (true, Some(label)) = (sound, label) else { return Err(SuperblockRefusal::Malformed) };
    Ok(Superblock {
        uuid,
        config: raw.config.get(),
        compat: raw.compat.get(),
        ro_compat: raw.ro_compat.get(),
        incompat: raw.incompat.get(),
        parities,
        placement,
        width,
        spare_drives,
        shares,
        sections: share_of,
        interleaved,
        block_size: block,
        unit: raw.unit.get(),
        metadata_zones: raw.metadata_zones.get(),
        zones: raw.zones.get(),
        part_zones,
        zone_size: Blocks(raw.zone_size.get()),
        zone_capacity: Blocks(raw.zone_capacity.get()),
        limits: limits.map(|(max_open, max_active)| Limits { max_open, max_active }),
        created_ms: raw.created_ms.get(),
        label: label.to_owned(),
        members,
        spares,
    })
}

/// True if parts of `shares` logical zones fit a physical zone of `capacity` blocks, each of whole stripe units.
fn is_sound_share(placement: Placement, shares: u32, capacity: u64, unit: u32) -> bool {
    match shares {
        0 => false,
        1 => true,
        _ => placement == Placement::Stored && part_rows(capacity, shares, unit) > 0,
    }
}

/// Rows of a part of a logical zone, if the parts of `shares` logical zones share a physical zone of `capacity` blocks.
fn part_rows(capacity: u64, shares: u32, unit: u32) -> u64 {
    match shares {
        0 | 1 => capacity,
        _ => {
            let unit = u64::from(unit).max(1);
            capacity / u64::from(shares) / unit * unit
        }
    }
}

/// The unknown features that forbid writing, as text.
pub(crate) fn unwritable(sb: &Superblock) -> Option<String> {
    let unknown = sb.ro_compat & !KNOWN_RO_COMPAT;
    (unknown != 0).then(|| {
        format!("the array uses features that this build can read but not write (bits {unknown:#x})")
    })
}

#[cfg(test)]
pub(crate) mod tests {
    use proptest::prelude::*;

    use super::super::golden_file;
    use super::*;

    pub(crate) fn sample() -> Superblock {
        let member = |n: u128| MemberInfo {
            failed: n == 2 || n == 4,
            rebuilding: n == 4,
            ..MemberInfo::good(Uuid::from_u128(n))
        };
        Superblock {
            uuid: Uuid::from_u128(0x0011_2233_4455_6677_8899_aabb_ccdd_eeff),
            config: 4,
            compat: 0,
            ro_compat: 0,
            incompat: 0,
            parities: 1,
            placement: Placement::Fixed,
            width: 5,
            spare_drives: 0,
            shares: 1,
            sections: 1,
            interleaved: false,
            block_size: 4096,
            unit: 16,
            metadata_zones: 3,
            zones: 29,
            part_zones: 29,
            zone_size: Blocks(16_384),
            zone_capacity: Blocks(16_000),
            limits: None,
            created_ms: 1_700_000_000_000,
            label: "barn".into(),
            members: (1..=5).map(member).collect(),
            spares: Vec::new(),
        }
    }

    #[test]
    fn version_1_reads_as_it_was_written() {
        let golden = golden_file("superblock-v1.bin", &encode(&sample()));
        assert_eq!(decode(sample().uuid, &golden), Ok(sample()));
        assert_eq!(encode(&sample()), golden);
    }

    #[test]
    fn recorded_limits_read_as_they_were_written() {
        let limits = Some(Limits { max_open: Some(11), max_active: None });
        let superblock = Superblock { limits, ..sample() };
        let golden = golden_file("superblock-limits-v1.bin", &encode(&superblock));
        assert_eq!(decode(superblock.uuid, &golden), Ok(superblock.clone()));
        assert_eq!(encode(&superblock), golden);
    }

    #[test]
    fn idle_spares_read_as_they_were_written() {
        let spares: Vec<Uuid> = (21..23).map(Uuid::from_u128).collect();
        let superblock = Superblock { spares: spares.clone(), ..sample() };
        let golden = golden_file("superblock-spares-v1.bin", &encode(&superblock));
        assert_eq!(decode(superblock.uuid, &golden), Ok(superblock.clone()));
        assert_eq!(encode(&superblock), golden);
        assert_eq!(superblock.slot_of_spare(1), Slot(6));
        assert_eq!(superblock.spare_in_slot(Slot(6)), Some(spares[1]));
        assert_eq!([4, 7].map(|slot| superblock.spare_in_slot(Slot(slot))), [None, None]);
    }

    #[test]
    fn a_stored_placement_reads_as_it_was_written() {
        let superblock = Superblock { placement: Placement::Stored, part_zones: 31, ..sample() };
        let golden = golden_file("superblock-stored-v1.bin", &encode(&superblock));
        assert_eq!(decode(superblock.uuid, &golden), Ok(superblock.clone()));
        assert_eq!(encode(&superblock), golden);
    }

    #[test]
    fn a_width_below_the_number_of_drives_reads_as_it_was_written() {
        let superblock = Superblock {
            incompat: FEATURE_WIDTH,
            placement: Placement::Stored,
            width: 3,
            spare_drives: 1,
            part_zones: 31,
            zones: 40,
            ..sample()
        };
        let golden = golden_file("superblock-width-v1.bin", &encode(&superblock));
        assert_eq!(decode(superblock.uuid, &golden), Ok(superblock.clone()));
        assert_eq!(encode(&superblock), golden);
        // No build writes a width that is the number of drives; its record is read and written all the same.
        let all = Superblock { width: 5, spare_drives: 0, zones: 31, ..superblock.clone() };
        assert_eq!(decode(all.uuid, &encode(&all)), Ok(all));
        let bad = [
            Superblock { width: 2, ..superblock.clone() },
            Superblock { spare_drives: 3, ..superblock.clone() },
            Superblock { zones: 42, ..superblock.clone() },
            Superblock { placement: Placement::Fixed, part_zones: 40, ..superblock },
        ];
        for sb in bad {
            assert_eq!(decode(sb.uuid, &encode(&sb)), Err(SuperblockRefusal::Malformed), "{sb:?}");
        }
    }

    #[test]
    fn shared_physical_zones_read_as_they_were_written() {
        let shared =
            Superblock { placement: Placement::Stored, shares: 3, zones: 80, part_zones: 31, ..sample() };
        let golden = golden_file("superblock-shares-v1.bin", &encode(&shared));
        assert_eq!(decode(shared.uuid, &golden), Ok(shared.clone()));
        assert_eq!(encode(&shared), golden);
        assert_eq!(shared.part_rows(), Blocks(16_000 / 3 / 16 * 16));
        let bad = [
            Superblock { shares: 0, ..shared.clone() },
            Superblock { shares: 1001, ..shared.clone() },
            Superblock { zones: 94, ..shared.clone() },
            Superblock { placement: Placement::Fixed, ..shared.clone() },
            Superblock { part_zones: MAX_PHYSICAL_ZONES, ..shared },
        ];
        for sb in bad {
            assert_eq!(decode(sb.uuid, &encode(&sb)), Err(SuperblockRefusal::Malformed), "{sb:?}");
        }
    }

    #[test]
    fn joined_zones_read_as_they_were_written() {
        let one_behind_the_other =
            Superblock { incompat: FEATURE_JOINED, sections: 4, zones: 28, part_zones: 28, ..sample() };
        let in_turn = Superblock {
            incompat: FEATURE_JOINED | FEATURE_INTERLEAVED,
            interleaved: true,
            ..one_behind_the_other.clone()
        };
        for (name, joined) in [("joined", &one_behind_the_other), ("interleaved", &in_turn)] {
            let golden = golden_file(&format!("superblock-{name}-v1.bin"), &encode(joined));
            assert_eq!(decode(joined.uuid, &golden), Ok(joined.clone()));
            assert_eq!(encode(joined), golden);
            assert_eq!(joined.shown_zones(), 7);
        }
        let bad = [
            Superblock { zones: 29, ..in_turn.clone() },
            Superblock { incompat: FEATURE_JOINED | FEATURE_FRAMES, ..one_behind_the_other.clone() },
            Superblock { incompat: FEATURE_INTERLEAVED, sections: 1, ..in_turn.clone() },
            Superblock { placement: Placement::Stored, shares: 2, part_zones: 28, ..in_turn.clone() },
            Superblock { sections: 0, ..in_turn },
        ];
        for sb in bad {
            assert_eq!(decode(sb.uuid, &encode(&sb)), Err(SuperblockRefusal::Malformed), "{sb:?}");
        }
        let unnamed = Superblock { incompat: 0, ..one_behind_the_other };
        assert!(matches!(decode(unnamed.uuid, &encode(&unnamed)), Err(SuperblockRefusal::Foreign(_))));
    }

    #[test]
    fn unknown_features_are_refused_with_advice() {
        let foreign = |sb: Superblock| match decode(sb.uuid, &encode(&sb)) {
            Err(SuperblockRefusal::Foreign(why)) => why,
            other => panic!("{other:?}"),
        };
        assert!(
            foreign(Superblock { incompat: 1 << 60, ..sample() })
                .contains("incompat bits 0x1000000000000000")
        );
        assert!(foreign(Superblock { parities: 2, ..sample() }).contains("2 units of parity"));
        let ro = Superblock { ro_compat: 2, compat: 1, ..sample() };
        assert!(unwritable(&decode(ro.uuid, &encode(&ro)).expect("readable")).is_some());
    }

    #[test]
    fn numbers_that_contradict_each_other_are_refused() {
        let bad = [
            Superblock { members: sample().members[..2].to_vec(), width: 2, ..sample() },
            Superblock { block_size: 1000, ..sample() },
            Superblock { unit: 0, ..sample() },
            Superblock { placement: Placement::Stored, part_zones: 28, ..sample() },
            Superblock { zone_capacity: Blocks(20_000), ..sample() },
            Superblock { spares: vec![Uuid::nil(); MAX_SPARES + 1], ..sample() },
        ];
        for sb in bad {
            assert_eq!(decode(sb.uuid, &encode(&sb)), Err(SuperblockRefusal::Malformed), "{sb:?}");
        }
    }

    proptest! {
        #[test]
        fn any_bytes_give_a_superblock_or_an_error(bytes in proptest::collection::vec(any::<u8>(), 0..600), at in 0_usize..400) {
            let _total = decode(Uuid::nil(), &bytes);
            let mut near = encode(&sample());
            near.iter_mut().skip(at).zip(&bytes).for_each(|(to, from)| *to = *from);
            let _total = decode(Uuid::nil(), &near);
        }
    }
}
