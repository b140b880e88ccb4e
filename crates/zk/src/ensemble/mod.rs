//! The client of ZooKeeper's AdminServer, over HTTP.
//!
//! `admin_server` asks, over connections of `connector`; `answer` takes fields out of answers; `address` and `credentials` are the values that a user gives; `error` lies below all.

mod address;
mod admin_server;
mod answer;
mod connector;
mod credentials;
mod error;

pub use address::ServerAddress;
pub use admin_server::{AdminServer, SnapshotTaken};
pub use answer::Answer;
pub(crate) use answer::shortened;
pub use credentials::Credentials;
pub use error::AskError;
