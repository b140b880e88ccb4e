//! Which records join one entry, and how many entries are in flight: the decisions of [`Batching::Auto`].
//!
//! ```text
//!   a record of a lone writer -------------------------> an entry of its own at once, without a copy
//!   a record while others are in flight, or were --> batch --(the leader lets others join)----> one entry
//!   until recently                                     ^                                          |
//!                                                      +---- up to the window's entries in flight +
//! ```
//!
//! Writers whose records were acknowledged together append again together: before a batch is submitted, its leader lets every
//! other runnable writer run once. So the records of such writers share one entry, and each waits for one operation. One
//! operation is in flight, a write at the pointer where a write is faster than an append, until the [`Window`] finds that
//! more operations give more bytes a second; then the writers are spread over as many entries.
//!
//! A trial of a larger window costs time: the writers of two entries that are joined again wait for each other. So a trial
//! begins only where it can gain something, which is where a joint entry takes longer than a short one, and so rarely that fewer
//! than one record in a thousand is affected. It ends as soon as the shorter entries take longer than the one did.
//!
//! [`Batching::Auto`]: crate::wal::parallel::options::Batching::Auto

use std::collections::VecDeque;
use std::fmt;
use std::sync::Arc;

use parking_lot::Mutex;
use units::sync::Event;
use units::{Driver, Instant};

use crate::error::Result;
use crate::wal::latencies::Latencies;
use crate::wal::parallel::payload::{Joined, NUMBER, PartSizes};
use crate::wal::window::Window;

/// The most operations in flight.
const MAX_IN_FLIGHT: usize = 128;
/// Bytes of payload of the longest joint entry, in whole parts. A longer record has an entry of its own.
const LONGEST_JOINT: usize = 1 << 20;
/// The weight of a new value in a running mean.
const SHARE: f64 = 0.125;
/// If the mean number of records changes by this factor, the load is another one and the window begins anew.
const OTHER_LOAD: f64 = 2.0;
/// Records before the first trial, for each recent record, as a part of the records that may be open (1,024 of 4,096); twice as
/// many before each further trial. A trial measures as many operations.
const TRIAL_AFTER: usize = 4;
/// A trial can gain something if entries take this many times what a shorter one takes.
const GAIN: f64 = 1.1;
/// In a trial, an entry that takes this many times the mean before the trial costs `PENALTY` points; every entry takes off one
/// point. A trial with more than `MAX_PENALTY` points has failed: its entries wait for one another.
const WORSE: f64 = 1.25;
const PENALTY: u32 = 16;
const MAX_PENALTY: u32 = 40;
/// Sizes are told apart by their power of two.
const SIZES: usize = 32;

/// Decides which records join, and which entry goes next.
#[derive(Debug)]
pub(super) struct Joiner {
    state: Mutex<State>,
    driver: Arc<dyn Driver>,
    sizes: PartSizes,
    /// The most records of an entry.
    most: u32,
}

/// A number of records.
#[derive(Clone, Copy, Debug, Default)]
struct Load {
    records: usize,
    /// Bytes of payload.
    bytes: usize,
}

impl Load {
    fn of(records: &Joined) -> Load {
        Load { records: records.count() as usize, bytes: records.len() }
    }

    fn add(&mut self, other: Load) {
        self.records += other.records;
        self.bytes += other.bytes;
    }

    fn subtract(&mut self, other: Load) {
        self.records -= other.records;
        self.bytes -= other.bytes;
    }
}

#[derive(Debug)]
struct State {
    /// Operations in flight, and their load.
    in_flight: usize,
    carried: Load,
    /// A write at the pointer is in flight: no other operation may go.
    exclusive: bool,
    waiting: VecDeque<Arc<Batch>>,
    held: Load,
    /// All records in flight or waiting when an operation ended last, its own included.
    recent: Load,
    /// The running mean of recent records, and its value when the window began.
    mean: f64,
    mean_at_begin: f64,
    window: Window,
    trial: Trial,
    /// A trial is under way; otherwise one operation is in flight.
    trying: bool,
    /// Records since the last trial, and how many there must be before the next one, for each recent record.
    since: usize,
    trial_after: f64,
    first_trial_after: f64,
    /// The shortest time of an entry, by its size, and the running mean of all entries, in seconds.
    shortest: [f64; SIZES],
    mean_time: f64,
    latencies: Latencies,
}

/// Times of entries while more of them are in flight than before.
#[derive(Debug, Default)]
struct Trial {
    limit: usize,
    /// The mean before the trial, in seconds.
    before: f64,
    penalty: u32,
}

