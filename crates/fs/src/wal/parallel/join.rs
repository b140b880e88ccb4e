//! Which records go out together, and which alone: what `auto` chooses.
//!
//! ```text
//!   nobody else about -----------------------------> its own entry at once, no copy, at the pointer if that is faster
//!   others in flight, or there a moment ago --> batch --(leader: let the others come)--> one entry, a ticket for each
//!                                                 ^                                        |
//!                                                 +---- as many in flight as pay ----------+
//! ```
//!
//! Records that were acknowledged together come back together: before a batch goes, its leader lets everybody else who can
//! run go first, once. So writers that follow each other make one entry of all, and each waits for one operation, not for
//! its own and the one before it as in a group whose leader leaves at once. There is one operation in flight, which is a
//! write at the pointer where that is faster than an append, until [`Window`] finds that more give more bytes a
//! second: then the writers are dealt out to so many entries, in the end each to its own.
//!
//! To look for that costs: those of two entries that are to be one again wait for each other. So it is looked for where
//! there is something to gain, a joint entry taking longer than a record alone can, and so rarely that fewer than one record
//! in a thousand pays; and it is over as soon as the shorter entries take longer than the one did.

use std::collections::VecDeque;
use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use parking_lot::Mutex;
use units::sync::{Event, step_back};
use units::{BoxFuture, Instant};

use crate::error::{Error, ErrorKind, Result};
use crate::wal::latencies::Latencies;
use crate::wal::parallel::inner::Inner;
use crate::wal::parallel::payload::{Cutting, Joined, NUMBER, payload_len};
use crate::wal::parallel::submit::Body;
use crate::wal::window::Window;

/// The most operations in flight that are told apart.
const MOST: usize = 128;
/// Bytes of payload of the longest joint entry, in whole parts; a record that is longer is alone.
const LONGEST_JOINT: usize = 1 << 20;
/// What of a landing's crowd goes into their mean.
const SHARE: f64 = 0.125;
/// A mean so many times larger or smaller than when the window began is another load.
const OTHER: f64 = 2.0;
/// Records before the first look for a larger window, for each in the crowd, as a part of the records that may be open (1,024
/// of 4,096); twice as many before each further one. So many operations are measured in it, too.
const LOOK_AFTER: usize = 4;
/// An entry that takes less than so many times what a shorter one can has nothing to gain.
const GAIN: f64 = 1.1;
/// Entries of a look that take so many times what those before it took, though they are shorter, wait for one another. Each is
/// a debt, of which each entry pays off one; a look with more debts than this is over.
const WORSE: f64 = 1.25;
const DEBT: u32 = 16;
const MOST_DEBTS: u32 = 40;
/// Sizes are told apart by their power of two.
const SIZES: usize = 32;

/// Who goes, and who waits.
#[derive(Debug)]
pub(super) struct Joiner {
    state: Mutex<State>,
    /// The most records of an entry: so many tickets are there.
    most: u32,
}

/// Records, in flight or waiting.
#[derive(Clone, Copy, Debug, Default)]
struct Load {
    records: usize,
    /// Of payload.
    bytes: usize,
}

#[derive(Debug)]
struct State {
    /// Operations in flight, and what they carry.
    flying: usize,
    carried: Load,
    /// A write at the pointer is in flight: nothing goes beside it.
    exclusive: bool,
    waiting: VecDeque<Arc<Batch>>,
    held: Load,
    /// All there was when an operation ended last, its own records included.
    crowd: Load,
    /// The mean number of records at such a time, and what it was when the window began.
    mean: f64,
    began_with: f64,
    window: Window,
    look: Look,
    /// The window looks for its size; otherwise one operation is in flight.
    looking: bool,
    /// Records since it ended to look, and how many there are to be first, for each in the crowd.
    since: usize,
    look_after: f64,
    look_first: f64,
    /// The shortest time of an entry by its size, and the mean of the last ones.
    least: [f64; SIZES],
    takes: f64,
    latencies: Latencies,
}

