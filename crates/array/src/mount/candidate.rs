//! A new drive whose rebuild a restart interrupted.

use crate::layout::Slot;
use crate::member::log_contents::LogContents;
use crate::member::member_drive::MemberDrive;

/// A new drive whose rebuild a restart interrupted.
pub(crate) struct Candidate {
    pub slot: Slot,
    pub device: MemberDrive,
    pub log: LogContents,
}
