//! The paths of client operations: read, write, zone command, flush.

pub(crate) mod action;
pub(crate) mod read;
pub(crate) mod reset;
pub(crate) mod write;
