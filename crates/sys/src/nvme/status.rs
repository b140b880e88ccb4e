//! Status codes of NVMe commands that failed.

use std::fmt;

use super::STATUS_MASK;

/// An NVMe command's status: code and code type, without "more" and "do not retry". Zero is success.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct Status(pub u16);

/// Meaning of a status.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[non_exhaustive]
pub enum StatusKind {
    /// The command succeeded.
    Success,
    /// The device does not know the command's opcode.
    InvalidOpcode,
    /// A field of the command is invalid: also for an append above the append limit.
    InvalidField,
    /// The namespace does not exist, or its format does not support the command.
    InvalidNamespace,
    /// The command addresses blocks beyond the namespace's end.
    OutOfRange,
    /// A write or read crosses a zone's boundary, or the zone's capacity.
    ZoneBoundary,
    /// The zone is full.
    ZoneFull,
    /// The zone is read-only: it takes no more writes, ever.
    ZoneReadOnly,
    /// The zone is gone.
    ZoneOffline,
    /// A write does not begin at the zone's write pointer.
    ZoneInvalidWrite,
    /// The command would exceed the limit of active zones.
    TooManyActive,
    /// The command would exceed the limit of open zones.
    TooManyOpen,
    /// The zone's state does not allow the zone action.
    InvalidTransition,
    /// The medium refused a write.
    WriteFault,
    /// The medium cannot return the data of a read.
    UnrecoveredRead,
    /// End-to-end protection found the data corrupt.
    Protection,
    /// A read of blocks that were never written, on a device that refuses it.
    Unwritten,
    /// The device denies access, or is locked.
    Denied,
    /// The namespace is write-protected.
    WriteProtected,
    /// The device is not ready, or busy with a format or a sanitize: a later attempt may succeed.
    NotReady,
    /// The command was aborted: whether it took effect is unknown.
    Aborted,
    /// The command's data did not arrive: whether the command took effect is unknown.
    Transfer,
    /// The path to the device failed: whether the command took effect is unknown.
    Path,
    /// An internal error of the device. Drivers also return this for errors that they cannot translate.
    Internal,
    /// Anything else.
    Other,
}

use StatusKind as Kind;

/// The NVMe statuses that Furrow distinguishes, with their names in the specifications.
const KNOWN_STATUSES: &[(u16, Kind, &str)] = &[
    (0x000, Kind::Success, "success"),
    (0x001, Kind::InvalidOpcode, "invalid command opcode"),
    (0x002, Kind::InvalidField, "invalid field in command"),
    (0x003, Kind::InvalidField, "command id conflict"),
    (0x004, Kind::Transfer, "data transfer error"),
    (0x005, Kind::Aborted, "aborted: power loss"),
    (0x006, Kind::Internal, "internal error"),
    (0x007, Kind::Aborted, "abort requested"),
    (0x008, Kind::Aborted, "aborted: queue deleted"),
    (0x009, Kind::Aborted, "aborted: fused command failed"),
    (0x00a, Kind::Aborted, "aborted: fused command missing"),
    (0x00b, Kind::InvalidNamespace, "invalid namespace or format"),
    (0x00c, Kind::InvalidField, "command sequence error"),
    (0x00d, Kind::InvalidField, "invalid SGL segment descriptor"),
    (0x00e, Kind::InvalidField, "invalid number of SGL descriptors"),
    (0x00f, Kind::InvalidField, "data SGL length invalid"),
    (0x010, Kind::InvalidField, "metadata SGL length invalid"),
    (0x011, Kind::InvalidField, "SGL descriptor type invalid"),
    (0x013, Kind::InvalidField, "PRP offset invalid"),
    (0x014, Kind::InvalidField, "atomic write unit exceeded"),
    (0x015, Kind::Denied, "operation denied"),
    (0x01b, Kind::Aborted, "aborted: preempted"),
    (0x01c, Kind::NotReady, "sanitize failed"),
    (0x01d, Kind::NotReady, "sanitize in progress"),
    (0x020, Kind::WriteProtected, "namespace is write protected"),
    (0x021, Kind::Aborted, "command interrupted"),
    (0x022, Kind::Path, "transient transport error"),
    (0x023, Kind::Denied, "command prohibited by lockdown"),
    (0x024, Kind::NotReady, "media not ready"),
    (0x080, Kind::OutOfRange, "LBA out of range"),
    (0x081, Kind::OutOfRange, "capacity exceeded"),
    (0x082, Kind::NotReady, "namespace not ready"),
    (0x083, Kind::Denied, "reservation conflict"),
    (0x084, Kind::NotReady, "format in progress"),
    (0x180, Kind::InvalidField, "conflicting attributes"),
    (0x181, Kind::InvalidField, "invalid protection information"),
    (0x182, Kind::WriteProtected, "attempted write to read-only range"),
    (0x183, Kind::InvalidField, "command size limit exceeded"),
    (0x1b8, Kind::ZoneBoundary, "zoned boundary error"),
    (0x1b9, Kind::ZoneFull, "zone is full"),
    (0x1ba, Kind::ZoneReadOnly, "zone is read only"),
    (0x1bb, Kind::ZoneOffline, "zone is offline"),
    (0x1bc, Kind::ZoneInvalidWrite, "zone invalid write"),
    (0x1bd, Kind::TooManyActive, "too many active zones"),
    (0x1be, Kind::TooManyOpen, "too many open zones"),
    (0x1bf, Kind::InvalidTransition, "invalid zone state transition"),
    (0x280, Kind::WriteFault, "write fault"),
    (0x281, Kind::UnrecoveredRead, "unrecovered read error"),
    (0x282, Kind::Protection, "end-to-end guard check error"),
    (0x283, Kind::Protection, "end-to-end application tag check error"),
    (0x284, Kind::Protection, "end-to-end reference tag check error"),
    (0x285, Kind::Other, "compare failure"),
    (0x286, Kind::Denied, "access denied"),
    (0x287, Kind::Unwritten, "deallocated or unwritten block"),
    (0x300, Kind::Path, "internal path error"),
    (0x301, Kind::Path, "asymmetric access: persistent loss"),
    (0x302, Kind::Path, "asymmetric access: inaccessible"),
    (0x303, Kind::Path, "asymmetric access: transition"),
    (0x360, Kind::Path, "controller pathing error"),
    (0x370, Kind::Path, "host pathing error"),
    (0x371, Kind::Aborted, "aborted by the host"),
];

