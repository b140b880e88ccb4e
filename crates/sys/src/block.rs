//! Zoned block devices: the kernel's ioctls, as safe functions.
//!
//! All functions block; a thread that must not block uses [`Request::Call`](crate::Request::Call). The kernel counts
//! in sectors of 512 bytes; these functions count in bytes.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use units::Bytes;

/// The unit of the kernel's zone ioctls.
pub const SECTOR: u64 = 512;
/// Zones of one report ioctl. The device is busy while the kernel builds a report, so a large report is requested in
/// parts.
const REPORT_CHUNK: u32 = 1024;

const BLKSSZGET: libc::c_ulong = 0x1268;
const BLKROGET: libc::c_ulong = 0x125e;
const BLKPBSZGET: libc::c_ulong = 0x127b;
const BLKGETSIZE64: libc::c_ulong = 0x8008_1272;
const BLKREPORTZONE: libc::c_ulong = 0xc010_1282;
const BLKRESETZONE: libc::c_ulong = 0x4010_1283;
const BLKGETZONESZ: libc::c_ulong = 0x8004_1284;
const BLKGETNRZONES: libc::c_ulong = 0x8004_1285;
const BLKOPENZONE: libc::c_ulong = 0x4010_1286;
const BLKCLOSEZONE: libc::c_ulong = 0x4010_1287;
const BLKFINISHZONE: libc::c_ulong = 0x4010_1288;
/// Flag of a zone report: it has each zone's capacity (since kernel 5.9).
const BLK_ZONE_REP_CAPACITY: u32 = 1;

/// Kind of a zone.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum ZoneKind {
    /// Written anywhere.
    Conventional,
    /// A sequential zone: written at its write pointer only.
    SequentialRequired,
    /// A sequential-preferred zone: better written at its write pointer (host-aware drives).
    SequentialPreferred,
    /// A zone type that this version does not know.
    Other(u8),
}

/// The state of a zone in the kernel's report.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Condition {
    /// A conventional zone: it has no write pointer.
    NotWritePointer,
    /// Nothing written.
    Empty,
    /// Opened by a write.
    ImplicitOpen,
    /// Opened by command.
    ExplicitOpen,
    /// Active, not open.
    Closed,
    /// The zone is written to its end, or was finished.
    Full,
    /// Reads only.
    ReadOnly,
    /// The zone can be neither read nor written.
    Offline,
    /// A zone state that this version does not know.
    Other(u8),
}

/// A zone, as the kernel reports it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Zone {
    /// First byte of the zone.
    pub start: Bytes,
    /// Size of the zone.
    pub len: Bytes,
    /// Bytes of the zone that can be written.
    pub capacity: Bytes,
    /// The zone's write pointer; without meaning for a conventional, full, read-only or offline zone.
    pub pointer: Bytes,
    /// Kind of the zone.
    pub kind: ZoneKind,
    /// State of the zone.
    pub condition: Condition,
}

/// The kernel's `struct blk_zone`.
#[repr(C)]
#[derive(Clone, Copy, Default)]
struct BlkZone {
    start: u64,
    len: u64,
    wp: u64,
    kind: u8,
    cond: u8,
    non_seq: u8,
    reset: u8,
    resv: [u8; 4],
    capacity: u64,
    reserved: [u8; 24],
}

/// The kernel's `struct blk_zone_report`, followed by its zones.
#[repr(C)]
struct BlkZoneReport {
    sector: u64,
    nr_zones: u32,
    flags: u32,
    zones: [BlkZone; REPORT_CHUNK as usize],
}

/// The kernel's `struct blk_zone_range`.
#[repr(C)]
struct BlkZoneRange {
    sector: u64,
    nr_sectors: u64,
}

const _: () = assert!(size_of::<BlkZone>() == 64);
const _: () = assert!(size_of::<BlkZoneReport>() == 16 + 64 * REPORT_CHUNK as usize);
const _: () = assert!(size_of::<BlkZoneRange>() == 16);

impl Condition {
    /// The zone state of a code: NVMe and the kernel have the same codes.
    pub(crate) fn from_code(code: u8) -> Condition {
        match code {
            0 => Condition::NotWritePointer,
            1 => Condition::Empty,
            2 => Condition::ImplicitOpen,
            3 => Condition::ExplicitOpen,
            4 => Condition::Closed,
            0xd => Condition::ReadOnly,
            0xe => Condition::Full,
            0xf => Condition::Offline,
            other => Condition::Other(other),
        }
    }
}

impl Condition {
    /// The code of the zone state.
    fn code(self) -> u8 {
        match self {
            Condition::NotWritePointer => 0,
            Condition::Empty => 1,
            Condition::ImplicitOpen => 2,
            Condition::ExplicitOpen => 3,
            Condition::Closed => 4,
            Condition::ReadOnly => 0xd,
            Condition::Full => 0xe,
            Condition::Offline => 0xf,
            Condition::Other(code) => code,
        }
    }
}

