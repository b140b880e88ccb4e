//! Block devices as `/sys` and `/proc` describe them.
//!
//! Parsers accept any text; a missing or invalid value is `None`.

use std::collections::BTreeMap;
use std::fmt;
use std::fs::{self, File};
use std::io;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};

use units::Bytes;

/// Bytes of the unit in which `/sys` gives sizes.
const SECTOR: u64 = 512;

/// A device's number.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct DeviceNumber {
    /// The driver.
    pub major: u32,
    /// The device.
    pub minor: u32,
}

/// Zoned model of a device.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Zoned {
    /// An ordinary disk, or a drive that hides its zones.
    No,
    /// Zones are optional: the drive takes any write.
    HostAware,
    /// A drive whose zones must be written at their write pointers.
    HostManaged,
}

/// Attributes of a device's request queue; `None` if this kernel does not have the attribute.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Queue {
    /// Zoned model.
    pub zoned: Option<Zoned>,
    /// The size of a zone in bytes, for a zoned device.
    pub chunk: Option<Bytes>,
    /// The number of zones; 0 if the device is not zoned.
    pub zones: Option<u32>,
    /// The most open zones of the device; 0 for no limit.
    pub max_open: Option<u32>,
    /// The most active zones of the device; 0 for no limit.
    pub max_active: Option<u32>,
    /// The most bytes of one append through the kernel.
    pub max_append: Option<Bytes>,
    /// The most bytes of one request, as the kernel is configured.
    pub max_request: Option<Bytes>,
    /// The most bytes of one request that the device accepts.
    pub max_hardware_request: Option<Bytes>,
    /// The device's logical block size in bytes.
    pub block_size: Option<Bytes>,
    /// The device's physical block size in bytes.
    pub physical_block_size: Option<Bytes>,
    /// True if the kernel assumes a volatile write cache.
    pub write_back: Option<bool>,
    /// True if the device supports forced unit access.
    pub fua: Option<bool>,
    /// True for a rotating disk.
    pub rotational: Option<bool>,
    /// The I/O scheduler that the device's queue uses.
    pub scheduler: Option<String>,
    /// The alignment in bytes that data must have in memory.
    pub dma_alignment: Option<Bytes>,
}

/// A block device.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct BlockDevice {
    /// The kernel's name of the block device, without `/dev`.
    pub name: String,
    /// Size of the device.
    pub size: Option<Bytes>,
    /// True if the device is read-only.
    pub read_only: bool,
    /// True for a partition: its `queue` is the whole disk's.
    pub partition: bool,
    /// The device's request queue.
    pub queue: Queue,
    /// The model name that the device reports.
    pub model: Option<String>,
    /// The serial number.
    pub serial: Option<String>,
    /// The world-wide name.
    pub wwid: Option<String>,
    /// Devices stacked on this device or on one of its partitions: device mapper, md, bcache.
    pub holders: Vec<String>,
    /// Names of the device's partitions.
    pub partitions: Vec<String>,
}

/// A mounted file system, from `/proc/self/mountinfo`.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Mount {
    /// The device number of the file system; not that of a device for file systems on several devices
    /// (btrfs).
    pub device: DeviceNumber,
    /// Mount point.
    pub at: PathBuf,
    /// The type of the file system, such as ext4.
    pub kind: String,
    /// Mount source: the path of the device for file systems on a device.
    pub source: PathBuf,
}

impl DeviceNumber {
    /// The device number of an open block or character device; `None` for any other file.
    pub fn of(file: &File) -> io::Result<Option<DeviceNumber>> {
        let metadata = file.metadata()?;
        let kind = metadata.file_type();
        if !(kind.is_block_device() || kind.is_char_device()) {
            return Ok(None);
        }
        let raw = metadata.rdev();
        Ok(Some(DeviceNumber { major: rustix::fs::major(raw), minor: rustix::fs::minor(raw) }))
    }

    fn parse(text: &str) -> Option<DeviceNumber> {
        let (major, minor) = text.trim().split_once(':')?;
        Some(DeviceNumber { major: major.parse().ok()?, minor: minor.parse().ok()? })
    }
}

impl fmt::Display for DeviceNumber {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.major, self.minor)
    }
}