impl Trial {
    /// Whether entries only wait for one another: one more took `took` with a window of `limit`. `mean` is the running mean.
    fn has_failed(&mut self, limit: usize, took: f64, mean: f64) -> bool {
        if limit != self.limit {
            let before = if limit > self.limit.max(1) { mean } else { f64::INFINITY };
            *self = Trial { limit, before, ..Trial::default() };
        }
        self.penalty = self.penalty.saturating_sub(1) + if took > self.before * WORSE { PENALTY } else { 0 };
        self.penalty > MAX_PENALTY
    }
}

/// Records that wait to be written as one entry.
#[derive(Debug)]
pub(super) struct Batch {
    /// `None` once the batch has gone.
    records: Mutex<Option<Joined>>,
    /// Tells the leader to check whether the batch may go.
    pub(super) turn: Event,
    /// The first record's ticket, or the error of all.
    result: Mutex<Option<Result<u64>>>,
    done: Event,
}

impl Batch {
    pub(super) async fn wait(&self) -> Result<u64> {
        loop {
            let seen = self.done.version();
            if let Some(result) = self.result.lock().clone() {
                return result;
            }
            self.done.changed_since(seen).await;
        }
    }

    pub(super) fn set(&self, result: Result<u64>) {
        *self.result.lock() = Some(result);
        self.done.notify();
    }
}

/// How a record is written.
pub(super) enum Way {
    /// As an entry of its own, now.
    Alone(Slot),
    /// In a batch that another writer leads, at this place.
    Follows(Arc<Batch>, u32),
    /// In a batch that its writer leads.
    Leads(Arc<Batch>),
}

impl State {
    fn can_send(&self) -> bool {
        !self.exclusive && self.in_flight < self.window.limit()
    }

    /// True if every recent record fits in the window as an entry of its own.
    fn window_fits_all(&self) -> bool {
        self.recent.records <= self.window.limit()
    }

    /// Bytes that a batch takes before the next one begins: the recent records are dealt out in equal shares to as many entries
    /// as they need, or as may be in flight, so that no record waits for two operations.
    fn share(&self, room: usize) -> usize {
        let entries = self.recent.bytes.div_ceil(room.max(1)).max(self.window.limit());
        if entries <= 1 { room } else { self.recent.bytes.div_ceil(entries) }
    }

    /// Notes an operation that goes now, with `load`. If no other operation can go beside it, it is a write at the pointer where
    /// that is faster.
    fn send(&mut self, load: Load, sizes: &PartSizes) -> Operation {
        let alone = self.in_flight == 0
            && (self.window.limit() == 1 || (self.waiting.is_empty() && self.recent.records <= load.records));
        let single = alone && load.bytes <= sizes.room();
        let blocks = usize::try_from(sizes.blocks(load.bytes)).unwrap_or(usize::MAX);
        let write = single && self.latencies.writes(blocks);
        self.in_flight += 1;
        self.carried.add(load);
        self.exclusive = write;
        Operation { load, blocks, sent: Instant::ORIGIN, single, write, acknowledged: false }
    }

    fn new_window(&self) -> Window {
        Window::from_one(MAX_IN_FLIGHT, self.first_trial_after as usize)
    }

    /// Whether entries shorter than `bytes` take less time than entries take now.
    fn could_gain(&self, bytes: usize) -> bool {
        let shorter = self.shortest.iter().take(size(bytes)).copied().fold(f64::INFINITY, f64::min);
        shorter.is_finite() && self.mean_time > shorter * GAIN
    }

    /// Adjusts the window after an acknowledged entry.
    fn learn(&mut self, operation: &Operation, now: Instant) {
        let took = now.since(operation.sent);
        self.latencies.took(operation.blocks, operation.write, operation.single, took);
        if let Some(shortest) = self.shortest.get_mut(size(operation.load.bytes)) {
            *shortest = shortest.min(took.as_secs_f64());
        }
        let failed = self.trial.has_failed(self.window.limit(), took.as_secs_f64(), self.mean_time);
        self.mean_time += (took.as_secs_f64() - self.mean_time) * SHARE;
        if self.trying {
            // The window counts as full with fewer operations if these are all that there are.
            let full = self.in_flight >= self.window.limit().min(self.in_flight + self.waiting.len());
            self.window.acknowledged(now, operation.load.bytes as u64, full);
            if failed {
                self.window.give_up();
            }
            if self.window.rests_at_one() {
                (self.trying, self.since, self.trial_after) = (false, 0, self.trial_after * 2.0);
            }
        } else {
            self.since += operation.load.records;
            let due = self.since as f64 > self.trial_after * self.mean.max(1.0);
            if due && self.mean > 1.0 + SHARE && self.could_gain(operation.load.bytes) {
                (self.trying, self.window) = (true, self.new_window());
            }
        }
        if self.mean > self.mean_at_begin * OTHER_LOAD || self.mean * OTHER_LOAD < self.mean_at_begin {
            self.mean_at_begin = self.mean;
            self.window = self.new_window();
            (self.trying, self.since, self.trial_after) = (false, 0, self.first_trial_after);
        }
    }

