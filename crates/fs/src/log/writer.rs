//! The writing end of a log.

use std::collections::VecDeque;
use std::fmt;
use std::sync::Arc;

use parking_lot::Mutex;
use units::Bytes;
use units::sync::{Event, Turnstile};
use uuid::Uuid;
use zoned::{Durability, ZonedDevice};

use super::fill::{Fill, Identity, Limits, Sealed, Stop};
use super::{IoMode, LogIndex, LogOptions, Segment, SegmentSource};
use crate::{Error, ErrorKind, Result, Sabotage};

/// The writer of one log. Any number of tasks may call it at once.
///
/// Appended bytes are readable at once, on the device after [`flush`](LogWriter::flush), and safe from a power
/// cut after [`sync`](LogWriter::sync). A failed write or flush, or a task that is dropped in the middle of a
/// write, poisons the writer: what was lost cannot be told from here, so every later call gets the first error
/// until the log is recovered and reopened.
pub struct LogWriter {
    dev: Arc<dyn ZonedDevice>,
    identity: Identity,
    options: LogOptions,
    source: Arc<dyn SegmentSource>,
    state: Mutex<State>,
    /// Held while one record's bytes go into the buffer: they stay together.
    appending: Turnstile,
    /// Held while an entry is being written: one at a time.
    writing: Turnstile,
    /// A sync round is over.
    synced: Event,
}

struct State {
    fill: Fill,
    /// Sealed entries in the order of their sequence; the first one may be on its way to the device.
    queue: VecDeque<Sealed>,
    /// What the device acknowledged.
    written: LogIndex,
    /// Bytes appended, buffer and queue included.
    size: u64,
    /// Bytes that a power cut cannot take.
    durable: u64,
    /// How far those who wait in `sync` want it to be.
    wanted: u64,
    /// Somebody leads a sync round.
    led: bool,
    closed: bool,
    failed: Option<Error>,
}

impl State {
    fn check(&self) -> Result<()> {
        self.failed.clone().map_or(Ok(()), Err)
    }

    fn poison(&mut self, error: Error) -> Error {
        self.failed.get_or_insert(error).clone()
    }
}

impl LogWriter {
    /// A writer of a log whose stream so far ends at `start_offset`; the next entry gets `first_sequence`.
    ///
    /// Everything before that must be durable: `sync` does not flush for it.
    /// A log that is opened again takes a new `epoch`, whose cut (the epoch with its first sequence) must be
    /// durable before anything is appended. Reads below `start_offset` are the caller's: see
    /// [`resume`](LogWriter::resume) for a writer that serves them too.
    #[expect(clippy::too_many_arguments, reason = "a log's identity, its place and its settings: all differ")]
    pub fn new(
        dev: Arc<dyn ZonedDevice>,
        uuid: Uuid,
        log_id: u64,
        epoch: u32,
        first_sequence: u64,
        start_offset: u64,
        options: LogOptions,
        source: Arc<dyn SegmentSource>,
    ) -> LogWriter {
        let index = LogIndex::starting_at(Bytes(start_offset));
        LogWriter::resume(dev, uuid, log_id, epoch, first_sequence, index, options, source)
    }

    /// Like [`new`](LogWriter::new), behind the entries in `index`, which stay readable through the writer.
    #[expect(clippy::too_many_arguments, reason = "a log's identity, its place and its settings: all differ")]
    pub fn resume(
        dev: Arc<dyn ZonedDevice>,
        uuid: Uuid,
        log_id: u64,
        epoch: u32,
        first_sequence: u64,
        index: LogIndex,
        options: LogOptions,
        source: Arc<dyn SegmentSource>,
    ) -> LogWriter {
        let limits = Limits::new(dev.geometry(), &options);
        let size = index.size().0;
        let state = Mutex::new(State {
            fill: Fill::new(limits, first_sequence),
            queue: VecDeque::new(),
            written: index,
            size,
            durable: size,
            wanted: size,
            led: false,
            closed: false,
            failed: None,
        });
        LogWriter {
            dev,
            identity: Identity { uuid, log: log_id, epoch },
            options,
            source,
            state,
            appending: Turnstile::new(),
            writing: Turnstile::new(),
            synced: Event::new(),
        }
    }

