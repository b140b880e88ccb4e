//! Mount: opens an array. `assemble` lists the six steps.

pub(crate) mod assemble;
pub(crate) mod atomic;
pub(crate) mod candidate;
pub(crate) mod decide;
pub(crate) mod dry_run;
pub(crate) mod errors;
pub(crate) mod failed_zones;
pub(crate) mod gather;
pub(crate) mod joined;
pub(crate) mod open;
pub(crate) mod record_failures;
pub(crate) mod resync;
pub(crate) mod zone_maps;
pub(crate) mod zone_rewrite;

#[cfg(test)]
mod crafted_records;
