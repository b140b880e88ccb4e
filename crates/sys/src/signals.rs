//! Signals of a process.

/// Ignores the signals by which a terminal or a service manager asks a process group to end: SIGINT, SIGTERM, SIGHUP, SIGQUIT. For a helper process that ends with its program.
pub fn ignore_signals_to_end() {
    for signal in [libc::SIGINT, libc::SIGTERM, libc::SIGHUP, libc::SIGQUIT] {
        // SAFETY: no handler is installed: the signal is ignored from here on. The signals are valid, so that the call does not fail.
        unsafe { libc::signal(signal, libc::SIG_IGN) };
    }
}
