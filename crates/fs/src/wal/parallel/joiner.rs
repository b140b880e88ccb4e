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
use crate::wal::parallel::payload::{COUNT_BYTES, Joined, PartSizes};
use crate::wal::window::Window;

/// The most operations of a log in flight.
const MAX_IN_FLIGHT: usize = 128;
/// Bytes of payload of the longest entry of joined records, in whole parts. A longer record has an entry of
/// its own.
const MAX_JOINED_BYTES: usize = 1 << 20;
/// The weight of a new value in the joiner's running means.
const NEW_VALUE_WEIGHT: f64 = 0.125;
/// If the mean number of recent records changes by this factor, the load has changed and the window starts
/// again.
const LOAD_CHANGE_FACTOR: f64 = 2.0;
/// The number of records before the first trial of a larger window, for each recent record: this part of the
/// records that may be open (1,024 of 4,096); twice as many before each further trial. A trial measures as
/// many operations.
const RECORDS_BEFORE_TRIAL_DIVISOR: usize = 4;
/// A trial of a larger window is worthwhile if entries take this many times as long as shorter ones.
const MIN_TRIAL_GAIN: f64 = 1.1;
/// An entry during a trial of a larger window that takes this many times the mean before the trial costs
/// `SLOW_ENTRY_PENALTY` points; every entry takes off one point. A trial with more than `MAX_PENALTY` points has failed:
/// its entries wait for one another.
const SLOW_ENTRY_FACTOR: f64 = 1.25;
const SLOW_ENTRY_PENALTY: u32 = 16;
const MAX_PENALTY: u32 = 40;
/// Number of size classes of entries: one for each power of two of bytes.
const SIZE_CLASSES: usize = 32;

/// Decides which records join one entry, and which entry is written next.
#[derive(Debug)]
pub(super) struct Joiner {
    state: Mutex<JoinerState>,
    driver: Arc<dyn Driver>,
    sizes: PartSizes,
    /// The most records in an entry.
    most: u32,
}

/// A number of records.
#[derive(Clone, Copy, Debug, Default)]
struct RecordLoad {
    records: usize,
    /// Bytes of payload.
    bytes: usize,
}

impl RecordLoad {
    fn of(records: &Joined) -> RecordLoad {
        RecordLoad { records: records.count() as usize, bytes: records.len() }
    }

    fn add(&mut self, other: RecordLoad) {
        self.records += other.records;
        self.bytes += other.bytes;
    }

    fn subtract(&mut self, other: RecordLoad) {
        self.records -= other.records;
        self.bytes -= other.bytes;
    }
}

#[derive(Debug)]
struct JoinerState {
    /// Number of operations in flight, and the records that they carry.
    in_flight: usize,
    carried: RecordLoad,
    /// True while a write at the pointer is in flight: no other operation may begin.
    exclusive: bool,
    waiting: VecDeque<Arc<Batch>>,
    held: RecordLoad,
    /// All records in flight or waiting when the last operation ended, that operation's own included.
    recent: RecordLoad,
    /// The running mean of `recent.records`, and its value when the window was last started.
    mean: f64,
    mean_at_begin: f64,
    window: Window,
    trial: WindowTrial,
    /// True during a trial of a larger window; otherwise one operation is in flight.
    trying: bool,
    /// Number of records since the last trial of a larger window, and how many there must be before the next
    /// one, for each recent record.
    since: usize,
    trial_after: f64,
    first_trial_after: f64,
    /// The shortest time of an entry, by its size class, and the running mean of all entries, in seconds.
    shortest: [f64; SIZE_CLASSES],
    mean_time: f64,
    latencies: Latencies,
}

/// A trial of a larger window, judged by the times of entries.
#[derive(Debug, Default)]
struct WindowTrial {
    limit: usize,
    /// The mean time of an entry before the trial, in seconds.
    before: f64,
    penalty: u32,
}

