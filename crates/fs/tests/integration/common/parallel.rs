//! Helpers for tests of parallel logs: a small drive and writers.
#![allow(dead_code, reason = "each test crate uses a part of it")]

use std::sync::Arc;
use std::time::Duration;

use fs::{Fs, ParallelLog, Replay, Ticket};
use units::{Blocks, Driver, block_on, spawn};
use zoned::emu::{EmuOptions, Latency};

pub const PATH: &str = "/parallel";

pub type Records = Vec<(Ticket, Vec<u8>)>;

/// A drive whose zones hold a few dozen records.
pub fn options() -> EmuOptions {
    let latency =
        Latency { write: Duration::from_micros(100), flush: Duration::from_micros(50), ..Latency::NONE };
    EmuOptions {
        zones: 60,
        zone_size: Blocks(64),
        zone_capacity: Blocks(60),
        max_open: Some(14),
        max_active: Some(14),
        latency,
        reorder: true,
        ..EmuOptions::tiny()
    }
}

/// The remaining records of a replay.
pub async fn try_all(mut replay: Replay) -> fs::Result<Records> {
    let mut records = Vec::new();
    while let Some(record) = replay.next().await? {
        records.push(record);
    }
    assert!(records.is_sorted_by(|(a, _), (b, _)| a < b), "in ticket order");
    Ok(records)
}

pub async fn all(replay: Replay) -> Records {
    try_all(replay).await.unwrap()
}

/// Runs `writers` tasks that append `each` records, made by `record` from the writer and a number; one record
/// in `synced` is synced. Returns the records in ticket order.
pub async fn append_all(
    fs: &Fs,
    log: &Arc<ParallelLog>,
    (writers, each): (usize, usize),
    synced: usize,
    record: impl Fn(usize, usize) -> Vec<u8> + Copy + Send + 'static,
) -> Records {
    let tasks: Vec<_> =
        (0..writers)
            .map(|writer| {
                let log = Arc::clone(log);
                spawn(&**fs.driver(), "writer", async move {
                    append_each(&log, writer, each, synced, record).await
                })
            })
            .collect();
    let mut written = Vec::new();
    for task in tasks {
        written.extend(task.await);
    }
    written.sort();
    written
}

/// As [`append_all`], with a thread for each writer instead of a task.
pub fn append_all_from_threads(
    driver: &Arc<dyn Driver>,
    log: &ParallelLog,
    (writers, each): (usize, usize),
    synced: usize,
    record: impl Fn(usize, usize) -> Vec<u8> + Copy + Send + Sync,
) -> Records {
    let mut written: Records = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..writers)
            .map(|writer| {
                scope.spawn(move || block_on(&**driver, append_each(log, writer, each, synced, record)))
            })
            .collect();
        threads.into_iter().flat_map(|t| t.join().unwrap()).collect()
    });
    written.sort();
    written
}

async fn append_each(
    log: &ParallelLog,
    writer: usize,
    each: usize,
    synced: usize,
    record: impl Fn(usize, usize) -> Vec<u8>,
) -> Records {
    let mut mine = Vec::new();
    for n in 0..each {
        let record = record(writer, n);
        mine.push((log.append(&record, (n + 1).is_multiple_of(synced)).await.unwrap(), record));
    }
    mine
}
