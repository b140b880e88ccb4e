//! The payload of a frames record: which blocks of zones were written together (ADR 0022).
//!
//! | offset | size | field | meaning |
//! |---|---|---|---|
//! | 0 | 4 | count | number of frames |
//! | 4 | 4 | reserved | zero |
//! | 8 | 32 each | frames | see below |
//! | then | | parity | rows of partial parity, as a record of partial parity holds them; none if the header's `start` is its `end` |
//!
//! A frame:
//!
//! | offset | size | field | meaning |
//! |---|---|---|---|
//! | 0 | 4 | zone | the logical zone |
//! | 4 | 4 | crc | CRC32C of the content of the blocks; 0 in a mark |
//! | 8 | 8 | generation | generation of the zone |
//! | 16 | 8 | start | first block, from the start of the zone |
//! | 24 | 8 | end | one past the last |
//!
//! A frame with `start` = `end` is a *mark*: all writes of the zone below `end` were acknowledged, and a write begins there.

use units::{Blocks, ZoneId};
use zerocopy::little_endian::{U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use super::header;

/// Bytes of the payload before its frames.
const FIXED_BYTES: usize = 8;
/// Bytes of a frame.
const FRAME_BYTES: usize = 32;

/// The blocks of one write, or a mark.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Frame {
    pub zone: ZoneId,
    pub generation: u64,
    pub start: Blocks,
    pub end: Blocks,
    /// CRC32C of the content of the blocks; 0 in a mark.
    pub crc: u32,
}

#[derive(FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned, Clone)]
#[repr(C)]
struct RawFrame {
    zone: U32,
    crc: U32,
    generation: U64,
    start: U64,
    end: U64,
}

const _: () = assert!(size_of::<RawFrame>() == FRAME_BYTES);

impl Frame {
    /// A mark: a write of the zone begins at `at`, and all writes below were acknowledged.
    pub(crate) fn mark(zone: ZoneId, generation: u64, at: Blocks) -> Frame {
        Frame { zone, generation, start: at, end: at, crc: 0 }
    }

    /// True if the frame is a mark.
    pub(crate) fn is_mark(&self) -> bool {
        self.start == self.end
    }
}

/// The number of frames that fit one block beside the header: as many fit behind the rows of partial parity, which are whole
/// blocks, without another block.
pub(crate) fn per_block(block_size: u32) -> usize {
    (block_size as usize).saturating_sub(header::SIZE + FIXED_BYTES) / FRAME_BYTES
}

/// The most blocks that marks of `zones` zones take.
pub(crate) fn mark_blocks(zones: u32, block_size: u32) -> u64 {
    u64::from(zones).div_ceil(per_block(block_size).max(1) as u64)
}

/// Encodes the payload, up to the rows of parity.
pub(crate) fn encode(frames: &[Frame]) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(FIXED_BYTES + frames.len() * FRAME_BYTES);
    bytes.extend_from_slice(&u32::try_from(frames.len()).expect("a block of frames").to_le_bytes());
    bytes.extend_from_slice(&[0; 4]);
    for frame in frames {
        let raw = RawFrame {
            zone: frame.zone.0.into(),
            crc: frame.crc.into(),
            generation: frame.generation.into(),
            start: frame.start.0.into(),
            end: frame.end.0.into(),
        };
        bytes.extend_from_slice(raw.as_bytes());
    }
    bytes
}

/// Decodes the payload; also returns the bytes before the rows of parity. `None` if the payload is too short.
pub(crate) fn decode(payload: &[u8]) -> Option<(Vec<Frame>, usize)> {
    let (count, rest) = U32::read_from_prefix(payload).ok()?;
    let bytes = usize::try_from(count.get()).ok()?.checked_mul(FRAME_BYTES)?;
    let list = rest.get(FIXED_BYTES - size_of::<U32>()..)?.get(..bytes)?;
    let frame = |raw: &[u8]| {
        let (raw, _) = RawFrame::read_from_prefix(raw).ok()?;
        Some(Frame {
            zone: ZoneId(raw.zone.get()),
            generation: raw.generation.get(),
            start: Blocks(raw.start.get()),
            end: Blocks(raw.end.get()),
            crc: raw.crc.get(),
        })
    };
    let frames: Option<Vec<Frame>> = list.chunks_exact(FRAME_BYTES).map(frame).collect();
    Some((frames?, FIXED_BYTES + bytes))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_block_is_filled_by_its_frames() {
        assert_eq!([512, 4096].map(per_block), [11, 123]);
        for block in [512, 4096] {
            let frames = vec![Frame::mark(ZoneId(1), 2, Blocks(3)); per_block(block)];
            let left = block as usize - header::SIZE - encode(&frames).len();
            assert!(left < FRAME_BYTES, "{left}");
        }
    }

    proptest! {
        #[test]
        fn any_bytes_give_frames_or_nothing(bytes in proptest::collection::vec(any::<u8>(), 0..400), count in 0_u32..12) {
            let _total = decode(&bytes);
            let with_count = [&count.to_le_bytes()[..], &[0; 4], &bytes].concat();
            if let Some((frames, used)) = decode(&with_count) {
                prop_assert_eq!(frames.len(), count as usize);
                prop_assert_eq!(encode(&frames), &with_count[..used]);
            }
        }
    }
}
