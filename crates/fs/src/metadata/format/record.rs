//! The records of the metadata log. All numbers are little-endian; every structure is a multiple of 8 bytes,
//! followed by what the last column says.
//!
//! | kind | record | bytes | fields in order (size) | then |
//! |---|---|---|---|---|
//! | 1 | Counters | 16 | next_ino (8), next_generation (8) | |
//! | 2 | Inode | 32 | ino (8), size (8), modified_ms (8), kind (1), lifetime (1), zero (6) | |
//! | 3 | Create | 32 | ino (8), parent (8), modified_ms (8), kind (1), lifetime (1), name length (2), zero (4) | name |
//! | 4 | Link | 24 | ino (8), parent (8), name length (2), zero (6) | name |
//! | 5 | Unlink | 16 | parent (8), name length (2), zero (6) | name |
//! | 6 | Rename | 24 | from parent (8), to parent (8), from length (2), to length (2), zero (4) | both names |
//! | 7 | Extents | 40 | ino (8), from (8), size (8), modified_ms (8), count (4), zero (4) | extents |
//! | 8 | Remap | 16 | ino (8), count (4), zero (4) | extents |
//! | 9 | Segment | 40 | ino (8), generation (8), start (8), end (8), zone (4), zero (4) | |
//! | 10 | Cut | 32 | ino (8), sequence (8), offset (8), epoch (4), zero (4) | |
//! | 11 | Seal | 48 | ino (8), size (8), next_sequence (8), last_end (8), modified_ms (8), segments (4), zero (4) | |
//! | 12 | End | 8 | records of the snapshot before this one (8) | |
//! | 13 | Epoch | 32 | ino (8), first (8), settled (8), epoch (4), zero (4) | |
//! | 14 | Retire | 24 | ino (8), below (8), segments (4), zero (4) | |
//! | 15 | Trim | 24 | ino (8), end (8), segment (4), zero (4) | |
//!
//! An extent is file offset (8), bytes (8), first block within the zone (8), zone (4), zero (4).
//!
//! - Create, Link and Rename: also replace the file that the name referred to before, so the change is atomic.
//! - Extents: from offset `from` on, the content of the file is in these extents, and the file's length is `size`.
//! - Remap: the content at the offsets of these extents has moved to the extents.
//! - Segment: adds a segment to a log.
//! - Cut: begins an epoch of an ordered log. Seal ends the epoch: the log keeps its first `segments` segments, the last of
//!   which ends at block `last_end`.
//! - End: completes a snapshot.
//! - Epoch: begins an epoch of a parallel log at ticket `first`; recovery of the epoch before stopped at ticket `settled`.
//! - Retire: tickets of a parallel log below `below`, and the log's first `segments` segments, are not needed.
//! - Trim: segment number `segment` of a parallel log, counted from the front, ends at block `end`; an empty segment is removed.
//! - Counters: no later record uses an inode or a generation below these. A record that raises `next_generation` is durable
//!   before a zone is written under a generation below it, so a zone can be written before its Segment record is durable.

use units::{Blocks, ZoneId};
use zerocopy::little_endian::{U16, U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use crate::files::extents::Extent;
use crate::metadata::format::frame::MAX_PAYLOAD;
use crate::options::{FileKind, Lifetime};
use crate::wal::parallel::ticket::Epoch;
use crate::wal::segment::Segment;

/// The longest name in bytes.
pub(crate) const MAX_NAME: usize = 255;
/// The most extents in one record: the record fits into a frame.
pub(crate) const MAX_EXTENTS: usize = 96;

const _: () = assert!(size_of::<RawExtents>() + MAX_EXTENTS * size_of::<RawExtent>() <= MAX_PAYLOAD);
const _: () = assert!(size_of::<RawRename>() + 2 * MAX_NAME <= MAX_PAYLOAD);

/// One change of the metadata.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Record {
    Counters { next_ino: u64, next_generation: u64 },
    Inode { ino: u64, size: u64, modified_ms: u64, kind: FileKind, lifetime: Lifetime },
    Create { ino: u64, parent: u64, modified_ms: u64, kind: FileKind, lifetime: Lifetime, name: String },
    Link { ino: u64, parent: u64, name: String },
    Unlink { parent: u64, name: String },
    Rename { from_parent: u64, to_parent: u64, from: String, to: String },
    Extents { ino: u64, from: u64, size: u64, modified_ms: u64, extents: Vec<Extent> },
    Remap { ino: u64, extents: Vec<Extent> },
    Segment { ino: u64, segment: Segment },
    Cut { ino: u64, sequence: u64, offset: u64, epoch: u32 },
    Seal { ino: u64, size: u64, next_sequence: u64, last_end: Blocks, modified_ms: u64, segments: u32 },
    End { count: u64 },
    Epoch { ino: u64, epoch: Epoch },
    Retire { ino: u64, below: u64, segments: u32 },
    Trim { ino: u64, segment: u32, end: Blocks },
}

