//! Failed drives, worn zones and unreadable blocks.

pub(crate) mod failed_zones;
pub(crate) mod failure;
pub(crate) mod read_repair;
