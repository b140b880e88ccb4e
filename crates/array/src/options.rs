//! Settings.

use std::sync::Arc;

use zoned::Bytes;

use crate::format::superblock::Placement;
#[cfg(feature = "broken-rules")]
use crate::rules::BrokenRule;
use crate::rules::Rules;

/// Settings of a new array.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CreateOptions {
    /// Bytes in a stripe unit: whole blocks. Default 64 KiB: small reads seldom need two drives, and large
    /// reads use all drives.
    pub stripe_unit: Bytes,
    /// Where the drives hold the parts of logical zones. Default [`Placement::Stored`]: a worn physical zone
    /// costs no logical zone, and parts move while they are in use.
    pub placement: Placement,
    /// Units of a stripe, parities included: each logical zone takes as many of the drives. Fewer than drives need
    /// [`Placement::Stored`]. Default one on each drive.
    pub width: Option<u32>,
    /// The number of drives whose capacity stays free for the parts of drives that fail: at most as many as there are more drives
    /// than the width. Default 0.
    pub spare_drives: u32,
    /// Logical zones whose parts share a physical zone, one behind the other: zones of that fraction of the size. More than one needs
    /// [`Placement::Stored`], and keeps two physical zones more in reserve than zones may be active. Default 1.
    pub shares: u32,
    /// Consecutive zones that are joined to one: zones of that many physical zones of each drive. Not together with [`shares`] or with
    /// atomic writes. Default 1.
    ///
    /// [`shares`]: CreateOptions::shares
    pub sections: u32,
    /// The stripes of the sections of a joined zone take turns, so that one zone has the bandwidth of several zones of each drive, and
    /// counts as that many open ones. Default false: one section lies behind the other.
    pub interleaved: bool,
    /// The array's name for people, 64 bytes at most. Default none.
    pub label: String,
    /// Units of parity in a stripe, 1 or 2: as many drives may fail at a time without loss of data. Default 1: a second one costs a
    /// drive's capacity, and partial parity twice.
    pub parities: u32,
    /// After a power cut a write or append is there as a whole or not at all, whatever its length. Default false: each write
    /// costs a record in two metadata logs, often one that is written anyway, and a mount reads what may be torn.
    pub atomic_writes: bool,
}

impl Default for CreateOptions {
    fn default() -> CreateOptions {
        CreateOptions {
            stripe_unit: Bytes(64 << 10),
            label: String::new(),
            parities: 1,
            atomic_writes: false,
            placement: Placement::Stored,
            width: None,
            spare_drives: 0,
            shares: 1,
            sections: 1,
            interleaved: false,
        }
    }
}

/// The pace of a rebuild or a scrub. Without clients only the drives limit the pace, and their schedulers where logs are written to them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pace {
    /// The job's least rate beside clients, whatever their latency, in bytes per second: written to the new
    /// drive, or read by a scrub; less by the short rests in which clients are measured alone. Default 8 MiB: a drive of 1 TB is rebuilt within a day and a half under any
    /// load.
    pub min_rate: Bytes,
    /// The job's highest rate, in bytes per second. Default none.
    pub max_rate: Option<Bytes>,
    /// The clients' mean and 99th percentile latency beside the job, in percent of those without it, which are measured in short rests; latencies that half the job's rate would not lower are allowed too. 0 ignores clients; 1 to 99 are refused. Default 120.
    pub client_target: u32,
}

impl Default for Pace {
    fn default() -> Pace {
        Pace { min_rate: Bytes(8 << 20), max_rate: None, client_target: 120 }
    }
}

impl Pace {
    /// A pace that only the drives and their schedulers limit, whatever the latency of clients.
    pub const UNBOUNDED: Pace = Pace { min_rate: Bytes(u64::MAX), max_rate: None, client_target: 0 };

    /// Refuses a target that no job can reach: clients that are faster beside the job than without it. `array`: the array's name.
    pub(crate) fn check(&self, array: &Arc<str>) -> zoned::Result<()> {
        if (1..100).contains(&self.client_target) {
            let why =
                format!("client_target is {} %: 100 or more, or 0 to ignore clients", self.client_target);
            return Err(zoned::Error::new(zoned::ErrorKind::Invalid, array, "check the pace").because(why));
        }
        Ok(())
    }
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
    /// data. Default false: a mismatch is reported only, as is one of a stripe with a data unit on a missing drive.
    pub repair_parity: bool,
    /// The pace.
    pub pace: Pace,
}

/// How an array's appends go to the drives.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum AppendMode {
    /// As writes at the array's write pointer, in the order of submission.
    #[default]
    Ordered,
    /// As appends, side by side where their stripe unit has others in flight. An append's address is the one that its drive gave.
    Append,
    /// As ordered writes or as appends, whichever has the shorter latency: measured for each length of appends and number in flight,
    /// by trials that are repeated now and then.
    Auto,
}

impl std::str::FromStr for AppendMode {
    type Err = String;

    fn from_str(text: &str) -> Result<AppendMode, String> {
        match text {
            "ordered" => Ok(AppendMode::Ordered),
            "append" => Ok(AppendMode::Append),
            "auto" => Ok(AppendMode::Auto),
            other => Err(format!("appends={other}: use ordered, append or auto")),
        }
    }
}

/// Settings of a mount.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OpenOptions {
    /// Lets the array move and rebuild by itself: resumes a rebuild that a restart interrupted, if the new drive is among the devices,
    /// lets idle spares take the place of drives that are missing or fail, moves parts out of worn physical zones, and reclaims.
    /// Default true.
    pub resume: bool,
    /// Settings of the resumed rebuild.
    pub rebuild: RebuildOptions,
    /// The parts of a zone with more bytes of stale rows and relocated parity move to other physical zones once the array is open, at
    /// the pace of `rebuild`; with [`Placement::Fixed`] a mount rewrites the zone. Otherwise content of stale rows goes to the metadata
    /// logs and stays in memory. Default 4 MiB: the cost is that much memory, or a copy of the zone. A mount rewrites a zone in any case
    /// if the relocated content of one drive would exceed 16 MiB or a quarter of a metadata zone.
    pub rebuild_above: Bytes,
    /// Where logical zones share physical ones: a reclaim begins on a drive with fewer empty physical zones, at the pace of `rebuild`.
    /// Default 6: one is kept for parts that move, and as long as there are others first writes do not wait. More begin to copy earlier,
    /// and copy more.
    pub reclaim_below: u32,
    /// How appends go to the drives. Default [`AppendMode::Ordered`]: builds that know no reorder records can open the array
    /// afterwards. The other modes keep such builds out, unless the array's writes are atomic. Arrays with atomic writes, zones with stale
    /// rows and zones that lack a drive order their appends in any case.
    pub appends: AppendMode,
    /// With [`AppendMode::Auto`]: appends in a round of measurement. Fewer decide earlier, on less. Default none: as many as fill the
    /// stripes that have their parity on each drive once, at least 32 and two for each append in flight.
    pub append_round: Option<u32>,
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
            reclaim_below: 6,
            appends: AppendMode::Ordered,
            append_round: None,
            #[cfg(feature = "broken-rules")]
            broken_rule: None,
        }
    }
}
