//! Records that go out together, where the drive has no parallelism to spare.
//!
//! As long as operations do not queue on the drive, every record goes alone. Where they take much longer than they can, the
//! window of [`crate::log::Window`] takes over: it begins with one operation in flight and adds more as long as that gives
//! more bytes a second. A record beyond that waits, and what waits goes out as one entry, with a ticket for each, when an operation is over.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use units::Instant;
use units::sync::Event;

use super::inner::Inner;
use crate::Result;
use crate::log::Window;
use crate::log::entry::HEADER_SIZE;
use crate::log::parallel::NUMBER;

/// Operations that take so many times as long as they can, in the mean, queue.
const QUEUE: f64 = 1.5;
/// Operations that the mean is of; of fewer it says nothing.
const MEAN_OF: u32 = 32;
/// Sizes are told apart by their power of two.
const SIZES: usize = 32;
/// The most operations in flight that are told apart.
const MOST: usize = 128;

/// Who goes, and who waits.
#[derive(Debug)]
pub(super) struct Joiner(Mutex<State>);

#[derive(Debug)]
struct State {
    flying: usize,
    waiting: VecDeque<Arc<Waiter>>,
    window: Window,
    /// The shortest time of an operation, by size.
    least: [Option<f64>; SIZES],
    /// How many times longer operations take in the mean.
    stretch: f64,
    measured: u32,
    /// The window decides: operations queue, or did when it began to.
    limited: bool,
}

/// A record that waits.
#[derive(Debug)]
struct Waiter {
    record: Vec<u8>,
    result: Mutex<Option<Result<u64>>>,
    done: Event,
}

impl Joiner {
    pub(super) fn new() -> Joiner {
        Joiner(Mutex::new(State {
            flying: 0,
            waiting: VecDeque::new(),
            window: Window::from_one(MOST),
            least: [None; SIZES],
            stretch: 1.0,
            measured: 0,
            limited: false,
        }))
    }
}

impl State {
    fn may_go(&self) -> bool {
        !self.limited || self.flying < self.window.limit()
    }

    /// An operation with `bytes` of records is over. Others were in flight beside it, or waited: `among`.
    fn over(&mut self, begun: Instant, now: Instant, bytes: usize, among: usize) {
        let took = now.since(begun).max(Duration::from_nanos(1)).as_secs_f64();
        let size = (usize::BITS - bytes.leading_zeros()) as usize;
        if let Some(least) = self.least.get_mut(size) {
            let shortest = least.map_or(took, |least| least.min(took));
            *least = Some(shortest);
            self.measured = (self.measured + 1).min(MEAN_OF);
            self.stretch += (took / shortest - self.stretch) / f64::from(self.measured);
        }
        if !self.limited && self.measured >= MEAN_OF && self.stretch > QUEUE {
            self.limited = true;
            self.window = Window::from_one(MOST);
        }
        if self.limited {
            // All that there is counts as full: what the window tries is fewer in flight than records.
            let full = self.flying >= self.window.limit().min(among);
            self.window.landed(now, bytes as u64, full);
            if among <= 1 {
                (self.limited, self.stretch, self.measured) = (false, 1.0, 0);
            }
        }
    }

    /// What goes out next as one entry: as many as fit one append, or one that does not.
    fn group(&mut self, room: usize) -> Vec<Arc<Waiter>> {
        let (mut group, mut len) = (Vec::new(), NUMBER);
        while let Some(next) = self.waiting.front() {
            len += NUMBER + next.record.len();
            if len > room && !group.is_empty() {
                break;
            }
            group.extend(self.waiting.pop_front());
        }
        group
    }
}

impl Inner {
    /// Appends a record alone or with others, whatever serves better; gives its ticket.
    pub(super) async fn append_auto(self: &Arc<Inner>, record: &[u8]) -> Result<u64> {
        self.check_usable()?;
        let waiter = {
            let mut state = self.joiner.0.lock();
            if state.may_go() && state.waiting.is_empty() {
                state.flying += 1;
                None
            } else {
                let record = record.to_vec();
                let waiter = Arc::new(Waiter { record, result: Mutex::default(), done: Event::new() });
                state.waiting.push_back(Arc::clone(&waiter));
                Some(waiter)
            }
        };
        let Some(waiter) = waiter else {
            let mut flight = Flight { log: self, begun: self.driver().now(), bytes: 0 };
            let result = self.append(&[record]).await;
            flight.bytes = record.len();
            return result;
        };
        loop {
            let seen = waiter.done.version();
            if let Some(result) = waiter.result.lock().take() {
                return result;
            }
            waiter.done.changed_since(seen).await;
        }
    }

    /// Sends what waits, as far as may be.
    fn send_waiting(self: &Arc<Inner>) {
        loop {
            let group = {
                let mut state = self.joiner.0.lock();
                if state.waiting.is_empty() || !state.may_go() {
                    return;
                }
                state.flying += 1;
                let room = self.cutting.room() - HEADER_SIZE;
                state.group(room)
            };
            let log = Arc::clone(self);
            // Nobody's own: those who wait may be dropped.
            self.driver().drive(Box::pin(async move {
                let mut flight = Flight { log: &log, begun: log.driver().now(), bytes: 0 };
                let records: Vec<&[u8]> = group.iter().map(|waiter| waiter.record.as_slice()).collect();
                let bytes = records.iter().map(|r| r.len()).sum();
                let result = log.append(&records).await;
                for (waiter, number) in group.iter().zip(0..) {
                    *waiter.result.lock() = Some(result.clone().map(|first| first + number));
                    waiter.done.notify();
                }
                flight.bytes = bytes;
            }));
        }
    }
}

/// An operation in flight; when it is over, dropped or not, others go.
struct Flight<'a> {
    log: &'a Arc<Inner>,
    begun: Instant,
    /// Bytes of records that it acknowledged.
    bytes: usize,
}

impl Drop for Flight<'_> {
    fn drop(&mut self) {
        {
            let mut state = self.log.joiner.0.lock();
            let among = state.flying + state.waiting.len();
            state.over(self.begun, self.log.driver().now(), self.bytes, among);
            state.flying -= 1;
        }
        self.log.send_waiting();
    }
}
