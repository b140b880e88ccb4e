//! Newtypes for sizes and addresses, and the [`Driver`] trait for time, sleep, spawn and random numbers, with a real
//! and a virtual implementation.
#![forbid(unsafe_code)]

mod checksum;
mod driver;
mod random;
mod reactor;
mod real;
mod rules;
mod size;
pub mod sync;
mod task;
mod time;
mod virt;

pub use checksum::{crc32c, scrambled};
pub use driver::{BoxFuture, Driver, Parker, block_on, sleep_until};
pub use random::SplitMix64;
pub use reactor::{Reactor, install_reactor, remove_reactor};
pub use real::RealDriver;
pub use size::{Blocks, Bytes, Lba, ZoneId};
pub use task::{Spawned, spawn};
pub use time::Instant;
pub use virt::VirtualDriver;
