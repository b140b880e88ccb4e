//! Fuzz targets for the file system's on-disk structures.

pub(crate) use fs::fuzzing::{metadata, ordered_log, parallel_log, record, superblock};
