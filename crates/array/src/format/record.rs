//! Whole records of a metadata zone, encoded and decoded.

use std::borrow::Cow;

use uuid::Uuid;
use zoned::{Blocks, Buf, BufMut, ZoneId};

use super::frames::{self, Frame};
use super::header::{self, Header, Kind};
use super::reorder;
use super::row_ranges;
use super::superblock::{self, Superblock};
use super::zone_entries::{self, ZoneEntry};
use super::zone_maps;
use crate::layout::row_set::RowSet;
use crate::layout::stored_maps::{PlacedBy, ZoneMap};
use crate::layout::{Parity, Slot};

/// The content of a record.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Body {
    /// The array and its members.
    Superblock(Superblock),
    /// Generations and ends of the zones from `first` on.
    Zones { first: ZoneId, entries: Vec<ZoneEntry> },
    /// A reset of `zone` in `generation` is about to begin.
    ResetIntent { zone: ZoneId, generation: u64 },
    /// A parity of a stripe that is not whole: the rows of the blocks `start..end`, each computed from all its blocks
    /// below `end`.
    PartialParity { parity: Parity, zone: ZoneId, generation: u64, start: Blocks, end: Blocks, rows: Buf },
    /// A parity of the stripe that begins at `start`, computed from the blocks below `end`.
    RelocatedParity {
        parity: Parity,
        zone: ZoneId,
        generation: u64,
        placed_by: PlacedBy,
        start: Blocks,
        end: Blocks,
        unit: Buf,
    },
    /// The checkpoint of the record's epoch is complete.
    CheckpointEnd,
    /// On a new drive: zones from `first` on that the rebuild has copied, with generation and end. Their content is
    /// durable on all drives. A zone without an end is not copied.
    RebuiltZones { first: ZoneId, entries: Vec<ZoneEntry> },
    /// Data blocks `start..end` of one stripe unit, whose place on the drive holds dead data.
    RelocatedData {
        zone: ZoneId,
        generation: u64,
        placed_by: PlacedBy,
        start: Blocks,
        end: Blocks,
        data: Buf,
    },
    /// Rows of the drive's part of `zone` that hold dead data. `rewritten`: relocated content of older
    /// records is in place.
    StaleRows { zone: ZoneId, generation: u64, placed_by: PlacedBy, rows: RowSet, rewritten: bool },
    /// The metadata zone `copy` holds the first `rows` rows of the drive's part of `zone`, masked.
    ZoneCopy { zone: ZoneId, generation: u64, rows: u64, copy: ZoneId, mask: u64 },
    /// All rows of the drive's part of `zone` whose content is not recoverable.
    BadRows { zone: ZoneId, generation: u64, placed_by: PlacedBy, rows: RowSet },
    /// Which blocks were written together. `parity`: partial parity that lies in the same record.
    Frames { frames: Vec<Frame>, parity: Option<Box<Body>> },
    /// Where the parts of some logical zones lie.
    ZoneMaps(Vec<ZoneMap>),
    /// Corrected partial parity: older records of partial parity of the stripe that end above `above` do not count.
    Reorder { above: Blocks, parity: Box<Body> },
}

/// The array, member and position of a record.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct RecordId {
    pub array: Uuid,
    pub member: Slot,
    pub epoch: u64,
    pub sequence: u64,
    pub checkpoint: bool,
}

/// A decoded record.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Record {
    pub place: RecordId,
    pub body: Body,
}

impl Body {
    /// The number of blocks of the record.
    pub(crate) fn blocks(&self, block_size: u32) -> u64 {
        ((header::SIZE + self.payload().len()) as u64).div_ceil(u64::from(block_size))
    }

