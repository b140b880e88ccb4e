//! Drives that are there and that a mount goes on without: their metadata cannot be read, or they take no writes.
//!
//! A mount that a drive stops begins once more without it, where all the others are there: that is recorded on them
//! before anything else is done, as for a missing one (`loss`). The first try has done what a mount does that a cut
//! ended: the old epoch counts until the new one is whole on all drives, what was repaired is so still when it is looked
//! at again, and the drive may be lost after the cut. Nothing of the first try is in flight when the second one begins.

use std::sync::Arc;

use zoned::{Error, ErrorKind, Result, ZonedDevice};

use crate::OpenOptions;
use crate::background::rebuild::Candidate;
use crate::core::Core;
use crate::degraded::failure::fails_the_drive;
use crate::layout::Slot;
use crate::metrics::add;
use crate::mount::gather::Mount;
use crate::mount::log_contents;

/// Why a drive that is there is left out.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum LeftOut {
    /// Its metadata cannot be read in full.
    Unreadable,
    /// It takes no writes: none of its metadata zones can hold the next checkpoint, or a try of this mount failed.
    Unwritable,
}

impl LeftOut {
    /// What is said of it beside those that are missing.
    pub(crate) fn briefly(self) -> &'static str {
        match self {
            LeftOut::Unreadable => "cannot read its metadata",
            LeftOut::Unwritable => "takes no writes",
        }
    }

    /// What a check says of it.
    pub(crate) fn in_full(self) -> &'static str {
        match self {
            LeftOut::Unreadable => {
                "what its metadata log says cannot be read in full: a mount goes on without it; replace it, by itself or another"
            }
            LeftOut::Unwritable => {
                "none of its metadata zones takes another checkpoint: a mount goes on without it; replace it"
            }
        }
    }
}

/// Why a mount does not go on, and the drive whose operation failed, where it is one's.
#[derive(Debug)]
pub(crate) struct Stopped {
    pub slot: Option<Slot>,
    pub error: Error,
}

/// Says whose operation failed. No `From`: crates above leave it to the compiler what an error becomes.
pub(crate) trait OfDrive<T> {
    /// That of a drive.
    fn of(self, slot: Slot) -> Result<T, Stopped>;
    /// Nobody's.
    fn of_none(self) -> Result<T, Stopped>;
}

impl<T> OfDrive<T> for Result<T> {
    fn of(self, slot: Slot) -> Result<T, Stopped> {
        self.map_err(|error| Stopped { slot: Some(slot), error })
    }

    fn of_none(self) -> Result<T, Stopped> {
        self.map_err(|error| Stopped { slot: None, error })
    }
}

/// The first failure of several drives' operations.
pub(crate) fn all_of(failures: Vec<(Slot, Error)>) -> Result<(), Stopped> {
    failures.into_iter().next().map_or(Ok(()), |(slot, error)| Err(error).of(slot))
}

/// Whether an error of a mount says that the drive is of no use. One of the machine (no memory, interrupted, no
/// permission) does not, nor does one that says that the array asked for what it must not.
pub(crate) fn blames_the_drive(kind: ErrorKind) -> bool {
    fails_the_drive(kind) || wears(kind) || matches!(kind, ErrorKind::Media | ErrorKind::Damaged)
}

/// Whether an error says what became of a zone. A report tells that too: the next try may do with it.
fn wears(kind: ErrorKind) -> bool {
    matches!(kind, ErrorKind::ZoneReadOnly | ErrorKind::ZoneOffline | ErrorKind::ZoneFull)
}

/// Assembles the array that `devices` are members of, without one that stops it.
pub(crate) async fn assemble(
    devices: Vec<Arc<dyn ZonedDevice>>,
    options: OpenOptions,
) -> Result<(Arc<Core>, Option<Candidate>)> {
    let mut refused = None;
    // A drive that has gone does not answer the next time: it is missing then.
    let mut patience = devices.len();
    let mut looked_again = false;
    loop {
        let claims = log_contents::claims(devices.clone()).await?;
        let mount = match Mount::gather(claims, options.clone(), refused).await {
            Ok(mount) => mount,
            Err(Stopped { slot: Some(_), error }) if fails_the_drive(error.kind()) && patience > 0 => {
                tracing::warn!(%error, "a drive was lost while it was read: once more");
                patience -= 1;
                continue;
            }
            Err(Stopped { error, .. }) => return Err(error),
        };
        let lacking = mount.lacking();
        let name = Arc::clone(&mount.name);
        let Stopped { slot, error } = match mount.start().await {
            Ok((core, candidate)) => {
                add(&core.tally.drive_failures, u64::from(refused.is_some()));
                return Ok((core, candidate));
            }
            Err(stopped) => stopped,
        };
        let Some(slot) = slot.filter(|_| blames_the_drive(error.kind())) else { return Err(error) };
        if wears(error.kind()) && !looked_again {
            tracing::warn!(slot = slot.0, %error, "a zone takes no more: the drives are looked at again");
            looked_again = true;
            continue;
        }
        if let Some(lacking) = lacking {
            return Err(second(&name, lacking, slot, &error));
        }
        tracing::error!(slot = slot.0, %error, "a drive failed while the array was opened: it goes on without it");
        refused = Some(slot);
    }
}

/// The error of a drive that cannot be left out, as another one is lacking.
fn second(name: &Arc<str>, lacking: Slot, slot: Slot, error: &Error) -> Error {
    Error::new(error.kind(), name, "open").because(format!(
        "drive {} is lacking, and the array does without one only, but drive {} failed too: {error}",
        lacking.0, slot.0
    ))
}

impl Core {
    /// What the end of a mount does with a drive that stops it: the array is assembled, and goes on without it as one in use.
    pub(crate) async fn goes_on(self: &Arc<Core>, done: Result<(), Stopped>) -> Result<()> {
        let Err(Stopped { slot, error }) = done else { return Ok(()) };
        let Some(slot) = slot.filter(|_| blames_the_drive(error.kind())) else { return Err(error) };
        match self.members.iter().find(|member| !member.is_good() && member.slot != slot) {
            Some(lacking) => Err(second(&self.geometry.name, lacking.slot, slot, &error)),
            None => self.fail(slot, &error).await,
        }
    }
}

impl Mount {
    /// The slot that has no drive.
    fn lacking(&self) -> Option<Slot> {
        (0..).map(Slot).zip(&self.present).find(|(_, place)| place.is_none()).map(|(slot, _)| slot)
    }
}
