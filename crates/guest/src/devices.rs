//! The devices of a job, under names that do not depend on the order of detection.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use xtask::guest::job::Job;

use crate::{clock, null_blk, nvmet, text};

/// The directory of the devices' names.
const DEVICE_NAMES_DIRECTORY: &str = "/dev/furrow";

/// Creates the job's devices and waits for them.
pub fn make(job: &Job) -> Result<()> {
    fs::create_dir(DEVICE_NAMES_DIRECTORY)
        .with_context(|| format!("cannot make {DEVICE_NAMES_DIRECTORY}"))?;
    for (number, serial) in job.drives.iter().enumerate() {
        name_drive(&format!("zns{number}"), serial)?;
    }
    for (number, serial) in job.ordinary_drives.iter().enumerate() {
        name_drive(&format!("ordinary{number}"), serial)?;
    }
    let mut made = 0..;
    let mut next = || format!("nullb{}", made.next().unwrap_or_default());
    for (number, what) in job.null_blk.iter().enumerate() {
        let node = null_blk::make(&next(), what)?;
        symlink(&node, Path::new(DEVICE_NAMES_DIRECTORY).join(format!("nullb{number}")))?;
    }
    for (number, what) in job.loops.iter().enumerate() {
        let node = null_blk::make(&next(), what)?;
        name_drive(&format!("loop{number}"), &nvmet::make(number, &node)?)?;
    }
    Ok(())
}

/// Makes the names of the block and the character device of the drive with this serial number.
pub fn name_drive(name: &str, serial: &str) -> Result<()> {
    let node = clock::wait_for(&format!("drive with the serial number {serial}"), || {
        block_device_of_serial(serial)
    })?;
    let Some((_, numbers)) = node.to_str().and_then(|node| node.split_once("nvme")) else {
        anyhow::bail!("{} is no NVMe drive", node.display())
    };
    let other = PathBuf::from(format!("/dev/ng{numbers}"));
    clock::wait_for(&format!("{}", other.display()), || other.exists().then_some(()))?;
    symlink(&node, Path::new(DEVICE_NAMES_DIRECTORY).join(name))?;
    symlink(&other, Path::new(DEVICE_NAMES_DIRECTORY).join(format!("ng-{name}")))?;
    Ok(())
}

/// The block device of the drive with this serial number.
fn block_device_of_serial(serial: &str) -> Option<PathBuf> {
    text::list("/sys/block")
        .into_iter()
        .filter(|disk| text::get(disk.join("device/serial")).as_deref() == Some(serial))
        .map(|disk| Path::new("/dev").join(text::name(&disk)))
        // A multipath drive also has a disk without a device node for each path.
        .find(|node| node.exists())
}
