//! The run of a key-value load: the drive, the file system, the database, the filling, the load.

use std::sync::Arc;
use std::time::Duration;

use fs::{FormatOptions, Fs, MountOptions};
use units::block_on;
use zoned::{DeviceUrl, ZonedDevice};

use super::background::Background;
use super::engine;
use super::load::{Compaction, KvLoad, KvOutcome, LogMode};
use super::work::SharedState;
use crate::{Clock, Counted, Drive, Result};

/// Formats the drive, fills a database and runs the load on it. `progress` is called with each step.
///
/// # Errors
///
/// [`Error::Settings`](crate::Error::Settings); `Exists` of the file system where the drive holds data and [`KvLoad::force`] is
/// not set; errors of drive, file system, log and RocksDB.
pub fn run(load: &KvLoad, progress: &dyn Fn(&str)) -> Result<KvOutcome> {
    load.validate()?;
    let url: DeviceUrl = load.device.parse()?;
    let clock = match load.clock {
        Some(clock) => Some(clock),
        None if url.is_emulated() && url.options()?.dilation > 1 => None,
        // RocksDB's threads cannot run on the virtual clock.
        None => Some(Clock::Real),
    };
    let drive = Drive::open(&load.device, clock, true)?;
    let load = KvLoad { clock: Some(drive.clock()), ..load.clone() };
    let (driver, dilation) = (Arc::clone(drive.driver()), drive.dilation());
    let counted = Counted::new(Arc::clone(drive.device()));
    let dev: Arc<dyn ZonedDevice> = counted.clone();
    let format = FormatOptions { force: load.force, ..FormatOptions::default() };
    block_on(&*driver, Fs::format(&dev, &format))?;
    let mount = MountOptions {
        log: load.log_options(),
        open_ahead: load.wal != LogMode::Base,
        ..MountOptions::default()
    };
    let fs = block_on(&*driver, Fs::mount(dev, &mount))?;
    let database = engine::open(&fs, load.wal, load.database())?;
    let work = SharedState::new(database, Arc::clone(&driver), &load, dilation);
    progress("filling the database");
    work.fill()?;
    let alone = if load.compacts {
        progress("compacting alone");
        // The first compaction moves the tables to the last level, where the timed ones find them.
        work.database.db().compact()?;
        Some(work.compact()?)
    } else {
        None
    };
    progress("running");
    let before = Background::of(work.database.db());
    counted.begin(fs.superblock());
    let (mut tally, elapsed) = block_on(&*driver, work.run())?;
    let counts = counted.counts();
    let background = Background::of(work.database.db()).since(before);
    progress("closing the database");
    work.database.close()?;
    if !url.is_in_memory() {
        // The drive is dropped after the run: the unmount need not finish zones, which may take long in dilated time.
        block_on(&*driver, fs.unmount())?;
    }
    let in_drive_time = |time: Duration| time.as_secs_f64() / f64::from(dilation.max(1));
    let seconds = in_drive_time(elapsed);
    let compaction = alone
        .zip(tally.compaction)
        .map(|(alone, beside)| Compaction { alone: in_drive_time(alone), beside: in_drive_time(beside) });
    let overall = tally.kinds.overall();
    let intervals = load.interval.map(|each| tally.intervals(each, dilation)).unwrap_or_default();
    let groups = tally.groups(dilation);
    let (kinds, missing, put) = (tally.kinds.each(dilation), tally.kinds.missing, tally.put_bytes());
    let (slowest, mean) = tally.slowest();
    Ok(KvOutcome {
        dilation,
        seconds,
        ops_per_s: if seconds > 0.0 { overall.count() as f64 / seconds } else { 0.0 },
        latency_us: overall.summary(dilation),
        kinds,
        missing,
        background,
        compaction,
        device_operations: counts,
        write_amplification: (counts.bytes + counts.metadata_bytes) as f64 / (put.max(1)) as f64,
        mean_write: (load.slowest > 0).then_some(mean),
        slowest,
        groups,
        intervals,
        load,
    })
}
