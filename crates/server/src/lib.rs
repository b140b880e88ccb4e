//! The server: the Redis protocol and HTTP over the key-value engine. This is the only crate with an async runtime.
//!
//! ```text
//!  Stream --> resp::Parser --> Pipeline: the commands of one read, run in turns
//!                                |  reads: here or on a reader thread      writes: on one of the engine's writers
//!                                |  up to 256 KiB of replies, then the client takes them before the next command
//!                                v
//!  Stream <-- resp::Encoder      a reply beyond 1 MiB needs a reservation from the OutputBudget over all clients
//! ```
//!
//! A [`Stream`](stream::Stream) is a client's socket, or TLS over the socket after the handshake.
//!
//! A node of a cluster ([`cluster`]) has an engine for each group: a turn is a run of commands of one group, and waits while the
//! group has no leader.
//!
//! A connection reads the bytes that its client sent, and runs the whole commands among them as one pipeline. The writes of
//! one turn become one batch of the engine. The commands of a transaction run within one turn, at EXEC.
#![forbid(unsafe_code)]

pub mod array;
mod backing;
mod client_tls;
mod clients;
pub mod cluster;
mod cluster_turn;
mod commands;
mod connection;
mod connection_end;
mod counters;
mod descriptors;
mod end_signals;
mod engine_turn;
mod engines;
mod error;
mod gather;
mod handshake;
mod http;
mod metrics;
mod needs;
mod options;
mod output;
mod owned_words;
mod pipeline;
mod queue;
mod recent_reads;
mod resolved;
pub mod resp;
mod run;
mod server;
mod session;
mod shared;
mod stream;
mod tls_stream;
mod turn;

pub use client_tls::ClientTlsFiles;
pub use end_signals::{EndRequest, EndWatch};
pub use error::{Error, Result};
pub use http::ArrayPages;
pub use kv::parallel_wal::WalMode;
pub use options::{Durability, ServeOptions};
pub use run::{OpenDrive, open_drive, run};
pub use server::{Server, Stopper};
