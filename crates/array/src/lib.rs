//! RAIZN: an array of three or more zoned drives that loses one of them and nothing else, and is itself a zoned
//! device. Whoever runs on it does not know.
//!
//! ```text
//!   Array     the ZonedDevice: checks, queues, acknowledges        core, write, read, action, failure
//!     Zone      a logical zone: pointer, parity of the open stripe, writes in flight
//!     Layout    which drive, which block: arithmetic
//!     Member    a drive and its metadata log; `roll` moves the log to a fresh zone
//!   create, open    open reads everything back: log_read, decide (pure), repair
//!   rebuild, scrub (background, pace, jobs), failure, status, check, dump
//!   format    the bytes on the drives
//! ```
//!
//! `docs/adr/0011-raizn.md` has the formats, the rules, and what happens in each crash.
#![forbid(unsafe_code)]

mod admin;
mod background;
mod checkpoint;
mod core;
mod degraded;
mod events;
mod format;
#[cfg(feature = "fuzzing")]
pub mod fuzzing;
mod io;
mod layout;
mod member;
mod metrics;
mod mount;
mod options;
mod zone;

pub use admin::check::{CheckOptions, CheckReport, Problem, Severity, check};
pub use admin::create::{create, plan};
pub use admin::dump::{DriveDump, MetadataZone, RecordDump, destroy, dump};
pub use admin::status::{
    Health, LostBlocks, MANY_ERRORS, MemberState, MemberStatus, Status, WornZone, status,
};
pub use admin::url;
pub use background::jobs::{Handle, Progress, Rebuild, Scrub};
pub use background::scrub::{Mismatch, ScrubReport};
pub use events::{Event, EventKind, Events};
pub use format::superblock::{Limits, MemberInfo, Superblock};
pub use layout::{Layout, Piece, Slot, Stripe};
pub use metrics::Counters;
pub use mount::assemble::Array;
pub use options::{CreateOptions, OpenOptions, Pace, RebuildOptions, Sabotage, ScrubOptions};
