//! The drives of the tests of priorities, each with ext4.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result};
use rustix::mount::MountFlags;

use crate::null_blk::{self, Slow};
use crate::{shell, text};

/// Time limit of making a file system.
const MKFS_LIMIT: Duration = Duration::from_secs(60);
/// Size of the null_blk device, which is in the guest's memory.
const NULL_BLK_MB: u32 = 512;
/// The slow null_blk device: requests beyond its depth wait in the kernel's queue.
const NULL_BLK: Slow = Slow { time: Duration::from_millis(2), depth: 8, longest_kib: 64 };

/// A drive with a mounted file system.
pub(super) struct Drive {
    /// The kind of drive.
    pub(super) name: &'static str,
    /// The drive's number as the trace prints it: `MAJOR,MINOR`.
    pub(super) number: String,
    /// The directory of the file system.
    pub(super) at: PathBuf,
    /// The directory of the drive's queue in /sys.
    queue: PathBuf,
}

impl Drive {
    /// Makes both drives: null_blk, where requests wait in the kernel's queue, and QEMU's NVMe drive, where they wait in the drive's.
    pub(super) fn make_both() -> Result<[Drive; 2]> {
        let node = null_blk::make_slow("slow", NULL_BLK_MB, &NULL_BLK)?;
        let null_blk = Drive::make("null_blk", &node)?;
        null_blk.choose("mq-deadline")?;
        let nvme = Drive::make("NVMe", Path::new("/dev/furrow/ordinary0"))?;
        nvme.choose("none")?;
        Ok([null_blk, nvme])
    }

    /// Makes a file system on a block device, and mounts it.
    fn make(name: &'static str, node: &Path) -> Result<Drive> {
        let node = fs::canonicalize(node)?;
        let at = Path::new("/tmp").join(name);
        make_ext4(&node)?;
        mount_ext4(&node, &at)?;
        let disk = Path::new("/sys/block").join(text::name(&node));
        let number = text::get(disk.join("dev")).context("a block device has a number")?;
        Ok(Drive { name, number: number.replace(':', ","), at, queue: disk.join("queue") })
    }

    /// Chooses the drive's I/O scheduler.
    pub(super) fn choose(&self, scheduler: &str) -> Result<()> {
        text::put(self.queue.join("scheduler"), scheduler)
    }
}

/// Makes a file system whose tables are written at once: nothing else writes to the drive later.
pub(super) fn make_ext4(node: &Path) -> Result<()> {
    let path = node.to_str().context("a device's path")?;
    let line =
        ["mkfs.ext4", "-q", "-F", "-J", "size=8", "-E", "lazy_itable_init=0,lazy_journal_init=0", path];
    shell::run_successfully(&line, MKFS_LIMIT)?;
    Ok(())
}

/// Mounts a file system on a directory, which is made.
pub(super) fn mount_ext4(node: &Path, at: &Path) -> Result<()> {
    fs::create_dir_all(at)?;
    rustix::mount::mount(node, at, "ext4", MountFlags::NOATIME, None).with_context(|| {
        let said = shell::run(&["dmesg"], MKFS_LIMIT).map(|log| log.tail()).unwrap_or_default();
        format!("mounting {}: {said}", node.display())
    })
}
