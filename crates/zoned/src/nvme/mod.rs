//! `nvme:/dev/ngXnY`: later.
#[cfg(test)]
pub(crate) mod fake;
