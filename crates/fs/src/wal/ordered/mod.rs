//! The ordered log: one stream of bytes in entries with sequence numbers. A gap in the sequence numbers ends the log.

pub(crate) mod buffer;
pub(crate) mod file;
mod in_place;
pub(crate) mod operations;
pub(crate) mod read;
pub(crate) mod recover;
pub(crate) mod recovered;
pub(crate) mod sort;
pub(crate) mod state;
pub(crate) mod stream;
mod sync_way;
#[cfg(test)]
mod tests;
pub(crate) mod writer;

pub use buffer::LogIdentity;
pub use recover::recover;
pub use recovered::{Cut, Recovered};
pub use stream::{MEMORY, ReadStats};
pub use writer::LogWriter;
