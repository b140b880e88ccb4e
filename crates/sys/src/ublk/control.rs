//! The control device of ublk: it adds, starts, stops and deletes block devices.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::fd::AsRawFd;

use io_uring::{IoUring, cqueue, opcode, squeue, types};
use parking_lot::Mutex;
use units::Bytes;

use super::abi::{ControlCommand, DeviceState, NEEDED_FLAGS, RawInfo, UblkId, control, flag};
use super::params::{PARAMS_LEN, Params, RawParams};
use crate::ring::probe;

/// Path of the control device.
const CONTROL_PATH: &str = "/dev/ublk-control";

/// The control device, /dev/ublk-control. Commands wait until the kernel has executed them.
pub struct Control {
    file: File,
    /// The driver takes commands only through a ring with entries of 128 bytes.
    ring: Mutex<IoUring<squeue::Entry128, cqueue::Entry>>,
}

/// Features of the kernel's ublk driver.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Features(u64);

impl Features {
    /// True if the driver has zoned devices, and copies of data by the server.
    pub fn has_zoned_devices(self) -> bool {
        self.0 & NEEDED_FLAGS == NEEDED_FLAGS
    }
}

/// A ublk device to add.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct NewDevice {
    /// Number of queues: the kernel gives no more than there are processors.
    pub queues: u16,
    /// Most requests of a queue that the server has at once.
    pub depth: u16,
    /// Longest request.
    pub max_io: Bytes,
    /// True if the block device outlives its server, so that another server may take over.
    pub recoverable: bool,
    /// A number by which the server's program knows its devices again.
    pub mark: u64,
}

/// A ublk device, as the driver has it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct DeviceInfo {
    /// Number of the device.
    pub id: UblkId,
    /// Number of queues.
    pub queues: u16,
    /// Most requests of a queue that the server has at once.
    pub depth: u16,
    /// State of the device.
    pub state: DeviceState,
    /// Process id of the server; `None` if there is none, or never was one.
    pub server: Option<u32>,
    /// True if the block device outlives its server.
    pub recoverable: bool,
    /// The mark of [`NewDevice`].
    pub mark: u64,
}

impl Control {
    /// Opens the control device.
    ///
    /// # Errors
    /// The kernel's, with `ENOENT` if the driver is not loaded; an error without a number if io_uring is not available.
    pub fn open() -> io::Result<Control> {
        let file = OpenOptions::new().read(true).write(true).open(CONTROL_PATH)?;
        let ring = IoUring::builder().build(4).map_err(|error| {
            // The error keeps no error number, so that it is not taken for one of the control device.
            io::Error::new(error.kind(), probe::refusal(&error))
        })?;
        let ring = Mutex::new(ring);
        Ok(Control { file, ring })
    }

    /// The driver's features; an error on kernels before 6.5, which cannot tell.
    pub fn features(&self) -> io::Result<Features> {
        let mut features = Box::new(0u64);
        self.run(control::GET_FEATURES, ANY_DEVICE, Some((&mut features, 8)), 0)?;
        Ok(Features(*features))
    }

    /// Adds a device, which has no block device yet.
    pub fn add(&self, new: &NewDevice) -> io::Result<DeviceInfo> {
        let mut info = Box::new(RawInfo {
            queues: new.queues,
            depth: new.depth,
            max_io_bytes: u32::try_from(new.max_io.0).unwrap_or(u32::MAX),
            device: ANY_DEVICE.0,
            flags: NEEDED_FLAGS | if new.recoverable { flag::USER_RECOVERY } else { 0 },
            server_flags: new.mark,
            ..RawInfo::default()
        });
        self.run(control::ADD_DEV, ANY_DEVICE, Some((&mut info, INFO_LEN)), 0)?;
        Ok(DeviceInfo::decode(&info))
    }

    /// Sets the parameters of a device that was not started.
    pub fn set_params(&self, id: UblkId, params: &Params) -> io::Result<()> {
        let mut raw = Box::new(params.encode());
        self.run(control::SET_PARAMS, id, Some((&mut raw, PARAMS_LEN)), 0)
    }

    /// The parameters of a device; `None` if it is not zoned.
    pub fn params(&self, id: UblkId) -> io::Result<Option<Params>> {
        let mut raw = Box::new(RawParams::to_fill());
        self.run(control::GET_PARAMS, id, Some((&mut raw, PARAMS_LEN)), 0)?;
        Ok(Params::decode(&raw))
    }

    /// State of a device; `ENODEV` if there is none of this number.
    pub fn info(&self, id: UblkId) -> io::Result<DeviceInfo> {
        let mut info = Box::<RawInfo>::default();
        self.run(control::GET_DEV_INFO, id, Some((&mut info, INFO_LEN)), 0)?;
        Ok(DeviceInfo::decode(&info))
    }

    /// Makes the block device. The kernel reads and reports zones before this returns, so that all queues have to be
    /// served by other threads; the command waits for queues whose requests were not all asked for.
    pub fn start(&self, id: UblkId) -> io::Result<()> {
        self.run_without_buffer(control::START_DEV, id, std::process::id().into())
    }

    /// Removes the block device. The queues' requests are completed first; then every [`Queue`](super::Queue) ends.
    pub fn stop(&self, id: UblkId) -> io::Result<()> {
        self.run_without_buffer(control::STOP_DEV, id, 0)
    }

    /// Deletes the device. Its number is free when nobody has its character device or its stopped block device open any more.
    /// Kernels before 6.9 wait for that.
    pub fn delete(&self, id: UblkId) -> io::Result<()> {
        match self.run_without_buffer(control::DEL_DEV_ASYNC, id, 0) {
            Err(error) if error.raw_os_error() == Some(libc::EOPNOTSUPP) => {
                self.run_without_buffer(control::DEL_DEV, id, 0)
            }
            deleted => deleted,
        }
    }

