//! Maintenance of a parallel log: a background task for the work that no writer should wait for. The task
//! fetches segments ahead of need, fills zones that the log has left, writes void entries and frees segments.

use std::future::poll_fn;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};
use std::task::Poll;

use units::Blocks;
use units::sync::Event;
use zoned::{Action, Durability};

use crate::error::{Error, ErrorKind, Result};
use crate::options::FileKind;
use crate::shared::Handle;
use crate::wal::entry::{EntryHeader, HEADER_SIZE};
use crate::wal::parallel::append::Appender;
use crate::wal::parallel::gate::Entered;
use crate::wal::parallel::payload::{COUNT_BYTES, seal_empty};
use crate::wal::parallel::replacement::Replacement;
use crate::wal::parallel::segments::Segments;
use crate::wal::parallel::void::VoidJob;
use crate::wal::parallel::zone::LogZone;
use crate::wal::segment::Next;

#[derive(Debug)]
pub(super) struct Maintenance {
    handle: Arc<Handle>,
    appender: Arc<Appender>,
    segments: Arc<Segments>,
    /// The log leaves as much room free on the device as it holds.
    keeps_room: bool,
    /// Whether the maintenance task should end, and whether it has ended.
    stopping: AtomicBool,
    ended: Arc<AtomicBool>,
}

/// The maintenance task of a log: runs until the log is closed or dropped.
pub(super) async fn run(maintenance: Weak<Maintenance>, work: Event) {
    loop {
        let seen = work.version();
        let Some(maintenance) = maintenance.upgrade() else { return };
        let Some(progress) = catch_panic(maintenance.step()).await else {
            let why = "its maintenance task panicked, which is a bug; close it and open it again";
            let error = Error::new(ErrorKind::Poisoned, "maintaining a parallel log").because(why);
            maintenance.appender.health.poison(error);
            maintenance.end();
            return;
        };
        if !progress && maintenance.stopping.load(Ordering::Acquire) {
            maintenance.end();
            return;
        }
        drop(maintenance);
        if !progress {
            work.changed_since(seen).await;
        }
    }
}

/// The value of a future, `None` if the future panics. What the future held is dropped then.
async fn catch_panic<T>(future: impl Future<Output = T>) -> Option<T> {
    let mut future = pin!(future);
    poll_fn(|context| {
        let polled = catch_unwind(AssertUnwindSafe(|| future.as_mut().poll(context)));
        polled.map_or(Poll::Ready(None), |poll| poll.map(Some))
    })
    .await
}

/// An operation's place in a log zone, released when it is dropped.
struct HeldPlace<'a> {
    replacement: &'a Replacement,
    zone: &'a Arc<LogZone>,
}

impl Drop for HeldPlace<'_> {
    fn drop(&mut self) {
        if self.zone.gate.leave() {
            self.replacement.drained(self.zone);
        }
    }
}

impl Maintenance {
    pub(super) fn new(
        handle: Arc<Handle>,
        appender: Arc<Appender>,
        segments: Arc<Segments>,
        keeps_room: bool,
    ) -> Maintenance {
        let (stopping, ended) = (AtomicBool::new(false), Arc::default());
        Maintenance { handle, appender, segments, keeps_room, stopping, ended }
    }

    /// Asks the maintenance task to end once nothing is left to do.
    pub(super) fn stop(&self) {
        self.stopping.store(true, Ordering::Release);
    }

    pub(super) fn has_ended(&self) -> bool {
        self.ended.load(Ordering::Acquire)
    }

    fn replacement(&self) -> &Replacement {
        &self.appender.replacement
    }

    /// Ends the maintenance task, whose reference to the mount is gone before the log's close goes on.
    fn end(self: Arc<Self>) {
        self.appender.voids.stop();
        let (ended, changed) = (Arc::clone(&self.ended), self.replacement().changed.clone());
        drop(self);
        ended.store(true, Ordering::Release);
        changed.notify();
    }

