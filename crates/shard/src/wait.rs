//! Waiting with an end.

use std::pin::pin;

use futures_util::future::{Either, select};
use units::{Driver, Instant, sleep_until};

/// The value of `future`, unless `due` comes first.
pub(crate) async fn within<T>(
    driver: &dyn Driver,
    due: Instant,
    future: impl Future<Output = T>,
) -> Option<T> {
    match select(pin!(future), pin!(sleep_until(driver, due))).await {
        Either::Left((value, _)) => Some(value),
        Either::Right(((), _)) => None,
    }
}
