//! `emu:PATH`: a drive in a sparse file.
//!
//! Unflushed writes stay in this process's memory and go to the file at a flush, so killing the process acts as a
//! power cut of the drive. The order of writes in [`flush`] keeps the file valid if the host loses power. [`mod@format`]
//! describes the bytes.

pub(super) mod drive;
pub(super) mod flush;
pub(super) mod flusher;
pub(super) mod format;
pub(super) mod open;
#[cfg(test)]
mod tests;
