//! What the writers of a parallel log share, and how one gets a place in a zone.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};

use arc_swap::ArcSwapOption;
use parking_lot::Mutex;
use units::sync::{Event, Turnstile};
use units::{Blocks, Driver};
use uuid::Uuid;
use zoned::ZonedDevice;

use crate::error::{Error, ErrorKind, Result};
use crate::metadata::format::record::Record;
use crate::rules::Rules;
use crate::shared::{Handle, Shared};
use crate::wal::entry::EntryHeader;
use crate::wal::parallel::exchange::{Starved, Switch};
use crate::wal::parallel::flush::Flusher;
use crate::wal::parallel::join::Joiner;
use crate::wal::parallel::keeper::{Reply, VoidJob};
use crate::wal::parallel::known::Known;
use crate::wal::parallel::options::ParallelOptions;
use crate::wal::parallel::payload::Cutting;
use crate::wal::parallel::spread::Spread;
use crate::wal::parallel::tickets::Tickets;
use crate::wal::parallel::zone::{Tops, Zone};

/// What all entries of a writer have in common.
#[derive(Clone, Copy, Debug)]
pub(super) struct Identity {
    pub(super) uuid: Uuid,
    pub(super) log: u64,
    pub(super) epoch: u32,
}

/// What a parallel log did.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct ParallelStats {
    /// Appends that the device took, or writes at the pointer: each is a part of an entry.
    pub appends: u64,
    /// Those of them that were writes at the pointer.
    pub writes: u64,
    /// Their blocks.
    pub blocks: u64,
    /// Records.
    pub records: u64,
    /// Flushes of the device.
    pub flushes: u64,
    /// Voids.
    pub voids: u64,
    /// Zones that were left.
    pub replaced: u64,
    /// How often a record waited for a zone.
    pub waits: u64,
    /// Zones that are written at a time, as of now.
    pub zones: u64,
}

/// The same, being counted.
#[derive(Debug, Default)]
pub(super) struct Counters {
    pub(super) appends: AtomicU64,
    pub(super) writes: AtomicU64,
    pub(super) blocks: AtomicU64,
    pub(super) records: AtomicU64,
    pub(super) flushes: AtomicU64,
    pub(super) voids: AtomicU64,
    pub(super) replaced: AtomicU64,
    pub(super) waits: AtomicU64,
}

impl Counters {
    pub(super) fn stats(&self) -> ParallelStats {
        let get = |n: &AtomicU64| n.load(Ordering::Relaxed);
        ParallelStats {
            appends: get(&self.appends),
            writes: get(&self.writes),
            blocks: get(&self.blocks),
            records: get(&self.records),
            flushes: get(&self.flushes),
            voids: get(&self.voids),
            replaced: get(&self.replaced),
            waits: get(&self.waits),
            zones: 0,
        }
    }
}

