//! The result of a scrub.

use std::time::Duration;

use zoned::{Bytes, ZoneId};

use crate::layout::Stripe;

/// A stripe whose parity does not match its data.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Mismatch {
    /// The logical zone.
    pub zone: ZoneId,
    /// The stripe.
    pub stripe: Stripe,
}

/// The result of a scrub.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct ScrubReport {
    /// Number of logical zones with content.
    pub zones: u32,
    /// Number of logical zones that were reset during the scrub: their new content was not read.
    pub changed: u32,
    /// Bytes of data and parity that the scrub read.
    pub bytes: Bytes,
    /// Stripes compared.
    pub stripes: u64,
    /// Stripe units with unreadable blocks.
    pub read_errors: u64,
    /// Unreadable stripe units that were reconstructed and relocated.
    pub repaired: u64,
    /// Unreadable stripe units that cannot be reconstructed: another unit of the stripe is unreadable too.
    pub lost: u64,
    /// Stripes whose parity does not match their data.
    pub mismatch_count: u64,
    /// The first 256 stripes whose parity does not match their data.
    pub mismatches: Vec<Mismatch>,
    /// Stripes whose parity was rewritten, because the options allow it.
    pub parity_rewritten: u64,
    /// The duration.
    pub elapsed: Duration,
}
