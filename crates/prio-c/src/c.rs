//! The functions of `include/furrow_log.h`, which documents them.

use std::cell::RefCell;
use std::ffi::{CStr, CString, OsStr, c_char, c_int, c_void};
use std::os::unix::ffi::OsStrExt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;

use prio::{Error, How, LogFile, Options};

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
        Error::Io { source, .. } => source.raw_os_error().unwrap_or(libc::EIO),
        Error::Held(_) => libc::EBUSY,
        Error::NoDirectIo(_) => libc::EOPNOTSUPP,
        Error::Poisoned { errno, .. } => errno.unwrap_or(libc::EIO),
        Error::Forked => libc::EPERM,
        Error::Closed => libc::EBADF,
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
    Length,
    Log(Error),
}

impl From<Error> for Failure {
    fn from(error: Error) -> Failure {
        Failure::Log(error)
    }
}

/// # Safety
/// `options` is null or points to as many bytes as its `size` says, with a writer that is null or a C string.
unsafe fn options_of(options: *const LogOptions) -> Result<Options, Failure> {
    let mut wanted = Options::default();
    if options.is_null() {
        return Ok(wanted);
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
    Ok(wanted)
}

/// # Safety
/// `path` is null or a C string, `options` as for [`options_of`], and `log` null or writable.
unsafe fn make(
    path: *const c_char,
    options: *const LogOptions,
    log: *mut *mut LogFile,
    open: impl FnOnce(&Path, &Options) -> prio::Result<LogFile>,
) -> c_int {
    answer(|| {
        if path.is_null() {
            return Err(Failure::Null("path"));
        }
        if log.is_null() {
            return Err(Failure::Null("log"));
        }
        // SAFETY: the path is a C string, by this function's contract.
        let path = Path::new(OsStr::from_bytes(unsafe { CStr::from_ptr(path) }.to_bytes()));
        // SAFETY: by this function's contract.
        let options = unsafe { options_of(options) }?;
        let opened = Box::new(open(path, &options)?);
        // SAFETY: the pointer is not null and writable, by this function's contract.
        unsafe { log.write(Box::into_raw(opened)) };
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
    log: *mut *mut LogFile,
) -> c_int {
    // SAFETY: the same contract.
    unsafe { make(path, options, log, |path, options| LogFile::create(path, options)) }
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
    log: *mut *mut LogFile,
) -> c_int {
    // SAFETY: the same contract.
    unsafe { make(path, options, log, |path, options| LogFile::open(path, end, options)) }
}

/// The log behind a handle.
///
/// # Safety
/// `log` is null, or a handle that was neither closed nor dropped.
unsafe fn handle<'a>(log: *const LogFile) -> Result<&'a LogFile, Failure> {
    // SAFETY: by this function's contract.
    unsafe { log.as_ref() }.ok_or(Failure::Null("log"))
}

/// See the header.
///
/// # Safety
/// The pointers are as the header says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn furrow_log_append(
    log: *const LogFile,
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
pub unsafe extern "C" fn furrow_log_sync(log: *const LogFile, upto: u64) -> c_int {
    // SAFETY: by this function's contract.
    answer(|| Ok(unsafe { handle(log) }?.sync(upto)?))
}

/// See the header.
///
/// # Safety
/// `log` is a handle.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn furrow_log_end(log: *const LogFile) -> u64 {
    // SAFETY: by this function's contract.
    unsafe { handle(log) }.map_or(0, LogFile::end)
}

/// See the header.
///
/// # Safety
/// `log` is a handle.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn furrow_log_durable(log: *const LogFile) -> u64 {
    // SAFETY: by this function's contract.
    unsafe { handle(log) }.map_or(0, LogFile::durable)
}

/// See the header.
///
/// # Safety
/// `log` is a handle.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn furrow_log_is_real_time(log: *const LogFile) -> c_int {
    // SAFETY: by this function's contract.
    unsafe { handle(log) }.map_or(0, |log| c_int::from(log.is_real_time()))
}

/// See the header.
///
/// # Safety
/// `log` is a handle, which no other call uses at the same time or afterwards.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn furrow_log_close(log: *mut LogFile) -> c_int {
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
pub unsafe extern "C" fn furrow_log_drop(log: *mut LogFile) {
    if !log.is_null() {
        // SAFETY: the handle came from `Box::into_raw`, and nobody else uses it, by this function's contract.
        let log = unsafe { Box::from_raw(log) };
        let _a_panic_has_nobody_to_tell = catch_unwind(AssertUnwindSafe(|| drop(log)));
    }
}

/// See the header.
#[unsafe(no_mangle)]
pub extern "C" fn furrow_log_message() -> *const c_char {
    MESSAGE.with_borrow(|message| message.as_ptr())
}