pub(super) struct Inner {
    pub(super) handle: Arc<Handle>,
    pub(super) dev: Arc<dyn ZonedDevice>,
    pub(super) identity: Identity,
    pub(super) cutting: Cutting,
    /// Acknowledged is not durable.
    pub(super) volatile: bool,
    /// A power cut may take what was acknowledged in the middle of a zone: entries say what they follow.
    scattered: bool,
    pub(super) tickets: Tickets,
    /// The first ticket of this opening: what has a lower one was decided before.
    pub(super) first: u64,
    /// Records go together where that is better.
    pub(super) join: bool,
    /// As much room as it has is left.
    pub(super) spare: bool,
    pub(super) joiner: Joiner,
    /// The zone that is written. Changed under the lock of `switch`.
    pub(super) active: ArcSwapOption<Zone>,
    pub(super) switch: Mutex<Switch>,
    /// Zones that are written beside it.
    pub(super) spread: Spread,
    /// There is another zone, or will not be; or the one who had it to itself has left.
    pub(super) switched: Event,
    /// Somebody waits until the one who has the zone to itself has left.
    pub(super) behind: AtomicBool,
    /// The lowest open ticket has moved, told while somebody waits.
    low_moved: Event,
    low_waiters: AtomicUsize,
    /// Every ticket below is durable.
    pub(super) durable: AtomicU64,
    pub(super) flusher: Flusher,
    pub(super) failed: Mutex<Option<Error>>,
    dead: AtomicBool,
    pub(super) tops: Tops,
    pub(super) retired: AtomicU64,
    pub(super) voids: Mutex<Vec<VoidJob>>,
    /// Voids were put off for want of room: nothing else is written before them. Changed by the keeper.
    pub(super) owing: AtomicBool,
    /// Somebody waits for a zone.
    pub(super) asked: AtomicBool,
    pub(super) starved: Mutex<Starved>,
    /// Something for the keeper to do.
    pub(super) work: Event,
    pub(super) closed: AtomicBool,
    /// The keeper is to end, and has ended: the latter changes under the lock of `voids`.
    pub(super) stopping: AtomicBool,
    pub(super) keeper_gone: AtomicBool,
    pub(super) settled: AtomicBool,
    pub(super) closing: Turnstile,
    pub(super) counters: Counters,
    pub(super) rules: Rules,
}

impl Inner {
    pub(super) fn new(
        handle: Arc<Handle>,
        epoch: u32,
        first: u64,
        retired: u64,
        options: &ParallelOptions,
        tops: Tops,
    ) -> Arc<Inner> {
        let shared = &handle.shared;
        shared.parallel_logs.fetch_add(1, Ordering::Relaxed);
        let dev = Arc::clone(&shared.dev);
        let geometry = dev.geometry();
        let longest = geometry.max_append.min(geometry.max_transfer).0;
        let spread = {
            let mut state = shared.state.lock();
            let slots = state.places.slots.map_or(0, |slots| slots.total);
            let spread = Spread::new(options.zones, slots, geometry.zones, geometry.volatile_cache);
            state.places.wide += spread.more();
            spread
        };
        Arc::new(Inner {
            identity: Identity { uuid: shared.superblock.uuid, log: handle.file.ino, epoch },
            cutting: Cutting::new(geometry.block_size, longest),
            volatile: geometry.volatile_cache,
            scattered: geometry.volatile_cache
                && !geometry.ordered_cache
                && !shared.options.rules().omits_known_tickets(),
            tickets: Tickets::new(first, options.open.clamp(1, ParallelOptions::MAX_OPEN)),
            first,
            join: options.join,
            spare: options.spare,
            joiner: Joiner::new(options.open),
            active: ArcSwapOption::empty(),
            switch: Mutex::default(),
            spread,
            switched: Event::new(),
            behind: AtomicBool::new(false),
            low_moved: Event::new(),
            low_waiters: AtomicUsize::new(0),
            durable: AtomicU64::new(first),
            flusher: Flusher::default(),
            failed: Mutex::default(),
            dead: AtomicBool::new(false),
            tops,
            retired: AtomicU64::new(retired),
            voids: Mutex::default(),
            owing: AtomicBool::new(false),
            asked: AtomicBool::new(false),
            starved: Mutex::default(),
            work: Event::new(),
            closed: AtomicBool::new(false),
            stopping: AtomicBool::new(false),
            keeper_gone: AtomicBool::new(false),
            settled: AtomicBool::new(false),
            closing: Turnstile::new(),
            counters: Counters::default(),
            rules: shared.options.rules(),
            handle,
            dev,
        })
    }

    pub(super) fn driver(&self) -> &Arc<dyn Driver> {
        self.dev.driver()
    }

    pub(super) fn shared(&self) -> &Arc<Shared> {
        &self.handle.shared
    }

