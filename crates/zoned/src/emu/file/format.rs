//! The bytes of a drive file, version 1.
//!
//! ```text
//!   0        header        one block of 4,096 bytes, written once
//!   4,096    holder        the process that has the drive open: 8 bytes, advice only
//!   8,192    zone table    two slots of 32 bytes per zone, written in turn
//!   data     zones         one after the other, zone_size each; at a multiple of 1 MiB
//! ```
//!
//! Header:
//!
//! | offset | size | field | meaning |
//! |---|---|---|---|
//! | 0 | 16 | magic | `FURROW-EMU-DRIVE` |
//! | 16 | 4 | version | 1 |
//! | 20 | 4 | crc | CRC32C of bytes 24 to 128 |
//! | 24 | 16 | uuid | this drive's own; binds the zone table's checksums |
//! | 40 | 4 | block_size | bytes |
//! | 44 | 4 | zones | |
//! | 48 | 4 | conventional | |
//! | 52 | 4 | max_open | 0: no limit |
//! | 56 | 4 | max_active | 0: no limit |
//! | 60 | 4 | flags | bit 0 volatile cache, bit 1 reads past the pointer succeed |
//! | 64 | 8 | zone_size | blocks |
//! | 72 | 8 | zone_capacity | blocks |
//! | 80 | 8 | max_append | blocks |
//! | 88 | 8 | atomic_write | blocks |
//! | 96 | 8 | table | byte offset of the zone table |
//! | 104 | 8 | data | byte offset of zone 0 |
//! | 112 | 16 | reserved | zero |
//!
//! Zone table entry:
//!
//! | offset | size | field | meaning |
//! |---|---|---|---|
//! | 0 | 4 | crc | CRC32C of uuid, zone, slot and bytes 4 to 32; an entry of zeros was never written |
//! | 4 | 4 | state | 1 empty, 2 closed, 3 full, 4 read-only, 5 offline, 6 conventional |
//! | 8 | 8 | sequence | the valid slot with the higher sequence counts; an entry lies in slot `sequence % 2` |
//! | 16 | 8 | written | blocks that hold data |
//! | 24 | 8 | resets | number of the zone's resets since the drive was made |

use units::crc32c;
use zerocopy::little_endian::{U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use crate::emu::{EmuOptions, Latency};
use crate::{Blocks, ZoneState};

/// Magic bytes at the start of a drive file.
pub(in crate::emu) const MAGIC: [u8; 16] = *b"FURROW-EMU-DRIVE";
/// The drive file version that this code writes and reads.
pub(in crate::emu) const VERSION: u32 = 1;
/// Offset in the drive file of the holder's process id.
pub(in crate::emu) const HOLDER_OFFSET: u64 = 4096;
/// Offset of the zone table in the drive file.
const TABLE_OFFSET: u64 = 8192;
/// Alignment of zone 0 in the drive file, in bytes.
const DATA_ALIGN: u64 = 1 << 20;

const FLAG_VOLATILE_CACHE: u32 = 1;
const FLAG_READ_PAST_POINTER: u32 = 2;

/// The header.
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub(in crate::emu) struct Header {
    pub(in crate::emu) magic: [u8; 16],
    pub(in crate::emu) version: U32,
    pub(in crate::emu) crc: U32,
    pub(in crate::emu) uuid: [u8; 16],
    block_size: U32,
    zones: U32,
    conventional: U32,
    max_open: U32,
    max_active: U32,
    flags: U32,
    zone_size: U64,
    zone_capacity: U64,
    max_append: U64,
    atomic_write: U64,
    table: U64,
    data: U64,
    reserved: [u8; 16],
}

const _: () = assert!(size_of::<Header>() == 128);

/// An entry of the drive file's zone table, as bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub(in crate::emu) struct Entry {
    crc: U32,
    state: U32,
    sequence: U64,
    written: U64,
    resets: U64,
}

