//! The function of libaio that submits requests.

use libc::{c_int, c_long, c_void};

use crate::preload::errno;
use crate::preload::requests::{Request, submit};
use crate::preload::symbols::Symbol;

/// The function of libaio.
pub static IO_SUBMIT: Symbol = Symbol::named(c"io_submit");

/// `io_submit` of libaio. Its errors are negative results, and `errno` stays.
///
/// # Safety
/// As libaio's.
// SAFETY: the name is libaio's, and the function does what it does.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C-unwind" fn io_submit(
    context: *mut c_void,
    number: c_long,
    requests: *mut *mut Request,
) -> c_int {
    let number_or_none = usize::try_from(number).unwrap_or(0);
    if number_or_none == 0 || requests.is_null() {
        // SAFETY: the caller's own arguments.
        return unsafe { next(context, number, requests) };
    }
    // SAFETY: the caller answers for the array, which the kernel reads too.
    let all = unsafe { std::slice::from_raw_parts(requests, number_or_none) };
    // SAFETY: the caller answers for the requests. A part of the array is an array.
    unsafe { submit(all, |part| next(context, part.len() as c_long, part.as_ptr().cast_mut())) }
}

/// Calls libaio's function, or makes its system call where no library has it: a program may have loaded libaio for itself alone.
unsafe fn next(context: *mut c_void, number: c_long, requests: *mut *mut Request) -> c_int {
    let address = IO_SUBMIT.address();
    if address.is_null() {
        let before = errno::get();
        // SAFETY: the caller answers for the arguments.
        let result = unsafe { libc::syscall(libc::SYS_io_submit, context, number, requests) };
        let failed = errno::get();
        errno::set(before);
        return if result < 0 { -failed } else { c_int::try_from(result).unwrap_or(c_int::MAX) };
    }
    // SAFETY: libaio's function of this name has this type. The caller answers for the arguments.
    unsafe {
        let function: unsafe extern "C-unwind" fn(*mut c_void, c_long, *mut *mut Request) -> c_int =
            std::mem::transmute(address);
        function(context, number, requests)
    }
}