    /// Adds a batch to those that wait.
    fn wait(&mut self, joined: Joined) -> Arc<Batch> {
        self.held.add(Load::of(&joined));
        let batch = Arc::new(Batch {
            records: Mutex::new(Some(joined)),
            turn: Event::new(),
            result: Mutex::default(),
            done: Event::new(),
        });
        self.waiting.push_back(Arc::clone(&batch));
        batch
    }

    /// An operation has ended.
    fn ended(&mut self, operation: &Operation, now: Instant) {
        self.recent = self.carried;
        self.recent.add(self.held);
        self.mean += (self.recent.records as f64 - self.mean) * SHARE;
        if operation.acknowledged {
            self.learn(operation, now);
        }
        self.in_flight -= 1;
        self.carried.subtract(operation.load);
        self.exclusive = false;
    }

    /// The batch that goes next, if one may.
    fn next(&self) -> Option<Arc<Batch>> {
        if self.can_send() { self.waiting.front().cloned() } else { None }
    }

    fn is_next(&self, batch: &Arc<Batch>) -> bool {
        self.next().is_some_and(|next| Arc::ptr_eq(&next, batch))
    }
}

fn wake(next: Option<Arc<Batch>>) {
    if let Some(next) = next {
        next.turn.notify();
    }
}

impl Joiner {
    /// `open`: the records that may be in flight at a time.
    pub(super) fn new(open: usize, sizes: PartSizes, driver: Arc<dyn Driver>) -> Joiner {
        let first_trial_after = open.div_ceil(TRIAL_AFTER) as f64;
        let state = State {
            in_flight: 0,
            carried: Load::default(),
            exclusive: false,
            waiting: VecDeque::new(),
            held: Load::default(),
            recent: Load::default(),
            mean: 1.0,
            mean_at_begin: 1.0,
            window: Window::from_one(MAX_IN_FLIGHT, open.div_ceil(TRIAL_AFTER)),
            trial: Trial::default(),
            trying: false,
            since: 0,
            trial_after: first_trial_after,
            first_trial_after,
            shortest: [f64::INFINITY; SIZES],
            mean_time: 0.0,
            latencies: Latencies::default(),
        };
        let most = u32::try_from(open.div_ceil(2)).unwrap_or(u32::MAX).max(1);
        Joiner { state: Mutex::new(state), driver, sizes, most }
    }

    /// Whether a record would go to the device now.
    pub(super) fn goes_at_once(&self) -> bool {
        let state = self.state.lock();
        state.waiting.is_empty() && state.can_send()
    }

    /// Decides how a record is written. `len`: its payload. `writers`: how many callers' records their owner has put together in
    /// `record`; with more than one the record waits for no others.
    pub(super) fn way(self: &Arc<Joiner>, record: &[u8], len: usize, writers: usize) -> Way {
        let (room, block_size) = (self.joint_room(), self.sizes.block_size);
        let mut state = self.state.lock();
        if state.waiting.is_empty() && state.can_send() && (writers > 1 || state.window_fits_all()) {
            let operation = state.send(Load { records: writers, bytes: len }, &self.sizes);
            return Way::Alone(self.slot(operation));
        }
        let batch_of = |expected| {
            let mut joined = Joined::new(expected, block_size);
            joined.push(record, block_size);
            joined
        };
        if len > room {
            // The record shares its entry with no other, and the copy takes long: other writers go on meanwhile.
            drop(state);
            let joined = batch_of(len);
            return Way::Leads(self.state.lock().wait(joined));
        }
        let share = state.share(room);
        if let Some(batch) = state.waiting.back().cloned()
            && let Some(joined) = &mut *batch.records.lock()
            && joined.count() < self.most
            && joined.len() < share
            && joined.len() + len - NUMBER <= room
        {
            state.held.add(Load { records: 1, bytes: len - NUMBER });
            let place = joined.push(record, block_size);
            return Way::Follows(Arc::clone(&batch), place);
        }
        let joined = batch_of(share.min(room).max(len));
        Way::Leads(state.wait(joined))
    }