    fn payload(&self) -> Cow<'_, [u8]> {
        Cow::Owned(match self {
            Body::Superblock(sb) => superblock::encode(sb),
            Body::Zones { first, entries } | Body::RebuiltZones { first, entries } => {
                zone_entries::encode(*first, entries)
            }
            Body::PartialParity { rows: data, .. }
            | Body::RelocatedParity { unit: data, .. }
            | Body::RelocatedData { data, .. } => return Cow::Borrowed(data),
            Body::StaleRows { rows, rewritten, .. } => row_ranges::encode(rows, *rewritten),
            Body::BadRows { rows, .. } => row_ranges::encode(rows, false),
            Body::ZoneCopy { copy, mask, .. } => row_ranges::encode_copy(*copy, *mask),
            Body::ZoneMaps(maps) => zone_maps::encode(maps),
            Body::Frames { frames, parity } => {
                let mut bytes = frames::encode(frames);
                if let Some(parity) = parity {
                    bytes.extend_from_slice(&parity.payload());
                }
                bytes
            }
            Body::Reorder { above, parity } => {
                let mut bytes = reorder::encode(*above);
                bytes.extend_from_slice(&parity.payload());
                bytes
            }
            Body::ResetIntent { .. } | Body::CheckpointEnd => Vec::new(),
        })
    }

    /// The parity of a record of parity; P of all other records.
    fn parity(&self) -> Parity {
        match self {
            Body::PartialParity { parity, .. } | Body::RelocatedParity { parity, .. } => *parity,
            Body::Frames { parity: Some(parity), .. } | Body::Reorder { parity, .. } => parity.parity(),
            _ => Parity::P,
        }
    }

    /// The version of the map that brought the part to the drive whose content the record is about; 0 in all other records.
    fn placed_by(&self) -> PlacedBy {
        match self {
            Body::RelocatedParity { placed_by, .. }
            | Body::RelocatedData { placed_by, .. }
            | Body::StaleRows { placed_by, .. }
            | Body::BadRows { placed_by, .. } => *placed_by,
            _ => PlacedBy::default(),
        }
    }

    /// The fields of the header: kind, zone, generation, start, end.
    fn header_fields(&self) -> (Kind, ZoneId, u64, Blocks, Blocks) {
        let (none, zero) = (ZoneId(0), Blocks::ZERO);
        match *self {
            Body::Superblock(_) => (Kind::Superblock, none, 0, zero, zero),
            Body::Zones { .. } => (Kind::Zones, none, 0, zero, zero),
            Body::ResetIntent { zone, generation } => (Kind::ResetIntent, zone, generation, zero, zero),
            Body::PartialParity { zone, generation, start, end, .. } => {
                (Kind::PartialParity, zone, generation, start, end)
            }
            Body::RelocatedParity { zone, generation, start, end, .. } => {
                (Kind::RelocatedParity, zone, generation, start, end)
            }
            Body::CheckpointEnd => (Kind::CheckpointEnd, none, 0, zero, zero),
            Body::RebuiltZones { .. } => (Kind::RebuiltZones, none, 0, zero, zero),
            Body::RelocatedData { zone, generation, start, end, .. } => {
                (Kind::RelocatedData, zone, generation, start, end)
            }
            Body::StaleRows { zone, generation, .. } => (Kind::StaleRows, zone, generation, zero, zero),
            Body::ZoneCopy { zone, generation, rows, .. } => {
                (Kind::ZoneCopy, zone, generation, zero, Blocks(rows))
            }
            Body::BadRows { zone, generation, .. } => (Kind::BadRows, zone, generation, zero, zero),
            Body::ZoneMaps(_) => (Kind::ZoneMaps, none, 0, zero, zero),
            Body::Frames { parity: None, .. } => (Kind::Frames, none, 0, zero, zero),
            Body::Frames { parity: Some(ref parity), .. } => {
                let (_, zone, generation, start, end) = parity.header_fields();
                (Kind::Frames, zone, generation, start, end)
            }
            Body::Reorder { ref parity, .. } => {
                let (_, zone, generation, start, end) = parity.header_fields();
                (Kind::Reorder, zone, generation, start, end)
            }
        }
    }
}

/// Encodes a record.
pub(crate) fn encode(place: RecordId, body: &Body, block_size: u32) -> Buf {
    let (kind, zone, generation, start, end) = body.header_fields();
    let RecordId { array, member, epoch, sequence, checkpoint } = place;
    let (parity, placed_by) = (body.parity(), body.placed_by());
    let header = Header {
        kind,
        checkpoint,
        parity,
        array,
        epoch,
        sequence,
        member,
        zone,
        generation,
        start,
        end,
        placed_by,
    };
    let payload = body.payload();
    let len = (header::SIZE + payload.len()).next_multiple_of(block_size as usize);
    let mut buf = BufMut::with_capacity(len);
    buf.extend_from_slice(&header::encode(&header, &payload));
    buf.extend_from_slice(&payload);
    buf.resize(len, 0);
    buf.freeze()
}

