//! NVMe commands sent by ioctl: they block, and need no ring.

use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;

use super::Command;

/// `_IO('N', 0x40)`: the ioctl that returns the namespace's id.
const NVME_IOCTL_ID: libc::c_ulong = 0x4e40;
/// `_IOWR('N', 0x47, PassthruCmd64)`: the ioctl for an NVMe admin command.
const NVME_IOCTL_ADMIN64_CMD: libc::c_ulong = 0xc050_4e47;
/// `_IOWR('N', 0x48, PassthruCmd64)`: the ioctl for an NVMe command on an I/O queue.
const NVME_IOCTL_IO64_CMD: libc::c_ulong = 0xc050_4e48;

/// The part of an NVMe completion's status field that holds status code and status code type: without "more"
/// and "do not retry".
pub(crate) const STATUS_MASK: u16 = 0x7ff;

/// The kernel's `struct nvme_passthru_cmd64`. Its first 72 bytes are `struct nvme_uring_cmd`, which leaves the last 8 of a
/// ring's entry unused.
#[repr(C)]
#[derive(Default)]
pub(crate) struct PassthruCmd64 {
    opcode: u8,
    flags: u8,
    rsvd1: u16,
    nsid: u32,
    cdw2: u32,
    cdw3: u32,
    metadata: u64,
    addr: u64,
    metadata_len: u32,
    data_len: u32,
    cdw10: u32,
    cdw11: u32,
    cdw12: u32,
    cdw13: u32,
    cdw14: u32,
    cdw15: u32,
    timeout_ms: u32,
    rsvd2: u32,
    result: u64,
}

const _: () = assert!(size_of::<PassthruCmd64>() == 80);

impl PassthruCmd64 {
    /// The kernel's form of a command whose data, if any, is at address `addr`.
    pub(crate) fn new(command: &Command, addr: u64, data_len: u32) -> PassthruCmd64 {
        PassthruCmd64 {
            opcode: command.opcode,
            nsid: command.nsid,
            addr,
            data_len,
            cdw10: command.cdw10,
            cdw11: command.cdw11,
            cdw12: command.cdw12,
            cdw13: command.cdw13,
            timeout_ms: command.timeout_ms,
            ..PassthruCmd64::default()
        }
    }
}

