//! One scheduler for a drive: bulk operations go at a rate that keeps the drive's queue short for a log.
//!
//! ```text
//!   log, metadata, read --------------------------------------------> drive
//!   flush           --+
//!   compaction        |   held by zone, while a log is      rate
//!   reclaim           +-> written: pieces of 256 KiB  --> (Controller) --> drive
//!   rebuild, scrub  --+   by shares (HeldQueue)
//! ```
//!
//! - Operations of the classes `log`, `metadata` and `read`, flushes and reports are never held, nor are zone commands with nothing before them. Without operations of `log` or `read`,
//!   nothing is held or cut into pieces: metadata commits alone, which follow the bulk's own files, slow no bulk.
//! - Operations of one zone reach the drive in the order of their submission, whatever their classes: an operation that may not be held takes those
//!   before it along. A read that is not held takes along what may change the blocks that it reads, and what is before that.
//! - Whoever waits for an operation of another caller raises it ([`ZonedDevice::raise`]): a read of a page that a compaction is reading, a log's write that an array acknowledges
//!   after the writes below it on other drives.
//! - Flushes have a least rate that follows the log's (`flush_rate`), and go in most rests too.
//! - Zones whose bulk does not slow the log are not held, where the controller finds such zones (`search`): on drives whose zones lie on a die each.
//! - A held write is not acknowledged, so that a flush need not cover it.
//! - A long write goes in pieces that end with the device's optimal writes; it succeeds if all pieces do. Appends and reads go whole.
//!
//! Priority orders what waits for the drive; only admission keeps short what waits within it. "Mitigating Write-ahead Log Contention on Shared Storage Devices" (section 4.2) gives the log's
//! writer a higher priority in the kernel's queue, which says nothing to the drive's own.

mod controller;
mod flush_rate;
mod log_loss;
mod queue;
mod rules;
mod sample;
mod search;
#[cfg(test)]
mod tests;

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::fmt;
use std::ops::Range;
use std::sync::{Arc, Weak};
use std::time::Duration;

use parking_lot::Mutex;
use units::sleep_until;

use crate::checks::locate_transfer;
pub use crate::share::controller::{Controller, Goal};
use crate::share::flush_rate::FlushRate;
use crate::share::queue::HeldQueue;
use crate::share::rules::Rules;
#[cfg(feature = "broken-rules")]
pub use crate::share::rules::ShareBrokenRule;
pub use crate::share::sample::{Beside, Kind, Sample};
use crate::{
    Buf, ClassStatus, Completer, Done, Driver, Durability, Geometry, Instant, Io, IoClass, Lba, Op,
    ShareStatus, ZoneId, ZonedDevice,
};

/// Bytes of a piece of a held write, at least.
const PIECE_BYTES: u64 = 256 << 10;

/// After the end of a bulk operation, the log does not count as alone for this long: the drive's buffer may hold the operation's data.
pub const SETTLES_AFTER: Duration = Duration::from_micros(2500);

/// The time from one look at the controller to the next, where an operation of the log may end a wait and its end is unknown.
const RECHECK_INTERVAL: Duration = Duration::from_millis(1);

/// A drive with a scheduler before it. See [`share`](self).
pub struct Share(Arc<Scheduler>);

struct Scheduler {
    device: Arc<dyn ZonedDevice>,
    /// How many times the times of an emulated drive are stretched, else 1. The scheduler's times are the drive's: those of the driver by this number.
    dilation: u64,
    /// Bytes of a piece.
    piece: u64,
    rules: Rules,
    state: Mutex<State>,
}

struct State {
    controller: Controller,
    flush_rate: FlushRate,
    held: HeldQueue<Held>,
    classes: [ClassStatus; IoClass::ALL.len()],
    /// Operations in flight whose end is known: on emulated drives. In the order of their ends.
    ending: BinaryHeap<Reverse<Ending>>,
    log_in_flight: usize,
    bulk_in_flight: usize,
    last_bulk_end: Option<Instant>,
    /// True while a task waits to let held operations go.
    has_task: bool,
}

