//! Log files: the zoned log of [`crate::log`] as a file, and where its segments come from.
//!
//! A zone belongs to one open log at a time (a lease). What the log leaves of it when it is closed is offered to the
//! next log (a rest). The next segment of a log is made ahead, so that it waits for no allocation.

use std::future::Future;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;

use parking_lot::Mutex;
use units::sync::Turnstile;
use units::{Blocks, Bytes, Driver};
use zoned::ZoneState;

use crate::alloc::{Lease, no_space};
use crate::format::record::Record;
use crate::log::{LogIndex, LogOptions, LogWriter, Segment, SegmentSource};
pub(crate) use crate::log_read::{damage, lost};
use crate::shared::{Handle, Shared};
use crate::state::State;
use crate::zones::Phase;
use crate::{Error, ErrorKind, Result, Sabotage, ZoneRole};

/// A rest of fewer blocks than this fraction of a zone is not worth a slot.
const SMALLEST_REST: u64 = 16;
/// Rests kept open for the next log.
const MAX_RESTS: usize = 1;
/// How long a log waits for another one to be closed, where the open zones do not suffice for both: a database that
/// switched its log closes the old one in a moment.
const WAIT_FOR_A_LOG: Duration = Duration::from_secs(5);
/// Empty zones there must be beyond the reserve before segments are made ahead.
const PLENTY: usize = 4;

/// The writer of a log file.
#[derive(Debug)]
pub(crate) struct LogFile {
    handle: Arc<Handle>,
    writer: Arc<LogWriter>,
    turn: Turnstile,
    closed: AtomicBool,
    /// Older logs of the directory: synced before this one's first entry, so that what survives is a prefix.
    older: Mutex<Option<Vec<Arc<LogWriter>>>>,
    /// The file's creation is durable.
    named: AtomicBool,
}

/// Gives a log its segments.
#[derive(Debug)]
struct Source {
    shared: Weak<Shared>,
    ino: u64,
}

impl SegmentSource for Source {
    fn next(&self) -> Pin<Box<dyn Future<Output = Result<Segment>> + Send + '_>> {
        Box::pin(async move {
            let closed =
                || Error::new(ErrorKind::Closed, "extending a log").because("the file system is gone");
            self.shared.upgrade().ok_or_else(closed)?.next_segment(self.ino).await
        })
    }
}

impl LogFile {
    /// Opens a log for appending: a new epoch, whose cut is durable before the first entry. `older` are the
    /// other open logs of its directory.
    pub(crate) async fn open(handle: Arc<Handle>, older: Vec<Arc<LogWriter>>) -> Result<Arc<LogFile>> {
        let shared = Arc::clone(&handle.shared);
        let ino = handle.file.ino;
        let index = shared.log_index(&handle.file).await?;
        if let Some(damage) = handle.file.content.read().log.damage.clone() {
            return Err(damage);
        }
        // The new epoch stands on what the old ones wrote.
        if index.size() > Bytes::ZERO {
            shared.flush_device("flushing before a log goes on").await?;
        }
        let (epoch, sequence) = {
            let mut state = shared.state.lock();
            let (epoch, sequence) = {
                let content = handle.file.content.read();
                let epoch = content.log.cuts.last().map_or(1, |cut| cut.epoch + 1);
                (epoch, content.log.sealed.map_or(0, |(_, next)| next))
            };
            state.commit(Record::Cut { ino, sequence, offset: index.size().0, epoch })?;
            (epoch, sequence)
        };
        let options = LogOptions { sabotage: shared.options.sabotage, ..shared.options.log };
        let source = Arc::new(Source { shared: Arc::downgrade(&shared), ino });
        let (dev, uuid) = (Arc::clone(&shared.dev), shared.superblock.uuid);
        let index = LogIndex::clone(&index);
        let writer = Arc::new(LogWriter::resume(dev, uuid, ino, epoch, sequence, index, options, source));
        handle.file.content.write().log.writer = Some(Arc::clone(&writer));
        Ok(Arc::new(LogFile {
            handle,
            writer,
            turn: Turnstile::new(),
            closed: AtomicBool::new(false),
            older: Mutex::new(Some(older)),
            named: AtomicBool::new(false),
        }))
    }

