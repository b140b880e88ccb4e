//! NVMe: commands, their encoders, and decoders of what comes back.

mod command;
mod passthrough;

pub use command::Command;
pub(crate) use passthrough::{Data, submit_and_wait};
pub use passthrough::{admin, namespace_of};
