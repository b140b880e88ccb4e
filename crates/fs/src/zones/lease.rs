//! Which zone an open log writes to: leases of zones, rests of log zones, and zones that a log has left.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use units::{Blocks, Instant, ZoneId};
use zoned::{Action, IoClass, ZoneState};

use crate::device::Purpose;
use crate::error::{Error, ErrorKind, Result};
use crate::files::stat::ZoneRole;
use crate::metadata::format::record::Record;
use crate::metadata::state::State;
use crate::options::FileKind;
use crate::shared::Shared;
use crate::wal::ordered::writer::ReleasedSegment;
use crate::wal::segment::Segment;
use crate::zones::allocator::{Allocator, Lease, LeftZone};
use crate::zones::table::{Phase, Stream};

/// The rest of a log zone is finished instead of kept if it is shorter than a zone divided by this number.
const SMALLEST_REST_DIVISOR: u64 = 16;
/// Number of rests of log zones kept open for the next log.
const MAX_RESTS: usize = 1;
/// How long a log waits for another log to be closed if there are too few open zones for both. A database
/// that switched its log closes the old one soon.
const WAIT_FOR_LOG_CLOSE: Duration = Duration::from_secs(5);
/// A log without a write for this long is idle, and gives up its zone for a log that needs one. Two databases that sync in
/// turn keep their zones.
const IDLE_LOG_AGE: Duration = Duration::from_secs(1);
/// Interval at which a log that waits for a zone looks for an idle log.
const IDLE_LOG_SEARCH_INTERVAL: Duration = Duration::from_millis(20);

/// Keeps the rest of a log zone for the next log. Queues the zone for a finish where the rest is too small, or where `most`
/// rests are kept already.
fn offer_rest_beside(allocator: &mut Allocator, zone: ZoneId, pointer: u64, capacity: u64, most: usize) {
    let worth_it = capacity - pointer >= (capacity / SMALLEST_REST_DIVISOR).max(1);
    if worth_it && allocator.rests.len() < most {
        allocator.table.set(zone, Phase::Rest, ZoneRole::Log);
        allocator.rests.push(zone);
    } else {
        allocator.table.set(zone, Phase::Log, ZoneRole::Log);
        allocator.finishing.push(zone);
    }
}

/// As [`offer_rest_beside`], with the usual number of rests kept.
pub(crate) fn offer_rest(allocator: &mut Allocator, zone: ZoneId, pointer: u64, capacity: u64) {
    offer_rest_beside(allocator, zone, pointer, capacity, MAX_RESTS);
}

/// The outcome of a search for a log's next segment.
enum SegmentSearchOutcome {
    /// A segment, and whether the log may write to it before the zone that the log leaves is full.
    Segment(Segment, bool),
    /// The log waits: a zone or an open-zone slot becomes free without reclaim.
    Wait,
    /// The log needs reclaim: nothing else can make room.
    Starved,
    /// The log waits for another log: others hold all open zones that logs may have.
    TooMany,
}

impl Allocator {
    /// Leases a segment in a conventional zone to ordered log `ino`; `None` where the log is to take one in a sequential zone. The caller
    /// commits the segment's metadata record. `durable`: number of metadata records that are durable.
    fn find_conventional_segment(&mut self, ino: u64, durable: u64) -> Option<SegmentSearchOutcome> {
        if !self.prefers_conventional {
            return None;
        }
        // The reserve for recovery grows with the number of zones that have live segments of logs.
        let may_grow = self.reserve_may_grow();
        let table = &self.table;
        let has_live_log = |zone| table.get(zone).is_some_and(|zone| zone.live > 0);
        let (zone, blocks) = self.conventional.find(durable, |zone| may_grow || has_live_log(zone))?;
        let Some(generation) = self.take_generation() else { return Some(SegmentSearchOutcome::Wait) };
        let segment = Segment { zone, generation, start: blocks.start, end: blocks.end };
        self.replace_lease(ino, Lease { zone, segment, holds_slot: false }, true);
        Some(SegmentSearchOutcome::Segment(segment, true))
    }

    /// Number of the last record that freed blocks of conventional zones and may not be durable; `None` where logs are to lie elsewhere.
    fn freed_in_conventional_zones(&self) -> Option<u64> {
        self.conventional.freed_by().filter(|_| self.prefers_conventional)
    }

