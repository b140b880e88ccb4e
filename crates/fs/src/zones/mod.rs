//! Zones: their table, the choice of the zone that a write goes to, and how zones become empty again.
//!
//! ```text
//!   place (file data)   lease (logs)   cleaner (finish, reset, reclaim)   ahead (zones opened ahead for logs)
//!      alloc                                                     usage (what statfs says)
//!      -------- over State: --------
//!      places, open_zone, slots, table, pins, pool
//! ```

pub(crate) mod ahead;
pub(crate) mod alloc;
pub(crate) mod cleaner;
pub(crate) mod lease;
pub(crate) mod open_zone;
pub(crate) mod pins;
pub(crate) mod place;
pub(crate) mod places;
pub(crate) mod pool;
pub(crate) mod slots;
pub(crate) mod table;
pub(crate) mod usage;
