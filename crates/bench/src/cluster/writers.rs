//! Many writers side by side, beside as many on the log of one such drive.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use serde::Serialize;
use units::{Bytes, spawn};

use super::load::ClusterLoad;
use super::nodes::{Nodes, with_cluster};
use crate::wal::{LogMode, Sync, WalLoad, run};
use crate::{Latencies, Recorder, Result};

/// Writers side by side.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct WritersOutcome {
    /// Records of the cluster a second.
    pub records_per_s: f64,
    /// From the beginning of a write to its acknowledgement.
    pub latency_us: Latencies,
    /// Records in one write of the leader's drive.
    pub records_per_drive_write: f64,
    /// Bytes of the leader's drive for a record.
    pub drive_bytes_per_record: f64,
    /// Messages between all nodes for a record.
    pub messages_per_record: f64,
    /// Records a second that as many writers append to a parallel log that joins records (`furrow bench wal --wal auto --sync each`) on one such drive.
    pub log_records_per_s: f64,
    /// From the beginning of an append to that log to its acknowledgement.
    pub log_latency_us: Latencies,
    /// The cluster's records a second by those of the log.
    pub over_log: f64,
}

/// The raw counts of the writers' run.
struct Measured {
    recorder: Recorder,
    seconds: f64,
    drive_writes: u64,
    drive_bytes: u64,
    messages: u64,
}

/// Measures the writers of a cluster, and those of a log.
pub(super) fn measure(load: &ClusterLoad) -> Result<WritersOutcome> {
    let measured = with_cluster(load, load.seed, async |nodes| write(load, nodes).await)?;
    let log = run(&WalLoad {
        device: format!("emu:mem?profile={}", load.profile),
        wal: LogMode::Auto,
        threads: load.writers,
        record: load.value,
        sync: Sync::Each,
        total: Bytes(load.value.0.saturating_mul(load.records)),
        ..WalLoad::default()
    })?;
    let records = load.records as f64;
    let records_per_s = records / measured.seconds;
    Ok(WritersOutcome {
        records_per_s,
        latency_us: measured.recorder.summary(1),
        records_per_drive_write: records / measured.drive_writes.max(1) as f64,
        drive_bytes_per_record: measured.drive_bytes as f64 / records,
        messages_per_record: measured.messages as f64 / records,
        log_records_per_s: log.ops_per_s,
        log_latency_us: log.latency_us,
        over_log: records_per_s / log.ops_per_s,
    })
}

/// Starts a cluster, and writes the load's records there. For who measures the processor.
///
/// # Errors
/// As [`measure`](super::measure).
pub fn write_records(load: &ClusterLoad) -> Result<()> {
    load.check()?;
    with_cluster(load, load.seed, async |nodes| write(load, nodes).await.map(drop))
}

async fn write(load: &ClusterLoad, nodes: &Arc<Nodes>) -> Result<Measured> {
    let leader = nodes.wait_for_leader().await?;
    let counts = || nodes.leader().map(|node| node.counts()).unwrap_or_default();
    let (before, messages, begin) = (counts(), nodes.network.messages(), nodes.driver.now());
    let next = Arc::new(AtomicU64::new(0));
    let writers: Vec<_> = (0..load.writers)
        .map(|_| {
            let (nodes, leader, next) = (Arc::clone(nodes), Arc::clone(&leader), Arc::clone(&next));
            let records = load.records;
            spawn(&*nodes.driver.clone(), "writer", async move {
                let mut recorder = Recorder::new();
                loop {
                    let number = next.fetch_add(1, Ordering::Relaxed);
                    if number >= records {
                        return Ok::<Recorder, crate::Error>(recorder);
                    }
                    let begin = nodes.driver.now();
                    nodes.write(&leader, number).await?;
                    recorder.record(nodes.driver.now().since(begin));
                }
            })
        })
        .collect();
    let (mut recorder, mut result) = (Recorder::new(), Ok(()));
    for writer in writers {
        match writer.await {
            Ok(own) => recorder.add(&own),
            Err(error) => result = result.and(Err(error)),
        }
    }
    result?;
    let seconds = nodes.driver.now().since(begin).as_secs_f64();
    let after = counts();
    Ok(Measured {
        recorder,
        seconds,
        drive_writes: after.appends + after.writes - before.appends - before.writes,
        drive_bytes: after.bytes - before.bytes,
        messages: nodes.network.messages() - messages,
    })
}
