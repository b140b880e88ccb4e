//! Numbers and layouts of the ublk interface (`linux/ublk_cmd.h`), and requests as values.

use std::fmt;

use units::Bytes;

use crate::block::SECTOR;

/// Number of a ublk device: N of /dev/ublkbN and /dev/ublkcN.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct UblkId(pub u32);

impl fmt::Display for UblkId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.0)
    }
}

/// Number of a request within its queue while the server has it.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Tag(pub u16);

/// Most requests of a queue that the server may have at once.
pub(super) const MAX_DEPTH: u16 = 4096;

/// Features of the kernel's driver, and flags of a device.
pub(super) mod flag {
    /// The device outlives its server: another one may take over (`UBLK_F_USER_RECOVERY`).
    pub(in crate::ublk) const USER_RECOVERY: u64 = 1 << 3;
    /// Commands have the numbers of ioctls (`UBLK_F_CMD_IOCTL_ENCODE`).
    pub(in crate::ublk) const CMD_IOCTL_ENCODE: u64 = 1 << 6;
    /// The server copies the data of requests itself (`UBLK_F_USER_COPY`).
    pub(in crate::ublk) const USER_COPY: u64 = 1 << 7;
    /// The device is zoned (`UBLK_F_ZONED`).
    pub(in crate::ublk) const ZONED: u64 = 1 << 8;
}

/// Flags that every device of this crate has.
pub(super) const NEEDED_FLAGS: u64 = flag::CMD_IOCTL_ENCODE | flag::USER_COPY | flag::ZONED;

/// Commands on /dev/ublk-control.
pub(super) mod control {
    use super::{ControlCommand, ioctl_read, ioctl_read_write};

    const SIZE: usize = size_of::<ControlCommand>();
    pub(in crate::ublk) const GET_DEV_INFO: u32 = ioctl_read(0x02, SIZE);
    pub(in crate::ublk) const ADD_DEV: u32 = ioctl_read_write(0x04, SIZE);
    pub(in crate::ublk) const DEL_DEV: u32 = ioctl_read_write(0x05, SIZE);
    pub(in crate::ublk) const START_DEV: u32 = ioctl_read_write(0x06, SIZE);
    pub(in crate::ublk) const STOP_DEV: u32 = ioctl_read_write(0x07, SIZE);
    pub(in crate::ublk) const SET_PARAMS: u32 = ioctl_read_write(0x08, SIZE);
    pub(in crate::ublk) const GET_PARAMS: u32 = ioctl_read(0x09, SIZE);
    pub(in crate::ublk) const START_USER_RECOVERY: u32 = ioctl_read_write(0x10, SIZE);
    pub(in crate::ublk) const END_USER_RECOVERY: u32 = ioctl_read_write(0x11, SIZE);
    pub(in crate::ublk) const GET_FEATURES: u32 = ioctl_read(0x13, SIZE);
    pub(in crate::ublk) const DEL_DEV_ASYNC: u32 = ioctl_read(0x14, SIZE);
}

/// Commands on /dev/ublkcN.
pub(super) mod io {
    use super::{IoCommand, ioctl_read_write};

    const SIZE: usize = size_of::<IoCommand>();
    pub(in crate::ublk) const FETCH_REQ: u32 = ioctl_read_write(0x20, SIZE);
    pub(in crate::ublk) const COMMIT_AND_FETCH_REQ: u32 = ioctl_read_write(0x21, SIZE);
}

/// `_IOR('u', number, size)`
const fn ioctl_read(number: u32, size: usize) -> u32 {
    2 << 30 | (size as u32) << 16 | (b'u' as u32) << 8 | number
}

/// `_IOWR('u', number, size)`
const fn ioctl_read_write(number: u32, size: usize) -> u32 {
    1 << 30 | ioctl_read(number, size)
}

/// Offset in /dev/ublkcN of the data of requests.
const DATA_OFFSET: u64 = 0x8000_0000;
/// Bits of the offset within a request's data.
const DATA_BITS: u32 = 25;
/// Bits of the tag.
const TAG_BITS: u32 = 16;