impl Status {
    /// The status in a completion's status field: only code and type are kept.
    pub fn new(raw: u16) -> Status {
        Status(raw & STATUS_MASK)
    }

    /// True if the command succeeded.
    pub fn is_success(self) -> bool {
        self.0 == 0
    }

    /// The meaning of the status.
    pub fn kind(self) -> StatusKind {
        self.table_entry().map_or(Kind::Other, |known| known.1)
    }

    /// The name of the status; for one that is not in the table, its code type.
    pub fn name(self) -> &'static str {
        self.table_entry().map_or_else(|| self.status_code_type(), |known| known.2)
    }

    fn table_entry(self) -> Option<&'static (u16, Kind, &'static str)> {
        KNOWN_STATUSES
            .binary_search_by_key(&self.0, |known| known.0)
            .ok()
            .and_then(|index| KNOWN_STATUSES.get(index))
    }

    fn status_code_type(self) -> &'static str {
        match self.0 >> 8 {
            0 => "unknown generic status",
            1 => "unknown command specific status",
            2 => "unknown media error",
            3 => "unknown path error",
            7 => "vendor specific status",
            _ => "unknown status",
        }
    }
}

impl fmt::Display for Status {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} (NVMe status {:#05x})", self.name(), self.0)
    }
}

impl fmt::Debug for Status {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_status_is_found() {
        assert!(KNOWN_STATUSES.is_sorted_by_key(|known| known.0), "the search is by halves");
        for (code, kind, name) in KNOWN_STATUSES {
            assert_eq!((Status(*code).kind(), Status(*code).name()), (*kind, *name));
        }
    }

    #[test]
    fn do_not_retry_and_more_are_no_part_of_a_status() {
        assert_eq!(Status::new(0x4000 | 0x1bc).kind(), StatusKind::ZoneInvalidWrite);
        assert_eq!(Status::new(0x6000), Status(0));
        assert_eq!(Status::new(0x1be).to_string(), "too many open zones (NVMe status 0x1be)");
    }

    #[test]
    fn any_status_has_a_kind_and_a_name() {
        for raw in 0..=u16::MAX {
            let status = Status::new(raw);
            assert_eq!(status.is_success(), status.kind() == StatusKind::Success);
            assert!(!status.name().is_empty());
        }
    }
}