    pub(crate) fn driver(&self) -> &Arc<dyn Driver> {
        &self.handle.shared.driver
    }

    pub(crate) fn is_closed(&self) -> bool {
        self.closed.load(Ordering::Acquire)
    }

    pub(crate) fn size(&self) -> Bytes {
        self.writer.size()
    }

    fn check(&self) -> Result<()> {
        if self.is_closed() {
            return Err(Error::new(ErrorKind::Closed, "writing a log").because("its writer is closed"));
        }
        self.handle.shared.check_open()
    }

    pub(crate) async fn append(&self, data: &[u8]) -> Result<()> {
        self.check()?;
        if self.older.lock().is_some() {
            let _turn = self.turn.acquire().await;
            let older = self.older.lock().clone();
            if let Some(older) = older {
                self.sync_older(&older).await?;
                *self.older.lock() = None;
            }
        }
        self.writer.append(data).await
    }

    async fn sync_older(&self, older: &[Arc<LogWriter>]) -> Result<()> {
        if self.handle.shared.options.sabotage == Some(Sabotage::Sync) {
            return Ok(());
        }
        for log in older {
            log.sync().await?;
        }
        // Logs closed a moment ago may still be in the device's cache.
        self.handle.shared.flush_device("flushing older logs").await
    }

    pub(crate) async fn flush(&self) -> Result<()> {
        self.check()?;
        self.writer.flush().await
    }

    pub(crate) async fn sync(&self) -> Result<()> {
        self.check()?;
        self.writer.sync().await?;
        if !self.named.load(Ordering::Acquire) {
            self.handle.shared.commit_all().await?;
            self.named.store(true, Ordering::Release);
        }
        Ok(())
    }

    pub(crate) async fn close(&self) -> Result<()> {
        let _turn = self.turn.acquire().await;
        if self.closed.swap(true, Ordering::AcqRel) {
            return Ok(());
        }
        let shared = &self.handle.shared;
        // After an unmount the device may be somebody else's: what is buffered is lost, as after a crash.
        let closed = match shared.check_open() {
            Ok(()) => self.writer.close().await,
            Err(error) => Err(error),
        };
        let file = &self.handle.file;
        let mut state = shared.state.lock();
        if let Some(node) = state.file_node(file.ino) {
            node.writing = false;
        }
        let result = match closed {
            Ok(index) => self.seal(&mut state, index),
            Err(error) => {
                // Nobody knows how far it came: it is recovered when it is opened again.
                let mut content = file.content.write();
                content.log.sealed = None;
                content.log.index = None;
                content.size = self.writer.durable().0;
                drop(content);
                end_lease(&mut state, file.ino, None);
                Err(error)
            }
        };
        file.content.write().log.writer = None;
        drop(state);
        shared.kick_cleaner();
        shared.space.notify();
        result
    }

    fn seal(&self, state: &mut State, index: LogIndex) -> Result<()> {
        let ino = self.handle.file.ino;
        let size = index.size().0;
        self.handle.file.content.write().log.index = Some(Arc::new(index));
        let unused = self.writer.unused();
        let lease = state.places.leases.get(&ino).copied();
        let (segments, last) = {
            let content = self.handle.file.content.read();
            let all = &content.log.segments;
            // Those made ahead and not used go; so does the last one if nothing was written in it.
            let same = |a: &Segment, b: &Segment| (a.zone, a.start) == (b.zone, b.start);
            let handed = lease.and_then(|l| all.iter().position(|s| same(s, &l.segment)));
            let unwritten = lease.is_some_and(|l| unused.is_some_and(|u| same(&u, &l.segment)));
            let old = all.iter().filter(|s| s.start < s.end).count();
            let keep = match handed {
                Some(at) if unwritten => at,
                Some(at) => at + 1,
                None => old,
            };
            (keep, all.get(..keep).and_then(<[Segment]>::last).copied())
        };
        let in_last = |u: &Segment| last.is_some_and(|l| l.zone == u.zone && l.end == u.end);
        let last_end = match unused.filter(in_last) {
            Some(unused) => unused.start,
            None => last.map_or(Blocks::ZERO, |l| l.end),
        };
        let segments = u32::try_from(segments).expect("a log has fewer segments than zones");
        let modified_ms = self.handle.shared.driver.unix_millis();
        let next_sequence = self.writer.next_sequence();
        state.commit(Record::Seal { ino, size, next_sequence, last_end, modified_ms, segments })?;
        end_lease(state, ino, Some(unused.map_or(u64::MAX, |u| u.start.0)));
        Ok(())
    }
}

