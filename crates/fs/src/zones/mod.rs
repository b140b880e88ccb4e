//! Zones: which is used for what, which one is written next, and how zones come free.

pub(crate) mod alloc;
pub(crate) mod cleaner;
pub(crate) mod lease;
pub(crate) mod place;
pub(crate) mod pool;
pub(crate) mod reserve;
pub(crate) mod table;
pub(crate) mod usage;