/// What entries take while more of them are in flight than before.
#[derive(Debug, Default)]
struct Look {
    limit: usize,
    /// What they took before, in seconds.
    before: f64,
    debts: u32,
}

impl Look {
    /// Whether an entry that took `took` with a window of `limit` shows that they only wait for one another. `mean` is what
    /// the last ones took.
    fn is_worse(&mut self, limit: usize, took: f64, mean: f64) -> bool {
        if limit != self.limit {
            let before = if limit > self.limit.max(1) { mean } else { f64::INFINITY };
            *self = Look { limit, before, ..Look::default() };
        }
        self.debts = self.debts.saturating_sub(1) + if took > self.before * WORSE { DEBT } else { 0 };
        self.debts > MOST_DEBTS
    }
}

/// Records that wait to go out as one entry.
#[derive(Debug)]
struct Batch {
    /// `None` when it has gone.
    records: Mutex<Option<Joined>>,
    /// The leader is to look whether it may go.
    turn: Event,
    /// The first one's ticket, or why there is none.
    result: Mutex<Option<Result<u64>>>,
    done: Event,
}

fn load(records: &Joined) -> Load {
    Load { records: records.count() as usize, bytes: records.len() }
}

/// What becomes of a record.
enum Way {
    Alone(Slot),
    /// Its batch, and its place in it.
    Follows(Arc<Batch>, u32),
    Leads(Arc<Batch>),
}

impl Joiner {
    pub(super) fn new(open: usize) -> Joiner {
        let look_first = open.div_ceil(LOOK_AFTER) as f64;
        let state = State {
            flying: 0,
            carried: Load::default(),
            exclusive: false,
            waiting: VecDeque::new(),
            held: Load::default(),
            crowd: Load::default(),
            mean: 1.0,
            began_with: 1.0,
            window: Window::from_one(MOST, open.div_ceil(LOOK_AFTER)),
            look: Look::default(),
            looking: false,
            since: 0,
            look_after: look_first,
            look_first,
            least: [f64::INFINITY; SIZES],
            takes: 0.0,
            latencies: Latencies::default(),
        };
        Joiner { state: Mutex::new(state), most: u32::try_from(open.div_ceil(2)).unwrap_or(u32::MAX).max(1) }
    }
}

impl State {
    fn may_go(&self) -> bool {
        !self.exclusive && self.flying < self.window.limit()
    }

    /// Whether whoever was there lately can all go alone.
    fn has_room_for_all(&self) -> bool {
        self.crowd.records <= self.window.limit()
    }

    /// Bytes that a batch takes before the next one begins: the crowd is dealt out to as many entries as it needs, or as may
    /// be in flight, in equal parts, so that none of them waits twice.
    fn share(&self, room: usize) -> usize {
        let entries = self.crowd.bytes.div_ceil(room.max(1)).max(self.window.limit());
        if entries <= 1 { room } else { self.crowd.bytes.div_ceil(entries) }
    }

    /// Notes an operation that goes now, with `load`. One that has the zone to itself, for nobody else comes meanwhile or may
    /// go beside it, is a write at the pointer where that is faster.
    fn go(&mut self, load: Load, cutting: &Cutting) -> Flight {
        let alone = self.flying == 0
            && (self.window.limit() == 1 || (self.waiting.is_empty() && self.crowd.records <= load.records));
        let single = alone && load.bytes <= cutting.room();
        let blocks = usize::try_from(cutting.blocks(load.bytes)).unwrap_or(usize::MAX);
        let write = single && self.latencies.writes(blocks);
        self.flying += 1;
        self.carried.records += load.records;
        self.carried.bytes += load.bytes;
        self.exclusive = write;
        Flight { load, blocks, sent: Instant::ORIGIN, single, write, landed: false }
    }

    fn new_window(&self) -> Window {
        Window::from_one(MOST, self.look_first as usize)
    }

    /// Whether shorter entries take less time than those that there are.
    fn could_gain(&self, bytes: usize) -> bool {
        let shorter = self.least.iter().take(size(bytes)).copied().fold(f64::INFINITY, f64::min);
        shorter.is_finite() && self.takes > shorter * GAIN
    }

