//! What a writer knows, and how its entries come to the device: everything here happens under one short lock.

use std::collections::{BTreeMap, VecDeque};
use std::ops::Bound::{Excluded, Unbounded};
use std::sync::Arc;
use std::task::Waker;

use units::Instant;
use zoned::{Done, Durability, Op, ZonedDevice};

use crate::error::{Error, ErrorKind, Result};
use crate::wal::index::LogIndex;
use crate::wal::latencies::Latencies;
use crate::wal::options::{IoMode, LogOptions};
use crate::wal::ordered::fill::{Fill, Identity, Sealed};
use crate::wal::ordered::flight::{Flights, Flushing, Tag};
use crate::wal::stats::LogStats;
use crate::wal::window::Window;

/// Entries from the oldest one in flight on, for each that may be in flight: one slow operation does not let the
/// others run away.
const SPAN: usize = 4;

/// Operations in flight beside which an entry that is not full waits, where operations queue.
const PARTLY_FILLED: usize = 2;

/// A call of `sync` that waits: by the bytes that it wants to be durable, and a number of its own.
pub(super) type Waiting = (u64, u64);

pub(super) struct State {
    pub(super) dev: Arc<dyn ZonedDevice>,
    pub(super) identity: Identity,
    pub(super) options: LogOptions,
    pub(super) fill: Fill,
    /// Sealed entries by sequence, from the oldest that has not landed.
    pub(super) queue: VecDeque<Sealed>,
    /// The next part to send: the entry's sequence, and the part.
    next: (u64, usize),
    pub(super) flights: Flights,
    window: Window,
    latencies: Latencies,
    /// A write is in flight: nothing else may go to the zone.
    exclusive: bool,
    /// The region of what is in flight.
    region: u64,
    /// What the device acknowledged, without a gap.
    pub(super) written: LogIndex,
    /// Bytes appended, buffer and queue included.
    pub(super) size: u64,
    /// Bytes that a power cut cannot take.
    pub(super) durable: u64,
    /// Bytes that somebody wants on the device.
    pub(super) wanted: u64,
    /// Bytes that the next flush waits for.
    flush_goal: Option<u64>,
    /// Those who wait in `sync`.
    pub(super) waiting: BTreeMap<Waiting, Option<Waker>>,
    /// One of them sees to it that things move.
    pub(super) led: bool,
    pub(super) next_id: u64,
    pub(super) closed: bool,
    pub(super) failed: Option<Error>,
    /// When the device acknowledged the newest write; the opening before the first one.
    pub(super) last_write: Instant,
    pub(super) stats: LogStats,
}

impl State {
    pub(super) fn new(
        dev: Arc<dyn ZonedDevice>,
        identity: Identity,
        options: LogOptions,
        fill: Fill,
        index: LogIndex,
    ) -> State {
        let size = index.size().0;
        let most = match options.mode {
            IoMode::Write => 1,
            IoMode::Append => options.window.clamp(1, LogOptions::MAX_WINDOW),
        };
        State {
            last_write: dev.driver().now(),
            dev,
            identity,
            options,
            next: (fill.next_sequence, 0),
            fill,
            queue: VecDeque::new(),
            flights: Flights::default(),
            window: Window::new(most),
            latencies: Latencies::default(),
            exclusive: false,
            region: 0,
            written: index,
            size,
            durable: size,
            wanted: size,
            flush_goal: None,
            waiting: BTreeMap::new(),
            led: false,
            next_id: 0,
            closed: false,
            failed: None,
            stats: LogStats::default(),
        }
    }

    pub(super) fn check(&self) -> Result<()> {
        self.failed.clone().map_or(Ok(()), Err)
    }

    /// Nothing more is written: what is missing cannot be told from here.
    pub(super) fn poison(&mut self, error: Error) -> Error {
        let error = self.failed.get_or_insert(error).clone();
        for waker in self.waiting.values_mut().filter_map(Option::take) {
            waker.wake();
        }
        self.flights.moved().notify();
        error
    }

    /// Operations that may be in flight.
    pub(super) fn window_limit(&self) -> usize {
        self.window.limit()
    }

    /// There are sealed entries that are not on their way yet.
    pub(super) fn has_backlog(&self) -> bool {
        self.next.0 < self.fill.next_sequence
    }

    /// Moves everything that can: takes in what the device has done, and sends what it may be sent. `wait`: the event
    /// of the flights is going to be waited for.
    pub(super) fn advance(&mut self, wait: bool) {
        loop {
            let mut moved = false;
            while let Some((tag, result)) = self.flights.next(wait) {
                self.land(tag, result);
                moved = true;
            }
            while let Some((flushing, result)) = self.flights.flushed(wait) {
                self.flushed(flushing, result);
                moved = true;
            }
            if self.failed.is_none() {
                moved |= self.send() | self.flush();
            }
            if !moved {
                return;
            }
        }
    }

