//! Mounts by URL for programs and libraries that know a drive by its URL alone: the first request mounts, later ones of the process share the mount, and the last
//! one to go unmounts.
//!
//! ```text
//!   mount                one mount for each device URL, shared in the process
//!   settings  counters   what the environment says
//!   open_logs            logs of programs that end without closing them
//!   fork                 children of a process that has mounted a drive
//!   error                why a mount failed, with the remedy
//! ```

mod counters;
mod error;
mod fork;
mod mount;
mod open_logs;
mod settings;

pub use error::{Error, ErrorKind, Result};
pub use fork::is_forked;
pub use mount::{Mount, mount, unmount_all};
pub use open_logs::OpenLogs;
