//! Tasks with a result.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use parking_lot::Mutex;

use crate::Driver;

/// The handle of a background task: a future of the task's result. Dropping the handle does not stop the
/// task.
#[derive(Debug)]
pub struct Spawned<T>(Arc<Mutex<Outcome<T>>>);

#[derive(Debug)]
enum Outcome<T> {
    Running(Option<Waker>),
    Done(T),
    Taken,
}

/// Runs `future` as a background task of `driver`.
pub fn spawn<T, F>(driver: &dyn Driver, name: &'static str, future: F) -> Spawned<T>
where
    T: Send + 'static,
    F: Future<Output = T> + Send + 'static,
{
    let cell = Arc::new(Mutex::new(Outcome::Running(None)));
    let handle = Spawned(Arc::clone(&cell));
    driver.spawn(
        name,
        Box::pin(async move {
            let value = future.await;
            let before = std::mem::replace(&mut *cell.lock(), Outcome::Done(value));
            if let Outcome::Running(Some(waker)) = before {
                waker.wake();
            }
        }),
    );
    handle
}

impl<T> Future for Spawned<T> {
    type Output = T;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<T> {
        let mut cell = self.0.lock();
        match std::mem::replace(&mut *cell, Outcome::Taken) {
            Outcome::Done(value) => Poll::Ready(value),
            Outcome::Running(_) => {
                *cell = Outcome::Running(Some(cx.waker().clone()));
                Poll::Pending
            }
            Outcome::Taken => panic!("a task's result is taken once"),
        }
    }
}
