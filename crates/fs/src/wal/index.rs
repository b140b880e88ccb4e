//! The places of a log's bytes on the device.

use std::ops::Range;
use std::sync::Arc;

use units::{Blocks, Bytes, Lba, ZoneId};
use uuid::Uuid;
use zoned::{BufMut, Geometry, Io, ZonedDevice, join_all};

use crate::error::{Error, ErrorKind, Result};
use crate::wal::entry::{EntryHeader, HEADER_SIZE, Home, copy_unmasked};

/// The parts of a log's entries in the order of its stream. Finds the address of a stream offset by binary search.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LogIndex {
    start: u64,
    end: u64,
    extents: Vec<PartPlace>,
}

/// One part of a log entry, as the index keeps it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct PartPlace {
    /// Stream offset of the part's first byte.
    offset: u64,
    /// The address of the block with the part's header.
    lba: Lba,
    length: u32,
    mask: u32,
}

/// The identity of a log: each part read through an index is checked against it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Check {
    /// The file system.
    pub uuid: Uuid,
    /// The log's id.
    pub log: u64,
}

/// Adjacent blocks of a log to read in one operation.
#[derive(Debug)]
pub(super) struct Run {
    pub(super) at: Lba,
    pub(super) blocks: Blocks,
    zone: Option<ZoneId>,
}

/// A part of a log entry to read. The whole part is read, because the checksum covers the whole part.
#[derive(Debug)]
pub(super) struct Planned {
    /// Stream offset of the part's first byte.
    pub(super) offset: u64,
    pub(super) lba: Lba,
    pub(super) length: u32,
    pub(super) mask: u32,
    /// Number of bytes at the start of the part that the caller does not want.
    skip: usize,
    /// The place of the part's wanted bytes in the caller's buffer.
    into: Range<usize>,
}

/// Device reads that fill the beginning of a buffer.
#[derive(Debug)]
pub(super) struct Plan {
    pub(super) runs: Vec<Run>,
    /// The plan's runs of blocks, in the order of their addresses.
    pub(super) parts: Vec<Planned>,
    /// Number of bytes of the caller's buffer that the plan fills.
    pub(super) len: usize,
}

impl LogIndex {
    /// An index without parts. Its first byte will have stream offset `offset`.
    pub fn starting_at(offset: Bytes) -> LogIndex {
        LogIndex { start: offset.0, end: offset.0, extents: Vec::new() }
    }

    /// The stream offset after the index's last byte.
    pub fn size(&self) -> Bytes {
        Bytes(self.end)
    }

    /// The address of the block with the last part's header.
    pub(crate) fn end(&self) -> Option<Lba> {
        self.extents.last().map(|extent| extent.lba)
    }

    /// The number of parts.
    pub fn len(&self) -> usize {
        self.extents.len()
    }

    /// True if the index has no part.
    pub fn is_empty(&self) -> bool {
        self.extents.is_empty()
    }

    /// Adds to the index the part whose header is at `lba`, with the next `length` bytes of the stream.
    pub(super) fn push(&mut self, lba: Lba, length: u32, mask: u32) {
        if length > 0 {
            self.extents.push(PartPlace { offset: self.end, lba, length, mask });
            self.end += u64::from(length);
        }
    }

    /// Replaces the index's last part by a longer version of it, which was written to the same block at `lba`.
    pub(super) fn replace_last(&mut self, lba: Lba, length: u32, mask: u32) {
        let before = self.extents.pop_if(|last| last.lba == lba);
        assert!(before.is_some(), "the log's last part lies at {lba:?}");
        self.end = before.map_or(self.end, |before| before.offset);
        self.push(lba, length, mask);
    }

    /// Reads a log from stream offset `offset` on; returns the number of bytes, fewer than asked for only at
    /// the end of the index.
    ///
    /// Reads whole parts and checks them; adjacent parts are read in one operation. Fails with the device's
    /// errors, and with `Corrupt` if the bytes of a part have changed. Returns 0 if the index begins after
    /// `offset`.
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

    /// Plans the device reads for as many of `len` bytes at stream offset `offset` as the index has.
    pub(super) fn plan(&self, geometry: &Geometry, offset: u64, len: usize) -> Plan {
        self.plan_within(geometry, offset, len, Blocks(u64::MAX))
    }

    /// As [`plan`](LogIndex::plan), with at most `most` blocks to read, but at least one part. The plan lists
    /// its parts in the order of their addresses, which differs from the stream's order where appends were
    /// reordered.
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
            let PartPlace { offset, lba, length, mask } = *extent;
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

/// The blocks of a part of a log entry.
fn blocks_of(geometry: &Geometry, length: u32) -> Blocks {
    Blocks((HEADER_SIZE as u64 + u64::from(length)).div_ceil(u64::from(geometry.block_size)))
}

impl Plan {
    /// Adds the blocks of a part to the plan: to the last run if they are adjacent to it, and to new runs
    /// otherwise.
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

    /// The places of a part's bytes, header included: the number of each run that holds a piece of the part,
    /// and the piece's range in the run's bytes.
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

    /// Reads the planned bytes into the start of `into`; returns their number.
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
        let mut damaged: Option<&Planned> = None;
        for part in &self.parts {
            let pieces = || {
                let places = self.pieces(part, block_size);
                places.map(|(run, bytes)| data.get(run).and_then(|d| d.get(bytes)).unwrap_or_default())
            };
            if !check.fits(geometry, part, pieces()) {
                damaged = damaged.filter(|before| before.offset < part.offset).or(Some(part));
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
        match damaged {
            Some(part) => Err(check.damage(part)),
            None => Ok(self.len),
        }
    }
}

impl Check {
    /// True if the part, header included, is as it was written: the header names this log, and the checksum
    /// matches.
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

    /// The error of a part that [`fits`](Check::fits) refuses.
    pub(super) fn damage(&self, part: &Planned) -> Error {
        let (Check { log, .. }, Planned { offset, lba, length, .. }) = (self, part);
        Error::new(ErrorKind::Corrupt, "reading a log").because(format!(
            "log {log} lost its {length} bytes from {offset} on: the blocks at {lba:?} do not fit their checksum; the \
             medium lost what was written: copy the bytes before them or restore the file from a backup, then remove it"
        ))
    }
}