struct Held {
    /// A held operation goes also if nobody has the device any more.
    scheduler: Arc<Scheduler>,
    op: Op,
    class: IoClass,
    since: Instant,
    completer: Completer,
}

/// The end of an operation in flight, as far as the controller wants to know.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
struct Ending {
    at: Instant,
    submitted: Instant,
    watched: Watched,
}

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
enum Watched {
    Log { kind: Kind, bytes: u64, bulk: Beside },
    Bulk,
}

/// Operations that went to the drive under the lock, whose results are passed on without it.
type Submitted = Vec<(Completer, Io)>;

impl Share {
    /// A scheduler before `device`. Operations that go to the drive past it make its measurements wrong: a drive has one scheduler.
    ///
    /// # Panics
    /// If a rate of `goal` is below one byte a second, or the target below 1; if the device has a scheduler, as one has that a URL names.
    pub fn over(device: Arc<dyn ZonedDevice>, goal: Goal) -> Arc<Share> {
        Share::with_rules(device, goal, 1, Rules::default())
    }

    /// A scheduler before an emulated drive whose times are stretched `dilation` times: the scheduler's times are stretched too.
    pub(crate) fn over_dilated(device: Arc<dyn ZonedDevice>, goal: Goal, dilation: u32) -> Arc<Share> {
        Share::with_rules(device, goal, dilation, Rules::default())
    }

    /// A scheduler that breaks a safety rule on purpose, for tests of the crash explorer.
    ///
    /// # Panics
    /// As [`Share::over`].
    #[cfg(feature = "broken-rules")]
    pub fn with_broken_rule(
        device: Arc<dyn ZonedDevice>,
        goal: Goal,
        broken: Option<ShareBrokenRule>,
    ) -> Arc<Share> {
        Share::with_rules(device, goal, 1, Rules { broken })
    }

    fn with_rules(device: Arc<dyn ZonedDevice>, goal: Goal, dilation: u32, rules: Rules) -> Arc<Share> {
        assert!(goal.is_valid(), "{goal:?}");
        assert!(device.share_status().is_none(), "{} has a scheduler", device.geometry().name);
        let dilation = u64::from(dilation.max(1));
        let geometry = device.geometry();
        let optimal = geometry.optimal_write.bytes(geometry.block_size).0.max(1);
        let state = State {
            controller: Controller::new(goal, Instant(device.driver().now().0 / dilation)),
            flush_rate: FlushRate::default(),
            held: HeldQueue::new(goal.least_rate),
            classes: Default::default(),
            ending: BinaryHeap::new(),
            log_in_flight: 0,
            bulk_in_flight: 0,
            last_bulk_end: None,
            has_task: false,
        };
        let piece = PIECE_BYTES.next_multiple_of(optimal);
        Arc::new(Share(Arc::new(Scheduler { device, dilation, piece, rules, state: Mutex::new(state) })))
    }
}

impl ZonedDevice for Share {
    fn geometry(&self) -> &Geometry {
        self.0.device.geometry()
    }

    fn submit(&self, op: Op) -> Io {
        self.0.submit(None, op)
    }

    fn submit_as(&self, class: IoClass, op: Op) -> Io {
        self.0.submit(Some(class), op)
    }

    fn raise(&self, class: IoClass, blocks: Range<Lba>) {
        self.0.raise(class, &blocks);
    }

    fn driver(&self) -> &Arc<dyn Driver> {
        self.0.device.driver()
    }

    fn details(&self) -> Vec<(&'static str, String)> {
        self.0.device.details()
    }

    fn share_status(&self) -> Option<ShareStatus> {
        let state = self.0.state.lock();
        Some(ShareStatus { classes: state.classes, held: state.held.len() })
    }
}

impl Scheduler {
    /// The present time of the drive.
    fn now(&self) -> Instant {
        self.drive_time(self.device.driver().now())
    }

    fn drive_time(&self, at: Instant) -> Instant {
        Instant(at.0 / self.dilation)
    }

    fn driver_time(&self, at: Instant) -> Instant {
        Instant(at.0.saturating_mul(self.dilation))
    }

