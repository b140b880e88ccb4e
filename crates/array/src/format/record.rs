//! Whole records: what is written to a metadata zone, and what is read back.

use std::ops::Range;

use uuid::Uuid;
use zoned::{Blocks, Buf, BufMut, ZoneId};

use super::header::{self, Header, Kind};
use super::row_ranges;
use super::superblock::{self, Superblock};
use super::zone_entries::{self, ZoneEntry};
use crate::layout::Slot;

/// What a record says.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Body {
    /// The array and its members.
    Superblock(Superblock),
    /// Generations and ends of the zones from `first` on.
    Zones { first: ZoneId, entries: Vec<ZoneEntry> },
    /// Zone `zone`, whose generation is `generation`, is about to be reset.
    ResetIntent { zone: ZoneId, generation: u64 },
    /// Parity of a stripe that is not whole: the rows that the blocks `start..end` lie in, each the XOR of all its
    /// blocks below `end`.
    PartialParity { zone: ZoneId, generation: u64, start: Blocks, end: Blocks, rows: Buf },
    /// The parity of the stripe that begins at `start`; blocks from `end` on count as zeros.
    Relocated { zone: ZoneId, generation: u64, start: Blocks, end: Blocks, unit: Buf },
    /// The checkpoint of this epoch is whole.
    CheckpointEnd,
    /// On a new drive that is being filled: the zones from `first` on whose part it holds, with the generation and
    /// the end of what was copied, all of it durable on all drives; no end where it holds none.
    Rebuilt { first: ZoneId, entries: Vec<ZoneEntry> },
    /// The blocks `start..end`, of one stripe unit, whose place holds something else.
    RelocatedData { zone: ZoneId, generation: u64, start: Blocks, end: Blocks, data: Buf },
    /// Rows of this drive's physical zone that do not count. `rebuilt`: relocated units of older records are in place.
    Hidden { zone: ZoneId, generation: u64, ranges: Vec<Range<u64>>, rebuilt: bool },
    /// The metadata zone `swap` holds the first `rows` rows of this drive's physical zone, masked.
    Swap { zone: ZoneId, generation: u64, rows: u64, swap: ZoneId, mask: u64 },
    /// Rows of this drive's physical zone whose content is lost: all of them.
    Lost { zone: ZoneId, generation: u64, ranges: Vec<Range<u64>> },
}

/// Where a record belongs.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Place {
    pub array: Uuid,
    pub member: Slot,
    pub epoch: u64,
    pub sequence: u64,
    pub checkpoint: bool,
}

/// A record that was read.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Record {
    pub place: Place,
    pub body: Body,
}

impl Body {
    /// Blocks that the record takes.
    pub(crate) fn blocks(&self, block_size: u32) -> u64 {
        let payload = match self {
            Body::Superblock(sb) => superblock::encode(sb).len(),
            Body::Zones { entries, .. } | Body::Rebuilt { entries, .. } => {
                zone_entries::encode(ZoneId(0), entries).len()
            }
            Body::PartialParity { rows: data, .. }
            | Body::Relocated { unit: data, .. }
            | Body::RelocatedData { data, .. } => data.len(),
            Body::Hidden { ranges, rebuilt, .. } => row_ranges::encode(ranges, *rebuilt).len(),
            Body::Lost { ranges, .. } => row_ranges::encode(ranges, false).len(),
            Body::Swap { swap, mask, .. } => row_ranges::encode_swap(*swap, *mask).len(),
            Body::ResetIntent { .. } | Body::CheckpointEnd => 0,
        };
        ((header::SIZE + payload) as u64).div_ceil(u64::from(block_size))
    }
}

