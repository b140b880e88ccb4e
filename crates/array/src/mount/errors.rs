//! Errors of a mount, and the drives that a mount leaves out because of them.

use std::sync::Arc;

use zoned::{Error, ErrorKind, Result};

use crate::degraded::errors::fails_the_drive;
use crate::layout::Slot;

/// Why a mount leaves out a drive that is present.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Unusable {
    /// The metadata of the drive cannot be read in full.
    Unreadable,
    /// The drive takes no writes: no metadata zone takes the next checkpoint, or an earlier try of this mount failed.
    Unwritable,
}

impl Unusable {
    /// The reason for leaving out a drive, for a list of missing drives.
    pub(crate) fn short_reason(self) -> &'static str {
        match self {
            Unusable::Unreadable => "cannot read its metadata",
            Unusable::Unwritable => "takes no writes",
        }
    }

    /// The reason for leaving out a drive, and the remedy, for a check's report.
    pub(crate) fn reason_and_remedy(self) -> &'static str {
        match self {
            Unusable::Unreadable => {
                "the metadata log cannot be read in full: a mount works without the drive; replace the drive, by itself or by another one"
            }
            Unusable::Unwritable => {
                "no metadata zone takes another checkpoint: a mount works without the drive; replace the drive"
            }
        }
    }
}

/// The error that stopped a mount, and the drive whose operation failed, if one did.
#[derive(Debug)]
pub(crate) struct MountError {
    pub slot: Option<Slot>,
    pub error: Error,
}

/// Names the drive of an error. An explicit conversion instead of `From`: a `?` must not drop the slot unnoticed.
pub(crate) trait FromDrive<T> {
    /// Says that an operation of the drive in `slot` failed.
    fn of(self, slot: Slot) -> Result<T, MountError>;
    /// Says that the array as a whole cannot be mounted.
    fn of_array(self) -> Result<T, MountError>;
}

impl<T> FromDrive<T> for Result<T> {
    fn of(self, slot: Slot) -> Result<T, MountError> {
        self.map_err(|error| MountError { slot: Some(slot), error })
    }

    fn of_array(self) -> Result<T, MountError> {
        self.map_err(|error| MountError { slot: None, error })
    }
}

/// The first of several drives' failures.
pub(crate) fn first_failure(failures: Vec<(Slot, Error)>) -> Result<(), MountError> {
    failures.into_iter().next().map_or(Ok(()), |(slot, error)| Err(error).of(slot))
}

/// True if the error means that the mount cannot use the drive. An error of the host (no memory, no
/// permission), or an operation that the array should not have submitted, does not mean that.
pub(crate) fn is_drive_fault(kind: ErrorKind) -> bool {
    fails_the_drive(kind) || is_zone_state(kind) || matches!(kind, ErrorKind::Media | ErrorKind::Damaged)
}

/// True if the error reports the state of a zone. A zone report shows this state too, so that a second try can avoid
/// the zone.
pub(crate) fn is_zone_state(kind: ErrorKind) -> bool {
    matches!(kind, ErrorKind::ZoneReadOnly | ErrorKind::ZoneOffline | ErrorKind::ZoneFull)
}

/// The error of a drive that a mount cannot leave out, because as many drives are missing as there are parities.
pub(crate) fn one_failure_too_many(
    name: &Arc<str>,
    parities: u32,
    lacking: Slot,
    slot: Slot,
    error: &Error,
) -> Error {
    let most = if parities == 1 { "one" } else { "two" };
    Error::new(error.kind(), name, "open").because(format!(
        "drive {} is lacking, and the array does without {most} only, but drive {} failed too: {error}",
        lacking.0, slot.0
    ))
}
