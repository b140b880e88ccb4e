//! Signals of a process.

use std::mem::MaybeUninit;
use std::os::unix::process::CommandExt;
use std::process::Command;
use std::ptr::{null, null_mut};
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

/// True if the process began with SIGPIPE ignored.
static BEGAN_WITHOUT_SIGPIPE: AtomicBool = AtomicBool::new(false);

/// Runs before Rust's start, which ignores SIGPIPE.
extern "C" fn note_sigpipe() {
    let mut action = MaybeUninit::<libc::sigaction>::zeroed();
    // SAFETY: the pointer is valid for an action; no new one is given.
    if unsafe { libc::sigaction(libc::SIGPIPE, null(), action.as_mut_ptr()) } == 0 {
        // SAFETY: the C library wrote an action, since it succeeded.
        let action = unsafe { action.assume_init() };
        BEGAN_WITHOUT_SIGPIPE.store(action.sa_sigaction == libc::SIG_IGN, Relaxed);
    }
}

#[used]
// SAFETY: the section holds functions without arguments, which the dynamic loader calls once.
#[unsafe(link_section = ".init_array")]
static NOTE_SIGPIPE: extern "C" fn() = note_sigpipe;

/// Lets the program of `command` begin with SIGPIPE and the signal mask as this process had them. The standard library sets both to their defaults.
pub fn pass_signals_on(command: &mut Command) {
    let mut mask = MaybeUninit::<libc::sigset_t>::zeroed();
    // SAFETY: the pointer is valid for a set; no new one is given.
    unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, null(), mask.as_mut_ptr()) };
    // SAFETY: all bits may be zero.
    let mask = unsafe { mask.assume_init() };
    let pass_on = move || {
        if BEGAN_WITHOUT_SIGPIPE.load(Relaxed) {
            // SAFETY: no handler is installed.
            unsafe { libc::signal(libc::SIGPIPE, libc::SIG_IGN) };
        }
        // SAFETY: the pointer is valid for a set; the old one is not asked for.
        unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, &raw const mask, null_mut()) };
        Ok(())
    };
    // SAFETY: the function makes system calls only, as the child of a fork must.
    unsafe { command.pre_exec(pass_on) };
}

/// Ignores the signals by which a terminal or a service manager asks a process group to end: SIGINT, SIGTERM, SIGHUP, SIGQUIT. For a helper process that ends with its program.
pub fn ignore_signals_to_end() {
    for signal in [libc::SIGINT, libc::SIGTERM, libc::SIGHUP, libc::SIGQUIT] {
        // SAFETY: no handler is installed: the signal is ignored from here on. The signals are valid, so that the call does not fail.
        unsafe { libc::signal(signal, libc::SIG_IGN) };
    }
}