    /// Adds `data` to the stream. It is copied into the buffer; entries that fill up on the way are written
    /// before this returns. Nothing is promised of a power cut.
    ///
    /// Bytes of two concurrent calls never mix. Fails with `Closed` after `close`, with the source's error where
    /// there is no room (harmless if no byte was taken yet, otherwise it poisons), and with the device's.
    pub async fn append(&self, data: &[u8]) -> Result<()> {
        let turn = self.appending.acquire().await;
        let mut rest = data;
        let before = self.next_sequence();
        let after = loop {
            {
                let mut state = self.state.lock();
                state.check()?;
                if state.closed {
                    return Err(Error::new(ErrorKind::Closed, "append to a log"));
                }
                let State { fill, queue, .. } = &mut *state;
                let (taken, stop) = fill.put(rest, &self.identity, queue);
                state.size += taken as u64;
                rest = rest.get(taken..).unwrap_or_default();
                if stop == Stop::Done {
                    break state.fill.next_sequence;
                }
            }
            let got = self.next_segment().await;
            let mut state = self.state.lock();
            match got {
                Ok(segment) => state.fill.give(segment),
                Err(error) if rest.len() == data.len() => return Err(error),
                Err(error) => return Err(state.poison(error)),
            }
        };
        drop(turn);
        // Who filled an entry sees it written: no caller runs ahead of the device by more than its own record.
        match after.checked_sub(1) {
            Some(last) if after > before => self.write_through(last).await,
            _ => Ok(()),
        }
    }

    async fn next_segment(&self) -> Result<Segment> {
        let segment = self.source.next().await?;
        let geometry = self.dev.geometry();
        if segment.start >= segment.end
            || segment.end > geometry.zone_size
            || segment.zone.0 >= geometry.zones
        {
            let found = format!("its segment is {:?} to {:?}", segment.start, segment.end);
            return Err(Error::new(ErrorKind::Invalid, "extend a log").in_zone(segment.zone).because(found));
        }
        Ok(segment)
    }

    /// Hands everything appended so far to the device. Nothing is promised of a power cut.
    pub async fn flush(&self) -> Result<()> {
        let last = {
            let mut state = self.state.lock();
            state.check()?;
            self.seal(&mut state)
        };
        match last {
            Some(sequence) => self.write_through(sequence).await,
            None => Ok(()),
        }
    }

    /// Returns when everything appended before the call is safe from a power cut.
    ///
    /// Concurrent callers share: one of them writes the buffer and flushes the device for all who called before
    /// that flush was submitted; who comes later is served by the next one.
    pub async fn sync(&self) -> Result<()> {
        let target = self.state.lock().size;
        loop {
            let seen = self.synced.version();
            let lead = {
                let mut state = self.state.lock();
                state.check()?;
                if state.durable >= target {
                    return Ok(());
                }
                state.wanted = state.wanted.max(target);
                !std::mem::replace(&mut state.led, true)
            };
            if lead {
                let _round = Round(self);
                return self.lead().await;
            }
            self.synced.changed_since(seen).await;
        }
    }

    /// One round of `sync`, for everyone who has asked by the time of the flush.
    async fn lead(&self) -> Result<()> {
        let (covered, sequence) = loop {
            let last = {
                let mut state = self.state.lock();
                state.check()?;
                if state.written.size().0 >= state.wanted {
                    // The flush covers what is acknowledged when it is submitted, and no more.
                    let waiting = state.queue.front().map(|entry| entry.sequence);
                    break (state.written.size().0, waiting.unwrap_or(state.fill.next_sequence));
                }
                self.seal(&mut state)
            };
            if let Some(sequence) = last {
                self.write_through(sequence).await?;
            }
        };
        if self.dev.geometry().volatile_cache && self.options.sabotage != Some(Sabotage::Sync) {
            let flushed = self.dev.flush().await;
            if let Err(error) = flushed {
                return Err(self.state.lock().poison(Error::device("flush a log", error)));
            }
        }
        let mut state = self.state.lock();
        state.durable = state.durable.max(covered);
        if self.options.sabotage != Some(Sabotage::Sync) {
            state.fill.durable = state.fill.durable.max(sequence);
        }
        Ok(())
    }

    /// Ends the entry in the buffer; gives the last sequence that still has to be written.
    fn seal(&self, state: &mut State) -> Option<u64> {
        let State { fill, queue, .. } = state;
        fill.seal(&self.identity, queue);
        queue.back().map(|entry| entry.sequence)
    }

    /// Writes the queue up to and with entry `sequence`. Whoever has the turn writes for all.
    async fn write_through(&self, sequence: u64) -> Result<()> {
        loop {
            if self.is_written(sequence)? {
                return Ok(());
            }
            let _turn = self.writing.acquire().await;
            if self.is_written(sequence)? {
                return Ok(());
            }
            match self.options.mode {
                IoMode::Write | IoMode::Append => self.write_first().await?,
            }
        }
    }

