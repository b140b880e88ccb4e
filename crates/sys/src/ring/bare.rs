//! A minimal loop of NVMe appends, the baseline for measurements of the engine.

use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;

use io_uring::types;
use units::{Blocks, Lba};

use super::flight::nvme;
use super::thread_ring::new_io_uring;
use crate::Buf;
use crate::nvme::Command;

/// Appends `data` (whole blocks, page-aligned) `each` times to every one of `zones` of `/dev/ngXnY`, with `depth`
/// appends in flight, through a ring of its own.
///
/// # Errors
/// Errors of the kernel; `Other` for a status of the drive.
#[doc(hidden)]
pub fn appends(
    file: &File,
    nsid: u32,
    zones: &[Lba],
    each: u32,
    data: &Buf,
    blocks: Blocks,
    depth: u32,
) -> io::Result<()> {
    let mut ring = new_io_uring()?;
    let mut targets = zones.iter().flat_map(|zone| std::iter::repeat_n(*zone, each as usize));
    let mut flying = 0;
    let mut failed = None;
    loop {
        while flying < depth
            && failed.is_none()
            && let Some(zone) = targets.next()
        {
            let command = Command::append(nsid, zone, blocks, false);
            let entry = nvme(types::Fd(file.as_raw_fd()), &command, data.as_ptr().addr(), data.len());
            // SAFETY: no other code uses this ring. The entry points into `data`, which the caller lends
            // until this function returns. At the return nothing is in flight, except after errors of the
            // ring itself; then the kernel still has the pages pinned, and the device only reads them.
            unsafe { ring.submission().push(&entry) }.map_err(|_| io::Error::other("the queue is full"))?;
            flying += 1;
        }
        if flying == 0 {
            return failed.map_or(Ok(()), Err);
        }
        ring.submit_and_wait(1)?;
        for entry in ring.completion() {
            flying -= 1;
            match entry.result() {
                0 => {}
                status @ 1.. => failed = Some(io::Error::other(format!("the drive's status is {status:#x}"))),
                error => failed = Some(io::Error::from_raw_os_error(-error)),
            }
        }
    }
}
