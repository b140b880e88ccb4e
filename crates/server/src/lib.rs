//! The redis protocol and HTTP over the key-value engine.
//!
//! A connection reads what its client sent, runs all of it as one pipeline (on the engine's writer if any command
//! writes, else where it is) and sends the replies in one write. The only crate with an async runtime.
#![forbid(unsafe_code)]

pub mod array;
mod backing;
mod clients;
mod commands;
mod connection;
mod counters;
mod error;
mod http;
mod metrics;
mod needs;
mod options;
mod output;
mod pipeline;
mod queue;
mod resolved;
pub mod resp;
mod run;
mod server;
mod session;
mod shared;

pub use error::{Error, Result};
pub use kv::parallel_wal::WalMode;
pub use options::{Durability, ServeOptions};
pub use run::run;
pub use server::Server;
