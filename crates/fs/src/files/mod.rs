//! Files: their extents and pages, their readers and writers, paths, and the types that describe a file system.
//!
//! Every read of a data file goes through [`read::read`], and every appended byte through [`pages::Pages::append`]. The page cache
//! ([`cache`](crate::cache)) and the write-back ([`writeback`](crate::writeback)) lie between these two and the device.

pub(crate) mod extents;
pub(crate) mod file;
pub(crate) mod pages;
mod pass_buffer;
pub(crate) mod path;
mod read;
pub(crate) mod reader;
pub(crate) mod stat;
pub(crate) mod streams;
pub(crate) mod writer;
pub(crate) mod writes;