/// Decodes the record at the start of `bytes`, if there is one; also returns its length in blocks.
///
/// Errors: the reason why a superblock of another build is not readable.
pub(crate) fn decode(bytes: &Buf, block_size: u32) -> Result<Option<(Record, u64)>, String> {
    let Some((header, payload)) = header::decode(bytes) else { return Ok(None) };
    let blocks = ((header::SIZE + payload.len()) as u64).div_ceil(u64::from(block_size));
    let (zone, generation, start, end) = (header.zone, header.generation, header.start, header.end);
    let (parity, placed_by) = (header.parity, header.placed_by);
    let data = || bytes.slice(header::SIZE..header::SIZE + payload.len());
    let body = match header.kind {
        Kind::Superblock => match superblock::decode(header.array, payload) {
            Ok(sb) => Body::Superblock(sb),
            Err(superblock::SuperblockRefusal::Malformed) => return Ok(None),
            Err(superblock::SuperblockRefusal::Foreign(why)) => return Err(why),
        },
        Kind::Zones | Kind::RebuiltZones => match zone_entries::decode(payload) {
            Some((first, entries)) if header.kind == Kind::Zones => Body::Zones { first, entries },
            Some((first, entries)) => Body::RebuiltZones { first, entries },
            None => return Ok(None),
        },
        Kind::ResetIntent => Body::ResetIntent { zone, generation },
        Kind::PartialParity => Body::PartialParity { parity, zone, generation, start, end, rows: data() },
        Kind::RelocatedParity => {
            Body::RelocatedParity { parity, zone, generation, placed_by, start, end, unit: data() }
        }
        Kind::CheckpointEnd => Body::CheckpointEnd,
        Kind::RelocatedData => Body::RelocatedData { zone, generation, placed_by, start, end, data: data() },
        Kind::StaleRows => match row_ranges::decode(payload) {
            Some((rows, rewritten)) => Body::StaleRows { zone, generation, placed_by, rows, rewritten },
            None => return Ok(None),
        },
        Kind::BadRows => match row_ranges::decode(payload) {
            Some((rows, _)) => Body::BadRows { zone, generation, placed_by, rows },
            None => return Ok(None),
        },
        Kind::ZoneCopy => match row_ranges::decode_copy(payload) {
            Some((copy, mask)) => Body::ZoneCopy { zone, generation, rows: end.0, copy, mask },
            None => return Ok(None),
        },
        Kind::ZoneMaps => match zone_maps::decode(payload) {
            Some(maps) => Body::ZoneMaps(maps),
            None => return Ok(None),
        },
        Kind::Reorder => match reorder::decode(payload) {
            Some(above) => {
                let rows = data().slice(reorder::FIXED_BYTES..);
                let rows = Body::PartialParity { parity, zone, generation, start, end, rows };
                Body::Reorder { above, parity: Box::new(rows) }
            }
            None => return Ok(None),
        },
        Kind::Frames => match frames::decode(payload) {
            Some((frames, before)) => {
                let rows = data().slice(before..);
                let joined = || Box::new(Body::PartialParity { parity, zone, generation, start, end, rows });
                Body::Frames { frames, parity: (start != end).then(joined) }
            }
            None => return Ok(None),
        },
    };
    let Header { array, member, epoch, sequence, checkpoint, .. } = header;
    let place = RecordId { array, member, epoch, sequence, checkpoint };
    Ok(Some((Record { place, body }, blocks)))
}