    /// What an entry that landed says of how many should be in flight.
    fn learn(&mut self, flight: &Flight, now: Instant) {
        let took = now.since(flight.sent);
        self.latencies.took(flight.blocks, flight.write, flight.single, took);
        if let Some(least) = self.least.get_mut(size(flight.load.bytes)) {
            *least = least.min(took.as_secs_f64());
        }
        let worse = self.look.is_worse(self.window.limit(), took.as_secs_f64(), self.takes);
        self.takes += (took.as_secs_f64() - self.takes) * SHARE;
        if self.looking {
            // All that there is counts as full: what the window tries is fewer in flight than records.
            let full = self.flying >= self.window.limit().min(self.flying + self.waiting.len());
            self.window.landed(now, flight.load.bytes as u64, full);
            if worse {
                self.window.give_up();
            }
            if self.window.rests_at_one() {
                (self.looking, self.since, self.look_after) = (false, 0, self.look_after * 2.0);
            }
        } else {
            self.since += flight.load.records;
            let due = self.since as f64 > self.look_after * self.mean.max(1.0);
            if due && self.mean > 1.0 + SHARE && self.could_gain(flight.load.bytes) {
                (self.looking, self.window) = (true, self.new_window());
            }
        }
        if self.mean > self.began_with * OTHER || self.mean * OTHER < self.began_with {
            self.began_with = self.mean;
            self.window = self.new_window();
            (self.looking, self.since, self.look_after) = (false, 0, self.look_first);
        }
    }

    /// A batch that waits for its turn from now on.
    fn wait(&mut self, joined: Joined) -> Arc<Batch> {
        let load = load(&joined);
        self.held.records += load.records;
        self.held.bytes += load.bytes;
        let batch = Arc::new(Batch {
            records: Mutex::new(Some(joined)),
            turn: Event::new(),
            result: Mutex::default(),
            done: Event::new(),
        });
        self.waiting.push_back(Arc::clone(&batch));
        batch
    }

    /// An operation is over.
    fn over(&mut self, flight: &Flight, now: Instant) {
        self.crowd = Load {
            records: self.carried.records + self.held.records,
            bytes: self.carried.bytes + self.held.bytes,
        };
        self.mean += (self.crowd.records as f64 - self.mean) * SHARE;
        if flight.landed {
            self.learn(flight, now);
        }
        self.flying -= 1;
        self.carried.records -= flight.load.records;
        self.carried.bytes -= flight.load.bytes;
        self.exclusive = false;
    }

    /// The batch that goes next, if one may.
    fn next(&self) -> Option<Arc<Batch>> {
        if self.may_go() { self.waiting.front().cloned() } else { None }
    }
}

impl Inner {
    /// Appends a record alone or with others, whatever serves better; gives its ticket. It is what `writers` have, put together
    /// by their owner.
    pub(super) async fn append_auto(self: &Arc<Inner>, record: &[u8], writers: usize) -> Result<u64> {
        self.check_usable()?;
        let len = payload_len(std::iter::once(record.len()));
        if writers > 1 {
            self.spread_out();
        }
        // Before it is copied.
        self.check_length(len)?;
        match self.way(record, len, writers) {
            Way::Alone(slot) => self.append(Body::Record(record), Some(slot)).await.0,
            Way::Follows(batch, place) => batch.wait().await.map(|first| first + u64::from(place)),
            Way::Leads(batch) => {
                let (log, mine) = (Arc::clone(self), Arc::clone(&batch));
                Leads { log: self, rest: Some(Box::pin(async move { log.lead(&mine).await })) }.await;
                batch.wait().await
            }
        }
    }

    /// Whether a record would go to the device now.
    pub(super) fn goes_at_once(&self) -> bool {
        let state = self.joiner.state.lock();
        state.waiting.is_empty() && state.may_go()
    }

