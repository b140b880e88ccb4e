//! Where a log's bytes lie on the device.

use std::ops::Range;
use std::sync::Arc;

use units::{Blocks, Bytes, Lba, ZoneId};
use uuid::Uuid;
use zoned::{BufMut, Geometry, Io, ZonedDevice, join_all};

use crate::error::{Error, ErrorKind, Result};
use crate::wal::entry::{EntryHeader, HEADER_SIZE, Home, copy_unmasked};

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

/// Whose parts an index names: what they are checked with when they are read.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Check {
    /// The file system.
    pub uuid: Uuid,
    /// The log's id.
    pub log: u64,
}

/// Blocks to read in one operation.
#[derive(Debug)]
pub(super) struct Run {
    pub(super) at: Lba,
    pub(super) blocks: Blocks,
    zone: Option<ZoneId>,
}

/// A part that is read whole, so that it can be checked, and what to take out of it.
#[derive(Debug)]
pub(super) struct Planned {
    /// Where its bytes begin in the stream.
    pub(super) offset: u64,
    pub(super) lba: Lba,
    pub(super) length: u32,
    pub(super) mask: u32,
    /// How many of its first bytes are not wanted.
    skip: usize,
    /// Where the bytes go in the caller's buffer.
    into: Range<usize>,
}

/// Device reads that fill the beginning of a buffer.
#[derive(Debug)]
pub(super) struct Plan {
    pub(super) runs: Vec<Run>,
    /// In the order of their places.
    pub(super) parts: Vec<Planned>,
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
    /// Parts are read whole, for a few bytes too, and checked; those that lie side by side are read in one operation.
    /// Fails where the device does, and where a part is not what was written. Gives nothing where the index does not
    /// begin early enough.
    pub async fn read_at(
        &self,
        dev: &Arc<dyn ZonedDevice>,
        check: Check,
        offset: Bytes,
        into: &mut [u8],
    ) -> Result<usize> {
        let plan = self.plan(dev.geometry(), offset.0, into.len());
        plan.read(dev, check, into).await
    }

    /// The device reads for as much of `len` bytes at `offset` as the index holds.
    pub(super) fn plan(&self, geometry: &Geometry, offset: u64, len: usize) -> Plan {
        self.plan_within(geometry, offset, len, Blocks(u64::MAX))
    }

    /// The same, with no more than `most` blocks to read, or one part. Entries lie in the order in which the device
    /// took them, so those that are read together are put in the order of their places first.
    pub(super) fn plan_within(&self, geometry: &Geometry, offset: u64, len: usize, most: Blocks) -> Plan {
        let mut plan = Plan { runs: Vec::new(), parts: Vec::new(), len: 0 };
        if offset < self.start {
            return plan;
        }
        let first = self.extents.partition_point(|e| e.offset + u64::from(e.length) <= offset);
        let mut blocks = 0;
        for extent in self.extents.iter().skip(first) {
            if plan.len == len {
                break;
            }
            blocks += blocks_of(geometry, extent.length).0;
            if blocks > most.0 && plan.len > 0 {
                break;
            }
            let skip = (offset + plan.len as u64).saturating_sub(extent.offset);
            let take = (u64::from(extent.length) - skip).min((len - plan.len) as u64);
            let bytes = |n: u64| usize::try_from(n).expect("a part's length fits in 32 bits");
            let end = plan.len + bytes(take);
            let Extent { offset, lba, length, mask } = *extent;
            plan.parts.push(Planned { offset, lba, length, mask, skip: bytes(skip), into: plan.len..end });
            plan.len = end;
        }
        if !plan.parts.is_sorted_by_key(|part| part.lba) {
            plan.parts.sort_unstable_by_key(|part| part.lba);
        }
        let parts: Vec<_> = plan.parts.iter().map(|p| (p.lba, blocks_of(geometry, p.length))).collect();
        for (at, blocks) in parts {
            plan.cover(geometry, at, blocks);
        }
        plan
    }
}

/// The blocks of a part.
fn blocks_of(geometry: &Geometry, length: u32) -> Blocks {
    Blocks((HEADER_SIZE as u64 + u64::from(length)).div_ceil(u64::from(geometry.block_size)))
}

impl Plan {
    /// Adds the blocks of a part to the last run if they follow it on the device, and to new ones otherwise.
    fn cover(&mut self, geometry: &Geometry, mut at: Lba, mut blocks: Blocks) {
        let max_run = geometry.max_transfer.0.max(1);
        let zone = geometry.zone_of(at);
        if let Some(run) = self.runs.last_mut()
            && run.zone == zone
            && run.at.plus(run.blocks) == at
            && run.blocks.0 + blocks.0 <= max_run
        {
            run.blocks = run.blocks.plus(blocks);
            return;
        }
        while blocks > Blocks::ZERO {
            let now = Blocks(blocks.0.min(max_run));
            self.runs.push(Run { at, blocks: now, zone });
            (at, blocks) = (at.plus(now), blocks.minus(now));
        }
    }

