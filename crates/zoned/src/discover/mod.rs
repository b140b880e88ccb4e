//! The zoned drives of the machine, from sysfs and /proc: their names, properties and uses by the kernel.
//!
//! All paths are below a root directory, so that tests can lay out a machine in a directory.

mod drive;
mod find;
mod interface;
#[cfg(test)]
mod tests;
mod uses;

use std::fs;
use std::io;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};

pub use drive::{DriveKind, ZonedDrive};
pub(crate) use find::{DriveName, FoundDrive};
pub use interface::Interface;
pub use uses::Use;

use crate::ErrorKind;

/// Reason why a drive is refused: error kind and message.
pub(crate) type Refusal = (ErrorKind, String);

/// Kind of the file at a path.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Node {
    /// A block device's number.
    Block { major: u32, minor: u32 },
    /// A character device's number.
    Char { major: u32, minor: u32 },
    /// A file or a directory.
    Other,
}

/// A machine whose zoned drives can be listed, from the sysfs, /proc and /dev below a root directory.
#[derive(Clone, Debug)]
pub struct Machine {
    root: PathBuf,
    identify: fn(&Path) -> io::Result<Node>,
}

impl Machine {
    /// The machine that this process runs on.
    pub fn here() -> Machine {
        Machine { root: PathBuf::from("/"), identify }
    }

    /// A machine laid out in a directory for a test; `identify` tells what its device nodes are.
    #[cfg(test)]
    pub(crate) fn at(root: &Path, identify: fn(&Path) -> io::Result<Node>) -> Machine {
        Machine { root: root.to_owned(), identify }
    }

    /// Location of a machine's absolute path, below the root directory.
    fn path(&self, path: impl AsRef<Path>) -> PathBuf {
        let path = path.as_ref();
        self.root.join(path.strip_prefix("/").unwrap_or(path))
    }

    /// Text of a file of the machine, trimmed.
    fn trimmed_text(&self, path: impl AsRef<Path>) -> Option<String> {
        let bytes = fs::read(self.path(path)).ok()?;
        Some(String::from_utf8_lossy(&bytes).trim().to_owned())
    }

    /// Value of a block device's sysfs attribute; `None` if empty.
    fn attribute(&self, block: &str, name: &str) -> Option<String> {
        self.trimmed_text(format!("/sys/class/block/{block}/{name}")).filter(|text| !text.is_empty())
    }

    /// Sorted names in a directory of the machine; none if the directory does not exist.
    fn sorted_names(&self, directory: impl AsRef<Path>) -> Vec<String> {
        let entries = fs::read_dir(self.path(directory)).into_iter().flatten().flatten();
        let mut names: Vec<String> =
            entries.filter_map(|entry| entry.file_name().into_string().ok()).collect();
        names.sort_unstable();
        names
    }

    /// Last component of a symbolic link's target.
    fn link_target_name(&self, path: impl AsRef<Path>) -> Option<String> {
        let target = fs::read_link(self.path(path)).ok()?;
        target.file_name()?.to_str().map(str::to_owned)
    }
}

fn identify(path: &Path) -> io::Result<Node> {
    let metadata = fs::metadata(path)?;
    let (major, minor) = (rustix::fs::major(metadata.rdev()), rustix::fs::minor(metadata.rdev()));
    let kind = metadata.file_type();
    Ok(match () {
        () if kind.is_block_device() => Node::Block { major, minor },
        () if kind.is_char_device() => Node::Char { major, minor },
        () => Node::Other,
    })
}

/// The character device of an NVMe namespace's block device: `ng0n1` of `nvme0n1`.
fn nvme_char(block: &str) -> Option<String> {
    let rest = block.strip_prefix("nvme")?;
    let (controller, namespace) = rest.split_once('n')?;
    let digits = |text: &str| !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit());
    (digits(controller) && digits(namespace)).then(|| format!("ng{rest}"))
}

/// The block device of an NVMe character device: `nvme0n1` of `ng0n1`.
fn nvme_block(char: &str) -> Option<String> {
    let block = format!("nvme{}", char.strip_prefix("ng")?);
    nvme_char(&block).is_some().then_some(block)
}
