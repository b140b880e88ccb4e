//! The zoned append log.

use std::future::Future;
use std::pin::Pin;

use units::{Blocks, ZoneId};

use crate::Result;

/// A part of a zone that belongs to one log: blocks `[start, end)` of the zone.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Segment {
    /// The zone.
    pub zone: ZoneId,
    /// The zone's generation: what an earlier use left behind does not carry it.
    pub generation: u64,
    /// First block.
    pub start: Blocks,
    /// Block after the last.
    pub end: Blocks,
}

/// Where a log gets its next segment from.
pub trait SegmentSource: Send + Sync {
    /// The next segment, durable in the metadata for this log when it returns.
    fn next(&self) -> Pin<Box<dyn Future<Output = Result<Segment>> + Send + '_>>;
}
