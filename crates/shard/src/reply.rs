//! A value that one task waits for and another one gives, once.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use parking_lot::Mutex;

/// Makes the two ends of a reply.
pub(crate) fn reply<T>() -> (Giver<T>, Awaited<T>) {
    let state = Arc::new(Mutex::new(State { value: None, waker: None, is_given_up: false }));
    (Giver(Arc::clone(&state)), Awaited(state))
}

struct State<T> {
    value: Option<T>,
    waker: Option<Waker>,
    is_given_up: bool,
}

/// The end that gives the value. Dropped without one, the other end gets nothing.
pub(crate) struct Giver<T>(Arc<Mutex<State<T>>>);

/// The end that waits for the value.
pub(crate) struct Awaited<T>(Arc<Mutex<State<T>>>);

impl<T> Giver<T> {
    pub(crate) fn give(self, value: T) {
        self.0.lock().value = Some(value);
    }
}

impl<T> Drop for Giver<T> {
    fn drop(&mut self) {
        let waker = {
            let mut state = self.0.lock();
            state.is_given_up = true;
            state.waker.take()
        };
        if let Some(waker) = waker {
            waker.wake();
        }
    }
}

impl<T> Future for Awaited<T> {
    type Output = Option<T>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<T>> {
        let mut state = self.0.lock();
        match state.value.take() {
            None if !state.is_given_up => {
                state.waker = Some(cx.waker().clone());
                Poll::Pending
            }
            value => Poll::Ready(value),
        }
    }
}
