//! The payload of a hidden record: rows of a drive's physical zone that hold what was never acknowledged.
//!
//! | offset | size | field | meaning |
//! |---|---|---|---|
//! | 0 | 4 | count | ranges |
//! | 4 | 4 | flags | bit 0: the zone was rebuilt, what older records have relocated is in its place |
//! | 8 | 8 | reserved | zero |
//! | 16 | 16 each | ranges | first row (8), one past the last (8); disjoint, in order |
//!
//! The payload of a lost record is the same, with no flags: rows of the drive's physical zone that were rebuilt of nothing, as
//! another drive could not read its part. They read as if the drive could not read them. The newest record of a zone's
//! generation counts, also one without ranges.
//!
//! And of a swap record, which says that the metadata zone `swap` holds a whole copy of the rows of a physical zone
//! (the header's `end` counts them), from which that zone is being written anew:
//!
//! | offset | size | field | meaning |
//! |---|---|---|---|
//! | 0 | 4 | swap | the metadata zone |
//! | 4 | 4 | reserved | zero |
//! | 8 | 8 | mask | combined by exclusive or with the first eight bytes of each block there, so that none looks like a record |

use std::ops::Range;

use units::ZoneId;
use zerocopy::little_endian::{U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

/// Bytes before the ranges.
const FIXED: usize = 16;
/// Bytes of a range.
const RANGE: usize = 16;
/// The zone was rebuilt.
const REBUILT: u32 = 1;

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
struct RawSwap {
    swap: U32,
    reserved: U32,
    mask: U64,
}

const _: () = assert!(size_of::<Raw>() == FIXED);
const _: () = assert!(size_of::<RawRange>() == RANGE);
const _: () = assert!(size_of::<RawSwap>() == 16);

/// The payload of a hidden record.
pub(crate) fn encode(ranges: &[Range<u64>], rebuilt: bool) -> Vec<u8> {
    let count = u32::try_from(ranges.len()).expect("a few ranges").into();
    let flags = if rebuilt { REBUILT } else { 0 }.into();
    let mut bytes = Raw { count, flags, reserved: 0.into() }.as_bytes().to_vec();
    for range in ranges {
        bytes.extend_from_slice(RawRange { start: range.start.into(), end: range.end.into() }.as_bytes());
    }
    bytes
}

/// Reads the payload of a hidden record.
pub(crate) fn decode(payload: &[u8]) -> Option<(Vec<Range<u64>>, bool)> {
    let (raw, mut rest) = Raw::read_from_prefix(payload).ok()?;
    let count = raw.count.get() as usize;
    if count.checked_mul(RANGE)? > rest.len() {
        return None;
    }
    let mut ranges: Vec<Range<u64>> = Vec::with_capacity(count);
    for _ in 0..count {
        let (range, left) = RawRange::read_from_prefix(rest).ok()?;
        rest = left;
        let range = range.start.get()..range.end.get();
        let after = ranges.last().map_or(0, |last| last.end);
        if range.start < after || range.start >= range.end {
            return None;
        }
        ranges.push(range);
    }
    Some((ranges, raw.flags.get() & REBUILT != 0))
}

/// The payload of a swap record.
pub(crate) fn encode_swap(swap: ZoneId, mask: u64) -> Vec<u8> {
    RawSwap { swap: swap.0.into(), reserved: 0.into(), mask: mask.into() }.as_bytes().to_vec()
}

/// Reads the payload of a swap record.
pub(crate) fn decode_swap(payload: &[u8]) -> Option<(ZoneId, u64)> {
    let (raw, _) = RawSwap::read_from_prefix(payload).ok()?;
    Some((ZoneId(raw.swap.get()), raw.mask.get()))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::super::golden;
    use super::*;

    #[test]
    fn version_1_reads_as_it_was_written() {
        let ranges = [3..9, 16..17, 40..u64::MAX];
        let fresh = encode(&ranges, true);
        let golden_hidden = golden("hidden-v1.bin", &fresh);
        assert_eq!(decode(&golden_hidden), Some((ranges.to_vec(), true)));
        assert_eq!(fresh, golden_hidden);
        let fresh = encode_swap(ZoneId(2), 0x0123_4567_89ab_cdef);
        let golden_swap = golden("swap-v1.bin", &fresh);
        assert_eq!(decode_swap(&golden_swap), Some((ZoneId(2), 0x0123_4567_89ab_cdef)));
        assert_eq!(fresh, golden_swap);
    }

    #[test]
    fn lost_rows_read_as_they_were_written_in_version_1() {
        let ranges = [0..1, 7..9];
        let fresh = encode(&ranges, false);
        let golden_lost = golden("lost-v1.bin", &fresh);
        assert_eq!(decode(&golden_lost), Some((ranges.to_vec(), false)));
        assert_eq!(fresh, golden_lost);
    }

    #[test]
    fn ranges_that_overlap_are_refused() {
        for ranges in [[3..9, 8..10], [3..3, 4..5], [9..10, 3..4]] {
            assert_eq!(decode(&encode(&ranges, false)), None, "{ranges:?}");
        }
    }

    proptest! {
        #[test]
        fn any_bytes_give_ranges_or_nothing(bytes in proptest::collection::vec(any::<u8>(), 0..120)) {
            let _total = (decode(&bytes), decode_swap(&bytes));
        }
    }
}
