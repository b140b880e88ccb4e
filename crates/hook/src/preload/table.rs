//! The class of each descriptor of the process.
//!
//! An entry is atomics alone, so that signal handlers and children of a fork may use it. A descriptor that the library did not see opened is classed at its first
//! use. A descriptor with a class that was closed unseen is recognised by its file's number.

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering::Relaxed};

use libc::c_int;
use pathprio::FileClass;
use pathprio::behind::Pieces;

/// Descriptors with an entry. Files of higher descriptors have no class. Memory is used for the entries that are used.
const DESCRIPTORS: usize = 1 << 16;

const UNKNOWN: u32 = 0;
const NO_CLASS: u32 = 1;
const LOG: u32 = 2;
const BULK: u32 = 3;
const CLASS: u32 = 7;
/// The file's writes are synced: O_SYNC or O_DSYNC.
const SYNCED: u32 = 8;
const DRIVE_SHIFT: u32 = 8;

/// The class of a descriptor's file, as far as it was looked up.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Known {
    /// Nothing yet.
    Nothing,
    /// The file has no class.
    NoClass,
    /// The file has a class.
    Class(Classed),
}

/// A descriptor whose file has a class.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Classed {
    /// The file's class.
    pub class: FileClass,
    /// True if each write is synced.
    pub synced: bool,
    /// The number of the file's drive; drives beyond the known ones have the last number.
    pub drive: u8,
}

/// The entry of a descriptor.
#[derive(Debug)]
pub struct Entry {
    known: AtomicU32,
    inode: AtomicU64,
    /// Bytes written since the last sync, of a log.
    pub unsynced: AtomicU64,
    /// Bytes that a stream took since the last write-behind, of a bulk file.
    pub streamed: AtomicU64,
    /// Pieces of a bulk file.
    pub pieces: Pieces,
}

static ENTRIES: [Entry; DESCRIPTORS] = [const { Entry::new() }; DESCRIPTORS];

/// The entry of a descriptor; `None` for -1, and for a descriptor beyond the table.
pub fn entry(fd: c_int) -> Option<&'static Entry> {
    ENTRIES.get(usize::try_from(fd).ok()?)
}

impl Entry {
    const fn new() -> Entry {
        Entry {
            known: AtomicU32::new(UNKNOWN),
            inode: AtomicU64::new(0),
            unsynced: AtomicU64::new(0),
            streamed: AtomicU64::new(0),
            pieces: Pieces::new(),
        }
    }

    /// The class of the descriptor's file, as far as it was looked up.
    pub fn known(&self) -> Known {
        let known = self.known.load(Relaxed);
        let class = match known & CLASS {
            LOG => FileClass::Log,
            BULK => FileClass::Bulk,
            NO_CLASS => return Known::NoClass,
            _ => return Known::Nothing,
        };
        let drive = (known >> DRIVE_SHIFT) as u8;
        Known::Class(Classed { class, synced: known & SYNCED != 0, drive })
    }

    /// The number of the descriptor's file, if the file has a class.
    pub fn inode(&self) -> u64 {
        self.inode.load(Relaxed)
    }

    /// The descriptor was closed, or is another file's.
    pub fn forget(&self) {
        self.known.store(UNKNOWN, Relaxed);
    }

    /// The descriptor's file has no class.
    pub fn set_no_class(&self) {
        self.known.store(NO_CLASS, Relaxed);
    }

    /// The descriptor's file has a class.
    pub fn set(&self, classed: Classed, inode: u64) {
        self.inode.store(inode, Relaxed);
        self.unsynced.store(0, Relaxed);
        self.streamed.store(0, Relaxed);
        self.pieces.clear();
        let class = match classed.class {
            FileClass::Log => LOG,
            FileClass::Bulk => BULK,
        };
        let synced = if classed.synced { SYNCED } else { 0 };
        self.known.store(class | synced | u32::from(classed.drive) << DRIVE_SHIFT, Relaxed);
    }

    /// The descriptor is a duplicate of another one.
    pub fn copy_from(&self, other: &Entry) {
        match other.known() {
            Known::Class(classed) => self.set(classed, other.inode()),
            Known::NoClass => self.set_no_class(),
            Known::Nothing => self.forget(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_entry_holds_what_was_set() {
        let classed = Classed { class: FileClass::Bulk, synced: true, drive: 200 };
        let (one, two) = (Entry::new(), Entry::new());
        assert_eq!(one.known(), Known::Nothing);
        one.set(classed, 77);
        two.copy_from(&one);
        assert_eq!((two.known(), two.inode()), (Known::Class(classed), 77));
        two.set_no_class();
        assert_eq!(two.known(), Known::NoClass);
        one.forget();
        two.copy_from(&one);
        assert_eq!(two.known(), Known::Nothing);
    }

    #[test]
    fn descriptors_beyond_the_table_have_no_entry() {
        assert!(entry(-1).is_none());
        assert!(entry(0).is_some());
        assert!(entry(65_536).is_none());
    }
}
