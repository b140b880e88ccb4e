//! The functions of `cpp/furrow_abi.h`, which the C++ shim calls. Each function only converts arguments and results.
//! A panic becomes an I/O error and never crosses into C++.

mod dir;
#[cfg(feature = "shim")]
mod engine;
mod file;
mod logic;
mod recovery;
mod status;

pub use dir::{FurrowFs, FurrowLock, FurrowStat};
pub use file::{FurrowReader, FurrowWriter};
pub use status::FurrowStatus;
