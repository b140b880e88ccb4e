//! Functions that open files, with their fortified forms.

use libc::{FILE, c_char, c_int, mode_t};

use crate::preload::calls::opened;

interpose! {
    fn open(path: *const c_char, flags: c_int, mode: mode_t) -> c_int = |real| opened(real(), path, flags);
    fn open64(path: *const c_char, flags: c_int, mode: mode_t) -> c_int = |real| opened(real(), path, flags);
    fn openat(at: c_int, path: *const c_char, flags: c_int, mode: mode_t) -> c_int =
        |real| opened(real(), path, flags);
    fn openat64(at: c_int, path: *const c_char, flags: c_int, mode: mode_t) -> c_int =
        |real| opened(real(), path, flags);
    fn creat(path: *const c_char, mode: mode_t) -> c_int = |real| opened(real(), path, libc::O_WRONLY);
    fn creat64(path: *const c_char, mode: mode_t) -> c_int = |real| opened(real(), path, libc::O_WRONLY);
    fn __open_2(path: *const c_char, flags: c_int) -> c_int = |real| opened(real(), path, flags);
    fn __open64_2(path: *const c_char, flags: c_int) -> c_int = |real| opened(real(), path, flags);
    fn __openat_2(at: c_int, path: *const c_char, flags: c_int) -> c_int =
        |real| opened(real(), path, flags);
    fn __openat64_2(at: c_int, path: *const c_char, flags: c_int) -> c_int =
        |real| opened(real(), path, flags);
    fn mkstemp(path: *mut c_char) -> c_int = |real| opened(real(), path, libc::O_RDWR);
    fn mkstemp64(path: *mut c_char) -> c_int = |real| opened(real(), path, libc::O_RDWR);
    fn fopen(path: *const c_char, mode: *const c_char) -> *mut FILE = |real| opened_stream(real(), path);
    fn fopen64(path: *const c_char, mode: *const c_char) -> *mut FILE = |real| opened_stream(real(), path);
}

/// A stream, or null, is the result of an `fopen` of `path`.
pub fn opened_stream(stream: *mut FILE, path: *const c_char) -> *mut FILE {
    if !stream.is_null() {
        // SAFETY: the C library has just made the stream.
        let fd = unsafe { libc::fileno(stream) };
        opened(fd, path, crate::preload::calls::access_mode(fd));
    }
    stream
}
