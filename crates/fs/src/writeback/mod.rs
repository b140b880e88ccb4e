//! Write-back: appended bytes stay in memory, and are written to the device by a task of the mount, or by a caller that needs them there.
//!
//! ```text
//!   append --> room for the bytes (zones/room) --> admission (dirty) --> files/pages
//!   task (tasks): a full buffer, 5 s, an eighth of the cache --+
//!   sync, rename, link, unmount -------------------------------+--> write_out: place, record of the extents
//! ```
//!
//! Only a mount with a page cache in the mode `Buffered` has a [`dirty::DirtyBytes`]. Without one, the append that fills a buffer writes the buffer,
//! and the end of writing the rest.

pub(crate) mod dirty;
mod spare;
pub(crate) mod tasks;
pub(crate) mod write_out;
