//! Finding a log's entries in its segments, block by block, with large reads ahead.

use std::collections::VecDeque;
use std::sync::Arc;

use units::{Blocks, Lba};
use uuid::Uuid;
use zoned::{BufMut, Io, ZonedDevice};

use super::Segment;
use super::entry::{EntryHeader, HEADER_SIZE, Home};
use crate::{Error, Result};

/// Bytes of one read.
const CHUNK: u64 = 1 << 20;
/// Reads in flight.
const READS_AHEAD: usize = 4;

/// A valid part of an entry, wherever it was found.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Found {
    pub(super) header: EntryHeader,
    /// Which of the segments.
    pub(super) segment: usize,
    pub(super) lba: Lba,
    /// The block of the zone behind it.
    pub(super) end: Blocks,
}

/// A read of a piece of a segment.
struct Chunk {
    segment: usize,
    start: Blocks,
    blocks: Blocks,
    /// It is the last one of its segment.
    last: bool,
}

/// Every valid part of log `log` in `segments`, in the order in which they lie there. Each block below the write
/// pointer is read once. Parts of other logs, and what an earlier use of the zone left behind, are skipped.
pub(super) async fn scan(
    dev: &Arc<dyn ZonedDevice>,
    uuid: Uuid,
    log: u64,
    segments: &[Segment],
) -> Result<Vec<Found>> {
    let geometry = dev.geometry();
    let block_size = u64::from(geometry.block_size);
    let mut todo = chunks(dev, segments).await?;
    let mut flying: VecDeque<(Chunk, Io<BufMut>)> = VecDeque::new();
    let mut spare: Vec<BufMut> = Vec::new();
    let mut found = Vec::new();
    let mut rope = Rope::new(block_size);
    loop {
        while flying.len() < READS_AHEAD
            && let Some(chunk) = todo.pop_front()
            && let Some(segment) = segments.get(chunk.segment)
        {
            let len = usize::try_from(chunk.blocks.0 * block_size).expect("a chunk is at most CHUNK bytes");
            let into = match spare.pop() {
                Some(used) if used.len() == len => used,
                _ => BufMut::zeroed(len),
            };
            let at = geometry.start(segment.zone).plus(chunk.start);
            flying.push_back((chunk, dev.read(at, into)));
        }
        let Some((chunk, io)) = flying.pop_front() else { return Ok(found) };
        let data = io.await.map_err(|e| Error::device("recover a log", e))?;
        let Some(segment) = segments.get(chunk.segment) else { continue };
        rope.push(chunk.start, data);
        let home = Home { uuid, zone: segment.zone };
        while let Some(step) = rope.step(segment, log, &home, chunk.last) {
            if let Some((header, start, end)) = step {
                let lba = geometry.start(segment.zone).plus(start);
                found.push(Found { header, segment: chunk.segment, lba, end });
            }
        }
        rope.let_go(chunk.last, &mut spare);
    }
}

/// The reads that cover all segments up to their zones' write pointers.
async fn chunks(dev: &Arc<dyn ZonedDevice>, segments: &[Segment]) -> Result<VecDeque<Chunk>> {
    let geometry = dev.geometry();
    let step = Blocks((CHUNK / u64::from(geometry.block_size)).min(geometry.max_transfer.0).max(1));
    let mut chunks = VecDeque::new();
    for (number, segment) in segments.iter().enumerate() {
        let zones = segment.zone.0..segment.zone.0.saturating_add(1);
        let report = dev.report(zones).await.map_err(|e| Error::device("recover a log", e))?;
        // Past the pointer there is nothing, and some devices refuse to read it.
        let end = report.first().map_or(Blocks::ZERO, |info| info.pointer.min(segment.end));
        let mut start = segment.start;
        while start < end {
            let blocks = step.min(end.minus(start));
            let last = start.plus(blocks) == end;
            chunks.push_back(Chunk { segment: number, start, blocks, last });
            start = start.plus(blocks);
        }
    }
    Ok(chunks)
}

/// The blocks of a segment that are in memory: an entry may span several chunks, and is checked without a copy.
struct Rope {
    block_size: u64,
    chunks: VecDeque<(Blocks, BufMut)>,
    /// The next block to look at.
    at: Option<Blocks>,
}

impl Rope {
    fn new(block_size: u64) -> Rope {
        Rope { block_size, chunks: VecDeque::new(), at: None }
    }

    fn push(&mut self, start: Blocks, data: BufMut) {
        self.at.get_or_insert(start);
        self.chunks.push_back((start, data));
    }

    fn end(&self) -> Blocks {
        self.chunks
            .back()
            .map_or(Blocks::ZERO, |(start, d)| start.plus(Blocks(d.len() as u64 / self.block_size)))
    }

    /// Looks at the next block: `None` when more must be read first, or when the segment is over; otherwise the
    /// entry that begins there, with its first block and the one behind it, if one does.
    fn step(
        &mut self,
        segment: &Segment,
        log: u64,
        home: &Home,
        last: bool,
    ) -> Option<Option<(EntryHeader, Blocks, Blocks)>> {
        let at = self.at.filter(|at| *at < self.end())?;
        let next = at.plus(Blocks(1));
        let header = self
            .bytes(at, HEADER_SIZE as u64)
            .next()
            .and_then(|bytes| EntryHeader::parse(bytes).ok())
            .filter(|h| h.log == log && h.generation == segment.generation);
        let Some(header) = header else {
            self.at = Some(next);
            return Some(None);
        };
        let end = at.plus(Blocks(header.size().0.div_ceil(self.block_size)));
        if end > self.end() && !last && end <= segment.end {
            return None;
        }
        // No block inside an entry looks like an entry, so after a torn one the search goes on block by block.
        let whole = end <= self.end() && header.checksum(home, self.payload(at, &header)) == header.crc;
        self.at = Some(if whole { end } else { next });
        Some(whole.then_some((header, at, end)).filter(|(h, ..)| !h.padding))
    }

    fn payload(&self, at: Blocks, header: &EntryHeader) -> impl Iterator<Item = &[u8]> {
        let mut skip = HEADER_SIZE;
        self.bytes(at, header.size().0).filter_map(move |piece| {
            let payload = piece.get(skip..);
            skip = 0;
            payload
        })
    }

    /// `len` bytes from block `at` on, piece by piece.
    fn bytes(&self, at: Blocks, len: u64) -> impl Iterator<Item = &[u8]> {
        let (from, to) = (at.0 * self.block_size, at.0 * self.block_size + len);
        self.chunks.iter().filter_map(move |(start, data)| {
            let start = start.0 * self.block_size;
            let begin = usize::try_from(from.saturating_sub(start)).ok()?;
            let end = usize::try_from(to.saturating_sub(start)).ok()?.min(data.len());
            data.get(begin..end).filter(|piece| !piece.is_empty())
        })
    }

    /// Gives back the chunks that have been looked at.
    fn let_go(&mut self, last: bool, spare: &mut Vec<BufMut>) {
        let at = self.at.unwrap_or_default();
        while let Some((start, data)) = self.chunks.front()
            && (last || start.plus(Blocks(data.len() as u64 / self.block_size)) <= at)
            && let Some((_, data)) = self.chunks.pop_front()
        {
            spare.push(data);
        }
        spare.truncate(READS_AHEAD);
        if last {
            self.at = None;
        }
    }
}
