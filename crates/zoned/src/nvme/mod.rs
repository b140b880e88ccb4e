//! `nvme:/dev/ngXnY`: a zoned namespace by NVMe passthrough, with the drive's own append.
//!
//! Commands go to the generic character device and bypass the block layer, which therefore must not be used at the
//! same time: where the namespace has a block device too, it is opened exclusively and kept.
//!
//! Resets and finishes go through that block device. The block layer remembers the pointers of zones that it has
//! seen partly written (kernel 6.10 and later), and a reset behind its back would make it fail the next user's writes
//! at the start of the zone. What appends leave behind cannot be told to it: its next user's first write to such a
//! zone may fail once, after which a report puts it right. The [`blk`](crate::blk) backend does that by itself.

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
    Hold, Kernel, KernelDevice, KernelOptions, Node, Parts, Rules, attribute, engine_details, refuse_virtual,
    sysfs_of,
};
use crate::nvme::shape::Facts;
use crate::nvme::wire::{Namespace, NvmeWire, report};
use crate::{Action, Driver, Error, ErrorKind, Result, ZonedDevice};

/// Opens a zoned namespace by its generic character device and holds it until the last operation is over, together
/// with its block device where it has one.
///
/// Refused with [`ErrorKind::Held`] while somebody has either of them; with [`ErrorKind::Unsupported`] what is not
/// zoned. On the virtual clock there are no kernel devices. Needs root, or `CAP_SYS_ADMIN`.
pub fn open(path: &Path, how: &KernelOptions, driver: Arc<dyn Driver>) -> Result<Arc<dyn ZonedDevice>> {
    let name: Arc<str> = Arc::from(format!("nvme:{}", path.display()));
    refuse_virtual(&name, &*driver)?;
    let real = kernels_node(path);
    let block = match block_node(&real, &name)? {
        Some(node) => Some((Hold::take(&node, Node::Block, &name)?, node)),
        None => None,
    };
    let node = Hold::take(&real, Node::Character, &name)?;
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
    let facts = Facts::ask(nsid, &|command, into| sys::nvme::admin(&node.file, command, into))
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
    let held = Held { node, block: block.map(|(hold, _)| hold) };
    Ok(assemble(name, nsid, &facts, Arc::new(held), engine, details, driver)?)
}

/// The device over anything that is a namespace and anything that executes requests.
fn assemble(
    name: Arc<str>,
    nsid: u32,
    facts: &Facts,
    namespace: Arc<dyn Namespace>,
    kernel: Arc<dyn Kernel>,
    details: Vec<(&'static str, String)>,
    driver: Arc<dyn Driver>,
) -> Result<Arc<KernelDevice>> {
    let refused = |kind, why: String| Error::new(kind, &name, "open").because(why);
    let zones = facts.zones().map_err(|why| refused(ErrorKind::Unsupported, why))?;
    let found = report(&*namespace, nsid, facts.zone_size(), 0..zones)
        .map_err(|e| refused(ErrorKind::Host, format!("the report: {e}")))?;
    let geometry = facts.geometry(&name, &found).map_err(|why| refused(ErrorKind::Unsupported, why))?;
    let report = shape::infos(&geometry, 0, &found);
    let rules = Rules {
        block: geometry.block_size as usize,
        capacity: geometry.zone_capacity.0,
        max_transfer: geometry.max_transfer.0,
        native_append: true,
        block_layer: false,
    };
    let wire = Box::new(NvmeWire::new(geometry.clone(), nsid, namespace));
    let blocking = Arc::clone(&kernel);
    Ok(KernelDevice::new(Parts { geometry, rules, report, wire, kernel, blocking, details }, driver))
}

/// The node by which everybody else would take the device at `path`, however that is called: the kernel's own where it
/// is there. Two nodes of one device have two locks.
fn kernels_node(path: &Path) -> PathBuf {
    let own = || {
        let given = fs::metadata(path).ok().filter(|found| found.file_type().is_char_device())?;
        let own = Path::new("/dev").join(sysfs_of(&given).ok()?.file_name()?);
        let found = fs::metadata(&own).ok()?;
        (found.file_type().is_char_device() && found.rdev() == given.rdev()).then_some(own)
    };
    own().or_else(|| fs::canonicalize(path).ok()).unwrap_or_else(|| path.to_path_buf())
}

/// The block device of a namespace whose generic device is at `path`, if it has one. It goes by what the kernel calls
/// the device, not by what the node is called. A block device that is there and has no node is refused: it could not
/// be kept from others.
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

/// A namespace's two devices.
struct Held {
    node: Hold,
    block: Option<Hold>,
}

impl Namespace for Held {
    fn file(&self) -> Arc<fs::File> {
        Arc::clone(&self.node.file)
    }

    fn receive(&self, command: &Command, into: &mut [u8]) -> io::Result<(u16, u64)> {
        sys::nvme::receive(&self.node.file, command, into)
    }

    fn has_block_device(&self) -> bool {
        self.block.is_some()
    }

    fn by_block_device(&self, action: Action, at: units::Bytes, len: units::Bytes) -> io::Result<()> {
        match &self.block {
            Some(block) => crate::blk::command(&block.file, action, at, len),
            None => Err(io::Error::from(io::ErrorKind::Unsupported)),
        }
    }

    fn is_gone(&self) -> bool {
        self.node.is_gone() || self.block.as_ref().is_some_and(Hold::is_gone)
    }
}
