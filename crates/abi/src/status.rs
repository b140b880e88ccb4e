//! The outcomes of the C functions, in the form that C++ receives.

use std::any::Any;
use std::ffi::c_char;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::ptr;

use fs::{Class, ErrorKind};

/// The error of every call in a forked child.
const FORKED: &str = "this process was forked from one that has mounted a drive, and cannot use drives: fork first, or start a program";

/// Rust side of `FurrowStatus` in `furrow_abi.h`: the outcome of a call.
#[repr(C)]
#[derive(Debug)]
pub struct FurrowStatus {
    code: i32,
    data_loss: u8,
    reserved: [u8; 3],
    message: *mut c_char,
    message_len: usize,
}

/// The outcome codes of `furrow_abi.h`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(i32)]
pub enum StatusCode {
    /// The file or directory does not exist.
    NotFound = 1,
    /// No space is left.
    NoSpace = 2,
    /// The file system or the device failed.
    IoError = 3,
    /// The request is invalid.
    Invalid = 4,
    /// Another owner holds the file.
    Busy = 5,
    /// The C++ callback refused to apply a batch; the callback keeps its own RocksDB status.
    Applying = 6,
}

/// Why a C function failed. No failure is marked retryable: a failed write poisons its file until the file is reopened, and RocksDB
/// would retry its own recovery on the same file for ever.
#[derive(Debug)]
pub struct Failure {
    /// The class of the failure.
    pub code: StatusCode,
    /// Whether acknowledged data is damaged or gone.
    pub data_loss: bool,
    /// The whole message.
    pub message: String,
}

impl Failure {
    /// A failure without loss of data.
    pub fn new(code: StatusCode, message: impl Into<String>) -> Failure {
        Failure { code, data_loss: false, message: message.into() }
    }
}

impl From<fs::Error> for Failure {
    fn from(error: fs::Error) -> Failure {
        let code = match (error.kind(), error.class()) {
            (ErrorKind::NotFound | ErrorKind::NotADirectory, _) => StatusCode::NotFound,
            (_, Class::NoSpace) => StatusCode::NoSpace,
            (ErrorKind::Busy, _) => StatusCode::Busy,
            _ => StatusCode::IoError,
        };
        Failure { code, data_loss: error.class() == Class::Corrupt, message: error.to_string() }
    }
}

impl From<mounts::Error> for Failure {
    fn from(error: mounts::Error) -> Failure {
        let code = match error.kind() {
            mounts::ErrorKind::NoSpace => StatusCode::NoSpace,
            mounts::ErrorKind::Invalid => StatusCode::Invalid,
            mounts::ErrorKind::Corrupt | mounts::ErrorKind::Io => StatusCode::IoError,
        };
        let data_loss = error.kind() == mounts::ErrorKind::Corrupt;
        Failure { code, data_loss, message: error.to_string() }
    }
}

impl FurrowStatus {
    const OK: FurrowStatus =
        FurrowStatus { code: 0, data_loss: 0, reserved: [0; 3], message: ptr::null_mut(), message_len: 0 };

    #[cold]
    fn from_failure(failure: Failure) -> FurrowStatus {
        let bytes = failure.message.into_bytes().into_boxed_slice();
        let message_len = bytes.len();
        FurrowStatus {
            code: failure.code as i32,
            data_loss: u8::from(failure.data_loss),
            reserved: [0; 3],
            message: Box::into_raw(bytes).cast(),
            message_len,
        }
    }
}

/// Runs the body of a C function that uses a drive. Success allocates nothing. A panic becomes an I/O error with the panic's message. In a
/// forked child of a process that has mounted a drive, the body does not run.
pub fn run_entry(body: impl FnOnce() -> Result<(), Failure>) -> FurrowStatus {
    if mounts::is_forked() {
        return FurrowStatus::from_failure(Failure::new(StatusCode::IoError, FORKED));
    }
    run_without_drive(body)
}

/// Runs the body of a C function that uses no drive: as [`run_entry`], in forked children too.
pub fn run_without_drive(body: impl FnOnce() -> Result<(), Failure>) -> FurrowStatus {
    match catch_unwind(AssertUnwindSafe(body)) {
        Ok(Ok(())) => FurrowStatus::OK,
        Ok(Err(failure)) => FurrowStatus::from_failure(failure),
        Err(panic) => FurrowStatus::from_failure(Failure::new(
            StatusCode::IoError,
            format!("the file system panicked, which is a defect of it: {}", panic_text(&*panic)),
        )),
    }
}

/// Runs the body of a C function that cannot fail. Returns `otherwise` after a panic, and in a forked child, where objects are not freed.
pub fn run_infallible_entry<T>(otherwise: T, body: impl FnOnce() -> T) -> T {
    if mounts::is_forked() {
        return otherwise;
    }
    catch_unwind(AssertUnwindSafe(body)).unwrap_or(otherwise)
}

fn panic_text(panic: &(dyn Any + Send)) -> &str {
    panic
        .downcast_ref::<&str>()
        .copied()
        .or_else(|| panic.downcast_ref::<String>().map(String::as_str))
        .unwrap_or("no message")
}

/// Frees a status's message.
///
/// # Safety
/// `message` and `len` come from one [`FurrowStatus`] and were not freed before; null is allowed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn furrow_message_free(message: *mut c_char, len: usize) {
    if !message.is_null() {
        // SAFETY: by the caller's promise, `message` is the box that `from_failure` leaked, with its own length.
        drop(unsafe { Box::from_raw(ptr::slice_from_raw_parts_mut(message.cast::<u8>(), len)) });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn take_message(status: FurrowStatus) -> (i32, String) {
        // SAFETY: the status's message and length belong together, and the message is read before it is freed.
        let text = unsafe { std::slice::from_raw_parts(status.message.cast::<u8>(), status.message_len) };
        let text = String::from_utf8(text.to_vec()).unwrap();
        // SAFETY: the status's message is freed once.
        unsafe { furrow_message_free(status.message, status.message_len) };
        (status.code, text)
    }

    #[test]
    fn a_panic_becomes_an_io_error_with_its_message() {
        let (code, text) = take_message(run_entry(|| panic!("zone {} is upside down", 7)));
        assert_eq!(code, StatusCode::IoError as i32);
        assert!(text.contains("zone 7 is upside down"), "{text}");
        assert_eq!(run_infallible_entry(5, || panic!("no")), 5);
    }

    #[test]
    fn a_full_device_is_no_space_and_a_missing_file_not_found() {
        let full = fs::Error::new(ErrorKind::NoSpace, "appending").at_path("/a");
        assert_eq!(Failure::from(full).code, StatusCode::NoSpace);
        let device = fs::Error::new(ErrorKind::Device(zoned::ErrorKind::Media), "reading");
        let failure = Failure::from(device);
        assert_eq!((failure.code, failure.data_loss), (StatusCode::IoError, true));
        assert_eq!(Failure::from(fs::Error::new(ErrorKind::NotFound, "opening")).code, StatusCode::NotFound);
    }
}
