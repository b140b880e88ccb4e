//! The writing end of an ordered log.

use std::fmt;
use std::future::poll_fn;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use parking_lot::Mutex;
use units::sync::{Event, Turnstile, step_back};
use units::{Bytes, ZoneId};
use zoned::ZonedDevice;

use crate::error::{Error, ErrorKind, Result};
use crate::wal::index::{Check, LogIndex};
use crate::wal::options::LogOptions;
use crate::wal::ordered::buffer::{AppendStop, EntryBuffer, EntryLimits, LogIdentity};
use crate::wal::ordered::state::{SyncKey, WriterState};
use crate::wal::segment::{Next, Segment, SegmentSource};
use crate::wal::stats::LogStats;

/// Bytes of entry buffers that the writer keeps for the next entries.
const MAX_SPARE_BUFFER_BYTES: usize = 16 << 20;

/// The end of a log that gave up its segment: the result of releasing an idle log's zone.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ReleasedSegment {
    /// The unused rest of the log's segment: empty if the segment is full.
    pub(crate) rest: Segment,
    /// Bytes of the log's stream.
    pub(crate) size: u64,
    /// The sequence of the log's next entry.
    pub(crate) next_sequence: u64,
}

/// The writer of one ordered log. Any number of tasks may call it at once.
///
/// Appended bytes are readable at once, on the device after [`flush`](LogWriter::flush), and safe from a
/// power cut after [`sync`](LogWriter::sync). The writer owns the operations in flight: dropping a task that
/// waits cancels none. Three events poison the writer: a failed write, a failed flush, and a task that is
/// dropped with half of its record in the log. From then on every call gets the first error until the log is
/// recovered and reopened.
pub struct LogWriter {
    dev: Arc<dyn ZonedDevice>,
    identity: LogIdentity,
    source: Arc<dyn SegmentSource>,
    state: Mutex<WriterState>,
    /// Notified when an operation in flight ends for which a task waits.
    moved: Event,
    /// Held while one record's bytes go into the log's buffer, so that the bytes stay together.
    appending: Turnstile,
}

impl LogWriter {
    /// A writer that continues the log after the entries of `index`; the next entry gets `first_sequence`.
    /// The writer serves reads of the entries in `index`.
    ///
    /// Bytes before the index's end must be durable already: `sync` does not flush for them. A log that is
    /// opened again takes a new epoch, whose cut (the epoch with its first sequence) must be durable before
    /// the first append.
    pub fn new(
        dev: Arc<dyn ZonedDevice>,
        identity: LogIdentity,
        first_sequence: u64,
        index: LogIndex,
        options: LogOptions,
        source: Arc<dyn SegmentSource>,
    ) -> LogWriter {
        let limits = EntryLimits::new(dev.geometry(), &options);
        let keep = options.window.min(MAX_SPARE_BUFFER_BYTES / limits.entry_bytes()).max(1);
        let buffer = EntryBuffer::new(limits, first_sequence, keep);
        let state = WriterState::new(Arc::clone(&dev), identity, options, buffer, index);
        let moved = state.operations.moved().clone();
        LogWriter { dev, identity, source, state: Mutex::new(state), moved, appending: Turnstile::new() }
    }

    /// Appends `data` to the log's buffer. Entries that became full are submitted when this returns: no
    /// caller runs ahead of the window. A power cut may lose the bytes.
    ///
    /// Bytes of two concurrent calls never mix. Fails with `Closed` after `close`, with the device's error,
    /// and with the segment source's error if there is no room; the last one poisons the writer if a part of
    /// `data` was taken.
    pub async fn append(&self, data: &[u8]) -> Result<()> {
        let _turn = match self.appending.try_acquire() {
            Some(turn) => turn,
            None => self.appending.acquire().await,
        };
        let mut half = PoisonIfDropped(None);
        let mut rest = data;
        loop {
            let stop = {
                let mut state = self.state.lock();
                state.check()?;
                if state.closed {
                    return Err(Error::new(ErrorKind::Closed, "append to a log"));
                }
                let WriterState { buffer, queue, identity, .. } = &mut *state;
                let now = rest.get(..buffer.limits.stride()).unwrap_or(rest);
                let (taken, stop) = buffer.append(now, identity, queue);
                state.size += taken as u64;
                rest = rest.get(taken..).unwrap_or_default();
                state.advance(false);
                if rest.is_empty() && !state.has_backlog() {
                    half.0 = None;
                    return state.check();
                }
                stop
            };
            half.0 = (rest.len() < data.len() && !rest.is_empty()).then_some(self);
            self.until(|state| !state.has_backlog()).await?;
            if stop == AppendStop::Done && rest.is_empty() {
                return Ok(());
            } else if stop == AppendStop::Done {
                continue;
            }
            let got = self.next_segment().await;
            let mut state = self.state.lock();
            match got {
                Ok(next) => state.buffer.use_segment(next),
                Err(error) if rest.len() == data.len() => return Err(error),
                Err(error) => return Err(state.poison(error)),
            }
        }
    }

