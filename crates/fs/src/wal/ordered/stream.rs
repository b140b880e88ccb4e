//! Reading a log from its beginning to its end, ahead of who asks.
//!
//! ```text
//!   filler (a thread in real time):  device -> chunks -> check -> sort -> [places and chunks] -+
//!   stream (who reads):                  caller's buffer  <------ the only copy ---------------+
//! ```
//!
//! The filler stops when [`MEMORY`] is in use, and goes on when the reader has copied. Entries that have to wait long
//! for one before them keep their place only, and are read again.

use std::collections::VecDeque;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use units::sync::Event;
use units::{Blocks, Bytes, Driver, Instant, Lba};
use uuid::Uuid;
use zoned::{BufMut, Io, ZonedDevice};

use crate::error::{Error, ErrorKind, Result};
use crate::rules::Rules;
use crate::wal::chunk::{Lease, Memory, Payload};
use crate::wal::entry::{HEADER_SIZE, copy_unmasked};
use crate::wal::index::LogIndex;
use crate::wal::index::{Check, Plan, Planned, Run};
use crate::wal::ordered::recovered::{Cut, Recovered, check_order};
use crate::wal::ordered::sort::{Part, Sorter};
use crate::wal::scan::{CHUNK, READ_AHEAD, Scan};
use crate::wal::segment::Segment;

/// The most memory that a reading uses for a log's bytes: what is being read, held back, and waiting to be copied.
pub const MEMORY: Bytes = Bytes(32 << 20);
/// An entry that waits for an earlier one keeps its bytes in memory while this much is read behind it.
pub(super) const HELD: u64 = 8 << 20;

/// Where the time of a reading went, and how much memory it took.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct ReadStats {
    /// Bytes of the stream that were given out.
    pub bytes: Bytes,
    /// The filler waited for the device.
    pub device: Duration,
    /// It checked and sorted.
    pub check: Duration,
    /// It waited for the reader to make room.
    pub room: Duration,
    /// The reader waited for the filler.
    pub wait: Duration,
    /// The reader copied.
    pub copy: Duration,
    /// The most memory in use.
    pub peak: Bytes,
    /// Bytes that were read a second time, because they had waited too long.
    pub again: Bytes,
}

/// A piece of the stream, in its order.
#[derive(Debug)]
struct Item {
    /// Its bytes as they lie on the device; `None`: to be read from the part at `lba`.
    payload: Option<Payload>,
    /// The distance of its first byte from a block boundary.
    phase: usize,
    length: u32,
    mask: u32,
    lba: Lba,
}

impl From<Part> for Item {
    fn from(part: Part) -> Item {
        let header = part.found.header;
        Item {
            payload: part.payload,
            phase: HEADER_SIZE,
            length: header.length,
            mask: header.mask,
            lba: part.found.lba,
        }
    }
}

/// Between filler and reader.
#[derive(Debug, Default)]
struct Pipe {
    state: Mutex<State>,
    /// Something came, or the end.
    filled: Event,
    memory: Arc<Memory>,
}

#[derive(Debug, Default)]
struct State {
    items: VecDeque<Item>,
    end: Option<Result<()>>,
    /// Nobody reads any more.
    gone: bool,
    stats: ReadStats,
}

impl Pipe {
    fn push(&self, items: impl Iterator<Item = Item>) {
        self.state.lock().items.extend(items);
        self.filled.notify();
    }

    fn check(&self) -> Result<()> {
        if self.state.lock().gone {
            return Err(Error::new(ErrorKind::Closed, "read a log").because("nobody reads it any more"));
        }
        Ok(())
    }
}

/// The reading end. Used by one task at a time.
pub(crate) struct LogStream {
    dev: Arc<dyn ZonedDevice>,
    check: Check,
    pipe: Arc<Pipe>,
    items: VecDeque<Item>,
    /// Bytes of the first item that were given out.
    used: usize,
    position: u64,
    stats: ReadStats,
}

/// The other end: fills the stream. Its future is to be spawned, and [`end`](Filler::end) called with the outcome.
pub(crate) struct Filler {
    dev: Arc<dyn ZonedDevice>,
    check: Check,
    pipe: Arc<Pipe>,
    stats: ReadStats,
    ended: bool,
}

/// A log that is read for the first time.
#[derive(Clone, Debug)]
pub(crate) struct Unread {
    pub(crate) uuid: Uuid,
    pub(crate) log: u64,
    pub(crate) cuts: Vec<Cut>,
    pub(crate) segments: Vec<Segment>,
    pub(crate) rules: Rules,
}