    fn submit(self: &Arc<Self>, given: Option<IoClass>, op: Op) -> Io {
        let class = given.unwrap_or_default();
        let now = self.now();
        let mut gone = Submitted::new();
        let (io, starts_task) = {
            let mut state = self.state.lock();
            state.count_ended(now);
            let bytes = bytes_of(&op);
            state.count(class, bytes);
            let io = if class.is_bulk() {
                self.submit_bulk(&mut state, now, class, op, &mut gone)
            } else {
                self.let_go_before(&mut state, now, &op, &mut gone);
                self.submit_unheld(&mut state, now, given, op, bytes)
            };
            let starts_task = !state.held.is_empty() && !state.has_task;
            state.has_task |= starts_task;
            (io, starts_task)
        };
        self.pass_on(gone);
        if starts_task {
            self.device
                .driver()
                .drive(Box::pin(let_held_go(Arc::downgrade(self), Arc::clone(self.device.driver()))));
        }
        io
    }

    /// Lets the held operations go that come before `op`, which is not held.
    fn let_go_before(&self, state: &mut State, now: Instant, op: &Op, gone: &mut Submitted) {
        if state.held.is_empty() || !self.rules.keeps_zone_order() {
            return;
        }
        let geometry = self.device.geometry();
        let all = |_: &Op| true;
        match op {
            Op::Read { at, into } => {
                let end = at.0 + into.len() as u64 / u64::from(geometry.block_size);
                let may_change = |held: &Op| match held {
                    Op::Read { .. } => false,
                    Op::Write { at, .. } => at.0 < end,
                    _ => true,
                };
                if let Some(zone) = geometry.zone_of(*at) {
                    self.let_go_to(state, now, zone, may_change, gone);
                }
            }
            Op::Write { at, .. } => {
                if let Some(zone) = geometry.zone_of(*at) {
                    self.let_go_to(state, now, zone, all, gone);
                }
            }
            Op::Append { zone, .. } | Op::Zone { zone, .. } => self.let_go_to(state, now, *zone, all, gone),
            Op::Report { zones } => {
                for zone in zones.start..zones.end.min(geometry.zones) {
                    self.let_go_to(state, now, ZoneId(zone), all, gone);
                }
            }
            Op::Flush => {}
        }
    }

    fn submit_unheld(
        self: &Arc<Self>,
        state: &mut State,
        now: Instant,
        class: Option<IoClass>,
        op: Op,
        bytes: u64,
    ) -> Io {
        let kind = match &op {
            _ if class == Some(IoClass::Metadata) => return self.pass(class, op),
            Op::Read { .. } => Kind::Read,
            Op::Write { .. } | Op::Append { .. } => Kind::Write,
            Op::Flush => Kind::Flush,
            // Zone commands and reports are rare, and their times depend on the zone.
            Op::Zone { .. } | Op::Report { .. } => return self.pass(class, op),
        };
        let bulk = match state.last_bulk_end {
            _ if state.bulk_in_flight > 0 => Beside::InFlight,
            Some(end) if now.since(end) < SETTLES_AFTER => Beside::Settling,
            _ => Beside::Nothing,
        };
        let io = self.pass(class, op);
        // The device answered at once, without a drive: it refused the operation, had nothing to do, or takes no time.
        if io.known_end(self.driver_time(now)).is_some_and(|end| self.drive_time(end) <= now) {
            return io;
        }
        if kind == Kind::Write {
            state.flush_rate.log_writes(now, bytes);
        }
        state.controller.log_submitted(now);
        state.log_in_flight += 1;
        self.watch(state, now, io, Watched::Log { kind, bytes, bulk })
    }

