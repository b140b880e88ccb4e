//! Finds the device node that a URL names; the error explains why a name is not usable.

use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use super::interface::Interface;
use super::{Machine, Node, Refusal, nvme_block, nvme_char};
use crate::ErrorKind;

/// Advice in error messages about a drive's name.
const LIST_ADVICE: &str = "`furrow device list` shows the zoned drives";
/// Byte of the SCSI page "block device characteristics" whose bits 4 and 5 give the zoned model.
const SCSI_ZONED_BYTE: usize = 8;

/// A drive's name in a URL.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum DriveName {
    /// A path of a device node, or of a link to one.
    Path(PathBuf),
    /// The drive's serial number, and the number of an NVMe controller's namespace.
    Serial { text: String, namespace: Option<u32> },
}

/// A drive that was found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct FoundDrive {
    /// The device node to open.
    pub(crate) node: PathBuf,
    /// The kernel's name of the drive's block device, if there is one.
    pub(crate) block: Option<String>,
}

impl Machine {
    /// Finds the node that an interface uses for a named drive.
    pub(crate) fn find(&self, interface: Interface, named: &DriveName) -> Result<FoundDrive, Refusal> {
        let path = match named {
            DriveName::Path(path) => path.clone(),
            DriveName::Serial { text, namespace } => {
                return self.with_serial(interface, text, *namespace);
            }
        };
        let shown = path.display();
        let node = (self.identify)(&self.path(&path)).map_err(|error| match error.kind() {
            io::ErrorKind::NotFound => (ErrorKind::NotFound, format!("there is no {shown}: {LIST_ADVICE}")),
            _ => (ErrorKind::Host, format!("{error} (examining {shown})")),
        })?;
        match node {
            Node::Other => Err(invalid_name(format!(
                "{shown} is no device: a drive kept in a file is emu:{shown}; {LIST_ADVICE}"
            ))),
            Node::Block { major, minor } => {
                let name = self.kernel_name(&path, "block", major, minor);
                self.block_node(interface, path, name)
            }
            Node::Char { major, minor } => {
                let name = self.kernel_name(&path, "char", major, minor);
                self.char_node(interface, path, &name)
            }
        }
    }

    /// The kernel's name of a device number; the node's file name if sysfs has none.
    fn kernel_name(&self, path: &Path, class: &str, major: u32, minor: u32) -> String {
        let of_path = || path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        self.link_target_name(format!("/sys/dev/{class}/{major}:{minor}")).unwrap_or_else(of_path)
    }

    fn block_node(&self, interface: Interface, path: PathBuf, name: String) -> Result<FoundDrive, Refusal> {
        let shown = path.display();
        if let Some(whole) = self.disk_of_partition(&name) {
            let scheme = interface.scheme();
            let whole = match (interface, nvme_char(&whole)) {
                (Interface::Nvme, Some(char)) => char,
                _ => whole,
            };
            return Err(invalid_name(format!(
                "{shown} is a partition; Furrow takes whole drives: {scheme}:/dev/{whole}"
            )));
        }
        let node = match interface {
            Interface::Block => path,
            Interface::Nvme => match nvme_char(&name) {
                None => {
                    return Err(invalid_name(format!("{shown} is no NVMe drive: use blk:{shown}")));
                }
                // A link whose name does not imply a kind of node may lead to either node of the drive.
                Some(char) if self.is_link(&path) => PathBuf::from(format!("/dev/{char}")),
                Some(char) => {
                    return Err(invalid_name(format!(
                        "{shown} is the block device; nvme: takes the character device, nvme:/dev/{char} (or use \
                         blk:{shown})"
                    )));
                }
            },
        };
        self.refuse_unless_host_managed(&name, &node)?;
        Ok(FoundDrive { node, block: Some(name) })
    }

