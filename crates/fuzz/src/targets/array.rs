//! Fuzz targets for the array's on-disk structures.

pub(crate) use array::fuzzing::{payloads, record, superblock};
