//! Settings of a format, a mount and a new file.

use units::Bytes;
use uuid::Uuid;

#[cfg(feature = "broken-rules")]
use crate::rules::BrokenRule;
use crate::rules::Rules;
use crate::wal::options::LogOptions;

/// How [`Fs::format`](crate::Fs::format) makes a file system.
#[derive(Clone, Debug, Default)]
pub struct FormatOptions {
    /// Format although zones are written or a file system is there: its data is lost. Default: false.
    pub force: bool,
    /// A name for people, up to 64 bytes. Default: none.
    pub label: String,
    /// The file system's identity. Default: random.
    pub uuid: Option<Uuid>,
    /// Zones for the metadata log, at least 2. Default: enough for two snapshots of a device full of files.
    pub metadata_zones: Option<u32>,
}

/// How [`Fs::mount`](crate::Fs::mount) mounts.
#[derive(Clone, Debug)]
pub struct MountOptions {
    /// Write nothing at all, not even what recovery would. Default: false.
    pub read_only: bool,
    /// How logs are written.
    pub log: LogOptions,
    /// Bytes that an open data file buffers: as many of the device's optimal writes (`Geometry::optimal_write`: an array's stripes)
    /// as fit, at least one. Default: 1 MiB.
    pub write_buffer: usize,
    /// Zones for logs are opened ahead, and zones are finished and reset behind everybody's back. Without it a log that
    /// needs a zone opens it itself, after finishing and resetting what waits for that, as ZenFS does: only to compare
    /// with. Default: true.
    pub reserve: bool,
    /// When file data makes way for logs. Default: while a parallel log is open.
    pub pace: Pace,
    /// A rule to break, so that a test proves that it would notice. Default: none.
    #[cfg(feature = "broken-rules")]
    pub broken_rule: Option<BrokenRule>,
}

/// When file data goes to the device in small pieces, one after the other in each zone. A log's append that comes
/// meanwhile waits for some of these, and not for megabytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Pace {
    /// While a parallel log is open.
    #[default]
    ParallelLogs,
    /// Always.
    Always,
    /// Never.
    Never,
}

impl Default for MountOptions {
    fn default() -> MountOptions {
        MountOptions {
            read_only: false,
            log: LogOptions::default(),
            write_buffer: 1 << 20,
            reserve: true,
            pace: Pace::ParallelLogs,
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

/// How long a file is expected to live: files that die together share zones.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub enum Lifetime {
    /// Not said.
    #[default]
    NotSet,
    /// Said to have none.
    None,
    /// Dies first.
    Short,
    /// Dies before most.
    Medium,
    /// Lives long.
    Long,
    /// Lives longest.
    Extreme,
}

/// How [`Fs::create`](crate::Fs::create) makes a file.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct CreateOptions {
    /// `Data` or `Log`; other kinds are `Invalid`. Default: data.
    pub kind: FileKind,
    /// The expected lifetime. Default: not set.
    pub lifetime: Lifetime,
    /// The expected size; zero when unknown. A hint only.
    pub preallocate: Bytes,
}
