//! Exclusive use of a device by one process; the error for a second process names the first.
//!
//! A block device is opened with `O_EXCL`, which the kernel grants once: to a process, a mount, or a driver stacked
//! above. The kernel offers no exclusive open of a character device, so its node is locked by `flock`. A block node is
//! locked by `flock` too: the lock keeps udev from probing and names the holder in `/proc/locks`.

use std::fs::{self, File, Metadata};
use std::io;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustix::fs::{FlockOperation, major, minor};
use rustix::io::Errno;
use sys::sysfs::Mount;

use crate::{Error, ErrorKind, Result};

/// An exclusively opened device node. The lock ends when `file` is closed.
#[derive(Debug)]
pub(crate) struct DeviceLock {
    pub(crate) file: Arc<File>,
    /// The locked device's directory in sysfs, without symbolic links.
    pub(crate) sysfs: PathBuf,
    /// Sequence number of the disk, unique since boot; of block devices since kernel 5.15.
    diskseq: Option<String>,
    node: Node,
}

/// Kind of a device node.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Node {
    Block,
    Character,
}

impl DeviceLock {
    /// Opens and locks a device node exclusively. `name` is the device's name in messages.
    pub(crate) fn acquire(path: &Path, node: Node, name: &Arc<str>) -> Result<DeviceLock> {
        let error = |kind| Error::new(kind, name, "open");
        let failed = |e: io::Error| {
            let kind = match e.kind() {
                io::ErrorKind::NotFound => ErrorKind::NotFound,
                _ if e.raw_os_error() == Some(Errno::NXIO.raw_os_error()) => ErrorKind::NotFound,
                _ => ErrorKind::Host,
            };
            let what = match e.kind() {
                io::ErrorKind::PermissionDenied => ": run it as root, or as a member of the device's group",
                _ => "",
            };
            error(kind).because(format!("{}: {e}{what}", path.display())).from_source(e)
        };
        let found = fs::metadata(path).map_err(failed)?;
        let fits = match node {
            Node::Block => found.file_type().is_block_device(),
            Node::Character => found.file_type().is_char_device(),
        };
        if !fits {
            let wanted = match node {
                Node::Block => "a block device is needed, as in blk:/dev/nvme0n1",
                Node::Character => "a generic NVMe device is needed, as in nvme:/dev/ng0n1",
            };
            return Err(error(ErrorKind::Invalid).because(wanted));
        }
        let opened = match node {
            Node::Block => sys::block::open_exclusive(path),
            Node::Character => File::options().read(true).write(true).open(path),
        };
        let file = match opened {
            Ok(file) => file,
            Err(e) if e.raw_os_error() == Some(Errno::BUSY.raw_os_error()) => {
                return Err(held_error(name, path, &found));
            }
            Err(e) => return Err(failed(e)),
        };
        match rustix::fs::flock(&file, FlockOperation::NonBlockingLockExclusive) {
            // A locked block node is no error, because udev locks it briefly; `O_EXCL` has decided already.
            Err(Errno::WOULDBLOCK) if node == Node::Character => return Err(held_error(name, path, &found)),
            _ => {}
        }
        let sysfs = sysfs_of(&found).map_err(failed)?;
        let diskseq = attribute(&sysfs, "diskseq");
        Ok(DeviceLock { file: Arc::new(file), sysfs, diskseq, node })
    }

    /// True if the locked device has been removed.
    pub(crate) fn is_gone(&self) -> bool {
        // On removal the kernel sets the size of a disk to 0 at once, and deletes the sysfs directory after the last request.
        if self.node == Node::Block && sys::block::size(&self.file).is_ok_and(|size| size.0 == 0) {
            return true;
        }
        match &self.diskseq {
            Some(number) => attribute(&self.sysfs, "diskseq").as_ref() != Some(number),
            None => !self.sysfs.exists(),
        }
    }
}

/// The sysfs directory of a device node's device.
pub(crate) fn sysfs_of(node: &Metadata) -> io::Result<PathBuf> {
    let kind = if node.file_type().is_block_device() { "block" } else { "char" };
    let (major, minor) = (major(node.rdev()), minor(node.rdev()));
    fs::canonicalize(format!("/sys/dev/{kind}/{major}:{minor}"))
}

/// Value of a sysfs attribute; `None` if the attribute does not exist.
pub(crate) fn attribute(folder: &Path, name: &str) -> Option<String> {
    let text = fs::read_to_string(folder.join(name)).ok()?;
    Some(text.trim().to_string())
}

/// The error for a device that another process holds. Names the process, mount point or stacked device if it can be
/// found.
fn held_error(name: &Arc<str>, path: &Path, node: &Metadata) -> Error {
    let locks = fs::read_to_string("/proc/locks").unwrap_or_default();
    let pid = lock_holder(&locks, node.dev(), node.ino()).or_else(|| process_with_open(node.rdev()));
    let error = Error::new(ErrorKind::Held { pid: pid.unwrap_or(0) }, name, "open");
    let mounts = sys::sysfs::mounts().unwrap_or_default();
    let real = fs::canonicalize(path).unwrap_or_else(|_| path.to_path_buf());
    let above = sysfs_of(node).ok().and_then(|sysfs| holder_above(&sysfs));
    let program = pid.and_then(|pid| attribute(Path::new(&format!("/proc/{pid}")), "comm"));
    match (mount_point(mounts, node.rdev(), &real), above, program) {
        (Some(place), ..) => error.because(format!("mounted at {place}: unmount it first")),
        (None, Some(above), _) => error.because(format!("{above} is built on it: take that down first")),
        (None, None, Some(program)) => error.because(format!("{program} has it: stop that first")),
        (None, None, None) => error,
    }
}