    fn slot(self: &Arc<Joiner>, operation: Operation) -> Slot {
        Slot { joiner: Arc::clone(self), operation }
    }

    /// Bytes of payload that a joint entry may have.
    fn joint_room(&self) -> usize {
        let part = self.sizes.room();
        (LONGEST_JOINT / part).max(1) * part
    }

    pub(super) fn is_next(&self, batch: &Arc<Batch>) -> bool {
        self.state.lock().is_next(batch)
    }

    /// Takes the records of a batch and a slot for them, if the batch still is the next one to go. Calls `joined` if there are
    /// several records.
    pub(super) fn take(
        self: &Arc<Joiner>,
        batch: &Arc<Batch>,
        joined: impl FnOnce(),
    ) -> Option<(Joined, Slot)> {
        let mut state = self.state.lock();
        if !state.is_next(batch) {
            return None;
        }
        let records = batch.records.lock().take()?;
        state.waiting.pop_front();
        let load = Load::of(&records);
        if load.records > 1 {
            joined();
        }
        state.held.subtract(load);
        let operation = state.send(load, &self.sizes);
        let next = state.next();
        drop(state);
        wake(next);
        Some((records, self.slot(operation)))
    }

    /// Removes a batch whose leader has panicked from those that wait.
    pub(super) fn remove(&self, batch: &Arc<Batch>) {
        let next = {
            let mut state = self.state.lock();
            state.waiting.retain(|waiting| !Arc::ptr_eq(waiting, batch));
            if let Some(records) = batch.records.lock().take() {
                state.held.subtract(Load::of(&records));
            }
            state.next()
        };
        wake(next);
    }
}

/// The power of two of a size.
fn size(bytes: usize) -> usize {
    (usize::BITS - bytes.leading_zeros()) as usize
}

/// An operation.
#[derive(Clone, Copy, Debug)]
struct Operation {
    load: Load,
    /// Blocks of its part, if it has one part.
    blocks: usize,
    sent: Instant,
    /// No other operation was in flight, and no other record was waiting.
    single: bool,
    /// It is a write at the pointer.
    write: bool,
    acknowledged: bool,
}

/// An operation's place among those in flight. Dropping it lets the next batch go.
pub(super) struct Slot {
    joiner: Arc<Joiner>,
    operation: Operation,
}

impl Slot {
    /// Whether no other operation goes beside this one, so that it may be a write at the pointer.
    pub(super) fn is_exclusive(&self) -> bool {
        self.operation.write
    }

    /// The operation is submitted: as a write at the pointer, or as an append.
    pub(super) fn sent(&mut self, write: bool) {
        self.operation.sent = self.joiner.driver.now();
        self.operation.write = write;
    }

    /// The device has acknowledged the operation.
    pub(super) fn acknowledged(&mut self) {
        self.operation.acknowledged = true;
    }
}

impl Drop for Slot {
    fn drop(&mut self) {
        let now = if self.operation.acknowledged { self.joiner.driver.now() } else { Instant::ORIGIN };
        let next = {
            let mut state = self.joiner.state.lock();
            state.ended(&self.operation, now);
            state.next()
        };
        wake(next);
    }
}

impl fmt::Debug for Slot {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "slot of {:?}", self.operation)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The entry at which a trial with two entries in flight fails, if entry `n` takes `took(n)` and the mean before was 1.
    fn fails_at(took: impl Fn(u32) -> f64) -> Option<u32> {
        let mut trial = Trial::default();
        assert!((0..100).all(|_| !trial.has_failed(1, 9.0, 1.0)), "one in flight is no trial");
        (0..2000).find(|entry| trial.has_failed(2, took(*entry), 1.0))
    }

    #[test]
    fn a_trial_fails_when_entries_often_take_longer_and_not_for_a_few() {
        assert_eq!(fails_at(|_| 1.2), None);
        assert_eq!(fails_at(|entry| if entry % 20 == 0 { 5.0 } else { 0.7 }), None);
        let late = |entry| if entry > 500 && entry % 4 == 0 { 1.5 } else { 0.7 };
        assert!(fails_at(late).is_some_and(|at| at < 520));
        // A smaller window is no trial.
        let mut trial = Trial { limit: 2, ..Trial::default() };
        assert!((0..100).all(|_| !trial.has_failed(1, 9.0, 1.0)));
    }
}