/// The blocks of a record.
pub(crate) fn encode(place: Place, body: &Body, block_size: u32) -> Buf {
    let mut header = Header {
        kind: Kind::CheckpointEnd,
        checkpoint: place.checkpoint,
        array: place.array,
        epoch: place.epoch,
        sequence: place.sequence,
        member: place.member,
        zone: ZoneId(0),
        generation: 0,
        start: Blocks::ZERO,
        end: Blocks::ZERO,
    };
    let own;
    let payload: &[u8] = match body {
        Body::Superblock(sb) => {
            header.kind = Kind::Superblock;
            own = superblock::encode(sb);
            &own
        }
        Body::Zones { first, entries } | Body::Rebuilt { first, entries } => {
            let rebuilt = matches!(body, Body::Rebuilt { .. });
            header.kind = if rebuilt { Kind::Rebuilt } else { Kind::Zones };
            own = zone_entries::encode(*first, entries);
            &own
        }
        Body::ResetIntent { zone, generation } => {
            (header.kind, header.zone, header.generation) = (Kind::ResetIntent, *zone, *generation);
            &[]
        }
        Body::PartialParity { zone, generation, start, end, rows } => {
            (header.kind, header.zone, header.generation) = (Kind::PartialParity, *zone, *generation);
            (header.start, header.end) = (*start, *end);
            rows
        }
        Body::Relocated { zone, generation, start, end, unit } => {
            (header.kind, header.zone, header.generation) = (Kind::Relocated, *zone, *generation);
            (header.start, header.end) = (*start, *end);
            unit
        }
        Body::CheckpointEnd => &[],
        Body::RelocatedData { zone, generation, start, end, data } => {
            (header.kind, header.zone, header.generation) = (Kind::RelocatedData, *zone, *generation);
            (header.start, header.end) = (*start, *end);
            data
        }
        Body::Hidden { zone, generation, ranges, rebuilt } => {
            (header.kind, header.zone, header.generation) = (Kind::Hidden, *zone, *generation);
            own = row_ranges::encode(ranges, *rebuilt);
            &own
        }
        Body::Lost { zone, generation, ranges } => {
            (header.kind, header.zone, header.generation) = (Kind::Lost, *zone, *generation);
            own = row_ranges::encode(ranges, false);
            &own
        }
        Body::Swap { zone, generation, rows, swap, mask } => {
            (header.kind, header.zone, header.generation) = (Kind::Swap, *zone, *generation);
            header.end = Blocks(*rows);
            own = row_ranges::encode_swap(*swap, *mask);
            &own
        }
    };
    let len = (header::SIZE + payload.len()).next_multiple_of(block_size as usize);
    let mut buf = BufMut::with_capacity(len);
    buf.extend_from_slice(&header::encode(&header, payload));
    buf.extend_from_slice(payload);
    buf.resize(len, 0);
    buf.freeze()
}

/// Reads the record that begins with `bytes`, if one does; gives its length in blocks too.
///
/// The error is a superblock of another build: what to tell.
pub(crate) fn decode(bytes: &Buf, block_size: u32) -> Result<Option<(Record, u64)>, String> {
    let Some((header, payload)) = header::decode(bytes) else { return Ok(None) };
    let blocks = ((header::SIZE + payload.len()) as u64).div_ceil(u64::from(block_size));
    let (zone, generation, start, end) = (header.zone, header.generation, header.start, header.end);
    let data = || bytes.slice(header::SIZE..header::SIZE + payload.len());
    let body = match header.kind {
        Kind::Superblock => match superblock::decode(header.array, payload) {
            Ok(sb) => Body::Superblock(sb),
            Err(superblock::Refused::Malformed) => return Ok(None),
            Err(superblock::Refused::Foreign(why)) => return Err(why),
        },
        Kind::Zones | Kind::Rebuilt => match zone_entries::decode(payload) {
            Some((first, entries)) if header.kind == Kind::Zones => Body::Zones { first, entries },
            Some((first, entries)) => Body::Rebuilt { first, entries },
            None => return Ok(None),
        },
        Kind::ResetIntent => Body::ResetIntent { zone, generation },
        Kind::PartialParity => Body::PartialParity { zone, generation, start, end, rows: data() },
        Kind::Relocated => Body::Relocated { zone, generation, start, end, unit: data() },
        Kind::CheckpointEnd => Body::CheckpointEnd,
        Kind::RelocatedData => Body::RelocatedData { zone, generation, start, end, data: data() },
        Kind::Hidden => match row_ranges::decode(payload) {
            Some((ranges, rebuilt)) => Body::Hidden { zone, generation, ranges, rebuilt },
            None => return Ok(None),
        },
        Kind::Lost => match row_ranges::decode(payload) {
            Some((ranges, _)) => Body::Lost { zone, generation, ranges },
            None => return Ok(None),
        },
        Kind::Swap => match row_ranges::decode_swap(payload) {
            Some((swap, mask)) => Body::Swap { zone, generation, rows: end.0, swap, mask },
            None => return Ok(None),
        },
    };
    let place = Place {
        array: header.array,
        member: header.member,
        epoch: header.epoch,
        sequence: header.sequence,
        checkpoint: header.checkpoint,
    };
    Ok(Some((Record { place, body }, blocks)))
}