impl BlockDevice {
    /// The facts about the block device `number` that the kernel reports in sysfs.
    pub fn of(number: DeviceNumber) -> io::Result<BlockDevice> {
        BlockDevice::read(&PathBuf::from(format!("/sys/dev/block/{number}")))
    }

    /// Like [`BlockDevice::read`], for the device whose sysfs directory is `dir`. Fails only if the directory
    /// does not exist.
    pub fn read(dir: &Path) -> io::Result<BlockDevice> {
        // Symbolic links in the path are resolved first: a partition's disk is the parent directory.
        let dir = fs::canonicalize(dir)?;
        let partition = dir.join("partition").exists();
        let disk = dir.parent().filter(|_| partition).unwrap_or(&dir);
        let text = |name: &str| read_text(&disk.join(name));
        let partitions: Vec<_> =
            entries(&dir)?.into_iter().filter(|name| dir.join(name).join("partition").exists()).collect();
        let mut holders = entries(&dir.join("holders")).unwrap_or_default();
        for partition in &partitions {
            holders.extend(entries(&dir.join(partition).join("holders")).unwrap_or_default());
        }
        Ok(BlockDevice {
            name: dir.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default(),
            size: read_text(&dir.join("size"))
                .and_then(|text| number(&text))
                .map(|n| Bytes(n.saturating_mul(SECTOR))),
            read_only: read_text(&dir.join("ro")).as_deref() == Some("1"),
            partition,
            queue: Queue::parse(&attributes(&disk.join("queue"))),
            model: text("device/model"),
            serial: text("device/serial").or_else(|| text("serial")).or_else(|| scsi_unit_serial(disk)),
            wwid: text("wwid").or_else(|| text("device/wwid")),
            holders,
            partitions,
        })
    }
}

impl Queue {
    /// Decodes a queue's attributes from their file names and contents.
    pub fn parse(attributes: &BTreeMap<String, String>) -> Queue {
        let text = |name: &str| attributes.get(name).map(|text| text.trim());
        let count = |name: &str| text(name).and_then(number);
        let small = |name: &str| count(name).and_then(|n| u32::try_from(n).ok());
        let bytes = |name: &str, unit: u64| count(name).map(|n| Bytes(n.saturating_mul(unit)));
        let flag = |name: &str| count(name).map(|n| n != 0);
        Queue {
            zoned: text("zoned").and_then(Zoned::parse),
            chunk: bytes("chunk_sectors", SECTOR),
            zones: small("nr_zones"),
            max_open: small("max_open_zones"),
            max_active: small("max_active_zones"),
            max_append: bytes("zone_append_max_bytes", 1),
            max_request: bytes("max_sectors_kb", 1024),
            max_hardware_request: bytes("max_hw_sectors_kb", 1024),
            block_size: bytes("logical_block_size", 1),
            physical_block_size: bytes("physical_block_size", 1),
            write_back: match text("write_cache") {
                Some("write back") => Some(true),
                Some("write through") => Some(false),
                _ => None,
            },
            fua: flag("fua"),
            rotational: flag("rotational"),
            scheduler: text("scheduler").and_then(bracketed_choice).map(str::to_owned),
            // `dma_alignment` is a mask: 511 means 512 bytes.
            dma_alignment: count("dma_alignment").map(|mask| Bytes(mask.saturating_add(1))),
        }
    }
}

impl Zoned {
    fn parse(text: &str) -> Option<Zoned> {
        match text {
            "none" => Some(Zoned::No),
            "host-aware" => Some(Zoned::HostAware),
            "host-managed" => Some(Zoned::HostManaged),
            _ => None,
        }
    }
}

/// Mounted file systems in this process's mount namespace.
pub fn mounts() -> io::Result<Vec<Mount>> {
    Ok(parse_mounts(&fs::read_to_string("/proc/self/mountinfo")?))
}

/// Decodes `/proc/self/mountinfo`; invalid lines are skipped.
pub fn parse_mounts(text: &str) -> Vec<Mount> {
    text.lines().filter_map(parse_mount).collect()
}

