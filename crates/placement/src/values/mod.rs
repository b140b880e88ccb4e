//! The values in etcd: JSON objects without unknown fields, each decoded to a value whose rules hold, or to an error.

pub mod drain;
mod json;
pub mod liveness;
pub mod meta;
pub mod node;
pub mod plan;
pub mod seen;
pub mod slot_map;
