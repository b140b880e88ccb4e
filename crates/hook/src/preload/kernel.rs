//! System calls, without the C library's wrappers: those would be interposed, be points of cancellation, or allocate. Each may change `errno`.

use std::ffi::CStr;
use std::mem::MaybeUninit;
use std::time::Duration;

use libc::{c_int, c_long, c_void};
use pathprio::behind::Extent;
use units::Instant;

use super::errno;

/// The number of `cachestat`, which is the same on all machines. Linux 6.5 and later have it.
const SYS_CACHESTAT: c_long = 451;
/// The longest wait for a write-back, and the time between two looks at it.
const WRITE_BACK_AT_MOST: Duration = Duration::from_millis(50);
const WRITE_BACK_INTERVAL: Duration = Duration::from_micros(200);

/// Longest path that is read.
pub const PATH_BYTES: usize = 4096;

/// The drive and the inode of an open file.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct FileId {
    /// The drive: `st_dev`.
    pub device: u64,
    /// The number within the file system.
    pub inode: u64,
}

/// The number of this process, which in a child of `vfork` is another than in the memory that it shares.
pub fn process_id() -> u32 {
    // SAFETY: the system call has no arguments.
    unsafe { libc::syscall(libc::SYS_getpid) as u32 }
}

/// The monotonic clock, which is the same in all processes.
pub fn now() -> Instant {
    clock(libc::CLOCK_MONOTONIC)
}

/// The monotonic clock as of the last tick, 1 to 10 ms ago at most, which takes less time to read.
pub fn last_tick() -> Instant {
    clock(libc::CLOCK_MONOTONIC_COARSE)
}

fn clock(clock: libc::clockid_t) -> Instant {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: the pointer is valid for the call.
    unsafe { libc::clock_gettime(clock, &raw mut time) };
    Instant(time.tv_sec.unsigned_abs() * 1_000_000_000 + time.tv_nsec.unsigned_abs())
}

/// Sleeps until the monotonic clock's `until`, or a signal.
pub fn sleep_until(until: Instant) {
    let time = libc::timespec {
        tv_sec: (until.0 / 1_000_000_000).cast_signed(),
        tv_nsec: (until.0 % 1_000_000_000).cast_signed(),
    };
    // SAFETY: the pointer is valid for the call; the fourth argument may be null.
    unsafe {
        libc::syscall(
            libc::SYS_clock_nanosleep,
            libc::CLOCK_MONOTONIC,
            libc::TIMER_ABSTIME,
            &raw const time,
            std::ptr::null_mut::<libc::timespec>(),
        )
    };
}

/// The file of a descriptor; `None` if the descriptor is closed, or no regular file's.
pub fn regular_file(fd: c_int) -> Option<FileId> {
    stat(fd).filter(|stat| stat.st_mode & libc::S_IFMT == libc::S_IFREG).map(|stat| FileId::of(&stat))
}

/// The file, device or pipe of a descriptor; `None` if the descriptor is closed.
pub fn any_file(fd: c_int) -> Option<FileId> {
    stat(fd).map(|stat| FileId::of(&stat))
}

/// The length of a descriptor's file.
pub fn file_bytes(fd: c_int) -> Option<u64> {
    u64::try_from(stat(fd)?.st_size).ok()
}

impl FileId {
    fn of(stat: &libc::stat) -> FileId {
        FileId { device: stat.st_dev, inode: stat.st_ino }
    }
}

fn stat(fd: c_int) -> Option<libc::stat> {
    let mut stat = MaybeUninit::<libc::stat>::uninit();
    let (path, flags) = (c"".as_ptr(), libc::AT_EMPTY_PATH);
    // SAFETY: the path is an empty string, and the pointer is valid for a whole `stat`.
    let result = unsafe { libc::syscall(libc::SYS_newfstatat, fd, path, stat.as_mut_ptr(), flags) };
    if result != 0 {
        return None;
    }
    // SAFETY: the kernel wrote a whole `stat`, since it succeeded.
    Some(unsafe { stat.assume_init() })
}

