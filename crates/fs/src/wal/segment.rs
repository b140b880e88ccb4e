//! Segments: the parts of zones that a log writes to.

use std::future::Future;
use std::pin::Pin;

use units::{Blocks, ZoneId};

use crate::error::Result;

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
