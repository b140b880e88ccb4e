//! Functions of streams. The C library's own writes within a stream are not interposed: what `fwrite` takes counts as written.

use libc::{FILE, c_char, c_int, c_void, size_t};

use super::open::opened_stream;
use crate::preload::calls::{around_stream, closing};

interpose! {
    fn fwrite(from: *const c_void, size: size_t, items: size_t, stream: *mut FILE) -> size_t =
        |real| around_items(stream, size, real);
    fn fwrite_unlocked(from: *const c_void, size: size_t, items: size_t, stream: *mut FILE) -> size_t =
        |real| around_items(stream, size, real);
    fn freopen(path: *const c_char, mode: *const c_char, stream: *mut FILE) -> *mut FILE = |real| {
        closing(descriptor(stream));
        opened_stream(real(), path)
    };
    fn freopen64(path: *const c_char, mode: *const c_char, stream: *mut FILE) -> *mut FILE = |real| {
        closing(descriptor(stream));
        opened_stream(real(), path)
    };
    fn fclose(stream: *mut FILE) -> c_int = |real| {
        closing(descriptor(stream));
        real()
    };
}

/// The descriptor of a stream, or -1.
fn descriptor(stream: *mut FILE) -> c_int {
    if stream.is_null() || !crate::preload::calls::has_rules() {
        return -1;
    }
    let errno = crate::preload::errno::get();
    // SAFETY: the caller answers for the stream.
    let fd = unsafe { libc::fileno(stream) };
    crate::preload::errno::set(errno);
    fd
}

fn around_items(stream: *mut FILE, size: size_t, real: impl FnOnce() -> size_t) -> size_t {
    let mut items = 0;
    around_stream(descriptor(stream), || {
        items = real();
        items.saturating_mul(size).cast_signed()
    });
    items
}
