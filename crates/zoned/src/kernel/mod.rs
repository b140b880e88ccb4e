//! What the two backends over the kernel have in common: the order of a zone's operations, what is known of the
//! zones, and the device that both are.
//!
//! ```text
//!   KernelDevice   the ZonedDevice: checks lengths and addresses, keeps a Lane for each zone
//!     Lane         one zone: order, state, pointer; no I/O
//!     Wire         the backend: an operation as a request to the kernel, the kernel's answer as a result
//!     Kernel       who executes requests: sys::Engine, or a pretended kernel in tests
//! ```

mod census;
mod device;
mod failure;
#[cfg(test)]
pub(crate) mod fake;
mod few;
mod flushes;
mod hold;
mod lane;
mod wire;

use std::path::Path;
use std::sync::Arc;

use sys::block::Condition;
use sys::{Engine, EngineKind};

use crate::{Blocks, Driver, Error, ErrorKind, Geometry, Result, ZoneId, ZoneInfo, ZoneKind, ZoneState};

pub(crate) use device::{KernelDevice, Parts};
pub(crate) use failure::Failure;
pub(crate) use few::Few;
pub(crate) use hold::{Hold, Node, attribute, sysfs_of};
pub(crate) use lane::Rules;
pub(crate) use wire::{Ask, Expect, Kernel, Wire};

/// How a kernel device is opened.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct KernelOptions {
    /// How operations reach the kernel; `None` for the best that there is.
    pub engine: Option<EngineKind>,
}

/// The kernel keeps real time: on the virtual clock its answers would come from nowhere.
pub(crate) fn refuse_virtual(name: &Arc<str>, driver: &dyn Driver) -> Result<()> {
    if driver.is_virtual() {
        let error = Error::new(ErrorKind::Unsupported, name, "open");
        return Err(error.because("a kernel device does not run on the virtual clock: use emu: there"));
    }
    Ok(())
}

/// How operations reach the kernel, for people.
pub(crate) fn engine_details(engine: &Engine) -> Vec<(&'static str, String)> {
    let kind = match engine.kind() {
        EngineKind::Ring => "io_uring".to_string(),
        EngineKind::Threads => {
            format!("system calls on helper threads ({})", engine.reason().unwrap_or("asked for"))
        }
    };
    vec![("engine", kind)]
}

/// A drive's model, serial number and firmware, where sysfs has them. `disk` is its directory there.
pub(crate) fn identity(disk: &Path) -> Vec<(&'static str, String)> {
    let named = [("model", "device/model"), ("serial", "device/serial"), ("firmware", "device/firmware_rev")];
    let mut details: Vec<_> =
        named.into_iter().filter_map(|(name, path)| Some((name, attribute(disk, path)?))).collect();
    details.retain(|(_, text)| !text.is_empty());
    details
}

/// The contract's words for a sequential zone. `written` is where its pointer is, if that is above its start at all.
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
        // What is not understood is not touched.
        Condition::Offline | Condition::NotWritePointer | Condition::Other(_) => ZoneState::Offline,
    };
    let capacity = geometry.zone_capacity;
    let pointer = match state {
        ZoneState::Full => capacity,
        ZoneState::Empty | ZoneState::Offline => Blocks::ZERO,
        // A drive need not keep the pointer of a worn zone: nothing of what can be read is hidden.
        ZoneState::ReadOnly => written.filter(|written| *written <= capacity).unwrap_or(capacity),
        _ => written.unwrap_or(Blocks::ZERO).min(capacity),
    };
    // A zone that is larger than the smallest is full where that one would be.
    let state = if state.is_active() && pointer == capacity { ZoneState::Full } else { state };
    ZoneInfo { zone, kind: ZoneKind::Sequential, state, pointer, capacity }
}
