//! Classes of device operations: which may wait for others.

use std::fmt;

/// The class of a device operation. A drive's scheduler ([`Share`](crate::Share)) holds operations back by their class.
///
/// In the order of precedence, the highest first.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub enum IoClass {
    /// Entries of logs, and operations without a class. Never held.
    #[default]
    Log,
    /// Metadata commits. Never held. Bulk beside them goes as without: they follow the bulk's own files, and may be all that is not bulk.
    Metadata,
    /// Reads that somebody waits for, and writes that keep writers waiting. Never held.
    Read,
    /// Write-back of files and flushes of memtables.
    Flush,
    /// Reads and writes of compactions.
    Compaction,
    /// Live blocks moved out of zones, and the zones' resets.
    Reclaim,
    /// A drive's content rebuilt from other drives.
    Rebuild,
    /// Content read to compare it with its parity.
    Scrub,
}

impl IoClass {
    /// All classes, in the order of precedence.
    pub const ALL: [IoClass; 8] = [
        IoClass::Log,
        IoClass::Metadata,
        IoClass::Read,
        IoClass::Flush,
        IoClass::Compaction,
        IoClass::Reclaim,
        IoClass::Rebuild,
        IoClass::Scrub,
    ];

    fn name(self) -> &'static str {
        match self {
            IoClass::Log => "log",
            IoClass::Metadata => "metadata",
            IoClass::Read => "read",
            IoClass::Flush => "flush",
            IoClass::Compaction => "compaction",
            IoClass::Reclaim => "reclaim",
            IoClass::Rebuild => "rebuild",
            IoClass::Scrub => "scrub",
        }
    }

    /// True for classes whose operations a scheduler may hold.
    pub fn is_bulk(self) -> bool {
        self > IoClass::Read
    }
}

impl fmt::Display for IoClass {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}
