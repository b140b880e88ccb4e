//! A node's sign of life: the value of a key `alive/UUID`, which etcd deletes when the node's lease ends.

use serde::{Deserialize, Serialize};

use super::json;
use crate::value_error::ValueError;

/// The process that keeps a node's lease alive.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Liveness {
    /// The counter of starts of that process.
    pub starts: u64,
}

impl Liveness {
    /// The value in `bytes`.
    ///
    /// # Errors
    /// [`ValueError`]: no such field.
    pub fn decode(bytes: &[u8]) -> Result<Liveness, ValueError> {
        json::decode(bytes)
    }

    /// The value's bytes.
    pub fn encode(&self) -> Vec<u8> {
        json::encode(self)
    }
}