    /// Begins to take over a device whose server is gone; `EBUSY` while the kernel still ends the server's requests.
    pub fn start_recovery(&self, id: UblkId) -> io::Result<()> {
        self.run_without_buffer(control::START_USER_RECOVERY, id, 0)
    }

    /// Ends the taking over of a device: this process is its server. Waits like [`start`](Control::start).
    pub fn end_recovery(&self, id: UblkId) -> io::Result<()> {
        self.run_without_buffer(control::END_USER_RECOVERY, id, std::process::id().into())
    }

    fn run_without_buffer(&self, code: u32, device: UblkId, data: u64) -> io::Result<()> {
        self.run::<u64>(code, device, None, data)
    }

    /// Runs a command. `buffer`: memory that the kernel reads and writes, and its length.
    fn run<T: PlainData>(
        &self,
        code: u32,
        device: UblkId,
        buffer: Option<(&mut Box<T>, u16)>,
        data: u64,
    ) -> io::Result<()> {
        let (address, length) = match buffer {
            Some((buffer, length)) => {
                assert!(usize::from(length) <= size_of::<T>(), "the kernel stays within the buffer");
                ((&raw mut **buffer).expose_provenance() as u64, length)
            }
            None => (0, 0),
        };
        let command = ControlCommand {
            device: device.0,
            queue: u16::MAX,
            length,
            address,
            data,
            ..ControlCommand::default()
        };
        let entry =
            opcode::UringCmd80::new(types::Fd(self.file.as_raw_fd()), code).cmd(command.bytes()).build();
        let mut ring = self.ring.lock();
        // SAFETY: the entry's buffer is borrowed by this call, which returns after the command's completion only, and is at
        // least as long as the command says.
        unsafe { ring.submission().push(&entry) }
            .map_err(|_| io::Error::other("the control ring is full"))?;
        loop {
            if let Some(done) = ring.completion().next() {
                let result = done.result();
                return if result < 0 { Err(io::Error::from_raw_os_error(-result)) } else { Ok(()) };
            }
            if let Err(error) = ring.submit_and_wait(1)
                && error.kind() != io::ErrorKind::Interrupted
            {
                // The kernel may still write to the buffer.
                panic!("the ring of {CONTROL_PATH} failed: {error}");
            }
        }
    }
}

/// Stands for no device in a command that names none.
const ANY_DEVICE: UblkId = UblkId(u32::MAX);
/// Length of [`RawInfo`] in a command.
const INFO_LEN: u16 = size_of::<RawInfo>() as u16;

/// Types of which every bit pattern is a value, and which have no padding that matters.
trait PlainData {}
impl PlainData for u64 {}
impl PlainData for RawInfo {}
impl PlainData for RawParams {}

impl ControlCommand {
    /// The command's bytes in a submission queue entry.
    fn bytes(&self) -> [u8; 80] {
        let mut bytes = [0; 80];
        let words = [
            u64::from(self.device) | u64::from(self.queue) << 32 | u64::from(self.length) << 48,
            self.address,
            self.data,
            u64::from(self.path_length) | u64::from(self.pad) << 16 | u64::from(self.reserved) << 32,
        ];
        for (to, word) in bytes.chunks_exact_mut(8).zip(words) {
            to.copy_from_slice(&word.to_le_bytes());
        }
        bytes
    }
}

impl DeviceInfo {
    fn decode(raw: &RawInfo) -> DeviceInfo {
        DeviceInfo {
            id: UblkId(raw.device),
            queues: raw.queues,
            depth: raw.depth,
            state: DeviceState::from_code(raw.state),
            server: u32::try_from(raw.server_pid).ok().filter(|pid| *pid != 0),
            recoverable: raw.flags & flag::USER_RECOVERY != 0,
            mark: raw.server_flags,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_command_lies_in_its_entry_as_the_kernel_reads_it() {
        let command = ControlCommand {
            device: 7,
            queue: u16::MAX,
            length: 64,
            address: 0x1122_3344_5566_7788,
            data: 99,
            ..ControlCommand::default()
        };
        let bytes = command.bytes();
        assert_eq!(bytes[..8], [7, 0, 0, 0, 0xff, 0xff, 64, 0]);
        assert_eq!(bytes[8..16], [0x88, 0x77, 0x66, 0x55, 0x44, 0x33, 0x22, 0x11]);
        assert_eq!(bytes[16..24], [99, 0, 0, 0, 0, 0, 0, 0]);
        assert!(bytes[24..].iter().all(|byte| *byte == 0));
    }

    #[test]
    fn a_device_without_a_server_names_none() {
        let info =
            |server_pid, flags| DeviceInfo::decode(&RawInfo { server_pid, flags, ..RawInfo::default() });
        assert_eq!(info(-1, 0).server, None);
        assert_eq!(info(0, 0).server, None);
        assert_eq!(info(812, 1 << 3).server, Some(812));
        assert!(info(1, 1 << 3).recoverable && !info(1, !(1 << 3)).recoverable);
    }

    #[test]
    fn a_driver_that_lacks_zones_or_copies_is_told_apart() {
        assert!(Features(0x1ff).has_zoned_devices());
        assert!(!Features(0x0ff).has_zoned_devices());
        assert!(!Features(0x17f).has_zoned_devices());
    }

    #[test]
    fn a_machine_without_the_driver_says_that_the_device_is_missing() {
        match Control::open() {
            Ok(control) => {
                assert!(control.info(UblkId(999_999)).is_err());
            }
            Err(error) => {
                assert!(
                    matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::PermissionDenied),
                    "{error}"
                );
            }
        }
    }
}
