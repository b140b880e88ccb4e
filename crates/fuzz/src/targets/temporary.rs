//! Files that a target writes for a decoder that opens its input by path.

use std::path::{Path, PathBuf};

/// A path of the calling thread's own, in memory where the machine has a file system there.
pub(super) fn path(extension: &str) -> PathBuf {
    let directory = if Path::new("/dev/shm").is_dir() { "/dev/shm" } else { "/tmp" };
    let (process, thread) = (std::process::id(), std::thread::current().id());
    PathBuf::from(format!("{directory}/furrow-fuzz-{process}-{thread:?}.{extension}"))
}
