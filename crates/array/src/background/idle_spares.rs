//! The idle spares of an array whose drives are present.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use parking_lot::Mutex;
use units::sync::Turnstile;
use uuid::Uuid;
use zoned::ZoneId;

use crate::member::member_drive::MemberDrive;

use crate::RebuildOptions;

/// The metadata zone of an idle spare that holds its mark, a superblock.
pub(super) const MARK_ZONE: ZoneId = ZoneId(0);

/// A drive that takes the place of a failed one.
pub(crate) struct IdleSpare {
    pub uuid: Uuid,
    pub device: MemberDrive,
}

/// The idle spares whose drives are present, in the order in which they are taken.
#[derive(Default)]
pub(crate) struct IdleSpares {
    present: Mutex<Vec<IdleSpare>>,
    /// Spares that were taken for a vacated slot, and are to be idle again because another drive has to be replaced first.
    returned: Mutex<Vec<MemberDrive>>,
    /// Settings of the rebuilds onto spares.
    pub options: RebuildOptions,
    /// True once a task replaces failed drives by spares.
    watched: AtomicBool,
    /// Held while a spare is added, removed or taken.
    pub turn: Turnstile,
}

impl IdleSpares {
    pub(crate) fn new(present: Vec<IdleSpare>, options: RebuildOptions) -> IdleSpares {
        IdleSpares { present: Mutex::new(present), options, ..IdleSpares::default() }
    }

    /// True if the drive of a spare is present.
    pub(crate) fn any(&self) -> bool {
        !self.present.lock().is_empty()
    }

    pub(crate) fn push(&self, spare: IdleSpare) {
        self.present.lock().push(spare);
    }

    /// True if `device` is an idle spare.
    pub(crate) fn has(&self, device: &MemberDrive) -> bool {
        self.present.lock().iter().any(|spare| spare.device.is(device))
    }

    /// Takes the first spare.
    pub(crate) fn take_first(&self) -> Option<IdleSpare> {
        let mut present = self.present.lock();
        if present.is_empty() { None } else { Some(present.remove(0)) }
    }

    /// Takes the spare with this identity.
    pub(crate) fn take(&self, uuid: Uuid) -> Option<IdleSpare> {
        let mut present = self.present.lock();
        let at = present.iter().position(|spare| spare.uuid == uuid)?;
        Some(present.remove(at))
    }

    /// The drive's name of the spare with this identity, if the drive is present.
    pub(crate) fn device_name(&self, uuid: Uuid) -> Option<Arc<str>> {
        let present = self.present.lock();
        let spare = present.iter().find(|spare| spare.uuid == uuid)?;
        Some(Arc::clone(&spare.device.geometry().name))
    }

    /// Gives back a spare that was taken for a vacated slot.
    pub(crate) fn give_back(&self, device: MemberDrive) {
        self.returned.lock().push(device);
    }

    /// Takes a spare that was given back.
    pub(crate) fn take_returned(&self) -> Option<MemberDrive> {
        self.returned.lock().pop()
    }

    /// True for the first caller: it starts the task that replaces failed drives.
    pub(crate) fn begin_watch(&self) -> bool {
        !self.watched.swap(true, Ordering::AcqRel)
    }
}
