//! The header: the first block of a metadata zone.
//!
//! | offset | size | field | meaning |
//! |---|---|---|---|
//! | 0 | 8 | magic | `FURROWMZ` |
//! | 8 | 4 | version | 1 |
//! | 12 | 4 | crc | CRC32C of these 64 bytes with this field zero |
//! | 16 | 16 | uuid | of the file system |
//! | 32 | 8 | epoch | counts the snapshots; the highest complete one is mounted |
//! | 40 | 8 | nonce | random per epoch: zones of two attempts at one epoch are never mixed |
//! | 48 | 4 | index | position of the zone in the epoch's chain, from 0 |
//! | 52 | 4 | reserved | zero |
//! | 56 | 8 | first_sequence | sequence of the zone's first record |

use uuid::Uuid;
use zerocopy::little_endian::{U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use crate::metadata::format::crc32c;

/// Bytes of a metadata zone's header; the rest of its block is zero.
pub(crate) const SIZE: usize = 64;
const MAGIC: [u8; 8] = *b"FURROWMZ";
const VERSION: u32 = 1;

/// The fields of a metadata zone's header.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Header {
    pub uuid: Uuid,
    pub epoch: u64,
    pub nonce: u64,
    pub index: u32,
    pub first_sequence: u64,
}

#[derive(FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned, Clone)]
#[repr(C)]
struct Raw {
    magic: [u8; 8],
    version: U32,
    crc: U32,
    uuid: [u8; 16],
    epoch: U64,
    nonce: U64,
    index: U32,
    reserved: U32,
    first_sequence: U64,
}

const _: () = assert!(size_of::<Raw>() == SIZE);
const _: () = assert!(std::mem::offset_of!(Raw, first_sequence) == 56);

impl Header {
    /// The header's bytes.
    pub(crate) fn encode(&self) -> [u8; SIZE] {
        let mut raw = Raw {
            magic: MAGIC,
            version: VERSION.into(),
            crc: 0.into(),
            uuid: *self.uuid.as_bytes(),
            epoch: self.epoch.into(),
            nonce: self.nonce.into(),
            index: self.index.into(),
            reserved: 0.into(),
            first_sequence: self.first_sequence.into(),
        };
        raw.crc = crc32c(&[raw.as_bytes()]).into();
        let mut bytes = [0; SIZE];
        bytes.copy_from_slice(raw.as_bytes());
        bytes
    }

    /// The metadata zone's header in `block`; `None` if the block holds no valid header.
    pub(crate) fn decode(block: &[u8]) -> Option<Header> {
        let (raw, _) = Raw::read_from_prefix(block).ok()?;
        let mut unsigned = raw.clone();
        unsigned.crc = 0.into();
        let good = raw.magic == MAGIC
            && raw.version.get() == VERSION
            && crc32c(&[unsigned.as_bytes()]) == raw.crc.get();
        good.then(|| Header {
            uuid: Uuid::from_bytes(raw.uuid),
            epoch: raw.epoch.get(),
            nonce: raw.nonce.get(),
            index: raw.index.get(),
            first_sequence: raw.first_sequence.get(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_golden_header_decodes_and_encodes_to_the_same_bytes() {
        let uuid = Uuid::from_u128(0x0011_2233_4455_6677_8899_aabb_ccdd_eeff);
        let header = Header { uuid, epoch: 5, nonce: 0x1234_5678_9abc_def0, index: 2, first_sequence: 77 };
        let golden = crate::metadata::format::golden("header-v1.bin", &header.encode());
        assert_eq!(Header::decode(&golden), Some(header));
        assert_eq!(header.encode().as_slice(), golden);
    }

    #[test]
    fn a_header_with_a_changed_byte_is_refused() {
        let header = Header { uuid: Uuid::nil(), epoch: 1, nonce: 2, index: 0, first_sequence: 0 };
        for at in 0..SIZE {
            let mut bytes = header.encode();
            bytes[at] ^= 0x10;
            assert_eq!(Header::decode(&bytes), None, "byte {at}");
        }
    }
}
