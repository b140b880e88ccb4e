//! Operations of clients.

pub(crate) mod action;
pub(crate) mod flush;
pub(crate) mod read;
pub(crate) mod write;