    /// Sends what the window, the barrier and the zone allow. True if there was anything.
    fn send(&mut self) -> bool {
        let mut sent = false;
        while !self.exclusive && self.flights.len() < self.window.limit() {
            let mut sealed = self.size - self.fill.pending();
            if !self.has_backlog() {
                if sealed == self.size || sealed >= self.wanted {
                    break;
                }
                // It would wait on the drive: better that others join it here.
                if self.latencies.queueing() && self.flights.len() >= PARTLY_FILLED {
                    break;
                }
                self.fill.seal(&self.identity, &mut self.queue);
                sealed = self.size;
            }
            let Some((entry, ahead)) = self.next_entry() else { break };
            let Some(part) = entry.parts.get(self.next.1) else { break };
            let lone = self.flights.is_empty();
            let barrier = entry.region != self.region && !self.options.rules().ignores_barriers();
            // Operations of several zones happen in any order: two zones would be open where only one may be.
            if !lone && (barrier || part.behind || ahead >= SPAN * self.window.limit()) {
                break;
            }
            let (zone, lba, data, how) = (part.zone, part.lba, entry.bytes_of(part), Durability::Cached);
            let (region, blocks) = (entry.region, data.len() / self.fill.limits.block_size);
            let last = self.next.1 + 1 == entry.parts.len();
            let serial = self.window.limit() == 1 || entry.alone;
            let single = lone && last && self.next.0 + 1 == self.fill.next_sequence;
            // Somebody waits for all that there is, so nothing will follow at once.
            let write =
                lone && (serial || (single && sealed <= self.wanted && self.latencies.writes(blocks)));
            let op = if write { Op::Write { at: lba, data, how } } else { Op::Append { zone, data, how } };
            let (sequence, part) = self.next;
            let since = self.dev.driver().now();
            let tag = Tag { sequence, part, write_at: write.then_some(lba), single, since };
            self.stats.count(write, blocks);
            self.flights.add(self.dev.submit(op), tag);
            (self.exclusive, self.region) = (write, region);
            self.next = if last { (sequence + 1, 0) } else { (sequence, part + 1) };
            sent = true;
        }
        sent
    }

    /// The entry to send from, and how many lie between it and the oldest that has not landed.
    fn next_entry(&self) -> Option<(&Sealed, usize)> {
        let oldest = self.queue.front()?.sequence;
        let ahead = usize::try_from(self.next.0.checked_sub(oldest)?).ok()?;
        Some((self.queue.get(ahead)?, ahead))
    }

    /// Sends a flush where somebody waits for one. True if it did.
    fn flush(&mut self) -> bool {
        let wanted = (Excluded((self.durable, u64::MAX)), Unbounded);
        let lowest = self.waiting.range(wanted).next().map(|(&(bytes, _), _)| bytes);
        let bytes = self.written.size().0;
        if self.flights.flushes() || lowest.is_none_or(|lowest| lowest > bytes) {
            return false;
        }
        // What others want and is on its way is waited for, but not what comes meanwhile.
        if *self.flush_goal.get_or_insert(self.wanted) > bytes {
            return false;
        }
        self.flush_goal = None;
        // It covers what is acknowledged when it is submitted, and no more.
        let flushing = Flushing { bytes, sequence: self.landed() };
        self.flights.add_flush(self.dev.submit(Op::Flush), flushing);
        true
    }

    /// Every sequence below is acknowledged.
    fn landed(&self) -> u64 {
        self.queue.front().map_or(self.fill.next_sequence, |entry| entry.sequence)
    }

    fn land(&mut self, tag: Tag, result: zoned::Result<Done>) {
        let full = self.flights.len() + 1 >= self.window.limit();
        self.exclusive = false;
        let lba = match (result, tag.write_at) {
            (Ok(_), Some(lba)) | (Ok(Done::At(lba)), None) => lba,
            (Ok(_), None) => {
                let why = "the device did not say where the append went";
                self.poison(Error::new(ErrorKind::Invalid, "append a log entry").because(why));
                return;
            }
            (Err(error), _) => {
                self.poison(Error::device("write a log entry", error));
                return;
            }
        };
        let zone_of = self.dev.geometry().zone_of(lba);
        let oldest = self.landed();
        let at = usize::try_from(tag.sequence - oldest).expect("fewer entries than memory has bytes");
        let entry = self.queue.get_mut(at).expect("what flies is in the queue");
        let part = entry.parts.get_mut(tag.part).expect("a part of its entry");
        if zone_of != Some(part.zone) {
            let why = format!("the device put an entry for zone {} at {lba:?}", part.zone.0);
            self.poison(Error::new(ErrorKind::Invalid, "append a log entry").because(why));
            return;
        }
        part.lba = lba;
        entry.landed += 1;
        let (bytes, blocks) = (part.length as u64, part.blocks(self.fill.limits.block_size));
        let now = self.dev.driver().now();
        self.last_write = now;
        self.window.landed(now, bytes, full);
        self.latencies.took(blocks, tag.write_at.is_some(), tag.single, now.since(tag.since));
        while self.queue.front().is_some_and(|entry| entry.landed == entry.parts.len())
            && let Some(entry) = self.queue.pop_front()
        {
            for part in &entry.parts {
                let length = u32::try_from(part.length).expect("a part is shorter than MAX_PART");
                self.written.push(part.lba, length, part.mask);
            }
            self.fill.recycle(entry.data);
        }
        if !self.dev.geometry().volatile_cache {
            self.is_durable(self.written.size().0, self.landed());
        } else if self.options.rules().skips_flushes() {
            self.is_durable(self.written.size().0, self.fill.durable);
        }
    }

    fn flushed(&mut self, flushing: Flushing, result: zoned::Result<Done>) {
        match result {
            Ok(_) => self.is_durable(flushing.bytes, flushing.sequence),
            Err(error) => {
                self.poison(Error::device("flush a log", error));
            }
        }
    }

    fn is_durable(&mut self, bytes: u64, sequence: u64) {
        self.durable = self.durable.max(bytes);
        self.fill.durable = self.fill.durable.max(sequence);
        for (_, waker) in self.waiting.range_mut(..=(self.durable, u64::MAX)) {
            if let Some(waker) = waker.take() {
                waker.wake();
            }
        }
    }

    /// Copies what memory holds from `offset` on; gives the number of bytes.
    pub(super) fn copy_from_memory(&self, offset: u64, into: &mut [u8]) -> usize {
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
