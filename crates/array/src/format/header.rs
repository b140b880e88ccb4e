//! The header of a metadata record.
//!
//! | offset | size | field | meaning |
//! |---|---|---|---|
//! | 0 | 8 | magic | `FURROWMD` |
//! | 8 | 2 | version | 1 |
//! | 10 | 2 | kind | kind of the payload: see [`Kind`] |
//! | 12 | 4 | flags | bit 0: part of a checkpoint; bit 1: the parity in the record is Q |
//! | 16 | 16 | array | the array's UUID |
//! | 32 | 8 | epoch | number of the mount that wrote the record |
//! | 40 | 8 | sequence | number of the record among those of one member |
//! | 48 | 4 | member | the slot of the drive with the record |
//! | 52 | 4 | zone | the logical zone, if the record concerns one |
//! | 56 | 8 | generation | generation of that zone |
//! | 64 | 8 | start | first block that the record concerns, from the start of the logical zone |
//! | 72 | 8 | end | one past the last |
//! | 80 | 4 | payload_len | bytes of the payload |
//! | 84 | 4 | payload_crc | CRC32C of the payload |
//! | 88 | 2 | placed_by | of a record about the content of one part: the version of the zone's map that brought the part to the drive, or 0 ([`super::zone_maps`]) |
//! | 90 | 34 | reserved | zero |
//! | 124 | 4 | header_crc | CRC32C of the 124 bytes before |

use units::{Blocks, ZoneId};
use uuid::Uuid;
use zerocopy::IntoBytes;
use zoned::contents::RecordHeader;

use super::crc32c;
use crate::layout::stored_maps::PlacedBy;
use crate::layout::{Parity, Slot};

/// Bytes of a header.
pub(crate) const SIZE: usize = RecordHeader::SIZE;
/// Flag of a record in a checkpoint: the record repeats the state in memory.
const CHECKPOINT_FLAG: u32 = 1;
/// Flag of a record of partial or relocated parity: the parity is Q.
const Q_FLAG: u32 = 2;

/// The kind of a record.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub(crate) enum Kind {
    /// The array, its members and their failures: [`super::superblock`].
    Superblock,
    /// Generations and ends of zones: [`super::zone_entries`].
    Zones,
    /// A reset of the record's zone in the record's generation is about to begin.
    ResetIntent,
    /// Parity of the blocks `start..end` of a stripe that is not whole: the XOR of all blocks below `end`.
    PartialParity,
    /// A parity unit that is in the metadata log instead of its place.
    RelocatedParity,
    /// The end of a checkpoint: all records of the member's epoch are complete.
    CheckpointEnd,
    /// Zones that a rebuild has copied to the new drive with the record: [`super::zone_entries`].
    RebuiltZones,
    /// Data blocks of one stripe unit that are in the metadata log instead of their place.
    RelocatedData,
    /// Rows of the drive's part of a zone that hold dead data: [`super::row_ranges`].
    StaleRows,
    /// A metadata zone holds a copy of a physical zone that is being rewritten: [`super::row_ranges`].
    ZoneCopy,
    /// Rows of the drive's part of a zone whose content is not recoverable: [`super::row_ranges`].
    BadRows,
    /// Where the parts of logical zones lie: [`super::zone_maps`].
    ZoneMaps,
    /// Which blocks were written together, and partial parity of `start..end` unless these are equal: [`super::frames`].
    Frames,
    /// Corrected partial parity of `start..end`, behind appends that landed in another order than submitted: [`super::reorder`].
    Reorder,
}

const KIND_NUMBERS: [(Kind, u16); 14] = [
    (Kind::Superblock, 1),
    (Kind::Zones, 2),
    (Kind::ResetIntent, 3),
    (Kind::PartialParity, 4),
    (Kind::RelocatedParity, 5),
    (Kind::CheckpointEnd, 6),
    (Kind::RebuiltZones, 7),
    (Kind::RelocatedData, 8),
    (Kind::StaleRows, 9),
    (Kind::ZoneCopy, 10),
    (Kind::BadRows, 11),
    (Kind::ZoneMaps, 12),
    (Kind::Frames, 13),
    (Kind::Reorder, 14),
];

/// A record's header.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Header {
    pub kind: Kind,
    pub checkpoint: bool,
    /// The parity in a record of parity; P in all other records.
    pub parity: Parity,
    pub array: Uuid,
    pub epoch: u64,
    pub sequence: u64,
    pub member: Slot,
    pub zone: ZoneId,
    pub generation: u64,
    pub start: Blocks,
    pub end: Blocks,
    pub placed_by: PlacedBy,
}