/// The two ends of a stream over a log on `dev`, whose parts `check` fits.
pub(crate) fn stream(dev: &Arc<dyn ZonedDevice>, check: Check) -> (LogStream, Filler) {
    let pipe = Arc::new(Pipe::default());
    let stats = ReadStats::default();
    let stream = LogStream {
        dev: Arc::clone(dev),
        check,
        pipe: Arc::clone(&pipe),
        items: VecDeque::new(),
        used: 0,
        position: 0,
        stats,
    };
    (stream, Filler { dev: Arc::clone(dev), check, pipe, stats, ended: false })
}

impl LogStream {
    /// The stream offset of the next byte.
    pub(crate) fn position(&self) -> u64 {
        self.position
    }

    /// Where the time went so far. What the filler knows comes with its end.
    pub(crate) fn stats(&self) -> ReadStats {
        let filler = self.pipe.state.lock().stats;
        let ReadStats { bytes, wait, copy, again, .. } = self.stats;
        let peak = Bytes(self.pipe.memory.peak());
        ReadStats { bytes, wait, copy, again, peak, ..filler }
    }

    /// Fills `into` with the next bytes of the stream; gives their number, fewer only at its end. After an error the
    /// position is of no meaning.
    pub(crate) async fn read(&mut self, into: &mut [u8]) -> Result<usize> {
        let driver = Arc::clone(self.dev.driver());
        let mut done = 0;
        while let Some(to) = into.get_mut(done..).filter(|to| !to.is_empty()) {
            let before = driver.now();
            let Some(in_memory) = self.items.front().map(|item| item.payload.is_some()) else {
                let more = self.refill().await?;
                self.stats.wait += since(&*driver, before);
                if more { continue } else { break }
            };
            if !in_memory {
                self.read_again(to.len()).await?;
            }
            let got = self.copy(to);
            self.stats.copy += since(&*driver, before);
            done += got;
            self.position += got as u64;
            self.stats.bytes.0 += got as u64;
        }
        Ok(done)
    }