    fn is_written(&self, sequence: u64) -> Result<bool> {
        let state = self.state.lock();
        state.check()?;
        Ok(state.queue.front().is_none_or(|entry| entry.sequence > sequence))
    }

    /// Writes the first entry of the queue, one part after the other.
    async fn write_first(&self) -> Result<()> {
        let jobs: Vec<_> = match self.state.lock().queue.front() {
            Some(entry) => entry.parts.iter().map(|part| (part.lba, entry.bytes_of(part))).collect(),
            None => return Ok(()),
        };
        let mut armed = Armed(Some(self));
        for (lba, data) in jobs {
            let result = self.dev.write(lba, data, Durability::Cached).await;
            if let Err(error) = result {
                armed.0 = None;
                return Err(self.state.lock().poison(Error::device("write a log entry", error)));
            }
        }
        armed.0 = None;
        let mut state = self.state.lock();
        if let Some(entry) = state.queue.pop_front() {
            for part in &entry.parts {
                let length = u32::try_from(part.length).expect("a part is shorter than MAX_PART");
                state.written.push(part.lba, length, part.mask);
            }
            state.fill.recycle(entry.data);
        }
        Ok(())
    }

    /// Bytes appended so far.
    pub fn size(&self) -> Bytes {
        Bytes(self.state.lock().size)
    }

    /// Bytes that are safe from a power cut.
    pub fn durable(&self) -> Bytes {
        Bytes(self.state.lock().durable)
    }

    /// The sequence that the next entry will have.
    pub fn next_sequence(&self) -> u64 {
        self.state.lock().fill.next_sequence
    }

    /// The unused rest of the current segment: what the log holds of the zone beyond its last entry.
    pub fn unused(&self) -> Option<Segment> {
        self.state.lock().fill.rest()
    }

    /// A copy of the index of what is on the device.
    pub fn index(&self) -> LogIndex {
        self.state.lock().written.clone()
    }

    /// Reads from stream offset `offset` on, what is still in memory included; gives the number of bytes, fewer
    /// than asked for only at the end.
    pub async fn read_at(&self, offset: Bytes, into: &mut [u8]) -> Result<usize> {
        let (plan, total) = {
            let state = self.state.lock();
            let plan = state.written.plan(self.dev.geometry(), offset.0, into.len());
            // Copied here, under the lock: a moment later the entry may be on the device and gone from memory.
            let filled = plan.len;
            let tail = into.get_mut(filled..).unwrap_or_default();
            (plan, filled + state.copy_from_memory(offset.0 + filled as u64, tail))
        };
        plan.read(&self.dev, into).await?;
        Ok(total)
    }

    /// Hands everything to the device and refuses further appends; gives the index of all bytes. Calling it
    /// again does no harm. Nothing is promised of a power cut: `sync` still works.
    pub async fn close(&self) -> Result<LogIndex> {
        // An append that has begun brings its bytes in first.
        let turn = self.appending.acquire().await;
        self.state.lock().closed = true;
        drop(turn);
        self.flush().await?;
        Ok(self.index())
    }
}

impl State {
    /// Copies what memory holds from `offset` on; gives the number of bytes.
    fn copy_from_memory(&self, offset: u64, into: &mut [u8]) -> usize {
        let block_size = self.fill.limits.block_size;
        let mut start = self.written.size().0;
        let mut filled = 0;
        for entry in &self.queue {
            let (at, end) = (offset + filled as u64, start + entry.length());
            if (start..end).contains(&at) {
                let to = into.get_mut(filled..).unwrap_or_default();
                filled += entry.copy_to(block_size, at - start, to);
            }
            start = end;
        }
        let at = offset + filled as u64;
        if at >= start {
            filled += self.fill.copy_to(at - start, into.get_mut(filled..).unwrap_or_default());
        }
        filled
    }
}

/// Ends a sync round, also one that failed or was dropped, and lets the others look.
struct Round<'a>(&'a LogWriter);

impl Drop for Round<'_> {
    fn drop(&mut self) {
        self.0.state.lock().led = false;
        self.0.synced.notify();
    }
}

/// A write is in flight: dropped before its end, nobody knows where the zone's pointer is.
struct Armed<'a>(Option<&'a LogWriter>);

impl Drop for Armed<'_> {
    fn drop(&mut self) {
        if let Some(writer) = self.0 {
            let why = "the task that wrote it was dropped in the middle; reopen the log";
            writer.state.lock().poison(Error::new(ErrorKind::Poisoned, "write a log entry").because(why));
        }
    }
}

impl fmt::Debug for LogWriter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (log, epoch) = (self.identity.log, self.identity.epoch);
        write!(f, "writer of log {log}, epoch {epoch}, {:?}", self.size())
    }
}