    /// Fails once the log is poisoned.
    pub(super) fn check(&self) -> Result<()> {
        if !self.dead.load(Ordering::Acquire) {
            return Ok(());
        }
        let why = "an earlier write or flush of the parallel log failed; close it and open it again";
        let error = Error::new(ErrorKind::Poisoned, "appending to a parallel log").because(why);
        Err(self.failed.lock().clone().map_or(error.clone(), |cause| error.caused_by(cause)))
    }

    /// Fails once the log is poisoned or closed, or the file system is.
    pub(super) fn check_usable(&self) -> Result<()> {
        self.check()?;
        if self.closed.load(Ordering::Acquire) {
            return Err(Error::new(ErrorKind::Closed, "appending to a parallel log").because("it is closed"));
        }
        self.shared().check_open()
    }

    pub(super) fn is_dead(&self) -> bool {
        self.dead.load(Ordering::Acquire)
    }

    /// Nothing more is written: what is missing cannot be told from here. Gives the first error.
    pub(super) fn poison(&self, error: Error) -> Error {
        tracing::error!(%error, log = self.identity.log, "a parallel log is poisoned");
        let error = self.failed.lock().get_or_insert(error).clone();
        self.dead.store(true, Ordering::Release);
        for job in std::mem::take(&mut *self.voids.lock()) {
            job.reply.set(Err(error.clone()));
        }
        self.switched.notify();
        self.low_moved.notify();
        self.work.notify();
        error
    }

    /// The header of an entry with `ticket`, as far as it is the same for all its parts.
    pub(super) fn header(&self, ticket: u64) -> EntryHeader {
        let low = self.tickets.low();
        // Without a volatile cache what is acknowledged is durable.
        let durable = if self.volatile { self.durable.load(Ordering::Acquire) } else { low };
        EntryHeader {
            padding: false,
            odd: false,
            void: false,
            known: false,
            log: self.identity.log,
            generation: 0,
            sequence: ticket,
            needs: low.min(ticket),
            epoch: self.identity.epoch,
            part: 0,
            parts: 1,
            length: 0,
            mask: 0,
            open: u32::try_from(ticket.saturating_sub(durable)).unwrap_or(u32::MAX),
            crc: 0,
        }
    }

    /// Tickets exist from now on.
    pub(super) fn done(&self, first: u64, count: u64) {
        self.tickets.done(first, count);
        if self.low_waiters.load(Ordering::Acquire) > 0 {
            self.low_moved.notify();
        }
    }

    /// What was acknowledged before the entry that begins now: all tickets below the number, and what it knows above. To be
    /// asked before the entry takes its tickets: of two entries the later one's flush covers what the earlier one knows. Waits
    /// while that is more than an entry can tell.
    pub(super) async fn look_back(&self) -> Result<(u64, Known)> {
        let look = || {
            let (low, runs) =
                if self.scattered { self.tickets.all_done() } else { (self.tickets.low(), Vec::new()) };
            Known::of(low, &runs).map(|known| (low, known))
        };
        match look() {
            Some(before) => Ok(before),
            None => self.as_low_moves(look).await,
        }
    }

    /// The next tickets. Waits while too many are open, `turn_back` first: nobody holds up a zone meanwhile.
    pub(super) async fn wait_for_tickets(&self, count: u64) -> Result<()> {
        self.as_low_moves(|| self.tickets.has(count).then_some(())).await
    }

