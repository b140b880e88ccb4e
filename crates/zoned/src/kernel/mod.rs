//! What the two backends over the kernel have in common: the order of a zone's operations, what is known of the
//! zones, and the device that both are.
//!
//! ```text
//!   KernelDevice   the ZonedDevice: checks lengths and addresses, keeps a Lane for each zone
//!     Lane         one zone: order, state, pointer; no I/O
//!     Wire         the backend: an operation as a request to the kernel, the kernel's answer as a result
//!     Kernel       who executes requests: sys::Engine, or a pretended kernel in tests
//! ```

mod device;
mod failure;
#[cfg(test)]
pub(crate) mod fake;
mod hold;
mod lane;
mod wire;

use sys::EngineKind;

pub(crate) use device::{KernelDevice, Parts};
pub(crate) use failure::Failure;
pub(crate) use hold::Hold;
pub(crate) use lane::Rules;
pub(crate) use wire::{Ask, Expect, Kernel, Wire};

/// How a kernel device is opened.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct KernelOptions {
    /// How operations reach the kernel; `None` for the best that there is.
    pub engine: Option<EngineKind>,
}
