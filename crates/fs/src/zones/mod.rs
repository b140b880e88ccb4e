//! Zones: their table, the choice of the zone that a write goes to, and how zones become empty again.
//!
//! ```text
//!   place (file data)   lease (logs)   ahead (zones opened ahead for logs)   cleaner (finish, reset, reclaim)   usage (statfs)
//!   room (blocks reserved for accepted bytes)
//!     -------- over --------
//!   allocator
//!     -------- over --------
//!   table   conventional   open_zone   slots   reserve   pins   pool
//! ```

pub(crate) mod ahead;
pub(crate) mod allocator;
pub(crate) mod cleaner;
pub(crate) mod conventional;
pub(crate) mod job_class;
pub(crate) mod lease;
pub(crate) mod open_zone;
pub(crate) mod pins;
pub(crate) mod place;
pub(crate) mod pool;
pub(crate) mod reserve;
pub(crate) mod room;
pub(crate) mod slots;
pub(crate) mod table;
pub(crate) mod usage;
