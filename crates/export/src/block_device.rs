//! The kernel's block device of an export, and who uses it.

use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use sys::ublk::UblkId;
use zoned::discover::Machine;
use zoned::{Error, ErrorKind};

use crate::driver;

/// Path of the block device.
pub(crate) fn path(id: UblkId) -> PathBuf {
    PathBuf::from(format!("/dev/{}", driver::name(id)))
}

/// Directory of the subsystems that the kernel's NVMe target offers.
const NVMET_SUBSYSTEMS: &str = "/sys/kernel/config/nvmet/subsystems";

/// Uses of the block device: mounts, swap, stacked devices, the kernel's NVMe target, and other processes that have it open.
/// Does not open it.
pub(crate) fn users(id: UblkId) -> Vec<String> {
    let mut users: Vec<String> =
        Machine::here().uses(&driver::name(id)).iter().map(ToString::to_string).collect();
    users.extend(nvmet_subsystems(Path::new(NVMET_SUBSYSTEMS), &path(id)));
    users.extend(openers(id));
    users
}

/// Subsystems below `directory` that offer the block device `device`, in words. The kernel's NVMe target opens block devices
/// so that nothing else tells.
fn nvmet_subsystems(directory: &Path, device: &Path) -> Vec<String> {
    let entries = |directory: PathBuf| fs::read_dir(directory).into_iter().flatten().flatten();
    let offers = |namespace: fs::DirEntry| {
        let word = |name: &str| fs::read_to_string(namespace.path().join(name)).unwrap_or_default();
        word("enable").trim() == "1" && Path::new(word("device_path").trim()) == device
    };
    let offering = |subsystem: &fs::DirEntry| entries(subsystem.path().join("namespaces")).any(offers);
    entries(directory.to_owned())
        .filter(offering)
        .map(|subsystem| format!("offered by the NVMe target as {}", subsystem.file_name().display()))
        .collect()
}

/// Processes but this one that have the block device open, in words.
fn openers(id: UblkId) -> Vec<String> {
    let (target, mine) = (path(id), std::process::id());
    let numbers = |entry: fs::DirEntry| entry.file_name().to_str()?.parse::<u32>().ok();
    let Ok(processes) = fs::read_dir("/proc") else { return Vec::new() };
    let processes = processes.filter_map(|entry| numbers(entry.ok()?)).filter(|pid| *pid != mine);
    let has_open = |pid: &u32| {
        // A process that ends meanwhile, or is another user's, has no list.
        let Ok(files) = fs::read_dir(format!("/proc/{pid}/fd")) else { return false };
        files.flatten().any(|file| fs::read_link(file.path()).is_ok_and(|link| link == target))
    };
    let words = |pid: u32| {
        let program = fs::read_to_string(format!("/proc/{pid}/comm")).unwrap_or_default();
        format!("open in process {pid} ({})", program.trim())
    };
    processes.filter(has_open).map(words).collect()
}

/// Opens the block device so that nobody can mount it or open it exclusively until the file is closed; `EBUSY` if
/// somebody has. Only for a device that is served.
pub(crate) fn claim(id: UblkId) -> io::Result<File> {
    OpenOptions::new().read(true).custom_flags(libc::O_EXCL | libc::O_CLOEXEC).open(path(id))
}

/// The error of a block device that is used; `None` if it is not. `is_served`: the device answers, so that it can be opened,
/// which finds users in other mount namespaces too.
pub(crate) fn refuse_used(id: UblkId, doing: &'static str, is_served: bool) -> Option<Error> {
    let users = users(id);
    let is_claimed = || is_served && claim(id).is_err_and(|error| error.raw_os_error() == Some(libc::EBUSY));
    (!users.is_empty() || is_claimed()).then(|| in_use(id, doing, &users))
}

/// The error of an export that is used.
pub(crate) fn in_use(id: UblkId, doing: &'static str, users: &[String]) -> Error {
    let users = if users.is_empty() { "opened exclusively".to_owned() } else { users.join(" and ") };
    Error::new(ErrorKind::InUse, &driver::name(id), doing)
        .because(format!("/dev/ublkb{id} is {users}: end that first"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_namespace_of_the_nvme_target_is_a_use_while_it_is_enabled() {
        let root = tempfile::tempdir().expect("a directory");
        let namespace = root.path().join("sub/namespaces/1");
        fs::create_dir_all(&namespace).expect("a directory");
        fs::write(namespace.join("device_path"), "/dev/ublkb3\n").expect("a file");
        let users = |enable, device| {
            fs::write(namespace.join("enable"), enable).expect("a file");
            nvmet_subsystems(root.path(), Path::new(device))
        };
        assert_eq!(users("1\n", "/dev/ublkb3"), ["offered by the NVMe target as sub"]);
        assert!(users("0\n", "/dev/ublkb3").is_empty() && users("1\n", "/dev/ublkb30").is_empty());
        assert!(nvmet_subsystems(Path::new("/nowhere"), Path::new("/dev/ublkb3")).is_empty());
    }

    #[test]
    fn a_used_export_names_its_users() {
        let error = in_use(UblkId(3), "stop", &["mounted at /data".into(), "open in process 7 (fio)".into()]);
        assert_eq!(error.kind(), ErrorKind::InUse);
        let text = error.to_string();
        assert!(text.contains("/dev/ublkb3 is mounted at /data and open in process 7 (fio)"), "{text}");
    }
}
