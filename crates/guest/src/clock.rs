//! The guest's clock.
#![expect(clippy::disallowed_methods, reason = "init waits for the kernel, not for a driver's clock")]

use std::time::{Duration, Instant};

use anyhow::{Result, bail};

/// Time limit for background work of the kernel, such as finding a drive or creating a device node.
const KERNEL_WORK_LIMIT: Duration = Duration::from_secs(30);

/// Polls a condition until it gives a value, or until the time limit.
pub fn wait_for<T>(what: &str, mut ask: impl FnMut() -> Option<T>) -> Result<T> {
    let start = Instant::now();
    loop {
        if let Some(answer) = ask() {
            return Ok(answer);
        }
        if start.elapsed() > KERNEL_WORK_LIMIT {
            bail!("there is no {what} after {} s", KERNEL_WORK_LIMIT.as_secs());
        }
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// The time now.
pub fn now() -> Instant {
    Instant::now()
}

/// Sleeps.
pub fn sleep(time: Duration) {
    std::thread::sleep(time);
}
