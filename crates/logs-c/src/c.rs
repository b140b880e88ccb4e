//! The functions of `include/furrow_log.h`, which documents them.

use std::cell::RefCell;
use std::ffi::{CStr, CString, OsStr, c_char, c_int, c_void};
use std::os::unix::ffi::OsStrExt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;

use logs::{Error, Log, LogReader, Options};
use prio::How;

/// `struct furrow_log_options`. A field of 0 is the default.
#[repr(C)]
pub struct LogOptions {
    /// Bytes of the caller's struct: later versions may add fields at its end.
    size: usize,
    how: c_int,
    block: u32,
    room: u64,
    buffer: u64,
    writer: *const c_char,
    drive: *const c_char,
}

const HOW_THREAD: c_int = 1;
const HOW_PROCESS: c_int = 2;
/// A room of no bytes, where 0 is the default.
const NO_ROOM: u64 = u64::MAX;

thread_local! {
    /// The message of the thread's last error.
    static MESSAGE: RefCell<CString> = RefCell::default();
}

/// The errno of an error.
fn errno_of(error: &Error) -> c_int {
    match error {
        Error::Log(error) => errno_of_log(error),
        Error::Mount(error) => match error.kind() {
            mounts::ErrorKind::NoSpace => libc::ENOSPC,
            mounts::ErrorKind::Invalid => libc::EINVAL,
            mounts::ErrorKind::Corrupt | mounts::ErrorKind::Io => libc::EIO,
        },
        Error::Drive { source, .. } => match source.kind() {
            fs::ErrorKind::NotFound => libc::ENOENT,
            fs::ErrorKind::Exists => libc::EEXIST,
            fs::ErrorKind::NotADirectory => libc::ENOTDIR,
            fs::ErrorKind::IsADirectory => libc::EISDIR,
            fs::ErrorKind::NoSpace => libc::ENOSPC,
            fs::ErrorKind::ReadOnly => libc::EROFS,
            fs::ErrorKind::Invalid | fs::ErrorKind::TooLarge => libc::EINVAL,
            fs::ErrorKind::Busy => libc::EBUSY,
            fs::ErrorKind::Closed => libc::EBADF,
            _ => libc::EIO,
        },
        _ => libc::EINVAL,
    }
}

fn errno_of_log(error: &prio::Error) -> c_int {
    match error {
        prio::Error::Io { source, .. } => source.raw_os_error().unwrap_or(libc::EIO),
        prio::Error::Held(_) => libc::EBUSY,
        prio::Error::NoDirectIo(_) => libc::EOPNOTSUPP,
        prio::Error::Poisoned { errno, .. } => errno.unwrap_or(libc::EIO),
        prio::Error::Forked => libc::EPERM,
        prio::Error::Closed => libc::EBADF,
        _ => libc::EINVAL,
    }
}

fn keep_message(text: &str) {
    let text = CString::new(text.replace('\0', "?")).unwrap_or_default();
    MESSAGE.set(text);
}

/// Runs `call`. Returns 0, or the errno of its error, whose message the thread keeps. No panic leaves the library.
fn answer(call: impl FnOnce() -> Result<(), Failure>) -> c_int {
    match catch_unwind(AssertUnwindSafe(call)) {
        Ok(Ok(())) => 0,
        Ok(Err(Failure::Null(what))) => {
            keep_message(&format!("{what} is a null pointer"));
            libc::EINVAL
        }
        Ok(Err(Failure::Options)) => {
            keep_message(
                "the options' size or how is unknown: set size to sizeof(struct furrow_log_options)",
            );
            libc::EINVAL
        }
        Ok(Err(Failure::Drive)) => {
            keep_message("the drive's URL is not UTF-8");
            libc::EINVAL
        }
        Ok(Err(Failure::Length)) => {
            keep_message("a length that no memory has");
            libc::EINVAL
        }
        Ok(Err(Failure::Log(error))) => {
            keep_message(&error.to_string());
            errno_of(&error)
        }
        Err(_panic) => {
            keep_message("a panic: a defect of the library");
            libc::EIO
        }
    }
}