    /// Leases a segment to log `ino`. The caller commits the segment's metadata record.
    fn find_segment(&mut self, ino: u64) -> SegmentSearchOutcome {
        let leased = self.leases.get(&ino).is_some_and(|lease| lease.holds_slot);
        let may_hold_more = self.lease_allowed();
        if !leased && !may_hold_more {
            return SegmentSearchOutcome::TooMany;
        }
        // Rests and zones opened ahead are active already, and the zone that the log leaves stays active
        // until its last entries are written.
        if may_hold_more {
            if self.rest_leaves_reserved_blocks()
                && let Some(zone) = self.rests.pop()
                && let Some(z) = self.table.get(zone).copied()
            {
                let (start, end) = (Blocks(z.pointer), Blocks(z.capacity));
                let segment = Segment { zone, generation: z.generation, start, end };
                return self.lease(ino, segment, ZoneState::ImplicitOpen, true);
            }
            if !self.generations.is_empty()
                && self.log_leaves_reserve()
                && let Some(zone) = self.ahead.pop_front()
            {
                return self.lease_whole(ino, zone, ZoneState::ExplicitOpen, true);
            }
        }
        // From here on the new zone takes over the open-zone slot of the log's old zone: the old zone is full
        // once its entries are written, and they are written before the first entry of the new zone.
        if !leased && !self.slot_free() {
            // A slot is of no use without an empty zone. To free one for it retires a data zone, whose reclaim opens another zone, and so on
            // for ever.
            if !self.log_may_take_free() && !self.opening && self.finishing.is_empty() {
                return SegmentSearchOutcome::Starved;
            }
            if self.finishing.is_empty() && !self.opening {
                self.free_a_slot();
            }
            let coming = !self.finishing.is_empty() || self.opening;
            return if coming { SegmentSearchOutcome::Wait } else { SegmentSearchOutcome::TooMany };
        }
        if self.generations.is_empty() {
            return SegmentSearchOutcome::Wait;
        }
        match self.table.next_free_zone(Stream::Log).filter(|_| self.log_may_take_free()) {
            Some(zone) => {
                self.table.note_last_zone(Stream::Log, zone);
                self.lease_whole(ino, zone, ZoneState::ImplicitOpen, false)
            }
            None if self.opening => SegmentSearchOutcome::Wait,
            None if !self.log_leaves_reserve() => SegmentSearchOutcome::Starved,
            None => match self.ahead.pop_front() {
                Some(zone) => self.lease_whole(ino, zone, ZoneState::ExplicitOpen, leased),
                None => SegmentSearchOutcome::Starved,
            },
        }
    }

    fn lease_whole(
        &mut self,
        ino: u64,
        zone: ZoneId,
        as_state: ZoneState,
        both: bool,
    ) -> SegmentSearchOutcome {
        let Some(generation) = self.take_generation() else { return SegmentSearchOutcome::Wait };
        let end = Blocks(self.table.get(zone).map_or(0, |z| z.capacity));
        self.lease(ino, Segment { zone, generation, start: Blocks::ZERO, end }, as_state, both)
    }

    /// Leases `segment` to log `ino`. `both`: the zone is active already, beside the zone that the log leaves.
    fn lease(&mut self, ino: u64, segment: Segment, as_state: ZoneState, both: bool) -> SegmentSearchOutcome {
        self.table.set(segment.zone, Phase::Log, ZoneRole::Log);
        self.replace_lease(ino, Lease { zone: segment.zone, segment, holds_slot: true }, both);
        self.table.note_state(segment.zone, as_state, segment.start.0);
        SegmentSearchOutcome::Segment(segment, both)
    }

    /// Notes that log `ino` goes on in another segment. `both`: the segment's zone may be active beside the zone that the log leaves.
    fn replace_lease(&mut self, ino: u64, lease: Lease, both: bool) {
        let before = self.leases.insert(ino, lease);
        if let Some(before) = before.filter(|lease| lease.holds_slot) {
            // The log's old zone counts as full. A log asks for a segment when its last one, which ends where
            // the zone ends, is used up. Entries for the old zone may still be buffered. They fill the zone,
            // and fail if the zone is finished before.
            let capacity = self.table.get(before.zone).map_or(0, |z| z.capacity);
            self.table.note_state(before.zone, ZoneState::Full, capacity);
            self.table.set_phase(before.zone, Phase::Full);
            if both {
                self.leaving.push(LeftZone { ino, zone: before.zone });
            }
        }
    }

