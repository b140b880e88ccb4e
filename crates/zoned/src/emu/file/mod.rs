//! `emu:PATH`: a drive in a sparse file.
//!
//! Unflushed writes stay in this process's memory and go to the file at a flush, so that killing the process is a
//! true power cut. The file itself survives the host's: see [`format`] for the bytes and [`flush`] for the order
//! of writes.

pub(super) mod drive;
pub(super) mod flush;
pub(super) mod flusher;
pub(super) mod format;
#[cfg(test)]
mod tests;