/// The offset in /dev/ublkcN of byte `at` of a request's data.
pub(super) fn data_offset(queue: u16, tag: Tag, at: u64) -> u64 {
    debug_assert!(at < 1 << DATA_BITS, "a request is at most 32 MiB long");
    DATA_OFFSET + (u64::from(queue) << (DATA_BITS + TAG_BITS)) + (u64::from(tag.0) << DATA_BITS) + at
}

/// The offset in /dev/ublkcN of a queue's descriptors, and the length of the mapping.
pub(super) fn descriptors(queue: u16, depth: u16, page: usize) -> (u64, usize) {
    let length = |depth: u16| (usize::from(depth) * size_of::<Descriptor>()).next_multiple_of(page);
    (u64::from(queue) * length(MAX_DEPTH) as u64, length(depth))
}

/// The kernel's `struct ublksrv_ctrl_cmd`.
#[repr(C)]
#[derive(Clone, Copy, Default)]
pub(super) struct ControlCommand {
    pub(super) device: u32,
    /// 0xffff: none of these commands is about one queue.
    pub(super) queue: u16,
    pub(super) length: u16,
    pub(super) address: u64,
    pub(super) data: u64,
    pub(super) path_length: u16,
    pub(super) pad: u16,
    pub(super) reserved: u32,
}

/// The kernel's `struct ublksrv_ctrl_dev_info`.
#[repr(C)]
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
pub(super) struct RawInfo {
    pub(super) queues: u16,
    pub(super) depth: u16,
    pub(super) state: u16,
    pub(super) pad: u16,
    pub(super) max_io_bytes: u32,
    pub(super) device: u32,
    pub(super) server_pid: i32,
    pub(super) pad2: u32,
    pub(super) flags: u64,
    /// For the server alone: the driver only keeps these bits.
    pub(super) server_flags: u64,
    pub(super) owner_uid: u32,
    pub(super) owner_gid: u32,
    pub(super) reserved: [u64; 2],
}

/// The kernel's `struct ublksrv_io_cmd`.
#[repr(C)]
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
pub(super) struct IoCommand {
    pub(super) queue: u16,
    pub(super) tag: u16,
    pub(super) result: i32,
    /// The sector where an append landed; 0 for every other operation, or the kernel refuses the command.
    pub(super) append_sector: u64,
}

/// The kernel's `struct ublksrv_io_desc`.
#[repr(C)]
#[derive(Clone, Copy, Default)]
pub(super) struct Descriptor {
    pub(super) op_flags: u32,
    /// Sectors; of a report the number of zones.
    pub(super) count: u32,
    pub(super) start_sector: u64,
    pub(super) address: u64,
}

const _: () = assert!(size_of::<ControlCommand>() == 32);
const _: () = assert!(size_of::<RawInfo>() == 64);
const _: () = assert!(size_of::<IoCommand>() == 16);
const _: () = assert!(size_of::<Descriptor>() == 24);

impl IoCommand {
    /// The command's bytes in a submission queue entry.
    pub(super) fn bytes(&self) -> [u8; 16] {
        let number = u128::from(self.queue)
            | u128::from(self.tag) << 16
            | u128::from(self.result.cast_unsigned()) << 32
            | u128::from(self.append_sector) << 64;
        number.to_le_bytes()
    }

    /// The command that gives the kernel the outcome of a request.
    pub(super) fn commit(queue: u16, tag: Tag, outcome: Outcome) -> IoCommand {
        let (result, append_sector) = match outcome {
            Outcome::Done => (0, 0),
            Outcome::Moved(bytes) => (i32::try_from(bytes.0).unwrap_or(i32::MAX), 0),
            Outcome::Appended(at) => (0, at.0 / SECTOR),
            Outcome::Failed { errno } => (-errno.abs().max(1), 0),
        };
        IoCommand { queue, tag: tag.0, result, append_sector }
    }
}

/// The layout of `IoCommand::bytes` is that of a little-endian machine.
const _: () = assert!(cfg!(target_endian = "little"), "ublk is supported on little-endian machines");

/// State of a ublk device.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum DeviceState {
    /// No server and no block device: never started, or stopped.
    Dead,
    /// A server answers.
    Live,
    /// The server is gone; requests wait for another one.
    Quiesced,
    /// A state that this version does not know.
    Other(u16),
}

