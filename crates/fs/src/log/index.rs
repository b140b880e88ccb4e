//! Where a log's bytes lie on the device.

use std::ops::Range;
use std::sync::Arc;

use units::{Blocks, Bytes, Lba, ZoneId};
use zoned::{BufMut, Geometry, Io, ZonedDevice, join_all};

use super::entry::{HEADER_SIZE, copy_unmasked};
use crate::{Error, Result};

/// The entries of a log in the order of its stream: offset to address by binary search.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LogIndex {
    start: u64,
    end: u64,
    extents: Vec<Extent>,
}

/// One part of an entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Extent {
    /// Where its bytes begin in the stream.
    offset: u64,
    /// The block with the header.
    lba: Lba,
    length: u32,
    mask: u32,
}

/// Blocks to read in one operation, and what to take out of them.
#[derive(Debug)]
pub(super) struct Run {
    pub(super) at: Lba,
    pub(super) blocks: Blocks,
    zone: Option<ZoneId>,
    pub(super) pieces: Vec<Piece>,
}

#[derive(Debug)]
pub(super) struct Piece {
    /// Byte within the run.
    pub(super) skip: usize,
    pub(super) mask: u32,
    /// Where the bytes go in the caller's buffer.
    pub(super) into: Range<usize>,
}

/// Bytes of one part, on the device.
struct Wanted {
    /// The block with the first of them, and how far behind its beginning that is.
    at: Lba,
    phase: u64,
    len: u64,
    mask: u32,
    into: usize,
}

/// Device reads that fill the beginning of a buffer.
#[derive(Debug)]
pub(super) struct Plan {
    pub(super) runs: Vec<Run>,
    /// Bytes that the plan fills.
    pub(super) len: usize,
}

impl LogIndex {
    /// An index of nothing whose first byte will have stream offset `offset`.
    pub fn starting_at(offset: Bytes) -> LogIndex {
        LogIndex { start: offset.0, end: offset.0, extents: Vec::new() }
    }

    /// The stream offset behind the last byte.
    pub fn size(&self) -> Bytes {
        Bytes(self.end)
    }

    /// The block with the header of the last part.
    pub(crate) fn end(&self) -> Option<Lba> {
        self.extents.last().map(|extent| extent.lba)
    }

    /// The number of parts.
    pub fn len(&self) -> usize {
        self.extents.len()
    }

    /// Whether there is nothing to read.
    pub fn is_empty(&self) -> bool {
        self.extents.is_empty()
    }

    /// Adds the part whose header is at `lba`, with the next `length` bytes of the stream.
    pub(super) fn push(&mut self, lba: Lba, length: u32, mask: u32) {
        if length > 0 {
            self.extents.push(Extent { offset: self.end, lba, length, mask });
            self.end += u64::from(length);
        }
    }

    /// Reads from stream offset `offset` on; gives the number of bytes, fewer than asked for only at the end.
    ///
    /// Entries that lie side by side are read in one operation. Fails where the device does, and where the
    /// index does not begin early enough.
    pub async fn read_at(&self, dev: &Arc<dyn ZonedDevice>, offset: Bytes, into: &mut [u8]) -> Result<usize> {
        let plan = self.plan(dev.geometry(), offset.0, into.len());
        plan.read(dev, into).await
    }

    /// The device reads for as much of `len` bytes at `offset` as the index holds.
    pub(super) fn plan(&self, geometry: &Geometry, offset: u64, len: usize) -> Plan {
        self.plan_within(geometry, offset, len, Blocks(u64::MAX))
    }

    /// The same, with no more than `most` blocks to read, or one piece. Entries lie in the order in which the device
    /// took them, so those that are read together are put in the order of their places first.
    pub(super) fn plan_within(&self, geometry: &Geometry, offset: u64, len: usize, most: Blocks) -> Plan {
        let mut plan = Plan { runs: Vec::new(), len: 0 };
        if offset < self.start {
            return plan;
        }
        let first = self.extents.partition_point(|e| e.offset + u64::from(e.length) <= offset);
        let max_run = geometry.max_transfer.0.max(1);
        let block = u64::from(geometry.block_size);
        let mut wanted = Vec::new();
        let mut blocks = 0;
        'extents: for extent in self.extents.iter().skip(first) {
            let mut within = (offset + plan.len as u64).saturating_sub(extent.offset);
            while plan.len < len && within < u64::from(extent.length) {
                let byte = HEADER_SIZE as u64 + within;
                let (at, phase) = (extent.lba.plus(Blocks(byte / block)), byte % block);
                let left = (u64::from(extent.length) - within).min((len - plan.len) as u64);
                let take = left.min(max_run * block - phase);
                blocks += (phase + take).div_ceil(block);
                if blocks > most.0 && plan.len > 0 {
                    break 'extents;
                }
                wanted.push(Wanted { at, phase, len: take, mask: extent.mask, into: plan.len });
                plan.len += usize::try_from(take).expect("a piece is no longer than the caller's buffer");
                within += take;
            }
            if plan.len == len {
                break;
            }
        }
        if !wanted.is_sorted_by_key(|w| w.at) {
            wanted.sort_unstable_by_key(|w| w.at);
        }
        for wanted in wanted {
            plan.add(geometry, max_run, &wanted);
        }
        plan
    }
}

impl Plan {
    /// Adds bytes to the last run if they follow it on the device, and to a new one otherwise.
    fn add(&mut self, geometry: &Geometry, max_run: u64, wanted: &Wanted) {
        let block_size = u64::from(geometry.block_size);
        let Wanted { at, phase, len, mask, into } = *wanted;
        let blocks = Blocks((phase + len).div_ceil(block_size));
        let zone = geometry.zone_of(at);
        let bytes = |n: u64| usize::try_from(n).expect("a run is no longer than a transfer");
        let piece = |skip: u64| Piece { skip: bytes(skip), mask, into: into..into + bytes(len) };
        if let Some(run) = self.runs.last_mut()
            && run.zone == zone
            && run.at.plus(run.blocks) == at
            && run.blocks.0 + blocks.0 <= max_run
        {
            run.pieces.push(piece(run.blocks.0 * block_size + phase));
            run.blocks = run.blocks.plus(blocks);
            return;
        }
        self.runs.push(Run { at, blocks, zone, pieces: vec![piece(phase)] });
    }

    /// Reads what was planned into the beginning of `into`; gives the number of bytes.
    pub(super) async fn read(self, dev: &Arc<dyn ZonedDevice>, into: &mut [u8]) -> Result<usize> {
        let block_size = dev.geometry().block_size;
        let ios: Vec<Io<BufMut>> = self
            .runs
            .iter()
            .map(|run| {
                let len = usize::try_from(run.blocks.bytes(block_size).0).expect("no longer than a transfer");
                dev.read(run.at, BufMut::zeroed(len))
            })
            .collect();
        for (run, result) in self.runs.iter().zip(join_all(ios).await) {
            let data = result.map_err(|e| Error::device("read a log", e))?;
            for piece in &run.pieces {
                let from = data.get(piece.skip..piece.skip + piece.into.len());
                if let (Some(from), Some(to)) = (from, into.get_mut(piece.into.clone())) {
                    copy_unmasked(from, piece.skip, block_size as usize, piece.mask, to);
                }
            }
        }
        Ok(self.len)
    }
}
