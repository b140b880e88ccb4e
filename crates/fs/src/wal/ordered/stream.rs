//! Reading a log from its beginning to its end, with read-ahead.
//!
//! ```text
//!   filler (a task of its own):  device -> chunks -> check -> sort -> [places and chunks] -+
//!   stream (the reader's task):      caller's buffer  <------ the only copy ---------------+
//! ```
//!
//! The filler stops when [`MEMORY`] is in use, and goes on when the reader has copied. The bytes of an entry that waits long
//! for an earlier one are dropped and read a second time.

use std::collections::VecDeque;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use units::sync::Event;
use units::{Blocks, Bytes, Lba};
use uuid::Uuid;
use zoned::{BufMut, Io, ZonedDevice};

use crate::background::{BackgroundTask, BackgroundTasks};
use crate::error::{Error, ErrorKind, Result};
use crate::rules::Rules;
use crate::wal::chunk::{Memory, Payload, ReadBuffer};
use crate::wal::entry::{HEADER_SIZE, copy_unmasked};
use crate::wal::index::LogIndex;
use crate::wal::index::{Check, Plan, Planned, Run};
use crate::wal::ordered::recovered::{Cut, Recovered, check_order};
use crate::wal::ordered::sort::{Part, Sorter};
use crate::wal::scan::{CHUNK_BYTES, READ_AHEAD_BYTES, Scan};
use crate::wal::segment::Segment;

/// The most memory that reading a log uses for its bytes: bytes being read, held by the sorter, and waiting
/// to be copied.
pub const MEMORY: Bytes = Bytes(32 << 20);
/// When this many bytes after an entry are scanned and the entry still waits for an earlier one, its bytes
/// are dropped from memory.
pub(super) const MAX_HELD_BYTES: u64 = 8 << 20;

/// The time and memory that reading a log took.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct ReadStats {
    /// Bytes of the log's stream that the reader got.
    pub bytes: Bytes,
    /// Time in which the read-ahead task (filler) waited for the device.
    pub device: Duration,
    /// Time in which the read-ahead task (filler) checked and sorted entries.
    pub check: Duration,
    /// Time in which the read-ahead task (filler) waited for the reader to free memory.
    pub room: Duration,
    /// Time in which the log's reader waited for the read-ahead task (filler).
    pub wait: Duration,
    /// Time in which the log's reader copied bytes.
    pub copy: Duration,
    /// The most memory in use while reading the log, in bytes.
    pub peak: Bytes,
    /// Bytes that were read from the device a second time, because they had waited too long for an earlier
    /// entry.
    pub again: Bytes,
}

/// The stream bytes of one part of an entry, on their way to the log's reader.
#[derive(Debug)]
struct StreamPart {
    /// The part's bytes as they are on the device; `None`: the reader reads them from the part at `lba`.
    payload: Option<Payload>,
    /// The distance of the part's first byte in `payload` from a block boundary.
    phase: usize,
    length: u32,
    mask: u32,
    lba: Lba,
}

impl From<Part> for StreamPart {
    fn from(part: Part) -> StreamPart {
        let header = part.found.header;
        StreamPart {
            payload: part.payload,
            phase: HEADER_SIZE,
            length: header.length,
            mask: header.mask,
            lba: part.found.lba,
        }
    }
}

/// The queue between the filler, which reads ahead, and the log's reader.
#[derive(Debug, Default)]
struct StreamQueue {
    state: Mutex<StreamQueueState>,
    /// Notified when the filler adds an item or ends the stream.
    filled: Event,
    memory: Arc<Memory>,
}

#[derive(Debug, Default)]
struct StreamQueueState {
    /// The queue's items, in the order of the stream.
    items: VecDeque<StreamPart>,
    end: Option<Result<()>>,
    /// Set once the reader was dropped. An unmount waits until the filler, too, has dropped the queue.
    dropped: Option<BackgroundTask>,
    stats: ReadStats,
}

impl StreamQueue {
    fn push(&self, items: impl Iterator<Item = StreamPart>) {
        self.state.lock().items.extend(items);
        self.filled.notify();
    }

    fn check(&self) -> Result<()> {
        if self.state.lock().dropped.is_some() {
            return Err(Error::new(ErrorKind::Closed, "read a log").because("its reader was dropped"));
        }
        Ok(())
    }

    fn end(&self, result: Result<()>, stats: ReadStats) {
        {
            let mut state = self.state.lock();
            (state.end, state.stats) = (Some(result), stats);
        }
        self.filled.notify();
    }
}