/// Ends a log's lease. The zone's pointer is at block `pointer`, `u64::MAX` at its end; `None` where unknown.
fn end_lease(state: &mut State, ino: u64, pointer: Option<u64>) {
    state.places.want_ahead.remove(&ino);
    if let Some(segment) = state.places.ahead.remove(&ino) {
        // Nothing was written there.
        if state.zones.get(segment.zone).is_some_and(|z| z.live == 0) {
            state.zones.set_phase(segment.zone, Phase::Free);
        }
    }
    let Some(lease) = state.places.leases.remove(&ino).filter(|lease| lease.active) else { return };
    let Some(zone) = state.zones.get(lease.zone).copied() else { return };
    match pointer {
        Some(0) => state.zones.set_phase(lease.zone, Phase::Free),
        Some(p) if p >= zone.capacity => {
            state.zones.note(lease.zone, ZoneState::Full, zone.capacity);
            state.zones.set_phase(lease.zone, Phase::Full);
        }
        Some(p) => {
            state.zones.note(lease.zone, ZoneState::ImplicitOpen, p);
            offer_rest(state, lease.zone, p, zone.capacity);
        }
        None => {
            state.zones.note(lease.zone, ZoneState::Closed, zone.capacity);
            state.places.finishing.push(lease.zone);
        }
    }
}

/// Keeps the rest of a log zone for the next log, or has the zone finished.
pub(crate) fn offer_rest(state: &mut State, zone: units::ZoneId, pointer: u64, capacity: u64) {
    let worth_it = capacity - pointer >= (capacity / SMALLEST_REST).max(1);
    if worth_it && state.places.rests.len() < MAX_RESTS {
        state.zones.set(zone, Phase::Rest, ZoneRole::Log);
        state.places.rests.push(zone);
    } else {
        state.zones.set(zone, Phase::Log, ZoneRole::Log);
        state.places.finishing.push(zone);
    }
}

/// A zone for a log's next segment.
enum Found {
    Segment(Segment),
    /// Made ahead: its record is durable.
    Ready(Segment),
    Wait,
    Starved,
    TooMany,
}

impl State {
    /// A segment for log `ino`, whose record is not made yet.
    fn find_segment(&mut self, ino: u64, ahead: bool) -> Found {
        if !ahead {
            if self.places.making.contains(&ino) {
                return Found::Wait;
            }
            if !self.is_leased(ino) && !self.lease_allowed() {
                return Found::TooMany;
            }
            if !self.places.ahead.contains_key(&ino)
                && let Some(zone) = self.places.rests.pop()
                && let Some(z) = self.zones.get(zone).copied()
            {
                self.zones.set(zone, Phase::Log, ZoneRole::Log);
                let (start, end) = (Blocks(z.pointer), Blocks(z.capacity));
                return Found::Segment(Segment { zone, generation: z.generation, start, end });
            }
            // The log's own zone is full once its entries are written, before the first one goes elsewhere.
            if !self.is_leased(ino) && !self.slot_free() {
                if self.places.finishing.is_empty() {
                    self.give_up_a_slot();
                }
                return if self.places.finishing.is_empty() { Found::TooMany } else { Found::Wait };
            }
            if let Some(segment) = self.places.ahead.remove(&ino) {
                return Found::Ready(segment);
            }
        }
        if !self.may_take_free(false) {
            return Found::Starved;
        }
        let Some(zone) = self.zones.first_free() else { return Found::Starved };
        let end = Blocks(self.zones.get(zone).map_or(0, |z| z.capacity));
        let generation = self.next_generation;
        self.zones.set(zone, Phase::Log, ZoneRole::Log);
        Found::Segment(Segment { zone, generation, start: Blocks::ZERO, end })
    }

    fn is_leased(&self, ino: u64) -> bool {
        self.places.leases.get(&ino).is_some_and(|lease| lease.active)
    }

