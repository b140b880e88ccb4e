//! The failure of a kernel request, before the caller adds operation, zone and address.

use std::io;

use crate::{BufMut, ErrorKind};

// Error numbers that the kernel's block layer and drivers return.
const EINTR: i32 = 4;
const EIO: i32 = 5;
const ENXIO: i32 = 6;
const ENODEV: i32 = 19;
const EINVAL: i32 = 22;
const ENOSPC: i32 = 28;
const EROFS: i32 = 30;
const ENODATA: i32 = 61;
const EOVERFLOW: i32 = 75;
const EBADMSG: i32 = 74;
const EILSEQ: i32 = 84;
const ENOTSUP: i32 = 95;
const ENOTTY: i32 = 25;
const ETOOMANYREFS: i32 = 109;
const EREMOTEIO: i32 = 121;
const ECANCELED: i32 = 125;

/// A failed kernel request of a zone.
#[derive(Debug)]
pub(crate) struct Failure {
    pub(crate) kind: ErrorKind,
    /// Explanation of the failure for the error message; may be empty.
    pub(crate) detail: String,
    /// Address of the failure, in blocks from the zone's start.
    pub(crate) at: Option<u64>,
    /// Buffer of a failed read, to be returned to the caller.
    pub(crate) buffer: Option<BufMut>,
}

impl Failure {
    pub(crate) fn new(kind: ErrorKind, detail: String) -> Failure {
        Failure { kind, detail, at: None, buffer: None }
    }

    /// Maps a kernel error number to an error kind. All kernel errors are mapped here.
    pub(crate) fn from_errno(error: &io::Error) -> Failure {
        let kind = match error.raw_os_error() {
            Some(ENODEV | ENXIO) => ErrorKind::Gone,
            Some(EIO | ENODATA | EREMOTEIO | EILSEQ | EBADMSG) => ErrorKind::Media,
            // EOVERFLOW is the block layer's error number for the active limit, ETOOMANYREFS for the open
            // limit.
            Some(EOVERFLOW) => ErrorKind::TooManyActive,
            Some(ETOOMANYREFS) => ErrorKind::TooManyOpen,
            Some(EROFS) => ErrorKind::ZoneReadOnly,
            Some(ENOSPC) => ErrorKind::ZoneFull,
            Some(ENOTSUP | ENOTTY) => ErrorKind::Unsupported,
            Some(EINVAL) => ErrorKind::Invalid,
            // The host cancelled the request: the drive may have executed it.
            Some(EINTR | ECANCELED) => ErrorKind::Unknown,
            _ => ErrorKind::Host,
        };
        Failure::new(kind, error.to_string())
    }

    #[must_use]
    pub(crate) fn at(mut self, at: u64) -> Failure {
        self.at = Some(at);
        self
    }

    #[must_use]
    pub(crate) fn with_buffer(mut self, buffer: BufMut) -> Failure {
        self.buffer = Some(buffer);
        self
    }

    /// A copy of the failure for another operation that failed for the same reason; the buffer is not copied.
    pub(crate) fn duplicate(&self) -> Failure {
        Failure { kind: self.kind, detail: self.detail.clone(), at: self.at, buffer: None }
    }

    /// True if the failure's cause may be that the block layer's copy of the write pointer is stale.
    pub(crate) fn may_come_from_stale_write_pointer(&self) -> bool {
        matches!(self.kind, ErrorKind::Media | ErrorKind::Host | ErrorKind::Invalid)
    }
}
