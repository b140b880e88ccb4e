//! The state of an ordered log's writer: which entries are sealed, in flight, on the device and durable. The
//! writer holds one lock around each call; no call waits for the device.

use std::collections::{BTreeMap, VecDeque};
use std::ops::Bound::{Excluded, Unbounded};
use std::sync::Arc;
use std::task::Waker;

use units::{Instant, ZoneId};
use zoned::{Done, Durability, Op, ZonedDevice};

use crate::error::{Error, ErrorKind, Result};
use crate::wal::index::LogIndex;
use crate::wal::latencies::Latencies;
use crate::wal::options::{IoMode, LogOptions, LogZones};
use crate::wal::ordered::buffer::{EntryBuffer, LogIdentity, SealedEntry};
use crate::wal::ordered::in_place::InPlace;
use crate::wal::ordered::operations::{DurableTag, Operations, PartTag};
use crate::wal::ordered::sync_way::SyncWay;
use crate::wal::stats::LogStats;
use crate::wal::window::Window;

/// The oldest and the newest log entry in flight are at most this many windows apart: one slow operation
/// bounds how far the log runs ahead.
const MAX_SPAN_IN_WINDOWS: usize = 4;

/// If operations queue on the drive, a log entry that is not full waits while this many operations are in
/// flight.
const IN_FLIGHT_TO_DELAY_PARTLY_FILLED: usize = 2;

/// The key of a waiting call of `sync`: the bytes that must be durable, and a unique number.
pub(super) type SyncKey = (u64, u64);

/// The state of an ordered log's writer.
pub(super) struct WriterState {
    pub(super) dev: Arc<dyn ZonedDevice>,
    has_volatile_cache: bool,
    pub(super) identity: LogIdentity,
    pub(super) options: LogOptions,
    pub(super) buffer: EntryBuffer,
    /// Sealed entries by sequence, from the oldest that the device has not acknowledged.
    pub(super) queue: VecDeque<SealedEntry>,
    /// The next part to send to the device: its entry's sequence, and the part's number.
    next: (u64, usize),
    pub(super) operations: Operations,
    window: Window,
    /// Of writes that the device may keep in its cache, and of durable ones.
    latencies: [Latencies; 2],
    /// Of syncs by flushes, and of those by durable writes.
    in_place: [InPlace; 2],
    sync_way: SyncWay,
    /// True while a write is in flight: no other operation may go to the zone.
    exclusive: bool,
    /// The region of the log entries in flight.
    region: u64,
    /// The entries that the device acknowledged, up to the first gap in the sequence.
    pub(super) written: LogIndex,
    /// Bytes appended to the log, buffer and queue included.
    pub(super) size: u64,
    /// Bytes of the log that are safe from a power cut.
    pub(super) durable: u64,
    /// Bytes of the log that a call of `flush` or `sync` wants on the device.
    pub(super) wanted: u64,
    /// Bytes of the log that must be on the device before the next flush is submitted.
    flush_goal: Option<u64>,
    /// The waiting calls of `sync`, with their wakers.
    pub(super) waiting: BTreeMap<SyncKey, Option<Waker>>,
    /// True while one of the waiting calls of `sync` drives the log's operations.
    pub(super) led: bool,
    pub(super) next_id: u64,
    pub(super) closed: bool,
    pub(super) failed: Option<Error>,
    /// The zone in which a write failed.
    pub(super) failed_zone: Option<ZoneId>,
    /// Time when the device acknowledged the newest write; before the first write, the time of the opening.
    pub(super) last_write: Instant,
    pub(super) stats: LogStats,
}

impl WriterState {
    pub(super) fn new(
        dev: Arc<dyn ZonedDevice>,
        identity: LogIdentity,
        options: LogOptions,
        buffer: EntryBuffer,
        index: LogIndex,
    ) -> WriterState {
        let size = index.size().0;
        let most = match options.mode {
            IoMode::Write => 1,
            IoMode::Append => options.window.clamp(1, LogOptions::MAX_WINDOW),
        };
        WriterState {
            last_write: dev.driver().now(),
            has_volatile_cache: dev.geometry().volatile_cache,
            dev,
            identity,
            options,
            next: (buffer.next_sequence, 0),
            buffer,
            queue: VecDeque::new(),
            operations: Operations::default(),
            window: Window::new(most),
            latencies: Default::default(),
            sync_way: SyncWay::new(options.rules()),
            in_place: [(); 2].map(|()| InPlace::new(options.zones == LogZones::Conventional)),
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
            failed_zone: None,
            stats: LogStats::default(),
        }
    }

