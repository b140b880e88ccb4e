//! The device that the block-device and the NVMe backend share: it orders the operations of each zone and keeps the
//! known state of every zone.
//!
//! ```text
//!   QueuedDevice   the ZonedDevice: checks lengths and addresses, keeps a ZoneQueue for each zone
//!     ZoneQueue         one zone: order, state, pointer; no I/O
//!     Backend      the drive behind the queues: KernelBackend, or an emulated drive
//!       Wire       an operation as a request to the kernel, the kernel's answer as a result
//!       Kernel     who executes requests: sys::Engine, or a fake kernel in tests
//! ```

mod backend;
mod device;
mod device_lock;
mod emulated;
mod failure;
#[cfg(test)]
pub(crate) mod fake;
mod flushes;
mod wire;
mod zone_counts;
mod zone_queue;

use std::path::Path;
use std::sync::Arc;

use smallvec::SmallVec;
use sys::block::Condition;
use sys::{Engine, EngineKind};

use crate::{Blocks, Driver, Error, ErrorKind, Geometry, Result, ZoneId, ZoneInfo, ZoneKind, ZoneState};

pub(crate) use backend::{Backend, DriveOp};
pub(crate) use device::{OpenedDevice, QueuedDevice};
pub(crate) use device_lock::{DeviceLock, Node, attribute, sysfs_of};
pub use emulated::emulated;
pub(crate) use emulated::one_write_per_zone;
pub(crate) use failure::Failure;
pub(crate) use wire::{ExpectedReply, Kernel, KernelBackend, Wire};
pub(crate) use zone_queue::QueueRules;

/// A list that nearly always has one element and then needs no allocation.
pub(crate) type ShortVec<T> = SmallVec<[T; 1]>;

/// How a device of the kernel is opened.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct KernelOptions {
    /// How operations reach the kernel; `None` for io_uring if available, else helper threads.
    pub engine: Option<EngineKind>,
}

/// Refuses a virtual clock for a real drive: the kernel completes operations in real time.
pub(crate) fn refuse_virtual(name: &Arc<str>, driver: &dyn Driver) -> Result<()> {
    if driver.is_virtual() {
        let error = Error::new(ErrorKind::Unsupported, name, "open");
        return Err(error.because("a kernel device does not run on the virtual clock: use emu: there"));
    }
    Ok(())
}

/// How operations of a drive reach the kernel, for `furrow device info`.
pub(crate) fn engine_details(engine: &Engine) -> Vec<(&'static str, String)> {
    let kind = match engine.kind() {
        EngineKind::Ring => "io_uring".to_string(),
        EngineKind::Threads => {
            format!("system calls on helper threads ({})", engine.reason().unwrap_or("asked for"))
        }
    };
    vec![("engine", kind)]
}

/// Model, serial number and firmware of a drive, as far as sysfs has them. `disk` is the drive's sysfs directory.
pub(crate) fn identity(disk: &Path) -> Vec<(&'static str, String)> {
    let named = [("model", "device/model"), ("serial", "device/serial"), ("firmware", "device/firmware_rev")];
    let mut details: Vec<_> =
        named.into_iter().filter_map(|(name, path)| Some((name, attribute(disk, path)?))).collect();
    details.retain(|(_, text)| !text.is_empty());
    details
}

/// A sequential zone's state as the contract names it. `written` is the write pointer in blocks from the zone's start;
/// `None` if the drive reports none.
pub(crate) fn sequential_info(
    geometry: &Geometry,
    zone: ZoneId,
    condition: Condition,
    written: Option<Blocks>,
) -> ZoneInfo {
    let state = match condition {
        Condition::Empty => ZoneState::Empty,
        Condition::ImplicitOpen => ZoneState::ImplicitOpen,
        Condition::ExplicitOpen => ZoneState::ExplicitOpen,
        Condition::Closed => ZoneState::Closed,
        Condition::Full => ZoneState::Full,
        Condition::ReadOnly => ZoneState::ReadOnly,
        // A zone in an unknown condition is neither read nor written.
        Condition::Offline | Condition::NotWritePointer | Condition::Other(_) => ZoneState::Offline,
    };
    let capacity = geometry.zone_capacity;
    let pointer = match state {
        ZoneState::Full => capacity,
        ZoneState::Empty | ZoneState::Offline => Blocks::ZERO,
        // A drive need not report the pointer of a read-only zone; without one, all blocks are taken as readable.
        ZoneState::ReadOnly => written.filter(|written| *written <= capacity).unwrap_or(capacity),
        _ => written.unwrap_or(Blocks::ZERO).min(capacity),
    };
    // Every zone counts as full at `zone_capacity`, the capacity of the drive's smallest zone.
    let state = if state.is_active() && pointer == capacity { ZoneState::Full } else { state };
    ZoneInfo { zone, kind: ZoneKind::Sequential, state, pointer, capacity }
}
