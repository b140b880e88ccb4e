//! The frame: header and payload of one record of the metadata log.
//!
//! | offset | size | field | meaning |
//! |---|---|---|---|
//! | 0 | 4 | length | bytes of the payload |
//! | 4 | 2 | kind | type of the record; 0 is padding up to the next block |
//! | 6 | 2 | reserved | zero |
//! | 8 | 8 | sequence | counts the records of the epoch |
//! | 16 | 4 | crc | CRC32C of UUID, epoch, nonce, the scrambled sequence, this header with this field zero, payload |
//! | 20 | 4 | open | how many records right before this one were not known to be durable when it was submitted |
//! | 24 | length | payload | see `record` |
//!
//! The checksum covers SplitMix64 of the sequence (8 bytes), so that the XOR of three frames is no valid frame: see
//! [`units::scrambled`].
//!
//! The records before the `open` ones were durable. If the log ends before such a record, the medium is damaged: a power cut
//! does not remove durable records. All ones in `open` means unknown.
//!
//! Frames begin at multiples of 8 bytes. A commit begins at a block; the rest of the commit's last block is zero.

use zerocopy::little_endian::{U16, U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use units::scrambled;

use crate::metadata::format::crc32c;
use crate::metadata::format::header::Header;

/// Bytes of a frame before its payload.
pub(crate) const SIZE: usize = 24;
/// The longest payload of a frame in bytes: a frame fits into any zone.
pub(crate) const MAX_PAYLOAD: usize = 4096;
const ALIGN: usize = 8;

#[derive(FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned, Clone)]
#[repr(C)]
struct Raw {
    length: U32,
    kind: U16,
    reserved: U16,
    sequence: U64,
    crc: U32,
    open: U32,
}

const _: () = assert!(size_of::<Raw>() == SIZE);

/// UUID, epoch and nonce of a metadata epoch: the checksum of a frame covers them.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Binding([u8; 32]);

impl Binding {
    /// The UUID, epoch and nonce that the zone header `header` gives for frames' checksums.
    pub(crate) fn of(header: &Header) -> Binding {
        let mut bytes = [0; 32];
        let (uuid, rest) = bytes.split_at_mut(16);
        uuid.copy_from_slice(header.uuid.as_bytes());
        let (epoch, nonce) = rest.split_at_mut(8);
        epoch.copy_from_slice(&header.epoch.to_le_bytes());
        nonce.copy_from_slice(&header.nonce.to_le_bytes());
        Binding(bytes)
    }
}

/// The bytes of a frame with this payload, header included.
pub(crate) fn length(payload: usize) -> usize {
    (SIZE + payload).next_multiple_of(ALIGN)
}

/// Appends a frame to `out`. `durable`: every metadata record below this sequence is known to be durable.
pub(crate) fn encode(
    out: &mut Vec<u8>,
    binding: &Binding,
    kind: u16,
    (sequence, durable): (u64, u64),
    payload: &[u8],
) {
    assert!(payload.len() <= MAX_PAYLOAD && kind != 0, "a record fits into its frame");
    let mut raw = Raw {
        length: u32::try_from(payload.len()).expect("bounded above").into(),
        kind: kind.into(),
        reserved: 0.into(),
        sequence: sequence.into(),
        crc: 0.into(),
        open: u32::try_from(sequence.saturating_sub(durable)).unwrap_or(u32::MAX).into(),
    };
    raw.crc = checksum(&raw, payload, binding).into();
    out.extend_from_slice(raw.as_bytes());
    out.extend_from_slice(payload);
    out.resize(out.len().next_multiple_of(ALIGN), 0);
}

/// A frame read from the metadata log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Frame<'a> {
    pub kind: u16,
    pub payload: &'a [u8],
}

/// The longest frame.
pub(crate) const MAX_FRAME: usize = (SIZE + MAX_PAYLOAD).next_multiple_of(ALIGN);

/// The frame with this `sequence` at byte `at` of `bytes`, or behind the padding at `at`, and the offset behind the frame.
/// `bytes` begins at a block boundary. `None` at the end of the log: neither padding nor the frame is at `at`.
pub(crate) fn next<'a>(
    bytes: &'a [u8],
    at: usize,
    block: usize,
    binding: &Binding,
    sequence: u64,
) -> Option<(Frame<'a>, usize)> {
    let next_block = at.next_multiple_of(block);
    let found = |at: usize| {
        let frame = frame_at(bytes, at, binding, sequence)?;
        Some((frame, at + length(frame.payload.len())))
    };
    found(at).or_else(|| {
        let padding = bytes.get(at..next_block)?;
        if padding.iter().any(|b| *b != 0) { None } else { found(next_block) }
    })
}

fn frame_at<'a>(bytes: &'a [u8], at: usize, binding: &Binding, sequence: u64) -> Option<Frame<'a>> {
    let (raw, after) = Raw::read_from_prefix(bytes.get(at..)?).ok()?;
    let payload = after.get(..raw.length.get() as usize)?;
    let good = raw.sequence.get() == sequence && is_good(&raw, payload, binding);
    good.then_some(Frame { kind: raw.kind.get(), payload })
}

