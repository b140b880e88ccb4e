//! Symbols of C++ that a library of ours exports in place of an engine's own.

/// Defines an exported function `$symbol` that jumps to the C++ function `$to`, so that a program which preloads the library calls
/// `$to` instead of the engine's function. No calling convention matters.
#[macro_export]
macro_rules! jump {
    ($name:ident, $symbol:literal, $to:ident) => {
        const _: () = {
            unsafe extern "C" {
                fn $to();
            }
            // SAFETY: the exported function is a single jump: registers and stack reach the C++ function as the caller
            // set them.
            #[unsafe(naked)]
            #[unsafe(export_name = $symbol)]
            extern "C" fn $name() {
                #[cfg(target_arch = "x86_64")]
        ::core::arch::naked_asm!("jmp {}", sym $to);
                #[cfg(target_arch = "aarch64")]
        ::core::arch::naked_asm!("b {}", sym $to);
            }
        };
    };
}
