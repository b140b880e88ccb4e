//! The emulated drive: NVMe ZNS semantics over memory or a sparse file, and every outcome of a power cut.
//!
//! ```text
//!   Emu      the ZonedDevice: driver, delays, injected faults
//!     Media    the medium and its rules: no time, no threads of its own; copy-on-write clones
//!       Zone     one zone: state, pointer, content, what is not durable yet
//!     Timing   when operations complete; a Profile (profiles/*.toml) is a drive's times and geometry
//!     Drive    emu:PATH only: the file below, and the order of writes to it
//! ```

mod content;
mod cut;
#[cfg(test)]
mod cut_model;
#[cfg(test)]
mod cut_tests;
mod device;
#[cfg(test)]
mod device_tests;
mod fault;
mod file;
mod history;
mod late;
mod media;
mod model;
mod options;
mod profile;
mod reorder;
mod timing;
mod zone;

pub use cut::{Choose, Exhaustive, Seeded};
pub use device::Emu;
pub use fault::{FaultOp, FaultSpec};
pub(crate) use file::drive::{contradiction, is_made};
pub use late::Late;
pub use media::{Media, Moment, OpId};
pub use options::EmuOptions;
pub use profile::Profile;
pub use timing::{Latency, Timing, TimingState, ZoneFacts};
