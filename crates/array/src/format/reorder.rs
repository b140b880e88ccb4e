//! The payload of a reorder record: corrected partial parity of a stripe whose appends landed in another order than submitted.
//!
//! | offset | size | field | meaning |
//! |---|---|---|---|
//! | 0 | 8 | above | older records of partial parity of the stripe, in the same log, do not count if their end is above this block |
//! | 8 | 8 | reserved | zero |
//! | 16 | | parity | rows of partial parity of the header's `start..end`, as a record of partial parity holds them |
//!
//! A record is older if its sequence number is lower: the records of a log may lie in another order than they were submitted in.

use units::Blocks;
use zerocopy::little_endian::U64;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

/// Bytes of the payload before the rows of parity.
pub(crate) const FIXED_BYTES: usize = 16;

#[derive(FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned, Clone)]
#[repr(C)]
struct RawReorder {
    above: U64,
    reserved: [u8; 8],
}

const _: () = assert!(size_of::<RawReorder>() == FIXED_BYTES);

/// Encodes the payload, up to the rows of parity.
pub(crate) fn encode(above: Blocks) -> Vec<u8> {
    RawReorder { above: above.0.into(), reserved: [0; 8] }.as_bytes().to_vec()
}

/// Decodes the payload up to the rows of parity, which begin at [`FIXED_BYTES`].
pub(crate) fn decode(payload: &[u8]) -> Option<Blocks> {
    let (raw, _) = RawReorder::read_from_prefix(payload).ok()?;
    Some(Blocks(raw.above.get()))
}