const _: () = assert!(size_of::<Entry>() == ENTRY_SIZE as usize);

/// Bytes of a zone table entry.
pub(in crate::emu) const ENTRY_SIZE: u64 = 32;

/// A decoded entry of the drive file's zone table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::emu) struct TableEntry {
    pub(in crate::emu) state: ZoneState,
    pub(in crate::emu) sequence: u64,
    pub(in crate::emu) written: u64,
    pub(in crate::emu) resets: u64,
}

/// The reason why bytes are no header or zone table entry of a drive file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::emu) struct Damage(pub(in crate::emu) String);

impl Header {
    /// The header of a new drive's file.
    pub(in crate::emu) fn new(options: &EmuOptions, uuid: [u8; 16]) -> Header {
        let flag = |on: bool, bit: u32| if on { bit } else { 0 };
        let mut header = Header {
            magic: MAGIC,
            version: U32::new(VERSION),
            crc: U32::ZERO,
            uuid,
            block_size: U32::new(options.block_size),
            zones: U32::new(options.zones),
            conventional: U32::new(options.conventional),
            max_open: U32::new(options.max_open.unwrap_or(0)),
            max_active: U32::new(options.max_active.unwrap_or(0)),
            flags: U32::new(
                flag(options.volatile_cache, FLAG_VOLATILE_CACHE)
                    | flag(options.read_past_pointer, FLAG_READ_PAST_POINTER),
            ),
            zone_size: U64::new(options.zone_size.0),
            zone_capacity: U64::new(options.zone_capacity.0),
            max_append: U64::new(options.max_append.0),
            atomic_write: U64::new(options.atomic_write.0),
            table: U64::new(TABLE_OFFSET),
            data: U64::new(data_at(options.zones)),
            reserved: [0; 16],
        };
        header.crc = U32::new(header.checksum());
        header
    }

    /// True if the bytes begin with this version's magic, so that any other error means damage.
    pub(in crate::emu) fn has_magic(bytes: &[u8]) -> bool {
        Header::read_from_prefix(bytes)
            .is_ok_and(|(header, _)| header.magic == MAGIC && header.version.get() == VERSION)
    }

    fn checksum(&self) -> u32 {
        crc32c(&[self.as_bytes().get(24..).unwrap_or_default()])
    }

    /// Decodes a drive file's header. Any bytes give a header or an error.
    pub(in crate::emu) fn decode(bytes: &[u8]) -> Result<Header, Damage> {
        let Ok((header, _)) = Header::read_from_prefix(bytes) else {
            return Err(Damage(format!("{} bytes are too few for a drive file", bytes.len())));
        };
        if header.magic != MAGIC {
            return Err(Damage("this is no drive file of Furrow's emulator".into()));
        }
        if header.version.get() != VERSION {
            let found = header.version.get();
            return Err(Damage(format!("version {found}; this program reads version {VERSION}")));
        }
        if header.crc.get() != header.checksum() {
            return Err(Damage("the header's checksum is wrong: the file is damaged".into()));
        }
        if header.table.get() != TABLE_OFFSET || header.data.get() != data_at(header.zones.get()) {
            return Err(Damage("the header's offsets are not this version's".into()));
        }
        Ok(header)
    }

    /// The settings of the drive that the header describes.
    pub(in crate::emu) fn options(&self, name: String) -> EmuOptions {
        let limit = |n: U32| (n.get() != 0).then_some(n.get());
        EmuOptions {
            name,
            block_size: self.block_size.get(),
            zones: self.zones.get(),
            conventional: self.conventional.get(),
            zone_size: Blocks(self.zone_size.get()),
            zone_capacity: Blocks(self.zone_capacity.get()),
            max_open: limit(self.max_open),
            max_active: limit(self.max_active),
            max_append: Blocks(self.max_append.get()),
            atomic_write: Blocks(self.atomic_write.get()),
            volatile_cache: self.flags.get() & FLAG_VOLATILE_CACHE != 0,
            read_past_pointer: self.flags.get() & FLAG_READ_PAST_POINTER != 0,
            latency: Latency::NONE,
            profile: None,
            dilation: 1,
            reorder: false,
            one_write: false,
            track_power_cuts: false,
            seed: 0,
        }
    }