impl DeviceState {
    pub(super) fn from_code(code: u16) -> DeviceState {
        match code {
            0 => DeviceState::Dead,
            1 => DeviceState::Live,
            2 => DeviceState::Quiesced,
            other => DeviceState::Other(other),
        }
    }
}

/// Operation of a request.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Operation {
    /// Reads data.
    Read,
    /// Writes data at the address of the request.
    Write,
    /// Appends data to the zone that begins at the address of the request.
    Append,
    /// Makes acknowledged writes durable.
    Flush,
    /// Opens a zone.
    OpenZone,
    /// Closes a zone.
    CloseZone,
    /// Finishes a zone.
    FinishZone,
    /// Resets a zone.
    ResetZone,
    /// Resets every zone.
    ResetAllZones,
    /// Reports zones.
    ReportZones,
    /// An operation that this version does not know.
    Other(u8),
}

/// A request of the kernel.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Request {
    /// The request's number in its queue.
    pub tag: Tag,
    /// The operation that the kernel requests.
    pub operation: Operation,
    /// Address of the first byte.
    pub at: Bytes,
    /// Number of bytes of data; 0 for a report.
    pub len: Bytes,
    /// Most zones of a report; 0 for all other operations.
    pub zones: u32,
    /// True if the data has to be durable when the request is completed.
    pub fua: bool,
}

/// Outcome of a request.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Outcome {
    /// A flush or a zone command succeeded.
    Done,
    /// The number of bytes that were read, written or reported. After a short read or report the kernel requests the rest.
    Moved(Bytes),
    /// An append landed at this byte of the device.
    Appended(Bytes),
    /// The request failed.
    Failed {
        /// The error number that the program sees which made the request.
        errno: i32,
    },
}

