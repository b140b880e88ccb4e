//! The targets, by what they decode.

pub(crate) mod array;
pub(crate) mod database;
pub(crate) mod drive;
pub(crate) mod filesystem;
pub(crate) mod server;