/// The flags with which a descriptor was opened.
pub fn open_flags(fd: c_int) -> c_int {
    // SAFETY: the system call takes numbers only.
    unsafe { libc::syscall(libc::SYS_fcntl, fd, libc::F_GETFL) as c_int }
}

/// The file offset of a descriptor.
pub fn offset(fd: c_int) -> Option<u64> {
    // SAFETY: the system call takes numbers only.
    u64::try_from(unsafe { libc::syscall(libc::SYS_lseek, fd, 0, libc::SEEK_CUR) }).ok()
}

/// Reads a symbolic link into `path`.
pub fn read_link<'a>(link: &CStr, path: &'a mut [u8; PATH_BYTES]) -> Option<&'a [u8]> {
    // SAFETY: the link's name ends with a zero byte, and the kernel writes at most the buffer's length.
    let read = unsafe {
        libc::syscall(libc::SYS_readlinkat, libc::AT_FDCWD, link.as_ptr(), path.as_mut_ptr(), PATH_BYTES)
    };
    path.get(..usize::try_from(read).ok()?)
}

/// Begins to write the extent back.
///
/// The flags to wait are never given: the kernel reports an error of write-back once, and it is for the `fsync` of the program, or of another one, to get it.
pub fn begin_write_back(fd: c_int, extent: Extent) {
    let (start, bytes) = (extent.start.cast_signed(), extent.bytes().cast_signed());
    let flags = c_long::from(libc::SYNC_FILE_RANGE_WRITE);
    // SAFETY: the system call takes numbers only.
    unsafe { libc::syscall(libc::SYS_sync_file_range, fd, start, bytes, flags) };
}

/// Waits until the extent, whose write-back began, is written, for [`WRITE_BACK_AT_MOST`]. A kernel that cannot tell the state of pages is not waited for.
pub fn wait_for_write_back(fd: c_int, extent: Extent) {
    let end = now().after(WRITE_BACK_AT_MOST);
    while pages_in_write_back(fd, extent).is_some_and(|pages| pages > 0) {
        let now = now();
        if now >= end {
            return;
        }
        sleep_until(now.after(WRITE_BACK_INTERVAL).min(end));
    }
}

/// The number of an extent's pages that are being written; `None` where the kernel does not tell. Errors of write-back stay for `fsync`.
fn pages_in_write_back(fd: c_int, extent: Extent) -> Option<u64> {
    // `struct cachestat_range`, and `struct cachestat`: pages in the cache, dirty, in write-back, evicted, lately evicted.
    let range = [extent.start, extent.bytes()];
    let mut state = [0_u64; 5];
    // SAFETY: the pointers are valid for both structures.
    let result = unsafe { libc::syscall(SYS_CACHESTAT, fd, range.as_ptr(), state.as_mut_ptr(), 0) };
    (result == 0).then_some(state[2])
}

/// Opens a file. The descriptor is closed where the program starts another one.
pub fn open(path: &CStr, flags: c_int, mode: u32) -> Option<c_int> {
    let flags = flags | libc::O_CLOEXEC;
    // SAFETY: the path ends with a zero byte.
    let fd = unsafe { libc::syscall(libc::SYS_openat, libc::AT_FDCWD, path.as_ptr(), flags, mode) };
    c_int::try_from(fd).ok().filter(|fd| *fd >= 0)
}

/// Closes a descriptor of ours.
pub fn close(fd: c_int) {
    // SAFETY: the system call takes a number only.
    unsafe { libc::syscall(libc::SYS_close, fd) };
}

/// Writes bytes with one call. True if all of them were written.
pub fn write(fd: c_int, bytes: &[u8]) -> bool {
    // SAFETY: the pointer and the length are those of a slice.
    let wrote = unsafe { libc::syscall(libc::SYS_write, fd, bytes.as_ptr(), bytes.len()) };
    usize::try_from(wrote) == Ok(bytes.len())
}

/// Reads bytes with one call.
pub fn read(fd: c_int, into: &mut [u8]) -> usize {
    // SAFETY: the pointer and the length are those of a slice.
    let read = unsafe { libc::syscall(libc::SYS_read, fd, into.as_mut_ptr(), into.len()) };
    usize::try_from(read).unwrap_or(0)
}

