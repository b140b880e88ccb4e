//! One run of a log, bulk writes, or both, on a drive of its own.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use units::{Instant, VirtualDriver, block_on, sleep_until, spawn};
use zoned::{
    Action, Blocks, Buf, BufMut, Bytes, Driver, Durability, Geometry, Io, IoClass, ZoneId, ZonedDevice,
};

use super::drive::{BULK_BYTES, LOG_BYTES, drive};
use super::files;
use super::load::{Admit, LogLoad, ShareLoad};
use super::outcome::{Measured, Parts};
use crate::{Recorder, Result};

/// State that the tasks of a run share.
struct Run {
    device: Arc<dyn ZonedDevice>,
    /// The time that counts.
    from: Instant,
    until: Instant,
    is_over: AtomicBool,
    bulk_bytes: AtomicU64,
    failure: Mutex<Option<zoned::Error>>,
}

pub(super) fn run(load: &ShareLoad, admit: Admit, parts: Parts) -> Result<Measured> {
    if let LogLoad::Writers(writers) = load.log {
        return files::run(load, admit, parts, writers);
    }
    let driver: Arc<dyn Driver> = VirtualDriver::new(1);
    let zones = load.zones();
    let device = drive(load, admit, zones.last().map_or(1, |last| last.0 + 1), &driver)?;
    let from = driver.now().after(load.time / 2);
    let run = Arc::new(Run {
        device,
        from,
        until: from.after(load.time),
        is_over: AtomicBool::new(false),
        bulk_bytes: AtomicU64::new(0),
        failure: Mutex::new(None),
    });
    let writers = if parts.bulk { zones } else { Vec::new() };
    let in_flight = (load.bulk_in_flight / load.bulk_zones.max(1)).max(1) as usize;
    let tasks: Vec<_> = writers
        .into_iter()
        .map(|zone| {
            let run = Arc::clone(&run);
            let write = async move {
                if let Err(error) = run.write_bulk(zone, in_flight).await {
                    run.failure.lock().get_or_insert(error);
                }
            };
            spawn(&*driver, "bulk", write)
        })
        .collect();
    let recorder = block_on(&*driver, async {
        let recorder = if parts.log {
            run.write_log(load.log).await
        } else {
            sleep_until(&*driver, run.until).await;
            Ok(Recorder::new())
        };
        run.is_over.store(true, Ordering::Relaxed);
        for task in tasks {
            task.await;
        }
        recorder
    })?;
    if let Some(error) = run.failure.lock().take() {
        return Err(error.into());
    }
    let seconds = load.time.as_secs_f64();
    Ok(Measured {
        log_rate: recorder.count() as f64 * LOG_BYTES as f64 / seconds,
        log_latency: recorder.summary(1),
        bulk_rate: run.bulk_bytes.load(Ordering::Relaxed) as f64 / seconds,
    })
}

impl Run {
    fn now(&self) -> Instant {
        self.device.driver().now()
    }

    fn counts(&self, at: Instant) -> bool {
        (self.from..self.until).contains(&at)
    }

    fn geometry(&self) -> &Geometry {
        self.device.geometry()
    }

    /// Appends to zone 0, each append durable, until the end of the run.
    async fn write_log(&self, log: LogLoad) -> zoned::Result<Recorder> {
        let mut recorder = Recorder::new();
        let (mut due, mut written) = (self.now(), 0);
        let data: Buf = BufMut::zeroed(LOG_BYTES).freeze();
        let blocks = Bytes(LOG_BYTES as u64).blocks_ceil(self.geometry().block_size).0;
        while self.now() < self.until {
            if let LogLoad::Rate(rate) = log {
                sleep_until(&**self.device.driver(), due).await;
                due = due.after(Duration::from_secs(1) / rate);
            }
            let begun = self.now();
            self.device.append(ZoneId(0), data.clone(), Durability::Durable).await?;
            if self.counts(begun) {
                recorder.record(self.now().since(begun));
            }
            written += blocks;
            if written + blocks > self.geometry().zone_capacity.0 {
                self.device.zone(ZoneId(0), Action::Reset).await?;
                written = 0;
            }
        }
        Ok(recorder)
    }

    /// Writes a zone again and again until the run is over.
    async fn write_bulk(&self, zone: ZoneId, most: usize) -> zoned::Result<()> {
        let device = self.device.class(IoClass::Compaction);
        let mut in_flight: VecDeque<Io<()>> = VecDeque::new();
        let data: Buf = BufMut::zeroed(BULK_BYTES).freeze();
        let blocks = Bytes(BULK_BYTES as u64).blocks_ceil(self.geometry().block_size).0;
        let mut offset = 0;
        while !self.is_over.load(Ordering::Relaxed) {
            if offset + blocks > self.geometry().zone_capacity.0 {
                while let Some(io) = in_flight.pop_front() {
                    self.count(io).await?;
                }
                device.zone(zone, Action::Reset).await?;
                offset = 0;
            }
            let at = self.geometry().start(zone).plus(Blocks(offset));
            in_flight.push_back(device.write(at, data.clone(), Durability::Cached));
            offset += blocks;
            if in_flight.len() >= most
                && let Some(oldest) = in_flight.pop_front()
            {
                self.count(oldest).await?;
            }
        }
        for io in in_flight {
            io.await?;
        }
        Ok(())
    }

    async fn count(&self, io: Io<()>) -> zoned::Result<()> {
        io.await?;
        if self.counts(self.now()) {
            self.bulk_bytes.fetch_add(BULK_BYTES as u64, Ordering::Relaxed);
        }
        Ok(())
    }
}
