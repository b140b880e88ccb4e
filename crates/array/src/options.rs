//! Settings.

use zoned::Bytes;

#[cfg(feature = "broken-rules")]
use crate::rules::BrokenRule;
use crate::rules::Rules;

/// Settings of a new array.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CreateOptions {
    /// Bytes in a stripe unit: whole blocks. Default 64 KiB: small reads seldom need two drives, and large
    /// reads use all drives.
    pub stripe_unit: Bytes,
    /// The array's name for people, 64 bytes at most. Default none.
    pub label: String,
}

impl Default for CreateOptions {
    fn default() -> CreateOptions {
        CreateOptions { stripe_unit: Bytes(64 << 10), label: String::new() }
    }
}

/// The pace of a rebuild or a scrub. Without clients only the drives limit the pace.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pace {
    /// The job's least rate beside clients, whatever their latency, in bytes per second: written to the new
    /// drive, or read by a scrub. Default 8 MiB: a drive of 1 TB is rebuilt within a day and a half under any
    /// load.
    pub min_rate: Bytes,
    /// The job's highest rate, in bytes per second. Default none.
    pub max_rate: Option<Bytes>,
    /// The clients' 99th percentile latency that the job may cause, in percent of the latency without the job, which
    /// is measured in short rests. 0 ignores clients. Default 150.
    pub tail_percent: u32,
}

impl Default for Pace {
    fn default() -> Pace {
        Pace { min_rate: Bytes(8 << 20), max_rate: None, tail_percent: 150 }
    }
}

impl Pace {
    /// A pace that only the drives limit, whatever the latency of clients.
    pub const UNBOUNDED: Pace = Pace { min_rate: Bytes(u64::MAX), max_rate: None, tail_percent: 0 };
}

/// Settings of a rebuild.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct RebuildOptions {
    /// The pace.
    pub pace: Pace,
}

/// Settings of a scrub.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct ScrubOptions {
    /// Rewrites parity that does not match its data. Either of the two may be wrong: the rewrite trusts the
    /// data. Default false: a mismatch is reported only.
    pub repair_parity: bool,
    /// The pace.
    pub pace: Pace,
}

/// Settings of a mount.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OpenOptions {
    /// Resumes a rebuild that a restart interrupted, if the new drive is among the devices, and lets idle spares take the place
    /// of drives that are missing or fail. Default true.
    pub resume: bool,
    /// Settings of the resumed rebuild.
    pub rebuild: RebuildOptions,
    /// A mount rewrites a zone with more bytes of stale rows and relocated parity, on all drives together.
    /// Without a rewrite, content of stale rows goes to the metadata logs and stays in memory. Default 4 MiB:
    /// the cost is that much memory, or reading and writing the zone twice. A zone is rewritten earlier if
    /// the relocated content of one drive would exceed 16 MiB or a quarter of a metadata zone.
    pub rebuild_above: Bytes,
    /// A rule that a test breaks, to prove that a broken rule is noticed. Default none.
    #[cfg(feature = "broken-rules")]
    pub broken_rule: Option<BrokenRule>,
}

impl OpenOptions {
    /// The rules in force: all but the one that a test breaks.
    pub(crate) fn rules(&self) -> Rules {
        Rules {
            #[cfg(feature = "broken-rules")]
            broken: self.broken_rule,
        }
    }
}

impl Default for OpenOptions {
    fn default() -> OpenOptions {
        OpenOptions {
            resume: true,
            rebuild: RebuildOptions::default(),
            rebuild_above: Bytes(4 << 20),
            #[cfg(feature = "broken-rules")]
            broken_rule: None,
        }
    }
}
