//! Work before and after each interposed call: the thread's priority, the hold of bulk, the log's events, write-behind, counters.
//!
//! A log's write into the page cache is counted and no more: a priority would be the drive's to honour, and the write does not get there. Its sync has the priority. So the library costs a
//! write and its sync about 2 us (`benches/sync_cost.rs`): nearly all of that are the three system calls that read, set and restore the thread's priority.

use std::ffi::CStr;
use std::sync::atomic::Ordering::Relaxed;

use libc::{c_int, c_uint};
use pathprio::FileClass;
use pathprio::counters::Effective;
use units::Instant;
use zoned::share::{Beside, Kind, Sample};

use super::drive::{self, Drive};
use super::process::Raised;
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
    /// The call writes at the offset that is there, and moves it behind what it wrote. The result is the number of bytes.
    WriteMoving(*const i64),
    /// The call writes at the file's end, and leaves the descriptor's offset. The result is the number of bytes.
    Append {
        /// True if what was written is durable.
        synced: bool,
    },
    /// The call writes and must not wait: it is neither held nor written behind. The result is the number of bytes.
    WriteNoWait {
        /// True if what was written is durable.
        synced: bool,
    },
    /// The call makes what was written durable.
    Sync,
    /// The call begins write-back, or waits for it.
    WriteBack,
    /// The call writes to a stream. The result is the number of bytes; the number here is that of bytes which the stream took since its last write-behind.
    Stream(u64),
}

/// `fwrite` calls of a bulk stream are only counted until they add up to this: programs write streams by a few bytes.
const STREAM_BYTES: u64 = 64 << 10;

/// A call that was begun. It has no destructor: a thread that is cancelled within the call unwinds through the caller's frame.
#[derive(Clone, Copy)]
struct Begun {
    entry: &'static Entry,
    classed: Classed,
    drive: Option<&'static Drive>,
    raised: Option<Raised>,
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
            Call::Append { synced } | Call::WriteNoWait { synced } => synced || self.classed.synced,
            Call::Write | Call::WriteAt(_) | Call::WriteMoving(_) | Call::Stream(_) => self.classed.synced,
            Call::WriteBack => false,
        }
    }
}

/// Makes the call `real` for the descriptor `fd`, at the priority of its file's class.
pub fn around(fd: c_int, call: Call, real: impl FnOnce() -> isize) -> isize {
    if let Call::Write | Call::WriteAt(_) = call
        && let Some(entry) = cached_log(fd)
    {
        let result = real();
        let bytes = u64::try_from(result).unwrap_or(0);
        entry.unsynced.fetch_add(bytes, Relaxed);
        let counters = process::COUNTERS.of(FileClass::Log);
        counters.count_priority(Effective::Unchanged);
        counters.writes.fetch_add(1, Relaxed);
        counters.bytes.fetch_add(bytes, Relaxed);
        return result;
    }
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

/// The descriptors from `first` to `last` are about to be closed.
pub fn closing_range(first: c_uint, last: c_uint) {
    if process::has_rules() && process::own_id().is_some() {
        table::forget_range(first, last);
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

/// The class of the file of `fd`, with the descriptor's entry; `None` if the file has no class. May change `errno`.
pub fn class_of(fd: c_int) -> Option<(&'static Entry, Classed)> {
    let entry = table::entry(fd)?;
    if !process::has_rules() {
        return None;
    }
    let classed = match entry.known() {
        Known::NoClass => return None,
        // The file may have been closed by a function that is not interposed, and the descriptor be another file's.
        Known::Class(classed)
            if entry.is_of_file(kernel::last_tick(), || kernel::regular_file(fd).map(|file| file.inode)) =>
        {
            classed
        }
        _ => process::classify(fd, entry, None)?,
    };
    Some((entry, classed))
}

/// The entry of `fd`, if writes to it are a log's and go into the page cache.
fn cached_log(fd: c_int) -> Option<&'static Entry> {
    let errno = errno::get();
    let found = class_of(fd);
    errno::set(errno);
    found
        .filter(|(_, classed)| classed.class == FileClass::Log && !classed.synced && !classed.direct)
        .map(|(entry, _)| entry)
}

fn begin(fd: c_int, call: Call) -> Option<Begun> {
    let errno = errno::get();
    let begun = begin_classed(fd, call);
    errno::set(errno);
    begun
}

fn begin_classed(fd: c_int, call: Call) -> Option<Begun> {
    let (entry, classed) = class_of(fd)?;
    let drive = drive::get(classed.drive);
    let is_bulk = classed.class == FileClass::Bulk;
    // A log's calls do without the process's number, whose system call would be a fifth of their cost: nothing but counters is the process's there.
    let pid = if is_bulk { process::own_id()? } else { 0 };
    let held = match drive {
        Some(drive)
            if is_bulk && !matches!(call, Call::Sync | Call::WriteBack | Call::WriteNoWait { .. }) =>
        {
            drive.hold_bulk()
        }
        _ => std::time::Duration::ZERO,
    };
    let held_ns = u64::try_from(held.as_nanos()).unwrap_or(u64::MAX);
    let (raised, effective) = process::raise(classed.class);
    let at = kernel::now();
    let beside = Beside::Nothing;
    let mut begun = Begun { entry, classed, drive, raised, effective, at, beside, held_ns };
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
                Call::WriteBack | Call::WriteNoWait { .. } => {}
                Call::WriteAt(offset) | Call::SyncedWriteAt(offset) => {
                    write_behind(fd, begun, u64::try_from(offset).unwrap_or(0), bytes);
                }
                Call::WriteMoving(offset) if bytes > 0 => {
                    // SAFETY: the kernel has just written the offset.
                    let end = unsafe { offset.read_unaligned() };
                    let end = u64::try_from(end).unwrap_or(0);
                    write_behind(fd, begun, end.saturating_sub(bytes), bytes);
                }
                Call::WriteMoving(_) => {}
                Call::Append { .. } => {
                    let end = kernel::file_bytes(fd).unwrap_or(0);
                    write_behind(fd, begun, end.saturating_sub(bytes), bytes);
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
    process::restore(begun.raised);
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

/// The flags of the open file of `fd` were changed to `flags`.
pub fn changed_flags(fd: c_int, flags: c_int) {
    if let Some(entry) = process::entry_to_change(fd) {
        entry.set_direct(flags & libc::O_DIRECT != 0);
    }
}

/// True if the process has rules.
pub fn has_rules() -> bool {
    process::has_rules()
}
