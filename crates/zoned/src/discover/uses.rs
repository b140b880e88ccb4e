//! Uses of a drive by the kernel.

use std::fmt;
use std::path::Path;

use sys::sysfs::{Mount, parse_mounts, parse_swaps};

use super::{FoundDrive, Machine, Refusal};
use crate::ErrorKind;

/// A use of a drive by the kernel.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Use {
    /// A file system on the drive is mounted.
    Mounted {
        /// The mount point.
        at: String,
    },
    /// The drive is a device of a mounted btrfs.
    Btrfs {
        /// UUID of the btrfs file system.
        uuid: String,
    },
    /// Swap.
    Swap,
    /// Another device is stacked on the drive: device-mapper, LVM, md.
    Holder {
        /// Name of the stacked device in /dev, and its kind.
        device: String,
    },
}

impl fmt::Display for Use {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Use::Mounted { at } => write!(f, "mounted at {at}"),
            Use::Btrfs { uuid } => write!(f, "part of the mounted btrfs {uuid}"),
            Use::Swap => f.write_str("used as swap"),
            Use::Holder { device } => write!(f, "part of {device}"),
        }
    }
}

impl Machine {
    /// Refuses a drive that the kernel uses or that this process may not open for writing.
    pub(crate) fn refuse_in_use(&self, target: &FoundDrive) -> Result<(), Refusal> {
        if let Some(block) = &target.block {
            let uses = self.uses(block);
            if !uses.is_empty() {
                let words: Vec<String> = uses.iter().map(Use::to_string).collect();
                let why = format!("/dev/{block} is {}: end that first", words.join(" and "));
                return Err((ErrorKind::InUse, why));
            }
        }
        self.refuse_without_permission(&target.node)
    }

    /// Uses of a block device and its partitions by the kernel.
    pub fn uses(&self, block: &str) -> Vec<Use> {
        let mut devices = vec![block.to_owned()];
        let parts = self.sorted_names(format!("/sys/class/block/{block}")).into_iter();
        devices.extend(
            parts.filter(|name| name.starts_with(block) && self.attribute(name, "partition").is_some()),
        );
        let mut uses = Vec::new();
        for device in &devices {
            let mut points = self.mounts(device);
            points.dedup();
            uses.extend(points.into_iter().map(|at| Use::Mounted { at }));
            let member = |uuid: &String| self.path(format!("/sys/fs/btrfs/{uuid}/devices/{device}")).exists();
            if !uses.iter().any(|found| matches!(found, Use::Mounted { .. })) {
                let btrfs = self.sorted_names("/sys/fs/btrfs").into_iter().filter(member);
                uses.extend(btrfs.map(|uuid| Use::Btrfs { uuid }));
            }
            if self.swaps(device) {
                uses.push(Use::Swap);
            }
            let holders = self.sorted_names(format!("/sys/class/block/{device}/holders")).into_iter();
            uses.extend(holders.map(|holder| Use::Holder { device: self.holder_name(&holder) }));
        }
        uses
    }

    /// Mount points of a block device.
    fn mounts(&self, block: &str) -> Vec<String> {
        let number = self.attribute(block, "dev");
        let table = self.trimmed_text("/proc/self/mountinfo").unwrap_or_default();
        // Some file systems are mounted under a device number of their own, so the mount source is compared too.
        let is_it = |mount: &Mount| {
            number.as_ref() == Some(&mount.device.to_string()) || self.is_device_node_of(&mount.source, block)
        };
        let here = parse_mounts(&table).into_iter().filter(is_it);
        here.map(|mount| mount.at.display().to_string()).collect()
    }

    /// True if a path of /dev leads to the block device.
    fn is_device_node_of(&self, path: &Path, block: &str) -> bool {
        if !path.starts_with("/dev") {
            return false;
        }
        let real = std::fs::canonicalize(self.path(path)).ok();
        let name = real.as_deref().unwrap_or(path).file_name();
        name.is_some_and(|name| name == block)
    }

    fn swaps(&self, block: &str) -> bool {
        let table = self.trimmed_text("/proc/swaps").unwrap_or_default();
        parse_swaps(&table).iter().any(|path| self.is_device_node_of(path, block))
    }

    fn holder_name(&self, holder: &str) -> String {
        let Some(name) = self.attribute(holder, "dm/name") else {
            let md = self.path(format!("/sys/class/block/{holder}/md")).exists();
            return if md { format!("the md array {holder}") } else { holder.to_owned() };
        };
        let uuid = self.attribute(holder, "dm/uuid").unwrap_or_default();
        let kind = match uuid.split('-').next() {
            Some("LVM") => "LVM volume",
            Some("CRYPT") => "encrypted device",
            Some("mpath") => "multipath device",
            _ => "device-mapper device",
        };
        format!("the {kind} {name} ({holder})")
    }
}
