//! NVMe: commands, their encoders, and decoders of the devices' replies.
//!
//! The decoders are total: a structure that is too short, or has impossible values, gives `None`.

mod command;
mod identify;
mod passthrough;
mod report;
mod status;

pub use command::{Command, IDENTIFY_LEN, MAX_BLOCKS, ZoneAction};
pub use identify::{Controller, Descriptors, Namespace, ZonedController, ZonedNamespace};
pub(crate) use passthrough::{Data, PassthruCmd64, STATUS_MASK, check, submit_and_wait};
pub use passthrough::{admin, namespace_of, receive};
pub use report::{Zone, ZoneReport, report_len};
pub use status::{Status, StatusKind};

/// The `N` little-endian bytes at offset `at` of a structure.
fn bytes<const N: usize>(from: &[u8], at: usize) -> Option<[u8; N]> {
    from.get(at..)?.first_chunk().copied()
}

fn u8_at(from: &[u8], at: usize) -> Option<u8> {
    from.get(at).copied()
}

fn u16_at(from: &[u8], at: usize) -> Option<u16> {
    bytes(from, at).map(u16::from_le_bytes)
}

fn u32_at(from: &[u8], at: usize) -> Option<u32> {
    bytes(from, at).map(u32::from_le_bytes)
}

fn u64_at(from: &[u8], at: usize) -> Option<u64> {
    bytes(from, at).map(u64::from_le_bytes)
}
