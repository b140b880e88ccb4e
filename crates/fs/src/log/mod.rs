//! The zoned append log: one stream of bytes, packed into checksummed entries that zones hold.
//!
//! ```text
//!   append --> buffer --seal--> entry: header | bytes of the stream   --> the zone's write pointer
//!                               (several parts where one device operation or one zone is too short)
//!   sync   --> the buffer sealed and written, then one device flush for everyone who asked before it
//!   recover: scan the segments, keep the entries that fit, sort by sequence, stop at the first gap
//! ```
//!
//! A file offset is the sum of the payload lengths before it in sequence order: small records cost no header
//! each, and nothing but the entries is needed to read the log. [`entry`] has the bytes.

mod chunk;
pub mod entry;
mod fill;
mod flight;
mod index;
mod latencies;
pub(crate) mod parallel;
mod recover;
mod scan;
mod sort;
mod state;
mod stream;
#[cfg(test)]
mod tests;
mod window;
mod writer;

use std::future::Future;
use std::pin::Pin;

use units::{Blocks, ZoneId};

use crate::{Result, Sabotage};

pub use index::{Check, LogIndex};
pub(crate) use latencies::Latencies;
pub use recover::{Cut, Recovered, recover, recover_with};
pub(crate) use stream::{LogStream, Unread, stream};
pub use stream::{MEMORY, ReadStats};
pub(crate) use window::Window;
pub use writer::LogWriter;

/// A part of a zone that belongs to one log: blocks `[start, end)` of the zone.
///
/// The zone holds nothing but log entries, of this log or of others.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Segment {
    /// The zone.
    pub zone: ZoneId,
    /// The zone's generation: what an earlier use left behind does not carry it.
    pub generation: u64,
    /// First block: the write pointer, for a segment to be written.
    pub start: Blocks,
    /// Block after the last.
    pub end: Blocks,
}

/// Where a log gets its next segment from.
pub trait SegmentSource: Send + Sync {
    /// The next segment. Its generation was never used before, and is durable; that the segment is the log's must be
    /// durable before what is written there counts as synced: the source's owner sees to it. Asked for when a byte needs
    /// it, so that a source that prefetches answers at once.
    fn next(&self) -> Pin<Box<dyn Future<Output = Result<Next>> + Send + '_>>;
}

/// What a source gives.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Next {
    /// The segment to go on in.
    pub segment: Segment,
    /// Its zone may be open beside the one that the log leaves. Where it may not, that one is full before the first
    /// entry goes elsewhere.
    pub beside: bool,
}

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
    /// Break one rule, so that a test can prove that it would notice.
    #[doc(hidden)]
    pub sabotage: Option<Sabotage>,
}

impl LogOptions {
    /// The default of `buffer`.
    pub const DEFAULT_BUFFER: usize = 64 << 10;
    /// The default of `window`.
    pub const DEFAULT_WINDOW: usize = 64;
    /// The largest `window`.
    pub const MAX_WINDOW: usize = 1024;
}

impl Default for LogOptions {
    fn default() -> LogOptions {
        LogOptions {
            buffer: LogOptions::DEFAULT_BUFFER,
            mode: IoMode::Append,
            window: LogOptions::DEFAULT_WINDOW,
            barrier: 0,
            sabotage: None,
        }
    }
}

/// What a writer did on the device.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct LogStats {
    /// Writes at the pointer.
    pub writes: u64,
    /// Appends.
    pub appends: u64,
    /// Blocks of both.
    pub blocks: u64,
    /// Operations that may be in flight at the moment.
    pub window: usize,
}

impl LogStats {
    fn count(&mut self, write: bool, blocks: usize) {
        self.writes += u64::from(write);
        self.appends += u64::from(!write);
        self.blocks += blocks as u64;
    }
}