/// The data that a command carries. The lowest two bits of the opcode tell the device the same direction.
pub(crate) enum Data<'a> {
    None,
    Out(&'a [u8]),
    In(&'a mut [u8]),
}

/// Sends a command to an I/O queue and waits. Returns its status (code and type) and its 64-bit result.
pub(crate) fn submit_and_wait(file: &File, command: &Command, data: Data<'_>) -> io::Result<(u16, u64)> {
    check(command, &data)?;
    passthru(file, NVME_IOCTL_IO64_CMD, command, data)
}

/// Sends a command that reads data to an I/O queue and waits: a report. Returns its status (code and type)
/// and its 64-bit result.
pub fn receive(file: &File, command: &Command, into: &mut [u8]) -> io::Result<(u16, u64)> {
    submit_and_wait(file, command, Data::In(into))
}

/// Sends an admin command to a namespace's or a controller's character device and waits. `into` receives the
/// command's data: empty for a command without data. Returns its status (code and type) and its 64-bit
/// result.
///
/// Most commands need `CAP_SYS_ADMIN`.
pub fn admin(file: &File, command: &Command, into: &mut [u8]) -> io::Result<(u16, u64)> {
    let data = if into.is_empty() { Data::None } else { Data::In(into) };
    check_direction(command.opcode, &data)?;
    passthru(file, NVME_IOCTL_ADMIN64_CMD, command, data)
}

/// The id of the namespace behind a namespace's character or block device.
pub fn namespace_of(file: &File) -> io::Result<u32> {
    // SAFETY: this ioctl takes no argument and touches no memory of this process.
    let id = unsafe { libc::ioctl(file.as_raw_fd(), NVME_IOCTL_ID) };
    match u32::try_from(id) {
        Ok(id) => Ok(id),
        Err(_) => Err(io::Error::last_os_error()),
    }
}

fn passthru(
    file: &File,
    request: libc::c_ulong,
    command: &Command,
    data: Data<'_>,
) -> io::Result<(u16, u64)> {
    let (addr, len) = match &data {
        Data::None => (0, 0),
        Data::Out(bytes) => (bytes.as_ptr() as u64, bytes.len()),
        Data::In(bytes) => (bytes.as_ptr() as u64, bytes.len()),
    };
    let len =
        u32::try_from(len).map_err(|_| invalid_input_error("the command's data is longer than 4 GiB"))?;
    let mut raw = PassthruCmd64::new(command, addr, len);
    // SAFETY: `raw` has the layout that this ioctl reads and writes. The kernel transfers at most `data_len`
    // bytes at `addr`, in the direction that the opcode gives, for which `data` was borrowed.
    let status = unsafe { libc::ioctl(file.as_raw_fd(), request, &raw mut raw) };
    match u16::try_from(status) {
        Ok(status) => Ok((status & STATUS_MASK, raw.result)),
        Err(_) => Err(io::Error::last_os_error()),
    }
}

/// Refuses a command on an I/O queue if its data does not fit the command's data length.
pub(crate) fn check(command: &Command, data: &Data<'_>) -> io::Result<()> {
    check_direction(command.opcode, data)?;
    let len = match data {
        Data::None => 0,
        Data::Out(bytes) => bytes.len(),
        Data::In(bytes) => bytes.len(),
    };
    let fits = command.fits(len);
    if fits { Ok(()) } else { Err(invalid_input_error("the command's length is not its buffer's")) }
}

/// Refuses a command whose opcode transfers data in another direction than its buffer: the kernel follows the
/// opcode, and would write to memory that is borrowed for reading only.
fn check_direction(opcode: u8, data: &Data<'_>) -> io::Result<()> {
    let fits = matches!((opcode & 3, data), (_, Data::None) | (1, Data::Out(_)) | (2, Data::In(_)));
    if fits { Ok(()) } else { Err(invalid_input_error("the command moves its data the other way")) }
}

fn invalid_input_error(why: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidInput, why)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_command_on_what_is_no_nvme_device_is_an_error() {
        let file = tempfile::tempfile().expect("a temporary file");
        let mut into = [0u8; 4096];
        let read = Command { opcode: 2, nsid: 1, ..Command::default() };
        let error = submit_and_wait(&file, &read, Data::In(&mut into)).expect_err("an ordinary file");
        assert_eq!(error.raw_os_error(), Some(libc::ENOTTY));
        assert_eq!(namespace_of(&file).expect_err("an ordinary file").raw_os_error(), Some(libc::ENOTTY));
    }

    #[test]
    fn data_that_is_not_as_long_as_the_command_says_is_refused() {
        let file = tempfile::tempfile().expect("a temporary file");
        let read = Command { opcode: 2, nsid: 1, cdw12: 15, ..Command::default() };
        for len in [0, 512, 4096, 15 * 4096] {
            let mut into = vec![0u8; len];
            let data = if len == 0 { Data::None } else { Data::In(&mut into) };
            let error = submit_and_wait(&file, &read, data).expect_err("16 blocks");
            assert_eq!(error.kind(), io::ErrorKind::InvalidInput, "{len} bytes");
        }
    }

    #[test]
    fn data_that_goes_another_way_than_the_opcode_says_is_refused() {
        let file = tempfile::tempfile().expect("a temporary file");
        let read = Command { opcode: 2, nsid: 1, ..Command::default() };
        let error = submit_and_wait(&file, &read, Data::Out(&[0; 512])).expect_err("a read fills its buffer");
        assert_eq!(error.kind(), io::ErrorKind::InvalidInput);
    }
}
