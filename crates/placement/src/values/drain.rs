//! A node from which its replicas are to go: the value of a key `draining/UUID`.

use serde::{Deserialize, Serialize};

use super::json;
use crate::value_error::ValueError;

/// An operator's word that a node is to have no replicas.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Drain {
    /// The node is gone for good: it leaves the cluster once no group has a replica there.
    pub is_last: bool,
}

/// The fields in etcd.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Fields {
    is_last: bool,
}

impl Drain {
    /// The value in `bytes`.
    ///
    /// # Errors
    /// [`ValueError`]: no such fields.
    pub fn decode(bytes: &[u8]) -> Result<Drain, ValueError> {
        let Fields { is_last } = json::decode(bytes)?;
        Ok(Drain { is_last })
    }

    /// The value's bytes.
    pub fn encode(&self) -> Vec<u8> {
        json::encode(&Fields { is_last: self.is_last })
    }
}