    pub(super) fn check(&self) -> Result<()> {
        self.failed.clone().map_or(Ok(()), Err)
    }

    /// Stops the log's writer for good: every later call fails with the first error. Returns that error.
    pub(super) fn poison(&mut self, error: Error) -> Error {
        let error = self.failed.get_or_insert(error).clone();
        for waker in self.waiting.values_mut().filter_map(Option::take) {
            waker.wake();
        }
        self.operations.moved().notify();
        error
    }

    /// Number of the log's operations that may be in flight.
    pub(super) fn window_limit(&self) -> usize {
        self.window.limit()
    }

    /// True while an operation of the log is in flight, a flush included.
    pub(super) fn has_operations(&self) -> bool {
        !self.operations.is_empty() || self.operations.is_flushing()
    }

    /// True if a sealed entry of the log is not submitted yet.
    pub(super) fn has_backlog(&self) -> bool {
        self.next.0 < self.buffer.next_sequence
    }

    /// Handles the log's operations that have ended and submits those that may be submitted, until neither is
    /// possible. `wait`: the caller is going to wait for [`Operations::moved`].
    pub(super) fn advance(&mut self, wait: bool) {
        loop {
            let mut moved = false;
            while let Some((tag, result)) = self.operations.take_ended(wait) {
                self.part_ended(tag, result);
                moved = true;
            }
            while let Some((tag, result)) = self.operations.take_ended_flush(wait) {
                self.flush_ended(tag, result);
                moved = true;
            }
            if self.failed.is_none() {
                moved |= self.submit_parts() | self.flush();
            }
            if !moved {
                return;
            }
        }
    }

    /// Submits as many entry parts as the window, the barrier and the zone allow. True if one was submitted.
    fn submit_parts(&mut self) -> bool {
        let mut sent = false;
        while !self.exclusive && self.operations.len() < self.window.limit() {
            let mut sealed = self.size - self.buffer.pending();
            if !self.has_backlog() {
                if sealed == self.size || sealed >= self.wanted {
                    break;
                }
                // The open entry stays in the buffer, because it would only wait on the drive: meanwhile more
                // records can join it.
                let [cached, _] = &self.latencies;
                let delays_entries = cached.queueing() && !self.buffer.is_in_conventional_zone();
                if delays_entries && self.operations.len() >= IN_FLIGHT_TO_DELAY_PARTLY_FILLED {
                    break;
                }
                // Beside a durable write an entry would go to the cache, and its sync would wait for a flush: behind the write it can be durable too.
                if self.operations.makes_durable() {
                    break;
                }
                // The last block is rewritten when its write has ended: meanwhile more records can join.
                if self.buffer.rewrites_a_block() && !self.operations.is_empty() {
                    break;
                }
                let [by_flushes, by_durable_writes] = &mut self.in_place;
                let in_place =
                    if self.sync_way.prefers_durable_writes() { by_durable_writes } else { by_flushes };
                self.buffer.prefers_rewrites = in_place.prefers_rewrites();
                self.buffer.seal(&self.identity, &mut self.queue);
                if self.buffer.keeps_tail() {
                    in_place.will_rewrite();
                }
                sealed = self.size;
            }
            let Some((entry, ahead)) = self.next_entry() else { break };
            let Some(part) = entry.parts.get(self.next.1) else { break };
            let lone = self.operations.is_empty();
            let barrier = entry.region != self.region && !self.options.rules().ignores_barriers();
            // Operations on different zones complete in any order: without this wait the log could have two
            // zones open at a time.
            if !lone
                && (barrier || part.waits_for_earlier || ahead >= MAX_SPAN_IN_WINDOWS * self.window.limit())
            {
                break;
            }
            let (zone, lba, data) = (part.zone, part.lba, entry.bytes_of(part));
            let (region, blocks) = (entry.region, data.len() / self.buffer.limits.block_size);
            let last = self.next.1 + 1 == entry.parts.len();
            let serial = self.window.limit() == 1 || entry.alone;
            let single = lone && last && self.next.0 + 1 == self.buffer.next_sequence;
            let (conventional, is_rewrite) =
                (self.buffer.limits.is_conventional(zone), entry.rewrites_a_block());
            let (sequence, part) = self.next;
            let since = self.dev.driver().now();
            let durable = single
                && self.has_volatile_cache
                && self.options.durable_writes
                && !self.options.rules().skips_flushes()
                && self.lowest_awaited().is_some()
                && !self.operations.is_flushing()
                && self.sync_way.is_durable_write(sequence, zone, !conventional, since);
            self.sync_way.submitted(zone);
            // The operation may be a write if a caller waits for everything that was appended: then no
            // further entry follows at once.
            let [cached, of_durable] = &mut self.latencies;
            let latencies = if durable { of_durable } else { cached };
            let write = conventional
                || lone && (serial || (single && sealed <= self.wanted && latencies.writes(blocks)));
            let how = if durable { Durability::Durable } else { Durability::Cached };
            let op = if write { Op::Write { at: lba, data, how } } else { Op::Append { zone, data, how } };
            if conventional && single && blocks == 1 && !self.waiting.is_empty() {
                let [by_flushes, by_durable_writes] = &mut self.in_place;
                let in_place = if durable { by_durable_writes } else { by_flushes };
                in_place.submitted(sequence, is_rewrite, since);
            }
            let makes_durable = durable.then_some(DurableTag { bytes: sealed, sequence: sequence + 1 });
            let write_at = write.then_some(lba);
            let tag = PartTag { sequence, part, zone, write_at, single, makes_durable, since };
            self.stats.count(write, blocks);
            self.operations.add(self.dev.submit(op), tag);
            (self.exclusive, self.region) = (write && !conventional, region);
            self.next = if last { (sequence + 1, 0) } else { (sequence, part + 1) };
            sent = true;
        }
        sent
    }