/// All records in the blocks of a metadata zone, in order. Blocks that begin none are passed over: a power cut may
/// have left garbage between good records.
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

    use super::*;

    fn place(sequence: u64) -> Place {
        Place { array: Uuid::from_u128(5), member: Slot(2), epoch: 3, sequence, checkpoint: sequence == 1 }
    }

    fn bodies() -> Vec<Body> {
        let sb = Superblock { uuid: Uuid::from_u128(5), ..superblock::tests::sample() };
        let (zone, generation, start, end) = (ZoneId(4), 9, Blocks(16), Blocks(18));
        vec![
            Body::Superblock(sb),
            Body::Zones { first: ZoneId(3), entries: vec![ZoneEntry { generation: 2, end: None }; 5] },
            Body::ResetIntent { zone, generation },
            Body::PartialParity { zone, generation, start, end, rows: Buf::copy_from(&[7; 512]) },
            Body::Relocated { zone, generation, start, end, unit: Buf::copy_from(&[8; 2048]) },
            Body::CheckpointEnd,
            Body::Rebuilt {
                first: ZoneId(2),
                entries: vec![ZoneEntry { generation: 3, end: Some(Blocks(7)) }],
            },
            Body::RelocatedData { zone, generation, start, end, data: Buf::copy_from(&[9; 1024]) },
            Body::Hidden { zone, generation, ranges: vec![3..5, 9..10], rebuilt: true },
            Body::Swap { zone, generation, rows: 20, swap: ZoneId(1), mask: 77 },
            Body::Lost { zone, generation, ranges: vec![2..3, 5..7] },
        ]
    }

    #[test]
    fn what_a_new_drive_has_reads_as_it_was_written_in_version_1() {
        let entry = |end| ZoneEntry { generation: 3, end };
        let body = Body::Rebuilt { first: ZoneId(2), entries: vec![entry(Some(Blocks(7))), entry(None)] };
        let fresh = encode(place(4), &body, 512);
        let golden = Buf::copy_from(&super::super::golden("rebuilt-v1.bin", &fresh));
        let (record, blocks) = decode(&golden, 512).expect("known").expect("whole");
        assert_eq!((record, blocks), (Record { place: place(4), body }, 1));
        assert_eq!(*fresh, *golden);
    }

    #[test]
    fn records_are_found_between_garbage() {
        for block in [512, 4096] {
            let mut bytes = Vec::new();
            for (body, n) in bodies().iter().zip(0..) {
                bytes.extend(vec![0xa5; block as usize * (n % 3)]);
                let record = encode(place(n as u64), body, block);
                assert_eq!(record.len() as u64, body.blocks(block) * u64::from(block));
                bytes.extend_from_slice(&record);
            }
            let found = scan(&Buf::copy_from(&bytes), block).expect("of this build");
            let wanted: Vec<Record> =
                bodies().into_iter().zip(0..).map(|(body, n)| Record { place: place(n), body }).collect();
            assert_eq!(found, wanted);
        }
    }

    #[test]
    fn a_small_write_costs_two_blocks_of_parity() {
        let rows = Buf::zeroed(4096);
        let body =
            Body::PartialParity { zone: ZoneId(0), generation: 1, start: Blocks(0), end: Blocks(1), rows };
        assert_eq!(body.blocks(4096), 2);
    }

    #[test]
    fn a_record_that_is_cut_off_is_none() {
        let whole = encode(place(1), &bodies()[4], 512);
        let (record, blocks) = decode(&whole, 512).expect("ours").expect("whole");
        assert_eq!((record.body, blocks * 512), (bodies()[4].clone(), whole.len() as u64));
        assert_eq!(decode(&whole.slice(..whole.len() - 512), 512), Ok(None));
    }

    proptest! {
        #[test]
        fn any_bytes_are_scanned_to_the_end(bytes in proptest::collection::vec(any::<u8>(), 0..2000)) {
            let _total = scan(&Buf::copy_from(&bytes), 512);
        }
    }
}
