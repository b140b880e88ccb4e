//! Settings.

use zoned::Bytes;

/// What a new array is like.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CreateOptions {
    /// Bytes in a stripe unit: whole blocks. Default 64 KiB: small reads seldom need two drives, and large ones use all.
    pub stripe_unit: Bytes,
    /// A name for people, 64 bytes at most. Default none.
    pub label: String,
}

impl Default for CreateOptions {
    fn default() -> CreateOptions {
        CreateOptions { stripe_unit: Bytes(64 << 10), label: String::new() }
    }
}

/// How fast a rebuild or a scrub may be. While no client asks for anything it is as fast as the drives.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pace {
    /// Bytes a second that it makes beside clients whatever their latency: of the new drive, or read by a scrub.
    /// Default 8 MiB: a drive of 1 TB is back within a day and a half under any load.
    pub min_rate: Bytes,
    /// Bytes a second that it never exceeds. Default none.
    pub max_rate: Option<Bytes>,
    /// What the clients' 99th percentile may be beside it, in percent of what it is without: that is measured now and
    /// then, in short rests. 0: no regard for clients. Default 150.
    pub tail_percent: u32,
}

impl Default for Pace {
    fn default() -> Pace {
        Pace { min_rate: Bytes(8 << 20), max_rate: None, tail_percent: 150 }
    }
}

impl Pace {
    /// As fast as the drives, whatever that does to clients.
    pub const UNBOUNDED: Pace = Pace { min_rate: Bytes(u64::MAX), max_rate: None, tail_percent: 0 };
}

/// How to rebuild.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct RebuildOptions {
    /// How fast.
    pub pace: Pace,
}

/// How to scrub.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct ScrubOptions {
    /// Parity that does not fit its data is made to: which of the two is wrong nobody can tell, and this believes the
    /// data. Default false: it is counted and left.
    pub repair_parity: bool,
    /// How fast.
    pub pace: Pace,
}

/// How to open an array.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OpenOptions {
    /// A rebuild that a restart ended goes on, if the new drive is among the devices. Default true.
    pub resume: bool,
    /// How it goes on.
    pub rebuild: RebuildOptions,
    /// A rule to break, to prove that it would be noticed. Default none.
    pub sabotage: Option<Sabotage>,
    /// A zone with more hidden rows than this, on all its drives together, and other parity in the logs, is rebuilt when the array is opened: until
    /// then what is written there goes to the metadata logs, and stays in memory. Default 4 MiB: it costs that much
    /// memory, or reading and writing the zone's content twice. A zone is rebuilt earlier where what is relocated
    /// on one drive would pass 16 MiB, or a quarter of a metadata zone.
    pub rebuild_above: Bytes,
}

impl Default for OpenOptions {
    fn default() -> OpenOptions {
        OpenOptions {
            resume: true,
            rebuild: RebuildOptions::default(),
            sabotage: None,
            rebuild_above: Bytes(4 << 20),
        }
    }
}

/// A rule that is broken on purpose.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Sabotage {
    /// Resets are not logged.
    ResetLog,
    /// Partial parity is not logged.
    PartialParity,
    /// The next generation of a reset zone is not recorded.
    Generation,
    /// A durable write is acknowledged without a flush.
    Fua,
    /// The parity of stripes that were in flight is not looked at.
    Hole,
    /// A durable write flushes only those drives that durable writes landed on.
    Persistence,
    /// What a rebuild noted of a zone is believed after a restart, though the zone was changed since.
    Notes,
    /// What a mount hid is not recorded.
    Hidden,
    /// That a zone being rebuilt has its content in a metadata zone is not recorded.
    Swap,
}
