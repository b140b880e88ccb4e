//! The Redis protocol (RESP): the parser of requests and the encoder of replies.

mod reply;
mod request;

pub use reply::Encoder;
pub use request::{Parser, ParserLimits, ProtocolError, Requests};
