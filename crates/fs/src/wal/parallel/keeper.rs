//! The keeper of a parallel log: everything that no writer should wait for.

use std::future::poll_fn;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::pin;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Weak};
use std::task::Poll;

use parking_lot::Mutex;
use units::Blocks;
use units::sync::Event;
use zoned::{Action, Durability};

use crate::error::{Error, ErrorKind, Result};
use crate::metadata::format::record::Record;
use crate::wal::entry::{EntryHeader, HEADER_SIZE};
use crate::wal::parallel::gate::Entered;
use crate::wal::parallel::inner::Inner;
use crate::wal::parallel::payload::{NUMBER, seal_empty};
use crate::wal::parallel::zone::{Top, Zone};
use crate::wal::segment::Next;

/// Tickets to be voided.
#[derive(Clone, Debug)]
pub(super) struct VoidJob {
    pub(super) first: u64,
    pub(super) count: u64,
    /// They are open, and done when the void is there.
    pub(super) open: bool,
    /// There was no room for it, and nobody waits for it any more.
    pub(super) put_off: bool,
    pub(super) reply: Arc<Reply>,
}

/// What became of a job.
#[derive(Debug, Default)]
pub(super) struct Reply {
    result: Mutex<Option<Result<()>>>,
    changed: Event,
}

impl Reply {
    pub(super) fn new() -> Arc<Reply> {
        Arc::default()
    }

    /// The first answer counts.
    pub(super) fn set(&self, result: Result<()>) {
        self.result.lock().get_or_insert(result);
        self.changed.notify();
    }

    pub(super) async fn wait(&self) -> Result<()> {
        loop {
            let seen = self.changed.version();
            if let Some(result) = self.result.lock().clone() {
                return result;
            }
            self.changed.changed_since(seen).await;
        }
    }
}

/// The keeper's life: until the log is closed, or gone.
pub(super) async fn run(log: Weak<Inner>, work: Event) {
    loop {
        let seen = work.version();
        let Some(log) = log.upgrade() else { return };
        let Some(progress) = unless_it_panics(log.keep()).await else {
            let why = "its keeper panicked, which is a bug; close it and open it again";
            log.poison(Error::new(ErrorKind::Poisoned, "keeping a parallel log").because(why));
            log.end_keeper();
            return;
        };
        if !progress && log.stopping.load(Ordering::Acquire) {
            log.end_keeper();
            return;
        }
        drop(log);
        if !progress {
            work.changed_since(seen).await;
        }
    }
}

/// What comes of a future; none if it panics. What it held is let go of.
async fn unless_it_panics<T>(future: impl Future<Output = T>) -> Option<T> {
    let mut future = pin!(future);
    poll_fn(|context| {
        let polled = catch_unwind(AssertUnwindSafe(|| future.as_mut().poll(context)));
        polled.map_or(Poll::Ready(None), |poll| poll.map(Some))
    })
    .await
}

/// A place in a zone, left when it is dropped.
struct Inside<'a> {
    log: &'a Inner,
    zone: &'a Arc<Zone>,
}

impl Drop for Inside<'_> {
    fn drop(&mut self) {
        if self.zone.gate.leave() {
            self.log.drained(self.zone);
        }
    }
}

impl VoidJob {
    /// What its caller hears when nobody is left to do it.
    pub(super) fn too_late(&self) -> Error {
        let why = format!(
            "the log was closed before ticket {} was taken back: its record may come back",
            self.first
        );
        Error::new(ErrorKind::Closed, "taking a record back").because(why)
    }
}

impl Inner {
    fn end_keeper(&self) {
        let mut voids = self.voids.lock();
        self.keeper_gone.store(true, Ordering::Release);
        for job in voids.drain(..) {
            job.reply.set(Err(job.too_late()));
        }
        drop(voids);
        self.switched.notify();
    }

    /// One thing that is to be done; false where there is none.
    async fn keep(self: &Arc<Inner>) -> bool {
        // Before zones that were left: these may all have come to their ends together.
        if self.wants_side() {
            self.fetch().await;
            return true;
        }
        if let Some(zone) = self.take_left() {
            self.leave(&zone).await;
            return true;
        }
        if self.is_dead() {
            return false;
        }
        if self.wants_segment() {
            self.fetch().await;
            return true;
        }
        match self.turn_late().await {
            Ok(false) => {}
            Ok(true) => return true,
            Err(error) => {
                self.poison(error);
                return true;
            }
        }
        // It stays there until it is done: whoever poisons the log answers it.
        let job = self.voids.lock().last().cloned();
        match job {
            Some(job) => self.write_void(job).await,
            None => false,
        }
    }

