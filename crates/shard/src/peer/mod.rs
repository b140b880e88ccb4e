//! The messages between replicas of a group, their bytes, and the network that carries them.

mod codec;
mod members;
mod message;
mod raft;

#[cfg(any(test, feature = "fuzzing"))]
pub use self::codec::fuzz_message;
pub use self::message::{Answer, PeerMessage, Peers, RecordName, Request, RequestId};