    /// Ends the lease of log `ino`. `pointer`: the block at which the zone's write pointer is; `u64::MAX` for the zone's end,
    /// `None` where unknown.
    pub(crate) fn end_lease(&mut self, ino: u64, pointer: Option<u64>) {
        self.end_lease_beside(ino, pointer, MAX_RESTS);
    }

    /// As [`Allocator::end_lease`]; the rest of the zone is kept if fewer than `most` rests are.
    fn end_lease_beside(&mut self, ino: u64, pointer: Option<u64>, most: usize) {
        // The zones that the log has left get no further entries: its last ones are written, or never will
        // be.
        let (mine, others) = std::mem::take(&mut self.leaving).into_iter().partition(|l| l.ino == ino);
        self.leaving = others;
        let lease = self.leases.remove(&ino);
        if pointer.is_none() {
            self.finishing.extend(mine.into_iter().map(|left: LeftZone| left.zone));
        }
        let Some(lease) = lease.filter(|lease| lease.holds_slot) else { return };
        let Some(zone) = self.table.get(lease.zone).copied() else { return };
        match pointer {
            Some(0) if zone.state == ZoneState::ExplicitOpen => self.add_ahead(lease.zone),
            Some(0) => self.table.set_phase(lease.zone, Phase::Free),
            Some(p) if p >= zone.capacity => {
                self.table.note_state(lease.zone, ZoneState::Full, zone.capacity);
                self.table.set_phase(lease.zone, Phase::Full);
            }
            Some(p) => {
                self.table.note_state(lease.zone, ZoneState::ImplicitOpen, p);
                offer_rest_beside(self, lease.zone, p, zone.capacity, most);
            }
            None => {
                self.table.note_state(lease.zone, ZoneState::Closed, zone.capacity);
                self.finishing.push(lease.zone);
            }
        }
    }
}

impl State {
    /// Takes a zone from a log other than `but` that is open, idle and synced. True if there was such a log.
    /// RocksDB keeps a log open without writing to the log while file deletions are disabled, or while an
    /// idle column family needs the log.
    ///
    /// The idle log's segment ends at the write pointer from here on, and the rest of the zone is for the log
    /// that waits: the zone stays open and no device operation is needed. A rest that is too small is given
    /// up with a finish, which costs milliseconds on a drive (some fill the zone up to its capacity), and
    /// blocks that cannot be written before the zone is reset.
    fn release_idle_log(&mut self, but: u64) -> Result<bool> {
        let active = self.allocator.leases.iter().filter(|(ino, lease)| **ino != but && lease.holds_slot);
        let leases: Vec<(u64, ZoneId)> = active.map(|(ino, lease)| (*ino, lease.zone)).collect();
        for (ino, zone) in leases {
            let Some(file) = self.file(ino) else { continue };
            let (writer, segments, modified_ms) = {
                let content = file.content.read();
                (content.log.writer.clone(), content.log.segments.len(), content.modified_ms)
            };
            let released = writer.and_then(|writer| writer.release_segment(IDLE_LOG_AGE));
            let Some(ReleasedSegment { rest, size, next_sequence }) = released else { continue };
            // The idle log's next segment record undoes this seal, and the log continues.
            let segments = u32::try_from(segments).expect("segments are counted in 32 bits");
            let last_end = rest.start;
            self.commit(Record::Seal { ino, size, next_sequence, last_end, modified_ms, segments })?;
            // One rest more than usual is kept: the log that waits takes one at once.
            self.allocator.end_lease_beside(ino, Some(last_end.0), MAX_RESTS + 1);
            tracing::debug!(ino, %zone, "an idle log gives the rest of its zone to another log");
            return Ok(true);
        }
        Ok(false)
    }
}