    async fn next_segment(&self) -> Result<Next> {
        let next = self.source.next().await?;
        let segment = next.segment;
        let geometry = self.dev.geometry();
        if segment.start >= segment.end
            || segment.end > geometry.zone_size
            || segment.zone.0 >= geometry.zones
        {
            let found = format!("its segment is {:?} to {:?}", segment.start, segment.end);
            return Err(Error::new(ErrorKind::Invalid, "extend a log").in_zone(segment.zone).because(found));
        }
        Ok(next)
    }

    /// Writes everything appended to the log before the call to the device, and waits for the
    /// acknowledgements. A power cut may lose the bytes.
    pub async fn flush(&self) -> Result<()> {
        let target = {
            let mut state = self.state.lock();
            state.wanted = state.size;
            state.size
        };
        self.until(|state| state.written.size().0 >= target).await
    }

    /// Returns when everything appended to the log before the call is safe from a power cut.
    ///
    /// Group commit: records of concurrent callers share an entry, unless the window has room for one entry
    /// each, and one device flush covers all bytes that are on the device when it is submitted.
    pub async fn sync(&self) -> Result<()> {
        let (mut caller, others, broken) = {
            let mut state = self.state.lock();
            state.check()?;
            let target = state.size;
            if state.durable >= target {
                return Ok(());
            }
            let key = (target, state.next_id);
            state.next_id += 1;
            let others = !state.waiting.is_empty();
            state.waiting.insert(key, None);
            let broken = state.options.rules().syncs_before_the_buffer();
            (SyncCall { writer: self, key, leads: false }, others, broken)
        };
        if others {
            // Callers that one flush served call `sync` again together: after this yield their records share
            // an entry again.
            step_back().await;
        }
        if broken {
            self.until(|state| state.operations.is_empty()).await?;
            self.want(caller.key.0);
            return Ok(());
        }
        self.want(caller.key.0);
        if caller.wait_until_served_or_leading().await? {
            self.until(|state| state.durable >= caller.key.0).await?;
        }
        Ok(())
    }

    /// Submits the log's bytes up to `target`, whether or not the last entry is full.
    fn want(&self, target: u64) {
        let mut state = self.state.lock();
        state.wanted = state.wanted.max(target);
        state.advance(false);
    }

    /// Drives the log's operations until `done`. Fails once the writer is poisoned.
    async fn until(&self, done: impl Fn(&WriterState) -> bool) -> Result<()> {
        self.drive(|state| match state.check() {
            Ok(()) => done(state).then_some(Ok(())),
            failed => Some(failed),
        })
        .await
    }

    /// Drives the log's operations until `end` returns a value.
    async fn drive<T>(&self, end: impl Fn(&WriterState) -> Option<T>) -> T {
        loop {
            let seen = self.moved.version();
            {
                let mut state = self.state.lock();
                // The first round of the wait sets up no timer: a thread's timers are dropped with its wait.
                for wait in [false, true] {
                    state.advance(wait);
                    if let Some(value) = end(&state) {
                        return value;
                    }
                }
            }
            self.moved.changed_since(seen).await;
        }
    }

    /// Bytes appended to the log so far.
    pub fn size(&self) -> Bytes {
        Bytes(self.state.lock().size)
    }

    /// Bytes of the log that are safe from a power cut.
    pub fn durable(&self) -> Bytes {
        Bytes(self.state.lock().durable)
    }

    /// The sequence that the log's next entry will have.
    pub fn next_sequence(&self) -> u64 {
        self.state.lock().buffer.next_sequence
    }

    /// The blocks of the current segment beyond the log's last entry; `None` if no block is left.
    pub fn unused(&self) -> Option<Segment> {
        self.state.lock().buffer.unused()
    }

    /// Gives up the current segment of an idle log: the next append asks for another segment. `None` where the log has no
    /// segment, where it is not idle, or where another thread is inside the writer.
    ///
    /// A log is idle when everything appended is safe from a power cut and its newest write is at least `idle`
    /// old. The caller may hold the file system's lock: this call never waits.
    pub(crate) fn release_segment(&self, idle: Duration) -> Option<ReleasedSegment> {
        // While an append waits in `next_segment`, the file system may have leased a segment that `state.buffer` does not hold yet.
        let _turn = self.appending.try_acquire()?;
        let mut state = self.state.try_lock()?;
        let age = self.dev.driver().now().since(state.last_write);
        let busy = state.durable < state.size || state.has_operations() || age < idle;
        if state.failed.is_some() || busy {
            return None;
        }
        let rest = state.buffer.release()?;
        Some(ReleasedSegment { rest, size: state.size, next_sequence: state.buffer.next_sequence })
    }

