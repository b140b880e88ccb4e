//! A drive whose reads take a profile's times once the drive is filled.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use parking_lot::Mutex;
use zoned::emu::{Emu, Media, Timing, TimingState};
use zoned::{Done, Driver, Geometry, Io, Op, ZonedDevice};

/// A drive in memory whose reads take another drive's read times.
#[derive(Debug)]
pub(super) struct PacedDrive {
    emu: Arc<Emu>,
    timing: Timing,
    clocks: Mutex<TimingState>,
    on: AtomicBool,
}

impl PacedDrive {
    /// Puts read times over `emu`, whose own reads take no time.
    pub(super) fn new(emu: Arc<Emu>, timing: Timing) -> Arc<PacedDrive> {
        let clocks = Mutex::new(timing.rested());
        Arc::new(PacedDrive { emu, timing, clocks, on: AtomicBool::new(false) })
    }

    /// A copy of the drive's content.
    pub(super) fn media(&self) -> Media {
        self.emu.media()
    }

    /// Makes reads take the profile's times from now on.
    pub(super) fn start_read_times(&self) {
        self.on.store(true, Ordering::Release);
    }
}

impl ZonedDevice for PacedDrive {
    fn geometry(&self) -> &Geometry {
        self.emu.geometry()
    }

    fn submit(&self, op: Op) -> Io {
        if !matches!(op, Op::Read { .. }) || !self.on.load(Ordering::Acquire) {
            return self.emu.submit(op);
        }
        let driver = self.emu.driver();
        let at = {
            let mut clocks = self.clocks.lock();
            self.timing.completion(&mut clocks, driver.now(), &op, None)
        };
        // The emulator below has no delay, so the wait returns at once.
        let result: zoned::Result<Done> = self.emu.submit(op).wait();
        Io::due(at, result, driver)
    }

    fn driver(&self) -> &Arc<dyn Driver> {
        self.emu.driver()
    }
}
