//! Work before and after each interposed call: the thread's priority, the hold of bulk, the log's events, write-behind, counters.

use std::ffi::CStr;
use std::sync::atomic::Ordering::Relaxed;

use libc::c_int;
use pathprio::FileClass;
use pathprio::counters::Effective;
use sys::Priority;
use units::Instant;
use zoned::share::{Beside, Kind, Sample};

use super::drive::{self, Drive};
use super::table::{self, Classed, Entry, Known};
use super::{errno, kernel, process};

/// The effect of an interposed call on its file.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Call {
    /// The call writes at the descriptor's offset. The result is the number of bytes.
    Write,
    /// The call writes at that offset. The result is the number of bytes.
    WriteAt(i64),
    /// As `Write`, and what was written is durable.
    SyncedWrite,
    /// As `WriteAt`, and what was written is durable.
    SyncedWriteAt(i64),
    /// The call makes what was written durable.
    Sync,
    /// The call begins write-back, or waits for it.
    WriteBack,
    /// The call writes to a stream. The result is the number of bytes; so many before have not been written behind.
    Stream(u64),
}

/// Bytes that a bulk stream takes without more than being counted: programs write streams by a few bytes.
const STREAM_BYTES: u64 = 64 << 10;

/// A call that was begun. It has no destructor: a thread that is cancelled within the call unwinds through the caller's frame.
#[derive(Clone, Copy)]
struct Begun {
    entry: &'static Entry,
    classed: Classed,
    drive: Option<&'static Drive>,
    own_priority: Option<Priority>,
    effective: Effective,
    at: Instant,
    beside: Beside,
    held_ns: u64,
}

impl Begun {
    /// True if somebody may wait for the call: its time tells how the log is served.
    fn is_synced(&self, call: Call) -> bool {
        match call {
            Call::SyncedWrite | Call::SyncedWriteAt(_) | Call::Sync => true,
            Call::Write | Call::WriteAt(_) | Call::Stream(_) => self.classed.synced,
            Call::WriteBack => false,
        }
    }
}

/// Makes the call `real` for the descriptor `fd`, at the priority of its file's class.
pub fn around(fd: c_int, call: Call, real: impl FnOnce() -> isize) -> isize {
    let Some(begun) = begin(fd, call) else { return real() };
    let result = real();
    let errno = errno::get();
    end(fd, call, &begun, result);
    errno::set(errno);
    result
}

/// Makes the call `real`, which writes to a stream with the descriptor `fd`.
pub fn around_stream(fd: c_int, real: impl FnOnce() -> isize) -> isize {
    let bulk = table::entry(fd).filter(|entry| {
        process::has_rules() && matches!(entry.known(), Known::Class(Classed { class: FileClass::Bulk, .. }))
    });
    let Some(entry) = bulk else { return around(fd, Call::Write, real) };
    let before = entry.streamed.load(Relaxed);
    if before >= STREAM_BYTES {
        entry.streamed.store(0, Relaxed);
        return around(fd, Call::Stream(before), real);
    }
    let result = real();
    let bytes = u64::try_from(result).unwrap_or(0);
    entry.streamed.fetch_add(bytes, Relaxed);
    let counters = process::COUNTERS.of(FileClass::Bulk);
    counters.writes.fetch_add(1, Relaxed);
    counters.bytes.fetch_add(bytes, Relaxed);
    result
}

/// The descriptor `fd`, or an error, is the result of an `open` of `path` with those flags.
pub fn opened(fd: c_int, path: *const libc::c_char, flags: c_int) -> c_int {
    let Some(entry) = process::entry_to_change(fd) else { return fd };
    entry.forget();
    // A descriptor for reading is classed if it is ever synced.
    if flags & libc::O_ACCMODE != libc::O_RDONLY && flags & libc::O_PATH == 0 && !path.is_null() {
        let errno = errno::get();
        // SAFETY: the kernel has just read the path.
        let path = unsafe { CStr::from_ptr(path) };
        process::classify(fd, entry, Some(path));
        errno::set(errno);
    }
    fd
}

/// The descriptor `fd` is about to be closed.
pub fn closing(fd: c_int) {
    if let Some(entry) = process::entry_to_change(fd) {
        entry.forget();
    }
}

/// The descriptor `new`, or an error, is a duplicate of `old`.
pub fn duplicated(old: c_int, new: c_int) -> c_int {
    if old != new
        && let Some(to) = process::entry_to_change(new)
    {
        match table::entry(old) {
            Some(from) => to.copy_from(from),
            None => to.forget(),
        }
    }
    new
}

fn begin(fd: c_int, call: Call) -> Option<Begun> {
    let entry = table::entry(fd)?;
    if !process::has_rules() || entry.known() == Known::NoClass {
        return None;
    }
    let errno = errno::get();
    let begun = begin_classed(fd, entry, call);
    errno::set(errno);
    begun
}