    /// Waits until `ready` gives something, which the lowest open ticket decides.
    async fn as_low_moves<R>(&self, ready: impl Fn() -> Option<R>) -> Result<R> {
        struct Waits<'a>(&'a AtomicUsize);
        impl Drop for Waits<'_> {
            fn drop(&mut self) {
                self.0.fetch_sub(1, Ordering::AcqRel);
            }
        }
        self.low_waiters.fetch_add(1, Ordering::AcqRel);
        let _waits = Waits(&self.low_waiters);
        loop {
            let seen = self.low_moved.version();
            self.check()?;
            if let Some(ready) = ready() {
                return Ok(ready);
            }
            self.low_moved.changed_since(seen).await;
        }
    }

    /// A zone that is written, for one operation of `blocks` that has it to itself, and the block of the zone where its
    /// pointer is; `None` where anybody is in it.
    pub(super) fn try_enter_alone(&self, blocks: u64) -> Option<(Arc<Zone>, Blocks)> {
        let enter = |zone: Arc<Zone>| {
            let used = zone.gate.enter_alone(blocks)?;
            let pointer = Blocks(zone.segment.start.0 + used);
            Some((zone, pointer))
        };
        if !self.spread.is_wide() {
            return enter(self.active.load_full()?);
        }
        self.in_turn().into_iter().find_map(enter)
    }

    /// An operation in `zone` failed: it is left.
    pub(super) fn broken(&self, zone: &Arc<Zone>) {
        zone.set_broken();
        if zone.gate.close() {
            self.drained(zone);
        }
    }

    /// Has a void of tickets written. `open`: they are done with it.
    pub(super) fn void(&self, first: u64, count: u64, open: bool) -> Arc<Reply> {
        let reply = Reply::new();
        let job = VoidJob { first, count, open, put_off: false, reply: Arc::clone(&reply) };
        let mut voids = self.voids.lock();
        match self.check() {
            Err(error) => reply.set(Err(error)),
            Ok(()) if self.keeper_gone.load(Ordering::Acquire) => reply.set(Err(job.too_late())),
            Ok(()) => voids.push(job),
        }
        drop(voids);
        self.work.notify();
        reply
    }

    /// Voids that were put off come first: what is acknowledged while one is missing could be followed by a record that was
    /// refused before it. Waits for them, or for the keeper to find no room again.
    pub(super) async fn pay(&self) -> Result<()> {
        let mut times = None;
        while self.owing.load(Ordering::Acquire) {
            let seen = self.switched.version();
            self.check_usable()?;
            {
                let starved = self.starved.lock();
                if let (Some(before), Some(why)) = (times, &starved.why)
                    && before != starved.times
                {
                    let first = "a record that failed is to be taken back first, and there is no room for that; nothing is \
                                 written until there is";
                    let error = Error::new(why.kind(), "appending to a parallel log").because(first);
                    return Err(error.caused_by(why.clone()));
                }
                times.get_or_insert(starved.times);
            }
            if !self.owing.load(Ordering::Acquire) {
                break;
            }
            self.asked.store(true, Ordering::Release);
            self.work.notify();
            self.switched.changed_since(seen).await;
        }
        Ok(())
    }

    /// There may be room now for voids that were put off.
    pub(super) fn may_pay(&self) {
        if self.owing.load(Ordering::Acquire) {
            self.asked.store(true, Ordering::Release);
            self.work.notify();
        }
    }

    /// Notes that tickets below are not needed, and gives up segments with nothing else.
    pub(super) fn retire(&self, below: u64) -> Result<()> {
        self.retired.fetch_max(below.min(self.tickets.next()), Ordering::AcqRel);
        self.retire_now(false)
    }

    /// Gives up what can be given up: segments from the front whose tickets are all retired. `mark`: the mark is written down
    /// although none is.
    pub(super) fn retire_now(&self, mark: bool) -> Result<()> {
        let below = self.retired.load(Ordering::Acquire);
        let mut tops = self.tops.0.lock();
        let over = tops.iter().take_while(|top| top.top.is_some_and(|top| top <= below)).count();
        if over == 0 && !mark {
            return Ok(());
        }
        let segments = u32::try_from(over).expect("a log has fewer segments than zones");
        let ino = self.identity.log;
        self.shared().state.lock().commit(Record::Retire { ino, below, segments })?;
        tops.drain(..over);
        drop(tops);
        self.shared().kick_cleaner();
        self.shared().space.notify();
        self.may_pay();
        Ok(())
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        self.shared().parallel_logs.fetch_sub(1, Ordering::Relaxed);
    }
}

impl fmt::Debug for Inner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "parallel log {}", self.identity.log)
    }
}
