//! The metadata logs: what a checkpoint holds, and the move of a log to a fresh metadata zone.

pub(crate) mod roll;