impl Request {
    /// Decodes a queue's descriptor of the request `tag`.
    pub(super) fn decode(tag: Tag, raw: &Descriptor) -> Request {
        const FUA: u32 = 1 << 13;
        let [code, ..] = raw.op_flags.to_le_bytes();
        let operation = match code {
            0 => Operation::Read,
            1 => Operation::Write,
            2 => Operation::Flush,
            10 => Operation::OpenZone,
            11 => Operation::CloseZone,
            12 => Operation::FinishZone,
            13 => Operation::Append,
            14 => Operation::ResetAllZones,
            15 => Operation::ResetZone,
            18 => Operation::ReportZones,
            other => Operation::Other(other),
        };
        let is_report = operation == Operation::ReportZones;
        Request {
            tag,
            operation,
            at: Bytes(raw.start_sector.saturating_mul(SECTOR)),
            len: Bytes(if is_report { 0 } else { u64::from(raw.count) * SECTOR }),
            zones: if is_report { raw.count } else { 0 },
            fua: raw.op_flags & FUA != 0,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commands_have_the_numbers_of_the_kernels_header() {
        let found = [
            control::GET_DEV_INFO,
            control::ADD_DEV,
            control::DEL_DEV,
            control::START_DEV,
            control::STOP_DEV,
            control::SET_PARAMS,
            control::GET_PARAMS,
            control::START_USER_RECOVERY,
            control::END_USER_RECOVERY,
            control::GET_FEATURES,
            control::DEL_DEV_ASYNC,
            io::FETCH_REQ,
            io::COMMIT_AND_FETCH_REQ,
        ];
        let expected = [
            0x8020_7502,
            0xc020_7504,
            0xc020_7505,
            0xc020_7506,
            0xc020_7507,
            0xc020_7508,
            0x8020_7509,
            0xc020_7510,
            0xc020_7511,
            0x8020_7513,
            0x8020_7514,
            0xc010_7520,
            0xc010_7521,
        ];
        assert_eq!(found, expected);
        assert_eq!(NEEDED_FLAGS, 0x1c0);
    }

    #[test]
    fn fields_lie_where_the_kernel_looks_for_them() {
        use std::mem::offset_of;
        assert_eq!(
            [
                offset_of!(ControlCommand, queue),
                offset_of!(ControlCommand, length),
                offset_of!(ControlCommand, address),
                offset_of!(ControlCommand, data),
                offset_of!(ControlCommand, path_length),
            ],
            [4, 6, 8, 16, 24]
        );
        assert_eq!(
            [
                offset_of!(RawInfo, state),
                offset_of!(RawInfo, max_io_bytes),
                offset_of!(RawInfo, device),
                offset_of!(RawInfo, server_pid),
                offset_of!(RawInfo, flags),
                offset_of!(RawInfo, server_flags),
                offset_of!(RawInfo, owner_uid),
                offset_of!(RawInfo, reserved),
            ],
            [4, 8, 12, 16, 24, 32, 40, 48]
        );
        assert_eq!([offset_of!(Descriptor, count), offset_of!(Descriptor, start_sector)], [4, 8]);
    }

    #[test]
    fn the_data_of_a_request_has_an_offset_of_its_own() {
        assert_eq!(data_offset(0, Tag(0), 0), 0x8000_0000);
        assert_eq!(data_offset(0, Tag(1), 4096), 0x8200_1000);
        assert_eq!(data_offset(1, Tag(0), 0), 0x200_8000_0000);
        assert_eq!(data_offset(3, Tag(4095), 1), 0x620_7e00_0001);
    }

    #[test]
    fn descriptors_of_a_queue_are_mapped_in_whole_pages() {
        assert_eq!(descriptors(0, 1, 4096), (0, 4096));
        assert_eq!(descriptors(1, 128, 4096), (98_304, 4096));
        assert_eq!(descriptors(2, 171, 4096), (196_608, 8192));
        assert_eq!(descriptors(1, 128, 65_536), (131_072, 65_536));
    }

    #[test]
    fn only_an_append_says_where_it_landed() {
        let commit = |outcome| IoCommand::commit(2, Tag(7), outcome);
        let command = |result, append_sector| IoCommand { queue: 2, tag: 7, result, append_sector };
        assert_eq!(commit(Outcome::Done), command(0, 0));
        assert_eq!(commit(Outcome::Moved(Bytes(4096))), command(4096, 0));
        assert_eq!(commit(Outcome::Appended(Bytes(1 << 20))), command(0, 2048));
        assert_eq!(commit(Outcome::Failed { errno: libc::EIO }), command(-5, 0));
        // No failure may look like a success.
        assert_eq!(commit(Outcome::Failed { errno: 0 }), command(-1, 0));
        assert_eq!(
            command(-5, 0x0102_0304_0506_0708).bytes(),
            [2, 0, 7, 0, 0xfb, 0xff, 0xff, 0xff, 8, 7, 6, 5, 4, 3, 2, 1]
        );
    }

    #[test]
    fn a_descriptor_is_a_request_in_bytes() {
        let raw = |op_flags, count, start_sector| Descriptor { op_flags, count, start_sector, address: 0 };
        let read = Request::decode(Tag(3), &raw(0, 8, 2048));
        assert_eq!((read.operation, read.at, read.len), (Operation::Read, Bytes(1 << 20), Bytes(4096)));
        assert!(!read.fua);
        let write = Request::decode(Tag(3), &raw(1 | 1 << 13, 8, 0));
        assert_eq!((write.operation, write.fua), (Operation::Write, true));
        let report = Request::decode(Tag(0), &raw(18, 904, 4096));
        assert_eq!((report.operation, report.zones, report.len), (Operation::ReportZones, 904, Bytes(0)));
        for (code, operation) in [
            (2, Operation::Flush),
            (10, Operation::OpenZone),
            (11, Operation::CloseZone),
            (12, Operation::FinishZone),
            (13, Operation::Append),
            (14, Operation::ResetAllZones),
            (15, Operation::ResetZone),
            (3, Operation::Other(3)),
            (255, Operation::Other(255)),
        ] {
            assert_eq!(Request::decode(Tag(0), &raw(code, 0, 0)).operation, operation);
        }
    }

    proptest::proptest! {
        #[test]
        fn any_descriptor_is_decoded(op_flags: u32, count: u32, start_sector: u64) {
            let raw = Descriptor { op_flags, count, start_sector, address: 0 };
            let request = Request::decode(Tag(1), &raw);
            proptest::prop_assert!(request.len == Bytes(0) || request.zones == 0);
        }
    }
}