impl Zone {
    /// The zone as the kernel reports it to programs, and as a server of a block device reports it to the kernel.
    pub fn encode(&self) -> [u8; size_of::<BlkZone>()] {
        let kind = match self.kind {
            ZoneKind::Conventional => 1,
            ZoneKind::SequentialRequired => 2,
            ZoneKind::SequentialPreferred => 3,
            ZoneKind::Other(code) => code,
        };
        let mut bytes = [0; size_of::<BlkZone>()];
        for (at, field) in [(0, self.start), (8, self.len), (16, self.pointer), (32, self.capacity)] {
            // A zone without a write pointer has one beyond every sector.
            let sectors = if field.0 == u64::MAX { u64::MAX } else { field.0 / SECTOR };
            if let Some(place) = bytes.get_mut(at..at + 8) {
                place.copy_from_slice(&sectors.to_ne_bytes());
            }
        }
        if let Some(place) = bytes.get_mut(24..26) {
            place.copy_from_slice(&[kind, self.condition.code()]);
        }
        bytes
    }

    fn decode_zone(raw: &BlkZone, has_capacity: bool) -> Zone {
        let bytes = |sectors: u64| Bytes(sectors.saturating_mul(SECTOR));
        Zone {
            start: bytes(raw.start),
            len: bytes(raw.len),
            capacity: bytes(if has_capacity { raw.capacity } else { raw.len }),
            pointer: bytes(raw.wp),
            kind: match raw.kind {
                1 => ZoneKind::Conventional,
                2 => ZoneKind::SequentialRequired,
                3 => ZoneKind::SequentialPreferred,
                other => ZoneKind::Other(other),
            },
            condition: Condition::from_code(raw.cond),
        }
    }
}

/// Opens a block device for direct, exclusive use; `EBUSY` if it is mounted or opened exclusively elsewhere.
pub fn open_exclusive(path: &Path) -> io::Result<File> {
    let flags = libc::O_DIRECT | libc::O_EXCL | libc::O_CLOEXEC;
    OpenOptions::new().read(true).write(true).custom_flags(flags).open(path)
}

/// Opens a device for reading, not exclusively.
pub fn open_to_look(path: &Path) -> io::Result<File> {
    OpenOptions::new().read(true).custom_flags(libc::O_CLOEXEC | libc::O_NONBLOCK).open(path)
}

/// The device's logical block size in bytes.
pub fn block_size(device: &File) -> io::Result<Bytes> {
    get_u32(device, BLKSSZGET).map(|size| Bytes(size.into()))
}

/// The device's physical block size in bytes: a smaller write costs the device a read.
pub fn physical_block_size(device: &File) -> io::Result<Bytes> {
    get_u32(device, BLKPBSZGET).map(|size| Bytes(size.into()))
}

/// True if the device is read-only.
pub fn is_read_only(device: &File) -> io::Result<bool> {
    get_u32(device, BLKROGET).map(|flag| flag != 0)
}

/// The device's size.
pub fn size(device: &File) -> io::Result<Bytes> {
    let mut size = 0u64;
    // SAFETY: this ioctl writes a u64, and the pointer is to a u64 that lives through the call.
    check_ioctl_result(unsafe { libc::ioctl(device.as_raw_fd(), BLKGETSIZE64, &raw mut size) })?;
    Ok(Bytes(size))
}

/// The size of the device's zones in bytes; zero if the device is not zoned.
pub fn zone_size(device: &File) -> io::Result<Bytes> {
    get_u32(device, BLKGETZONESZ).map(|sectors| Bytes(u64::from(sectors) * SECTOR))
}

/// The number of zones; zero if the device is not zoned.
pub fn zone_count(device: &File) -> io::Result<u32> {
    get_u32(device, BLKGETNRZONES)
}

/// Reports at most `max` zones, from the one that contains byte `from` on.
pub fn report(device: &File, from: Bytes, max: u32) -> io::Result<Vec<Zone>> {
    let mut zones = Vec::new();
    let mut sector = from.0 / SECTOR;
    // The report is on the heap, because one of this size may exceed a helper thread's stack.
    let mut raw = Box::new(BlkZoneReport {
        sector,
        nr_zones: 0,
        flags: 0,
        zones: [BlkZone::default(); REPORT_CHUNK as usize],
    });
    while let left @ 1.. = max.saturating_sub(u32::try_from(zones.len()).unwrap_or(u32::MAX)) {
        raw.sector = sector;
        raw.nr_zones = left.min(REPORT_CHUNK);
        raw.flags = 0;
        // SAFETY: the kernel reads the report's header and writes the header and up to `nr_zones` zones
        // behind it, for which there is room: `nr_zones` is at most the array's length.
        check_ioctl_result(unsafe { libc::ioctl(device.as_raw_fd(), BLKREPORTZONE, &raw mut *raw) })?;
        let has_capacity = raw.flags & BLK_ZONE_REP_CAPACITY != 0;
        let count = raw.nr_zones as usize;
        let Some(chunk) = raw.zones.get(..count).filter(|chunk| !chunk.is_empty()) else { break };
        zones.extend(chunk.iter().map(|zone| Zone::decode_zone(zone, has_capacity)));
        let Some(next) = chunk.last().and_then(|last| last.start.checked_add(last.len)) else { break };
        if next <= sector {
            break; // A zone without a length: asking on would never end.
        }
        sector = next;
    }
    Ok(zones)
}

