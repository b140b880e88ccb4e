//! The kernel's block device of an export, and who uses it.

use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::fs::OpenOptionsExt;
use std::path::PathBuf;

use sys::ublk::UblkId;
use zoned::discover::Machine;
use zoned::{Error, ErrorKind};

use crate::driver;

/// Path of the block device.
pub(crate) fn path(id: UblkId) -> PathBuf {
    PathBuf::from(format!("/dev/{}", driver::name(id)))
}

/// Uses of the block device: mounts, swap, stacked devices, and other processes that have it open. Does not open it.
pub(crate) fn users(id: UblkId) -> Vec<String> {
    let mut users: Vec<String> =
        Machine::here().uses(&driver::name(id)).iter().map(ToString::to_string).collect();
    users.extend(openers(id));
    users
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
    fn a_used_export_names_its_users() {
        let error = in_use(UblkId(3), "stop", &["mounted at /data".into(), "open in process 7 (fio)".into()]);
        assert_eq!(error.kind(), ErrorKind::InUse);
        let text = error.to_string();
        assert!(text.contains("/dev/ublkb3 is mounted at /data and open in process 7 (fio)"), "{text}");
    }
}