    fn submit_bulk(
        self: &Arc<Self>,
        state: &mut State,
        now: Instant,
        class: IoClass,
        op: Op,
        gone: &mut Submitted,
    ) -> Io {
        let geometry = self.device.geometry();
        let zone = match &op {
            Op::Read { at, into } => {
                locate_transfer(geometry, "read", *at, into.len()).ok().map(|to| to.zone)
            }
            Op::Write { at, data, .. } => {
                // A write beyond the capacity is refused whole: no piece of it goes.
                let to = locate_transfer(geometry, "write", *at, data.len()).ok();
                to.filter(|to| to.offset + to.blocks <= geometry.zone_capacity.0).map(|to| to.zone)
            }
            Op::Append { zone, .. } | Op::Zone { zone, .. } => {
                Some(*zone).filter(|zone| zone.0 < geometry.zones)
            }
            Op::Flush | Op::Report { .. } => None,
        };
        let Some(zone) = zone else {
            // Never held, or refused by the device.
            self.let_go_before(state, now, &op, gone);
            return self.device.submit_as(class, op);
        };
        let is_behind = state.held.holds(zone);
        let passes =
            !state.controller.has_log(now) || matches!(op, Op::Zone { .. }) || state.controller.is_free(zone);
        if passes && !is_behind {
            return self.submit_to_drive(state, now, class, op);
        }
        let (driver, name) = (self.device.driver(), &self.device.geometry().name);
        let (completer, io) = Io::pair(driver, name);
        let entry = state.classes.get_mut(class as usize);
        if let Some(entry) = entry {
            entry.held += 1;
        }
        let hold = |op: Op, completer: Completer, held: &mut HeldQueue<Held>| {
            held.push(
                now,
                class,
                zone,
                bytes_of(&op),
                Held { scheduler: Arc::clone(self), op, class, since: now, completer },
            );
        };
        match op {
            Op::Write { at, data, how } if data.len() as u64 > self.piece => {
                let pieces = self.pieces(at, &data);
                let last = pieces.len().saturating_sub(1);
                let mut ends = Vec::with_capacity(pieces.len());
                for (index, (at, data)) in pieces.into_iter().enumerate() {
                    let (completer, end) = Io::pair(driver, name);
                    // A durable write covers the blocks of the zone below it.
                    let how = if index == last { how } else { Durability::Cached };
                    hold(Op::Write { at, data, how }, completer, &mut state.held);
                    ends.push(end.typed::<()>());
                }
                driver.drive(Box::pin(async move {
                    let mut result = Ok(Done::Unit);
                    for end in crate::join_all(ends).await {
                        result = result.and(end.map(|()| Done::Unit));
                    }
                    completer.complete(result);
                }));
            }
            op => hold(op, completer, &mut state.held),
        }
        io
    }

    /// The pieces of a long write, with their addresses. Each but the last ends with an optimal write.
    fn pieces(&self, at: Lba, data: &Buf) -> Vec<(Lba, Buf)> {
        let geometry = self.device.geometry();
        let block = u64::from(geometry.block_size);
        let start = geometry.zone_of(at).map_or(at, |zone| geometry.start(zone));
        let mut pieces = Vec::new();
        let mut from = 0_u64;
        let len = data.len() as u64;
        while from < len {
            let offset = at.since(start).bytes(geometry.block_size).0 + from;
            let to = (from + (offset / self.piece + 1) * self.piece - offset).min(len);
            let (first, last) = (from as usize, to as usize);
            pieces.push((Lba(at.0 + from / block), data.slice(first..last)));
            from = to;
        }
        pieces
    }

    /// Hands an operation to the device, with its class if the caller gave one.
    fn pass(&self, class: Option<IoClass>, op: Op) -> Io {
        match class {
            Some(class) => self.device.submit_as(class, op),
            None => self.device.submit(op),
        }
    }

    /// Submits a bulk operation.
    fn submit_to_drive(self: &Arc<Self>, state: &mut State, now: Instant, class: IoClass, op: Op) -> Io {
        let io = self.device.submit_as(class, op);
        state.bulk_in_flight += 1;
        self.watch(state, now, io, Watched::Bulk)
    }

    /// Takes note of the operation's end when it comes.
    fn watch(self: &Arc<Self>, state: &mut State, submitted: Instant, mut io: Io, watched: Watched) -> Io {
        if let Some(at) = io.known_end(self.driver_time(submitted)) {
            state.ending.push(Reverse(Ending { at: self.drive_time(at), submitted, watched }));
            return io;
        }
        // A caller that waits for the operation may drop the device, and open the drive again, before `end` is called.
        let scheduler = Arc::downgrade(self);
        let end = move |at| {
            let Some(scheduler) = scheduler.upgrade() else { return };
            let at = scheduler.drive_time(at);
            let mut state = scheduler.state.lock();
            state.count_ended(at);
            state.ended(Ending { at, submitted, watched });
        };
        if io.when_ended(Box::new(end)).is_err() {
            state.ended(Ending { at: self.now(), submitted, watched });
        }
        io
    }

