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

use crate::files::extents::Extent;
use crate::metadata::format::frame::MAX_PAYLOAD;
use crate::options::{FileKind, Lifetime};
use crate::wal::parallel::ticket::Epoch;
use crate::wal::segment::Segment;

/// The longest file name in bytes.
pub(crate) const MAX_NAME: usize = 255;
/// The most extents in one metadata record: the record fits into a frame.
pub(crate) const MAX_EXTENTS: usize = 96;

/// Bytes of a metadata record before its names and extents, by kind: the third column of the table at the top
/// of the file.
const FIELDS: [usize; 16] = [0, 16, 32, 32, 24, 16, 24, 40, 16, 40, 32, 48, 8, 32, 24, 24];
/// Bytes of an extent.
const EXTENT: usize = 32;

const _: () = assert!(FIELDS[7] + MAX_EXTENTS * EXTENT <= MAX_PAYLOAD);
const _: () = assert!(FIELDS[6] + 2 * MAX_NAME <= MAX_PAYLOAD);

/// A metadata record: one change of the metadata.
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

fn kind_byte(kind: FileKind) -> u8 {
    match kind {
        FileKind::Data => 1,
        FileKind::Log => 2,
        FileKind::Directory => 3,
        FileKind::ParallelLog => 4,
    }
}

fn kind_from_byte(byte: u8) -> Option<FileKind> {
    [FileKind::Data, FileKind::Log, FileKind::Directory, FileKind::ParallelLog]
        .into_iter()
        .find(|k| kind_byte(*k) == byte)
}

fn lifetime_from_byte(byte: u8) -> Lifetime {
    use Lifetime as L;
    // A file's lifetime is a hint: an unknown lifetime does not refuse the file.
    [L::None, L::Short, L::Medium, L::Long, L::Extreme]
        .into_iter()
        .find(|l| l.number() == byte)
        .unwrap_or_default()
}

/// Appends little-endian fields to a record's payload.
struct Put<'a>(&'a mut Vec<u8>);

impl Put<'_> {
    fn bytes(self, bytes: &[u8]) -> Self {
        self.0.extend_from_slice(bytes);
        self
    }

    fn u64(self, number: u64) -> Self {
        self.bytes(&number.to_le_bytes())
    }

    fn u32(self, number: u32) -> Self {
        self.bytes(&number.to_le_bytes())
    }

    fn kind(self, kind: FileKind, lifetime: Lifetime) -> Self {
        self.bytes(&[kind_byte(kind), lifetime.number()])
    }

    fn length(self, name: &str) -> Self {
        let length = u16::try_from(name.len()).expect("names are checked against MAX_NAME");
        self.bytes(&length.to_le_bytes())
    }

    fn zeros<const N: usize>(self) -> Self {
        self.bytes(&[0; N])
    }

    /// Appends the number of extents, and the extents.
    fn extents(self, extents: &[Extent]) {
        assert!(extents.len() <= MAX_EXTENTS, "extents are split over records");
        let put = self.u32(u32::try_from(extents.len()).expect("bounded above")).zeros::<4>();
        extents
            .iter()
            .fold(put, |put, e| put.u64(e.offset).u64(e.bytes).u64(e.start.0).u32(e.zone.0).zeros::<4>());
    }
}

/// Takes little-endian fields from a record's payload; each gives `None` at the end of the payload.
struct FieldReader<'a>(&'a [u8]);

