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

mod action;
mod background;
mod check;
mod core;
mod create;
mod decide;
mod dump;
mod events;
mod failure;
mod format;
mod jobs;
mod layout;
mod left_out;
mod log_read;
mod lose;
mod loss;
mod lost;
mod member;
mod mend;
mod metrics;
mod mount;
mod open;
mod options;
mod pace;
mod patches;
mod persistence;
mod plan;
mod read;
mod rebuild;
mod repair;
mod roll;
mod scrub;
mod sound;
mod status;
mod swap;
pub mod url;
mod write;
mod xor;
mod zone;

pub use check::{CheckOptions, CheckReport, Problem, Severity, check};
pub use create::{create, plan};
pub use dump::{DriveDump, MetadataZone, RecordDump, destroy, dump};
pub use events::{Event, EventKind, Events};
pub use format::superblock::{Limits, MemberInfo, Superblock};
pub use jobs::{Handle, Progress, Rebuild, Scrub};
pub use layout::{Layout, Piece, Slot, Stripe};
pub use metrics::Counters;
pub use open::Array;
pub use options::{CreateOptions, OpenOptions, Pace, RebuildOptions, Sabotage, ScrubOptions};
pub use scrub::{Mismatch, ScrubReport};
pub use status::{Health, LostBlocks, MANY_ERRORS, MemberState, MemberStatus, Status, WornZone, status};
