//! The drive's own limit for a log: raw appends of an entry's size.

use std::sync::Arc;

use serde::Serialize;
use units::block_on;
use zoned::{Buf, Bytes, Durability, Geometry, ZoneId, ZonedDevice};

use super::load::{ENTRY_HEADER_BYTES, Sync, WalLoad};
use crate::device::{self, Kind, Load};
use crate::{Drive, Recorder, Result};

/// Number of appends, one at a time, that give the latency of an append alone.
const LONE_APPENDS: u64 = 256;
/// Most appends of the measurement of the limit.
const MAX_APPENDS: u64 = 1 << 20;

/// The rate of raw appends to an empty drive of the same kind, on the same clock, in the same run.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Limit {
    /// Bytes of an append: those of an entry of the log, at most those of the drive's longest append.
    pub append_bytes: u64,
    /// Bytes of records in an append: its bytes without the share of the entry's header.
    pub payload_bytes: u64,
    /// Appends in flight: as many as the log's window.
    pub depth: u32,
    /// The rate in appends a second. On a drive with a volatile cache the time of the flush at the end is included.
    pub ops_per_s: f64,
    /// The throughput in MiB a second.
    pub mib_per_s: f64,
    /// The median latency of one append alone; where each record is synced and the drive has a volatile cache, of an append and a flush or of a durable append, whichever is
    /// shorter.
    pub append_us: f64,
}

/// Measures the limit of a log's load on a drive like `drive`.
pub(super) fn measure(drive: &Drive, load: &WalLoad) -> Result<Limit> {
    let geometry = drive.device().geometry();
    let size = append_bytes(geometry, load);
    let wanted = load.total.0.div_ceil(size.0.saturating_sub(ENTRY_HEADER_BYTES).max(1)).min(MAX_APPENDS);
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
    let fresh = drive.fresh()?;
    let (full, flushing) = block_on(&**fresh.driver(), append_and_flush(fresh.device(), &raw))?;
    // The measured rates are of the appends; this share makes them include the flush.
    let share = full.seconds / (full.seconds + flushing).max(f64::MIN_POSITIVE);
    let ways: &[Alone] = match load.sync == Sync::Each && geometry.volatile_cache {
        true => &[Alone::Flushed, Alone::Durable],
        false => &[Alone::Cached],
    };
    let mut append_us = f64::INFINITY;
    for way in ways {
        let fresh = drive.fresh()?;
        let alone = block_on(&**fresh.driver(), append_one_by_one(fresh.device(), size, *way))?;
        append_us = append_us.min(alone.summary(drive.dilation()).p50);
    }
    Ok(Limit {
        append_bytes: size.0,
        payload_bytes: size.0.saturating_sub(ENTRY_HEADER_BYTES),
        depth: load.window,
        ops_per_s: full.ops_per_s * share,
        mib_per_s: full.mib_per_s * share,
        append_us,
    })
}

/// Runs raw appends and a flush; returns the flush's seconds: 0 on a drive without a volatile cache.
async fn append_and_flush(
    device: &Arc<dyn ZonedDevice>,
    load: &Load,
) -> zoned::Result<(device::Outcome, f64)> {
    let outcome = device::run(device, load).await?;
    if !device.geometry().volatile_cache {
        return Ok((outcome, 0.0));
    }
    let begin = device.driver().now();
    device.flush().await?;
    let flushing = device.driver().now().since(begin);
    Ok((outcome, flushing.as_secs_f64() / f64::from(load.dilation.max(1))))
}

/// What an append alone is.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Alone {
    Cached,
    Durable,
    /// An append and a flush.
    Flushed,
}

/// Makes raw appends one after the other to one zone.
async fn append_one_by_one(
    device: &Arc<dyn ZonedDevice>,
    size: Bytes,
    way: Alone,
) -> zoned::Result<Recorder> {
    let how = if way == Alone::Durable { Durability::Durable } else { Durability::Cached };
    let geometry = device.geometry();
    let data = Buf::copy_from(&vec![0x5A; usize::try_from(size.0).unwrap_or(usize::MAX)]);
    let room = geometry.zone_capacity.bytes(geometry.block_size).0 / size.0.max(1);
    let mut recorder = Recorder::new();
    for _ in 0..room.min(LONE_APPENDS) {
        let begin = device.driver().now();
        device.append(ZoneId(geometry.conventional), data.clone(), how).await?;
        if way == Alone::Flushed {
            device.flush().await?;
        }
        recorder.record(device.driver().now().since(begin));
    }
    Ok(recorder)
}

/// Bytes of an append of the log: a full buffer, or the entry of one record where each record is synced; no more than the drive
/// takes in one append.
fn append_bytes(geometry: &Geometry, load: &WalLoad) -> Bytes {
    let entry = match load.sync {
        Sync::Each => load.buffer.min(load.record.plus(Bytes(ENTRY_HEADER_BYTES))),
        Sync::None | Sync::Every(_) => load.buffer,
    };
    entry.blocks_ceil(geometry.block_size).min(geometry.max_append).bytes(geometry.block_size)
}
