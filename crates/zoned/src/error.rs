//! The error type of the device contract, with device, zone and address. Every backend returns the same
//! kinds.

use std::fmt;
use std::sync::Arc;

use crate::{BufMut, Lba, ZoneId};

/// The result of a device operation.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// Error of a device operation. One machine word, so that results stay small.
pub struct Error(Box<Inner>);

struct Inner {
    kind: ErrorKind,
    device: Arc<str>,
    operation: &'static str,
    /// The zone and the address as the device itself numbers them.
    zone: Option<ZoneId>,
    at: Option<Lba>,
    /// The zone and the block of the device from which the error's users count.
    origin: (ZoneId, Lba),
    detail: Option<String>,
    buffer: Option<BufMut>,
    source: Option<Box<dyn std::error::Error + Send + Sync>>,
}

/// Kind of an error.
#[non_exhaustive]
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ErrorKind {
    /// A write that does not begin at the write pointer.
    NotAtWritePointer,
    /// A staged write above blocks that were never written, or that failed.
    Gap,
    /// A write or append to a full zone, or past its capacity.
    ZoneFull,
    /// A write to, or a change of, a read-only zone.
    ZoneReadOnly,
    /// Any use of an offline zone.
    ZoneOffline,
    /// The device's limit of open zones is reached.
    TooManyOpen,
    /// The device's limit of active zones is reached.
    TooManyActive,
    /// The operation would cross into the next zone.
    CrossesZone,
    /// The operation lies past the end of the device.
    OutOfRange,
    /// The operation is longer than the append or transfer limit.
    TooLarge,
    /// The data's length is not a whole number of blocks, or is none.
    BadLength,
    /// A read past the write pointer, on a device that refuses it.
    ReadPastPointer,
    /// A zone command that the zone's state does not allow.
    IllegalMove,
    /// An append to, or a zone command on, a conventional zone.
    Conventional,
    /// As much waits as the device takes at a time.
    Busy,
    /// The medium failed.
    Media,
    /// The device has no room to begin an empty zone: worn zones have used up its reserve.
    NoSpace,
    /// Another process holds the device.
    Held {
        /// The holder's process id; 0 if unknown.
        pid: u32,
    },
    /// The kernel uses the device: mounted, swap, or under another device.
    InUse,
    /// This process may not open the device.
    Denied,
    /// The device holds data that would be lost.
    HoldsData,
    /// The device was unplugged, or its power is cut.
    Gone,
    /// The operation's handle was dropped before the outcome was known.
    Unknown,
    /// An operator ended the operation early.
    Cancelled,
    /// The backend cannot do the operation.
    Unsupported,
    /// The settings are wrong: a URL, a parameter.
    Invalid,
    /// No device has the given name.
    NotFound,
    /// The drive file is damaged.
    Damaged,
    /// The host's system call failed.
    Host,
}

/// Class of an error, by what the caller can do about it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Class {
    /// The caller may try again, perhaps after freeing something.
    Retry,
    /// The device has no space left.
    NoSpace,
    /// Data is damaged or unreadable.
    Corrupt,
    /// The request is invalid.
    Invalid,
    /// The device is unusable.
    Fatal,
}

impl ErrorKind {
    /// Class of errors of the kind.
    pub fn class(self) -> Class {
        use ErrorKind as K;
        match self {
            K::TooManyOpen | K::TooManyActive | K::Busy | K::Held { .. } | K::InUse => Class::Retry,
            K::ZoneFull | K::NoSpace => Class::NoSpace,
            K::Media | K::ZoneOffline | K::ZoneReadOnly | K::Damaged => Class::Corrupt,
            K::Gone | K::Unknown | K::Host => Class::Fatal,
            _ => Class::Invalid,
        }
    }

    fn description(self) -> &'static str {
        use ErrorKind as K;
        match self {
            K::NotAtWritePointer => "not at the write pointer",
            K::Gap => "blocks below it are missing",
            K::ZoneFull => "the zone is full",
            K::NoSpace => "no space left on the device",
            K::ZoneReadOnly => "the zone is read-only",
            K::ZoneOffline => "the zone is offline",
            K::TooManyOpen => "too many open zones",
            K::TooManyActive => "too many active zones",
            K::CrossesZone => "crosses the end of the zone",
            K::OutOfRange => "past the end of the device",
            K::TooLarge => "longer than the device's limit",
            K::BadLength => "not a whole number of blocks",
            K::ReadPastPointer => "reads past the write pointer",
            K::IllegalMove => "the zone's state does not allow it",
            K::Busy => "busy",
            K::Conventional => "a conventional zone does not take it",
            K::Media => "the medium failed",
            K::Held { .. } => "held by another process",
            K::InUse => "in use",
            K::Denied => "permission denied",
            K::HoldsData => "it holds data",
            K::Gone => "the device is gone",
            K::Unknown => "the outcome is unknown",
            K::Cancelled => "cancelled",
            K::Unsupported => "not supported",
            K::Invalid => "invalid",
            K::NotFound => "not found",
            K::Damaged => "damaged",
            K::Host => "a system call failed",
        }
    }
}

impl Error {
    /// An error of `operation` on `device`.
    pub fn new(kind: ErrorKind, device: &Arc<str>, operation: &'static str) -> Error {
        let device = Arc::clone(device);
        let (zone, at, detail, buffer, source) = (None, None, None, None, None);
        let origin = (ZoneId(0), Lba(0));
        Error(Box::new(Inner { kind, device, operation, zone, at, origin, detail, buffer, source }))
    }