/// All records in the blocks of a metadata zone, in order. Blocks without a record are skipped: a power cut may leave
/// garbage between records.
#[cfg(test)]
pub(crate) fn scan(zone: &Buf, block_size: u32) -> Result<Vec<Record>, String> {
    let mut records = Vec::new();
    let mut at = 0;
    while at < zone.len() {
        let step = match decode(&zone.slice(at..), block_size)? {
            Some((record, blocks)) => {
                records.push(record);
                blocks as usize
            }
            None => 1,
        };
        at += step * block_size as usize;
    }
    Ok(records)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use crate::layout::Role;
    use crate::layout::placement::Place;

    use super::*;

    fn record_id(sequence: u64) -> RecordId {
        RecordId { array: Uuid::from_u128(5), member: Slot(2), epoch: 3, sequence, checkpoint: sequence == 1 }
    }

    fn sample_bodies() -> Vec<Body> {
        let sb = Superblock { uuid: Uuid::from_u128(5), ..superblock::tests::sample() };
        let (zone, generation, start, end) = (ZoneId(4), 9, Blocks(16), Blocks(18));
        vec![
            Body::Superblock(sb),
            Body::Zones { first: ZoneId(3), entries: vec![ZoneEntry { generation: 2, end: None }; 5] },
            Body::ResetIntent { zone, generation },
            Body::PartialParity {
                parity: Parity::P,
                zone,
                generation,
                start,
                end,
                rows: Buf::copy_from(&[7; 512]),
            },
            Body::RelocatedParity {
                parity: Parity::Q,
                zone,
                generation,
                placed_by: PlacedBy(3),
                start,
                end,
                unit: Buf::copy_from(&[8; 2048]),
            },
            Body::CheckpointEnd,
            Body::RebuiltZones {
                first: ZoneId(2),
                entries: vec![ZoneEntry { generation: 3, end: Some(Blocks(7)) }],
            },
            Body::RelocatedData {
                zone,
                generation,
                placed_by: PlacedBy(u16::MAX),
                start,
                end,
                data: Buf::copy_from(&[9; 1024]),
            },
            Body::StaleRows {
                zone,
                generation,
                placed_by: PlacedBy(2),
                rows: RowSet::from_iter([3..5, 9..10]),
                rewritten: true,
            },
            Body::ZoneCopy { zone, generation, rows: 20, copy: ZoneId(1), mask: 77 },
            Body::BadRows {
                zone,
                generation,
                placed_by: PlacedBy::default(),
                rows: RowSet::from_iter([2..3, 5..7]),
            },
            frames_body(None),
            frames_body(Some(Body::PartialParity {
                parity: Parity::Q,
                zone,
                generation,
                start,
                end,
                rows: Buf::copy_from(&[7; 512]),
            })),
            Body::ZoneMaps(vec![sample_map()]),
            reorder_body(),
        ]
    }

    fn frames_body(parity: Option<Body>) -> Body {
        let (zone, generation) = (ZoneId(4), 9);
        let frame = Frame { zone, generation, start: Blocks(16), end: Blocks(18), crc: 0x0102_0304 };
        Body::Frames {
            frames: vec![frame, Frame::mark(ZoneId(3), 2, Blocks(70))],
            parity: parity.map(Box::new),
        }
    }

    fn reorder_body() -> Body {
        let (zone, generation, start, end) = (ZoneId(4), 9, Blocks(16), Blocks(18));
        let rows = Buf::copy_from(&[7; 1024]);
        let rows = Body::PartialParity { parity: Parity::Q, zone, generation, start, end, rows };
        Body::Reorder { above: Blocks(17), parity: Box::new(rows) }
    }

    #[test]
    fn reorder_records_of_version_1_read_as_they_were_written() {
        let body = reorder_body();
        let fresh = encode(record_id(4), &body, 512);
        let golden = Buf::copy_from(&super::super::golden_file("reorder-v1.bin", &fresh));
        let (record, blocks) = decode(&golden, 512).expect("known").expect("whole");
        assert_eq!((record, blocks), (Record { place: record_id(4), body }, 3));
        assert_eq!(*fresh, *golden);
    }

    #[test]
    fn frames_of_version_1_read_as_they_were_written() {
        let (zone, generation, start, end) = (ZoneId(4), 9, Blocks(16), Blocks(18));
        let rows = Buf::copy_from(&[7; 1024]);
        let parity = Body::PartialParity { parity: Parity::P, zone, generation, start, end, rows };
        for (name, parity, blocks) in [("frames-v1.bin", None, 1), ("frames-parity-v1.bin", Some(parity), 3)]
        {
            let body = frames_body(parity);
            let fresh = encode(record_id(4), &body, 512);
            let golden = Buf::copy_from(&super::super::golden_file(name, &fresh));
            let (record, found) = decode(&golden, 512).expect("known").expect("whole");
            assert_eq!((record, found), (Record { place: record_id(4), body }, blocks));
            assert_eq!(*fresh, *golden);
        }
    }

    fn sample_map() -> ZoneMap {
        let place = |slot, zone| Place::whole(Slot(slot), ZoneId(zone));
        ZoneMap::first(ZoneId(4), 9, vec![place(2, 7), place(0, 8), place(1, 900)])
    }

    #[test]
    fn maps_of_version_1_read_as_they_were_written() {
        let other = ZoneMap { zone: ZoneId(5), generation: 1, ..sample_map() };
        let body = Body::ZoneMaps(vec![sample_map(), other]);
        let fresh = encode(record_id(4), &body, 512);
        let golden = Buf::copy_from(&super::super::golden_file("maps-v1.bin", &fresh));
        let (record, blocks) = decode(&golden, 512).expect("known").expect("whole");
        assert_eq!((record, blocks), (Record { place: record_id(4), body }, 1));
        assert_eq!(*fresh, *golden);
    }

    #[test]
    fn maps_that_moved_parts_and_records_about_moved_parts_read_as_they_were_written() {
        let moved = [(Role(0), PlacedBy(2)), (Role(2), PlacedBy(517))].into_iter().collect();
        let map = ZoneMap { version: 517, moved, ..sample_map() };
        let rows = RowSet::from_iter([3..5, 9..10]);
        let (zone, generation, placed_by) = (ZoneId(4), 9, PlacedBy(517));
        for (name, body) in [
            ("maps-moved-v1.bin", Body::ZoneMaps(vec![map])),
            ("hidden-moved-v1.bin", Body::StaleRows { zone, generation, placed_by, rows, rewritten: false }),
        ] {
            let fresh = encode(record_id(4), &body, 512);
            let golden = Buf::copy_from(&super::super::golden_file(name, &fresh));
            let (record, blocks) = decode(&golden, 512).expect("known").expect("whole");
            assert_eq!((record, blocks), (Record { place: record_id(4), body }, 1));
            assert_eq!(*fresh, *golden);
        }
    }

    #[test]
    fn rebuild_notes_of_version_1_read_as_they_were_written() {
        let entry = |end| ZoneEntry { generation: 3, end };
        let body =
            Body::RebuiltZones { first: ZoneId(2), entries: vec![entry(Some(Blocks(7))), entry(None)] };
        let fresh = encode(record_id(4), &body, 512);
        let golden = Buf::copy_from(&super::super::golden_file("rebuilt-v1.bin", &fresh));
        let (record, blocks) = decode(&golden, 512).expect("known").expect("whole");
        assert_eq!((record, blocks), (Record { place: record_id(4), body }, 1));
        assert_eq!(*fresh, *golden);
    }

    #[test]
    fn records_of_a_second_parity_read_as_they_were_written() {
        let (zone, generation, start, end) = (ZoneId(4), 9, Blocks(16), Blocks(18));
        let parity = Parity::Q;
        let partial = Buf::copy_from(&[7; 300]);
        let unit = Buf::copy_from(&[8; 300]);
        for (name, body) in [
            ("partial-q-v1.bin", Body::PartialParity { parity, zone, generation, start, end, rows: partial }),
            (
                "relocated-q-v1.bin",
                Body::RelocatedParity {
                    parity,
                    zone,
                    generation,
                    placed_by: PlacedBy::default(),
                    start,
                    end,
                    unit,
                },
            ),
        ] {
            let fresh = encode(record_id(4), &body, 512);
            let golden = Buf::copy_from(&super::super::golden_file(name, &fresh));
            let (record, blocks) = decode(&golden, 512).expect("known").expect("whole");
            assert_eq!((record, blocks), (Record { place: record_id(4), body }, 1));
            assert_eq!(*fresh, *golden);
        }
    }

    #[test]
    fn records_are_found_between_garbage() {
        for block in [512, 4096] {
            let mut bytes = Vec::new();
            for (body, n) in sample_bodies().iter().zip(0..) {
                bytes.extend(vec![0xa5; block as usize * (n % 3)]);
                let record = encode(record_id(n as u64), body, block);
                assert_eq!(record.len() as u64, body.blocks(block) * u64::from(block));
                bytes.extend_from_slice(&record);
            }
            let found = scan(&Buf::copy_from(&bytes), block).expect("of this build");
            let wanted: Vec<Record> = sample_bodies()
                .into_iter()
                .zip(0..)
                .map(|(body, n)| Record { place: record_id(n), body })
                .collect();
            assert_eq!(found, wanted);
        }
    }

    #[test]
    fn a_small_write_costs_two_blocks_of_parity() {
        let rows = Buf::zeroed(4096);
        let body = Body::PartialParity {
            parity: Parity::P,
            zone: ZoneId(0),
            generation: 1,
            start: Blocks(0),
            end: Blocks(1),
            rows,
        };
        assert_eq!(body.blocks(4096), 2);
    }

    #[test]
    fn a_truncated_record_is_not_decoded() {
        let whole = encode(record_id(1), &sample_bodies()[4], 512);
        let (record, blocks) = decode(&whole, 512).expect("ours").expect("whole");
        assert_eq!((record.body, blocks * 512), (sample_bodies()[4].clone(), whole.len() as u64));
        assert_eq!(decode(&whole.slice(..whole.len() - 512), 512), Ok(None));
    }

    proptest! {
        #[test]
        fn any_bytes_are_scanned_to_the_end(bytes in proptest::collection::vec(any::<u8>(), 0..2000)) {
            let _total = scan(&Buf::copy_from(&bytes), 512);
        }
    }
}