    fn char_node(&self, interface: Interface, path: PathBuf, name: &str) -> Result<FoundDrive, Refusal> {
        let shown = path.display();
        let namespaces = self.namespaces_of(name);
        match (nvme_block(name), interface) {
            (Some(block), Interface::Nvme) => {
                self.refuse_unless_host_managed(&block, &path)?;
                let block = self.path(format!("/sys/class/block/{block}")).exists().then_some(block);
                Ok(FoundDrive { node: path, block })
            }
            (Some(block), Interface::Block) => Err(invalid_name(format!(
                "{shown} is the NVMe character device: use nvme:{shown}, or blk:/dev/{block}"
            ))),
            (None, _) if !namespaces.is_empty() => {
                let url = |block: &String| match interface {
                    Interface::Block => format!("blk:/dev/{block}"),
                    Interface::Nvme => format!("nvme:/dev/{}", nvme_char(block).unwrap_or_default()),
                };
                let urls: Vec<String> = namespaces.iter().map(url).collect();
                Err(invalid_name(format!(
                    "{shown} is an NVMe controller; name its namespace: {}",
                    urls.join(" or ")
                )))
            }
            (None, _) => {
                Err(invalid_name(format!("{shown} is a character device and no NVMe drive: {LIST_ADVICE}")))
            }
        }
    }

    /// Finds the drive with a serial number, or says why it cannot be used.
    fn with_serial(
        &self,
        interface: Interface,
        serial: &str,
        namespace: Option<u32>,
    ) -> Result<FoundDrive, Refusal> {
        let all = self.sorted_names("/sys/class/block").into_iter();
        let whole = all.filter(|block| self.disk_of_partition(block).is_none());
        let same = whole.filter(|block| self.serial(block).is_some_and(|found| found == serial));
        let fits = |block: &String| match interface {
            Interface::Block => true,
            Interface::Nvme => nvme_char(block).is_some(),
        };
        let same: Vec<String> = same.filter(fits).collect();
        let wanted = |block: &&String| namespace.is_none_or(|n| self.namespace(block) == Some(n));
        let found: Vec<&String> = same.iter().filter(wanted).collect();
        match found.as_slice() {
            [] if same.is_empty() => {
                let hint = match self.path(format!("/dev/{serial}")).exists() {
                    true => format!("a node is named by its path, {}:/dev/{serial}; ", interface.scheme()),
                    false => String::new(),
                };
                Err((
                    ErrorKind::NotFound,
                    format!("no drive has the serial number {serial}: {hint}{LIST_ADVICE}"),
                ))
            }
            [] => Err((
                ErrorKind::NotFound,
                format!(
                    "the drive with the serial number {serial} has no namespace {}; it has {}",
                    namespace.unwrap_or_default(),
                    self.namespace_numbers(&same)
                ),
            )),
            [block] => {
                self.refuse_unless_host_managed(block, Path::new(&format!("/dev/{block}")))?;
                let name = match interface {
                    Interface::Block => (*block).clone(),
                    Interface::Nvme => nvme_char(block).unwrap_or_default(),
                };
                Ok(FoundDrive { node: PathBuf::from(format!("/dev/{name}")), block: Some((*block).clone()) })
            }
            _ => Err(invalid_name(format!(
                "{} drives have the serial number {serial} ({}): add ?namespace=N ({}), or name the node",
                found.len(),
                same.join(", "),
                self.namespace_numbers(&same)
            ))),
        }
    }

    fn namespace_numbers(&self, blocks: &[String]) -> String {
        let numbers = blocks.iter().filter_map(|block| self.namespace(block));
        numbers.map(|n| n.to_string()).collect::<Vec<_>>().join(", ")
    }

