//! A new drive whose rebuild a restart interrupted.

use std::sync::Arc;

use zoned::ZonedDevice;

use crate::layout::Slot;
use crate::member::log_contents::LogContents;

/// A new drive whose rebuild a restart interrupted.
pub(crate) struct Candidate {
    pub slot: Slot,
    pub device: Arc<dyn ZonedDevice>,
    pub log: LogContents,
}