    /// Does one step of the log's maintenance; false if there is nothing to do.
    async fn step(&self) -> bool {
        // A segment is fetched before zones that the log has left are filled: the zones of a stripe may all
        // be full at the same time.
        if self.appender.striping.wants_zone(|| !(self.keeps_room && self.check_room().is_err())) {
            self.fetch_segment().await;
            return true;
        }
        if let Some(zone) = self.replacement().take_drained_left_zone() {
            self.leave(&zone).await;
            return true;
        }
        if self.appender.health.is_poisoned() {
            return false;
        }
        if self.wants_segment() {
            self.fetch_segment().await;
            return true;
        }
        match self.replace_late().await {
            Ok(false) => {}
            Ok(true) => return true,
            Err(error) => {
                self.appender.health.poison(error);
                return true;
            }
        }
        match self.appender.voids.newest() {
            Some(job) => self.write_void(&job).await,
            None => false,
        }
    }

    /// Makes the next zone active if the last operation to leave the old one could not: first the old zone
    /// had to be full, or its content durable. True if it did.
    async fn replace_late(&self) -> Result<bool> {
        let replacement = self.replacement();
        let Some((active, beside)) = replacement.drained_active() else { return Ok(false) };
        if !beside {
            self.fill_zone(&active).await;
        }
        if replacement.volatile && !self.appender.order.all_complete() {
            self.appender.headers.durability.make_durable().await?;
        }
        replacement.install_next();
        Ok(true)
    }

    /// Fills a zone that the log has left, and notes the highest ticket that may be in the zone.
    pub(super) async fn leave(&self, zone: &Arc<LogZone>) {
        let early = !zone.gate.is_drained();
        let padding = self.fill_zone(zone).await;
        if early && let Some(end) = padding {
            self.segments.cut_off(zone, end);
        }
        self.segments.end(zone);
        match self.segments.free_retired(false) {
            Ok(true) => self.room_was_freed(),
            Ok(false) => {}
            Err(error) => tracing::warn!(%error, "giving up a log's segments failed"),
        }
    }

    /// Requests a zone for postponed void entries, which may find room now.
    pub(super) fn room_was_freed(&self) {
        if self.appender.voids.has_postponed() {
            self.replacement().request();
        }
    }

    /// Makes the device see a log zone as full, so that the zone needs no open-zone slot any more: by padding
    /// if one append is enough, else by a finish. Returns the block of the zone at which the padding begins.
    async fn fill_zone(&self, zone: &LogZone) -> Option<Blocks> {
        if !zone.begin_fill() {
            return None;
        }
        let dev = &self.appender.dev;
        let (left, id) = (zone.gate.left(), zone.segment.zone);
        let mut begins = None;
        let mut filled = left == 0 && !zone.has_failed();
        if left > 0 && left <= self.appender.sizes.longest && !zone.has_failed() {
            match dev.append(id, self.padding(zone, left), Durability::Cached).await {
                Ok(at) => {
                    filled = true;
                    begins = Some(Blocks(at.0 - dev.geometry().start(id).0));
                }
                Err(error) => tracing::debug!(zone = %id, %error, "padding a log's zone failed"),
            }
        }
        if !filled && let Err(error) = dev.zone(id, Action::Finish).await {
            tracing::warn!(zone = %id, %error, "finishing a log's zone failed");
        }
        let shared = &self.handle.shared;
        shared.state.lock().allocator.leaving.retain(|left| left.zone != id);
        shared.space.notify();
        shared.kick_cleaner();
        begins
    }

    fn padding(&self, zone: &LogZone, blocks: u64) -> zoned::Buf {
        let block_size = self.appender.sizes.block_size;
        let bytes = usize::try_from(blocks).expect("bounded by MAX_PART") * block_size;
        let length = u32::try_from(bytes - HEADER_SIZE).expect("bounded by MAX_PART");
        let generation = zone.segment.generation;
        let header = EntryHeader { padding: true, generation, length, ..self.appender.headers.of(0) };
        seal_empty(header, 0, blocks, &zone.home, block_size)
    }

    fn wants_segment(&self) -> bool {
        let replacement = self.replacement();
        {
            let spare = replacement.spare.lock();
            // A zone that the log has left may hold the open-zone slot that the next zone needs.
            if spare.next.is_some() || !spare.left.is_empty() {
                return false;
            }
        }
        if self.appender.health.is_closed() && self.appender.voids.is_empty() {
            return false;
        }
        if replacement.wanted.load(Ordering::Acquire) {
            return true;
        }
        let longest = replacement.longest;
        let active = replacement.active.load();
        let short = active.as_ref().is_none_or(|zone| zone.gate.is_closed() || zone.is_nearly_full(longest));
        (short || self.appender.striping.is_nearly_full()) && !replacement.is_short()
    }

