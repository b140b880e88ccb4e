//! Logs in zones: the ordered log, one stream of bytes in checksummed entries, and the parallel log, records with tickets.
//!
//! The ordered log:
//!
//! ```text
//!   append --> buffer --seal--> entry: header | bytes of the stream   --> the zone's write pointer
//!                               (several parts where one device operation or one zone is too short)
//!   sync   --> the buffer sealed and written, then one device flush for all callers that asked before the flush
//!   recover: scan the segments, keep the valid entries, sort by sequence, stop at the first gap
//! ```
//!
//! An entry's offset in the file is the sum of the payload lengths before the entry in sequence order: a small record needs
//! no header of its own, and the entries suffice to read the log. Module [`entry`] has the format.

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
pub use options::{IoMode, LogOptions, LogZones};
pub use ordered::{Cut, LogIdentity, LogWriter, MEMORY, ReadStats, Recovered, recover};
pub use segment::{Next, Segment, SegmentSource};
pub use stats::LogStats;
