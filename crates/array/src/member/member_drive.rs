//! A drive as the array sees it: its sequential zones.

use std::fmt;
use std::ops::Deref;
use std::sync::Arc;

use zoned::{Error, ErrorKind, Lba, SequentialZones, ZoneId, ZonedDevice};

/// A drive of the array, or one that may become a drive of the array, seen from its first sequential zone on. Zone numbers
/// and addresses count from that zone; a drive without conventional zones is used as it is.
///
/// Every public function that takes drives makes them `MemberDrive`s, and all other functions of the crate take nothing
/// else: no operation of an array reads or writes a conventional zone.
#[derive(Clone)]
pub(crate) struct MemberDrive {
    device: Arc<dyn ZonedDevice>,
    /// The drive's own number of its first sequential zone, and that zone's first block.
    first: ZoneId,
    start: Lba,
}

impl MemberDrive {
    pub(crate) fn new(device: Arc<dyn ZonedDevice>) -> MemberDrive {
        let (first, start) = SequentialZones::origin(device.geometry());
        MemberDrive { device: SequentialZones::of(device), first, start }
    }

    /// The member drives of `devices`, in order.
    pub(crate) fn all(devices: &[Arc<dyn ZonedDevice>]) -> Vec<MemberDrive> {
        devices.iter().map(|device| MemberDrive::new(Arc::clone(device))).collect()
    }

    /// A member drive with the zone numbers of `self`, whose operations go to `device`. `device` passes them on to `self`: a drive
    /// of a dry run, for example.
    pub(crate) fn through(&self, device: Arc<dyn ZonedDevice>) -> MemberDrive {
        MemberDrive { device, ..*self }
    }

    /// True if both are the same opened drive, seen as it is.
    pub(crate) fn is(&self, other: &MemberDrive) -> bool {
        Arc::ptr_eq(&self.device, &other.device)
    }

    /// The drive's own number of `zone`, for people: other tools show this number.
    pub(crate) fn own_zone(&self, zone: ZoneId) -> ZoneId {
        ZoneId(zone.0.saturating_add(self.first.0))
    }

    /// An error of `operation` on the drive. The error takes the array's numbers, and its message has the drive's own.
    pub(crate) fn error(&self, kind: ErrorKind, operation: &'static str) -> Error {
        Error::new(kind, &self.device.geometry().name, operation).counted_from(self.first, self.start)
    }
}

impl Deref for MemberDrive {
    type Target = dyn ZonedDevice;

    fn deref(&self) -> &Self::Target {
        &*self.device
    }
}

impl fmt::Debug for MemberDrive {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.device.fmt(f)
    }
}