    /// Takes what the filler has; false at the end.
    async fn refill(&mut self) -> Result<bool> {
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

    /// Copies as many items as fit, up to one whose bytes are not in memory.
    fn copy(&mut self, into: &mut [u8]) -> usize {
        let block_size = self.dev.geometry().block_size as usize;
        let mut done = 0;
        while let Some(Item { payload: Some(payload), phase, mask, length, .. }) = self.items.front() {
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

    /// Reads the bytes of the next items, whose places alone are known, from the device: as many as are asked for.
    async fn read_again(&mut self, wanted: usize) -> Result<()> {
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
        let (items, lost) =
            Flight::begin(&self.dev, plan, &Arc::default()).land(&self.dev, self.check).await?;
        for (item, again) in self.items.iter_mut().zip(items) {
            self.stats.again.0 += u64::from(again.length);
            *item = again;
        }
        // What is before it is given out first.
        match lost {
            Some(lost) if self.items.front().is_none_or(|item| item.payload.is_none()) => Err(lost),
            _ => Ok(()),
        }
    }
}

impl Drop for LogStream {
    fn drop(&mut self) {
        self.pipe.state.lock().gone = true;
        self.pipe.memory.freed.notify();
    }
}

impl Filler {
    /// Reads a log for the first time: checks, sorts, hands on what counts. Fails where the device fails, and when the
    /// stream is dropped.
    pub(crate) async fn recover(&mut self, log: &Unread) -> Result<Recovered> {
        check_order(&log.cuts)?;
        let driver = Arc::clone(self.dev.driver());
        let memory = Arc::clone(&self.pipe.memory);
        let mut scan = Scan::begin(&self.dev, log.uuid, log.log, &log.segments, &memory).await?;
        let mut sorter = Sorter::new(&log.cuts, &log.segments, log.rules.keeps_entries_behind_gaps());
        loop {
            self.room(|| scan.read_ahead(MEMORY.0)).await?;
            let before = driver.now();
            let arrived = scan.arrive().await?;
            let read = driver.now();
            self.stats.device += between(before, read);
            if !arrived {
                break;
            }
            let step =
                scan.look(|found, payload, at| sorter.push(Part { found, payload: Some(payload) }, at));
            if step.segment_over {
                sorter.end_of_segment();
            }
            sorter.forget(step.scanned.saturating_sub(HELD));
            self.pipe.push(sorter.ready().map(Item::from));
            self.stats.check += since(&*driver, read);
        }
        sorter.finish();
        self.pipe.push(sorter.ready().map(Item::from));
        Ok(sorter.recovered().said(log.log))
    }

    /// Reads a log whose index is known. Each part is checked again: the medium may have lost it since.
    pub(crate) async fn follow(&mut self, index: &LogIndex) -> Result<()> {
        let driver = Arc::clone(self.dev.driver());
        let dev = Arc::clone(&self.dev);
        let mut ahead = Ahead::new(index, &dev, Arc::clone(&self.pipe.memory));
        loop {
            self.room(|| ahead.read_ahead()).await?;
            let before = driver.now();
            let landed = ahead.next(self.check).await?;
            self.stats.device += since(&*driver, before);
            let Some((items, lost)) = landed else { return Ok(()) };
            self.pipe.push(items.into_iter());
            if let Some(lost) = lost {
                return Err(lost);
            }
        }
    }

    /// Calls `submit` until it could do something: memory may have to come free first.
    async fn room(&mut self, mut submit: impl FnMut() -> bool) -> Result<()> {
        loop {
            let seen = self.pipe.memory.freed.version();
            self.pipe.check()?;
            if submit() {
                return Ok(());
            }
            let before = self.dev.driver().now();
            self.pipe.memory.freed.changed_since(seen).await;
            self.stats.room += since(&**self.dev.driver(), before);
        }
    }

    /// The reader comes to the end, or to the error.
    pub(crate) fn end(mut self, result: Result<()>) {
        self.finish(result);
    }

    fn finish(&mut self, result: Result<()>) {
        self.ended = true;
        {
            let mut state = self.pipe.state.lock();
            (state.end, state.stats) = (Some(result), self.stats);
        }
        self.pipe.filled.notify();
    }
}

impl Drop for Filler {
    fn drop(&mut self) {
        if !self.ended {
            let why = "the task that reads it was dropped; open it again";
            self.finish(Err(Error::new(ErrorKind::Closed, "read a log").because(why)));
        }
    }
}

/// The reads of a plan, under way.
struct Flight {
    plan: Plan,
    reads: Vec<(Lease, Io<BufMut>)>,
}

impl Flight {
    fn begin(dev: &Arc<dyn ZonedDevice>, plan: Plan, memory: &Arc<Memory>) -> Flight {
        let block_size = dev.geometry().block_size;
        let submit = |run: &Run| {
            let bytes = run.blocks.bytes(block_size).0;
            let mut lease = memory.take(usize::try_from(bytes).expect("a run is no longer than a transfer"));
            let io = dev.read(run.at, lease.lend());
            (lease, io)
        };
        let reads = plan.runs.iter().map(submit).collect();
        Flight { plan, reads }
    }

    /// The parts in the order of the stream, up to the first one that is damaged, and what is to be said of that one.
    async fn land(self, dev: &Arc<dyn ZonedDevice>, check: Check) -> Result<(Vec<Item>, Option<Error>)> {
        let Flight { plan, reads } = self;
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
            let payload = Some(whole.behind(HEADER_SIZE));
            items.push(Item { payload, phase: HEADER_SIZE, length, mask, lba });
        }
        Ok((items, None))
    }
}

/// Reads along an index.
struct Ahead<'a> {
    index: &'a LogIndex,
    dev: &'a Arc<dyn ZonedDevice>,
    memory: Arc<Memory>,
    offset: u64,
    in_flight: u64,
    flying: VecDeque<Flight>,
}

impl<'a> Ahead<'a> {
    fn new(index: &'a LogIndex, dev: &'a Arc<dyn ZonedDevice>, memory: Arc<Memory>) -> Ahead<'a> {
        Ahead { index, dev, memory, offset: 0, in_flight: 0, flying: VecDeque::new() }
    }

    /// As [`Scan::read_ahead`].
    fn read_ahead(&mut self) -> bool {
        let geometry = self.dev.geometry();
        let size = self.index.size().0;
        while self.in_flight < READ_AHEAD && self.offset < size {
            if self.memory.held() + CHUNK > MEMORY.0 {
                break;
            }
            let most = Blocks(CHUNK / u64::from(geometry.block_size));
            let plan = self.index.plan_within(geometry, self.offset, usize::MAX, most);
            if plan.len == 0 {
                // The index does not begin early enough: the reader finds out.
                self.offset = size;
                break;
            }
            // A part may be longer than a chunk.
            let bytes = plan.bytes(geometry.block_size);
            if self.memory.held() + bytes > MEMORY.0 {
                break;
            }
            self.offset += plan.len as u64;
            self.in_flight += bytes;
            self.flying.push_back(Flight::begin(self.dev, plan, &self.memory));
        }
        !self.flying.is_empty() || self.offset >= size
    }

    /// As [`Flight::land`]; `None` at the end.
    async fn next(&mut self, check: Check) -> Result<Option<(Vec<Item>, Option<Error>)>> {
        let Some(flight) = self.flying.pop_front() else { return Ok(None) };
        self.in_flight -= flight.plan.bytes(self.dev.geometry().block_size);
        flight.land(self.dev, check).await.map(Some)
    }
}

fn between(from: Instant, to: Instant) -> Duration {
    Duration::from_nanos(to.0.saturating_sub(from.0))
}

fn since(driver: &dyn Driver, from: Instant) -> Duration {
    between(from, driver.now())
}

impl fmt::Debug for LogStream {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "stream of a log at byte {}", self.position)
    }
}