enum Failure {
    Null(&'static str),
    Options,
    Drive,
    Length,
    Log(Error),
}

impl From<Error> for Failure {
    fn from(error: Error) -> Failure {
        Failure::Log(error)
    }
}

/// # Safety
/// `options` is null or points to as many bytes as its `size` says, with a writer and a drive that are null or C strings.
unsafe fn options_of(options: *const LogOptions) -> Result<Options, Failure> {
    let mut options_of_log = Options::default();
    let wanted = &mut options_of_log.file;
    if options.is_null() {
        return Ok(options_of_log);
    }
    // SAFETY: the caller's pointer is not null; `size` is the first field of every version.
    let size = unsafe { options.cast::<usize>().read_unaligned() };
    if size != size_of::<LogOptions>() {
        return Err(Failure::Options);
    }
    // SAFETY: the struct has the size of this version, by its own word.
    let given = unsafe { options.read_unaligned() };
    wanted.how = match given.how {
        0 => How::Request,
        HOW_THREAD => How::Thread,
        HOW_PROCESS => How::Process,
        _ => return Err(Failure::Options),
    };
    if given.block != 0 {
        wanted.block = given.block;
    }
    wanted.room = match given.room {
        0 => wanted.room,
        NO_ROOM => 0,
        room => room,
    };
    if !given.writer.is_null() {
        // SAFETY: the writer is a C string, by this function's contract.
        wanted.writer = OsStr::from_bytes(unsafe { CStr::from_ptr(given.writer) }.to_bytes()).into();
    }
    if given.buffer != 0 {
        wanted.buffer = given.buffer;
    }
    if !given.drive.is_null() {
        // SAFETY: the drive is a C string, by this function's contract.
        let drive = unsafe { CStr::from_ptr(given.drive) };
        options_of_log.drive = Some(drive.to_str().map_err(|_| Failure::Drive)?.to_owned());
    }
    Ok(options_of_log)
}

/// # Safety
/// `path` is null or a C string, and `options` as for [`options_of`].
unsafe fn place<'a>(path: *const c_char, options: *const LogOptions) -> Result<(&'a Path, Options), Failure> {
    if path.is_null() {
        return Err(Failure::Null("path"));
    }
    // SAFETY: the path is a C string, by this function's contract.
    let path = Path::new(OsStr::from_bytes(unsafe { CStr::from_ptr(path) }.to_bytes()));
    // SAFETY: by this function's contract.
    Ok((path, unsafe { options_of(options) }?))
}

/// # Safety
/// `path` and `options` are as for [`place`], and `handle` null or writable.
unsafe fn make<T>(
    path: *const c_char,
    options: *const LogOptions,
    handle: *mut *mut T,
    open: impl FnOnce(&Path, &Options) -> logs::Result<T>,
) -> c_int {
    answer(|| {
        if handle.is_null() {
            return Err(Failure::Null("the place for the handle"));
        }
        // SAFETY: by this function's contract.
        let (path, options) = unsafe { place(path, options) }?;
        let opened = Box::new(open(path, &options)?);
        // SAFETY: the pointer is not null and writable, by this function's contract.
        unsafe { handle.write(Box::into_raw(opened)) };
        Ok(())
    })
}

/// See the header.
///
/// # Safety
/// The pointers are as the header says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn furrow_log_create(
    path: *const c_char,
    options: *const LogOptions,
    log: *mut *mut Log,
) -> c_int {
    // SAFETY: the same contract.
    unsafe { make(path, options, log, |path, options| Log::create(path, options)) }
}

/// See the header.
///
/// # Safety
/// The pointers are as the header says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn furrow_log_open(
    path: *const c_char,
    end: u64,
    options: *const LogOptions,
    log: *mut *mut Log,
) -> c_int {
    // SAFETY: the same contract.
    unsafe { make(path, options, log, |path, options| Log::open(path, end, options)) }
}

/// The log behind a handle.
///
/// # Safety
/// `log` is null, or a handle that was neither closed nor dropped.
unsafe fn handle<'a>(log: *const Log) -> Result<&'a Log, Failure> {
    // SAFETY: by this function's contract.
    unsafe { log.as_ref() }.ok_or(Failure::Null("log"))
}

/// See the header.
///
/// # Safety
/// The pointers are as the header says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn furrow_log_append(
    log: *const Log,
    bytes: *const c_void,
    len: usize,
    end: *mut u64,
) -> c_int {
    answer(|| {
        // SAFETY: by this function's contract.
        let log = unsafe { handle(log) }?;
        if bytes.is_null() && len > 0 {
            return Err(Failure::Null("bytes"));
        }
        if isize::try_from(len).is_err() {
            return Err(Failure::Length);
        }
        let bytes = match len {
            0 => &[],
            // SAFETY: the pointer is not null, and `len` bytes are readable, by this function's contract.
            _ => unsafe { std::slice::from_raw_parts(bytes.cast::<u8>(), len) },
        };
        let at = log.append(bytes)?;
        if !end.is_null() {
            // SAFETY: the pointer is not null and writable, by this function's contract.
            unsafe { end.write(at) };
        }
        Ok(())
    })
}