/// The process that holds a `flock` on a node, from the text of `/proc/locks`.
fn lock_holder(locks: &str, dev: u64, ino: u64) -> Option<u32> {
    let place = format!("{:02x}:{:02x}:{ino}", major(dev), minor(dev));
    locks.lines().find_map(|line| {
        let mut words = line.split_whitespace().skip(1);
        let (kind, _, access) = (words.next()?, words.next()?, words.next()?);
        let (pid, on) = (words.next()?, words.next()?);
        (kind == "FLOCK" && access == "WRITE" && on == place).then(|| pid.parse().ok()).flatten()
    })
}

/// Mount point of a device. Mounts are compared by device number, and by path too, because a file system on several
/// devices is mounted under a device number of its own.
fn mount_point(mounts: Vec<Mount>, rdev: u64, path: &Path) -> Option<String> {
    let on = |mount: &Mount| {
        let (major, minor) = (mount.device.major, mount.device.minor);
        rustix::fs::makedev(major, minor) == rdev || mount.source == path
    };
    mounts.into_iter().find(on).map(|mount| mount.at.display().to_string())
}

/// Name of a device (device mapper, md) stacked on the device in `sysfs`.
fn holder_above(sysfs: &Path) -> Option<String> {
    let mut holders = fs::read_dir(sysfs.join("holders")).ok()?;
    holders.next()?.ok()?.file_name().into_string().ok()
}

/// A process that has the device open. Only root sees processes of other users.
fn process_with_open(rdev: u64) -> Option<u32> {
    let processes = fs::read_dir("/proc").ok()?;
    let pids = processes.flatten().filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok());
    let opens = |pid: &u32| {
        let files = fs::read_dir(format!("/proc/{pid}/fd"));
        files.into_iter().flatten().flatten().any(|file| {
            fs::metadata(file.path()).is_ok_and(|found| {
                found.rdev() == rdev
                    && (found.file_type().is_block_device() || found.file_type().is_char_device())
            })
        })
    };
    let mut pids = pids;
    pids.find(opens)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_holder_of_a_lock_is_read_from_the_kernels_list() {
        let locks = "1: POSIX  ADVISORY  WRITE 12 00:05:99 0 EOF\n\
                     2: FLOCK  ADVISORY  READ  13 00:05:99 0 EOF\n\
                     2: -> FLOCK  ADVISORY  WRITE 15 00:05:99 0 EOF\n\
                     3: FLOCK  ADVISORY  WRITE 14 00:05:99 0 EOF\n";
        assert_eq!(lock_holder(locks, 5, 99), Some(14));
        assert_eq!(lock_holder(locks, 5, 98), None);
        assert_eq!(lock_holder("nonsense", 5, 99), None);
    }

    #[test]
    fn a_mount_is_found_by_the_devices_number_or_path() {
        let text = "29 1 259:3 / /mnt/a rw - ext4 /dev/x rw\n30 1 0:20 / /mnt/b rw - btrfs /dev/y rw\n";
        let find = |minor, path: &str| {
            mount_point(sys::sysfs::parse_mounts(text), rustix::fs::makedev(259, minor), Path::new(path))
        };
        assert_eq!(find(3, "/dev/z"), Some("/mnt/a".into()));
        assert_eq!(find(4, "/dev/y"), Some("/mnt/b".into()));
        assert_eq!(find(4, "/dev/z"), None);
    }

    #[test]
    fn a_file_that_is_no_device_is_refused_and_a_missing_path_is_not_found() {
        let file = tempfile::NamedTempFile::new().expect("a temporary file");
        let name = Arc::from("blk:test");
        let error = DeviceLock::acquire(file.path(), Node::Block, &name).expect_err("a file");
        assert_eq!(error.kind(), ErrorKind::Invalid);
        let error =
            DeviceLock::acquire(Path::new("/dev/not-there"), Node::Character, &name).expect_err("nothing");
        assert_eq!(error.kind(), ErrorKind::NotFound);
    }

    #[test]
    fn a_character_device_is_held_once_and_the_holder_is_named() {
        // The test may lock any character device: /dev/zero is everywhere, and a lock on it harms nobody.
        let name = Arc::from("nvme:test");
        let path = Path::new("/dev/zero");
        let hold = DeviceLock::acquire(path, Node::Character, &name).expect("free");
        let error = DeviceLock::acquire(path, Node::Character, &name).expect_err("held");
        assert_eq!(error.kind(), ErrorKind::Held { pid: std::process::id() });
        drop(hold);
        DeviceLock::acquire(path, Node::Character, &name).expect("free again");
    }
}
