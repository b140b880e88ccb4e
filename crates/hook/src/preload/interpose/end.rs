//! Functions that end the process without its destructors.

use libc::c_int;

use super::end_process;
use crate::preload::symbols::Symbol;

/// `_exit`.
// SAFETY: the name is the C library's, and the function does what it does.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub extern "C" fn _exit(code: c_int) -> ! {
    static SYMBOL: Symbol = Symbol::named(c"_exit");
    end_process(&SYMBOL, code)
}

/// `_Exit`, which is the same.
#[allow(non_snake_case, reason = "the name is the C library's")]
// SAFETY: as for `_exit`.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub extern "C" fn _Exit(code: c_int) -> ! {
    static SYMBOL: Symbol = Symbol::named(c"_Exit");
    end_process(&SYMBOL, code)
}
