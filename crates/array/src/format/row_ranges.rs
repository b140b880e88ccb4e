//! The payloads of three records: stale rows, bad rows, and the copy of a physical zone.
//!
//! A record of *stale rows* lists rows of a drive's physical zone that hold dead data:
//!
//! | offset | size | field | meaning |
//! |---|---|---|---|
//! | 0 | 4 | count | ranges |
//! | 4 | 4 | flags | bit 0: the physical zone was rewritten, and the relocated content of older records is in place |
//! | 8 | 8 | reserved | zero |
//! | 16 | 16 each | ranges | first row (8), one past the last (8); disjoint, ascending |
//!
//! A record of *bad rows* has the same payload without flags. Its ranges are rows of the drive's physical zone that a
//! rebuild could not reconstruct. The newest record of a zone's generation counts, also one without ranges.
//!
//! A record of a *zone copy* says that the metadata zone `zone` holds a copy of the first rows of a physical zone (the
//! header's `end` counts them), from which that physical zone is being rewritten:
//!
//! | offset | size | field | meaning |
//! |---|---|---|---|
//! | 0 | 4 | zone | the metadata zone with the copy |
//! | 4 | 4 | reserved | zero |
//! | 8 | 8 | mask | XORed into the first eight bytes of each block of the copy, so that no block has a record's magic |

use std::ops::Range;

use crate::layout::row_set::RowSet;
use units::ZoneId;
use zerocopy::little_endian::{U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

/// Bytes of a payload of stale or bad rows before its ranges.
const FIXED_BYTES: usize = 16;
/// Bytes of a range.
const RANGE_BYTES: usize = 16;
/// Flag of a record of stale rows: the physical zone was rewritten.
const REWRITTEN_FLAG: u32 = 1;

#[derive(FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned, Clone)]
#[repr(C)]
struct Raw {
    count: U32,
    flags: U32,
    reserved: U64,
}

#[derive(FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned, Clone)]
#[repr(C)]
struct RawRange {
    start: U64,
    end: U64,
}

#[derive(FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned, Clone)]
#[repr(C)]
struct RawCopy {
    zone: U32,
    reserved: U32,
    mask: U64,
}

const _: () = assert!(size_of::<Raw>() == FIXED_BYTES);
const _: () = assert!(size_of::<RawRange>() == RANGE_BYTES);
const _: () = assert!(size_of::<RawCopy>() == 16);

/// The payload of a record of stale or bad rows.
pub(crate) fn encode(rows: &RowSet, rewritten: bool) -> Vec<u8> {
    encode_ranges(rows.ranges(), rewritten)
}

fn encode_ranges(ranges: &[Range<u64>], rewritten: bool) -> Vec<u8> {
    let count = u32::try_from(ranges.len()).expect("a few ranges").into();
    let flags = if rewritten { REWRITTEN_FLAG } else { 0 }.into();
    let mut bytes = Raw { count, flags, reserved: 0.into() }.as_bytes().to_vec();
    for range in ranges {
        bytes.extend_from_slice(RawRange { start: range.start.into(), end: range.end.into() }.as_bytes());
    }
    bytes
}

/// Decodes the payload of a record of stale or bad rows: the rows, and whether the physical zone was rewritten.
pub(crate) fn decode(payload: &[u8]) -> Option<(RowSet, bool)> {
    let (raw, mut rest) = Raw::read_from_prefix(payload).ok()?;
    let count = raw.count.get() as usize;
    if count.checked_mul(RANGE_BYTES)? > rest.len() {
        return None;
    }
    let mut rows = RowSet::default();
    for _ in 0..count {
        let (range, left) = RawRange::read_from_prefix(rest).ok()?;
        rest = left;
        let range = range.start.get()..range.end.get();
        if range.start < rows.end() || range.start >= range.end {
            return None;
        }
        rows.insert(range);
    }
    Some((rows, raw.flags.get() & REWRITTEN_FLAG != 0))
}

/// The payload of the record of a zone copy.
pub(crate) fn encode_copy(zone: ZoneId, mask: u64) -> Vec<u8> {
    RawCopy { zone: zone.0.into(), reserved: 0.into(), mask: mask.into() }.as_bytes().to_vec()
}

/// Decodes the payload of the record of a zone copy: the metadata zone and the mask.
pub(crate) fn decode_copy(payload: &[u8]) -> Option<(ZoneId, u64)> {
    let (raw, _) = RawCopy::read_from_prefix(payload).ok()?;
    Some((ZoneId(raw.zone.get()), raw.mask.get()))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::super::golden_file;
    use super::*;

    #[test]
    fn version_1_reads_as_it_was_written() {
        let rows: RowSet = [3..9, 16..17, 40..u64::MAX].into_iter().collect();
        let fresh = encode(&rows, true);
        let golden_rows = golden_file("hidden-v1.bin", &fresh);
        assert_eq!(decode(&golden_rows), Some((rows, true)));
        assert_eq!(fresh, golden_rows);
        let fresh = encode_copy(ZoneId(2), 0x0123_4567_89ab_cdef);
        let golden_copy = golden_file("swap-v1.bin", &fresh);
        assert_eq!(decode_copy(&golden_copy), Some((ZoneId(2), 0x0123_4567_89ab_cdef)));
        assert_eq!(fresh, golden_copy);
    }

    #[test]
    fn bad_rows_read_as_they_were_written_in_version_1() {
        let rows: RowSet = [0..1, 7..9].into_iter().collect();
        let fresh = encode(&rows, false);
        let golden_rows = golden_file("lost-v1.bin", &fresh);
        assert_eq!(decode(&golden_rows), Some((rows, false)));
        assert_eq!(fresh, golden_rows);
    }

    #[test]
    fn ranges_that_overlap_are_refused() {
        for ranges in [[3..9, 8..10], [3..3, 4..5], [9..10, 3..4]] {
            assert_eq!(decode(&encode_ranges(&ranges, false)), None, "{ranges:?}");
        }
    }

    proptest! {
        #[test]
        fn any_bytes_give_ranges_or_nothing(bytes in proptest::collection::vec(any::<u8>(), 0..120)) {
            let _total = (decode(&bytes), decode_copy(&bytes));
        }
    }
}