    /// Offset in the drive file of a slot of a zone's table entry.
    pub(in crate::emu) fn slot_at(&self, zone: u32, slot: u64) -> u64 {
        self.table.get() + (u64::from(zone) * 2 + slot) * ENTRY_SIZE
    }

    /// Bytes of the drive file's zone table.
    pub(in crate::emu) fn table_len(&self) -> usize {
        self.zones.get() as usize * 2 * ENTRY_SIZE as usize
    }

    /// Offset of zone 0 in the drive file.
    pub(in crate::emu) fn data_at(&self) -> u64 {
        self.data.get()
    }

    /// Bytes in the drive file from the start of one zone to the next.
    pub(in crate::emu) fn zone_stride(&self) -> u64 {
        self.zone_size.get().saturating_mul(u64::from(self.block_size.get()))
    }

    /// Bytes of the whole drive file.
    pub(in crate::emu) fn file_len(&self) -> u64 {
        self.zone_stride().saturating_mul(u64::from(self.zones.get())).saturating_add(self.data.get())
    }
}

impl TableEntry {
    /// The bytes of the zone table entry.
    pub(in crate::emu) fn encode(&self, uuid: &[u8; 16], zone: u32) -> Entry {
        let state = match self.state {
            ZoneState::Empty => 1,
            ZoneState::Closed | ZoneState::ImplicitOpen | ZoneState::ExplicitOpen => 2,
            ZoneState::Full => 3,
            ZoneState::ReadOnly => 4,
            ZoneState::Offline => 5,
            ZoneState::Conventional => 6,
        };
        let mut entry = Entry {
            crc: U32::ZERO,
            state: U32::new(state),
            sequence: U64::new(self.sequence),
            written: U64::new(self.written),
            resets: U64::new(self.resets),
        };
        entry.crc = U32::new(entry.checksum(uuid, zone, self.sequence % 2));
        entry
    }

    /// Decodes a slot of the zone table; `None` if the slot was never written.
    pub(in crate::emu) fn decode(
        entry: &Entry,
        uuid: &[u8; 16],
        zone: u32,
        slot: u64,
    ) -> Result<Option<TableEntry>, Damage> {
        if entry.as_bytes().iter().all(|b| *b == 0) {
            return Ok(None);
        }
        let damage = |what: &str| Err(Damage(format!("the table's entry {slot} of zone {zone}: {what}")));
        if entry.crc.get() != entry.checksum(uuid, zone, slot) || entry.sequence.get() % 2 != slot {
            return damage("wrong checksum");
        }
        let state = match entry.state.get() {
            1 => ZoneState::Empty,
            2 => ZoneState::Closed,
            3 => ZoneState::Full,
            4 => ZoneState::ReadOnly,
            5 => ZoneState::Offline,
            6 => ZoneState::Conventional,
            _ => return damage("unknown state"),
        };
        let (sequence, written, resets) = (entry.sequence.get(), entry.written.get(), entry.resets.get());
        Ok(Some(TableEntry { state, sequence, written, resets }))
    }
}

impl Entry {
    fn checksum(&self, uuid: &[u8; 16], zone: u32, slot: u64) -> u32 {
        let rest = self.as_bytes().get(4..).unwrap_or_default();
        crc32c(&[uuid, &zone.to_le_bytes(), &slot.to_le_bytes(), rest])
    }
}

fn data_at(zones: u32) -> u64 {
    (TABLE_OFFSET + u64::from(zones) * 2 * ENTRY_SIZE).next_multiple_of(DATA_ALIGN)
}