    /// Lets the operations of a zone go up to the last for which `waits_for` is true, because an operation that is not held waits for it.
    fn let_go_to(
        &self,
        state: &mut State,
        now: Instant,
        zone: ZoneId,
        waits_for: impl Fn(&Op) -> bool,
        gone: &mut Submitted,
    ) {
        let count = state.held_up_to(zone, waits_for);
        for (bytes, held) in state.held.take(now, zone, count) {
            state.bulk_goes(now, held.class, bytes);
            gone.push(release(state, now, held));
        }
    }

    /// Gives held operations on `blocks`, and those before them in their zone, the class of a caller who waits for them.
    fn raise(self: &Arc<Self>, class: IoClass, blocks: &Range<Lba>) {
        let geometry = self.device.geometry();
        let Some(zone) = geometry.zone_of(blocks.start) else { return };
        let mut gone = Submitted::new();
        {
            let mut state = self.state.lock();
            let is_on = |op: &Op| {
                let (at, bytes) = match op {
                    Op::Read { at, into } => (at.0, into.len()),
                    Op::Write { at, data, .. } => (at.0, data.len()),
                    // On any block of the zone.
                    Op::Append { .. } | Op::Zone { .. } => return true,
                    Op::Flush | Op::Report { .. } => return false,
                };
                at < blocks.end.0 && blocks.start.0 < at + bytes as u64 / u64::from(geometry.block_size)
            };
            let now = self.now();
            if class.is_bulk() {
                let count = state.held_up_to(zone, is_on);
                state.held.raise(now, zone, class, count);
            } else {
                self.let_go_to(&mut state, now, zone, is_on, &mut gone);
            }
        }
        self.pass_on(gone);
    }

    /// Lets go what may go now. The driver's time at which more may go; `None` if nothing is held.
    fn turn(self: &Arc<Self>) -> Option<Instant> {
        let mut gone = Submitted::new();
        let next = {
            let now = self.now();
            let mut state = self.state.lock();
            let state = &mut *state;
            state.count_ended(now);
            loop {
                if state.held.is_empty() {
                    state.has_task = false;
                    break None;
                }
                let begins_trial = state.controller.begin_trial(now, state.held.zones());
                if begins_trial || state.controller.has_free_zones() {
                    self.let_free_zones_go(state, now, &mut gone);
                }
                if state.held.is_empty() {
                    continue;
                }
                let mut at = state.controller.bulk_may_go_at(now);
                if at > now
                    && !state.controller.needs_rest()
                    && let Some(flush_at) = state.flush_rate.may_go_at()
                {
                    if flush_at <= now
                        && let Some((bytes, held)) = state.held.pop_of(IoClass::Flush, now)
                    {
                        state.bulk_of_zone_goes(now, IoClass::Flush, held.class, bytes);
                        gone.push(release(state, now, held));
                        continue;
                    }
                    // A flush may come until then.
                    at = at.min(flush_at.max(now.after(RECHECK_INTERVAL)));
                }
                if at > now {
                    // The log may be over before, or an operation of the log within the target.
                    let over = state.controller.log_is_over_at();
                    let ending =
                        || state.ending.peek().map_or(now.after(RECHECK_INTERVAL), |ending| ending.0.at);
                    let ending = state.controller.waits_for_log().then(ending);
                    let earlier = [over, ending].into_iter().flatten().filter(|at| *at > now).min();
                    break Some(earlier.map_or(at, |earlier| earlier.min(at)));
                }
                let Some((zone_class, bytes, held)) = state.held.pop(now) else { continue };
                state.bulk_of_zone_goes(now, zone_class, held.class, bytes);
                gone.push(release(state, now, held));
            }
        };
        self.pass_on(gone);
        next.map(|at| self.driver_time(at))
    }

