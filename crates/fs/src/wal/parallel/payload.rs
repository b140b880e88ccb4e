//! The payload of an entry of a parallel log: one or more records, each with a ticket of its own.
//!
//! | offset | size | field |
//! |---|---|---|
//! | 0 | 4 | count: records in the entry, from 1; their tickets count up from the header's sequence |
//! | 4 | | if the header's flag `known` is set: the list of [known](super::known) tickets |
//! | | 4 | length of the first record |
//! | | length | its bytes; then the next record's length, and so on |
//!
//! All numbers are little-endian. An entry longer than one append has several parts; their payloads, joined in order, are the
//! table's bytes. The payload of a void entry is the count alone.

use units::Bytes;
use zoned::{Buf, BufMut};

use crate::wal::entry::{EntryHeader, HEADER_SIZE, Home, MAX_PART};
use crate::wal::parallel::known::Known;

/// Bytes of the payload's count field, and of a record's length field.
pub(crate) const COUNT_BYTES: usize = 4;

/// Bytes of the longest record: the length fits in 32 bits, also with the fields around the record.
pub(crate) const MAX_RECORD: Bytes = Bytes(1 << 31);

/// The fewest payload bytes in a part of a striped entry: shorter parts waste more of their last blocks and
/// need more commands.
const MIN_STRIPED_PART_BYTES: usize = 12 << 10;

/// Bytes of an entry's payload that carries records of these lengths.
pub(crate) fn payload_len(records: impl Iterator<Item = usize>) -> usize {
    records.fold(COUNT_BYTES, |sum, len| sum + COUNT_BYTES + len)
}

/// The number of records in an entry, from the start of its payload; `None` if no writer writes such a start.
pub(crate) fn count(payload: &[u8]) -> Option<u32> {
    payload.first_chunk().map(|bytes| u32::from_le_bytes(*bytes)).filter(|count| *count > 0)
}

/// The sizes that decide how an entry's payload is split into parts.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct PartSizes {
    pub(crate) block_size: usize,
    /// Blocks of the longest append.
    pub(crate) longest: u64,
}

impl PartSizes {
    pub(crate) fn new(block_size: u32, longest: u64) -> PartSizes {
        let block_size = block_size as usize;
        PartSizes { block_size, longest: longest.clamp(1, (MAX_PART / block_size) as u64) }
    }

    /// Payload bytes in the longest part of an entry.
    pub(crate) fn room(&self) -> usize {
        usize::try_from(self.longest).expect("bounded by MAX_PART") * self.block_size - HEADER_SIZE
    }

    /// Splits a payload of `len` bytes into parts of the greatest length.
    pub(crate) fn whole(&self, len: usize) -> Parts {
        Parts { len, first: self.room(), room: self.room() }
    }

    /// As [`whole`](PartSizes::whole), but the first part has at most `left` blocks: it fills the last blocks
    /// of a zone.
    pub(crate) fn filling(&self, len: usize, left: u64) -> Parts {
        let whole = self.whole(len);
        let left = usize::try_from(left).unwrap_or(usize::MAX);
        let first = left.saturating_mul(self.block_size).saturating_sub(HEADER_SIZE);
        if first < COUNT_BYTES { whole } else { Parts { first: first.min(whole.first), ..whole } }
    }

    /// Splits a payload into at most `zones` parts of equal length, one for each zone of a stripe. A payload that is too
    /// short is split as by [`whole`](PartSizes::whole).
    pub(crate) fn striped(&self, len: usize, zones: usize) -> Parts {
        let whole = self.whole(len);
        let each = len.div_ceil(zones.max(1));
        if zones < 2 || each < MIN_STRIPED_PART_BYTES {
            return whole;
        }
        let blocks = usize::try_from(self.blocks(each)).unwrap_or(usize::MAX);
        let room = blocks.saturating_mul(self.block_size).saturating_sub(HEADER_SIZE).min(whole.room);
        Parts { len, first: room, room }
    }

    /// Blocks of an entry's part with `length` bytes of payload.
    pub(crate) fn blocks(&self, length: usize) -> u64 {
        (HEADER_SIZE + length).div_ceil(self.block_size) as u64
    }
}

/// A payload that is split into parts. All parts but the first and the last have the same length.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Parts {
    len: usize,
    first: usize,
    room: usize,
}

impl Parts {
    /// The number of parts of the payload; `None` if it does not fit in the header's field.
    pub(crate) fn count(&self) -> Option<u16> {
        u16::try_from(1 + self.len.saturating_sub(self.first).div_ceil(self.room)).ok()
    }

