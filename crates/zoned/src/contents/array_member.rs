//! Which array a drive belongs to, from the first record of one of its metadata zones.
//!
//! The array crate writes and reads whole records, with the same [`RecordHeader`]. This module interprets
//! only these fields:
//!
//! | offset | size | field | meaning |
//! |---|---|---|---|
//! | 0 | 8 | magic | `FURROWMD` |
//! | 8 | 2 | version | 1 |
//! | 10 | 2 | kind | 1: the payload is a superblock |
//! | 16 | 16 | array | the array's UUID |
//! | 32 | 8 | epoch | number of the mount that wrote the record |
//! | 48 | 4 | member | number of this drive in the array, from 0 |
//! | 124 | 4 | header_crc | CRC32C of the 124 bytes before |
//! | 132 | 4 | members | number of drives of the array |
//! | 224 | 4 | label_len | bytes of the label |
//! | 232 | 64 | label | UTF-8, zero-filled |

use std::fmt;

use units::crc32c;
use uuid::Uuid;
use zerocopy::little_endian::{U16, U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use super::samples::{Layout, Samples};

const KIND_SUPERBLOCK: u16 = 1;
/// Bytes of a record's header before its checksum.
const CHECKSUMMED_BYTES: usize = RecordHeader::SIZE - 4;

/// The header of a record in a metadata zone of an array's drive. The array crate's `format/header.rs` has the table.
#[doc(hidden)]
#[derive(FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned, Clone)]
#[repr(C)]
pub struct RecordHeader {
    pub magic: [u8; 8],
    pub version: U16,
    pub kind: U16,
    pub flags: U32,
    pub array: [u8; 16],
    pub epoch: U64,
    pub sequence: U64,
    pub member: U32,
    pub zone: U32,
    pub generation: U64,
    pub start: U64,
    pub end: U64,
    pub payload_len: U32,
    pub payload_crc: U32,
    pub placed_by: U16,
    pub reserved: [u8; 34],
    pub header_crc: U32,
}

const _: () = assert!(size_of::<RecordHeader>() == RecordHeader::SIZE);
const _: () = assert!(std::mem::offset_of!(RecordHeader, array) == 16);
const _: () = assert!(std::mem::offset_of!(RecordHeader, member) == 48);
const _: () = assert!(std::mem::offset_of!(RecordHeader, generation) == 56);
const _: () = assert!(std::mem::offset_of!(RecordHeader, payload_len) == 80);
const _: () = assert!(std::mem::offset_of!(RecordHeader, placed_by) == 88);
const _: () = assert!(std::mem::offset_of!(RecordHeader, header_crc) == CHECKSUMMED_BYTES);

impl RecordHeader {
    /// The first eight bytes of a record's header.
    pub const MAGIC: [u8; 8] = *b"FURROWMD";
    /// The header version that this build writes and reads.
    pub const VERSION: u16 = 1;
    /// Bytes of a header.
    pub const SIZE: usize = 128;

    /// The checksum that the header's field `header_crc` should have.
    pub fn checksum(&self) -> u32 {
        crc32c(&[self.as_bytes().get(..CHECKSUMMED_BYTES).unwrap_or_default()])
    }

    /// The record header at the start of `bytes`, and the bytes behind it. `None` unless magic, version and
    /// checksum are right.
    pub fn read(bytes: &[u8]) -> Option<(&RecordHeader, &[u8])> {
        let (header, rest) = RecordHeader::ref_from_prefix(bytes).ok()?;
        let good = header.magic == RecordHeader::MAGIC
            && header.version.get() == RecordHeader::VERSION
            && header.checksum() == header.header_crc.get();
        good.then_some((header, rest))
    }
}

/// The first fields of a superblock's payload.
#[derive(FromBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
struct Superblock {
    version: U32,
    members: U32,
    fields: [u8; 88],
    label_len: U32,
    reserved: U32,
    label: [u8; 64],
}

const _: () = assert!(RecordHeader::SIZE + std::mem::offset_of!(Superblock, members) == 132);
const _: () = assert!(RecordHeader::SIZE + std::mem::offset_of!(Superblock, label_len) == 224);
const _: () = assert!(RecordHeader::SIZE + std::mem::offset_of!(Superblock, label) == 232);

/// A drive's place in a Furrow array.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ArrayMember {
    /// The array's UUID.
    pub array: Uuid,
    /// The array's label; may be empty.
    pub label: String,
    /// Number of the drive in the array, from 0. The numbers of idle spares follow those of the array's drives.
    pub drive: u32,
    /// Number of drives of the array.
    pub drives: u32,
}