macro_rules! raw {
    ($($(#[$doc:meta])* $name:ident = $size:literal { $($field:ident: $ty:ty),* $(,)? })*) => {$(
        #[derive(FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned, Clone, Copy)]
        #[repr(C)]
        struct $name { $($field: $ty),* }
        const _: () = assert!(size_of::<$name>() == $size);
    )*};
}

raw! {
    RawCounters = 16 { next_ino: U64, next_generation: U64 }
    RawInode = 32 { ino: U64, size: U64, modified_ms: U64, kind: u8, lifetime: u8, zero: [u8; 6] }
    RawCreate = 32 { ino: U64, parent: U64, modified_ms: U64, kind: u8, lifetime: u8, len: U16, zero: [u8; 4] }
    RawLink = 24 { ino: U64, parent: U64, len: U16, zero: [u8; 6] }
    RawUnlink = 16 { parent: U64, len: U16, zero: [u8; 6] }
    RawRename = 24 { from_parent: U64, to_parent: U64, from_len: U16, to_len: U16, zero: [u8; 4] }
    RawExtents = 40 { ino: U64, from: U64, size: U64, modified_ms: U64, count: U32, zero: [u8; 4] }
    RawRemap = 16 { ino: U64, count: U32, zero: [u8; 4] }
    RawExtent = 32 { offset: U64, bytes: U64, start: U64, zone: U32, zero: [u8; 4] }
    RawSegment = 40 { ino: U64, generation: U64, start: U64, end: U64, zone: U32, zero: [u8; 4] }
    RawCut = 32 { ino: U64, sequence: U64, offset: U64, epoch: U32, zero: [u8; 4] }
    RawSeal = 48 { ino: U64, size: U64, next_sequence: U64, last_end: U64, modified_ms: U64, segments: U32, zero: [u8; 4] }
    RawEnd = 8 { count: U64 }
    RawEpoch = 32 { ino: U64, first: U64, settled: U64, epoch: U32, zero: [u8; 4] }
    RawRetire = 24 { ino: U64, below: U64, segments: U32, zero: [u8; 4] }
    RawTrim = 24 { ino: U64, end: U64, segment: U32, zero: [u8; 4] }
}

fn kind_byte(kind: FileKind) -> u8 {
    match kind {
        FileKind::Data => 1,
        FileKind::Log => 2,
        FileKind::Directory => 3,
        FileKind::ParallelLog => 4,
    }
}

fn kind_of(byte: u8) -> Option<FileKind> {
    [FileKind::Data, FileKind::Log, FileKind::Directory, FileKind::ParallelLog]
        .into_iter()
        .find(|k| kind_byte(*k) == byte)
}

/// The number of a lifetime on the device. The difference of two numbers is the distance between two lifetimes.
pub(crate) fn lifetime_byte(lifetime: Lifetime) -> u8 {
    match lifetime {
        Lifetime::NotSet => 0,
        Lifetime::None => 1,
        Lifetime::Short => 2,
        Lifetime::Medium => 3,
        Lifetime::Long => 4,
        Lifetime::Extreme => 5,
    }
}

fn lifetime_of(byte: u8) -> Lifetime {
    use Lifetime as L;
    // A lifetime is a hint: an unknown one does not refuse the file.
    [L::None, L::Short, L::Medium, L::Long, L::Extreme]
        .into_iter()
        .find(|l| lifetime_byte(*l) == byte)
        .unwrap_or_default()
}

fn short(name: &str) -> U16 {
    u16::try_from(name.len()).expect("names are checked against MAX_NAME").into()
}

fn put_extents(out: &mut Vec<u8>, extents: &[Extent]) {
    for e in extents {
        let raw = RawExtent {
            offset: e.offset.into(),
            bytes: e.bytes.into(),
            start: e.start.0.into(),
            zone: e.zone.0.into(),
            zero: [0; 4],
        };
        out.extend_from_slice(raw.as_bytes());
    }
}

fn take_extents(mut rest: &[u8], count: u32) -> Option<Vec<Extent>> {
    if count as usize > MAX_EXTENTS {
        return None;
    }
    let mut extents = Vec::with_capacity(count as usize);
    for _ in 0..count {
        let (raw, after) = RawExtent::read_from_prefix(rest).ok()?;
        rest = after;
        extents.push(Extent {
            offset: raw.offset.get(),
            bytes: raw.bytes.get(),
            start: Blocks(raw.start.get()),
            zone: ZoneId(raw.zone.get()),
        });
    }
    Some(extents)
}

fn take_name(rest: &[u8], len: U16) -> Option<String> {
    let bytes = rest.get(..usize::from(len.get()))?;
    let name = std::str::from_utf8(bytes).ok()?;
    (!name.is_empty() && name.len() <= MAX_NAME).then(|| name.to_owned())
}

fn count(of: &[Extent]) -> U32 {
    assert!(of.len() <= MAX_EXTENTS, "extents are split over records");
    u32::try_from(of.len()).expect("bounded above").into()
}

impl Record {
    /// The record's number in its frame.
    pub(crate) fn kind(&self) -> u16 {
        match self {
            Record::Counters { .. } => 1,
            Record::Inode { .. } => 2,
            Record::Create { .. } => 3,
            Record::Link { .. } => 4,
            Record::Unlink { .. } => 5,
            Record::Rename { .. } => 6,
            Record::Extents { .. } => 7,
            Record::Remap { .. } => 8,
            Record::Segment { .. } => 9,
            Record::Cut { .. } => 10,
            Record::Seal { .. } => 11,
            Record::End { .. } => 12,
            Record::Epoch { .. } => 13,
            Record::Retire { .. } => 14,
            Record::Trim { .. } => 15,
        }
    }

    /// True if the record points to data, which must be durable before the record is written.
    pub(crate) fn points_to_data(&self) -> bool {
        match self {
            Record::Extents { extents, .. } | Record::Remap { extents, .. } => !extents.is_empty(),
            Record::Seal { .. } => true,
            _ => false,
        }
    }

    /// Appends the payload to `out`.
    pub(crate) fn encode(&self, out: &mut Vec<u8>) {
        match self {
            &Record::Counters { next_ino, next_generation } => {
                let raw = RawCounters { next_ino: next_ino.into(), next_generation: next_generation.into() };
                out.extend_from_slice(raw.as_bytes());
            }
            &Record::Inode { ino, size, modified_ms, kind, lifetime } => {
                let (kind, lifetime, zero) = (kind_byte(kind), lifetime_byte(lifetime), [0; 6]);
                let (ino, size, modified_ms) = (ino.into(), size.into(), modified_ms.into());
                out.extend_from_slice(RawInode { ino, size, modified_ms, kind, lifetime, zero }.as_bytes());
            }
            Record::Create { ino, parent, modified_ms, kind, lifetime, name } => {
                let (kind, lifetime, len, zero) =
                    (kind_byte(*kind), lifetime_byte(*lifetime), short(name), [0; 4]);
                let (ino, parent, modified_ms) = ((*ino).into(), (*parent).into(), (*modified_ms).into());
                let raw = RawCreate { ino, parent, modified_ms, kind, lifetime, len, zero };
                out.extend_from_slice(raw.as_bytes());
                out.extend_from_slice(name.as_bytes());
            }
            Record::Link { ino, parent, name } => {
                let raw =
                    RawLink { ino: (*ino).into(), parent: (*parent).into(), len: short(name), zero: [0; 6] };
                out.extend_from_slice(raw.as_bytes());
                out.extend_from_slice(name.as_bytes());
            }
            Record::Unlink { parent, name } => {
                let raw = RawUnlink { parent: (*parent).into(), len: short(name), zero: [0; 6] };
                out.extend_from_slice(raw.as_bytes());
                out.extend_from_slice(name.as_bytes());
            }
            Record::Rename { from_parent, to_parent, from, to } => {
                let (from_parent, to_parent) = ((*from_parent).into(), (*to_parent).into());
                let (from_len, to_len, zero) = (short(from), short(to), [0; 4]);
                let raw = RawRename { from_parent, to_parent, from_len, to_len, zero };
                out.extend_from_slice(raw.as_bytes());
                out.extend_from_slice(from.as_bytes());
                out.extend_from_slice(to.as_bytes());
            }
            Record::Extents { ino, from, size, modified_ms, extents } => {
                let (ino, from, size) = ((*ino).into(), (*from).into(), (*size).into());
                let (modified_ms, count, zero) = ((*modified_ms).into(), count(extents), [0; 4]);
                out.extend_from_slice(RawExtents { ino, from, size, modified_ms, count, zero }.as_bytes());
                put_extents(out, extents);
            }
            Record::Remap { ino, extents } => {
                let raw = RawRemap { ino: (*ino).into(), count: count(extents), zero: [0; 4] };
                out.extend_from_slice(raw.as_bytes());
                put_extents(out, extents);
            }
            Record::Segment { ino, segment } => {
                let raw = RawSegment {
                    ino: (*ino).into(),
                    generation: segment.generation.into(),
                    start: segment.start.0.into(),
                    end: segment.end.0.into(),
                    zone: segment.zone.0.into(),
                    zero: [0; 4],
                };
                out.extend_from_slice(raw.as_bytes());
            }
            &Record::Cut { ino, sequence, offset, epoch } => {
                let (ino, sequence, offset) = (ino.into(), sequence.into(), offset.into());
                let raw = RawCut { ino, sequence, offset, epoch: epoch.into(), zero: [0; 4] };
                out.extend_from_slice(raw.as_bytes());
            }
            &Record::Seal { ino, size, next_sequence, last_end, modified_ms, segments } => {
                let raw = RawSeal {
                    ino: ino.into(),
                    size: size.into(),
                    next_sequence: next_sequence.into(),
                    last_end: last_end.0.into(),
                    modified_ms: modified_ms.into(),
                    segments: segments.into(),
                    zero: [0; 4],
                };
                out.extend_from_slice(raw.as_bytes());
            }
            &Record::End { count } => out.extend_from_slice(RawEnd { count: count.into() }.as_bytes()),
            &Record::Epoch { ino, epoch: Epoch { epoch, first, settled } } => {
                let (ino, first, settled) = (ino.into(), first.into(), settled.into());
                let raw = RawEpoch { ino, first, settled, epoch: epoch.into(), zero: [0; 4] };
                out.extend_from_slice(raw.as_bytes());
            }
            &Record::Retire { ino, below, segments } => {
                let (ino, below, segments) = (ino.into(), below.into(), segments.into());
                out.extend_from_slice(RawRetire { ino, below, segments, zero: [0; 4] }.as_bytes());
            }
            &Record::Trim { ino, segment, end } => {
                let (ino, segment, end) = (ino.into(), segment.into(), end.0.into());
                out.extend_from_slice(RawTrim { ino, end, segment, zero: [0; 4] }.as_bytes());
            }
        }
    }

    /// Decodes a record; `None` where the bytes are no record of this kind.
    pub(crate) fn decode(kind: u16, payload: &[u8]) -> Option<Record> {
        fn raw<T: FromBytes + KnownLayout + Immutable>(payload: &[u8]) -> Option<(T, &[u8])> {
            T::read_from_prefix(payload).ok()
        }
        Some(match kind {
            1 => {
                let (r, _) = raw::<RawCounters>(payload)?;
                Record::Counters { next_ino: r.next_ino.get(), next_generation: r.next_generation.get() }
            }
            2 => {
                let (r, _) = raw::<RawInode>(payload)?;
                let (kind, lifetime) = (kind_of(r.kind)?, lifetime_of(r.lifetime));
                Record::Inode {
                    ino: r.ino.get(),
                    size: r.size.get(),
                    modified_ms: r.modified_ms.get(),
                    kind,
                    lifetime,
                }
            }
            3 => {
                let (r, rest) = raw::<RawCreate>(payload)?;
                let (kind, lifetime, name) =
                    (kind_of(r.kind)?, lifetime_of(r.lifetime), take_name(rest, r.len)?);
                let (ino, parent, modified_ms) = (r.ino.get(), r.parent.get(), r.modified_ms.get());
                Record::Create { ino, parent, modified_ms, kind, lifetime, name }
            }
            4 => {
                let (r, rest) = raw::<RawLink>(payload)?;
                Record::Link { ino: r.ino.get(), parent: r.parent.get(), name: take_name(rest, r.len)? }
            }
            5 => {
                let (r, rest) = raw::<RawUnlink>(payload)?;
                Record::Unlink { parent: r.parent.get(), name: take_name(rest, r.len)? }
            }
            6 => {
                let (r, rest) = raw::<RawRename>(payload)?;
                let from = take_name(rest, r.from_len)?;
                let to = take_name(rest.get(from.len()..)?, r.to_len)?;
                Record::Rename { from_parent: r.from_parent.get(), to_parent: r.to_parent.get(), from, to }
            }
            7 => {
                let (r, rest) = raw::<RawExtents>(payload)?;
                let extents = take_extents(rest, r.count.get())?;
                let (ino, from, size) = (r.ino.get(), r.from.get(), r.size.get());
                Record::Extents { ino, from, size, modified_ms: r.modified_ms.get(), extents }
            }
            8 => {
                let (r, rest) = raw::<RawRemap>(payload)?;
                Record::Remap { ino: r.ino.get(), extents: take_extents(rest, r.count.get())? }
            }
            9 => {
                let (r, _) = raw::<RawSegment>(payload)?;
                let segment = Segment {
                    zone: ZoneId(r.zone.get()),
                    generation: r.generation.get(),
                    start: Blocks(r.start.get()),
                    end: Blocks(r.end.get()),
                };
                Record::Segment { ino: r.ino.get(), segment }
            }
            10 => {
                let (r, _) = raw::<RawCut>(payload)?;
                let (ino, sequence, offset) = (r.ino.get(), r.sequence.get(), r.offset.get());
                Record::Cut { ino, sequence, offset, epoch: r.epoch.get() }
            }
            11 => {
                let (r, _) = raw::<RawSeal>(payload)?;
                Record::Seal {
                    ino: r.ino.get(),
                    size: r.size.get(),
                    next_sequence: r.next_sequence.get(),
                    last_end: Blocks(r.last_end.get()),
                    modified_ms: r.modified_ms.get(),
                    segments: r.segments.get(),
                }
            }
            12 => Record::End { count: raw::<RawEnd>(payload)?.0.count.get() },
            13 => {
                let (r, _) = raw::<RawEpoch>(payload)?;
                let (first, settled) = (r.first.get(), r.settled.get());
                Record::Epoch { ino: r.ino.get(), epoch: Epoch { epoch: r.epoch.get(), first, settled } }
            }
            14 => {
                let (r, _) = raw::<RawRetire>(payload)?;
                Record::Retire { ino: r.ino.get(), below: r.below.get(), segments: r.segments.get() }
            }
            15 => {
                let (r, _) = raw::<RawTrim>(payload)?;
                Record::Trim { ino: r.ino.get(), segment: r.segment.get(), end: Blocks(r.end.get()) }
            }
            _ => return None,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn samples() -> Vec<Record> {
        let extent = |n: u64| Extent { offset: n << 20, bytes: 4096, start: Blocks(n), zone: ZoneId(7) };
        let segment = Segment { zone: ZoneId(9), generation: 11, start: Blocks(3), end: Blocks(14) };
        let (kind, lifetime) = (FileKind::Log, Lifetime::Medium);
        vec![
            Record::Counters { next_ino: 5, next_generation: 6 },
            Record::Inode {
                ino: 2,
                size: 3,
                modified_ms: 4,
                kind: FileKind::Data,
                lifetime: Lifetime::Extreme,
            },
            Record::Create { ino: 2, parent: 1, modified_ms: 9, kind, lifetime, name: "000005.log".into() },
            Record::Link { ino: 2, parent: 1, name: "second".into() },
            Record::Unlink { parent: 1, name: "second".into() },
            Record::Rename {
                from_parent: 1,
                to_parent: 3,
                from: "000001.dbtmp".into(),
                to: "CURRENT".into(),
            },
            Record::Extents {
                ino: 2,
                from: 0,
                size: 8000,
                modified_ms: 8,
                extents: vec![extent(0), extent(1)],
            },
            Record::Remap { ino: 2, extents: vec![extent(5)] },
            Record::Segment { ino: 4, segment },
            Record::Cut { ino: 4, sequence: 100, offset: 12345, epoch: 2 },
            Record::Seal {
                ino: 4,
                size: 9,
                next_sequence: 3,
                last_end: Blocks(8),
                modified_ms: 1,
                segments: 2,
            },
            Record::End { count: 11 },
        ]
    }

    /// The records of parallel logs, which have a golden file of their own.
    fn parallel() -> Vec<Record> {
        let (kind, lifetime) = (FileKind::ParallelLog, Lifetime::Short);
        vec![
            Record::Create { ino: 9, parent: 1, modified_ms: 9, kind, lifetime, name: "log".into() },
            Record::Epoch { ino: 9, epoch: Epoch { epoch: 3, first: 1000, settled: 990 } },
            Record::Retire { ino: 9, below: 995, segments: 2 },
            Record::Trim { ino: 9, segment: 1, end: Blocks(77) },
        ]
    }

    fn encoded(records: &[Record]) -> Vec<u8> {
        let mut out = Vec::new();
        for record in records {
            let mut payload = Vec::new();
            record.encode(&mut payload);
            out.extend_from_slice(&record.kind().to_le_bytes());
            out.extend_from_slice(&u16::try_from(payload.len()).unwrap().to_le_bytes());
            out.extend_from_slice(&payload);
        }
        out
    }

    #[test]
    fn golden_records_decode_and_encode_to_the_same_bytes() {
        check_golden("records-v1.bin", &samples());
        check_golden("records-parallel-v1.bin", &parallel());
    }

    fn check_golden(file: &str, samples: &[Record]) {
        let golden = crate::metadata::format::golden(file, &encoded(samples));
        let mut read = Vec::new();
        let mut rest = &*golden;
        while let [k0, k1, l0, l1, after @ ..] = rest {
            let len = usize::from(u16::from_le_bytes([*l0, *l1]));
            read.push(
                Record::decode(u16::from_le_bytes([*k0, *k1]), &after[..len]).expect("a golden record"),
            );
            rest = &after[len..];
        }
        assert_eq!(read, samples);
        assert_eq!(encoded(&read), golden);
    }

    #[test]
    fn a_payload_that_is_cut_short_is_refused() {
        for record in samples().into_iter().chain(parallel()) {
            let mut payload = Vec::new();
            record.encode(&mut payload);
            for len in 0..payload.len() {
                assert_eq!(Record::decode(record.kind(), &payload[..len]), None, "{record:?} cut to {len}");
            }
        }
    }

    proptest! {
        #[test]
        fn any_bytes_give_a_record_or_nothing(kind in 0_u16..20, bytes in prop::collection::vec(any::<u8>(), 0..200)) {
            let _ = Record::decode(kind, &bytes);
        }
    }
}
