//! The exported functions. Each has the name and the arguments of the C library's, which it calls once, or of libaio's.
//!
//! `open`, `openat` and `fcntl` are variadic in C, and have fixed arguments here: on x86-64 and AArch64 Linux a variadic argument that is an integer or a
//! pointer is passed as a fixed one is. An argument that the caller did not pass is an undefined register, which goes on to the C library, where it
//! is as undefined.

use std::ptr::null_mut;

use libc::{FILE, c_int};

use super::symbols::resolve_all;

/// Defines exported functions, and the list of their `SYMBOLS`. Within a function's body, the closure before it calls the C library's function with the same arguments.
macro_rules! interpose {
    ($(fn $name:ident($($argument:ident: $type:ty),* $(,)?) -> $result:ty = |$real:ident| $body:expr;)*) => {
    #[allow(non_upper_case_globals, reason = "the names are those of the functions")]
    mod symbols {
        $(pub static $name: $crate::preload::symbols::Symbol = $crate::preload::symbols::Symbol::named(
            match std::ffi::CStr::from_bytes_with_nul(concat!(stringify!($name), "\0").as_bytes()) {
                Ok(name) => name,
                Err(_) => panic!("an identifier has no zero byte"),
            },
        );)*
    }
    /// The functions of the C library that this module's stand before.
    pub static SYMBOLS: &[&$crate::preload::symbols::Symbol] = &[$(&symbols::$name),*];
    $(
        // SAFETY: the name is the C library's, and the function takes its arguments and does what it does.
        #[cfg_attr(not(test), unsafe(no_mangle))]
        pub unsafe extern "C-unwind" fn $name($($argument: $type),*) -> $result {
            let address = symbols::$name.address();
            if address.is_null() {
                return $crate::preload::interpose::missing();
            }
            let $real = || {
                // SAFETY: the C library's function of this name has this type. The caller answers for the arguments.
                unsafe {
                    let function: unsafe extern "C-unwind" fn($($type),*) -> $result =
                        std::mem::transmute(address);
                    function($($argument),*)
                }
            };
            $body
        }
    )*};
}

mod descriptors;
mod end;
mod open;
mod requests;
mod streams;
mod writes;

/// Resolves all functions of the C library that this library's stand before.
pub fn resolve_symbols() {
    let lists = [descriptors::SYMBOLS, end::SYMBOLS, open::SYMBOLS, streams::SYMBOLS, writes::SYMBOLS];
    resolve_all(lists.into_iter().flatten().copied().chain([&requests::IO_SUBMIT]));
}

/// The result of a function that fails.
trait Failed {
    const FAILED: Self;
}

impl Failed for c_int {
    const FAILED: c_int = -1;
}

impl Failed for isize {
    const FAILED: isize = -1;
}

impl Failed for () {
    const FAILED: () = ();
}

impl Failed for usize {
    const FAILED: usize = 0;
}

impl Failed for *mut FILE {
    const FAILED: *mut FILE = null_mut();
}

/// The result of a function that the C library does not have.
fn missing<T: Failed>() -> T {
    super::errno::set(libc::ENOSYS);
    T::FAILED
}