    /// Fills a zone that was left, and notes which tickets may be in it.
    pub(super) async fn leave(&self, zone: &Arc<Zone>) {
        let early = !zone.gate.is_drained();
        let padding = self.fill(zone).await;
        if early {
            self.cut_off(zone, padding);
        }
        {
            let mut tops = self.tops.0.lock();
            let mine = |top: &&mut Top| top.zone.as_ref().is_some_and(|z| Arc::ptr_eq(z, zone));
            if let Some(top) = tops.iter_mut().find(mine) {
                // Nobody is in the zone, so what it holds has tickets that were given.
                top.top = Some(self.tickets.next());
            }
        }
        if let Err(error) = self.retire_now(false) {
            tracing::warn!(%error, "giving up a log's segments failed");
        }
    }

    /// Makes the device see a zone as full, so that it holds no slot any more: with padding where that is one append. Gives
    /// the block of the zone that the padding begins at.
    pub(super) async fn fill(&self, zone: &Zone) -> Option<Blocks> {
        if !zone.fill() {
            return None;
        }
        let (left, id) = (zone.gate.left(), zone.segment.zone);
        let mut begins = None;
        let mut filled = left == 0 && !zone.is_broken();
        if left > 0 && left <= self.cutting.longest && !zone.is_broken() {
            match self.dev.append(id, self.padding(zone, left), Durability::Cached).await {
                Ok(at) => {
                    filled = true;
                    begins = Some(Blocks(at.0 - self.dev.geometry().start(id).0));
                }
                Err(error) => tracing::debug!(zone = %id, %error, "padding a log's zone failed"),
            }
        }
        if !filled && let Err(error) = self.dev.zone(id, Action::Finish).await {
            tracing::warn!(zone = %id, %error, "finishing a log's zone failed");
        }
        self.shared().state.lock().places.leaving.retain(|left| left.zone != id);
        self.shared().space.notify();
        self.shared().kick_cleaner();
        begins
    }

    fn padding(&self, zone: &Zone, blocks: u64) -> zoned::Buf {
        let bytes = usize::try_from(blocks).expect("bounded by MAX_PART") * self.cutting.block_size;
        let length = u32::try_from(bytes - HEADER_SIZE).expect("bounded by MAX_PART");
        let generation = zone.segment.generation;
        let header = EntryHeader { padding: true, generation, length, ..self.header(0) };
        seal_empty(header, 0, blocks, &zone.home, self.cutting.block_size)
    }

    /// What a log does that takes the address of its padding for its end (the rule broken, for tests).
    fn cut_off(&self, zone: &Arc<Zone>, padding: Option<Blocks>) {
        let tops = self.tops.0.lock();
        let mine = |top: &Top| top.zone.as_ref().is_some_and(|z| Arc::ptr_eq(z, zone));
        if let (Some(at), Some(end)) = (tops.iter().position(mine), padding) {
            let segment = u32::try_from(at).expect("few");
            let trim = Record::Trim { ino: self.identity.log, segment, end };
            let _broken_anyway = self.shared().state.lock().commit(trim);
        }
    }

    /// There is no room for voids: nobody waits for them any more, and they are written before anything else when there is.
    fn put_voids_off(&self, error: &Error) {
        for job in &mut *self.voids.lock() {
            // Before its caller hears: whatever that does next comes behind the void.
            self.owing.store(true, Ordering::Release);
            job.put_off = true;
            job.reply.set(Err(error.clone()));
        }
    }

    fn wants_segment(self: &Arc<Inner>) -> bool {
        {
            let switch = self.switch.lock();
            // The zones that were left may hold the slot that the next one needs.
            if switch.next.is_some() || !switch.old.is_empty() {
                return false;
            }
        }
        let void = !self.voids.lock().is_empty();
        if self.closed.load(Ordering::Acquire) && !void {
            return false;
        }
        if self.asked.load(Ordering::Acquire) {
            return true;
        }
        let starved = self.starved.lock().why.is_some();
        let active = self.active.load();
        let short = active.as_ref().is_none_or(|zone| zone.gate.is_closed() || self.is_nearly_full(zone));
        (short || self.side_is_nearly_full()) && !starved
    }