    /// Bytes to read.
    pub(super) fn bytes(&self, block_size: u32) -> u64 {
        self.runs.iter().map(|run| run.blocks.bytes(block_size).0).sum()
    }

    /// Where the bytes of a part lie, header included: in which runs, and where in them.
    pub(super) fn pieces(
        &self,
        part: &Planned,
        block_size: u32,
    ) -> impl Iterator<Item = (usize, Range<usize>)> {
        let block = u64::from(block_size);
        let from = part.lba.0 * block;
        let to = from + HEADER_SIZE as u64 + u64::from(part.length);
        let first = self.runs.partition_point(|run| run.at.plus(run.blocks) <= part.lba);
        self.runs.iter().enumerate().skip(first).map_while(move |(number, run)| {
            let (start, end) = (run.at.0 * block, run.at.plus(run.blocks).0 * block);
            let within = |at: u64| usize::try_from(at - start).expect("a run is no longer than a transfer");
            (start < to).then(|| (number, within(from.max(start))..within(to.min(end))))
        })
    }

    /// Reads what was planned into the beginning of `into`; gives the number of bytes.
    pub(super) async fn read(
        self,
        dev: &Arc<dyn ZonedDevice>,
        check: Check,
        into: &mut [u8],
    ) -> Result<usize> {
        let geometry = dev.geometry();
        let block_size = geometry.block_size;
        let ios: Vec<Io<BufMut>> = self
            .runs
            .iter()
            .map(|run| {
                let len = usize::try_from(run.blocks.bytes(block_size).0).expect("no longer than a transfer");
                dev.read(run.at, BufMut::zeroed(len))
            })
            .collect();
        let data: std::result::Result<Vec<BufMut>, _> = join_all(ios).await.into_iter().collect();
        let data = data.map_err(|e| Error::device("read a log", e))?;
        let mut lost: Option<&Planned> = None;
        for part in &self.parts {
            let pieces = || {
                let places = self.pieces(part, block_size);
                places.map(|(run, bytes)| data.get(run).and_then(|d| d.get(bytes)).unwrap_or_default())
            };
            if !check.fits(geometry, part, pieces()) {
                lost = lost.filter(|before| before.offset < part.offset).or(Some(part));
                continue;
            }
            let mut to = into.get_mut(part.into.clone()).unwrap_or_default();
            let (mut skip, mut phase) = (HEADER_SIZE + part.skip, HEADER_SIZE + part.skip);
            for piece in pieces() {
                let from = piece.get(skip..).unwrap_or_default();
                skip = skip.saturating_sub(piece.len());
                let n = from.len().min(to.len());
                let (here, rest) = std::mem::take(&mut to).split_at_mut(n);
                copy_unmasked(from, phase, block_size as usize, part.mask, here);
                (to, phase) = (rest, phase + n);
            }
        }
        match lost {
            Some(part) => Err(check.damage(part)),
            None => Ok(self.len),
        }
    }
}

impl Check {
    /// Whether the bytes of a part, header included, are those that were written.
    pub(super) fn fits<'a>(
        &self,
        geometry: &Geometry,
        part: &Planned,
        mut pieces: impl Iterator<Item = &'a [u8]>,
    ) -> bool {
        let first = pieces.next().unwrap_or_default();
        let (Ok(header), Some(zone)) = (EntryHeader::parse(first), geometry.zone_of(part.lba)) else {
            return false;
        };
        let home = Home { uuid: self.uuid, zone };
        let payload = std::iter::once(first.get(HEADER_SIZE..).unwrap_or_default()).chain(pieces);
        !header.padding
            && (header.log, header.length, header.mask) == (self.log, part.length, part.mask)
            && header.checksum(&home, payload) == header.crc
    }

    /// What is said of a part that does not fit.
    pub(super) fn damage(&self, part: &Planned) -> Error {
        let (Check { log, .. }, Planned { offset, lba, length, .. }) = (self, part);
        Error::new(ErrorKind::Corrupt, "reading a log").because(format!(
            "log {log} lost its {length} bytes from {offset} on: what lies at {lba:?} does not fit its checksum; the \
             medium lost what was written: copy the bytes before them or restore the file from a backup, then remove it"
        ))
    }
}