fn is_good(raw: &Raw, payload: &[u8], binding: &Binding) -> bool {
    let mut unsigned = raw.clone();
    unsigned.crc = 0.into();
    raw.kind.get() != 0
        && payload.len() <= MAX_PAYLOAD
        && checksum(&unsigned, payload, binding) == raw.crc.get()
}

/// The checksum of a frame; `unsigned` is the frame's header with checksum 0.
fn checksum(unsigned: &Raw, payload: &[u8], binding: &Binding) -> u32 {
    crc32c(&[&binding.0, &scrambled(&[unsigned.sequence.get()]), unsigned.as_bytes(), payload])
}

/// The number of metadata records that were durable when the frame at the start of `bytes` was submitted;
/// `None` if no frame of the epoch begins there. The frame may have any sequence.
pub(crate) fn proven(bytes: &[u8], binding: &Binding) -> Option<u64> {
    let (raw, after) = Raw::read_from_prefix(bytes).ok()?;
    let payload = after.get(..raw.length.get() as usize)?;
    if raw.open.get() == u32::MAX || !is_good(&raw, payload, binding) {
        return None;
    }
    Some(raw.sequence.get().saturating_sub(raw.open.get().into()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use uuid::Uuid;

    fn header(epoch: u64) -> Header {
        Header { uuid: Uuid::from_u128(1), epoch, nonce: 3, index: 0, first_sequence: 0 }
    }

    fn zone(epoch: u64) -> Vec<u8> {
        let binding = Binding::of(&header(epoch));
        let mut bytes = vec![0; 512];
        encode(&mut bytes, &binding, 1, (0, 0), b"one");
        encode(&mut bytes, &binding, 2, (1, 0), &[7; 600]);
        bytes.resize(bytes.len().next_multiple_of(512), 0);
        encode(&mut bytes, &binding, 3, (2, 2), b"three");
        bytes.resize(bytes.len().next_multiple_of(512), 0);
        bytes
    }

    fn read(bytes: &[u8], epoch: u64, first: u64) -> (Vec<(u16, usize)>, usize) {
        let (mut at, mut frames) = (512, Vec::new());
        while let Some((f, end)) =
            next(bytes, at, 512, &Binding::of(&header(epoch)), first + frames.len() as u64)
        {
            frames.push((f.kind, f.payload.len()));
            at = end;
        }
        (frames, at.next_multiple_of(512))
    }

    #[test]
    fn frames_come_back_in_order_across_padding() {
        let bytes = zone(1);
        assert_eq!(read(&bytes, 1, 0), (vec![(1, 3), (2, 600), (3, 5)], bytes.len()));
    }

    #[test]
    fn frames_of_another_epoch_or_out_of_sequence_are_refused() {
        let bytes = zone(1);
        assert_eq!(read(&bytes, 2, 0).0, []);
        assert_eq!(read(&bytes, 1, 1).0, []);
    }

    #[test]
    fn the_xor_of_three_frames_is_no_frame() {
        let binding = Binding::of(&header(1));
        let frame = |sequence: u64| {
            let mut bytes = Vec::new();
            encode(&mut bytes, &binding, 2, (sequence, sequence - 2), &sequence.to_le_bytes());
            bytes
        };
        assert_eq!(proven(&frame(48), &binding), Some(46));
        let [mut xor, second, third] = [48, 52, 56].map(frame);
        xor.iter_mut().zip(second.iter().zip(third)).for_each(|(to, (a, b))| *to ^= a ^ b);
        assert_eq!(Raw::read_from_prefix(&xor).unwrap().0.sequence.get(), 60, "the next sequence");
        assert_eq!(proven(&xor, &binding), None);
        assert_eq!(next(&xor, 0, 512, &binding, 60), None);
    }

    #[test]
    fn a_torn_frame_ends_the_log_before_it() {
        let mut bytes = zone(1);
        bytes[1024] ^= 1;
        assert_eq!(read(&bytes, 1, 0), (vec![(1, 3)], 1024));
    }

    #[test]
    fn a_frame_proves_which_records_before_it_were_durable() {
        let (bytes, binding) = (zone(1), Binding::of(&header(1)));
        let proven_by: Vec<_> =
            bytes.chunks(512).enumerate().map(|(n, _)| proven(&bytes[n * 512..], &binding)).collect();
        assert_eq!(proven_by, [None, Some(0), None, Some(2)]);
        assert_eq!(proven(&bytes[3 * 512..], &Binding::of(&header(2))), None);
    }

    proptest::proptest! {
        #[test]
        fn any_bytes_give_a_frame_or_nothing(bytes in proptest::collection::vec(0_u8.., 0..3000), at in 0_usize..3000) {
            let _ = next(&bytes, at, 512, &Binding::of(&header(1)), 0);
            let _ = proven(bytes.get(at..).unwrap_or_default(), &Binding::of(&header(1)));
            let _ = Header::decode(&bytes);
            let _ = super::super::superblock::decode(&bytes);
        }
    }
}
