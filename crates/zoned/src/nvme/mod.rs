//! `nvme:/dev/ngXnY`: a zoned namespace by NVMe passthrough, with the drive's own append.
//!
//! Commands go to the generic character device and bypass the block layer, which nobody may use at the same
//! time. If the namespace has a block device too, that device is opened exclusively.
//!
//! Resets and finishes are sent through the block device. The block layer keeps the write pointers of partly
//! written zones (kernel 6.10 and later). If a reset bypassed the block layer, later writes of another user
//! at the zone's start would fail. The block layer does not learn of appends, so another user's first write
//! to such a zone may fail once, until a report corrects the pointer. The [`blk`](crate::blk) backend sends
//! that report.

#[cfg(test)]
pub(crate) mod fake;
mod shape;
#[cfg(test)]
mod tests;
mod wire;

use std::fs;
use std::io;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use sys::Engine;
use sys::nvme::Command;

use crate::kernel::{
    DeviceLock, Kernel, KernelBackend, KernelOptions, Node, OpenedDevice, QueueRules, QueuedDevice,
    attribute, engine_details, refuse_virtual, sysfs_of,
};
use crate::nvme::shape::IdentifyData;
use crate::nvme::wire::{Namespace, NvmeWire, report};
use crate::{Action, Driver, Error, ErrorKind, Result, ZonedDevice};

/// Opens a zoned namespace by its generic character device. The device, and the namespace's block device if there is
/// one, stay locked until the last operation has completed.
///
/// Fails with [`ErrorKind::Held`] while another process holds either device, and with [`ErrorKind::Unsupported`] if
/// the namespace is not zoned or the clock is virtual. Needs root or `CAP_SYS_ADMIN`.
pub fn open(path: &Path, how: &KernelOptions, driver: Arc<dyn Driver>) -> Result<Arc<dyn ZonedDevice>> {
    let name: Arc<str> = Arc::from(format!("nvme:{}", path.display()));
    refuse_virtual(&name, &*driver)?;
    let real = kernels_node(path);
    let block = match block_node(&real, &name)? {
        Some(node) => Some((DeviceLock::acquire(&node, Node::Block, &name)?, node)),
        None => None,
    };
    let node = DeviceLock::acquire(&real, Node::Character, &name)?;
    let failed = |e: io::Error| {
        let error = Error::new(ErrorKind::Host, &name, "open");
        error.because(format!("identifying the namespace: {e}")).from_source(e)
    };
    let nsid = sys::nvme::namespace_of(&node.file).map_err(failed)?;
    if let Some((block, place)) = &block
        && sys::nvme::namespace_of(&block.file).map_err(failed)? != nsid
    {
        let why = format!("{} is not the same namespace", place.display());
        return Err(Error::new(ErrorKind::Invalid, &name, "open").because(why));
    }
    let facts = IdentifyData::identify(nsid, &|command, into| sys::nvme::admin(&node.file, command, into))
        .map_err(failed)?
        .map_err(|why| Error::new(ErrorKind::Unsupported, &name, "open").because(why))?;
    let engine = Engine::shared(how.engine)
        .map_err(|e| Error::new(ErrorKind::Host, &name, "open").because(e.to_string()).from_source(e))?;
    let mut details = facts.details();
    details.push(("interface", "NVMe passthrough".into()));
    details.extend(engine_details(&engine));
    details.push(("append", "the drive's own".into()));
    details.push((
        "block device",
        match &block {
            Some((_, place)) => format!("{}, held", place.display()),
            None => "none".into(),
        },
    ));
    let held = LockedNamespace { node, block: block.map(|(hold, _)| hold) };
    Ok(assemble(name, nsid, &facts, Arc::new(held), engine, details, driver)?)
}

