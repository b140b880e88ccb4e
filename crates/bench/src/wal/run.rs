//! The run of a load on a log: format, mount, write, measure.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use fs::{FormatOptions, Fs, MountOptions, ZoneRole};
use units::{Driver, Spawned, block_on, spawn};
use zoned::{Bytes, ZonedDevice};

use super::group::{Group, Waiter};
use super::limit::{self, Limit};
use super::load::{ENTRY_HEADER_BYTES, LogMode, Sync, WalLoad};
use super::logs::Logs;
use super::neighbours::AppendLatencies;
use super::outcome::WalOutcome;
use super::parallel::Parallel;
use crate::counted::{Counted, Counts};
use crate::{Drive, Recorder, Result};

/// A log is replaced when it fills one part in this many of the drive: the drive has to hold two logs.
const ROLL_SHARE: u64 = 3;

/// The log or logs that take the records.
enum LogTarget {
    Logs(Logs),
    Parallel(Parallel),
}

impl LogTarget {
    async fn sync(&self) -> fs::Result<()> {
        match self {
            LogTarget::Logs(logs) => logs.sync().await,
            LogTarget::Parallel(log) => log.sync().await,
        }
    }

    async fn close(&self) -> fs::Result<()> {
        match self {
            LogTarget::Logs(logs) => logs.close().await,
            LogTarget::Parallel(log) => log.close().await,
        }
    }

    fn logs_made(&self) -> u64 {
        match self {
            LogTarget::Logs(logs) => logs.logs_made(),
            LogTarget::Parallel(_) => 1,
        }
    }
}

/// State that the log's writers share.
struct SharedState {
    driver: Arc<dyn Driver>,
    logs: LogTarget,
    group: Group,
    load: WalLoad,
    next: AtomicU64,
}

/// The raw results of a log's run.
struct Measured {
    recorder: Recorder,
    times: Option<AppendLatencies>,
    elapsed: Duration,
    counts: Counts,
    logs: u64,
    /// Bytes of the drive that the logs take once they are closed.
    taken: u64,
}

/// Formats the drive and runs a log's load on it. Blocks; on the virtual clock this thread may run nothing else.
///
/// # Errors
///
/// [`Error::Settings`](crate::Error::Settings); `Exists` of the file system where the drive holds data and [`WalLoad::force`]
/// is not set; errors of the drive and of the file system.
pub fn run(load: &WalLoad) -> Result<WalOutcome> {
    load.validate()?;
    let drive = Drive::open(&load.device, load.clock, true)?;
    let load = WalLoad { clock: Some(drive.clock()), ..load.clone() };
    let counted = Counted::new(Arc::clone(drive.device()));
    let measured = block_on(&**drive.driver(), write(&load, &counted))?;
    let limit = limit::measure(&drive, &load)?;
    Ok(outcome(load, drive.dilation(), measured, limit))
}

async fn write(load: &WalLoad, counted: &Arc<Counted>) -> Result<Measured> {
    let dev: Arc<dyn ZonedDevice> = counted.clone();
    let driver = Arc::clone(dev.driver());
    let format = FormatOptions { force: load.force, ..FormatOptions::default() };
    let superblock = Fs::format(&dev, &format).await?;
    let options = MountOptions { log: load.log_options(), ..MountOptions::default() };
    let fs = Fs::mount(dev, &options).await?;
    let roll = load.roll.unwrap_or(Bytes(fs.statfs().capacity.0 / ROLL_SHARE));
    let record = record_bytes(load);
    let logs = match load.wal {
        LogMode::Each | LogMode::Group => LogTarget::Logs(Logs::open(&fs, counted, roll, &record).await?),
        LogMode::Waltz | LogMode::Auto => {
            LogTarget::Parallel(Parallel::open(&fs, load.wal == LogMode::Auto, roll, &record).await?)
        }
    };
    counted.begin(&superblock);
    let begin = driver.now();
    let work = Arc::new(SharedState {
        driver: Arc::clone(&driver),
        logs,
        group: Group::default(),
        load: load.clone(),
        next: AtomicU64::new(0),
    });
    let writers: Vec<Spawned<fs::Result<(Recorder, AppendLatencies)>>> = (0..load.threads)
        .map(|_| {
            let work = Arc::clone(&work);
            spawn(&*driver, "bench", async move { work.writer().await })
        })
        .collect();
    let (mut recorder, mut times) = (Recorder::new(), AppendLatencies::default());
    let mut result = Ok(());
    for writer in writers {
        match writer.await {
            Ok((own, all)) => {
                recorder.add(&own);
                times.join(all);
            }
            Err(error) => result = result.and(Err(error)),
        }
    }
    result?;
    work.logs.sync().await?;
    let elapsed = driver.now().since(begin);
    let counts = counted.counts();
    work.logs.close().await?;
    let block_size = fs.device().geometry().block_size;
    let of_logs = fs.zone_map().into_iter().filter(|zone| zone.role == ZoneRole::Log);
    let taken = of_logs.map(|zone| zone.live.bytes(block_size).0).sum();
    fs.unmount().await?;
    let times = AppendLatencies::fit(load.records()).then_some(times);
    Ok(Measured { recorder, times, elapsed, counts, logs: work.logs.logs_made(), taken })
}