impl WindowTrial {
    /// True if the trial shows that entries only wait for one another. `took`: the time of the entry that
    /// ended last, with a window of `limit`. `mean`: the running mean of entries' times.
    fn has_failed(&mut self, limit: usize, took: f64, mean: f64) -> bool {
        if limit != self.limit {
            let before = if limit > self.limit.max(1) { mean } else { f64::INFINITY };
            *self = WindowTrial { limit, before, ..WindowTrial::default() };
        }
        self.penalty = self.penalty.saturating_sub(1)
            + if took > self.before * SLOW_ENTRY_FACTOR { SLOW_ENTRY_PENALTY } else { 0 };
        self.penalty > MAX_PENALTY
    }
}

/// A batch: records that wait to be written as one entry.
#[derive(Debug)]
pub(super) struct Batch {
    /// The batch's records; `None` once the batch is being written.
    records: Mutex<Option<Joined>>,
    /// Tells the batch's leader to check whether the batch may be written.
    pub(super) turn: Event,
    /// The ticket of the batch's first record, or the error of all its records.
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

/// How the joiner has a record written.
pub(super) enum RecordWay {
    /// The record is an entry of its own, submitted now.
    Alone(OperationSlot),
    /// The record is in a batch that another writer leads, at this position.
    Follows(Arc<Batch>, u32),
    /// The record is in a batch that its own writer leads.
    Leads(Arc<Batch>),
}

impl JoinerState {
    fn can_send(&self) -> bool {
        !self.exclusive && self.in_flight < self.window.limit()
    }

    /// True if every recent record fits in the window as an entry of its own.
    fn window_fits_all(&self) -> bool {
        self.recent.records <= self.window.limit()
    }

    /// Bytes that a batch takes before the next batch begins: the recent records are divided equally among as
    /// many entries as they need, or as may be in flight, so that no record waits for two operations.
    fn batch_bytes(&self, room: usize) -> usize {
        let entries = self.recent.bytes.div_ceil(room.max(1)).max(self.window.limit());
        if entries <= 1 { room } else { self.recent.bytes.div_ceil(entries) }
    }