/// The reading end of a log's stream. Used by one task at a time.
pub(crate) struct LogStream {
    dev: Arc<dyn ZonedDevice>,
    check: Check,
    pipe: Arc<StreamQueue>,
    /// The background tasks of the mount, to which the filler of a dropped stream belongs.
    background: BackgroundTasks,
    items: VecDeque<StreamPart>,
    /// Bytes of the queue's first item that the reader already got.
    used: usize,
    position: u64,
    stats: ReadStats,
}

/// The filling end of a log's stream, which reads ahead. The caller spawns [`recover`](Filler::recover) or
/// [`follow`](Filler::follow), and passes the outcome to [`end`](Filler::end).
pub(crate) struct Filler {
    dev: Arc<dyn ZonedDevice>,
    check: Check,
    pipe: Arc<StreamQueue>,
    stats: ReadStats,
    ended: bool,
}

/// A log that is recovered while it is read.
#[derive(Clone, Debug)]
pub(crate) struct UnrecoveredLog {
    pub(crate) uuid: Uuid,
    pub(crate) log: u64,
    pub(crate) cuts: Vec<Cut>,
    pub(crate) segments: Vec<Segment>,
    pub(crate) rules: Rules,
}

/// The two ends of a stream over the log on `dev` that `check` identifies.
pub(crate) fn stream(
    dev: &Arc<dyn ZonedDevice>,
    check: Check,
    background: &BackgroundTasks,
) -> (LogStream, Filler) {
    let pipe = Arc::new(StreamQueue::default());
    let stats = ReadStats::default();
    let stream = LogStream {
        dev: Arc::clone(dev),
        check,
        pipe: Arc::clone(&pipe),
        background: background.clone(),
        items: VecDeque::new(),
        used: 0,
        position: 0,
        stats,
    };
    (stream, Filler { dev: Arc::clone(dev), check, pipe, stats, ended: false })
}

impl LogStream {
    /// The stream offset of the next byte that the reader gets.
    pub(crate) fn position(&self) -> u64 {
        self.position
    }

    /// The times and counts so far. Those of the filler are zero until it has ended.
    pub(crate) fn stats(&self) -> ReadStats {
        let filler = self.pipe.state.lock().stats;
        let ReadStats { bytes, wait, copy, again, .. } = self.stats;
        let peak = Bytes(self.pipe.memory.peak());
        ReadStats { bytes, wait, copy, again, peak, ..filler }
    }

    /// Fills `into` with the next bytes of the log's stream; returns their number, fewer only at the stream's
    /// end. After an error the position is undefined.
    pub(crate) async fn read(&mut self, into: &mut [u8]) -> Result<usize> {
        let driver = Arc::clone(self.dev.driver());
        let mut done = 0;
        while let Some(to) = into.get_mut(done..).filter(|to| !to.is_empty()) {
            let before = driver.now();
            let Some(in_memory) = self.items.front().map(|item| item.payload.is_some()) else {
                let more = self.take_queued_parts().await?;
                self.stats.wait += driver.now().since(before);
                if more { continue } else { break }
            };
            if !in_memory {
                self.reread_dropped_parts(to.len()).await?;
            }
            let got = self.copy(to);
            self.stats.copy += driver.now().since(before);
            done += got;
            self.position += got as u64;
            self.stats.bytes.0 += got as u64;
        }
        Ok(done)
    }

    /// Takes the items that the filler has queued; false at the end of the stream.
    async fn take_queued_parts(&mut self) -> Result<bool> {
        loop {
            let seen = self.pipe.filled.version();
            {
                let mut state = self.pipe.state.lock();
                if !state.items.is_empty() {
                    std::mem::swap(&mut self.items, &mut state.items);
                    return Ok(true);
                }
                if let Some(end) = &state.end {
                    return end.clone().map(|()| false);
                }
            }
            self.pipe.filled.changed_since(seen).await;
        }
    }

    /// Copies as many queued items as fit into the caller's buffer, up to one whose bytes are not in memory.
    fn copy(&mut self, into: &mut [u8]) -> usize {
        let block_size = self.dev.geometry().block_size as usize;
        let mut done = 0;
        while let Some(StreamPart { payload: Some(payload), phase, mask, length, .. }) = self.items.front() {
            let mut skip = self.used;
            let mut phase = phase + self.used;
            for piece in payload.pieces() {
                let from = piece.get(skip..).unwrap_or_default();
                skip = skip.saturating_sub(piece.len());
                let to = into.get_mut(done..).unwrap_or_default();
                let n = from.len().min(to.len());
                copy_unmasked(from, phase, block_size, *mask, to);
                (done, phase, self.used) = (done + n, phase + n, self.used + n);
            }
            if self.used < *length as usize {
                break;
            }
            self.items.pop_front();
            self.used = 0;
        }
        done
    }

