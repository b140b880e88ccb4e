//! Checks that this kernel supports and permits io_uring.

use std::io;

use io_uring::opcode;

use crate::ring::thread_ring::new_io_uring;

/// Creates a ring and executes a no-op on it, to test the kernel.
pub(super) fn probe() -> io::Result<()> {
    let ring = new_io_uring().map_err(|error| io::Error::new(error.kind(), refusal(&error)))?;
    let unsupported = |what: &str| io::Error::new(io::ErrorKind::Unsupported, what.to_owned());
    if !(ring.params().is_feature_ext_arg() && ring.params().is_feature_submit_stable()) {
        return Err(unsupported("io_uring of this kernel has no waits with a timeout"));
    }
    let mut probe = io_uring::Probe::new();
    ring.submitter().register_probe(&mut probe)?;
    let needed = [
        opcode::Read::CODE,
        opcode::Write::CODE,
        opcode::Writev::CODE,
        opcode::Fsync::CODE,
        opcode::PollAdd::CODE,
        opcode::UringCmd80::CODE,
    ];
    if !needed.iter().all(|code| probe.is_supported(*code)) {
        return Err(unsupported("io_uring of this kernel lacks operations that are needed"));
    }
    // SAFETY: no other code uses this ring, so this is the only view of its queue. A no-op refers to no
    // memory.
    unsafe { ring.submission_shared().push(&opcode::Nop::new().build().into()) }
        .expect("a fresh queue has room");
    ring.submit_and_wait(1)?;
    Ok(())
}

/// The error that explains why io_uring is not available.
pub(crate) fn refusal(error: &io::Error) -> String {
    let switch = std::fs::read_to_string("/proc/sys/kernel/io_uring_disabled").unwrap_or_default();
    refusal_with(error, switch.trim())
}

fn refusal_with(error: &io::Error, switch: &str) -> String {
    match (error.raw_os_error(), switch) {
        (Some(libc::EPERM), switch @ ("1" | "2")) => {
            format!("io_uring is switched off (kernel.io_uring_disabled = {switch})")
        }
        (Some(libc::EPERM), _) => {
            "io_uring is not permitted here: a container's seccomp profile, as a rule".into()
        }
        (Some(libc::ENOSYS), _) => "this kernel has no io_uring, or a seccomp profile hides it".into(),
        (Some(libc::EINVAL), _) => "io_uring of this kernel is too old: 5.19 or later is needed".into(),
        (Some(libc::ENOMEM), _) => {
            "no memory for a ring: the limit of locked memory (ulimit -l) may be too low".into()
        }
        _ => format!("io_uring cannot be set up: {error}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_refusal_says_who_refuses() {
        let says = |errno, switch, words: &str| {
            let said = refusal_with(&io::Error::from_raw_os_error(errno), switch);
            assert!(said.contains(words), "{said}");
        };
        says(libc::EPERM, "2", "io_uring_disabled = 2");
        says(libc::EPERM, "0", "seccomp");
        says(libc::EPERM, "", "seccomp");
        says(libc::ENOSYS, "", "no io_uring");
        says(libc::EINVAL, "0", "too old");
        says(libc::EMFILE, "0", "cannot be set up");
    }
}
