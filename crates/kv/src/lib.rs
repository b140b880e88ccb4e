//! The key-value engine: commands of the redis protocol executed over an ordered store, written durably side by side.
//!
//! ```text
//!  connections ── Work (one pipeline) ──> schedule: whose keys are free ──> a writer: run each on a Txn (overlay over the store)
//!       │                                     ^                               the overlay as one batch, on its way with others
//!       │                                     └──── keys are free again <──── written: answer everyone
//!       └── read-only pipelines: Engine::read on any thread
//! ```
//!
//! [`execute`] is pure: a command, its words, a [`Txn`] and an [`Answer`] to write the reply to. All the threads
//! and all the waiting are in [`Engine`].
#![forbid(unsafe_code)]

mod answer;
mod args;
mod command;
mod cursor;
mod engine;
mod error;
mod expiry;
mod glob;
mod memory;
mod number;
mod overlay;
pub mod parallel_wal;
mod record;
mod retry;
mod rocks_store;
mod store;
mod txn;
mod watch;

pub use answer::{Answer, Reply};
pub use args::{Args, Span};
pub use command::{COMMANDS, Command, Keys, Spec, execute, find};
pub use engine::{Claims, Durability, Engine, EngineOptions, Stats, Work};
pub use error::{Error, ErrorKind, Result};
pub use glob::glob;
pub use memory::MemoryStore;
pub use number::{parse_decimal, parse_integer};
pub use overlay::Overlay;
pub use record::{Expiry, HEADER_LEN, Record, RecordHeader, RecordRef};
pub use rocks_store::{RocksStore, RocksStoreOptions};
pub use store::{Batching, LogStats, Room, Store, Visit, Writing};
pub use txn::{Limits, Refusal, Txn};
pub use watch::Watch;