fn parse_mount(line: &str) -> Option<Mount> {
    // A line of `mountinfo` has any number of optional fields before the dash.
    let (before, after) = line.split_once(" - ")?;
    let mut before = before.split(' ').skip(2);
    let mut after = after.split(' ');
    Some(Mount {
        device: DeviceNumber::parse(before.next()?)?,
        at: before.nth(1).map(unescape_octal)?.into(),
        kind: after.next()?.to_owned(),
        source: after.next().map(unescape_octal)?.into(),
    })
}

/// Files and devices that the kernel swaps to.
pub fn swaps() -> io::Result<Vec<PathBuf>> {
    match fs::read_to_string("/proc/swaps") {
        Ok(text) => Ok(parse_swaps(&text)),
        // The file does not exist: the kernel has no swapping.
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Vec::new()),
        Err(error) => Err(error),
    }
}

/// Decodes `/proc/swaps`.
pub fn parse_swaps(text: &str) -> Vec<PathBuf> {
    text.lines()
        .skip(1)
        .filter_map(|line| line.split_whitespace().next())
        .map(|path| unescape_octal(path).into())
        .collect()
}

/// The directory in `/sys` of the controller behind an NVMe namespace's character device: `model`, `serial`
/// and `firmware_rev` are in it.
pub fn nvme_controller(number: DeviceNumber) -> io::Result<PathBuf> {
    fs::canonicalize(format!("/sys/dev/char/{number}/device"))
}

/// The attributes in one directory of `/sys`: file names and contents. Empty if there is no such directory.
pub fn attributes(dir: &Path) -> BTreeMap<String, String> {
    let names = entries(dir).unwrap_or_default();
    names.into_iter().filter_map(|name| read_text(&dir.join(&name)).map(|text| (name, text))).collect()
}

/// The name of the block device of a namespace whose character device is `name`: `ng0n1` is `nvme0n1`.
pub fn nvme_block_name(name: &str) -> Option<String> {
    let rest = name.strip_prefix("ng")?;
    rest.starts_with(|c: char| c.is_ascii_digit()).then(|| format!("nvme{rest}"))
}

/// The name of the character device of a namespace whose block device is `name`: `nvme0n1` is `ng0n1`.
pub fn nvme_char_name(name: &str) -> Option<String> {
    let rest = name.strip_prefix("nvme")?;
    rest.starts_with(|c: char| c.is_ascii_digit()).then(|| format!("ng{rest}"))
}

/// SCSI devices give the serial number as a page of its own: four bytes, then ASCII.
fn scsi_unit_serial(disk: &Path) -> Option<String> {
    let page = fs::read(disk.join("device/vpd_pg80")).ok()?;
    let text = String::from_utf8_lossy(page.get(4..)?).trim_matches(['\0', ' ']).to_owned();
    (!text.is_empty()).then_some(text)
}

fn entries(dir: &Path) -> io::Result<Vec<String>> {
    let mut names: Vec<_> =
        fs::read_dir(dir)?.filter_map(|entry| entry.ok()?.file_name().into_string().ok()).collect();
    names.sort();
    Ok(names)
}

fn read_text(path: &Path) -> Option<String> {
    let raw = fs::read(path).ok()?;
    let text = String::from_utf8_lossy(&raw).trim().to_owned();
    (!text.is_empty()).then_some(text)
}

fn number(text: &str) -> Option<u64> {
    text.trim().parse().ok()
}

/// The choice that an attribute shows in brackets, or its only word.
fn bracketed_choice(text: &str) -> Option<&str> {
    match text.split_once('[').and_then(|(_, rest)| rest.split_once(']')) {
        Some((chosen, _)) => Some(chosen),
        None => Some(text).filter(|text| !text.is_empty() && !text.contains(' ')),
    }
}

/// A path in a file of `/proc`, where blanks and backslashes are octal escapes.
fn unescape_octal(text: &str) -> String {
    let mut found = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let Some((&byte, tail)) = rest.split_first() {
        match (byte, tail) {
            (b'\\', [a @ b'0'..=b'3', b @ b'0'..=b'7', c @ b'0'..=b'7', tail @ ..]) => {
                found.push(((a - b'0') << 6) | ((b - b'0') << 3) | (c - b'0'));
                rest = tail;
            }
            _ => {
                found.push(byte);
                rest = tail;
            }
        }
    }
    String::from_utf8_lossy(&found).into_owned()
}

#[cfg(test)]
#[path = "sysfs/tests.rs"]
mod tests;
