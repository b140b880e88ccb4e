//! The kernel's I/O priorities (`ioprio_set(2)`): of a request through a ring, or of the thread that makes a system call.
//!
//! A priority orders what waits in the kernel's queue of a drive. The schedulers mq-deadline and BFQ honour it; `none`, the default of NVMe
//! drives, does not. Flushes have no priority.

use std::cell::Cell;
use std::io;
use std::sync::OnceLock;

/// The highest and the lowest level within a class.
const LEVELS: std::ops::RangeInclusive<u8> = 0..=7;
/// The level of real-time requests: the middle, which leaves levels on both sides.
const REAL_TIME_LEVEL: u8 = 4;
/// `IOPRIO_WHO_PROCESS`: a thread by its id, despite the name. 0 is the calling thread.
const WHO_THREAD: libc::c_int = 1;
/// Bits of a priority below its class.
const CLASS_SHIFT: u16 = 13;

/// The I/O priority of a request.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Priority {
    /// No priority of its own: the kernel takes the submitting thread's.
    #[default]
    Unset,
    /// Before all requests of the other classes. Needs `CAP_SYS_NICE`. Levels 0, the highest, to 7.
    RealTime(u8),
    /// The class of ordinary requests. Levels 0, the highest, to 7; threads have 4 by default.
    BestEffort(u8),
    /// After all requests of the other classes.
    Idle,
}

impl Priority {
    /// The priority of a log's requests: real-time, or the highest best effort for a process without `CAP_SYS_NICE`.
    pub fn of_log() -> Priority {
        if may_be_real_time() { Priority::RealTime(REAL_TIME_LEVEL) } else { Priority::BestEffort(0) }
    }

    /// The priority of bulk requests: the lowest best effort, or idle where [logs](Priority::of_log) are not real-time.
    pub fn of_bulk() -> Priority {
        if may_be_real_time() { Priority::BestEffort(*LEVELS.end()) } else { Priority::Idle }
    }

    /// The kernel's number: the class, and the level below it.
    pub fn as_raw(self) -> u16 {
        let (class, level) = match self {
            Priority::Unset => (0, 0),
            Priority::RealTime(level) => (1, level),
            Priority::BestEffort(level) => (2, level),
            Priority::Idle => (3, 0),
        };
        class << CLASS_SHIFT | u16::from(level.min(*LEVELS.end()))
    }

    /// The priority of one of the kernel's numbers. An unknown class is [`Priority::Unset`]; hints are dropped.
    pub fn from_raw(raw: u16) -> Priority {
        let level = (raw & 7) as u8;
        match raw >> CLASS_SHIFT {
            1 => Priority::RealTime(level),
            2 => Priority::BestEffort(level),
            3 => Priority::Idle,
            _ => Priority::Unset,
        }
    }
}

/// True if this process may submit real-time requests. Asked once: the calling thread becomes real-time for a moment.
pub fn may_be_real_time() -> bool {
    static MAY: OnceLock<bool> = OnceLock::new();
    *MAY.get_or_init(|| {
        let Ok(before) = thread_priority() else { return false };
        let may = set_thread_priority(Priority::RealTime(REAL_TIME_LEVEL)).is_ok();
        // The kernel refuses no thread its way back.
        may && set_thread_priority(before).is_ok()
    })
}

/// The priority of the calling thread's requests.
pub fn thread_priority() -> io::Result<Priority> {
    // SAFETY: the system call takes numbers only.
    let raw = unsafe { libc::syscall(libc::SYS_ioprio_get, WHO_THREAD, 0) };
    u16::try_from(raw).map(Priority::from_raw).map_err(|_| io::Error::last_os_error())
}

/// Sets the priority of the calling thread's requests, and of no other thread's.
///
/// Fails with `PermissionDenied` for a real-time priority without `CAP_SYS_NICE`.
pub fn set_thread_priority(priority: Priority) -> io::Result<()> {
    // SAFETY: the system call takes numbers only.
    let result =
        unsafe { libc::syscall(libc::SYS_ioprio_set, WHO_THREAD, 0, libc::c_int::from(priority.as_raw())) };
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// Calls `call` with the calling thread's priority as `priority`. The thread keeps the priority until its next call: helper threads make
/// one system call after the other, mostly with the same priority.
pub(crate) fn call_with_priority<T>(priority: Priority, call: impl FnOnce() -> T) -> T {
    thread_local! {
        /// The priority that the thread had at first, and its present one; `None` while the thread has its own.
        static CHANGED: Cell<Option<(Priority, Priority)>> = const { Cell::new(None) };
    }
    let (own, present) = match CHANGED.get() {
        Some(changed) => changed,
        None if priority == Priority::Unset => return call(),
        None => thread_priority().map_or((Priority::Unset, Priority::Unset), |own| (own, own)),
    };
    let wanted = if priority == Priority::Unset { own } else { priority };
    // A refused priority fails no request: priorities are a matter of speed. A process that gave its capability up has its logs' requests as best effort.
    let instead = if matches!(wanted, Priority::RealTime(_)) { Priority::BestEffort(0) } else { own };
    let set = |to: Priority| present == to || set_thread_priority(to).is_ok();
    if let Some(set) = [wanted, instead].into_iter().find(|to| set(*to)) {
        CHANGED.set(Some((own, set)));
    }
    call()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_priority_is_the_kernel_s_number() {
        assert_eq!(Priority::RealTime(4).as_raw(), 0x2004);
        assert_eq!(Priority::BestEffort(7).as_raw(), 0x4007);
        assert_eq!(Priority::Idle.as_raw(), 0x6000);
        assert_eq!(Priority::Unset.as_raw(), 0);
        assert_eq!(Priority::RealTime(200).as_raw(), 0x2007, "a level never reaches into the class");
        for priority in [Priority::RealTime(0), Priority::BestEffort(3), Priority::Idle, Priority::Unset] {
            assert_eq!(Priority::from_raw(priority.as_raw()), priority);
        }
    }

    #[test]
    fn a_thread_s_priority_is_its_own() {
        let before = thread_priority().expect("reads");
        let there = std::thread::scope(|scope| {
            let other = scope
                .spawn(|| call_with_priority(Priority::BestEffort(6), || thread_priority().expect("reads")));
            other.join().expect("ends")
        });
        assert_eq!(there, Priority::BestEffort(6));
        assert_eq!(thread_priority().expect("reads"), before);
    }

    #[test]
    fn asking_for_the_permission_leaves_the_thread_s_priority() {
        let before = thread_priority().expect("reads");
        let may = may_be_real_time();
        assert_eq!(thread_priority().expect("reads"), before);
        assert_eq!(matches!(Priority::of_log(), Priority::RealTime(_)), may);
        assert_eq!(Priority::of_bulk() == Priority::Idle, !may);
    }
}
