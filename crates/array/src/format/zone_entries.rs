//! The payload of a zones record: generation and end of each logical zone.
//!
//! | offset | size | field | meaning |
//! |---|---|---|---|
//! | 0 | 4 | first | the logical zone of the first entry |
//! | 4 | 4 | count | entries |
//! | 8 | 8 | reserved | zero |
//! | 16 | 16 each | entries | generation (8), end (8: all ones if the zone is not known to be full; one less if the zone has failed, because two drives lack their part) |
//!
//! A zone with an end is full, or read-only because a part wore out. Its blocks below the end are durable and match
//! their parity. A reset increments the generation; the highest generation on any drive counts.

use units::{Blocks, ZoneId};
use zerocopy::little_endian::{U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

/// Bytes of a zones record's payload before its entries.
const FIXED_BYTES: usize = 16;
/// Bytes of an entry.
pub(crate) const ENTRY_BYTES: usize = 16;
/// Value of a zone entry without a recorded end.
const END_NOT_RECORDED: u64 = u64::MAX;

#[derive(FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned, Clone)]
#[repr(C)]
struct Raw {
    first: U32,
    count: U32,
    reserved: U64,
}

#[derive(FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned, Clone)]
#[repr(C)]
struct RawEntry {
    generation: U64,
    end: U64,
}

const _: () = assert!(size_of::<Raw>() == FIXED_BYTES);
const _: () = assert!(size_of::<RawEntry>() == ENTRY_BYTES);

/// The recorded state of a logical zone.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct ZoneEntry {
    pub generation: u64,
    pub end: Option<Blocks>,
}

impl ZoneEntry {
    /// The end that a failed zone's entry records. Above every other end.
    pub(crate) const END_OF_FAILED_ZONE: Blocks = Blocks(u64::MAX - 1);

    /// True if the entry says that the zone has failed.
    pub(crate) fn is_failed_zone(&self) -> bool {
        self.end == Some(ZoneEntry::END_OF_FAILED_ZONE)
    }

    /// Merges another record's entry of the same zone: the higher generation counts, and within one
    /// generation the higher end.
    pub(crate) fn merge(&mut self, other: ZoneEntry) {
        if other.generation > self.generation {
            *self = other;
        } else if other.generation == self.generation {
            self.end = self.end.max(other.end);
        }
    }
}

/// The number of zone entries in a record of one block.
pub(crate) fn per_block(block_size: u32) -> usize {
    (block_size as usize - super::header::SIZE - FIXED_BYTES) / ENTRY_BYTES
}

/// Splits the entries of all zones into records of one block each: the first zone, and the entries.
pub(crate) fn split(
    entries: &[ZoneEntry],
    block_size: u32,
) -> impl Iterator<Item = (ZoneId, Vec<ZoneEntry>)> {
    let count = per_block(block_size).max(1);
    (0..).step_by(count).map(ZoneId).zip(entries.chunks(count).map(<[ZoneEntry]>::to_vec))
}

/// Encodes the entries of the zones from `first` on.
pub(crate) fn encode(first: ZoneId, entries: &[ZoneEntry]) -> Vec<u8> {
    let count = u32::try_from(entries.len()).expect("a block's worth of entries").into();
    let mut bytes = Raw { first: first.0.into(), count, reserved: 0.into() }.as_bytes().to_vec();
    for entry in entries {
        let end = entry.end.map_or(END_NOT_RECORDED, |end| end.0).into();
        bytes.extend_from_slice(RawEntry { generation: entry.generation.into(), end }.as_bytes());
    }
    bytes
}

/// Decodes the payload of a zones record.
pub(crate) fn decode(payload: &[u8]) -> Option<(ZoneId, Vec<ZoneEntry>)> {
    let (raw, mut rest) = Raw::read_from_prefix(payload).ok()?;
    let count = raw.count.get() as usize;
    if count.checked_mul(ENTRY_BYTES)? > rest.len() {
        return None;
    }
    let mut entries = Vec::with_capacity(count);
    for _ in 0..count {
        let (entry, left) = RawEntry::read_from_prefix(rest).ok()?;
        rest = left;
        let end = entry.end.get();
        entries.push(ZoneEntry {
            generation: entry.generation.get(),
            end: (end != END_NOT_RECORDED).then_some(Blocks(end)),
        });
    }
    Some((ZoneId(raw.first.get()), entries))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::super::golden_file;
    use super::*;

    #[test]
    fn version_1_reads_as_it_was_written() {
        let entry = |generation, end| ZoneEntry { generation, end };
        let entries = [entry(1, None), entry(u64::MAX, Some(Blocks(56))), entry(3, Some(Blocks::ZERO))];
        let golden = golden_file("zones-v1.bin", &encode(ZoneId(7), &entries));
        assert_eq!(decode(&golden), Some((ZoneId(7), entries.to_vec())));
        assert_eq!(encode(ZoneId(7), &entries), golden);
    }

    #[test]
    fn the_higher_generation_counts() {
        let mut zone = ZoneEntry { generation: 4, end: Some(Blocks(9)) };
        zone.merge(ZoneEntry { generation: 3, end: Some(Blocks(1)) });
        zone.merge(ZoneEntry { generation: 4, end: None });
        assert_eq!(zone, ZoneEntry { generation: 4, end: Some(Blocks(9)) });
        zone.merge(ZoneEntry { generation: 4, end: Some(ZoneEntry::END_OF_FAILED_ZONE) });
        zone.merge(ZoneEntry { generation: 4, end: Some(Blocks(10)) });
        assert!(zone.is_failed_zone());
        zone.merge(ZoneEntry { generation: 5, end: None });
        assert_eq!(zone, ZoneEntry { generation: 5, end: None });
        zone.merge(ZoneEntry { generation: 5, end: Some(Blocks(2)) });
        assert_eq!(zone.end, Some(Blocks(2)));
    }

    proptest! {
        #[test]
        fn any_bytes_give_entries_or_nothing(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
            let _total = decode(&bytes);
        }
    }
}