    fn way(self: &Arc<Inner>, record: &[u8], len: usize, writers: usize) -> Way {
        let (room, block_size) = (self.joint_room(), self.cutting.block_size);
        let mut state = self.joiner.state.lock();
        // Those whom their owner has put together wait for nobody else.
        if state.waiting.is_empty() && state.may_go() && (writers > 1 || state.has_room_for_all()) {
            let flight = state.go(Load { records: writers, bytes: len }, &self.cutting);
            return Way::Alone(Slot { log: Arc::clone(self), flight });
        }
        let batch_of = |expected| {
            let mut joined = Joined::new(expected, block_size);
            joined.push(record, block_size);
            joined
        };
        if len > room {
            // It shares its entry with nobody, and to copy it takes long: the others go on meanwhile.
            drop(state);
            let joined = batch_of(len);
            return Way::Leads(self.joiner.state.lock().wait(joined));
        }
        let share = state.share(room);
        if let Some(batch) = state.waiting.back().cloned()
            && let Some(joined) = &mut *batch.records.lock()
            && joined.count() < self.joiner.most
            && joined.len() < share
            && joined.len() + len - NUMBER <= room
        {
            state.held.records += 1;
            state.held.bytes += len - NUMBER;
            let place = joined.push(record, block_size);
            return Way::Follows(Arc::clone(&batch), place);
        }
        let joined = batch_of(share.min(room).max(len));
        Way::Leads(state.wait(joined))
    }

    /// Bytes of payload that a joint entry may have.
    fn joint_room(&self) -> usize {
        let part = self.cutting.room();
        (LONGEST_JOINT / part).max(1) * part
    }

    /// Waits for the batch's turn, sends it, and tells everybody in it.
    async fn lead(self: &Arc<Inner>, batch: &Arc<Batch>) {
        let mut leading = Leading { log: self, batch, told: false };
        let (records, slot) = loop {
            let seen = batch.turn.version();
            if self.is_next(batch) {
                step_back().await;
                if let Some(going) = self.take_off(batch) {
                    break going;
                }
            } else {
                batch.turn.changed_since(seen).await;
            }
        };
        let (result, slot) = self.append(Body::Joined(records), Some(slot)).await;
        // Those who were served come back first: the next batch is theirs, too.
        leading.tell(result);
        drop(slot);
    }

    /// Takes a batch that nobody leads any more out of those that wait, if it is among them.
    fn take_out(&self, batch: &Arc<Batch>) {
        let next = {
            let mut state = self.joiner.state.lock();
            state.waiting.retain(|waiting| !Arc::ptr_eq(waiting, batch));
            if let Some(records) = batch.records.lock().take() {
                let load = load(&records);
                state.held.records -= load.records;
                state.held.bytes -= load.bytes;
            }
            state.next()
        };
        if let Some(next) = next {
            next.turn.notify();
        }
    }

    fn is_next(&self, batch: &Arc<Batch>) -> bool {
        self.joiner.state.lock().next().is_some_and(|next| Arc::ptr_eq(&next, batch))
    }

    /// Closes the batch and gives what is in it, if it still is its turn.
    fn take_off(self: &Arc<Inner>, batch: &Arc<Batch>) -> Option<(Joined, Slot)> {
        let mut state = self.joiner.state.lock();
        if !state.next().is_some_and(|next| Arc::ptr_eq(&next, batch)) {
            return None;
        }
        let records = batch.records.lock().take()?;
        state.waiting.pop_front();
        let load = load(&records);
        if load.records > 1 {
            self.spread_out();
        }
        state.held.records -= load.records;
        state.held.bytes -= load.bytes;
        let flight = state.go(load, &self.cutting);
        let next = state.next();
        drop(state);
        if let Some(next) = next {
            next.turn.notify();
        }
        Some((records, Slot { log: Arc::clone(self), flight }))
    }
}

impl Batch {
    async fn wait(&self) -> Result<u64> {
        loop {
            let seen = self.done.version();
            if let Some(result) = self.result.lock().clone() {
                return result;
            }
            self.done.changed_since(seen).await;
        }
    }
}

