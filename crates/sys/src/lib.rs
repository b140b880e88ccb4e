//! Kernel interfaces for zoned drives: asynchronous requests ([`Engine`]), ioctls of zoned block devices, NVMe
//! commands, and aligned buffers; the memory that a process may have ([`memory`]); and loops that use instructions of the processor at hand ([`gf256`]).
//!
//! This crate has system calls and byte layouts only; the backends in `zoned` keep zone states. `sys`, `abi`,
//! `rocks` and `leveldb` hold all unsafe code of Furrow.

pub mod block;
mod blocking;
mod bounce;
mod buf;
mod engine;
pub mod gf256;
pub mod memory;
pub mod nvme;
mod page_memory;
pub mod priority;
mod request;
mod ring;
mod signals;
pub mod sysfs;
mod threads;
pub mod ublk;

pub use buf::{Buf, BufMut};
pub use engine::{Engine, EngineKind};
pub use page_memory::{Page, PageMemory};
pub use priority::Priority;
pub use request::{Finish, Finished, Request};
#[doc(hidden)]
pub use ring::bare::appends as bare_appends;
pub use signals::{ignore_signals_to_end, pass_signals_on};
