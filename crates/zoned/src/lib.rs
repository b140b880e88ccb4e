//! The zoned device contract: one object-safe trait that the emulator, a kernel device, an NVMe character
//! device and an array all implement, and the backends that live in this crate.
//!
//! ARCHITECTURE.md, "The device contract", says why the contract is as it is and what a power cut may leave
//! behind.
#![forbid(unsafe_code)]

pub mod blk;
pub mod checks;
mod class;
mod class_view;
pub mod conformance;
pub mod contents;
mod device;
pub mod discover;
pub mod emu;
mod error;
mod geometry;
mod io;
mod kernel;
pub mod nvme;
mod op;
mod resources;
mod sequential_zones;
pub mod share;
mod share_status;
mod stage;
mod url;
mod zone;

pub use class::IoClass;
pub use device::ZonedDevice;
pub use discover::Interface;
pub use error::{Class, Error, ErrorKind, Result};
pub use geometry::Geometry;
pub use io::{Completer, FromDone, Io, join_all};
pub use kernel::{KernelOptions, emulated};
pub use op::{Action, Done, Durability, Op};
pub use resources::{Admission, Resources};
pub use sequential_zones::SequentialZones;
#[cfg(feature = "broken-rules")]
pub use share::ShareBrokenRule;
pub use share::{Goal, Share};
pub use share_status::{ClassStatus, ShareStatus};
pub use stage::Stage;
#[cfg(feature = "broken-rules")]
pub use stage::StageBrokenRule;
pub use sys::{Buf, BufMut, EngineKind};
pub use units::{Blocks, Bytes, Driver, Instant, Lba, ZoneId};
pub use url::{
    ArrayOpener, DeviceUrl, EMU_PARAMETERS, EmuUrl, KERNEL_PARAMETERS, KernelUrl, open, open_or_create,
    register_array_opener,
};
pub use zone::{Illegal, ZoneEvent, ZoneInfo, ZoneKind, ZoneState};
