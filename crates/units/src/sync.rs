//! Synchronisation without a runtime: a fair async lock and an async event.
//!
//! For waits and locks across an `.await`; short critical sections use `parking_lot`.

use std::collections::VecDeque;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use parking_lot::Mutex;

/// A fair (first come, first served) lock that may be held across an `.await`. It contains no data; the data it orders
/// is guarded by a `parking_lot` lock of its own.
#[derive(Debug, Default)]
pub struct Turnstile(Mutex<Queue>);

#[derive(Debug, Default)]
struct Queue {
    held: bool,
    next_ticket: u64,
    waiting: VecDeque<(u64, Option<Waker>)>,
}

/// The guard of a [`Turnstile`]. Dropping the guard passes the lock to the next waiter.
#[derive(Debug)]
#[must_use = "the turn ends when this is dropped"]
pub struct Turn<'a>(&'a Turnstile);

impl Turnstile {
    /// An unlocked turnstile.
    pub fn new() -> Turnstile {
        Turnstile::default()
    }

    /// Waits for the lock.
    pub fn acquire(&self) -> Acquire<'_> {
        Acquire { turnstile: self, ticket: None }
    }

    /// Takes the turnstile if it is free and has no waiters.
    pub fn try_acquire(&self) -> Option<Turn<'_>> {
        let mut queue = self.0.lock();
        if queue.held || !queue.waiting.is_empty() {
            return None;
        }
        queue.held = true;
        Some(Turn(self))
    }

    /// True if someone waits for the lock.
    pub fn has_waiters(&self) -> bool {
        !self.0.lock().waiting.is_empty()
    }

    fn wake_first(&self) {
        let waker = self.0.lock().waiting.front_mut().and_then(|(_, waker)| waker.take());
        if let Some(waker) = waker {
            waker.wake();
        }
    }
}

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        self.0.0.lock().held = false;
        self.0.wake_first();
    }
}

/// The future of [`Turnstile::acquire`].
#[derive(Debug)]
pub struct Acquire<'a> {
    turnstile: &'a Turnstile,
    ticket: Option<u64>,
}

impl<'a> Future for Acquire<'a> {
    type Output = Turn<'a>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Turn<'a>> {
        let mut queue = self.turnstile.0.lock();
        let ticket = *self.ticket.get_or_insert_with(|| {
            let ticket = queue.next_ticket;
            queue.next_ticket += 1;
            queue.waiting.push_back((ticket, None));
            ticket
        });
        let first = queue.waiting.front().is_some_and(|(t, _)| *t == ticket);
        if first && !queue.held {
            queue.waiting.pop_front();
            queue.held = true;
            drop(queue);
            self.ticket = None;
            return Poll::Ready(Turn(self.turnstile));
        }
        if let Some((_, waker)) = queue.waiting.iter_mut().find(|(t, _)| *t == ticket) {
            *waker = Some(cx.waker().clone());
        }
        Poll::Pending
    }
}

impl Drop for Acquire<'_> {
    fn drop(&mut self) {
        if let Some(ticket) = self.ticket {
            self.turnstile.0.lock().waiting.retain(|(t, _)| *t != ticket);
            // The dropped future may have received the wake-up: it is passed on to the next waiter.
            if !self.turnstile.0.lock().held {
                self.turnstile.wake_first();
            }
        }
    }
}

/// Yields once to all other runnable tasks.
pub async fn step_back() {
    let mut stepped = false;
    std::future::poll_fn(|context| {
        if std::mem::replace(&mut stepped, true) {
            return Poll::Ready(());
        }
        context.waker().wake_by_ref();
        Poll::Pending
    })
    .await;
}

/// A repeatable event that tasks can wait for.
///
/// To wait without a lost wake-up: read [`version`](Event::version), check the condition, and if it does not hold,
/// await [`changed_since`](Event::changed_since) with that version.
#[derive(Debug, Default, Clone)]
pub struct Event(Arc<Mutex<EventState>>);

#[derive(Debug, Default)]
struct EventState {
    version: u64,
    waiting: Vec<Waker>,
}

impl Event {
    /// An event that has not happened yet.
    pub fn new() -> Event {
        Event::default()
    }

    /// Signals the event and wakes all waiters.
    pub fn notify(&self) {
        let waiting = {
            let mut state = self.0.lock();
            state.version += 1;
            std::mem::take(&mut state.waiting)
        };
        for waker in waiting {
            waker.wake();
        }
    }

    /// Number of signals of the event so far.
    pub fn version(&self) -> u64 {
        self.0.lock().version
    }

    /// Waits for a signal of the event after `version` was read.
    pub async fn changed_since(&self, version: u64) {
        std::future::poll_fn(|cx| {
            let mut state = self.0.lock();
            if state.version != version {
                return Poll::Ready(());
            }
            if !state.waiting.iter().any(|w| w.will_wake(cx.waker())) {
                state.waiting.push(cx.waker().clone());
            }
            Poll::Pending
        })
        .await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Driver, Instant, VirtualDriver, block_on, sleep_until, spawn};
    use std::time::Duration;

    #[test]
    fn turns_come_in_the_order_of_asking() {
        let driver = VirtualDriver::new(1);
        let turnstile = Arc::new(Turnstile::new());
        let order = Arc::new(Mutex::new(Vec::new()));
        let tasks: Vec<_> = (0..8)
            .map(|n| {
                let (d, t, order) = (Arc::clone(&driver), Arc::clone(&turnstile), Arc::clone(&order));
                spawn(&*driver, "taker", async move {
                    let _turn = t.acquire().await;
                    sleep_until(&*d, d.now().after(Duration::from_micros(5))).await;
                    order.lock().push(n);
                })
            })
            .collect();
        block_on(&*driver, async {
            for task in tasks {
                task.await;
            }
        });
        assert_eq!(*order.lock(), (0..8).collect::<Vec<_>>());
        assert_eq!(driver.now(), Instant::ORIGIN.after(Duration::from_micros(40)));
    }

    #[test]
    fn a_waiter_that_gives_up_does_not_stop_the_queue() {
        let turnstile = Turnstile::new();
        let first = turnstile.try_acquire().expect("free");
        assert!(!turnstile.has_waiters());
        let mut second = Box::pin(turnstile.acquire());
        let mut third = Box::pin(turnstile.acquire());
        let mut cx = Context::from_waker(Waker::noop());
        assert!(second.as_mut().poll(&mut cx).is_pending() && third.as_mut().poll(&mut cx).is_pending());
        drop(second);
        assert!(turnstile.has_waiters());
        drop(first);
        assert!(third.as_mut().poll(&mut cx).is_ready() && !turnstile.has_waiters());
    }

    #[test]
    fn a_change_between_reading_and_waiting_is_not_missed() {
        let driver = VirtualDriver::new(1);
        let event = Event::new();
        let seen = event.version();
        event.notify();
        block_on(&*driver, event.changed_since(seen));
        assert_eq!(event.version(), seen + 1);
    }
}
