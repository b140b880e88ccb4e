//! Finding a log's entries in its segments, block by block, with large reads ahead.

use std::collections::VecDeque;
use std::ops::Range;
use std::sync::Arc;

use units::{Blocks, Lba};
use uuid::Uuid;
use zoned::{BufMut, Io, ZoneState, ZonedDevice};

use crate::error::{Error, Result};
use crate::wal::chunk::{Memory, Payload, ReadBuffer};
use crate::wal::entry::{EntryHeader, HEADER_SIZE, Home};
use crate::wal::segment::Segment;

/// Bytes of one read.
pub(super) const CHUNK_BYTES: u64 = 1 << 20;
/// Bytes of a scan's reads in flight.
pub(super) const READ_AHEAD_BYTES: u64 = 12 << 20;

/// A valid part of a log entry, and its place on the device.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Found {
    pub(super) header: EntryHeader,
    /// The number of the segment that holds the part.
    pub(super) segment: usize,
    pub(super) lba: Lba,
    /// The block of the zone after the part.
    pub(super) end: Blocks,
}

/// A scan's read of a piece of a segment.
struct ChunkRead {
    segment: usize,
    start: Blocks,
    blocks: Blocks,
    /// True if the chunk is the last one of its segment.
    last: bool,
}

/// Reads a log's segments once, in order and with read-ahead, and finds the valid parts of the log's entries. Skips entries of
/// other logs, and entries of an earlier use of the zone.
pub(super) struct Scan {
    dev: Arc<dyn ZonedDevice>,
    uuid: Uuid,
    log: u64,
    segments: Vec<Segment>,
    memory: Arc<Memory>,
    todo: VecDeque<ChunkRead>,
    reads: VecDeque<(ChunkRead, ReadBuffer, Io<BufMut>)>,
    in_flight: u64,
    blocks: Unscanned,
    /// The segment of the chunk that arrived last, and whether this was the segment's last chunk.
    segment: usize,
    last: bool,
    /// Bytes that arrived.
    scanned: u64,
}

/// The state of a scan after a chunk.
pub(super) struct ScanStep {
    /// Number of bytes scanned so far.
    pub(super) scanned: u64,
    /// True if the chunk was the last one of its segment.
    pub(super) segment_over: bool,
}

impl Scan {
    /// Begins the scan of a log: asks the device for the write pointers of the segments' zones.
    pub(super) async fn begin(
        dev: &Arc<dyn ZonedDevice>,
        uuid: Uuid,
        log: u64,
        segments: &[Segment],
        memory: &Arc<Memory>,
    ) -> Result<Scan> {
        Ok(Scan {
            dev: Arc::clone(dev),
            uuid,
            log,
            segments: segments.to_vec(),
            memory: Arc::clone(memory),
            todo: chunk_reads(dev, segments).await?,
            reads: VecDeque::new(),
            in_flight: 0,
            blocks: Unscanned::new(u64::from(dev.geometry().block_size)),
            segment: 0,
            last: false,
            scanned: 0,
        })
    }

    /// Submits reads until enough are in flight, or until one more would exceed `room` bytes of memory. False
    /// if nothing is in flight and more is to be read: the caller waits until memory is freed.
    pub(super) fn read_ahead(&mut self, room: u64) -> bool {
        let geometry = self.dev.geometry();
        while self.in_flight < READ_AHEAD_BYTES
            && let Some(chunk) = self.todo.front()
        {
            let bytes = chunk.blocks.bytes(geometry.block_size).0;
            if self.memory.held() + bytes > room {
                break;
            }
            let Some(segment) = self.segments.get(chunk.segment) else { break };
            let at = geometry.start(segment.zone).plus(chunk.start);
            let mut buffer =
                self.memory.take(usize::try_from(bytes).expect("a chunk is at most CHUNK_BYTES"));
            let io = self.dev.read(at, buffer.lend());
            self.reads.extend(self.todo.pop_front().map(|chunk| (chunk, buffer, io)));
            self.in_flight += bytes;
        }
        !self.reads.is_empty() || self.todo.is_empty()
    }

    /// Waits for the scan's next chunk; false if none is in flight.
    pub(super) async fn next_chunk_arrives(&mut self) -> Result<bool> {
        let Some((chunk, mut buffer, io)) = self.reads.pop_front() else { return Ok(false) };
        let data = io.await.map_err(|e| Error::device("recover a log", e))?;
        self.in_flight -= data.len() as u64;
        self.scanned += data.len() as u64;
        buffer.give(data);
        self.blocks.push(chunk.start, buffer);
        (self.segment, self.last) = (chunk.segment, chunk.last);
        Ok(true)
    }

    /// Reads on without a bound on memory, and looks for parts in the next chunk as [`Scan::look`] does;
    /// `None` at the end of the scan.
    pub(super) async fn next(&mut self, each: impl FnMut(Found, Payload, u64)) -> Result<Option<ScanStep>> {
        self.read_ahead(u64::MAX);
        Ok(if self.next_chunk_arrives().await? { Some(self.look(each)) } else { None })
    }

    /// Passes each part in the chunk that arrived last to `each`, with its payload and the number of bytes
    /// scanned.
    pub(super) fn look(&mut self, mut each: impl FnMut(Found, Payload, u64)) -> ScanStep {
        if let Some(segment) = self.segments.get(self.segment) {
            let home = Home { uuid: self.uuid, zone: segment.zone };
            let zone_start = self.dev.geometry().start(segment.zone);
            while let Some(step) = self.blocks.step(segment, self.log, &home, self.last) {
                if let Some((header, start, end)) = step
                    && let Some(payload) = self.blocks.payload_of(start, &header)
                {
                    let found = Found { header, segment: self.segment, lba: zone_start.plus(start), end };
                    each(found, payload, self.scanned);
                }
            }
        }
        self.blocks.drop_scanned(self.last);
        ScanStep { scanned: self.scanned, segment_over: self.last }
    }
}

