//! Functions that end the process without its destructors.

use libc::c_int;

use crate::preload::process;
use crate::preload::symbols::Symbol;

static EXIT: Symbol = Symbol::named(c"_exit");
static EXIT_OF_C99: Symbol = Symbol::named(c"_Exit");
/// The functions of the C library that this module's stand before.
pub static SYMBOLS: &[&Symbol] = &[&EXIT, &EXIT_OF_C99];

/// `_exit`.
// SAFETY: the name is the C library's, and the function does what it does.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub extern "C" fn _exit(code: c_int) -> ! {
    end_process(&EXIT, code)
}

/// `_Exit`, which is the same.
#[allow(non_snake_case, reason = "the name is the C library's")]
// SAFETY: as for `_exit`.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub extern "C" fn _Exit(code: c_int) -> ! {
    end_process(&EXIT_OF_C99, code)
}

/// Calls the C library's function that ends the process at once.
fn end_process(symbol: &Symbol, code: c_int) -> ! {
    process::finish();
    let address = symbol.address();
    if !address.is_null() {
        // SAFETY: the symbols that this function is called with have this type.
        let end: extern "C" fn(c_int) -> ! = unsafe { std::mem::transmute(address) };
        end(code);
    }
    loop {
        // SAFETY: the system call takes a number only, and does not return.
        unsafe { libc::syscall(libc::SYS_exit_group, code) };
    }
}
