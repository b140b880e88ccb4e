//! Why an operation failed, before it is known whose it was.

use std::io;

use crate::{BufMut, ErrorKind};

// The numbers that the block layer and the drivers answer with.
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

/// A failure: what it is, where in the zone, and the buffer of a read.
#[derive(Debug)]
pub(crate) struct Failure {
    pub(crate) kind: ErrorKind,
    /// A sentence; may be empty.
    pub(crate) detail: String,
    /// Blocks from the zone's start.
    pub(crate) at: Option<u64>,
    pub(crate) buffer: Option<BufMut>,
}

impl Failure {
    pub(crate) fn new(kind: ErrorKind, detail: String) -> Failure {
        Failure { kind, detail, at: None, buffer: None }
    }

    /// What the kernel's error number means. The one place that says so.
    pub(crate) fn of_errno(error: &io::Error) -> Failure {
        let kind = match error.raw_os_error() {
            Some(ENODEV | ENXIO) => ErrorKind::Gone,
            Some(EIO | ENODATA | EREMOTEIO | EILSEQ | EBADMSG) => ErrorKind::Media,
            // The block layer's words for the two limits.
            Some(EOVERFLOW) => ErrorKind::TooManyActive,
            Some(ETOOMANYREFS) => ErrorKind::TooManyOpen,
            Some(EROFS) => ErrorKind::ZoneReadOnly,
            Some(ENOSPC) => ErrorKind::ZoneFull,
            Some(ENOTSUP | ENOTTY) => ErrorKind::Unsupported,
            Some(EINVAL) => ErrorKind::Invalid,
            // The host gave it up; the drive may have carried it out.
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

    /// The same for another one who waited. The buffer stays with the first.
    pub(crate) fn again(&self) -> Failure {
        Failure { kind: self.kind, detail: self.detail.clone(), at: self.at, buffer: None }
    }

    /// Whether it may be that nothing is wrong but the block layer's idea of the pointer.
    pub(crate) fn may_be_lost_track(&self) -> bool {
        matches!(self.kind, ErrorKind::Media | ErrorKind::Host | ErrorKind::Invalid)
    }
}
