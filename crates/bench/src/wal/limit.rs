//! What the drive itself gives: raw appends of an entry's size.

use serde::Serialize;
use units::block_on;
use zoned::{Bytes, Geometry};

use super::{Sync, WalLoad};
use crate::device::{self, Kind, Load};
use crate::{Drive, Result};

/// Bytes of an entry's header.
const HEADER: u64 = 64;
/// Appends one after the other that give an append's own latency.
const ALONE: u64 = 256;
/// The most appends that are measured: enough for any drive to be in its stride.
const MOST: u64 = 1 << 20;

/// What raw appends reach on an empty drive of the same kind, on the same clock, in the same run.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Limit {
    /// Bytes of an append: those of an entry of the log, as far as one append takes them.
    pub append_bytes: u64,
    /// Bytes of records that such an append carries: without its share of the entry's header.
    pub payload_bytes: u64,
    /// Appends in flight: the log's window.
    pub depth: u32,
    /// Appends a second.
    pub ops_per_s: f64,
    /// MiB a second.
    pub mib_per_s: f64,
    /// The median latency of one append alone.
    pub append_us: f64,
}

/// Measures the limit of a load on a drive like `drive`.
pub(super) fn measure(drive: &Drive, load: &WalLoad) -> Result<Limit> {
    let geometry = drive.device().geometry();
    let size = append_bytes(geometry, load);
    let wanted = load.total.0.div_ceil(size.0.saturating_sub(HEADER).max(1)).min(MOST);
    let raw = Load {
        kind: Kind::Append,
        size,
        depth: load.window,
        zones: 1,
        count: wanted,
        rate: None,
        dilation: drive.dilation(),
    };
    let raw = Load { count: wanted.min(raw.room(geometry)).max(1), ..raw };
    let alone = Load { depth: 1, count: raw.count.min(ALONE), ..raw.clone() };
    let measured = |load: &Load| {
        let fresh = drive.fresh();
        block_on(&**fresh.driver(), device::run(fresh.device(), load))
    };
    let (full, alone) = (measured(&raw)?, measured(&alone)?);
    Ok(Limit {
        append_bytes: size.0,
        payload_bytes: size.0.saturating_sub(HEADER),
        depth: load.window,
        ops_per_s: full.ops_per_s,
        mib_per_s: full.mib_per_s,
        append_us: alone.latency_us.p50,
    })
}

/// Bytes of an append of the log: a full buffer, or the entry of one record where each is synced; no more than the
/// drive takes at a time.
fn append_bytes(geometry: &Geometry, load: &WalLoad) -> Bytes {
    let entry = match load.sync {
        Sync::Each => load.buffer.min(load.record.plus(Bytes(HEADER))),
        Sync::None | Sync::Every(_) => load.buffer,
    };
    entry.blocks_ceil(geometry.block_size).min(geometry.max_append).bytes(geometry.block_size)
}