    /// Lets the held operations of zones go that are not limited.
    fn let_free_zones_go(&self, state: &mut State, now: Instant, gone: &mut Submitted) {
        let free: Vec<ZoneId> = state.held.zones().filter(|zone| state.controller.is_free(*zone)).collect();
        for zone in free {
            for (_, held) in state.held.take(now, zone, usize::MAX) {
                gone.push(release(state, now, held));
            }
        }
    }

    fn pass_on(&self, submitted: Submitted) {
        for (completer, io) in submitted {
            self.device.driver().drive(Box::pin(async move { completer.complete(io.await) }));
        }
    }
}

/// Lets held operations go when they may, until none is held.
async fn let_held_go(scheduler: Weak<Scheduler>, driver: Arc<dyn Driver>) {
    while let Some(at) = scheduler.upgrade().and_then(|scheduler| scheduler.turn()) {
        sleep_until(&*driver, at).await;
    }
}

/// Submits an operation that was held.
fn release(state: &mut State, now: Instant, held: Held) -> (Completer, Io) {
    if let Some(entry) = state.classes.get_mut(held.class as usize) {
        let dilation = u32::try_from(held.scheduler.dilation).unwrap_or(u32::MAX);
        entry.held_for += now.since(held.since) * dilation;
    }
    (held.completer, held.scheduler.submit_to_drive(state, now, held.class, held.op))
}

impl State {
    /// A held operation goes.
    fn bulk_goes(&mut self, now: Instant, class: IoClass, bytes: u64) {
        self.controller.bulk_goes(now, bytes);
        if class == IoClass::Flush {
            self.flush_rate.flush_goes(now, bytes);
        }
    }

    /// A held operation of `class` goes, of a zone with `zone_class`. An operation of a lower class that a flush, or a caller of that class, waits for counts in the flushes' rate.
    fn bulk_of_zone_goes(&mut self, now: Instant, zone_class: IoClass, class: IoClass, bytes: u64) {
        self.bulk_goes(now, class, bytes);
        if zone_class == IoClass::Flush && class != IoClass::Flush {
            self.flush_rate.goes(now, bytes);
        }
    }

    /// The number of held operations of a zone up to the last for which `waits_for` is true.
    fn held_up_to(&self, zone: ZoneId, waits_for: impl Fn(&Op) -> bool) -> usize {
        let in_order = self.held.of(zone).zip(1..);
        in_order.filter(|(held, _)| waits_for(&held.op)).map(|(_, number)| number).last().unwrap_or(0)
    }

    fn count(&mut self, class: IoClass, bytes: u64) {
        if let Some(entry) = self.classes.get_mut(class as usize) {
            entry.operations += 1;
            entry.bytes += bytes;
        }
    }

    /// Takes note of the operations that ended by `now`, and of the log's that have not.
    fn count_ended(&mut self, now: Instant) {
        while let Some(Reverse(ending)) = self.ending.peek().copied()
            && ending.at <= now
        {
            self.ending.pop();
            self.ended(ending);
        }
        if self.log_in_flight > 0 {
            self.controller.log_in_flight(now);
        }
    }

    fn ended(&mut self, ending: Ending) {
        let Ending { at, submitted, watched } = ending;
        match watched {
            Watched::Log { kind, bytes, bulk } => {
                self.log_in_flight = self.log_in_flight.saturating_sub(1);
                let latency = at.since(submitted);
                if latency.is_zero() {
                    return;
                }
                self.controller.log_ended(at, &Sample { kind, bytes, submitted, latency, bulk });
            }
            Watched::Bulk => {
                self.bulk_in_flight = self.bulk_in_flight.saturating_sub(1);
                self.last_bulk_end = Some(at);
            }
        }
    }
}

fn bytes_of(op: &Op) -> u64 {
    match op {
        Op::Read { into, .. } => into.len() as u64,
        Op::Write { data, .. } | Op::Append { data, .. } => data.len() as u64,
        Op::Flush | Op::Zone { .. } | Op::Report { .. } => 0,
    }
}

impl fmt::Debug for Share {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Share({:?})", self.0.device)
    }
}