/// Resets the zones of a range, which must consist of whole zones.
pub fn reset(device: &File, at: Bytes, len: Bytes) -> io::Result<()> {
    zone_command(device, BLKRESETZONE, at, len)
}

/// Opens the zones of a range.
pub fn open(device: &File, at: Bytes, len: Bytes) -> io::Result<()> {
    zone_command(device, BLKOPENZONE, at, len)
}

/// Closes the zones of a range.
pub fn close(device: &File, at: Bytes, len: Bytes) -> io::Result<()> {
    zone_command(device, BLKCLOSEZONE, at, len)
}

/// Finishes the zones of a range.
pub fn finish(device: &File, at: Bytes, len: Bytes) -> io::Result<()> {
    zone_command(device, BLKFINISHZONE, at, len)
}

fn zone_command(device: &File, request: libc::c_ulong, at: Bytes, len: Bytes) -> io::Result<()> {
    let range = BlkZoneRange { sector: at.0 / SECTOR, nr_sectors: len.0 / SECTOR };
    loop {
        // SAFETY: these ioctls read a `blk_zone_range`, and the pointer is to a `blk_zone_range` that lives
        // through the call.
        match check_ioctl_result(unsafe { libc::ioctl(device.as_raw_fd(), request, &raw const range) }) {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            done => return done,
        }
    }
}

fn get_u32(device: &File, request: libc::c_ulong) -> io::Result<u32> {
    let mut value = 0u32;
    // SAFETY: each ioctl passed to this function writes an int or a u32, and the pointer is to a u32 that
    // lives through the call.
    check_ioctl_result(unsafe { libc::ioctl(device.as_raw_fd(), request, &raw mut value) })?;
    Ok(value)
}

fn check_ioctl_result(returned: libc::c_int) -> io::Result<()> {
    if returned < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_ordinary_file_is_no_zoned_device() {
        let file = tempfile::tempfile().expect("a temporary file");
        let errors = [
            report(&file, Bytes(0), 10).err(),
            reset(&file, Bytes(0), Bytes(1 << 20)).err(),
            zone_size(&file).err(),
            size(&file).err(),
        ];
        for error in errors {
            assert_eq!(error.and_then(|error| error.raw_os_error()), Some(libc::ENOTTY));
        }
    }

    #[test]
    fn a_report_without_capacities_takes_the_size_for_one() {
        let raw = BlkZone { start: 8, len: 64, wp: 10, kind: 2, cond: 4, capacity: 48, ..BlkZone::default() };
        let zone = Zone::decode_zone(&raw, true);
        assert_eq!((zone.start, zone.pointer, zone.capacity), (Bytes(4096), Bytes(5120), Bytes(48 * 512)));
        assert_eq!((zone.kind, zone.condition), (ZoneKind::SequentialRequired, Condition::Closed));
        assert_eq!(Zone::decode_zone(&raw, false).capacity, Bytes(64 * 512));
    }

    #[test]
    fn a_zone_is_encoded_as_the_kernel_reports_it() {
        use std::mem::offset_of;
        assert_eq!(
            [
                offset_of!(BlkZone, len),
                offset_of!(BlkZone, wp),
                offset_of!(BlkZone, kind),
                offset_of!(BlkZone, cond),
                offset_of!(BlkZone, capacity),
            ],
            [8, 16, 24, 25, 32]
        );
        let raw =
            BlkZone { start: 64, len: 32, wp: 66, kind: 2, cond: 3, capacity: 24, ..BlkZone::default() };
        let bytes = Zone::decode_zone(&raw, true).encode();
        let word = |at: usize| u64::from_ne_bytes(bytes[at..at + 8].try_into().expect("eight bytes"));
        assert_eq!((word(0), word(8), word(16), word(32)), (64, 32, 66, 24));
        assert_eq!((bytes[24], bytes[25]), (2, 3));
        for code in 0..=u8::MAX {
            assert_eq!(Condition::from_code(code).code(), code);
        }
    }

    proptest::proptest! {
        #[test]
        fn any_zone_that_a_kernel_might_report_is_decoded(
            start: u64, len: u64, wp: u64, kind: u8, cond: u8, capacity: u64, flag: bool,
        ) {
            let raw = BlkZone { start, len, wp, kind, cond, capacity, ..BlkZone::default() };
            let zone = Zone::decode_zone(&raw, flag);
            proptest::prop_assert_eq!(matches!(zone.kind, ZoneKind::Other(_)), !(1..=3).contains(&kind));
        }
    }
}