/// Those who wait for a batch hear what became of it, whatever happens to who leads it.
struct Leading<'a> {
    log: &'a Arc<Inner>,
    batch: &'a Arc<Batch>,
    told: bool,
}

impl Leading<'_> {
    fn tell(&mut self, result: Result<u64>) {
        self.told = true;
        *self.batch.result.lock() = Some(result);
        self.batch.done.notify();
    }
}

impl Drop for Leading<'_> {
    /// It panicked: nobody here knows what became of the batch.
    fn drop(&mut self) {
        if self.told {
            return;
        }
        let why = "the task that wrote the records of several panicked: close the log and open it again, which decides";
        let error = Error::new(ErrorKind::Poisoned, "appending to a parallel log").because(why);
        let error = self.log.poison(error);
        self.log.take_out(self.batch);
        self.tell(Err(error));
    }
}

/// Leading a batch. Dropped before its end, it goes on by itself: others wait for it.
struct Leads<'a> {
    log: &'a Arc<Inner>,
    rest: Option<BoxFuture>,
}

impl Future for Leads<'_> {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        // One that panics is gone then: it cannot be driven to an end.
        let Some(mut rest) = self.rest.take() else { return Poll::Ready(()) };
        let poll = rest.as_mut().poll(cx);
        if poll.is_pending() {
            self.rest = Some(rest);
        }
        poll
    }
}

impl Drop for Leads<'_> {
    fn drop(&mut self) {
        if let Some(rest) = self.rest.take() {
            self.log.driver().drive(rest);
        }
    }
}

/// Sizes are told apart by their power of two.
fn size(bytes: usize) -> usize {
    (usize::BITS - bytes.leading_zeros()) as usize
}

/// An operation of the joiner.
#[derive(Clone, Copy, Debug)]
struct Flight {
    load: Load,
    /// Of its only part, where it has one.
    blocks: usize,
    sent: Instant,
    /// It had the zone to itself, and what it carries was all there was to send.
    single: bool,
    write: bool,
    landed: bool,
}

/// An operation's place among those in flight; when it is given back, others go.
pub(super) struct Slot {
    log: Arc<Inner>,
    flight: Flight,
}

impl Slot {
    /// Whether nothing goes beside it, so that it may be a write at the pointer.
    pub(super) fn is_exclusive(&self) -> bool {
        self.flight.write
    }

    /// It goes to the drive: as a write at the pointer, or not.
    pub(super) fn sent(&mut self, write: bool) {
        self.flight.sent = self.log.driver().now();
        self.flight.write = write;
    }

    /// The drive has acknowledged it.
    pub(super) fn landed(&mut self) {
        self.flight.landed = true;
    }
}

impl Drop for Slot {
    fn drop(&mut self) {
        let now = if self.flight.landed { self.log.driver().now() } else { Instant::ORIGIN };
        let next = {
            let mut state = self.log.joiner.state.lock();
            state.over(&self.flight, now);
            state.next()
        };
        if let Some(next) = next {
            next.turn.notify();
        }
    }
}

impl fmt::Debug for Slot {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "slot of {:?}", self.flight)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Entries until a look at two in flight is over, each of which takes what `took` says; they took 1 before.
    fn over(took: impl Fn(u32) -> f64) -> Option<u32> {
        let mut look = Look::default();
        assert!((0..100).all(|_| !look.is_worse(1, 9.0, 1.0)), "nothing is looked for");
        (0..2000).find(|entry| look.is_worse(2, took(*entry), 1.0))
    }

    #[test]
    fn a_look_is_over_when_entries_often_take_longer_and_not_for_a_few() {
        assert_eq!(over(|_| 1.2), None);
        assert_eq!(over(|entry| if entry % 20 == 0 { 5.0 } else { 0.7 }), None);
        assert!(
            over(|entry| if entry > 500 && entry % 4 == 0 { 1.5 } else { 0.7 }).is_some_and(|at| at < 520)
        );
        // Fewer in flight are no look.
        let mut look = Look { limit: 2, ..Look::default() };
        assert!((0..100).all(|_| !look.is_worse(1, 9.0, 1.0)));
    }
}
