//! The emulated drive: NVMe ZNS semantics over memory or a sparse file, and every outcome of a power cut.
//!
//! ```text
//!   Emu      the ZonedDevice: driver, delays, injected faults
//!     Media    the medium: no timing, no threads; copy-on-write clones
//!       Zone     one zone: state, pointer, content, operations that are not durable
//!     Timing   completion times; a Profile (profiles/*.toml) has a drive's times and geometry
//!     Drive    emu:PATH only: the drive file and the order of writes to it
//! ```

mod content;
mod cut;
#[cfg(test)]
mod cut_model;
#[cfg(test)]
mod cut_tests;
mod deferred;
mod device;
#[cfg(test)]
mod device_tests;
mod fault;
mod file;
mod history;
mod latency;
mod media;
mod model;
mod options;
mod profile;
mod reorder;
mod timing;
mod zone;

pub use cut::{Choose, Exhaustive, Seeded};
pub use deferred::DeferredDevice;
pub use device::Emu;
pub use fault::{FaultOp, FaultSpec};
pub(crate) use file::open::{contradiction_text, is_drive_file};
pub use history::OpId;
pub use latency::{Latency, ZoneFacts};
pub use media::{Media, Moment};
pub use options::EmuOptions;
pub use profile::Profile;
pub use timing::{Timing, TimingState};