    fn lease(&mut self, ino: u64, segment: Segment) {
        let before = self.places.leases.insert(ino, Lease { zone: segment.zone, segment, active: true });
        if let Some(before) = before.filter(|lease| lease.active) {
            // A log asks for more when its segment, which ends where the zone ends, is used up. Entries for it may
            // still be in the buffer: they fill the zone, and a finish now would shut them out.
            let capacity = self.zones.get(before.zone).map_or(0, |z| z.capacity);
            self.zones.note(before.zone, ZoneState::Full, capacity);
            self.zones.set_phase(before.zone, Phase::Full);
        }
        self.zones.note(segment.zone, ZoneState::ImplicitOpen, segment.start.0);
    }
}

impl Shared {
    /// The next segment of an open log, durable in the metadata.
    async fn next_segment(&self, ino: u64) -> Result<Segment> {
        let mut give_up: Option<units::Instant> = None;
        let segment = loop {
            let seen = self.space.version();
            self.check_open()?;
            self.meta.check()?;
            let (segment, upto) = {
                let mut state = self.state.lock();
                match state.find_segment(ino, false) {
                    Found::Ready(segment) => {
                        state.lease(ino, segment);
                        (Some(segment), 0)
                    }
                    Found::Segment(segment) => {
                        state.commit(Record::Segment { ino, segment })?;
                        state.lease(ino, segment);
                        (Some(segment), state.journal.applied)
                    }
                    Found::Starved if state.places.hopeless => return Err(no_space(&state)),
                    Found::TooMany if give_up.is_some_and(|at| self.driver.now() >= at) => {
                        return Err(Error::new(ErrorKind::Busy, "extending a log")
                            .because("more logs are open than the device's open zones allow; close one"));
                    }
                    Found::TooMany => {
                        give_up.get_or_insert_with(|| self.wake_after(WAIT_FOR_A_LOG));
                        (None, 0)
                    }
                    Found::Starved => {
                        state.places.wanted = true;
                        (None, 0)
                    }
                    Found::Wait => (None, 0),
                }
            };
            if let Some(segment) = segment {
                self.commit_upto(upto).await?;
                break segment;
            }
            self.kick_cleaner();
            self.space.changed_since(seen).await;
        };
        self.state.lock().places.want_ahead.insert(ino);
        self.kick_cleaner();
        Ok(segment)
    }

    /// Wakes those who wait for space after `time`; gives the moment.
    fn wake_after(&self, time: Duration) -> units::Instant {
        let at = self.driver.now().after(time);
        let (me, driver) = (self.me.clone(), Arc::clone(&self.driver));
        self.driver.drive(Box::pin(async move {
            units::sleep_until(&*driver, at).await;
            if let Some(shared) = me.upgrade() {
                shared.space.notify();
            }
        }));
        at
    }

    /// Makes the next segment of a log that wants one. True if there was something to do.
    pub(crate) async fn make_segment_ahead(&self) -> Result<bool> {
        let (ino, segment, upto) = {
            let mut state = self.state.lock();
            let Some(ino) = state.places.want_ahead.pop_first() else { return Ok(false) };
            let plenty = state.zones.free_count() > state.places.reserve + PLENTY;
            if !plenty || !state.is_leased(ino) || state.places.ahead.contains_key(&ino) {
                return Ok(true);
            }
            let Found::Segment(segment) = state.find_segment(ino, true) else { return Ok(true) };
            state.commit(Record::Segment { ino, segment })?;
            state.places.making.insert(ino);
            (ino, segment, state.journal.applied)
        };
        let made = self.commit_upto(upto).await;
        let mut state = self.state.lock();
        state.places.making.remove(&ino);
        let kept = state.file(ino).is_some_and(|f| f.content.read().log.segments.contains(&segment));
        if kept && made.is_ok() && state.is_leased(ino) {
            state.places.ahead.insert(ino, segment);
        } else if state.zones.get(segment.zone).is_some_and(|z| z.live == 0 && z.phase == Phase::Log) {
            state.zones.set_phase(segment.zone, Phase::Free);
        }
        drop(state);
        self.space.notify();
        made.map(|()| true)
    }
}