/// Builds the device over an NVMe namespace and a kernel, either of which may be a fake.
fn assemble(
    name: Arc<str>,
    nsid: u32,
    facts: &IdentifyData,
    namespace: Arc<dyn Namespace>,
    kernel: Arc<dyn Kernel>,
    details: Vec<(&'static str, String)>,
    driver: Arc<dyn Driver>,
) -> Result<Arc<QueuedDevice<KernelBackend>>> {
    let refused = |kind, why: String| Error::new(kind, &name, "open").because(why);
    let zones = facts.zones().map_err(|why| refused(ErrorKind::Unsupported, why))?;
    let found = report(&*namespace, nsid, facts.zone_size(), 0..zones)
        .map_err(|e| refused(ErrorKind::Host, format!("the report: {e}")))?;
    let geometry = facts.geometry(&name, &found).map_err(|why| refused(ErrorKind::Unsupported, why))?;
    let report = shape::zone_infos(&geometry, 0, &found);
    let rules = QueueRules::of(&geometry, true);
    let wire = Box::new(NvmeWire::new(geometry.clone(), nsid, namespace));
    let blocking = Arc::clone(&kernel);
    let backend = KernelBackend { wire, kernel, blocking };
    Ok(QueuedDevice::new(OpenedDevice { geometry, rules, report, backend, details }, driver))
}

/// The node to lock for the device at `path`: the kernel's own node if it exists, because two nodes of one device have
/// separate locks.
fn kernels_node(path: &Path) -> PathBuf {
    let own = || {
        let given = fs::metadata(path).ok().filter(|found| found.file_type().is_char_device())?;
        let own = Path::new("/dev").join(sysfs_of(&given).ok()?.file_name()?);
        let found = fs::metadata(&own).ok()?;
        (found.file_type().is_char_device() && found.rdev() == given.rdev()).then_some(own)
    };
    own().or_else(|| fs::canonicalize(path).ok()).unwrap_or_else(|| path.to_path_buf())
}

/// The block device of the namespace whose generic device is at `path`, if there is one, found by the kernel's name of
/// the device. A block device without a node is refused, because it cannot be locked.
fn block_node(path: &Path, name: &Arc<str>) -> Result<Option<PathBuf>> {
    let kernels = fs::metadata(path).ok().and_then(|found| sysfs_of(&found).ok());
    let block = || sys::sysfs::nvme_block_name(kernels.as_deref().unwrap_or(path).file_name()?.to_str()?);
    let Some(block) = block() else { return Ok(None) };
    let Some(number) = attribute(&Path::new("/sys/class/block").join(&block), "dev") else { return Ok(None) };
    let is_it = |node: &PathBuf| {
        fs::metadata(node).is_ok_and(|found| {
            let (major, minor) = (rustix::fs::major(found.rdev()), rustix::fs::minor(found.rdev()));
            found.file_type().is_block_device() && format!("{major}:{minor}") == number
        })
    };
    let nodes = [path.with_file_name(&block), Path::new("/dev").join(&block)];
    match nodes.into_iter().find(is_it) {
        Some(node) => Ok(Some(node)),
        None => {
            let why = format!(
                "its block device {block} ({number}) has no node here by which it could be kept from others: make \
                 /dev/{block} known here too"
            );
            Err(Error::new(ErrorKind::Denied, name, "open").because(why))
        }
    }
}

/// The locked character device and block device of a namespace.
struct LockedNamespace {
    node: DeviceLock,
    block: Option<DeviceLock>,
}

impl Namespace for LockedNamespace {
    fn file(&self) -> Arc<fs::File> {
        Arc::clone(&self.node.file)
    }

    fn receive(&self, command: &Command, into: &mut [u8]) -> io::Result<(u16, u64)> {
        sys::nvme::receive(&self.node.file, command, into)
    }

    fn has_block_device(&self) -> bool {
        self.block.is_some()
    }

    fn command_by_block_device(&self, action: Action, at: units::Bytes, len: units::Bytes) -> io::Result<()> {
        match &self.block {
            Some(block) => crate::blk::command(&block.file, action, at, len),
            None => Err(io::Error::from(io::ErrorKind::Unsupported)),
        }
    }

    fn is_gone(&self) -> bool {
        self.node.is_gone() || self.block.as_ref().is_some_and(DeviceLock::is_gone)
    }
}