impl FieldReader<'_> {
    fn bytes<const N: usize>(&mut self) -> Option<[u8; N]> {
        let (bytes, rest) = self.0.split_first_chunk()?;
        self.0 = rest;
        Some(*bytes)
    }

    fn u64(&mut self) -> Option<u64> {
        self.bytes().map(u64::from_le_bytes)
    }

    fn u32(&mut self) -> Option<u32> {
        self.bytes().map(u32::from_le_bytes)
    }

    fn u16(&mut self) -> Option<u16> {
        self.bytes().map(u16::from_le_bytes)
    }

    fn kind(&mut self) -> Option<FileKind> {
        kind_from_byte(u8::from_le_bytes(self.bytes()?))
    }

    fn lifetime(&mut self) -> Option<Lifetime> {
        self.bytes().map(|byte| lifetime_from_byte(u8::from_le_bytes(byte)))
    }

    fn blocks(&mut self) -> Option<Blocks> {
        self.u64().map(Blocks)
    }

    fn name(&mut self, length: u16) -> Option<String> {
        let (bytes, rest) = self.0.split_at_checked(length.into())?;
        self.0 = rest;
        let name = std::str::from_utf8(bytes).ok()?;
        (!name.is_empty() && name.len() <= MAX_NAME).then(|| name.to_owned())
    }

    fn extents(&mut self, count: u32) -> Option<Vec<Extent>> {
        let mut extent = || {
            let (offset, bytes, start) = (self.u64()?, self.u64()?, self.blocks()?);
            let zone = ZoneId(self.u32()?);
            self.u32().map(|_| Extent { offset, bytes, start, zone })
        };
        (count as usize <= MAX_EXTENTS).then(|| (0..count).map(|_| extent()).collect())?
    }
}

impl Record {
    /// The record's kind as stored in its frame.
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

    /// True if the metadata record points to file data, which must be durable before the record is written.
    pub(crate) fn points_to_data(&self) -> bool {
        match self {
            Record::Extents { extents, .. } | Record::Remap { extents, .. } => !extents.is_empty(),
            Record::Seal { .. } => true,
            _ => false,
        }
    }

    /// Appends the record's payload to `out`.
    pub(crate) fn encode(&self, out: &mut Vec<u8>) {
        let put = Put(out);
        match self {
            Record::Counters { next_ino, next_generation } => {
                put.u64(*next_ino).u64(*next_generation);
            }
            Record::Inode { ino, size, modified_ms, kind, lifetime } => {
                put.u64(*ino).u64(*size).u64(*modified_ms).kind(*kind, *lifetime).zeros::<6>();
            }
            Record::Create { ino, parent, modified_ms, kind, lifetime, name } => {
                let put = put.u64(*ino).u64(*parent).u64(*modified_ms).kind(*kind, *lifetime);
                put.length(name).zeros::<4>().bytes(name.as_bytes());
            }
            Record::Link { ino, parent, name } => {
                put.u64(*ino).u64(*parent).length(name).zeros::<6>().bytes(name.as_bytes());
            }
            Record::Unlink { parent, name } => {
                put.u64(*parent).length(name).zeros::<6>().bytes(name.as_bytes());
            }
            Record::Rename { from_parent, to_parent, from, to } => {
                let put = put.u64(*from_parent).u64(*to_parent).length(from).length(to).zeros::<4>();
                put.bytes(from.as_bytes()).bytes(to.as_bytes());
            }
            Record::Extents { ino, from, size, modified_ms, extents } => {
                put.u64(*ino).u64(*from).u64(*size).u64(*modified_ms).extents(extents);
            }
            Record::Remap { ino, extents } => put.u64(*ino).extents(extents),
            Record::Segment { ino, segment: Segment { zone, generation, start, end } } => {
                put.u64(*ino).u64(*generation).u64(start.0).u64(end.0).u32(zone.0).zeros::<4>();
            }
            Record::Cut { ino, sequence, offset, epoch } => {
                put.u64(*ino).u64(*sequence).u64(*offset).u32(*epoch).zeros::<4>();
            }
            Record::Seal { ino, size, next_sequence, last_end, modified_ms, segments } => {
                let put = put.u64(*ino).u64(*size).u64(*next_sequence).u64(last_end.0).u64(*modified_ms);
                put.u32(*segments).zeros::<4>();
            }
            Record::End { count } => {
                put.u64(*count);
            }
            Record::Epoch { ino, epoch: Epoch { epoch, first, settled } } => {
                put.u64(*ino).u64(*first).u64(*settled).u32(*epoch).zeros::<4>();
            }
            Record::Retire { ino, below, segments } => {
                put.u64(*ino).u64(*below).u32(*segments).zeros::<4>();
            }
            Record::Trim { ino, segment, end } => {
                put.u64(*ino).u64(end.0).u32(*segment).zeros::<4>();
            }
        }
    }

