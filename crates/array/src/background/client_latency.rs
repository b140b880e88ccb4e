//! Clients' operations that ended, for the pace of background jobs.

use std::sync::atomic::{AtomicU32, Ordering};

use parking_lot::Mutex;
use zoned::share::Sample;

/// Most operations that are kept until a background job reads them.
const MAX_SAMPLES: usize = 8192;

/// Collects clients' operations while at least one background job runs.
#[derive(Debug, Default)]
pub(crate) struct LatencyWatch {
    jobs: AtomicU32,
    samples: Mutex<Vec<Sample>>,
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

    /// Adds an operation.
    pub(crate) fn add(&self, sample: Sample) {
        let mut samples = self.samples.lock();
        if samples.len() < MAX_SAMPLES {
            samples.push(sample);
        }
    }

    /// Takes all operations.
    pub(crate) fn take(&self) -> Vec<Sample> {
        std::mem::take(&mut *self.samples.lock())
    }
}