fn record_bytes(load: &WalLoad) -> Vec<u8> {
    vec![0x5A; usize::try_from(load.record.0).expect("checked when the load was validated")]
}

impl SharedState {
    async fn writer(&self) -> fs::Result<(Recorder, AppendLatencies)> {
        let (record, me) = (record_bytes(&self.load), Arc::new(Waiter::default()));
        let (mut recorder, mut times, mut data) = (Recorder::new(), AppendLatencies::default(), Vec::new());
        let keep = AppendLatencies::fit(self.load.records());
        loop {
            let number = self.next.fetch_add(1, Ordering::Relaxed);
            if number >= self.load.records() {
                return Ok((recorder, times));
            }
            let sync = self.load.sync.wants(number);
            let begin = self.driver.now();
            match &self.logs {
                LogTarget::Logs(logs) if self.load.wal == LogMode::Group => {
                    self.group.append(logs, &me, &record, sync, &mut data).await?;
                }
                LogTarget::Logs(logs) => logs.append(&record, sync).await?,
                LogTarget::Parallel(log) => log.append(&record, sync).await?,
            }
            let end = self.driver.now();
            recorder.record(end.since(begin));
            if keep {
                times.add(begin, end);
            }
        }
    }
}

fn outcome(load: WalLoad, dilation: u32, measured: Measured, limit: Limit) -> WalOutcome {
    let seconds = measured.elapsed.as_secs_f64() / f64::from(dilation.max(1));
    let records = measured.recorder.count();
    let payload = records as f64 * load.record.0 as f64;
    let rate = |amount: f64| if seconds > 0.0 { amount / seconds } else { 0.0 };
    let over = |a: f64, b: f64| if b > 0.0 { a / b } else { 0.0 };
    let (ops_per_s, payload_mib_per_s) = (rate(records as f64), rate(payload / f64::from(1 << 20)));
    let counts = measured.counts;
    let share = limit.payload_bytes as f64 / limit.append_bytes as f64;
    let of_raw = over(payload_mib_per_s, limit.mib_per_s);
    let writers = over(f64::from(load.threads) * 1e6, limit.append_us).min(limit.ops_per_s);
    let synced = load.sync == Sync::Each;
    // A record longer than one entry needs more than one append.
    let fits = load.record.plus(Bytes(ENTRY_HEADER_BYTES)) <= load.buffer;
    WalOutcome {
        dilation,
        records,
        seconds,
        ops_per_s,
        payload_mib_per_s,
        latency_us: measured.recorder.summary(dilation),
        worst_over_neighbours: measured.times.and_then(|times| times.worst_ratio(load.threads)),
        appends: counts.appends + counts.writes,
        write_amplification: over((counts.bytes + counts.metadata_bytes) as f64, payload),
        space_amplification: (measured.logs == 1).then(|| over(measured.taken as f64, payload)),
        device_operations: counts,
        logs: measured.logs,
        of_limit: if synced { over(ops_per_s, limit.ops_per_s) } else { over(of_raw, share) },
        of_raw,
        of_writers: (synced && fits && load.wal != LogMode::Group).then(|| over(ops_per_s, writers)),
        device_limit: limit,
        load,
    }
}
