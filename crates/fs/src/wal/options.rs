//! The settings of an ordered log.

#[cfg(feature = "broken-rules")]
use crate::rules::BrokenRule;
use crate::rules::Rules;

/// How entries reach the device.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub enum IoMode {
    /// One write at a time at the zone's pointer: what ZenFS does, and the baseline.
    Write,
    /// Many zone appends in flight (ZWAL).
    #[default]
    Append,
}

/// The settings of a writer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct LogOptions {
    /// Bytes of the longest entry, header included; rounded up to whole blocks. More means fewer and longer
    /// device operations, and more unsynced data that a crash of the process loses. Default 64 KiB.
    pub buffer: usize,
    /// How entries reach the device. Default: append.
    pub mode: IoMode,
    /// The most device operations in flight, from 1 to [`LogOptions::MAX_WINDOW`]; as many are in flight as pay. What
    /// a crash of the process loses of unsynced data is up to `window` times `buffer`, and the buffer. Default 64. In
    /// `write` mode it is 1.
    pub window: usize,
    /// Bytes of entries after which the log waits for all that is in flight, so that recovery never looks further
    /// for a missing entry (ZWAL's barrier); zero for a zone. Default zero.
    pub barrier: usize,
    /// A rule to break, so that a test proves that it would notice. Default: none.
    #[cfg(feature = "broken-rules")]
    pub broken_rule: Option<BrokenRule>,
}

impl LogOptions {
    /// The default of `buffer`.
    pub const DEFAULT_BUFFER: usize = 64 << 10;
    /// The default of `window`.
    pub const DEFAULT_WINDOW: usize = 64;
    /// The largest `window`.
    pub const MAX_WINDOW: usize = 1024;

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
            barrier: 0,
            #[cfg(feature = "broken-rules")]
            broken_rule: None,
        }
    }
}