    /// The entry of the next part to send, and the number of entries between it and the oldest one in the
    /// queue.
    fn next_entry(&self) -> Option<(&SealedEntry, usize)> {
        let oldest = self.queue.front()?.sequence;
        let ahead = usize::try_from(self.next.0.checked_sub(oldest)?).ok()?;
        Some((self.queue.get(ahead)?, ahead))
    }

    /// The least number of bytes that a call of `sync` waits for and that are not durable.
    fn lowest_awaited(&self) -> Option<u64> {
        let wanted = (Excluded((self.durable, u64::MAX)), Unbounded);
        self.waiting.range(wanted).next().map(|(&(bytes, _), _)| bytes)
    }

    /// Submits a device flush if a call of `sync` waits for one. True if it did.
    fn flush(&mut self) -> bool {
        let bytes = self.written.size().0;
        if self.operations.is_flushing()
            || self.operations.makes_durable()
            || self.lowest_awaited().is_none_or(|lowest| lowest > bytes)
        {
            return false;
        }
        // The flush waits for the bytes that were wanted when it was first due, and not for bytes wanted
        // later.
        if *self.flush_goal.get_or_insert(self.wanted) > bytes {
            return false;
        }
        self.flush_goal = None;
        // A device flush covers the operations that were acknowledged before it was submitted.
        let tag = DurableTag { bytes, sequence: self.acknowledged() };
        self.operations.add_flush(self.dev.submit(Op::Flush), tag);
        true
    }

    /// Every log entry below this sequence is acknowledged.
    fn acknowledged(&self) -> u64 {
        self.queue.front().map_or(self.buffer.next_sequence, |entry| entry.sequence)
    }

