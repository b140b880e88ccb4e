//! The key-value engine: executes commands of the Redis protocol over an ordered store, and writes durably.
//!
//! ```text
//!  connections ── Work (one pipeline) ──> schedule: pipelines whose keys are free ──> a writer: runs each on a Txn (overlay over
//!       │                                     ^                                       the store), writes the overlay as one batch
//!       │                                     └──────── the keys are free again <──── durable: Work::writes_are_durable
//!       └── read-only pipelines: Engine::read on the caller's thread
//! ```
//!
//! [`execute`] is pure: a command, its words, a [`Txn`] and an [`Answer`] to write the reply to. Threads and waiting are in
//! [`Engine`]; the log above RocksDB is in [`parallel_wal`].
#![forbid(unsafe_code)]

mod answer;
mod args;
mod command;
mod cursor;
mod engine;
mod error;
mod glob;
mod memory;
mod number;
mod once;
mod overlay;
pub mod parallel_wal;
mod record;
mod rocks_store;
mod room_compaction;
mod slot;
mod store;
mod txn;
mod watch;

pub use answer::{Answer, Reply};
pub use args::{Args, Span};
pub use command::{COMMANDS, Command, Keys, Spec, claim, execute, find, key_places};
pub use engine::{Claims, Durability, Engine, EngineOptions, KeyspaceCounts, Reading, Stats, Work};
pub use error::{Error, ErrorKind, Result};
pub use glob::glob;
pub use memory::MemoryStore;
pub use number::{parse_decimal, parse_integer};
pub use once::{
    ANSWER_MAX, IDS_MAX, OnceId, OnceIds, OnceRecord, OnceTable, OnceWrites, RecordId, RecordedAnswer,
};
pub use overlay::Overlay;
pub use record::{Expiry, HEADER_LEN, Record, RecordHeader, RecordRef};
pub use rocks_store::{RocksStore, RocksStoreOptions};
pub use slot::{SLOTS, key_slot};
pub use store::{LogReport, Room, Store, View, Visit, Writing};
pub use txn::{Limits, Refusal, Txn};
pub use watch::Watch;