    /// Refuses a block device that is not host-managed.
    fn refuse_unless_host_managed(&self, block: &str, node: &Path) -> Result<(), Refusal> {
        let node = node.display();
        match self.attribute(block, "queue/zoned").as_deref() {
            // Without sysfs the zoned model is checked when the device is opened.
            None | Some("host-managed") => Ok(()),
            Some("host-aware") => Err(invalid_name(format!(
                "{node} is a host-aware disk: it takes writes anywhere, and Furrow takes host-managed drives; {LIST_ADVICE}"
            ))),
            Some(_) => Err(invalid_name(match self.scsi_zoned_model(block) {
                Some(2) => format!(
                    "{node} is a drive-managed shingled disk: it hides its zones, and stalls when it rewrites them; \
                     Furrow takes host-managed drives; {LIST_ADVICE}"
                ),
                Some(1) => format!(
                    "{node} is a host-aware disk, which this kernel uses as an ordinary one; Furrow takes host-managed \
                     drives; {LIST_ADVICE}"
                ),
                _ => format!("{node} is an ordinary disk, it has no zones; {LIST_ADVICE}"),
            })),
        }
    }

    /// Zoned model of a SCSI or SATA disk, from the disk itself: 1 host-aware, 2 drive-managed.
    fn scsi_zoned_model(&self, block: &str) -> Option<u8> {
        let page = self.path(format!("/sys/class/block/{block}/device/vpd_pgb1"));
        Some((std::fs::read(page).ok()?.get(SCSI_ZONED_BYTE)? >> 4) & 3)
    }

    /// The disk that contains a partition.
    pub(super) fn disk_of_partition(&self, block: &str) -> Option<String> {
        self.attribute(block, "partition")?;
        let link = std::fs::read_link(self.path(format!("/sys/class/block/{block}"))).ok()?;
        link.parent()?.file_name()?.to_str().map(str::to_owned)
    }

    /// The block devices of an NVMe controller.
    fn namespaces_of(&self, controller: &str) -> Vec<String> {
        let of = |block: &String| {
            nvme_char(block).is_some()
                && self.link_target_name(format!("/sys/class/block/{block}/device")).is_some_and(|parent| {
                    // With NVMe multipath the parent directory is the subsystem with the controller's number.
                    parent == controller || parent.replace("-subsys", "") == controller
                })
        };
        self.sorted_names("/sys/class/block").into_iter().filter(of).collect()
    }

    fn is_link(&self, path: &Path) -> bool {
        std::fs::symlink_metadata(self.path(path)).is_ok_and(|metadata| metadata.is_symlink())
    }

    /// Refuses a node that this process may not open for writing.
    pub(super) fn refuse_without_permission(&self, node: &Path) -> Result<(), Refusal> {
        let at = self.path(node);
        let wanted = rustix::fs::Access::READ_OK | rustix::fs::Access::WRITE_OK;
        if !matches!(
            rustix::fs::access(&at, wanted),
            Err(rustix::io::Errno::ACCESS | rustix::io::Errno::PERM)
        ) {
            return Ok(());
        }
        let group = std::fs::metadata(&at).ok().and_then(|metadata| {
            let may = metadata.mode() & 0o060 == 0o060 && metadata.gid() != 0;
            may.then(|| self.group(metadata.gid()))
        });
        Err((ErrorKind::Denied, format!("{}: {}", node.display(), who_may_open(group.as_deref()))))
    }

    fn group(&self, gid: u32) -> String {
        let groups = self.trimmed_text("/etc/group").unwrap_or_default();
        group_name(&groups, gid).unwrap_or_else(|| format!("with the number {gid}"))
    }
}

fn invalid_name(why: String) -> Refusal {
    (ErrorKind::Invalid, why)
}

fn who_may_open(group: Option<&str>) -> String {
    match group {
        Some(group) => format!("to open it takes root, or a user in the group {group}"),
        None => "to open it takes root".to_owned(),
    }
}

/// The name of a group in the text of /etc/group.
pub(super) fn group_name(groups: &str, gid: u32) -> Option<String> {
    let gid = gid.to_string();
    let line = groups.lines().find(|line| line.split(':').nth(2) == Some(gid.as_str()))?;
    line.split(':').next().map(str::to_owned)
}
