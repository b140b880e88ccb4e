//! Exports: any zoned device as a zoned block device of the kernel, by ublk (Linux 6.6 or newer).
//!
//! ```text
//!   Export      adds, starts, takes over and stops a block device
//!   exports     the block devices of all servers: to list, and to stop by their server
//!   served      the queues that are served
//!   queue       one thread for each queue: requests in, outcomes out
//!   service     a request becomes operations of the device; errno, zones, limits translate
//!   driver      the kernel's ublk driver, or words for what it lacks; its devices that are exports
//! ```
//!
//! docs/export.md says what a block device keeps of the device contract.
#![forbid(unsafe_code)]

mod block_device;
mod driver;
mod errno;
mod export;
mod exports;
mod limits;
mod queue;
mod record;
mod served;
mod service;

pub use export::{Export, ExportOptions};
pub use exports::{ExportInfo, ServerState, await_server_end, list, stop};
pub use sys::ublk::UblkId;