    /// Takes the log's next segment, and makes the segment's record durable before anything is appended to
    /// it.
    async fn fetch_segment(&self) {
        let replacement = self.replacement();
        replacement.wanted.store(false, Ordering::Release);
        let got = self.next_zone().await;
        let mut shortage = replacement.shortage.lock();
        match got {
            Ok(zone) => {
                shortage.error = None;
                replacement.give_next_zone(zone);
            }
            Err(error) => {
                tracing::debug!(%error, "a parallel log got no segment");
                shortage.error = Some(error.clone());
                shortage.times += 1;
                if matches!(error.kind(), ErrorKind::NoSpace | ErrorKind::Busy) {
                    self.appender.voids.postpone(&error);
                } else {
                    self.appender.health.poison(error);
                }
            }
        }
        drop(shortage);
        replacement.changed.notify();
    }

    async fn next_zone(&self) -> Result<Arc<LogZone>> {
        let shared = &self.handle.shared;
        if self.keeps_room {
            self.check_room()?;
        }
        let (segment, record, beside) =
            shared.next_segment(self.handle.file.ino, FileKind::ParallelLog).await?;
        let zone = LogZone::new(Next { segment, beside }, self.appender.headers.uuid);
        self.segments.push(Arc::clone(&zone));
        // If this commit fails, the file system is read-only from now on.
        shared.metadata.commit_upto(record).await?;
        Ok(zone)
    }

    /// Fails if the log with one more zone would hold more than the room left on the device: the log's
    /// records could not be written to tables, so its zones could never be freed.
    fn check_room(&self) -> Result<()> {
        let with_it = self.segments.len() as u64 + 1;
        let capacity = self.appender.dev.geometry().zone_capacity.0;
        let room = self.handle.shared.state.lock().allocator.writable_blocks(capacity);
        if room >= (with_it + 1) * capacity {
            return Ok(());
        }
        let why = format!(
            "the log would have {with_it} zones, and {room} blocks are free: as many are kept for what it holds; \
             flush, or delete something"
        );
        Err(Error::new(ErrorKind::NoSpace, "extending a parallel log").because(why))
    }

    /// Writes a void entry, makes it durable, and answers its request. False if the entry has to wait for
    /// room.
    async fn write_void(&self, job: &VoidJob) -> bool {
        let (appender, replacement) = (&self.appender, self.replacement());
        if appender.rules.omits_voids() {
            if job.open {
                appender.order.complete(job.first, job.count);
            }
            appender.voids.finish(job, Ok(()));
            return true;
        }
        let zone = match replacement.try_enter(1) {
            Ok(zone) => zone,
            Err(entered) => {
                if !job.postponed && replacement.is_short() {
                    // A zone is requested although no writer waits for one: the void entry's requester must
                    // learn whether there still is none.
                    replacement.wanted.store(true, Ordering::Release);
                }
                if entered == Entered::Exclusive {
                    return replacement.block();
                }
                let active = replacement.active.load_full();
                return replacement.replace(active.as_ref())
                    || self.wants_segment()
                    || replacement.drained_active().is_some();
            }
        };
        let inside = HeldPlace { replacement, zone: &zone };
        let (id, generation) = (zone.segment.zone, zone.segment.generation);
        let length = u32::try_from(COUNT_BYTES).expect("four");
        let header = EntryHeader { void: true, generation, length, ..appender.headers.of(job.first) };
        let count = u32::try_from(job.count).expect("an entry has few records");
        let data = seal_empty(header, count, 1, &zone.home, appender.sizes.block_size);
        let written = appender.dev.append(id, data, Durability::Cached).await;
        if written.is_ok() && job.open {
            appender.order.complete(job.first, job.count);
        }
        drop(inside);
        let durable = match written {
            Ok(_) => appender.headers.durability.make_durable().await,
            // The voided record may be replayed at the next opening: the log cannot tell.
            Err(error) => Err(appender.health.poison(Error::device("taking a record back", error))),
        };
        appender.counters.voids.fetch_add(1, Ordering::Relaxed);
        appender.voids.finish(job, durable);
        replacement.changed.notify();
        true
    }
}