    /// Takes the next segment, and makes its record durable before anything is appended to it.
    async fn fetch(&self) {
        self.asked.store(false, Ordering::Release);
        let got = self.next_zone().await;
        let mut starved = self.starved.lock();
        match got {
            Ok(zone) => {
                starved.why = None;
                self.give(zone);
            }
            Err(error) => {
                tracing::debug!(%error, "a parallel log got no segment");
                starved.why = Some(error.clone());
                starved.times += 1;
                if matches!(error.kind(), ErrorKind::NoSpace | ErrorKind::Busy) {
                    self.put_voids_off(&error);
                } else {
                    self.poison(error);
                }
            }
        }
        drop(starved);
        self.switched.notify();
    }

    async fn next_zone(&self) -> Result<Arc<Zone>> {
        let shared = self.shared();
        if self.spare {
            self.check_spare()?;
        }
        let (segment, record, beside) = shared.next_segment(self.identity.log).await?;
        let zone = Zone::new(Next { segment, beside }, self.identity.uuid);
        self.tops.0.lock().push(Top { zone: Some(Arc::clone(&zone)), top: None });
        // A failure here is the file system's end: it is read-only from now on.
        shared.commit_upto(record).await?;
        Ok(zone)
    }

    /// Fails where a further zone would leave less room than the log has then: what it holds could not be written anywhere else,
    /// and it could never be given up.
    pub(super) fn check_spare(&self) -> Result<()> {
        let with_it = self.tops.0.lock().len() as u64 + 1;
        let capacity = self.dev.geometry().zone_capacity.0;
        let room = self.shared().state.lock().writable(capacity);
        if room >= (with_it + 1) * capacity {
            return Ok(());
        }
        let why = format!(
            "the log would have {with_it} zones, and {room} blocks are free: as many are kept for what it holds; \
             flush, or delete something"
        );
        Err(Error::new(ErrorKind::NoSpace, "extending a parallel log").because(why))
    }

    /// Writes a void, makes it durable, answers. False where it has to wait for room, which somebody will give.
    async fn write_void(self: &Arc<Inner>, job: VoidJob) -> bool {
        let is_this = |other: &VoidJob| Arc::ptr_eq(&other.reply, &job.reply);
        if self.rules.omits_voids() {
            if job.open {
                self.done(job.first, job.count);
            }
            self.voids.lock().retain(|other| !is_this(other));
            job.reply.set(Ok(()));
            return true;
        }
        let zone = match self.try_enter(1) {
            Ok(zone) => zone,
            Err(entered) => {
                if !job.put_off && self.starved.lock().why.is_some() {
                    // Nobody asks for a zone: who waits for the void is to hear if there is still none.
                    self.asked.store(true, Ordering::Release);
                }
                if entered == Entered::Taken {
                    return self.get_behind();
                }
                let active = self.active.load_full();
                return self.no_room(active.as_ref())
                    || self.wants_segment()
                    || self.left_for_next().is_some();
            }
        };
        let inside = Inside { log: self, zone: &zone };
        let (id, generation) = (zone.segment.zone, zone.segment.generation);
        let length = u32::try_from(NUMBER).expect("four");
        let header = EntryHeader { void: true, generation, length, ..self.header(job.first) };
        let count = u32::try_from(job.count).expect("an entry has few records");
        let data = seal_empty(header, count, 1, &zone.home, self.cutting.block_size);
        let written = self.dev.append(id, data, Durability::Cached).await;
        if written.is_ok() && job.open {
            self.done(job.first, job.count);
        }
        drop(inside);
        let durable = match written {
            Ok(_) => self.make_durable().await,
            // What failed before may come to life: nobody can say any more.
            Err(error) => Err(self.poison(Error::device("taking a record back", error))),
        };
        self.counters.voids.fetch_add(1, Ordering::Relaxed);
        let mut voids = self.voids.lock();
        voids.retain(|other| !is_this(other));
        if !voids.iter().any(|job| job.put_off) {
            self.owing.store(false, Ordering::Release);
        }
        drop(voids);
        job.reply.set(durable);
        self.switched.notify();
        true
    }
}
