//! The character device of a ublk device: the data of its requests.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, RawFd};
use std::os::unix::fs::FileExt;

use super::abi::{Tag, UblkId, data_offset};

/// /dev/ublkcN, which one process at a time may have open.
#[derive(Debug)]
pub struct CharDevice {
    file: File,
}

impl CharDevice {
    /// Opens the character device; `EBUSY` while another process has it open.
    pub fn open(id: UblkId) -> io::Result<CharDevice> {
        let file = OpenOptions::new().read(true).write(true).open(format!("/dev/ublkc{id}"))?;
        Ok(CharDevice { file })
    }

    /// Copies the first bytes of the data that a write or an append brings.
    pub fn copy_from_request(&self, queue: u16, tag: Tag, into: &mut [u8]) -> io::Result<()> {
        self.file.read_exact_at(into, data_offset(queue, tag, 0))
    }

    /// Copies `data` to where a read or a report wants it, from its first byte on.
    pub fn copy_to_request(&self, queue: u16, tag: Tag, data: &[u8]) -> io::Result<()> {
        self.file.write_all_at(data, data_offset(queue, tag, 0))
    }
}

impl AsFd for CharDevice {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }
}

impl AsRawFd for CharDevice {
    fn as_raw_fd(&self) -> RawFd {
        self.file.as_raw_fd()
    }
}
