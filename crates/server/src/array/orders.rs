//! The bodies of orders to an array in use.

use serde::{Deserialize, Serialize};

/// `POST /array/fail`: has a member fail.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FailOrder {
    /// The member's slot.
    pub slot: u32,
}

/// `POST /array/replace`: rebuilds onto a new drive in the place of a failed member.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ReplaceOrder {
    /// The failed member's slot.
    pub slot: u32,
    /// The new drive's URL, as the server's machine resolves it.
    pub device: String,
    /// Use the drive even if it holds data.
    #[serde(default)]
    pub force: bool,
    /// Check only whether the drive can be used.
    #[serde(default)]
    pub dry_run: bool,
    /// Most bytes a second that the rebuild writes.
    #[serde(default)]
    pub max_rate: Option<u64>,
}

/// `POST /array/scrub`: compares all parity with its data.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct ScrubOrder {
    /// Rewrite parity that does not fit its data.
    pub repair_parity: bool,
}
