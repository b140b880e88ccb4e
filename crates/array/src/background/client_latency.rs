//! The latencies of clients' operations, for the pace of background jobs.

use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use parking_lot::Mutex;

/// Most latency samples that are kept until a background job reads them.
pub(crate) const MAX_SAMPLES: usize = 8192;

/// Collects the latencies of clients' operations while at least one background job runs.
#[derive(Debug, Default)]
pub(crate) struct LatencyWatch {
    jobs: AtomicU32,
    samples: Mutex<Vec<Duration>>,
}

impl LatencyWatch {
    /// True if a job runs.
    pub(crate) fn is_on(&self) -> bool {
        self.jobs.load(Ordering::Relaxed) > 0
    }

    /// A job begins.
    pub(crate) fn begin(&self) {
        self.jobs.fetch_add(1, Ordering::Relaxed);
    }

    /// A job ends.
    pub(crate) fn end(&self) {
        self.jobs.fetch_sub(1, Ordering::Relaxed);
    }

    /// Adds a sample.
    pub(crate) fn add(&self, latency: Duration) {
        let mut samples = self.samples.lock();
        if samples.len() < MAX_SAMPLES {
            samples.push(latency);
        }
    }

    /// Takes all samples.
    pub(crate) fn take(&self) -> Vec<Duration> {
        std::mem::take(&mut *self.samples.lock())
    }
}
