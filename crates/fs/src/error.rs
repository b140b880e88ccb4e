//! The one error type of the crate.

use std::fmt;
use std::sync::Arc;

use units::ZoneId;
pub use zoned::Class;

/// The result of a file system call.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// The error of a file system call. Cheap to clone: a poisoned writer returns the same cause to every caller.
#[derive(Clone)]
pub struct Error(Arc<Inner>);

#[derive(Clone)]
struct Inner {
    kind: ErrorKind,
    doing: &'static str,
    path: Option<String>,
    zone: Option<ZoneId>,
    detail: Option<String>,
    source: Option<Arc<dyn std::error::Error + Send + Sync>>,
}

/// The kind of a file system error.
#[non_exhaustive]
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ErrorKind {
    /// No such file or directory.
    NotFound,
    /// The name is taken.
    Exists,
    /// A part of the path, except the last, names a file.
    NotADirectory,
    /// The path names a directory where a file is needed.
    IsADirectory,
    /// The directory has entries.
    NotEmpty,
    /// No space is left on the device, even after reclaim.
    NoSpace,
    /// The file system is mounted read-only, or turned read-only after a failed metadata write.
    ReadOnly,
    /// Damaged data on the device.
    Corrupt,
    /// The device holds another version of the format, or features this build does not know.
    Version,
    /// The arguments of the call are invalid.
    Invalid,
    /// The drive, or the file system as it was made, has not what a setting asks for.
    Unsupported,
    /// The file system or the file is closed.
    Closed,
    /// An earlier write or flush of this file failed; reopen it.
    Poisoned,
    /// Another writer, log or lock holds the resource.
    Busy,
    /// Above a limit.
    TooLarge,
    /// The device failed.
    Device(zoned::ErrorKind),
}

impl ErrorKind {
    fn words(self) -> &'static str {
        use ErrorKind as K;
        match self {
            K::NotFound => "not found",
            K::Exists => "it exists already",
            K::NotADirectory => "not a directory",
            K::IsADirectory => "it is a directory",
            K::NotEmpty => "the directory is not empty",
            K::NoSpace => "no space left",
            K::ReadOnly => "the file system is read-only",
            K::Corrupt => "damaged",
            K::Version => "another format version",
            K::Invalid => "invalid",
            K::Unsupported => "not there",
            K::Closed => "closed",
            K::Poisoned => "an earlier write failed, reopen the file",
            K::Busy => "in use",
            K::TooLarge => "above the limit",
            K::Device(_) => "the device failed",
        }
    }
}

impl Error {
    /// An error of kind `kind` while `doing` something.
    pub fn new(kind: ErrorKind, doing: &'static str) -> Error {
        Error(Arc::new(Inner { kind, doing, path: None, zone: None, detail: None, source: None }))
    }

    /// An error of the device while `doing` something.
    pub fn device(doing: &'static str, source: zoned::Error) -> Error {
        let mut error = Error::new(ErrorKind::Device(source.kind()), doing);
        let inner = Arc::make_mut(&mut error.0);
        inner.zone = source.zone();
        inner.source = Some(Arc::new(source));
        error
    }

    /// Adds the path.
    #[must_use]
    pub fn at_path(mut self, path: impl Into<String>) -> Error {
        Arc::make_mut(&mut self.0).path = Some(path.into());
        self
    }

    /// Adds the zone.
    #[must_use]
    pub fn in_zone(mut self, zone: ZoneId) -> Error {
        Arc::make_mut(&mut self.0).zone = Some(zone);
        self
    }

    /// Adds a sentence to the error's message: what was found, and advice.
    #[must_use]
    pub fn because(mut self, detail: impl Into<String>) -> Error {
        Arc::make_mut(&mut self.0).detail = Some(detail.into());
        self
    }

    /// Adds the error that caused this one.
    #[must_use]
    pub fn caused_by(mut self, cause: Error) -> Error {
        Arc::make_mut(&mut self.0).source = Some(Arc::new(cause));
        self
    }

    /// The kind of the error.
    pub fn kind(&self) -> ErrorKind {
        self.0.kind
    }

    /// What the caller can do about an error.
    pub fn class(&self) -> Class {
        use ErrorKind as K;
        match self.0.kind {
            K::NoSpace => Class::NoSpace,
            K::Corrupt | K::Version => Class::Corrupt,
            K::Busy => Class::Retry,
            K::Closed | K::Poisoned | K::ReadOnly => Class::Fatal,
            K::Device(kind) => kind.class(),
            _ => Class::Invalid,
        }
    }

    /// The path that the error concerns, if any.
    pub fn path(&self) -> Option<&str> {
        self.0.path.as_deref()
    }

    /// The zone that the error concerns, if any.
    pub fn zone(&self) -> Option<ZoneId> {
        self.0.zone
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let inner = &self.0;
        f.write_str(inner.doing)?;
        if let Some(path) = &inner.path {
            write!(f, " '{path}'")?;
        }
        if let Some(zone) = inner.zone {
            write!(f, ", zone {zone}")?;
        }
        write!(f, ": {}", inner.kind.words())?;
        if let Some(detail) = &inner.detail {
            write!(f, ": {detail}")?;
        }
        if let Some(source) = &inner.source {
            write!(f, ": {source}")?;
        }
        Ok(())
    }
}

impl fmt::Debug for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}: {self}", self.0.kind)
    }
}

// `source` of the error stays unimplemented: the message includes the cause already.
impl std::error::Error for Error {}
