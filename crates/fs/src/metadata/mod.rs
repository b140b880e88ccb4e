//! Metadata: its format, the metadata log, the state that the log describes, and how a mount reads the log.
//!
//! ```text
//!   mount   mkfs   log, roll
//!     replay
//!     -------- over --------
//!     chain   state   format
//! ```

pub(crate) mod chain;
pub(crate) mod format;
pub(crate) mod log;
pub(crate) mod mkfs;
pub(crate) mod mount;
pub(crate) mod replay;
mod roll;
pub(crate) mod state;
