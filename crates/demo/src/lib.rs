//! Demonstrations of crash safety, as a user would run them: the `furrow` program is started as processes of its own,
//! records are written by the redis protocol, processes are killed and drives fail, and every acknowledged record is
//! read back.
//!
//! ```text
//!   power_cut   array          the two demonstrations
//!   load                       writes records, and compares them
//!   server                     `furrow serve`
//!   program  resp  packages  own_files  report
//! ```
#![forbid(unsafe_code)]

mod array;
mod load;
mod own_files;
mod packages;
mod power_cut;
mod program;
mod report;
mod resp;
mod server;

pub use array::{ArrayDemo, ArrayOutcome};
pub use power_cut::{PowerCutDemo, PowerCutOutcome};
pub use report::Report;
