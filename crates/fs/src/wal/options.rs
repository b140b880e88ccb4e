//! The settings of an ordered log.

#[cfg(feature = "broken-rules")]
use crate::rules::BrokenRule;
use crate::rules::Rules;

/// How an ordered log's entries reach the device.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub enum IoMode {
    /// One write at a time at the zone's write pointer, as ZenFS does: the baseline.
    Write,
    /// Many zone appends in flight (ZWAL).
    #[default]
    Append,
}

/// In which zones ordered logs lie.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub enum LogZones {
    /// In conventional zones where the drive has such zones for logs, else in sequential ones.
    #[default]
    Auto,
    /// In conventional zones while these have space. Mounting a file system without such zones for logs is `Invalid`.
    Conventional,
    /// In sequential zones.
    Sequential,
}

/// The settings of an ordered log's writer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct LogOptions {
    /// Bytes of the log's longest entry, header included; rounded up to whole blocks. A greater length means
    /// fewer and longer device operations, and more unsynced data that a crash of the process loses. Default
    /// 64 KiB.
    pub buffer: usize,
    /// How the log's entries reach the device. Default: append.
    pub mode: IoMode,
    /// The most device operations in flight, from 1 to [`LogOptions::MAX_WINDOW`]; fewer are in flight where more gain
    /// nothing. A crash of the process loses up to `window` times `buffer` bytes of unsynced data, and the buffer. Default
    /// 64; always 1 in `write` mode.
    pub window: usize,
    /// In which zones a mount's ordered logs lie. Default: auto.
    pub zones: LogZones,
    /// Whether a sync of an ordered log may be a durable write (FUA) instead of a write and a flush, where that is faster. Default: true.
    pub durable_writes: bool,
    /// Bytes of a region: after so many bytes of entries the log waits until nothing is in flight (ZWAL's barrier, section
    /// 4.4), which bounds how far recovery looks for a missing entry; 0 for no barriers. Default: 0.
    #[cfg(feature = "log-barriers")]
    pub barrier: usize,
    /// A safety rule for the log to break, so that a test can show that another test finds the fault.
    /// Default: none.
    #[cfg(feature = "broken-rules")]
    pub broken_rule: Option<BrokenRule>,
}

impl LogOptions {
    /// The default of the setting `buffer`.
    pub const DEFAULT_BUFFER: usize = 64 << 10;
    /// The default of the setting `window`.
    pub const DEFAULT_WINDOW: usize = 64;
    /// The largest value of the setting `window`.
    pub const MAX_WINDOW: usize = 1024;

    /// Bytes of log entries between two barriers; 0 for no barriers.
    pub(crate) fn barrier_bytes(&self) -> usize {
        #[cfg(feature = "log-barriers")]
        return self.barrier;
        #[cfg(not(feature = "log-barriers"))]
        return 0;
    }

    pub(crate) fn rules(&self) -> Rules {
        Rules {
            #[cfg(feature = "broken-rules")]
            broken: self.broken_rule,
        }
    }
}

impl Default for LogOptions {
    fn default() -> LogOptions {
        LogOptions {
            buffer: LogOptions::DEFAULT_BUFFER,
            mode: IoMode::Append,
            window: LogOptions::DEFAULT_WINDOW,
            zones: LogZones::Auto,
            durable_writes: true,
            #[cfg(feature = "log-barriers")]
            barrier: 0,
            #[cfg(feature = "broken-rules")]
            broken_rule: None,
        }
    }
}
