//! Waiting with an end.

use std::pin::pin;
use std::task::Poll;

use units::{Driver, Instant};

/// The value of `future`, unless `due` comes first.
pub(crate) async fn within<T>(
    driver: &dyn Driver,
    due: Instant,
    future: impl Future<Output = T>,
) -> Option<T> {
    let mut future = pin!(future);
    std::future::poll_fn(|cx| match future.as_mut().poll(cx) {
        Poll::Ready(value) => Poll::Ready(Some(value)),
        Poll::Pending if driver.now() >= due => Poll::Ready(None),
        Poll::Pending => {
            driver.wake_at(due, cx.waker());
            Poll::Pending
        }
    })
    .await
}
