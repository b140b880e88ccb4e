//! Opening an array.

pub(crate) mod assemble;
pub(crate) mod decide;
pub(crate) mod gather;
pub(crate) mod log_contents;
pub(crate) mod record_failures;
pub(crate) mod resync;
pub(crate) mod unusable;
pub(crate) mod zone_rewrite;

#[cfg(test)]
mod crafted;