    fn part_ended(&mut self, tag: PartTag, result: zoned::Result<Done>) {
        let full = self.operations.len() + 1 >= self.window.limit();
        self.exclusive = false;
        let lba = match (result, tag.write_at) {
            (Ok(_), Some(lba)) | (Ok(Done::At(lba)), None) => lba,
            (Ok(_), None) => {
                let why = "the device did not say where the append went";
                self.poison(Error::new(ErrorKind::Invalid, "append a log entry").because(why));
                return;
            }
            (Err(error), _) => {
                self.failed_zone = Some(tag.zone);
                self.poison(Error::device("write a log entry", error));
                return;
            }
        };
        let zone_of = self.dev.geometry().zone_of(lba);
        let oldest = self.acknowledged();
        let at = usize::try_from(tag.sequence - oldest).expect("fewer entries than memory has bytes");
        let entry = self.queue.get_mut(at).expect("an entry in flight is in the queue");
        let part = entry.parts.get_mut(tag.part).expect("a part of its entry");
        if zone_of != Some(part.zone) {
            let why = format!("the device put an entry for zone {} at {lba:?}", part.zone.0);
            self.poison(Error::new(ErrorKind::Invalid, "append a log entry").because(why));
            return;
        }
        part.lba = lba;
        entry.acknowledged += 1;
        let is_conventional = self.buffer.limits.is_conventional(part.zone);
        let (bytes, blocks) = (part.length as u64, part.blocks(self.buffer.limits.block_size));
        let now = self.dev.driver().now();
        self.last_write = now;
        self.window.acknowledged(now, bytes, full);
        if !is_conventional {
            let [cached, durable] = &mut self.latencies;
            let latencies = if tag.makes_durable.is_some() { durable } else { cached };
            latencies.took(blocks, tag.write_at.is_some(), tag.single, now.since(tag.since));
        }
        while self.queue.front().is_some_and(|entry| entry.acknowledged == entry.parts.len())
            && let Some(entry) = self.queue.pop_front()
        {
            for part in &entry.parts {
                let length = u32::try_from(part.length).expect("a part is shorter than MAX_PART");
                if entry.rewrites_a_block() {
                    self.written.replace_last(part.lba, length, part.mask);
                } else {
                    self.written.push(part.lba, length, part.mask);
                }
            }
            self.buffer.recycle(entry.data);
        }
        if !self.has_volatile_cache {
            self.make_durable(self.written.size().0, self.acknowledged());
        } else if self.options.rules().skips_flushes() {
            self.make_durable(self.written.size().0, self.buffer.durable);
        } else if let Some(DurableTag { bytes, sequence }) = tag.makes_durable {
            self.make_durable(bytes, sequence);
        }
    }

    fn flush_ended(&mut self, tag: DurableTag, result: zoned::Result<Done>) {
        match result {
            Ok(_) => self.make_durable(tag.bytes, tag.sequence),
            Err(error) => {
                self.poison(Error::device("flush a log", error));
            }
        }
    }

    /// Notes that the log's first `bytes` bytes and all entries below `sequence` are durable, and wakes the
    /// calls of `sync` that waited for these bytes.
    fn make_durable(&mut self, bytes: u64, sequence: u64) {
        self.durable = self.durable.max(bytes);
        self.buffer.durable = self.buffer.durable.max(sequence);
        let now = self.dev.driver().now();
        self.in_place.iter_mut().for_each(|in_place| in_place.durable(sequence, now));
        self.sync_way.durable(sequence, (sequence, 0) >= self.next, now);
        for (_, waker) in self.waiting.range_mut(..=(self.durable, u64::MAX)) {
            if let Some(waker) = waker.take() {
                waker.wake();
            }
        }
    }

    /// The bytes of the log's last block on the device, if the block is being rewritten or will be: a read of the block could see any
    /// version.
    fn rewritten_bytes(&self) -> &[u8] {
        match self.queue.front() {
            Some(entry) => entry.rewritten_bytes(),
            None => self.buffer.rewritten_bytes(),
        }
    }

    /// The stream offset from which on reads are served from memory.
    pub(super) fn in_memory_from(&self) -> u64 {
        self.written.size().0 - self.rewritten_bytes().len() as u64
    }

    /// Copies the log's bytes that are in memory, from stream offset `offset` on; returns their number.
    pub(super) fn copy_from_memory(&self, offset: u64, into: &mut [u8]) -> usize {
        let block_size = self.buffer.limits.block_size;
        let mut start = self.written.size().0;
        let mut filled = 0;
        if let Some(skip) = offset.checked_sub(self.in_memory_from()) {
            let bytes = usize::try_from(skip).ok().and_then(|skip| self.rewritten_bytes().get(skip..));
            for (to, from) in into.iter_mut().zip(bytes.unwrap_or_default()) {
                *to = *from;
                filled += 1;
            }
        }
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
            filled += self.buffer.copy_to(at - start, into.get_mut(filled..).unwrap_or_default());
        }
        filled
    }
}
