//! The server's side of ublk, the kernel's block devices in user space (Linux 6.6 or newer for zoned ones).
//!
//! ```text
//!   Control      /dev/ublk-control   adds, starts, stops and deletes a block device
//!   CharDevice   /dev/ublkcN         copies the data of a request, at an offset that names queue and tag
//!   Queue        /dev/ublkcN         brings the requests of one queue to its thread, and their results to the kernel
//! ```
//!
//! Every device is made with `UBLK_F_USER_COPY` and `UBLK_F_ZONED`: the kernel leaves copying to the server, which is what
//! gives the result of an append a field to travel in.

mod abi;
mod char_device;
mod control;
mod params;
mod queue;

pub use abi::{DeviceState, Operation, Outcome, Request, Tag, UblkId};
pub use char_device::CharDevice;
pub use control::{Control, DeviceInfo, Features, NewDevice};
pub use params::Params;
pub use queue::Queue;

use std::io;

/// Tells the kernel that this thread, and those it starts, serve a block device: memory that they allocate is never
/// freed by writing to block devices, which might be the one that they serve.
///
/// # Errors
/// `EPERM` without the capability `CAP_SYS_RESOURCE`.
pub fn set_io_flusher() -> io::Result<()> {
    const PR_SET_IO_FLUSHER: libc::c_int = 57;
    // SAFETY: this prctl takes numbers and touches no memory of this process.
    let done = unsafe { libc::prctl(PR_SET_IO_FLUSHER, 1, 0, 0, 0) };
    if done < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}
