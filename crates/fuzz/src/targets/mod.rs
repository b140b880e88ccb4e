//! The fuzz targets, by the structures that they decode.

pub(crate) mod array;
pub(crate) mod cluster;
pub(crate) mod database;
pub(crate) mod drive;
pub(crate) mod filesystem;
pub(crate) mod pathprio;
mod pattern;
pub(crate) mod prio;
pub(crate) mod server;
mod temporary;
pub(crate) mod zookeeper;
