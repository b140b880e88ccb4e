//! The settings of a format, of a mount and of a new file.

use std::time::Duration;

use units::Bytes;
use uuid::Uuid;

#[cfg(feature = "broken-rules")]
use crate::rules::BrokenRule;
use crate::rules::Rules;
use crate::wal::options::LogOptions;

/// The settings of [`Fs::format`](crate::Fs::format).
#[derive(Clone, Debug, Default)]
pub struct FormatOptions {
    /// Format a device whose zones are written or that holds a file system: its data is lost. Default: false.
    pub force: bool,
    /// The file system's label, up to 64 bytes. Default: empty.
    pub label: String,
    /// The file system's identity. Default: random.
    pub uuid: Option<Uuid>,
    /// Zones for the metadata log, at least 2. Default: enough for two snapshots of a device full of files.
    pub metadata_zones: Option<u32>,
}

/// The settings of [`Fs::mount`](crate::Fs::mount).
#[derive(Clone, Debug)]
pub struct MountOptions {
    /// The mount writes nothing to the device: recovery changes memory only. Default: false.
    pub read_only: bool,
    /// The settings of ordered logs.
    pub log: LogOptions,
    /// Bytes that an open data file buffers, rounded down to whole optimal writes of the device (`Geometry::optimal_write`:
    /// an array's stripes), at least one. Default: 1 MiB.
    pub write_buffer: usize,
    /// Bytes of memory for the page cache: pages of data files that were read or written, with what the cache needs to find them. At
    /// least 4 MiB; 0: no cache, every read of written data goes to the device. Default: 0.
    pub cache: Bytes,
    /// Whether the page cache holds bytes before and after they are written. Default: [`CacheMode::Buffered`].
    pub cache_mode: CacheMode,
    /// How long appended bytes of a data file stay in memory at most, where a page cache keeps them there. Default: 5 s.
    pub longest_in_memory: Duration,
    /// Background tasks open zones for logs ahead, and finish and reset zones. If false, a log that needs a zone first
    /// finishes and resets the zones that wait for that, then opens its zone, as ZenFS does: a baseline for benchmarks.
    /// Default: true.
    pub open_ahead: bool,
    /// Keeps as many empty zones as live logs fill, and a few more, for [`Fs::begin_recovery`](crate::Fs::begin_recovery): a database
    /// that found no space can then recover its logs into tables, and delete something. At most a quarter of the zones for files. Default:
    /// false.
    pub recovery_reserve: bool,
    /// A safety rule for this mount to break, so that a test can show that another test finds the fault.
    /// Default: none.
    #[cfg(feature = "broken-rules")]
    pub broken_rule: Option<BrokenRule>,
}

/// What a page cache does with pages that are written.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum CacheMode {
    /// Appended bytes stay in memory until they are written in the background, or by a `sync`, a rename or a link of the file. Written pages stay for
    /// later reads.
    #[default]
    Buffered,
    /// Writes go past the cache, as direct I/O does below a kernel's page cache: what was written is read from the device. The baseline of
    /// "Buffered I/O support for Zoned Namespace SSD", section 5.3.
    Direct,
}

impl Default for MountOptions {
    fn default() -> MountOptions {
        MountOptions {
            read_only: false,
            log: LogOptions::default(),
            write_buffer: 1 << 20,
            cache: Bytes::ZERO,
            cache_mode: CacheMode::Buffered,
            longest_in_memory: Duration::from_secs(5),
            open_ahead: true,
            recovery_reserve: false,
            #[cfg(feature = "broken-rules")]
            broken_rule: None,
        }
    }
}

impl MountOptions {
    pub(crate) fn rules(&self) -> Rules {
        Rules {
            #[cfg(feature = "broken-rules")]
            broken: self.broken_rule,
        }
    }

    /// The settings of the mount's ordered logs.
    pub(crate) fn log_options(&self) -> LogOptions {
        LogOptions {
            #[cfg(feature = "broken-rules")]
            broken_rule: self.broken_rule,
            ..self.log
        }
    }
}

/// The kind of a file.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub enum FileKind {
    /// A data file: extents in data zones.
    #[default]
    Data,
    /// An ordered log in log zones: small synced appends without metadata commits.
    Log,
    /// A parallel log. [`Fs::parallel_log`](crate::Fs::parallel_log) creates it.
    ParallelLog,
    /// A directory. [`Fs::mkdir`](crate::Fs::mkdir) creates it.
    Directory,
}

/// How long a file is expected to live. Files of one lifetime share zones.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub enum Lifetime {
    /// Not set.
    #[default]
    NotSet = 0,
    /// The lifetime is set to "no lifetime".
    None = 1,
    /// Removed first.
    Short = 2,
    /// Files removed before most other files.
    Medium = 3,
    /// Kept for long.
    Long = 4,
    /// Kept longest.
    Extreme = 5,
}

impl Lifetime {
    /// The number that stands for the lifetime on the device. The difference of two numbers is the distance
    /// between two lifetimes.
    pub(crate) fn number(self) -> u8 {
        self as u8
    }
}

/// The settings of [`Fs::create`](crate::Fs::create).
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct CreateOptions {
    /// The kind of the new file: `Data` or `Log`; other kinds are `Invalid`. Default: data.
    pub kind: FileKind,
    /// The expected lifetime of the file. Default: not set.
    pub lifetime: Lifetime,
    /// The expected size of a data file in bytes; zero when unknown. A hint only: a file that is expected to fill three quarters of a zone or more, and no more
    /// than one, begins in an empty zone that no other file's data gets into while there are zones to open. Its removal leaves nothing to relocate.
    pub preallocate: Bytes,
}
