//! The signals that ask a process to end, waited for by one thread.

use std::io;
use std::time::Duration;

/// SIGTERM and SIGINT, held back from the process until they are waited for.
#[derive(Debug)]
pub struct Termination {
    signals: libc::sigset_t,
}

impl Termination {
    /// Holds the signals back from this thread and from those that it starts from now on. A process calls this before it
    /// has other threads.
    pub fn hold_back() -> io::Result<Termination> {
        let mut signals = std::mem::MaybeUninit::<libc::sigset_t>::uninit();
        // SAFETY: `sigemptyset` initialises the set; the other calls read and change initialised memory of this function.
        let (signals, error) = unsafe {
            libc::sigemptyset(signals.as_mut_ptr());
            let mut signals = signals.assume_init();
            libc::sigaddset(&raw mut signals, libc::SIGTERM);
            libc::sigaddset(&raw mut signals, libc::SIGINT);
            let error = libc::pthread_sigmask(libc::SIG_BLOCK, &raw const signals, std::ptr::null_mut());
            (signals, error)
        };
        if error == 0 { Ok(Termination { signals }) } else { Err(io::Error::from_raw_os_error(error)) }
    }

    /// Waits for one of the signals; false after `limit`.
    pub fn wait(&self, limit: Duration) -> io::Result<bool> {
        let timeout = libc::timespec {
            tv_sec: libc::time_t::try_from(limit.as_secs()).unwrap_or(libc::time_t::MAX),
            tv_nsec: libc::c_long::from(limit.subsec_nanos()),
        };
        // SAFETY: the call reads the set and the time, and is given nothing to write to.
        let signal =
            unsafe { libc::sigtimedwait(&raw const self.signals, std::ptr::null_mut(), &raw const timeout) };
        match (signal, io::Error::last_os_error()) {
            (1.., _) => Ok(true),
            (_, error) if matches!(error.raw_os_error(), Some(libc::EAGAIN | libc::EINTR)) => Ok(false),
            (_, error) => Err(error),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_signal_that_is_held_back_ends_the_wait_and_not_the_process() {
        let termination = Termination::hold_back().expect("signals");
        assert!(!termination.wait(Duration::from_millis(1)).expect("a wait"));
        // SAFETY: the signal goes to this thread, which holds it back.
        let sent = unsafe { libc::pthread_kill(libc::pthread_self(), libc::SIGTERM) };
        assert_eq!(sent, 0);
        assert!(termination.wait(Duration::from_secs(60)).expect("a wait"));
    }
}
