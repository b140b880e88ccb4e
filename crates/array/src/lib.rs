//! RAIZN: an array of three or more zoned drives that is itself a zoned device, and survives the failure of one drive.
//!
//! Each room imports from the rooms below only:
//!
//! ```text
//!   mount        from drives to an assembled array, in six steps (mount::assemble)
//!   admin        create, status, check, dump, URLs
//!   background   rebuild and scrub, and their pace beside clients
//!   joined       zones that several zones below make, as a device
//!   core         an assembled array: the parts, and the way of an operation to its zone
//!   checkpoint   everything in memory that a mount needs, written to a metadata log
//!   io           read, write, zone commands, flush
//!   degraded     failed drives and zones, unreadable blocks: reconstruct, read repair
//!   zone         a logical zone, its stale rows; the table of all zones
//!   membership   which drives work; the superblocks; room in the metadata logs
//!   member       one drive and its metadata log
//!   format       the bytes in the metadata zones
//!   layout       which part and row holds a logical block; which drive holds a part
//! ```
//!
//! `docs/adr/0011-raizn.md` has the decisions, `docs/format.md` the formats, and `docs/crash-safety.md` the crash states.
#![forbid(unsafe_code)]

mod admin;
mod array;
mod background;
mod checkpoint;
mod context;
mod core;
mod deferred;
mod degraded;
mod events;
mod format;
#[cfg(feature = "fuzzing")]
pub mod fuzzing;
mod io;
mod joined;
mod layout;
mod member;
mod membership;
mod metrics;
mod mount;
mod options;
mod rules;
mod zone;

pub use admin::check_array::{CheckOptions, CheckReport, Problem, Severity, check};
pub use admin::create_array::{create, plan};
pub use admin::dump::{DriveDump, MetadataZone, RecordDump, destroy, dump};
pub use admin::status::{BadBlocks, Health, MemberState, MemberStatus, SpareStatus, Status, status};
pub use admin::url;
pub use array::Array;
pub use background::jobs::{Handle, Progress, Rebuild, Scrub};
pub use background::moves::restore::RestoredParts;
pub use background::reclaim::Reclaimed;
pub use background::scrub_report::{Mismatch, ScrubReport};
pub use degraded::failures::MANY_ERRORS;
pub use events::{Event, EventKind, Events};
pub use format::superblock::{Limits, MemberInfo, Placement, Superblock};
pub use layout::placement::Rotation;
pub use layout::{Layout, Parity, Piece, Role, Slot, Stripe};
pub use metrics::Counters;
pub use options::{AppendMode, CreateOptions, OpenOptions, Pace, RebuildOptions, ScrubOptions};
#[cfg(feature = "broken-rules")]
pub use rules::BrokenRule;
pub use zone::memory::Memory;
pub use zone::space::Space;
pub use zone::worn_zones::WornZone;
