//! `blk:/dev/X`: a host-managed zoned block device: a ZNS drive, an SMR disk, `null_blk`.
//!
//! The block interface offers programs no append, so an append is a write at the pointer that this process keeps, one
//! write at a time in each zone. Reads and writes use direct I/O; zone commands and reports are ioctls.

mod limits;
mod report_entry;
mod wire;

pub use report_entry::report_entry;

use std::path::Path;
use std::sync::Arc;

use sys::{Engine, EngineKind};

use crate::blk::limits::Limits;
pub(crate) use crate::blk::wire::command;
use crate::blk::wire::{BlkWire, BlockZones};
use crate::kernel::{
    DeviceLock, Kernel, KernelBackend, KernelOptions, Node, OpenedDevice, QueueRules, QueuedDevice,
    engine_details, refuse_virtual,
};
use crate::{Driver, Error, ErrorKind, Result, ZonedDevice};

/// Opens a zoned block device exclusively, until the last operation has completed.
///
/// Fails with [`ErrorKind::Held`] while a mount, another process or a stacked device uses the device, and with
/// [`ErrorKind::Unsupported`] if the device is not zoned, has zones that the contract does not support, or the clock
/// is virtual.
pub fn open(path: &Path, how: &KernelOptions, driver: Arc<dyn Driver>) -> Result<Arc<dyn ZonedDevice>> {
    let name: Arc<str> = Arc::from(format!("blk:{}", path.display()));
    refuse_virtual(&name, &*driver)?;
    let hold = DeviceLock::acquire(path, Node::Block, &name)?;
    if sys::block::is_read_only(&hold.file).unwrap_or(false) {
        let why = "the kernel holds it read-only: blockdev --setrw changes that";
        return Err(Error::new(ErrorKind::Denied, &name, "open").because(why));
    }
    let limits = Limits::read(&hold.sysfs)
        .map_err(|why| Error::new(ErrorKind::Unsupported, &name, "open").because(why))?;
    let engine = |kind| {
        Engine::shared(kind)
            .map_err(|e| Error::new(ErrorKind::Host, &name, "open").because(e.to_string()).from_source(e))
    };
    let (engine, blocking) = (engine(how.engine)?, engine(Some(EngineKind::Threads))?);
    let mut details = limits.details(&hold.sysfs);
    details.extend(engine_details(&engine));
    details.push((
        "append",
        "as ordered writes, one at a time in each zone (the block interface has no append)".into(),
    ));
    let kernels = Kernels { usual: engine, blocking };
    Ok(assemble(name, limits, Arc::new(hold), kernels, details, driver)?)
}

/// The kernel that executes all requests, and the one that executes writes which have failed before.
struct Kernels {
    usual: Arc<dyn Kernel>,
    blocking: Arc<dyn Kernel>,
}

/// Builds a block device over zones and kernels, which may be fakes.
fn assemble(
    name: Arc<str>,
    limits: Limits,
    zones: Arc<dyn BlockZones>,
    kernels: Kernels,
    details: Vec<(&'static str, String)>,
    driver: Arc<dyn Driver>,
) -> Result<Arc<QueuedDevice<KernelBackend>>> {
    let refused = |kind, why: String| Error::new(kind, &name, "open").because(why);
    let report = zones
        .report(units::Bytes(0), u32::MAX)
        .map_err(|e| refused(ErrorKind::Host, format!("the report: {e}")))?;
    let geometry = limits.geometry(&name, &report).map_err(|why| refused(ErrorKind::Unsupported, why))?;
    let report = limits::zone_infos(&geometry, 0, &report);
    let rules = QueueRules::of(&geometry, false);
    let wire = Box::new(BlkWire::new(geometry.clone(), zones));
    let Kernels { usual: kernel, blocking } = kernels;
    let backend = KernelBackend { wire, kernel, blocking };
    Ok(QueuedDevice::new(OpenedDevice { geometry, rules, report, backend, details }, driver))
}

#[cfg(test)]
mod tests;