/// The bytes of a header for `payload`.
pub(crate) fn encode(header: &Header, payload: &[u8]) -> [u8; SIZE] {
    let kind = KIND_NUMBERS.iter().find(|(kind, _)| *kind == header.kind).map_or(0, |(_, number)| *number);
    let checkpoint = if header.checkpoint { CHECKPOINT_FLAG } else { 0 };
    let parity = if header.parity == Parity::Q { Q_FLAG } else { 0 };
    let mut raw = RecordHeader {
        magic: RecordHeader::MAGIC,
        version: RecordHeader::VERSION.into(),
        kind: kind.into(),
        flags: (checkpoint | parity).into(),
        array: *header.array.as_bytes(),
        epoch: header.epoch.into(),
        sequence: header.sequence.into(),
        member: header.member.0.into(),
        zone: header.zone.0.into(),
        generation: header.generation.into(),
        start: header.start.0.into(),
        end: header.end.0.into(),
        payload_len: u32::try_from(payload.len()).expect("a payload is a stripe unit at most").into(),
        payload_crc: crc32c(&[payload]).into(),
        placed_by: header.placed_by.0.into(),
        reserved: [0; 34],
        header_crc: 0.into(),
    };
    raw.header_crc = raw.checksum().into();
    let mut bytes = [0; SIZE];
    bytes.copy_from_slice(raw.as_bytes());
    bytes
}

/// Decodes a header and its payload. `None` if the bytes are no complete record of a known version and kind.
pub(crate) fn decode(bytes: &[u8]) -> Option<(Header, &[u8])> {
    let (raw, rest) = RecordHeader::read(bytes)?;
    let payload = rest.get(..raw.payload_len.get() as usize)?;
    if crc32c(&[payload]) != raw.payload_crc.get() {
        return None;
    }
    let kind = KIND_NUMBERS.iter().find(|(_, number)| *number == raw.kind.get()).map(|(kind, _)| *kind)?;
    let header = Header {
        kind,
        checkpoint: raw.flags.get() & CHECKPOINT_FLAG != 0,
        parity: if raw.flags.get() & Q_FLAG != 0 { Parity::Q } else { Parity::P },
        array: Uuid::from_bytes(raw.array),
        epoch: raw.epoch.get(),
        sequence: raw.sequence.get(),
        member: Slot(raw.member.get()),
        zone: ZoneId(raw.zone.get()),
        generation: raw.generation.get(),
        start: Blocks(raw.start.get()),
        end: Blocks(raw.end.get()),
        placed_by: PlacedBy(raw.placed_by.get()),
    };
    Some((header, payload))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::super::golden_file;
    use super::*;

    fn sample_header() -> Header {
        Header {
            kind: Kind::PartialParity,
            checkpoint: true,
            parity: Parity::P,
            array: Uuid::from_u128(0x0011_2233_4455_6677_8899_aabb_ccdd_eeff),
            epoch: 7,
            sequence: 99,
            member: Slot(3),
            zone: ZoneId(12),
            generation: 5,
            start: Blocks(64),
            end: Blocks(67),
            placed_by: PlacedBy::default(),
        }
    }

    #[test]
    fn version_1_reads_as_it_was_written() {
        let payload: Vec<u8> = (0..=255).collect();
        let fresh = [&encode(&sample_header(), &payload)[..], &payload].concat();
        let golden = golden_file("record-v1.bin", &fresh);
        let (header, found) = decode(&golden).expect("the golden record is good");
        assert_eq!((header, found), (sample_header(), &payload[..]));
        assert_eq!(fresh, golden);
    }

    #[test]
    fn a_changed_byte_anywhere_is_refused() {
        let payload = [9; 40];
        let good = [&encode(&sample_header(), &payload)[..], &payload].concat();
        for at in 0..good.len() {
            let mut bad = good.clone();
            bad[at] ^= 0x10;
            assert_eq!(decode(&bad), None, "byte {at}");
        }
        assert_eq!(decode(&good[..good.len() - 1]), None);
    }

    proptest! {
        #[test]
        fn any_bytes_give_a_record_or_nothing(bytes in proptest::collection::vec(any::<u8>(), 0..400)) {
            let _total = decode(&bytes);
            let mut signed = RecordHeader::MAGIC.to_vec();
            signed.extend(bytes);
            let _total = decode(&signed);
        }
    }
}
