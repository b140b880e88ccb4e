//! Measurements of Furrow's layers. Each compares with something in the same run: a number alone says more about
//! the machine than about the code.
#![forbid(unsafe_code)]

pub mod array;
mod clock;
pub mod cluster;
pub mod contract;
mod counted;
pub mod device;
mod drive;
mod error;
pub mod file_log;
mod host;
pub mod kv;
mod latency;
mod load;
pub mod recovery;
mod scratch;
pub mod share;
pub mod stage;
pub mod turns;
pub mod wal;
pub mod ycsb;

pub use clock::Clock;
pub use counted::{Counted, Counts};
pub use drive::Drive;
pub use error::{Error, Result};
pub use host::Host;
pub use latency::{Latencies, Recorder};
pub use load::KindOutcome;
pub use scratch::Scratch;