impl Shared {
    /// The next segment of open log `ino` of kind `kind`, the number of the segment's record, and whether the segment's zone is active
    /// beside the zone that the log leaves. Until the record is durable, a power cut loses the content of the segment. Waits
    /// only where no zone is available at once.
    pub(crate) async fn next_segment(&self, ino: u64, kind: FileKind) -> Result<(Segment, u64, bool)> {
        let mut waits: Option<WaitingLog<'_>> = None;
        let mut give_up: Option<Instant> = None;
        let mut look: Option<Instant> = None;
        self.finish_and_reset_zones_for_log().await?;
        loop {
            let seen = self.space.version();
            self.check_open()?;
            self.metadata.check()?;
            let found = {
                let mut state = self.state.lock();
                // Blocks of conventional zones are used again under the same rule as zones that are reset.
                let early = self.options.rules().resets_early();
                let durable = if early { u64::MAX } else { state.journal.durable };
                let allocator = &mut state.allocator;
                // Only ordered logs write to addresses that they choose.
                let in_place =
                    (kind == FileKind::Log).then(|| allocator.find_conventional_segment(ino, durable));
                let mut found = in_place.flatten().unwrap_or_else(|| allocator.find_segment(ino));
                let freed_by =
                    (kind == FileKind::Log).then(|| state.allocator.freed_in_conventional_zones()).flatten();
                let now = self.driver.now();
                let look_now = look.is_some_and(|at| now >= at);
                if matches!(found, SegmentSearchOutcome::TooMany)
                    && look_now
                    && state.release_idle_log(ino)?
                {
                    found = state.allocator.find_segment(ino);
                }
                match found {
                    SegmentSearchOutcome::Segment(segment, beside) => {
                        state.commit(Record::Segment { ino, segment })?;
                        let upto = state.journal.applied;
                        state.allocator.commit_soon = upto;
                        Ok((segment, upto, beside))
                    }
                    SegmentSearchOutcome::Starved | SegmentSearchOutcome::TooMany if freed_by.is_some() => {
                        Err(freed_by)
                    }
                    SegmentSearchOutcome::Starved if state.allocator.exhausted => {
                        return Err(state.allocator.no_space());
                    }
                    SegmentSearchOutcome::TooMany if give_up.is_some_and(|at| now >= at) => {
                        return Err(Error::new(ErrorKind::Busy, "extending a log")
                            .because("more logs are open than the device's open zones allow; close one"));
                    }
                    SegmentSearchOutcome::TooMany => {
                        waits.get_or_insert_with(|| WaitingLog::begin(self, &mut state));
                        if look.is_none() || look_now {
                            look = Some(self.notify_space_after(IDLE_LOG_SEARCH_INTERVAL));
                        }
                        give_up.get_or_insert_with(|| self.notify_space_after(WAIT_FOR_LOG_CLOSE));
                        Err(None)
                    }
                    SegmentSearchOutcome::Starved => {
                        state.allocator.want(IoClass::Log);
                        Err(None)
                    }
                    SegmentSearchOutcome::Wait => Err(None),
                }
            };
            self.hurry_cleaner();
            match found {
                Ok(found) => {
                    self.open_zone_for_log(&found.0).await;
                    return Ok(found);
                }
                // Blocks that this record freed are there once the record is durable.
                Err(Some(freed_by)) => {
                    self.metadata.commit_upto(freed_by).await?;
                    continue;
                }
                Err(None) => {}
            }
            self.log_waits.fetch_add(1, Ordering::Relaxed);
            self.space.changed_since(seen).await;
        }
    }

    /// Opens the zone of `segment`, in a mount that opens no zones ahead.
    async fn open_zone_for_log(&self, segment: &Segment) {
        if !self.options.open_ahead
            && segment.start == Blocks::ZERO
            && !self.device.geometry().is_conventional(segment.zone)
            && let Err(error) = self.device.purpose(Purpose::Log).zone(segment.zone, Action::Open).await
        {
            tracing::debug!(zone = %segment.zone, %error, "opening a log's zone failed; writing opens it");
        }
    }

    /// Notifies `space` after `time`. Returns the moment of the notification.
    fn notify_space_after(&self, time: Duration) -> Instant {
        let at = self.driver.now().after(time);
        let (space, driver) = (self.space.clone(), Arc::clone(&self.driver));
        self.driver.drive(Box::pin(async move {
            units::sleep_until(&*driver, at).await;
            space.notify();
        }));
        at
    }
}

/// Counts a log that waits for an open zone. While there is one, the task in `ahead` looks for full zones.
struct WaitingLog<'a>(&'a Shared);

impl<'a> WaitingLog<'a> {
    fn begin(shared: &'a Shared, state: &mut State) -> WaitingLog<'a> {
        state.allocator.waiting_logs += 1;
        WaitingLog(shared)
    }
}

impl Drop for WaitingLog<'_> {
    fn drop(&mut self) {
        self.0.state.lock().allocator.waiting_logs -= 1;
    }
}