    /// Holds the writer's lock, to act in a test as a thread inside one of the writer's methods.
    #[cfg(test)]
    pub(super) fn locked(&self) -> impl Drop + '_ {
        self.state.lock()
    }

    /// A copy of the index of the log's entries on the device.
    pub fn index(&self) -> LogIndex {
        self.state.lock().written.clone()
    }

    /// Reads the log from stream offset `offset` on, from the device and from memory; returns the number of
    /// bytes, fewer than asked for only at the end.
    pub async fn read_at(&self, offset: Bytes, into: &mut [u8]) -> Result<usize> {
        let (plan, total) = {
            let state = self.state.lock();
            let on_device = state.in_memory_from().saturating_sub(offset.0);
            let len = into.len().min(usize::try_from(on_device).unwrap_or(usize::MAX));
            let plan = state.written.plan(self.dev.geometry(), offset.0, len);
            // Bytes in memory are copied under the lock: an entry leaves memory once it is on the device.
            let filled = plan.len;
            let tail = into.get_mut(filled..).unwrap_or_default();
            (plan, filled + state.copy_from_memory(offset.0 + filled as u64, tail))
        };
        let check = Check { uuid: self.identity.uuid, log: self.identity.log };
        plan.read(&self.dev, check, into).await?;
        Ok(total)
    }

    /// The zone in which a write of the log failed.
    pub(crate) fn failed_zone(&self) -> Option<ZoneId> {
        self.state.lock().failed_zone
    }

    /// Ends the writer for good: every later call fails with `error`, unless an earlier failure has ended it. No operation of the log is in
    /// flight when the call returns, and none follows.
    pub(crate) async fn end(&self, error: Error) {
        self.state.lock().poison(error);
        self.drive(|state| (!state.has_operations()).then_some(())).await;
    }

    /// Counts of the log's device operations so far.
    pub fn stats(&self) -> LogStats {
        let state = self.state.lock();
        LogStats { window: state.window_limit(), ..state.stats }
    }

    /// Closes the log: writes everything to the device and refuses further appends; returns the index of all
    /// bytes. A second call returns the same. A power cut may lose unsynced bytes: `sync` still works. No
    /// operation is in flight when the call returns, also with an error.
    pub async fn close(&self) -> Result<LogIndex> {
        // An append that has begun finishes before the close.
        let turn = self.appending.acquire().await;
        self.state.lock().closed = true;
        drop(turn);
        let flushed = self.flush().await;
        // The close waits for all operations also after a failure: none may reach the device while the log is
        // recovered.
        self.drive(|state| (!state.has_operations()).then_some(())).await;
        flushed.map(|()| self.index())
    }
}

/// A call of `sync`.
struct SyncCall<'a> {
    writer: &'a LogWriter,
    key: SyncKey,
    leads: bool,
}

impl SyncCall<'_> {
    /// Waits until the bytes of this call of `sync` are durable (false), or until no other call drives the
    /// log (true).
    async fn wait_until_served_or_leading(&mut self) -> Result<bool> {
        poll_fn(|context| {
            let mut state = self.writer.state.lock();
            if let Err(error) = state.check() {
                return Poll::Ready(Err(error));
            }
            if state.durable >= self.key.0 {
                return Poll::Ready(Ok(false));
            }
            if !std::mem::replace(&mut state.led, true) {
                self.leads = true;
                return Poll::Ready(Ok(true));
            }
            state.waiting.insert(self.key, Some(context.waker().clone()));
            Poll::Pending
        })
        .await
    }
}

impl Drop for SyncCall<'_> {
    fn drop(&mut self) {
        let mut state = self.writer.state.lock();
        state.waiting.remove(&self.key);
        if self.leads {
            state.led = false;
        }
        // Another waiting call of `sync` must drive the log from now on. A call without a waker has not
        // waited yet, and checks `led` before it does.
        if !state.led
            && let Some(waker) = state.waiting.values_mut().find_map(Option::take)
        {
            waker.wake();
        }
    }
}

/// Poisons the writer when it is dropped with a record half in the log.
struct PoisonIfDropped<'a>(Option<&'a LogWriter>);

impl Drop for PoisonIfDropped<'_> {
    fn drop(&mut self) {
        if let Some(writer) = self.0 {
            let why = "the task that appended a record was dropped in the middle of it; reopen the log";
            writer.state.lock().poison(Error::new(ErrorKind::Poisoned, "append to a log").because(why));
        }
    }
}

impl fmt::Debug for LogWriter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (log, epoch) = (self.identity.log, self.identity.epoch);
        write!(f, "writer of log {log}, epoch {epoch}, {:?}", self.size())
    }
}
