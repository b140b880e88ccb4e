//! The kernel's side of a zoned drive: operations that the kernel completes ([`Engine`]), the ioctls of zoned block
//! devices, NVMe commands, and the aligned buffers that they read and write.
//!
//! This crate knows system calls and byte layouts, and nothing of zones' states: the backends in `zoned` do. With
//! `rocks` it holds all of Furrow's unsafe code; each block says why it is sound.

pub mod block;
mod blocking;
mod bounce;
mod buf;
mod engine;
pub mod nvme;
mod ring;
pub mod sysfs;
mod threads;

pub use buf::{Buf, BufMut};
pub use engine::{Engine, EngineKind, Finish, Finished, Request};
#[doc(hidden)]
pub use ring::bare::appends as bare_appends;