    /// Bytes of payload before part number `part`.
    pub(crate) fn skip(&self, part: u16) -> usize {
        match part {
            0 => 0,
            part => self.first + (usize::from(part) - 1) * self.room,
        }
    }

    /// Bytes of payload in part number `part`.
    pub(crate) fn length(&self, part: u16) -> usize {
        let most = if part == 0 { self.first } else { self.room };
        self.len.saturating_sub(self.skip(part)).min(most)
    }
}

/// The blocks of an entry's part: the header and `header.length` bytes of the payload of `records`, from
/// payload offset `skip` on.
pub(crate) fn seal(
    header: EntryHeader,
    known: &Known,
    records: &[&[u8]],
    skip: usize,
    home: &Home,
    block_size: usize,
) -> Buf {
    let mut data = BufMut::with_capacity(header.total().next_multiple_of(block_size));
    data.resize(HEADER_SIZE, 0);
    let mut fill = ByteRangeCopy { data: &mut data, skip, left: header.length as usize };
    fill.put(&u32::try_from(records.len()).expect("an entry has few records").to_le_bytes());
    fill.put(known.bytes());
    for record in records {
        fill.put(&u32::try_from(record.len()).expect("checked against MAX_RECORD").to_le_bytes());
        fill.put(record);
    }
    data.resize(header.total().next_multiple_of(block_size), 0);
    header.seal(&mut data, home, block_size);
    data.freeze()
}

/// Records of several callers that share one entry.
#[derive(Debug)]
pub(crate) struct Joined {
    /// The entry's bytes: room for the header and the count, then the records.
    data: BufMut,
    capacity: usize,
    count: u32,
}

impl Joined {
    /// An entry without records yet. `expected`: the expected bytes of payload.
    pub(crate) fn new(expected: usize, block_size: usize) -> Joined {
        let capacity = (HEADER_SIZE + expected.max(1)).next_multiple_of(block_size);
        let mut data = BufMut::with_capacity(capacity);
        data.resize(HEADER_SIZE + COUNT_BYTES, 0);
        Joined { data, capacity, count: 0 }
    }

    /// Adds a record to the entry; returns its number within the entry.
    pub(crate) fn push(&mut self, record: &[u8], block_size: usize) -> u32 {
        let len = self.data.len() + COUNT_BYTES + record.len();
        if len > self.capacity {
            // The entry's buffer is not grown in place: that would lose its alignment.
            self.capacity = len.max(2 * self.capacity).next_multiple_of(block_size);
            let mut longer = BufMut::with_capacity(self.capacity);
            longer.extend_from_slice(&self.data);
            self.data = longer;
        }
        let number = u32::try_from(record.len()).expect("checked against the room of an entry");
        self.data.extend_from_slice(&number.to_le_bytes());
        self.data.extend_from_slice(record);
        self.count += 1;
        self.count - 1
    }

    /// Puts the list of known tickets before the entry's records, once all records are added.
    pub(crate) fn know(&mut self, known: &Known, block_size: usize) {
        if known.bytes().is_empty() {
            return;
        }
        let len = self.data.len() + known.bytes().len();
        self.capacity = self.capacity.max(len.next_multiple_of(block_size));
        let mut data = BufMut::with_capacity(self.capacity);
        let (head, records) = self.data.split_at(HEADER_SIZE + COUNT_BYTES);
        for piece in [head, known.bytes(), records] {
            data.extend_from_slice(piece);
        }
        self.data = data;
    }

    pub(crate) fn count(&self) -> u32 {
        self.count
    }

    /// Bytes of payload.
    pub(crate) fn len(&self) -> usize {
        self.data.len() - HEADER_SIZE
    }

    /// The blocks of an entry's part: the header and `header.length` bytes of the payload, from payload
    /// offset `skip` on. The only part of an entry takes the records without a copy: `self` is empty
    /// afterwards.
    pub(crate) fn seal(&mut self, header: EntryHeader, skip: usize, home: &Home, block_size: usize) -> Buf {
        if let Some(place) = self.data.get_mut(HEADER_SIZE..HEADER_SIZE + COUNT_BYTES) {
            place.copy_from_slice(&self.count.to_le_bytes());
        }
        let size = header.total().next_multiple_of(block_size);
        let mut data = if header.parts == 1 {
            std::mem::replace(&mut self.data, BufMut::with_capacity(0))
        } else {
            let mut part = BufMut::with_capacity(size);
            part.resize(HEADER_SIZE, 0);
            let from = HEADER_SIZE + skip;
            part.extend_from_slice(self.data.get(from..from + header.length as usize).unwrap_or_default());
            part
        };
        data.resize(size, 0);
        header.seal(&mut data, home, block_size);
        data.freeze()
    }
}

