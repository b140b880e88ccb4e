//! Finds and describes the machine's zoned drives.

use std::fmt;

use sys::sysfs::{BlockDevice, Zoned};

use super::{Machine, Use, nvme_char};
use crate::Bytes;

/// Kind of a zoned drive.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum DriveKind {
    /// An NVMe zoned namespace.
    Zns,
    /// A host-managed drive without NVMe: a shingled disk, null_blk, a mapped device.
    HostManaged,
}

impl fmt::Display for DriveKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            DriveKind::Zns => "zns",
            DriveKind::HostManaged => "host-managed",
        })
    }
}

/// A zoned drive of the machine, as sysfs describes it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ZonedDrive {
    /// The kernel's name of the drive's block device.
    pub name: String,
    /// The kind.
    pub kind: DriveKind,
    /// The model name.
    pub model: Option<String>,
    /// The drive's serial number.
    pub serial: Option<String>,
    /// Size of the drive's address space, gaps above zone capacities included.
    pub size: Bytes,
    /// Number of zones.
    pub zones: u32,
    /// Distance between the starts of two zones.
    pub zone_size: Bytes,
    /// Limit of open zones; `None` if the drive has none.
    pub max_open: Option<u32>,
    /// Limit of active zones; `None` if the drive has none.
    pub max_active: Option<u32>,
    /// Uses of the drive by the kernel.
    pub uses: Vec<Use>,
    /// URLs of the drive, the preferred one first.
    pub urls: Vec<String>,
}

impl Machine {
    /// The machine's zoned drives, sorted by name.
    pub fn zoned_drives(&self) -> Vec<ZonedDrive> {
        self.sorted_names("/sys/class/block").into_iter().filter_map(|name| self.drive(name)).collect()
    }

    fn drive(&self, name: String) -> Option<ZonedDrive> {
        let device = self.device(&name)?;
        if device.partition || device.queue.zoned != Some(Zoned::HostManaged) {
            return None;
        }
        let char = nvme_char(&name);
        let limit = |limit: Option<u32>| limit.filter(|limit| *limit > 0);
        Some(ZonedDrive {
            kind: if char.is_some() { DriveKind::Zns } else { DriveKind::HostManaged },
            model: self.model(&name, device.model),
            serial: device.serial,
            size: device.size.unwrap_or_default(),
            zones: device.queue.zones.unwrap_or(0),
            zone_size: device.queue.chunk.unwrap_or_default(),
            max_open: limit(device.queue.max_open),
            max_active: limit(device.queue.max_active),
            uses: self.uses(&name),
            urls: self.urls(&name, char.as_deref()),
            name,
        })
    }

    fn urls(&self, name: &str, char: Option<&str>) -> Vec<String> {
        let mut urls = Vec::new();
        if let Some(char) = char.filter(|char| self.path(format!("/dev/{char}")).exists()) {
            urls.push(format!("nvme:/dev/{char}"));
            let serial = self.serial(name).filter(|text| !text.contains(['?', '&']));
            if let Some(serial) = serial {
                let same = |other: &String| {
                    nvme_char(other).is_some() && self.serial(other).as_ref() == Some(&serial)
                };
                let several =
                    self.sorted_names("/sys/class/block").iter().filter(|other| same(other)).count() > 1;
                urls.push(match self.namespace(name).filter(|_| several) {
                    Some(namespace) => format!("nvme:serial={serial}?namespace={namespace}"),
                    None => format!("nvme:serial={serial}"),
                });
            }
        }
        urls.push(format!("blk:/dev/{name}"));
        let links = self.sorted_names("/dev/disk/by-id").into_iter();
        let here =
            |link: &String| self.link_target_name(format!("/dev/disk/by-id/{link}")).as_deref() == Some(name);
        urls.extend(links.filter(here).map(|link| format!("blk:/dev/disk/by-id/{link}")));
        urls
    }

    fn model(&self, block: &str, model: Option<String>) -> Option<String> {
        if let Some(name) = self.attribute(block, "dm/name") {
            return Some(format!("device-mapper {name}"));
        }
        match (self.attribute(block, "device/vendor"), model?) {
            // The vendor attribute of an NVMe drive is a number and not shown.
            (Some(vendor), model) if !vendor.starts_with("0x") => Some(format!("{vendor} {model}")),
            (_, model) => Some(model),
        }
    }

    /// The serial number of the drive with a block device.
    pub(super) fn serial(&self, block: &str) -> Option<String> {
        self.device(block)?.serial
    }

    fn device(&self, block: &str) -> Option<BlockDevice> {
        BlockDevice::read(&self.path(format!("/sys/class/block/{block}"))).ok()
    }

    /// The number of the NVMe namespace with a block device.
    pub(super) fn namespace(&self, block: &str) -> Option<u32> {
        let of_name = || nvme_char(block)?.split_once('n')?.1.split_once('n')?.1.parse().ok();
        self.attribute(block, "nsid").and_then(|text| text.parse().ok()).or_else(of_name)
    }
}