    /// The error as a user sees it who counts the device's zones from `zone` on, and its blocks from `start` on:
    /// [`Error::in_zone`], [`Error::at`], [`Error::zone`] and [`Error::address`] take and return that user's numbers from now
    /// on. The message keeps the device's own numbers.
    #[must_use]
    pub fn counted_from(mut self, zone: ZoneId, start: Lba) -> Error {
        let (first, origin) = self.0.origin;
        self.0.origin = (ZoneId(first.0.saturating_add(zone.0)), Lba(origin.0.saturating_add(start.0)));
        self
    }

    /// Adds the zone to the error.
    #[must_use]
    pub fn in_zone(mut self, zone: ZoneId) -> Error {
        self.0.zone = Some(ZoneId(zone.0.saturating_add(self.0.origin.0.0)));
        self
    }

    /// Adds the address to the error.
    #[must_use]
    pub fn at(mut self, at: Lba) -> Error {
        self.0.at = Some(Lba(at.0.saturating_add(self.0.origin.1.0)));
        self
    }

    /// Adds an explanation to the error: the expected state, or what to do.
    #[must_use]
    pub fn because(mut self, detail: impl Into<String>) -> Error {
        self.0.detail = Some(detail.into());
        self
    }

    /// Adds the cause to the error.
    #[must_use]
    pub fn from_source(mut self, source: impl std::error::Error + Send + Sync + 'static) -> Error {
        self.0.source = Some(Box::new(source));
        self
    }

    /// Adds the buffer of a failed read to the error, so that the caller (a degraded array) can fill it from
    /// other drives.
    #[must_use]
    pub fn with_buffer(mut self, buffer: BufMut) -> Error {
        self.0.buffer = Some(buffer);
        self
    }

    /// The cause of the error.
    pub fn kind(&self) -> ErrorKind {
        self.0.kind
    }

    /// The zone of the failed operation, if the error has one.
    pub fn zone(&self) -> Option<ZoneId> {
        self.0.zone.map(|zone| ZoneId(zone.0.saturating_sub(self.0.origin.0.0)))
    }

    /// The address of the failure, if the error has one.
    pub fn address(&self) -> Option<Lba> {
        self.0.at.map(|at| Lba(at.0.saturating_sub(self.0.origin.1.0)))
    }

    /// The device's name.
    pub fn device(&self) -> &str {
        &self.0.device
    }

    /// Why the operation failed, in words; empty if the kind says it all.
    pub fn detail(&self) -> &str {
        self.0.detail.as_deref().unwrap_or_default()
    }

    /// Takes the buffer of a failed read out of the error.
    pub fn take_buffer(&mut self) -> Option<BufMut> {
        self.0.buffer.take()
    }

    /// A copy of the error for another caller who waited for the same operation. The read buffer stays with
    /// the original.
    #[must_use]
    pub fn duplicate(&self) -> Error {
        let inner = &self.0;
        let mut copy = Error::new(inner.kind, &inner.device, inner.operation);
        (copy.0.zone, copy.0.at, copy.0.origin) = (inner.zone, inner.at, inner.origin);
        copy.0.detail = match (&inner.detail, &inner.source) {
            (Some(detail), _) => Some(detail.clone()),
            (None, Some(source)) => Some(source.to_string()),
            (None, None) => None,
        };
        copy
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let inner = &self.0;
        f.write_str(inner.kind.description())?;
        if let ErrorKind::Held { pid } = inner.kind
            && pid != 0
        {
            write!(f, ", pid {pid}")?;
        }
        if let Some(detail) = &inner.detail {
            write!(f, ": {detail}")?;
        }
        write!(f, " ({}: {}", inner.device, inner.operation)?;
        if let Some(zone) = inner.zone {
            write!(f, ", zone {zone}")?;
        }
        if let Some(at) = inner.at {
            write!(f, ", block {at}")?;
        }
        f.write_str(")")
    }
}

impl fmt::Debug for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}: {self}", self.0.kind)
    }
}

impl std::error::Error for Error {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        self.0.source.as_ref().map(|s| &**s as &(dyn std::error::Error + 'static))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_names_the_cause_and_then_device_operation_zone_and_address() {
        let error = Error::new(ErrorKind::NotAtWritePointer, &Arc::from("emu:mem"), "write")
            .in_zone(ZoneId(3))
            .at(Lba(96))
            .because("the pointer is at block 64");
        assert_eq!(
            error.to_string(),
            "not at the write pointer: the pointer is at block 64 (emu:mem: write, zone 3, block 96)"
        );
        assert_eq!(std::mem::size_of::<Error>(), std::mem::size_of::<usize>());
    }

    #[test]
    fn an_error_counted_from_a_zone_names_the_devices_own_numbers_in_its_message() {
        let drive = Arc::from("emu:mem");
        let of_drive = Error::new(ErrorKind::Media, &drive, "read").in_zone(ZoneId(7)).at(Lba(480));
        let counted = of_drive.counted_from(ZoneId(5), Lba(320));
        let made = Error::new(ErrorKind::Media, &drive, "read").counted_from(ZoneId(5), Lba(320));
        for error in [counted.duplicate(), counted, made.in_zone(ZoneId(2)).at(Lba(160))] {
            assert_eq!((error.zone(), error.address()), (Some(ZoneId(2)), Some(Lba(160))));
            assert_eq!(error.to_string(), "the medium failed (emu:mem: read, zone 7, block 480)");
        }
    }
}
