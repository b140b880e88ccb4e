//! Files: their extents, their readers and writers, paths, and what the file system says of them.

pub(crate) mod extents;
pub(crate) mod file;
pub(crate) mod path;
pub(crate) mod reader;
pub(crate) mod stat;
pub(crate) mod writer;