    /// Decodes the payload of a record of this kind; `None` if the bytes are no such payload.
    pub(crate) fn decode(kind: u16, payload: &[u8]) -> Option<Record> {
        let (fields, rest) = payload.split_at_checked(*FIELDS.get(usize::from(kind))?)?;
        let (mut take, mut rest) = (FieldReader(fields), FieldReader(rest));
        let ino = if matches!(kind, 2..=4 | 7..=11 | 13..=15) { take.u64()? } else { 0 };
        // The decoder takes the fields of each record in the order of the bytes.
        Some(match kind {
            1 => Record::Counters { next_ino: take.u64()?, next_generation: take.u64()? },
            2 => {
                let (size, modified_ms) = (take.u64()?, take.u64()?);
                Record::Inode { ino, size, modified_ms, kind: take.kind()?, lifetime: take.lifetime()? }
            }
            3 => {
                let (parent, modified_ms) = (take.u64()?, take.u64()?);
                let (kind, lifetime, name) = (take.kind()?, take.lifetime()?, rest.name(take.u16()?)?);
                Record::Create { ino, parent, modified_ms, kind, lifetime, name }
            }
            4 => Record::Link { ino, parent: take.u64()?, name: rest.name(take.u16()?)? },
            5 => Record::Unlink { parent: take.u64()?, name: rest.name(take.u16()?)? },
            6 => {
                let (from_parent, to_parent) = (take.u64()?, take.u64()?);
                let (from, to) = (rest.name(take.u16()?)?, rest.name(take.u16()?)?);
                Record::Rename { from_parent, to_parent, from, to }
            }
            7 => {
                let (from, size, modified_ms) = (take.u64()?, take.u64()?, take.u64()?);
                Record::Extents { ino, from, size, modified_ms, extents: rest.extents(take.u32()?)? }
            }
            8 => Record::Remap { ino, extents: rest.extents(take.u32()?)? },
            9 => {
                let (generation, start, end) = (take.u64()?, take.blocks()?, take.blocks()?);
                Record::Segment {
                    ino,
                    segment: Segment { zone: ZoneId(take.u32()?), generation, start, end },
                }
            }
            10 => Record::Cut { ino, sequence: take.u64()?, offset: take.u64()?, epoch: take.u32()? },
            11 => {
                let (size, next_sequence, last_end) = (take.u64()?, take.u64()?, take.blocks()?);
                let (modified_ms, segments) = (take.u64()?, take.u32()?);
                Record::Seal { ino, size, next_sequence, last_end, modified_ms, segments }
            }
            12 => Record::End { count: take.u64()? },
            13 => {
                let (first, settled) = (take.u64()?, take.u64()?);
                Record::Epoch { ino, epoch: Epoch { epoch: take.u32()?, first, settled } }
            }
            14 => Record::Retire { ino, below: take.u64()?, segments: take.u32()? },
            15 => Record::Trim { ino, end: take.blocks()?, segment: take.u32()? },
            _ => return None,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn sample_records() -> Vec<Record> {
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

    /// The metadata records of parallel logs, which have a golden file of their own.
    fn parallel_log_records() -> Vec<Record> {
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
        check_golden("records-v1.bin", &sample_records());
        check_golden("records-parallel-v1.bin", &parallel_log_records());
    }

    fn check_golden(file: &str, sample_records: &[Record]) {
        let golden = crate::metadata::format::golden(file, &encoded(sample_records));
        let mut read = Vec::new();
        let mut rest = &*golden;
        while let [k0, k1, l0, l1, after @ ..] = rest {
            let len = usize::from(u16::from_le_bytes([*l0, *l1]));
            read.push(
                Record::decode(u16::from_le_bytes([*k0, *k1]), &after[..len]).expect("a golden record"),
            );
            rest = &after[len..];
        }
        assert_eq!(read, sample_records);
        assert_eq!(encoded(&read), golden);
    }

    #[test]
    fn a_payload_that_is_cut_short_is_refused() {
        for record in sample_records().into_iter().chain(parallel_log_records()) {
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