    /// Reads the next `wanted` bytes of queued items from the device: their bytes are not in memory.
    async fn reread_dropped_parts(&mut self, wanted: usize) -> Result<()> {
        let start = self.position - self.used as u64;
        let mut index = LogIndex::starting_at(Bytes(start));
        for item in self.items.iter().take_while(|item| item.payload.is_none()) {
            if index.size().0 >= self.position + wanted as u64 {
                break;
            }
            index.push(item.lba, item.length, item.mask);
        }
        let len = usize::try_from(index.size().0 - start).expect("a reader's buffer and a part");
        let plan = index.plan(self.dev.geometry(), start, len);
        let (items, damage) =
            PlannedReads::submit(&self.dev, plan, &Arc::default()).finish(&self.dev, self.check).await?;
        for (item, again) in self.items.iter_mut().zip(items) {
            self.stats.again.0 += u64::from(again.length);
            *item = again;
        }
        // The reader gets the bytes before a damaged part before it gets the error.
        match damage {
            Some(damage) if self.items.front().is_none_or(|item| item.payload.is_none()) => Err(damage),
            _ => Ok(()),
        }
    }
}

impl Drop for LogStream {
    fn drop(&mut self) {
        self.pipe.state.lock().dropped = Some(self.background.begin());
        self.pipe.memory.freed.notify();
    }
}

impl Filler {
    /// Recovers a log: checks and sorts its parts, and passes those that count to the reader. Fails if the
    /// device fails, and if the reader was dropped.
    pub(crate) async fn recover(&mut self, log: &UnrecoveredLog) -> Result<Recovered> {
        check_order(&log.cuts)?;
        let driver = Arc::clone(self.dev.driver());
        let memory = Arc::clone(&self.pipe.memory);
        let mut scan = Scan::begin(&self.dev, log.uuid, log.log, &log.segments, &memory).await?;
        let mut sorter = Sorter::new(&log.cuts, &log.segments, log.rules.keeps_entries_behind_gaps());
        loop {
            self.wait_for_memory(|| scan.read_ahead(MEMORY.0)).await?;
            let before = driver.now();
            let arrived = scan.next_chunk_arrives().await?;
            let read = driver.now();
            self.stats.device += read.since(before);
            if !arrived {
                break;
            }
            let step =
                scan.look(|found, payload, at| sorter.push(Part { found, payload: Some(payload) }, at));
            if step.segment_over {
                sorter.end_of_segment();
            }
            sorter.drop_bytes(step.scanned.saturating_sub(MAX_HELD_BYTES));
            self.pipe.push(sorter.ready().map(StreamPart::from));
            self.stats.check += driver.now().since(read);
        }
        sorter.finish();
        self.pipe.push(sorter.ready().map(StreamPart::from));
        Ok(sorter.recovered().traced(log.log))
    }

    /// Reads a log whose index is known. Checks each part again: the medium may have lost it since the
    /// recovery.
    pub(crate) async fn follow(&mut self, index: &LogIndex) -> Result<()> {
        let driver = Arc::clone(self.dev.driver());
        let dev = Arc::clone(&self.dev);
        let mut ahead = ReadAhead::new(index, &dev, Arc::clone(&self.pipe.memory));
        loop {
            self.wait_for_memory(|| ahead.read_ahead()).await?;
            let before = driver.now();
            let read = ahead.next(self.check).await?;
            self.stats.device += driver.now().since(before);
            let Some((items, damage)) = read else { return Ok(()) };
            self.pipe.push(items.into_iter());
            if let Some(damage) = damage {
                return Err(damage);
            }
        }
    }

    /// Calls `submit` until it returns true, each time after memory was freed.
    async fn wait_for_memory(&mut self, mut submit: impl FnMut() -> bool) -> Result<()> {
        loop {
            let seen = self.pipe.memory.freed.version();
            self.pipe.check()?;
            if submit() {
                return Ok(());
            }
            let before = self.dev.driver().now();
            self.pipe.memory.freed.changed_since(seen).await;
            self.stats.room += self.dev.driver().now().since(before);
        }
    }

    /// Ends the log's stream: after the last item the reader gets the end, or the error.
    /// The filler no longer references the device when the reader gets it.
    pub(crate) fn end(mut self, result: Result<()>) {
        self.ended = true;
        let (pipe, stats) = (Arc::clone(&self.pipe), self.stats);
        drop(self);
        pipe.end(result, stats);
    }
}

impl Drop for Filler {
    fn drop(&mut self) {
        if !self.ended {
            let why = "the task that fills the stream was dropped; open the log again";
            self.pipe.end(Err(Error::new(ErrorKind::Closed, "read a log").because(why)), self.stats);
        }
    }
}