    /// Notes an operation that begins now, with `load`. If no other operation can run beside it, it is a
    /// write at the pointer where a write is faster.
    fn send(&mut self, load: RecordLoad, sizes: &PartSizes) -> Operation {
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

    /// True if entries shorter than `bytes` take less time than entries take now, so that a larger window
    /// could gain something.
    fn larger_window_could_gain(&self, bytes: usize) -> bool {
        let shorter = self.shortest.iter().take(size_class(bytes)).copied().fold(f64::INFINITY, f64::min);
        shorter.is_finite() && self.mean_time > shorter * MIN_TRIAL_GAIN
    }

    /// Adjusts the window of operations in flight after an acknowledged entry.
    fn learn(&mut self, operation: &Operation, now: Instant) {
        let took = now.since(operation.sent);
        self.latencies.took(operation.blocks, operation.write, operation.single, took);
        if let Some(shortest) = self.shortest.get_mut(size_class(operation.load.bytes)) {
            *shortest = shortest.min(took.as_secs_f64());
        }
        let failed = self.trial.has_failed(self.window.limit(), took.as_secs_f64(), self.mean_time);
        self.mean_time += (took.as_secs_f64() - self.mean_time) * NEW_VALUE_WEIGHT;
        if self.trying {
            // The window counts as full also if every operation and every waiting batch is in flight.
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
            if due
                && self.mean > 1.0 + NEW_VALUE_WEIGHT
                && self.larger_window_could_gain(operation.load.bytes)
            {
                (self.trying, self.window) = (true, self.new_window());
            }
        }
        if self.mean > self.mean_at_begin * LOAD_CHANGE_FACTOR
            || self.mean * LOAD_CHANGE_FACTOR < self.mean_at_begin
        {
            self.mean_at_begin = self.mean;
            self.window = self.new_window();
            (self.trying, self.since, self.trial_after) = (false, 0, self.first_trial_after);
        }
    }

    /// Adds a batch to the waiting ones.
    fn wait(&mut self, joined: Joined) -> Arc<Batch> {
        self.held.add(RecordLoad::of(&joined));
        let batch = Arc::new(Batch {
            records: Mutex::new(Some(joined)),
            turn: Event::new(),
            result: Mutex::default(),
            done: Event::new(),
        });
        self.waiting.push_back(Arc::clone(&batch));
        batch
    }

    /// Removes an operation that has ended from those in flight.
    fn ended(&mut self, operation: &Operation, now: Instant) {
        self.recent = self.carried;
        self.recent.add(self.held);
        self.mean += (self.recent.records as f64 - self.mean) * NEW_VALUE_WEIGHT;
        if operation.acknowledged {
            self.learn(operation, now);
        }
        self.in_flight -= 1;
        self.carried.subtract(operation.load);
        self.exclusive = false;
    }

    /// The batch to be written next, if one may be now.
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
    /// A joiner without records. `open`: the number of records that may be in flight at a time.
    pub(super) fn new(open: usize, sizes: PartSizes, driver: Arc<dyn Driver>) -> Joiner {
        let first_trial_after = open.div_ceil(RECORDS_BEFORE_TRIAL_DIVISOR) as f64;
        let state = JoinerState {
            in_flight: 0,
            carried: RecordLoad::default(),
            exclusive: false,
            waiting: VecDeque::new(),
            held: RecordLoad::default(),
            recent: RecordLoad::default(),
            mean: 1.0,
            mean_at_begin: 1.0,
            window: Window::from_one(MAX_IN_FLIGHT, open.div_ceil(RECORDS_BEFORE_TRIAL_DIVISOR)),
            trial: WindowTrial::default(),
            trying: false,
            since: 0,
            trial_after: first_trial_after,
            first_trial_after,
            shortest: [f64::INFINITY; SIZE_CLASSES],
            mean_time: 0.0,
            latencies: Latencies::default(),
        };
        let most = u32::try_from(open.div_ceil(2)).unwrap_or(u32::MAX).max(1);
        Joiner { state: Mutex::new(state), driver, sizes, most }
    }

    /// True if a record would be submitted to the device now.
    pub(super) fn goes_at_once(&self) -> bool {
        let state = self.state.lock();
        state.waiting.is_empty() && state.can_send()
    }

    /// Decides how a record is written. `len`: bytes of its payload. `writers`: how many callers' records
    /// `record` combines; if more than one, the record waits for no others.
    pub(super) fn way(self: &Arc<Joiner>, record: &[u8], len: usize, writers: usize) -> RecordWay {
        let (room, block_size) = (self.joined_entry_bytes(), self.sizes.block_size);
        let mut state = self.state.lock();
        if state.waiting.is_empty() && state.can_send() && (writers > 1 || state.window_fits_all()) {
            let operation = state.send(RecordLoad { records: writers, bytes: len }, &self.sizes);
            return RecordWay::Alone(self.slot(operation));
        }
        let batch_of = |expected| {
            let mut joined = Joined::new(expected, block_size);
            joined.push(record, block_size);
            joined
        };
        if len > room {
            // A record longer than an entry of joined records shares its entry with no other. The copy takes
            // long, so the joiner's lock is released before it.
            drop(state);
            let joined = batch_of(len);
            return RecordWay::Leads(self.state.lock().wait(joined));
        }
        let share = state.batch_bytes(room);
        if let Some(batch) = state.waiting.back().cloned()
            && let Some(joined) = &mut *batch.records.lock()
            && joined.count() < self.most
            && joined.len() < share
            && joined.len() + len - COUNT_BYTES <= room
        {
            state.held.add(RecordLoad { records: 1, bytes: len - COUNT_BYTES });
            let place = joined.push(record, block_size);
            return RecordWay::Follows(Arc::clone(&batch), place);
        }
        let joined = batch_of(share.min(room).max(len));
        RecordWay::Leads(state.wait(joined))
    }

    fn slot(self: &Arc<Joiner>, operation: Operation) -> OperationSlot {
        OperationSlot { joiner: Arc::clone(self), operation }
    }

    /// Bytes of payload that an entry of joined records may have.
    fn joined_entry_bytes(&self) -> usize {
        let part = self.sizes.room();
        (MAX_JOINED_BYTES / part).max(1) * part
    }

    pub(super) fn is_next(&self, batch: &Arc<Batch>) -> bool {
        self.state.lock().is_next(batch)
    }

    /// Takes the records of a batch and a slot for them, if the batch still is the next one. Calls `joined`
    /// if there are several records.
    pub(super) fn take(
        self: &Arc<Joiner>,
        batch: &Arc<Batch>,
        joined: impl FnOnce(),
    ) -> Option<(Joined, OperationSlot)> {
        let mut state = self.state.lock();
        if !state.is_next(batch) {
            return None;
        }
        let records = batch.records.lock().take()?;
        state.waiting.pop_front();
        let load = RecordLoad::of(&records);
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

    /// Removes a batch whose leader has panicked from the waiting ones.
    pub(super) fn remove(&self, batch: &Arc<Batch>) {
        let next = {
            let mut state = self.state.lock();
            state.waiting.retain(|waiting| !Arc::ptr_eq(waiting, batch));
            if let Some(records) = batch.records.lock().take() {
                state.held.subtract(RecordLoad::of(&records));
            }
            state.next()
        };
        wake(next);
    }
}

/// The size class of an entry: the power of two of its bytes.
fn size_class(bytes: usize) -> usize {
    (usize::BITS - bytes.leading_zeros()) as usize
}

/// An operation.
#[derive(Clone, Copy, Debug)]
struct Operation {
    load: RecordLoad,
    /// Blocks of the entry's part, if the entry has one part.
    blocks: usize,
    sent: Instant,
    /// True if no other operation was in flight, and no other record was waiting, when this one began.
    single: bool,
    /// True if the operation is a write at the pointer.
    write: bool,
    acknowledged: bool,
}

/// An operation's place among those in flight. Dropping the slot lets the next batch be written.
pub(super) struct OperationSlot {
    joiner: Arc<Joiner>,
    operation: Operation,
}

impl OperationSlot {
    /// True if no other operation runs beside this one, so that it may be a write at the pointer.
    pub(super) fn is_exclusive(&self) -> bool {
        self.operation.write
    }

    /// Notes that the operation is submitted: as a write at the pointer, or as an append.
    pub(super) fn sent(&mut self, write: bool) {
        self.operation.sent = self.joiner.driver.now();
        self.operation.write = write;
    }

    /// Notes that the device has acknowledged the operation.
    pub(super) fn acknowledged(&mut self) {
        self.operation.acknowledged = true;
    }
}

impl Drop for OperationSlot {
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

impl fmt::Debug for OperationSlot {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "slot of {:?}", self.operation)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The number of the entry at which a trial with two entries in flight fails, if entry `n` takes
    /// `took(n)` and the mean before the trial was 1.
    fn entry_at_which_a_trial_fails(took: impl Fn(u32) -> f64) -> Option<u32> {
        let mut trial = WindowTrial::default();
        assert!((0..100).all(|_| !trial.has_failed(1, 9.0, 1.0)), "one in flight is no trial");
        (0..2000).find(|entry| trial.has_failed(2, took(*entry), 1.0))
    }

    #[test]
    fn a_trial_fails_when_entries_often_take_longer_and_not_for_a_few() {
        assert_eq!(entry_at_which_a_trial_fails(|_| 1.2), None);
        assert_eq!(entry_at_which_a_trial_fails(|entry| if entry % 20 == 0 { 5.0 } else { 0.7 }), None);
        let late = |entry| if entry > 500 && entry % 4 == 0 { 1.5 } else { 0.7 };
        assert!(entry_at_which_a_trial_fails(late).is_some_and(|at| at < 520));
        // A window smaller than the one on trial begins no trial.
        let mut trial = WindowTrial { limit: 2, ..WindowTrial::default() };
        assert!((0..100).all(|_| !trial.has_failed(1, 9.0, 1.0)));
    }
}
