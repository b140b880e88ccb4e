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

pub(crate) mod chunk;
pub mod entry;
pub(crate) mod index;
pub(crate) mod latencies;
pub(crate) mod options;
pub(crate) mod ordered;
pub(crate) mod parallel;
pub(crate) mod scan;
pub(crate) mod segment;
pub(crate) mod stats;
pub(crate) mod window;

pub use index::{Check, LogIndex};
pub use options::{IoMode, LogOptions};
pub use ordered::{Cut, LogWriter, MEMORY, ReadStats, Recovered, recover};
pub use segment::{Next, Segment, SegmentSource};
pub use stats::LogStats;