/// See the header.
///
/// # Safety
/// `log` is a handle.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn furrow_log_sync(log: *const Log, upto: u64) -> c_int {
    // SAFETY: by this function's contract.
    answer(|| Ok(unsafe { handle(log) }?.sync(upto)?))
}

/// See the header.
///
/// # Safety
/// `log` is a handle.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn furrow_log_end(log: *const Log) -> u64 {
    // SAFETY: by this function's contract.
    unsafe { handle(log) }.map_or(0, Log::end)
}

/// See the header.
///
/// # Safety
/// `log` is a handle.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn furrow_log_durable(log: *const Log) -> u64 {
    // SAFETY: by this function's contract.
    unsafe { handle(log) }.map_or(0, Log::durable)
}

/// See the header.
///
/// # Safety
/// `log` is a handle.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn furrow_log_is_real_time(log: *const Log) -> c_int {
    // SAFETY: by this function's contract.
    unsafe { handle(log) }.map_or(0, |log| c_int::from(log.is_real_time()))
}

/// See the header.
///
/// # Safety
/// `log` is a handle.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn furrow_log_room_failure(log: *const Log) -> *const c_char {
    // SAFETY: by this function's contract.
    match unsafe { handle(log) }.ok().and_then(Log::room_failure) {
        Some(failure) => {
            keep_message(&failure);
            furrow_log_message()
        }
        None => std::ptr::null(),
    }
}

/// See the header.
///
/// # Safety
/// `log` is a handle, which no other call uses at the same time or afterwards.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn furrow_log_close(log: *mut Log) -> c_int {
    answer(|| {
        if log.is_null() {
            return Err(Failure::Null("log"));
        }
        // SAFETY: the handle came from `Box::into_raw`, and nobody else uses it, by this function's contract.
        Ok(unsafe { Box::from_raw(log) }.close()?)
    })
}

/// See the header.
///
/// # Safety
/// `log` is null, or a handle that no other call uses at the same time or afterwards.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn furrow_log_drop(log: *mut Log) {
    if !log.is_null() {
        // SAFETY: the handle came from `Box::into_raw`, and nobody else uses it, by this function's contract.
        let log = unsafe { Box::from_raw(log) };
        let _a_panic_has_nobody_to_tell = catch_unwind(AssertUnwindSafe(|| drop(log)));
    }
}

/// See the header.
///
/// # Safety
/// The pointers are as the header says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn furrow_log_remove(path: *const c_char, options: *const LogOptions) -> c_int {
    answer(|| {
        // SAFETY: by this function's contract.
        let (path, options) = unsafe { place(path, options) }?;
        Ok(logs::remove(path, &options)?)
    })
}

/// See the header.
///
/// # Safety
/// The pointers are as the header says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn furrow_log_reader_open(
    path: *const c_char,
    options: *const LogOptions,
    reader: *mut *mut LogReader,
) -> c_int {
    // SAFETY: the same contract.
    unsafe { make(path, options, reader, |path, options| LogReader::open(path, options)) }
}

/// See the header.
///
/// # Safety
/// The pointers are as the header says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn furrow_log_reader_read(
    reader: *const LogReader,
    offset: u64,
    bytes: *mut c_void,
    len: usize,
    read: *mut usize,
) -> c_int {
    answer(|| {
        // SAFETY: by this function's contract.
        let reader = unsafe { reader.as_ref() }.ok_or(Failure::Null("reader"))?;
        if bytes.is_null() {
            return Err(Failure::Null("bytes"));
        }
        if read.is_null() {
            return Err(Failure::Null("read"));
        }
        if isize::try_from(len).is_err() {
            return Err(Failure::Length);
        }
        // SAFETY: the pointer is not null, and `len` bytes are writable, by this function's contract.
        let into = unsafe { std::slice::from_raw_parts_mut(bytes.cast::<u8>(), len) };
        let found = reader.read_at(offset, into)?;
        // SAFETY: the pointer is not null and writable, by this function's contract.
        unsafe { read.write(found) };
        Ok(())
    })
}

/// See the header.
///
/// # Safety
/// `reader` is null, or a handle that no other call uses at the same time or afterwards.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn furrow_log_reader_close(reader: *mut LogReader) {
    if !reader.is_null() {
        // SAFETY: the handle came from `Box::into_raw`, and nobody else uses it, by this function's contract.
        let reader = unsafe { Box::from_raw(reader) };
        let _a_panic_has_nobody_to_tell = catch_unwind(AssertUnwindSafe(|| drop(reader)));
    }
}

/// See the header.
#[unsafe(no_mangle)]
pub extern "C" fn furrow_log_message() -> *const c_char {
    MESSAGE.with_borrow(|message| message.as_ptr())
}