fn begin_classed(fd: c_int, entry: &'static Entry, call: Call) -> Option<Begun> {
    let pid = process::own_id()?;
    let classed = match entry.known() {
        // The file may have been closed by a function that is not interposed, and the descriptor be another file's.
        Known::Class(classed) if kernel::regular_file(fd).is_some_and(|file| file.inode == entry.inode()) => {
            classed
        }
        _ => process::classify(fd, entry, None)?,
    };
    let drive = drive::get(classed.drive);
    let is_bulk = classed.class == FileClass::Bulk;
    let held = match drive {
        Some(drive) if is_bulk && !matches!(call, Call::Sync | Call::WriteBack) => drive.hold_bulk(),
        _ => std::time::Duration::ZERO,
    };
    let held_ns = u64::try_from(held.as_nanos()).unwrap_or(u64::MAX);
    let (own_priority, effective) = process::raise(classed.class);
    let at = kernel::now();
    let beside = Beside::Nothing;
    let mut begun = Begun { entry, classed, drive, own_priority, effective, at, beside, held_ns };
    if let Some(drive) = drive {
        if is_bulk {
            drive.bulk_begins(pid, at);
        } else if begun.is_synced(call) {
            begun.beside = drive.log_begins(at);
        }
    }
    Some(begun)
}

fn end(fd: c_int, call: Call, begun: &Begun, result: isize) {
    let now = kernel::now();
    let counters = process::COUNTERS.of(begun.classed.class);
    let bytes = match call {
        Call::Sync | Call::WriteBack => 0,
        _ => u64::try_from(result).unwrap_or(0),
    };
    counters.count_priority(begun.effective);
    counters.held_ns.fetch_add(begun.held_ns, Relaxed);
    if !matches!(call, Call::Sync | Call::WriteBack) {
        counters.writes.fetch_add(1, Relaxed);
        counters.bytes.fetch_add(bytes, Relaxed);
    }
    if begun.is_synced(call) {
        counters.syncs.fetch_add(1, Relaxed);
    }
    match begun.classed.class {
        FileClass::Log => end_log(call, begun, bytes, result >= 0, now),
        FileClass::Bulk => {
            let bytes = match call {
                Call::Stream(before) => before + bytes,
                _ => bytes,
            };
            match call {
                Call::Sync => begun.entry.pieces.clear(),
                Call::WriteBack => {}
                Call::WriteAt(offset) | Call::SyncedWriteAt(offset) => {
                    write_behind(fd, begun, u64::try_from(offset).unwrap_or(0), bytes);
                }
                Call::Write | Call::SyncedWrite | Call::Stream(_) => {
                    let end = kernel::offset(fd).unwrap_or(0);
                    write_behind(fd, begun, end.saturating_sub(bytes), bytes);
                }
            }
            if let Some(drive) = begun.drive {
                let now = kernel::now();
                drive.bulk_went(now, bytes);
                drive.bulk_ended(now);
            }
        }
    }
    process::restore(begun.own_priority);
}

fn end_log(call: Call, begun: &Begun, bytes: u64, succeeded: bool, now: Instant) {
    let unsynced = &begun.entry.unsynced;
    let (kind, bytes) = match call {
        Call::Sync => (Kind::Flush, unsynced.swap(0, Relaxed)),
        _ if begun.is_synced(call) => (Kind::Write, bytes),
        _ => {
            unsynced.fetch_add(bytes, Relaxed);
            return;
        }
    };
    // A sync of nothing says nothing of the drive.
    if let Some(drive) = begun.drive
        && bytes > 0
        && succeeded
    {
        let latency = now.since(begun.at);
        drive.log_ended(&Sample { kind, bytes, submitted: begun.at, latency, bulk: begun.beside });
    }
}

fn write_behind(fd: c_int, begun: &Begun, offset: u64, bytes: u64) {
    let Some(piece) = begun.entry.pieces.wrote(offset, bytes) else { return };
    process::COUNTERS.of(FileClass::Bulk).pieces.fetch_add(1, Relaxed);
    kernel::begin_write_back(fd, piece.begin);
    if let Some(last) = piece.wait_for {
        kernel::wait_for_write_back(fd, last);
    }
}

/// Whether a descriptor was opened for reading or writing, as flags of `open`.
pub fn access_mode(fd: c_int) -> c_int {
    if !process::has_rules() {
        return libc::O_RDONLY;
    }
    let errno = errno::get();
    let flags = kernel::open_flags(fd);
    errno::set(errno);
    flags & libc::O_ACCMODE
}

/// True if the process has rules.
pub fn has_rules() -> bool {
    process::has_rules()
}