/// The reads that cover all segments of the log: each up to its zone's write pointer, or to its end in a conventional zone.
async fn chunk_reads(dev: &Arc<dyn ZonedDevice>, segments: &[Segment]) -> Result<VecDeque<ChunkRead>> {
    let geometry = dev.geometry();
    let step = Blocks((CHUNK_BYTES / u64::from(geometry.block_size)).min(geometry.max_transfer.0).max(1));
    let mut chunks = VecDeque::new();
    for (number, segment) in segments.iter().enumerate() {
        let zones = segment.zone.0..segment.zone.0.saturating_add(1);
        // The scan stops at a zone's write pointer: no entry lies behind it, and some devices refuse to read
        // there. A conventional zone has none, and an offline zone gives no block.
        let report = dev.report(zones).await.map_err(|e| Error::device("recover a log", e))?;
        let end = match report.first() {
            None => segment.start,
            Some(info) if info.state == ZoneState::Offline => segment.start,
            Some(_) if geometry.is_conventional(segment.zone) => segment.end,
            Some(info) => info.pointer.min(segment.end),
        };
        let mut start = segment.start;
        while start < end {
            let blocks = step.min(end.minus(start));
            let last = start.plus(blocks) == end;
            chunks.push_back(ChunkRead { segment: number, start, blocks, last });
            start = start.plus(blocks);
        }
    }
    Ok(chunks)
}

/// The blocks of a segment that are in memory and not scanned yet. An entry may span several chunks; it is checked without a
/// copy.
struct Unscanned {
    block_size: u64,
    chunks: VecDeque<(Blocks, Arc<ReadBuffer>)>,
    /// The next block of the segment to scan.
    at: Option<Blocks>,
}

impl Unscanned {
    fn new(block_size: u64) -> Unscanned {
        Unscanned { block_size, chunks: VecDeque::new(), at: None }
    }

    fn push(&mut self, start: Blocks, data: ReadBuffer) {
        self.at.get_or_insert(start);
        self.chunks.push_back((start, Arc::new(data)));
    }

    fn end(&self) -> Blocks {
        self.chunks
            .back()
            .map_or(Blocks::ZERO, |(start, d)| start.plus(Blocks(d.len() as u64 / self.block_size)))
    }

    /// Scans the segment's next block. `None` if a further chunk is needed, or at the segment's end.
    /// `Some(None)` if no valid part begins at the block; otherwise the part's header, its first block and
    /// the block after it.
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
            .bytes(at, 0, HEADER_SIZE as u64)
            .next()
            .and_then(|(chunk, range)| EntryHeader::parse(chunk.get(range)?).ok())
            .filter(|h| h.log == log && h.generation == segment.generation);
        let Some(header) = header else {
            self.at = Some(next);
            return Some(None);
        };
        let end = at.plus(Blocks((header.total() as u64).div_ceil(self.block_size)));
        if end > self.end() && !last && end <= segment.end {
            return None;
        }
        // After a torn entry the scan continues with the next block: no block inside an entry begins like an
        // entry.
        let whole = end <= self.end() && self.fits(at, &header, home);
        self.at = Some(if whole { end } else { next });
        Some(whole.then_some((header, at, end)).filter(|(h, ..)| !h.padding))
    }

    /// True if the header's checksum fits the payload at block `at`.
    fn fits(&self, at: Blocks, header: &EntryHeader, home: &Home) -> bool {
        let pieces = self.bytes(at, HEADER_SIZE as u64, header.total() as u64);
        header.checksum(home, pieces.filter_map(|(chunk, range)| chunk.get(range))) == header.crc
    }

    /// The payload of the part at block `at`.
    fn payload_of(&self, at: Blocks, header: &EntryHeader) -> Option<Payload> {
        let mut pieces = self.bytes(at, HEADER_SIZE as u64, header.total() as u64);
        let Some((chunk, range)) = pieces.next() else {
            // The part has no stream bytes.
            return self.chunks.front().map(|(_, chunk)| Payload::new(chunk, 0..0));
        };
        let mut payload = Payload::new(chunk, range);
        pieces.for_each(|(chunk, range)| payload.push(chunk, range));
        Some(payload)
    }

    /// The segment's bytes at offsets `from` to `to` from the start of block `at`, piece by piece.
    fn bytes(
        &self,
        at: Blocks,
        from: u64,
        to: u64,
    ) -> impl Iterator<Item = (&Arc<ReadBuffer>, Range<usize>)> {
        let (from, to) = (at.0 * self.block_size + from, at.0 * self.block_size + to);
        self.chunks.iter().filter_map(move |(start, chunk)| {
            let start = start.0 * self.block_size;
            let begin = usize::try_from(from.saturating_sub(start)).ok()?;
            let end = usize::try_from(to.saturating_sub(start)).ok()?.min(chunk.len());
            (begin < end).then_some((chunk, begin..end))
        })
    }

    /// Drops the log chunks whose blocks are all scanned.
    fn drop_scanned(&mut self, last: bool) {
        let at = self.at.unwrap_or_default();
        while let Some((start, chunk)) = self.chunks.front()
            && (last || start.plus(Blocks(chunk.len() as u64 / self.block_size)) <= at)
        {
            self.chunks.pop_front();
        }
        if last {
            self.at = None;
        }
    }
}
