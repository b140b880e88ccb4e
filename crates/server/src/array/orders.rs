//! The JSON bodies of the HTTP orders to an array in use.

use serde::{Deserialize, Serialize};

/// `POST /array/fail`: makes the array treat a member as failed.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FailOrder {
    /// Slot of the member to fail.
    pub slot: u32,
}

/// `POST /array/replace`: rebuilds a failed member onto a new drive.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ReplaceOrder {
    /// Slot of the failed member.
    pub slot: u32,
    /// The new drive's URL, as the server's machine resolves it.
    pub device: String,
    /// Use the drive even if it holds data.
    #[serde(default)]
    pub force: bool,
    /// Only check whether the drive can be used.
    #[serde(default)]
    pub dry_run: bool,
    /// Limit on the rebuild's writes in bytes per second.
    #[serde(default)]
    pub max_rate: Option<u64>,
}

/// `POST /array/add-spare`: makes a drive an idle spare.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct AddSpareOrder {
    /// The drive's URL, as the server's machine resolves it.
    pub device: String,
    /// Use the drive even if it holds data.
    #[serde(default)]
    pub force: bool,
    /// Only check whether the drive can be used.
    #[serde(default)]
    pub dry_run: bool,
}

/// `POST /array/remove-spare`: gives up an idle spare.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RemoveSpareOrder {
    /// The spare: the name of its drive, or its UUID if the drive is missing.
    pub spare: String,
}

/// `POST /array/reclaim`: frees physical zones that hold garbage.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct ReclaimOrder {
    /// The number of empty physical zones that each drive is to have; none: as many as there can be.
    pub empty: Option<u32>,
}

/// `POST /array/scrub`: compares all parity with its data.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct ScrubOrder {
    /// Rewrite parity that does not fit its data.
    pub repair_parity: bool,
}
