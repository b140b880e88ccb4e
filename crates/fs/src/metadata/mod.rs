//! Metadata: its format, the log that holds it, the state that the log describes, and how a mount reads it.

pub(crate) mod chain;
pub(crate) mod format;
pub(crate) mod meta;
pub(crate) mod mkfs;
pub(crate) mod mount;
pub(crate) mod replay;
pub(crate) mod state;
