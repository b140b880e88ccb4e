//! Whether this process is the forked child of one that has mounted a drive. Such a child has a copy of the mounted state and none of
//! the threads: it must not touch the drive, nor wait for a lock that another thread may have held at the fork.

use std::sync::Once;
use std::sync::atomic::{AtomicBool, Ordering};

static FORKED: AtomicBool = AtomicBool::new(false);

/// Marks every later child of this process as forked.
pub(crate) fn watch() {
    extern "C" fn mark_child() {
        FORKED.store(true, Ordering::Relaxed);
    }
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        // SAFETY: the handler only stores to an atomic, which is allowed between fork and exec.
        let registered = unsafe { libc::pthread_atfork(None, None, Some(mark_child)) };
        assert_eq!(registered, 0, "no memory to register a handler of forks");
    });
}

/// Whether this process is the forked child of one that has mounted a drive: it must not call this crate.
pub fn is_forked() -> bool {
    FORKED.load(Ordering::Relaxed)
}
