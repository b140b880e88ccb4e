//! The connections between the processes of a cluster. Each process has one [`Network`], which carries the messages of its groups' replicas.
//!
//! ```text
//!   Group -- shard::Peers --> Network -- two queues for each node --> frames over TCP, or TLS --> Network --> Receiver
//!                                                urgent, bulk
//! ```
//!
//! Each process opens two connections to each other one, for small messages and for long ones, and only sends on them: heartbeats never wait behind values. Messages that wait when a connection can be written go as one frame.
//!
//! Floors, from below: `identity`, `frame`; `admission`, `counters`, `error`, `queue`, `socket`, `tls`; `context`; `incoming`, `outgoing`; `network`.
#![forbid(unsafe_code)]

mod admission;
mod context;
mod counters;
mod error;
pub mod frame;
mod identity;
mod incoming;
mod network;
mod outgoing;
mod queue;
mod socket;
mod tls;

pub use context::Receiver;
pub use counters::NetworkCounters;
pub use error::{Error, Result};
pub use identity::ProcessId;
pub use network::{Network, NetworkOptions};
pub use tls::TlsFiles;
