//! A bound on the memory of replies to all clients together.
//!
//! Each connection may hold [`UNRESERVED_REPLY_BYTES`] bytes of replies. Beyond that a connection needs a [`Reservation`] from the
//! server's [`OutputBudget`], which grants reservations in the order of their requests.

use std::collections::VecDeque;
use std::sync::Arc;

use parking_lot::Mutex;
use tokio::sync::oneshot;

/// Bytes of replies that a connection holds without a reservation.
pub(crate) const UNRESERVED_REPLY_BYTES: usize = 1 << 20;

/// Bytes of replies after which a connection writes them to its client before it runs another command. Replies to
/// values of up to `UNRESERVED_REPLY_BYTES - FLUSH_REPLY_BYTES` bytes never need a reservation.
pub(crate) const FLUSH_REPLY_BYTES: usize = 256 << 10;

/// The bytes that all clients' replies may take together beyond the allowances.
#[derive(Debug)]
pub(crate) struct OutputBudget(Mutex<BudgetState>);

#[derive(Debug)]
struct BudgetState {
    /// Bytes of the budget that are free; negative after replies of writes, which are counted when they are made.
    free: i64,
    waiting: VecDeque<WaitingReservation>,
}

#[derive(Debug)]
struct WaitingReservation {
    bytes: i64,
    granted: oneshot::Sender<Reservation>,
}

/// Bytes taken from an output budget; dropping the reservation gives them back.
#[derive(Debug)]
pub(crate) struct Reservation {
    budget: Arc<OutputBudget>,
    bytes: i64,
}

impl OutputBudget {
    /// An output budget of `total` bytes.
    pub fn new(total: u64) -> Arc<OutputBudget> {
        let free = i64::try_from(total).unwrap_or(i64::MAX);
        Arc::new(OutputBudget(Mutex::new(BudgetState { free, waiting: VecDeque::new() })))
    }

    /// Whether the budget has no free byte, or an earlier reservation waits.
    pub fn is_exhausted(&self) -> bool {
        let state = self.0.lock();
        state.free <= 0 || !state.waiting.is_empty()
    }

    /// Waits for `bytes` of the budget, at most the budget's total.
    pub async fn reserve(self: &Arc<Self>, bytes: usize) -> Reservation {
        let bytes = to_signed(bytes);
        let waiting = {
            let mut state = self.0.lock();
            if state.waiting.is_empty() && state.free >= bytes {
                state.free -= bytes;
                return Reservation { budget: Arc::clone(self), bytes };
            }
            let (granted, waiting) = oneshot::channel();
            state.waiting.push_back(WaitingReservation { bytes, granted });
            waiting
        };
        waiting.await.expect("a budget in use grants each reservation")
    }

    /// Takes `bytes` of the budget at once, though they may not be free, for the reply of a write, which cannot be run
    /// again.
    pub fn overdraw(self: &Arc<Self>, bytes: usize) -> Reservation {
        let bytes = to_signed(bytes);
        self.0.lock().free -= bytes;
        Reservation { budget: Arc::clone(self), bytes }
    }

    fn give_back(self: &Arc<Self>, bytes: i64) {
        let mut grants = Vec::new();
        let mut state = self.0.lock();
        state.free += bytes;
        while let Some(next) = state.waiting.front()
            && (next.granted.is_closed() || state.free >= next.bytes)
            && let Some(next) = state.waiting.pop_front()
        {
            if !next.granted.is_closed() {
                state.free -= next.bytes;
                grants.push(next);
            }
        }
        drop(state);
        for WaitingReservation { bytes, granted } in grants {
            // If the connection has ended, its reservation is dropped, which gives the bytes back.
            let _ended = granted.send(Reservation { budget: Arc::clone(self), bytes });
        }
    }
}

impl Reservation {
    /// Gives back all bytes of the reservation but `bytes`.
    pub fn shrink_to(&mut self, bytes: usize) {
        let over = self.bytes - to_signed(bytes);
        if over > 0 {
            self.bytes -= over;
            self.budget.give_back(over);
        }
    }
}

impl Drop for Reservation {
    fn drop(&mut self) {
        self.budget.give_back(self.bytes);
    }
}

fn to_signed(bytes: usize) -> i64 {
    i64::try_from(bytes).unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests {
    use std::future::Future;
    use std::pin::pin;
    use std::task::{Context, Poll, Waker};

    use super::*;

    fn poll<T>(future: std::pin::Pin<&mut impl Future<Output = T>>) -> Poll<T> {
        future.poll(&mut Context::from_waker(Waker::noop()))
    }

    #[test]
    fn reservations_are_granted_in_their_order_and_given_back_when_dropped() {
        let budget = OutputBudget::new(10);
        let Poll::Ready(mut first) = poll(pin!(budget.reserve(8))) else { panic!("free") };
        let mut large = pin!(budget.reserve(9));
        let mut small = pin!(budget.reserve(1));
        assert!(poll(large.as_mut()).is_pending());
        assert!(poll(small.as_mut()).is_pending(), "a small reservation does not overtake a large one");
        assert!(budget.is_exhausted());
        first.shrink_to(1);
        let Poll::Ready(large) = poll(large.as_mut()) else { panic!("9 bytes are free") };
        assert!(poll(small.as_mut()).is_pending());
        drop(large);
        assert!(poll(small.as_mut()).is_ready());
        drop(first);
        assert!(!budget.is_exhausted());
        assert_eq!(budget.0.lock().free, 10);
    }

    #[test]
    fn a_reservation_whose_waiter_is_gone_holds_nothing() {
        let budget = OutputBudget::new(10);
        let over = budget.overdraw(12);
        {
            let mut gone = pin!(budget.reserve(5));
            assert!(poll(gone.as_mut()).is_pending());
        }
        let mut next = pin!(budget.reserve(10));
        assert!(poll(next.as_mut()).is_pending());
        drop(over);
        assert!(poll(next.as_mut()).is_ready());
        assert_eq!(budget.0.lock().free, 10);
    }
}
