//! The class of each descriptor of the process.
//!
//! An entry is atomics alone, so that signal handlers and children of a fork may use it. A descriptor that the library did not see opened is classed at its first
//! use. A descriptor with a class that was closed unseen is recognised by its file's number, within [`CHECKED_FOR`] and a tick of the clock.

use std::sync::atomic::{AtomicU32, AtomicU64, AtomicUsize, Ordering::Relaxed};
use std::time::Duration;

use libc::{c_int, c_uint};
use pathprio::FileClass;
use pathprio::behind::Pieces;
use units::Instant;

/// Descriptors with an entry. Files of higher descriptors have no class. Memory is used for the entries that are used.
const DESCRIPTORS: usize = 1 << 16;

const UNKNOWN: u32 = 0;
const NO_CLASS: u32 = 1;
const LOG: u32 = 2;
const BULK: u32 = 3;
const CLASS: u32 = 7;
/// The file's writes are synced: O_SYNC or O_DSYNC.
const SYNCED: u32 = 8;
/// The file's writes go past the page cache: O_DIRECT.
const DIRECT: u32 = 16;
const DRIVE_SHIFT: u32 = 8;

/// The time for which the number of a descriptor's file counts as known: asking the kernel takes longer than what else is done for a write.
const CHECKED_FOR: Duration = Duration::from_millis(1);

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
    /// True if each write goes past the page cache.
    pub direct: bool,
    /// The number of the file's drive; drives beyond the known ones have the last number.
    pub drive: u8,
}

/// The entry of a descriptor.
#[derive(Debug)]
pub struct Entry {
    known: AtomicU32,
    inode: AtomicU64,
    /// When the kernel last said that the descriptor is of that file.
    checked: AtomicU64,
    /// Bytes written since the last sync, of a log.
    pub unsynced: AtomicU64,
    /// Bytes that a stream took since the last write-behind, of a bulk file.
    pub streamed: AtomicU64,
    /// Pieces of a bulk file.
    pub pieces: Pieces,
}

static ENTRIES: [Entry; DESCRIPTORS] = [const { Entry::new() }; DESCRIPTORS];
/// The number of entries up to the last one that was ever asked for.
static USED: AtomicUsize = AtomicUsize::new(0);

/// The entry of a descriptor; `None` for -1, and for a descriptor beyond the table.
pub fn entry(fd: c_int) -> Option<&'static Entry> {
    let fd = usize::try_from(fd).ok()?;
    let entry = ENTRIES.get(fd)?;
    if fd >= USED.load(Relaxed) {
        USED.fetch_max(fd + 1, Relaxed);
    }
    Some(entry)
}

/// Forgets the descriptors from `first` to `last`. Entries that were never used are not touched: they have no memory.
pub fn forget_range(first: c_uint, last: c_uint) {
    let count = (last as usize).saturating_add(1).min(USED.load(Relaxed));
    ENTRIES.iter().take(count).skip(first as usize).for_each(Entry::forget);
}

impl Entry {
    const fn new() -> Entry {
        Entry {
            known: AtomicU32::new(UNKNOWN),
            inode: AtomicU64::new(0),
            checked: AtomicU64::new(0),
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
        Known::Class(Classed { class, synced: known & SYNCED != 0, direct: known & DIRECT != 0, drive })
    }

    /// True if the descriptor is still of the file that has the class, as the kernel said a moment ago, or says now: `inode` asks it for the file's number.
    pub fn is_of_file(&self, now: Instant, inode: impl FnOnce() -> Option<u64>) -> bool {
        if now.since(Instant(self.checked.load(Relaxed))) < CHECKED_FOR {
            return true;
        }
        let is_same = inode() == Some(self.inode.load(Relaxed));
        if is_same {
            self.checked.store(now.0, Relaxed);
        }
        is_same
    }

    /// The descriptor was closed, or is another file's.
    pub fn forget(&self) {
        // A store into an entry that was never used would be given memory.
        if self.known.load(Relaxed) != UNKNOWN {
            self.known.store(UNKNOWN, Relaxed);
        }
    }

    /// The descriptor's file has no class.
    pub fn set_no_class(&self) {
        self.known.store(NO_CLASS, Relaxed);
    }

    /// The descriptor's file, of that number, has a class.
    pub fn set(&self, classed: Classed, inode: u64) {
        self.inode.store(inode, Relaxed);
        // The next call asks the kernel: the number may be of a time before.
        self.checked.store(0, Relaxed);
        self.unsynced.store(0, Relaxed);
        self.streamed.store(0, Relaxed);
        self.pieces.clear();
        let class = match classed.class {
            FileClass::Log => LOG,
            FileClass::Bulk => BULK,
        };
        let flag = |is: bool, flag: u32| if is { flag } else { 0 };
        let flags = flag(classed.synced, SYNCED) | flag(classed.direct, DIRECT);
        self.known.store(class | flags | u32::from(classed.drive) << DRIVE_SHIFT, Relaxed);
    }

    /// Whether writes go past the page cache was changed.
    pub fn set_direct(&self, direct: bool) {
        if let Known::Class(_) = self.known() {
            match direct {
                true => self.known.fetch_or(DIRECT, Relaxed),
                false => self.known.fetch_and(!DIRECT, Relaxed),
            };
        }
    }

    /// The descriptor is a duplicate of another one.
    pub fn copy_from(&self, other: &Entry) {
        match other.known() {
            Known::Class(classed) => self.set(classed, other.inode.load(Relaxed)),
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
        let classed = Classed { class: FileClass::Bulk, synced: true, direct: false, drive: 200 };
        let (one, two) = (Entry::new(), Entry::new());
        assert_eq!(one.known(), Known::Nothing);
        one.set(classed, 77);
        two.copy_from(&one);
        assert_eq!(two.known(), Known::Class(classed));
        two.set_direct(true);
        assert_eq!(two.known(), Known::Class(Classed { direct: true, ..classed }));
        two.set_direct(false);
        assert_eq!(two.known(), Known::Class(classed));
        two.set_no_class();
        assert_eq!(two.known(), Known::NoClass);
        one.forget();
        two.copy_from(&one);
        assert_eq!(two.known(), Known::Nothing);
    }

    #[test]
    fn the_kernel_is_asked_for_the_file_once_in_a_while() {
        let entry = Entry::new();
        entry.set(Classed { class: FileClass::Log, synced: false, direct: false, drive: 0 }, 77);
        let at = |us: u64| Instant(1 << 40).after(Duration::from_micros(us));
        assert!(!entry.is_of_file(at(0), || Some(78)), "of another file");
        assert!(!entry.is_of_file(at(0), || None), "closed");
        assert!(entry.is_of_file(at(0), || Some(77)));
        assert!(entry.is_of_file(at(999), || None), "asked a moment ago");
        assert!(!entry.is_of_file(at(1000), || None));
    }

    #[test]
    fn descriptors_beyond_the_table_have_no_entry() {
        assert!(entry(-1).is_none());
        assert!(entry(0).is_some());
        assert!(entry(65_536).is_none());
    }
}
