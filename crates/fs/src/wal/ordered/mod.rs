//! The ordered log: one stream of bytes, cut into entries whose sequence numbers are their order.

pub(crate) mod file;
pub(crate) mod fill;
pub(crate) mod flight;
pub(crate) mod read;
pub(crate) mod recover;
pub(crate) mod recovered;
pub(crate) mod sort;
pub(crate) mod state;
pub(crate) mod stream;
#[cfg(test)]
mod tests;
pub(crate) mod writer;

pub use recover::recover;
pub use recovered::{Cut, Recovered};
pub use stream::{MEMORY, ReadStats};
pub use writer::LogWriter;