/// The blocks of a void entry of `count` tickets, or of padding.
pub(crate) fn seal_empty(
    header: EntryHeader,
    count: u32,
    blocks: u64,
    home: &Home,
    block_size: usize,
) -> Buf {
    let mut data = BufMut::zeroed(usize::try_from(blocks).expect("bounded by MAX_PART") * block_size);
    if let Some(place) = data.get_mut(HEADER_SIZE..HEADER_SIZE + COUNT_BYTES) {
        place.copy_from_slice(&count.to_le_bytes());
    }
    header.seal(&mut data, home, block_size);
    data.freeze()
}

/// Copies a byte range of the concatenation of several pieces.
struct ByteRangeCopy<'a> {
    data: &'a mut BufMut,
    skip: usize,
    left: usize,
}

impl ByteRangeCopy<'_> {
    fn put(&mut self, piece: &[u8]) {
        let from = piece.get(self.skip..).unwrap_or_default();
        self.skip = self.skip.saturating_sub(piece.len());
        let take = from.get(..self.left).unwrap_or(from);
        self.data.extend_from_slice(take);
        self.left -= take.len();
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use units::ZoneId;
    use uuid::Uuid;

    use super::*;
    use crate::wal::entry::decode;

    const BLOCK: u32 = 512;

    fn home() -> Home {
        Home { uuid: Uuid::from_bytes(*b"0123456789abcdef"), zone: ZoneId(7) }
    }

    fn header(sequence: u64, length: usize, (part, parts): (u16, u16)) -> EntryHeader {
        EntryHeader {
            padding: false,
            odd: false,
            void: false,
            known: false,
            rewritten: false,
            log: 12,
            generation: 42,
            sequence,
            needs: sequence - 2,
            epoch: 3,
            part,
            parts,
            length: u32::try_from(length).unwrap(),
            mask: 0,
            open: 4,
            crc: 0,
        }
    }

    #[test]
    fn the_golden_entries_decode_and_encode_to_the_same_bytes() {
        let sizes = PartSizes::new(BLOCK, 2);
        let long = vec![7_u8; 1200];
        let (mut bytes, none) = (Vec::new(), Known::default());
        // The entries of the golden file: two records in one entry, one record in two parts, a void of three
        // tickets, padding, a record that lists two runs of known tickets.
        let two: [&[u8]; 2] = [b"first", b"second"];
        let len = payload_len(two.iter().map(|r| r.len()));
        bytes.extend_from_slice(&seal(header(9, len, (0, 1)), &none, &two, 0, &home(), BLOCK as usize));
        let len = payload_len(std::iter::once(long.len()));
        let cut = sizes.whole(len);
        assert_eq!(cut.count(), Some(2));
        for part in 0..2_u16 {
            let header = header(11, cut.length(part), (part, 2));
            bytes.extend_from_slice(&seal(header, &none, &[&long], cut.skip(part), &home(), BLOCK as usize));
        }
        let void = EntryHeader { void: true, ..header(12, COUNT_BYTES, (0, 1)) };
        bytes.extend_from_slice(&seal_empty(void, 3, 1, &home(), BLOCK as usize));
        let padding = EntryHeader { padding: true, ..header(15, 2 * BLOCK as usize - HEADER_SIZE, (0, 1)) };
        bytes.extend_from_slice(&seal_empty(padding, 0, 2, &home(), BLOCK as usize));
        let known = Known::of(14, &[(15, 16), (200, 260)]).unwrap();
        let len = payload_len(std::iter::once(4)) + known.bytes().len();
        let knows = EntryHeader { known: true, ..header(16, len, (0, 1)) };
        bytes.extend_from_slice(&seal(knows, &known, &[b"last"], 0, &home(), BLOCK as usize));
        let golden = crate::metadata::format::golden("parallel-entries-v2.bin", &bytes);
        assert_eq!(bytes, golden);
        let (found, payload) = decode(&golden, &home(), BLOCK).unwrap();
        assert_eq!((found.sequence, found.needs, found.proven(), found.void), (9, 7, 5, false));
        assert_eq!(payload, b"\x02\0\0\0\x05\0\0\0first\x06\0\0\0second");
        let (found, first) = decode(&golden[512..], &home(), BLOCK).unwrap();
        let (_, second) = decode(&golden[512 + 1024..], &home(), BLOCK).unwrap();
        assert_eq!((found.sequence, found.parts, count(&first)), (11, 2, Some(1)));
        assert_eq!([first, second].concat()[2 * COUNT_BYTES..], long);
        let (found, payload) = decode(&golden[512 + 1024 + 512..], &home(), BLOCK).unwrap();
        assert!(found.void && !found.padding && count(&payload) == Some(3));
        assert!(decode(&golden[512 + 1024 + 512 + 512..], &home(), BLOCK).unwrap().0.padding);
        let (found, payload) = decode(&golden[512 + 1024 + 512 + 512 + 1024..], &home(), BLOCK).unwrap();
        assert!(
            found.known && payload == b"\x01\0\0\0\x05\0\x01\x01\xb8\x01\x3c\x04\0\0\0last",
            "{payload:?}"
        );
    }

    #[test]
    fn records_that_are_joined_make_the_same_entry_as_records_that_are_sealed_together() {
        let records = [&b"first"[..], b"", &[7; 700], b"last"];
        for (expected, known) in
            [0, 2000].into_iter().flat_map(|e| [(e, Known::default()), (e, Known::of(7, &[(8, 9)]).unwrap())])
        {
            let mut joined = Joined::new(expected, BLOCK as usize);
            for (place, record) in (0..).zip(records) {
                assert_eq!(joined.push(record, BLOCK as usize), place);
            }
            joined.know(&known, BLOCK as usize);
            let len = payload_len(records.iter().map(|r| r.len())) + known.bytes().len();
            assert_eq!((joined.len(), joined.count()), (len, 4));
            let sizes = PartSizes::new(BLOCK, if expected == 0 { 4 } else { 1 });
            let cut = sizes.whole(len);
            let parts = cut.count().unwrap();
            assert_eq!(parts, if expected == 0 { 1 } else { 2 });
            for part in 0..parts {
                let (header, skip) = (header(9, cut.length(part), (part, parts)), cut.skip(part));
                let whole = seal(header, &known, &records, skip, &home(), BLOCK as usize);
                assert!(*whole == *joined.seal(header, skip, &home(), BLOCK as usize));
            }
        }
    }

    #[test]
    fn a_long_entry_is_striped_in_equal_parts_and_a_short_one_is_not() {
        let sizes = PartSizes::new(4096, 32);
        let blocks = |len, zones| {
            let cut = sizes.striped(len, zones);
            let parts = 0..cut.count().unwrap();
            assert_eq!(parts.clone().map(|part| cut.length(part)).sum::<usize>(), len);
            parts.map(|part| sizes.blocks(cut.length(part))).collect::<Vec<_>>()
        };
        assert_eq!(blocks(131_000, 8), [5, 5, 5, 5, 5, 5, 3]);
        assert_eq!(blocks(60_000, 8), [15]);
        assert_eq!(blocks(140_000, 1), [32, 3]);
        assert_eq!(blocks(2 << 20, 2)[..2], [32, 32], "no part is longer than an append");
    }

    proptest! {
        #[test]
        fn the_parts_of_an_entry_give_its_records_back(
            lens in prop::collection::vec(0..900_usize, 1..5), longest in 1..4_u64, left in 0..4_u64
        ) {
            let (sizes, none) = (PartSizes::new(BLOCK, longest), Known::default());
            let records: Vec<Vec<u8>> = (0_u8..).zip(&lens).map(|(n, len)| vec![n; *len]).collect();
            let records: Vec<&[u8]> = records.iter().map(Vec::as_slice).collect();
            let len = payload_len(lens.iter().copied());
            let cut = sizes.filling(len, left);
            let parts = cut.count().unwrap();
            let mut all = Vec::new();
            for part in 0..parts {
                let length = cut.length(part);
                let most = if part == 0 && left > 0 { left.min(longest) } else { longest };
                prop_assert!(length > 0 && sizes.blocks(length) <= most);
                let header = header(5, length, (part, parts));
                let data = seal(header, &none, &records, cut.skip(part), &home(), BLOCK as usize);
                prop_assert_eq!(data.len() as u64, sizes.blocks(length) * u64::from(BLOCK));
                all.extend(decode(&data, &home(), BLOCK).unwrap().1);
            }
            prop_assert_eq!(all.len(), len);
            prop_assert_eq!(count(&all), Some(records.len() as u32));
            let mut rest = &all[COUNT_BYTES..];
            for record in records {
                let (len, behind) = rest.split_first_chunk::<COUNT_BYTES>().unwrap();
                let (bytes, behind) = behind.split_at(u32::from_le_bytes(*len) as usize);
                prop_assert_eq!(bytes, record);
                rest = behind;
            }
            prop_assert!(rest.is_empty());
        }
    }
}
