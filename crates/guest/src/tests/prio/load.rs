//! The program whose log and bulk are measured: `furrow-guest load LOG WRITERS BULK PRIORITIES MILLISECONDS MILLISECONDS`.

use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use rustix::fs::OFlags;
use serde_json::{Value, json};
use sys::priority::set_thread_priority;
use sys::{BufMut, Priority};

use super::classes::{DURABLE, open_direct};
use crate::clock;

/// The program's name.
pub(super) const PROGRAM: &str = "load";
/// For LOG or BULK: there is none.
pub(super) const NONE: &str = "-";
/// PRIORITIES: each thread has its own, or all are alike.
pub(super) const PRIORITIES: &str = "priorities";
pub(super) const NO_PRIORITIES: &str = "no-priorities";

/// Bytes of a log write, each durable before the next, and of the log, whose bytes are written over.
const LOG_WRITE: usize = 4 << 10;
pub(super) const LOG_BYTES: u64 = 1 << 20;
/// The time from a log write's start to that of the next, at least.
const LOG_PERIOD: Duration = Duration::from_millis(20);
/// Number of bulk writers, bytes of a write, and of a writer's file, whose bytes are written over.
pub(super) const BULK_WRITERS: usize = 4;
const BULK_WRITE: usize = 256 << 10;
pub(super) const BULK_BYTES: u64 = 16 << 20;

/// Writes for the first time, and for the second one, of which it prints the latencies of the log's writes and the bulk's rate.
pub(super) fn run(arguments: &[String]) -> Result<()> {
    let [log, log_writers, bulk, priorities, before, measured] = arguments else {
        bail!("wanted: LOG WRITERS BULK PRIORITIES MILLISECONDS MILLISECONDS")
    };
    let log_writers: usize = if log == NONE { 0 } else { log_writers.parse().context("writers")? };
    let with_priorities = priorities == PRIORITIES;
    let time = |millis: &String| millis.parse().map(Duration::from_millis).context("milliseconds");
    let (stop, written) = (AtomicBool::new(false), AtomicU64::new(0));
    let begin = clock::now() + time(before)?;
    let end = begin + time(measured)?;
    let writers = if bulk == NONE { 0 } else { BULK_WRITERS };
    let (latencies, rate) = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..writers)
            .map(|writer| {
                let path = bulk_path(bulk, writer);
                let (stop, written) = (&stop, &written);
                scope.spawn(move || {
                    with_priorities.then(|| set_thread_priority(Priority::of_bulk())).transpose()?;
                    write_bulk(Path::new(&path), stop, written)
                })
            })
            .collect();
        let logs: Vec<_> = (0..log_writers)
            .map(|writer| {
                let path = log_path(log, writer);
                scope.spawn(move || {
                    with_priorities.then(|| set_thread_priority(Priority::of_log())).transpose()?;
                    write_log(Path::new(&path), begin, end)
                })
            })
            .collect();
        clock::sleep(begin - clock::now().min(begin));
        let (from, before) = (clock::now(), written.load(Ordering::Relaxed));
        clock::sleep(end - clock::now().min(end));
        let bytes = written.load(Ordering::Relaxed) - before;
        let rate = bytes as f64 / from.elapsed().as_secs_f64();
        stop.store(true, Ordering::Relaxed);
        let panicked = || anyhow::anyhow!("a writer panicked");
        let mut latencies = Vec::new();
        for log in logs {
            latencies.extend(log.join().map_err(|_| panicked())??);
        }
        for thread in threads {
            thread.join().map_err(|_| panicked())??;
        }
        Ok::<_, anyhow::Error>((latencies, rate))
    })?;
    println!("{}", summary(latencies, end - begin, rate));
    Ok(())
}

fn summary(mut latencies: Vec<Duration>, measured: Duration, bulk_bytes_per_s: f64) -> Value {
    latencies.sort_unstable();
    let log_bytes_per_s = (latencies.len() * LOG_WRITE) as f64 / measured.as_secs_f64();
    let micros = |time: Duration| time.as_secs_f64() * 1e6;
    let count = latencies.len();
    let mean = latencies.iter().map(|time| micros(*time)).sum::<f64>() / count.max(1) as f64;
    let at = |part: usize| micros(latencies.get(count * part / 100).copied().unwrap_or_default());
    json!({
        "mean_us": mean, "p50_us": at(50), "p99_us": at(99),
        "log_bytes_per_s": log_bytes_per_s, "bulk_bytes_per_s": bulk_bytes_per_s,
    })
}

/// The path of a log writer's file.
pub(super) fn log_path(log: &str, writer: usize) -> String {
    format!("{log}{writer}")
}

/// The path of a bulk writer's file.
pub(super) fn bulk_path(bulk: &str, writer: usize) -> String {
    format!("{bulk}/{writer}.bulk")
}

fn write_log(path: &Path, begin: Instant, end: Instant) -> Result<Vec<Duration>> {
    let file = open_direct(path, DURABLE)?;
    let mut data = BufMut::zeroed(LOG_WRITE);
    data.fill(b'l');
    let (mut at, mut latencies) = (0, Vec::new());
    let mut now = clock::now();
    while now < end {
        file.write_all_at(&data, at)?;
        at = (at + LOG_WRITE as u64) % LOG_BYTES;
        let latency = now.elapsed();
        latencies.extend((now >= begin).then_some(latency));
        clock::sleep(LOG_PERIOD.saturating_sub(latency));
        now = clock::now();
    }
    Ok(latencies)
}

fn write_bulk(path: &Path, stop: &AtomicBool, written: &AtomicU64) -> Result<()> {
    let file = open_direct(path, OFlags::empty())?;
    let mut data = BufMut::zeroed(BULK_WRITE);
    data.fill(b'b');
    let mut at = 0;
    while !stop.load(Ordering::Relaxed) {
        file.write_all_at(&data, at)?;
        written.fetch_add(BULK_WRITE as u64, Ordering::Relaxed);
        at = (at + BULK_WRITE as u64) % BULK_BYTES;
    }
    Ok(())
}
