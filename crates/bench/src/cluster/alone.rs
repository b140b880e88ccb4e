//! A write alone, beside its floor: one round trip and one write of the same bytes to a drive.

use std::sync::Arc;
use std::time::Duration;

use serde::Serialize;
use units::{Driver, VirtualDriver, block_on};
use zoned::emu::Emu;
use zoned::{Buf, Bytes, Durability, ZoneId, ZonedDevice};

use super::load::ClusterLoad;
use super::nodes::{Nodes, drive, with_cluster};
use crate::{Error, Latencies, Recorder, Result};

/// The longest pause between two writes: whatever follows a write is over.
const PAUSE: Duration = Duration::from_millis(1);
/// Raw writes that give the time of one alone.
const RAW_WRITES: u64 = 256;

/// Writes alone.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct AloneOutcome {
    /// From the beginning of a write to its acknowledgement.
    pub latency_us: Latencies,
    /// A round trip without the time of links, and the shortest durable write of the leader's record to a drive without a file system.
    pub floor_us: f64,
    /// The round trip of the floor.
    pub round_trip_us: f64,
    /// The write of the floor: a zone append or a write, whichever is shorter.
    pub raw_write_us: f64,
    /// Bytes that the leader's drive got for a write.
    pub bytes_per_write: f64,
    /// Writes of the leader's drive for one of a client.
    pub drive_writes_per_write: f64,
    /// The median write by the floor.
    pub over_floor: f64,
}

/// Measures writes that are alone.
pub(super) fn measure(load: &ClusterLoad) -> Result<AloneOutcome> {
    let (latencies, bytes, writes) = with_cluster(load, load.seed, async |nodes| write(load, nodes).await)?;
    let raw_write_us = raw_write_us(load)?;
    let round_trip_us = 2.0 * load.one_way.as_secs_f64() * 1e6;
    let floor_us = round_trip_us + raw_write_us;
    let over_floor = latencies.p50 / floor_us;
    Ok(AloneOutcome {
        latency_us: latencies,
        floor_us,
        round_trip_us,
        raw_write_us,
        bytes_per_write: bytes as f64 / load.lone_writes as f64,
        drive_writes_per_write: writes as f64 / load.lone_writes as f64,
        over_floor,
    })
}

async fn write(load: &ClusterLoad, nodes: &Arc<Nodes>) -> Result<(Latencies, u64, u64)> {
    let mut recorder = Recorder::new();
    let lost = || Error::Cluster(String::from("the leader lost its lead"));
    let before = nodes.leader().ok_or_else(lost)?.counts();
    for number in 0..load.lone_writes {
        nodes.pause(nodes.time_below(PAUSE)).await;
        let leader = nodes.leader().ok_or_else(lost)?;
        let begin = nodes.driver.now();
        nodes.write(&leader.group, number).await?;
        recorder.record(nodes.driver.now().since(begin));
    }
    let after = nodes.leader().ok_or_else(lost)?.counts();
    let writes = after.appends + after.writes - before.appends - before.writes;
    Ok((recorder.summary(1), after.bytes - before.bytes, writes))
}

/// The median time of the shorter of a zone append and a write of a value's blocks.
fn raw_write_us(load: &ClusterLoad) -> Result<f64> {
    let options = drive(load)?;
    let block_size = options.block_size;
    let bytes = load.value.blocks_ceil(block_size).bytes(block_size);
    let of = |is_append| -> Result<f64> {
        let driver: Arc<dyn Driver> = VirtualDriver::new(load.seed);
        let device: Arc<dyn ZonedDevice> = Emu::memory(options.clone(), Arc::clone(&driver));
        Ok(block_on(&*driver, write_one_by_one(&device, bytes, is_append))?.summary(1).p50)
    };
    Ok(of(true)?.min(of(false)?))
}

async fn write_one_by_one(
    device: &Arc<dyn ZonedDevice>,
    bytes: Bytes,
    is_append: bool,
) -> zoned::Result<Recorder> {
    let geometry = device.geometry();
    let zone = ZoneId(geometry.conventional);
    let data = Buf::copy_from(&vec![0x5A; usize::try_from(bytes.0).unwrap_or(usize::MAX)]);
    let (mut recorder, mut at) = (Recorder::new(), geometry.start(zone));
    for _ in 0..RAW_WRITES {
        let begin = device.driver().now();
        if is_append {
            device.append(zone, data.clone(), Durability::Durable).await?;
        } else {
            device.write(at, data.clone(), Durability::Durable).await?;
            at = at.plus(bytes.blocks_ceil(geometry.block_size));
        }
        recorder.record(device.driver().now().since(begin));
    }
    Ok(recorder)
}
