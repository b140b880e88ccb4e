//! Scrub: everything valid is read, and parity compared with data.

use std::time::Duration;

use zoned::{Bytes, ErrorKind, Result, ZoneId};

use crate::jobs::Scrub;
use crate::layout::Stripe;
use crate::{Array, ScrubOptions};

/// A stripe whose parity does not fit its data.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Mismatch {
    /// The logical zone.
    pub zone: ZoneId,
    /// The stripe.
    pub stripe: Stripe,
}

/// What a scrub found.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct ScrubReport {
    /// Logical zones that hold something.
    pub zones: u32,
    /// Bytes read, of data and of parity.
    pub bytes: Bytes,
    /// Stripes compared.
    pub stripes: u64,
    /// Stripe units that a drive could not read.
    pub read_errors: u64,
    /// Of these, how many follow from the others and are recorded.
    pub repaired: u64,
    /// Stripes whose parity does not fit.
    pub mismatch_count: u64,
    /// The first of them.
    pub mismatches: Vec<Mismatch>,
    /// Parity that was made to fit, because the options said so.
    pub parity_rewritten: u64,
    /// How long it took.
    pub elapsed: Duration,
}

impl Array {
    /// Scrubs, to the end: see [`Array::start_scrub`].
    pub async fn scrub(&self, options: ScrubOptions) -> Result<ScrubReport> {
        self.start_scrub(options)?.wait().await
    }

    /// Begins to read everything that the array holds and to compare parity with data, beside the clients.
    pub fn start_scrub(&self, options: ScrubOptions) -> Result<Scrub> {
        let _ = options;
        Err(self.core.error(ErrorKind::Unsupported, "scrub"))
    }

    /// The scrub that runs, or the last one.
    pub fn scrubbing(&self) -> Option<Scrub> {
        self.core.jobs.scrub.lock().clone()
    }
}