/// Makes a file at least so long, of zeros, with room on the drive for all of it.
pub fn allocate(fd: c_int, bytes: u64) -> bool {
    // SAFETY: the system call takes numbers only.
    unsafe { libc::syscall(libc::SYS_fallocate, fd, 0, 0_u64, bytes) == 0 }
}

/// True if a write to the descriptor would not wait: a pipe has room for a page.
pub fn has_room(fd: c_int) -> bool {
    let mut poll = libc::pollfd { fd, events: libc::POLLOUT, revents: 0 };
    let no_time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    let no_mask = std::ptr::null::<libc::sigset_t>();
    // SAFETY: the pointers are valid for the call; the mask may be null.
    let ready = unsafe { libc::syscall(libc::SYS_ppoll, &raw mut poll, 1, &raw const no_time, no_mask, 8) };
    ready == 1 && poll.revents == libc::POLLOUT
}

/// Calls `with`, whose writes may fail, without the signals by which the kernel ends a process whose write failed: SIGPIPE and SIGXFSZ.
pub fn without_signals<T>(with: impl FnOnce() -> T) -> T {
    // Bits of the kernel's `sigset_t`: 64 signals.
    const BYTES: usize = 8;
    let signals = 1_u64 << (libc::SIGPIPE - 1) | 1_u64 << (libc::SIGXFSZ - 1);
    let set_mask = |how: c_int, mask: u64| {
        let mut before = 0_u64;
        // SAFETY: both pointers are valid for a set of the kernel's.
        unsafe { libc::syscall(libc::SYS_rt_sigprocmask, how, &raw const mask, &raw mut before, BYTES) };
        before
    };
    let pending = || {
        let mut pending = 0_u64;
        // SAFETY: the pointer is valid for a set of the kernel's.
        unsafe { libc::syscall(libc::SYS_rt_sigpending, &raw mut pending, BYTES) };
        pending & signals
    };
    let mask = set_mask(libc::SIG_BLOCK, signals);
    let pending_before = pending();
    let result = with();
    let ours = pending() & !pending_before;
    if ours != 0 {
        let (no_time, no_info) = (libc::timespec { tv_sec: 0, tv_nsec: 0 }, std::ptr::null_mut::<c_void>());
        // One write raises one signal. Each of our calls that may fail is the last one within `with`, or the others raise the same.
        // SAFETY: the pointers are valid for the call; that for the signal's description may be null.
        unsafe {
            libc::syscall(libc::SYS_rt_sigtimedwait, &raw const ours, no_info, &raw const no_time, BYTES)
        };
    }
    set_mask(libc::SIG_SETMASK, mask);
    result
}

/// Gives an existing file a second name. False if that name is taken.
pub fn link(from: &CStr, to: &CStr) -> bool {
    let cwd = libc::AT_FDCWD;
    // SAFETY: both names end with a zero byte.
    unsafe { libc::syscall(libc::SYS_linkat, cwd, from.as_ptr(), cwd, to.as_ptr(), 0) == 0 }
}

/// Removes a name.
pub fn unlink(path: &CStr) {
    // SAFETY: the name ends with a zero byte.
    unsafe { libc::syscall(libc::SYS_unlinkat, libc::AT_FDCWD, path.as_ptr(), 0) };
}

/// Maps the first bytes of a file, shared with other processes, for as long as the process lives.
pub fn map_shared(fd: c_int, bytes: usize) -> Option<*mut c_void> {
    // SAFETY: a new mapping at an address of the kernel's choice touches no memory of the program.
    let address = unsafe {
        libc::mmap(std::ptr::null_mut(), bytes, libc::PROT_READ | libc::PROT_WRITE, libc::MAP_SHARED, fd, 0)
    };
    (address != libc::MAP_FAILED).then_some(address)
}

/// True if there is no process of that number.
pub fn is_dead(pid: u32) -> bool {
    // SAFETY: the signal 0 is not sent.
    let result = unsafe { libc::syscall(libc::SYS_kill, pid, 0) };
    result != 0 && errno::get() == libc::ESRCH
}
