//! Segments: the parts of zones that a log writes to.

use std::future::Future;
use std::pin::Pin;

use units::{Blocks, ZoneId};

use crate::error::Result;

/// A part of a zone that belongs to one log: blocks `[start, end)` of the zone.
///
/// The zone has only log entries, of one log or of several.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Segment {
    /// The zone.
    pub zone: ZoneId,
    /// The generation of the segment's zone: entries of an earlier use of the zone have another generation.
    pub generation: u64,
    /// The segment's first block: the zone's write pointer, for a segment to be written.
    pub start: Blocks,
    /// The block after the segment's last.
    pub end: Blocks,
}

/// The source of a log's segments.
pub trait SegmentSource: Send + Sync {
    /// The log's next segment. Its generation is durable and was never used before. The log asks when the
    /// first byte needs the segment, so a source that keeps one ready answers at once.
    ///
    /// The owner of the source makes the segment's record durable before entries in the segment count as
    /// synced.
    fn next(&self) -> Pin<Box<dyn Future<Output = Result<Next>> + Send + '_>>;
}

/// The answer of a [`SegmentSource`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Next {
    /// The segment in which the log continues.
    pub segment: Segment,
    /// True if the segment's zone may be open at the same time as the zone that the log leaves. If false, the
    /// log fills the old zone before it writes the first entry to the new one.
    pub beside: bool,
}
