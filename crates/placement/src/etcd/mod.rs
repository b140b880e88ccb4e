//! The client of etcd.

pub mod client;
mod credentials;
pub mod election;
pub mod joined;
mod lease;
mod request;
pub mod settings;
pub mod watch;
