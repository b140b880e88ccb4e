//! One run of writers of a parallel log, bulk writes of files, or both, in a file system on a drive of its own.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use fs::{
    Batching, CreateOptions, FormatOptions, Fs, Lifetime, MountOptions, ParallelLog, ParallelOptions, Result,
    Ticket,
};
use units::{Driver, Instant, Spawned, VirtualDriver, block_on, sleep_until, spawn};
use zoned::{Bytes, IoClass};

use super::drive::{BULK_BYTES, LOG_BYTES, ZONE_BYTES, drive};
use super::load::{Admit, ShareLoad};
use super::outcome::{Measured, Parts};
use crate::Recorder;

/// Zones of the drive.
const ZONES: u32 = 32;
/// Bytes of a record that fills a block with its header.
const RECORD_BYTES: usize = LOG_BYTES - 128;
/// The newest records that the log keeps, as a database does until tables hold them: two zones of them.
const KEPT_RECORDS: u64 = 2 * ZONE_BYTES / LOG_BYTES as u64;

/// State that the tasks of a run share.
struct Run {
    fs: Fs,
    log: ParallelLog,
    from: Instant,
    until: Instant,
    is_over: AtomicBool,
    bulk_bytes: AtomicU64,
    retired: AtomicU64,
}

pub(super) fn run(load: &ShareLoad, admit: Admit, parts: Parts, writers: u32) -> crate::Result<Measured> {
    let driver: Arc<dyn Driver> = VirtualDriver::new(1);
    let device = drive(load, admit, ZONES, &driver)?;
    let (recorder, bulk_bytes) = block_on(&*driver, async {
        Fs::format(&device, &FormatOptions::default()).await?;
        let fs = Fs::mount(device, &MountOptions::default()).await?;
        let options = ParallelOptions { batching: Batching::Auto, ..ParallelOptions::default() };
        let (log, _) = fs.parallel_log("/log", &options).await?;
        let from = driver.now().after(load.time / 2);
        let run = Arc::new(Run {
            fs,
            log,
            from,
            until: from.after(load.time),
            is_over: AtomicBool::new(false),
            bulk_bytes: AtomicU64::new(0),
            retired: AtomicU64::new(0),
        });
        let bulk: Vec<Spawned<Result<()>>> = (0..if parts.bulk { load.bulk_zones } else { 0 })
            .map(|number| {
                let run = Arc::clone(&run);
                spawn(&*driver, "bulk", async move { run.write_files(number).await })
            })
            .collect();
        let writers: Vec<Spawned<Result<Recorder>>> = (0..if parts.log { writers } else { 0 })
            .map(|_| {
                let run = Arc::clone(&run);
                spawn(&*driver, "log", async move { run.write_log().await })
            })
            .collect();
        let mut recorder = Recorder::new();
        for writer in writers {
            recorder.add(&writer.await?);
        }
        sleep_until(&*driver, run.until).await;
        run.is_over.store(true, Ordering::Relaxed);
        for task in bulk {
            task.await?;
        }
        Ok::<_, fs::Error>((recorder, run.bulk_bytes.load(Ordering::Relaxed)))
    })?;
    let seconds = load.time.as_secs_f64();
    Ok(Measured {
        log_rate: recorder.count() as f64 * LOG_BYTES as f64 / seconds,
        log_latency: recorder.summary(1),
        bulk_rate: bulk_bytes as f64 / seconds,
    })
}

impl Run {
    fn now(&self) -> Instant {
        self.fs.driver().now()
    }

    fn counts(&self, at: Instant) -> bool {
        (self.from..self.until).contains(&at)
    }

    /// Appends one synced record after the other, until the end of the run.
    async fn write_log(&self) -> Result<Recorder> {
        let (mut recorder, record) = (Recorder::new(), vec![0x5A; RECORD_BYTES]);
        while self.now() < self.until {
            let begun = self.now();
            let ticket = self.log.append(&record, true).await?;
            if self.counts(begun) {
                recorder.record(self.now().since(begun));
            }
            let below = ticket.0.saturating_sub(KEPT_RECORDS);
            if below > self.retired.load(Ordering::Relaxed) + KEPT_RECORDS / 4
                && self.retired.fetch_max(below, Ordering::Relaxed) < below
            {
                self.log.retire(Ticket(below))?;
            }
        }
        Ok(recorder)
    }

    /// Writes files of a zone, one after the other, until the run is over. A file is removed when the next one is whole.
    async fn write_files(&self, number: u32) -> Result<()> {
        let piece = vec![0xA5; BULK_BYTES];
        let options = CreateOptions {
            lifetime: Lifetime::Medium,
            preallocate: Bytes(ZONE_BYTES),
            ..CreateOptions::default()
        };
        let path = |generation: u64| format!("/{number}-{generation}");
        for generation in 0_u64.. {
            if self.is_over.load(Ordering::Relaxed) {
                break;
            }
            let writer = self.fs.create(&path(generation), &options).await?;
            writer.set_class(IoClass::Compaction);
            for _ in 0..ZONE_BYTES / BULK_BYTES as u64 {
                writer.append(&piece).await?;
                if self.counts(self.now()) {
                    self.bulk_bytes.fetch_add(BULK_BYTES as u64, Ordering::Relaxed);
                }
                if self.is_over.load(Ordering::Relaxed) {
                    break;
                }
            }
            writer.close().await?;
            if let Some(before) = generation.checked_sub(1) {
                self.fs.unlink(&path(before)).await?;
            }
        }
        Ok(())
    }
}
