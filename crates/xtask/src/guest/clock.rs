//! The machine's clock: what runs in the emulator runs in real time.
#![expect(clippy::disallowed_methods, reason = "the harness waits for a program, not for a driver's clock")]

use std::time::{Duration, Instant};

/// The time now.
pub fn now() -> Instant {
    Instant::now()
}

/// Does nothing for so long.
pub fn sleep(time: Duration) {
    std::thread::sleep(time);
}
