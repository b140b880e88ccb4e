//! The host's clock: programs in the emulator run in real time.
#![expect(clippy::disallowed_methods, reason = "the harness waits for a program, not for a driver's clock")]

use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// The time now.
pub fn now() -> Instant {
    Instant::now()
}

/// Sleeps for this long.
pub fn sleep(time: Duration) {
    std::thread::sleep(time);
}

/// A random seed that differs from run to run.
pub fn seed() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(1, |time| time.as_secs())
}
