//! The steps of a crash explorer's workload on files.

use fs::{FileKind, Lifetime};

/// The number of a file that a workload's task made, in the order of creation. Renames and links keep the number.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub(crate) struct FileNo(pub u32);

/// One step of a workload's task on files.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Act {
    Mkdir {
        path: String,
    },
    Rmdir {
        path: String,
    },
    Create {
        file: FileNo,
        path: String,
        kind: FileKind,
        lifetime: Lifetime,
    },
    Reopen {
        file: FileNo,
        path: String,
    },
    Append {
        file: FileNo,
        len: usize,
    },
    Flush {
        file: FileNo,
    },
    Sync {
        file: FileNo,
    },
    Close {
        file: FileNo,
    },
    /// Truncates a file through its writer, or by path when the file is closed.
    Truncate {
        file: FileNo,
        size: usize,
        path: Option<String>,
    },
    Rename {
        from: String,
        to: String,
    },
    Link {
        from: String,
        to: String,
    },
    Unlink {
        path: String,
    },
    SyncAll,
}

impl Act {
    /// The file whose content the step changes.
    pub(crate) fn data_of(&self) -> Option<FileNo> {
        match self {
            Act::Append { file, .. } | Act::Truncate { file, .. } => Some(*file),
            _ => None,
        }
    }

    /// Whether the step is a metadata operation, which [`fs::Fs::sync`] makes durable.
    pub(crate) fn is_metadata(&self) -> bool {
        match self {
            Act::Mkdir { .. }
            | Act::Rmdir { .. }
            | Act::Create { .. }
            | Act::Rename { .. }
            | Act::Link { .. }
            | Act::Unlink { .. } => true,
            Act::Truncate { path, .. } => path.is_some(),
            _ => false,
        }
    }
}
