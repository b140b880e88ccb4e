//! The redis protocol: requests in, replies out.

mod reply;
mod request;

pub use reply::Encoder;
pub use request::{Parser, ParserLimits, ProtocolError, Requests};