/// The device reads of a plan, in flight.
struct PlannedReads {
    plan: Plan,
    reads: Vec<(ReadBuffer, Io<BufMut>)>,
}

impl PlannedReads {
    fn submit(dev: &Arc<dyn ZonedDevice>, plan: Plan, memory: &Arc<Memory>) -> PlannedReads {
        let block_size = dev.geometry().block_size;
        let submit = |run: &Run| {
            let bytes = run.blocks.bytes(block_size).0;
            let mut lease = memory.take(usize::try_from(bytes).expect("a run is no longer than a transfer"));
            let io = dev.read(run.at, lease.lend());
            (lease, io)
        };
        let reads = plan.runs.iter().map(submit).collect();
        PlannedReads { plan, reads }
    }

    /// The planned parts in the order of the stream, up to the first damaged one, and the error of the
    /// damaged one.
    async fn finish(
        self,
        dev: &Arc<dyn ZonedDevice>,
        check: Check,
    ) -> Result<(Vec<StreamPart>, Option<Error>)> {
        let PlannedReads { plan, reads } = self;
        let mut chunks = Vec::with_capacity(reads.len());
        for (mut lease, io) in reads {
            lease.give(io.await.map_err(|e| Error::device("read a log", e))?);
            chunks.push(Arc::new(lease));
        }
        let mut parts: Vec<&Planned> = plan.parts.iter().collect();
        parts.sort_unstable_by_key(|part| part.offset);
        let mut items = Vec::with_capacity(parts.len());
        for part in parts {
            let places = plan.pieces(part, dev.geometry().block_size);
            let mut pieces = places.filter_map(|(run, bytes)| Some((chunks.get(run)?, bytes)));
            let Some((chunk, bytes)) = pieces.next() else { return Ok((items, Some(check.damage(part)))) };
            let mut whole = Payload::new(chunk, bytes);
            pieces.for_each(|(chunk, bytes)| whole.push(chunk, bytes));
            if !check.fits(dev.geometry(), part, whole.pieces()) {
                return Ok((items, Some(check.damage(part))));
            }
            let (length, mask, lba) = (part.length, part.mask, part.lba);
            let payload = Some(whole.skip(HEADER_SIZE));
            items.push(StreamPart { payload, phase: HEADER_SIZE, length, mask, lba });
        }
        Ok((items, None))
    }
}

/// Read-ahead of a log's parts along its index.
struct ReadAhead<'a> {
    index: &'a LogIndex,
    dev: &'a Arc<dyn ZonedDevice>,
    memory: Arc<Memory>,
    offset: u64,
    in_flight: u64,
    reads: VecDeque<PlannedReads>,
}

impl<'a> ReadAhead<'a> {
    fn new(index: &'a LogIndex, dev: &'a Arc<dyn ZonedDevice>, memory: Arc<Memory>) -> ReadAhead<'a> {
        ReadAhead { index, dev, memory, offset: 0, in_flight: 0, reads: VecDeque::new() }
    }

    /// Submits further reads along the index, as [`Scan::read_ahead`] does along segments.
    fn read_ahead(&mut self) -> bool {
        let geometry = self.dev.geometry();
        let size = self.index.size().0;
        while self.in_flight < READ_AHEAD_BYTES && self.offset < size {
            if self.memory.held() + CHUNK_BYTES > MEMORY.0 {
                break;
            }
            let most = Blocks(CHUNK_BYTES / u64::from(geometry.block_size));
            let plan = self.index.plan_within(geometry, self.offset, usize::MAX, most);
            if plan.len == 0 {
                // The index does not begin at the reader's offset: the reader gets fewer bytes than the index
                // has.
                self.offset = size;
                break;
            }
            // A part of an entry may be longer than a chunk.
            let bytes = plan.bytes(geometry.block_size);
            if self.memory.held() + bytes > MEMORY.0 {
                break;
            }
            self.offset += plan.len as u64;
            self.in_flight += bytes;
            self.reads.push_back(PlannedReads::submit(self.dev, plan, &self.memory));
        }
        !self.reads.is_empty() || self.offset >= size
    }

    /// Waits for the oldest planned read, as [`PlannedReads::finish`]; `None` at the end of the index.
    async fn next(&mut self, check: Check) -> Result<Option<(Vec<StreamPart>, Option<Error>)>> {
        let Some(reads) = self.reads.pop_front() else { return Ok(None) };
        self.in_flight -= reads.plan.bytes(self.dev.geometry().block_size);
        reads.finish(self.dev, check).await.map(Some)
    }
}

impl fmt::Debug for LogStream {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "stream of a log at byte {}", self.position)
    }
}