impl fmt::Display for ArrayMember {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.drive < self.drives {
            write!(f, "drive {} of the {} of array ", self.drive, self.drives)?;
        } else {
            f.write_str("an idle spare of array ")?;
        }
        if !self.label.is_empty() {
            write!(f, "'{}', ", self.label)?;
        }
        write!(f, "{}", self.array)
    }
}

/// The array that the newest superblock among a drive's samples names. Any bytes give an answer.
pub(super) fn array_member(layout: &Layout, samples: &Samples) -> Option<ArrayMember> {
    let zones = layout.sampled_zones().into_iter();
    let records = zones.filter_map(|zone| {
        decode(samples.get(
            u64::from(zone).saturating_mul(layout.zone_size),
            RecordHeader::SIZE + size_of::<Superblock>(),
        )?)
    });
    records.max_by_key(|(epoch, _)| *epoch).map(|(_, member)| member)
}

/// The epoch and content of a superblock record; `None` if the bytes are no superblock record.
fn decode(bytes: &[u8]) -> Option<(u64, ArrayMember)> {
    let (header, payload) =
        RecordHeader::read(bytes).filter(|(header, _)| header.kind.get() == KIND_SUPERBLOCK)?;
    let (raw, _) = Superblock::ref_from_prefix(payload).ok()?;
    let label = raw.label.get(..raw.label_len.get() as usize).unwrap_or_default();
    let member = ArrayMember {
        array: Uuid::from_bytes(header.array),
        label: String::from_utf8_lossy(label).into_owned(),
        drive: header.member.get(),
        drives: raw.members.get(),
    };
    Some((header.epoch.get(), member))
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    const ARRAY_UUID: u128 = 0x0011_2233_4455_6677_8899_aabb_ccdd_eeff;

    /// A superblock record, made of the array crate's golden header and golden superblock.
    pub(in crate::contents) fn record(epoch: u64) -> Vec<u8> {
        let header = include_bytes!("../../../array/tests/golden/record-v1.bin");
        let superblock = include_bytes!("../../../array/tests/golden/superblock-v1.bin");
        let mut record = header[..128].to_vec();
        record[10..12].copy_from_slice(&KIND_SUPERBLOCK.to_le_bytes());
        record[32..40].copy_from_slice(&epoch.to_le_bytes());
        let crc = crc32c(&[&record[..CHECKSUMMED_BYTES]]);
        record[CHECKSUMMED_BYTES..128].copy_from_slice(&crc.to_le_bytes());
        record.extend_from_slice(superblock);
        record
    }

    #[test]
    fn the_golden_superblock_names_array_label_and_drive() {
        let (epoch, member) = decode(&record(7)).unwrap();
        let wanted =
            ArrayMember { array: Uuid::from_u128(ARRAY_UUID), label: "barn".into(), drive: 3, drives: 5 };
        assert_eq!((epoch, &member), (7, &wanted));
        let text = "drive 3 of the 5 of array 'barn', 00112233-4455-6677-8899-aabbccddeeff";
        assert_eq!(member.to_string(), text);
    }

    #[test]
    fn a_changed_byte_of_the_header_is_no_superblock() {
        let good = record(7);
        for at in 0..128 {
            let mut bad = good.clone();
            bad[at] ^= 1;
            assert_eq!(decode(&bad), None, "byte {at}");
        }
        assert_eq!(decode(&good[..200]), None, "a torn record");
    }

    #[test]
    fn the_newest_superblock_of_a_drive_counts() {
        let layout = Layout { size: 4 << 20, zone_size: 1 << 20, zones: 4, conventional: 0 };
        let mut samples = Samples::default();
        assert_eq!(array_member(&layout, &samples), None);
        let mut older = record(3);
        older[232..236].copy_from_slice(b"shed");
        samples.insert(0, older);
        samples.insert(1 << 20, record(4));
        assert_eq!(array_member(&layout, &samples).unwrap().label, "barn");
    }
}
