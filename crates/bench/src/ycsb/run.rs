//! The run of a YCSB load: the drive, the file system, and one workload after the other.

use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::time::Duration;

use fs::{FormatOptions, Fs, MountOptions};
use rocks::{Db, DbOptions};
use units::block_on;
use zoned::{DeviceUrl, ZoneId, ZonedDevice};

use super::keys::{Inserted, Picker};
use super::load::{Phase, YcsbLoad, YcsbOutcome};
use super::phase::{self, SharedState, key};
use super::workload::Workload;
use crate::{Clock, Counted, Drive, Error, Result};

/// The directory of the database in the file system.
const DATABASE_PATH: &str = "/ycsb";

/// Runs the workloads one after the other. `seen` is called with the numbers of each finished workload.
///
/// # Errors
///
/// [`Error::Settings`]; `Exists` of the file system where `load` meets a drive that holds data and [`YcsbLoad::force`] is not
/// set; errors of drive, file system and RocksDB.
pub fn run(load: &YcsbLoad, seen: &dyn Fn(&Phase)) -> Result<YcsbOutcome> {
    load.validate()?;
    let url: DeviceUrl = load.device.parse()?;
    let clock = match load.clock {
        Some(clock) => Some(clock),
        None if url.is_emulated() && url.options()?.dilation > 1 => None,
        // RocksDB's threads cannot run on the virtual clock.
        None => Some(Clock::Real),
    };
    let loads = load.workloads.first() == Some(&Workload::Load);
    if !loads && url.is_in_memory() {
        return Err(Error::settings("a drive in memory holds no records yet: begin with load, as in load,a"));
    }
    let drive = Drive::open(&load.device, clock, loads)?;
    let driver = Arc::clone(drive.driver());
    let counted = Counted::new(Arc::clone(drive.device()));
    let dev: Arc<dyn ZonedDevice> = counted.clone();
    if loads {
        let options = FormatOptions { force: load.force, ..FormatOptions::default() };
        block_on(&*driver, Fs::format(&dev, &options))?;
    }
    let options = MountOptions {
        log: load.log,
        cache: load.cache,
        cache_mode: load.cache_mode,
        ..MountOptions::default()
    };
    let fs = block_on(&*driver, Fs::mount(dev, &options))?;
    // A missing database is refused before it is opened, since opening would make its directory.
    if !loads && let Err(error) = fs.stat(&format!("{DATABASE_PATH}/CURRENT")) {
        block_on(&*driver, fs.unmount())?;
        return Err(match error.kind() {
            fs::ErrorKind::NotFound => Error::settings(format!(
                "{} holds no records yet: run load first, as in --workload load",
                load.device
            )),
            _ => error.into(),
        });
    }
    let mut records = if loads { 0 } else { load.records };
    let mut phases = Vec::new();
    for workload in &load.workloads {
        let phase = one(&drive, &fs, &counted, load, *workload, &mut records)?;
        seen(&phase);
        phases.push(phase);
    }
    block_on(&*driver, fs.unmount())?;
    Ok(YcsbOutcome { clock: drive.clock(), dilation: drive.dilation(), phases })
}

/// Opens the database, runs a workload on it and closes it. `records` is the number of records, and grows by inserts.
fn one(
    drive: &Drive,
    fs: &Fs,
    counted: &Arc<Counted>,
    load: &YcsbLoad,
    workload: Workload,
    records: &mut u64,
) -> Result<Phase> {
    let driver = Arc::clone(drive.driver());
    let options = DbOptions {
        write_buffer: usize::try_from(load.write_buffer.0).unwrap_or(usize::MAX),
        block_cache: usize::try_from(load.block_cache.0).unwrap_or(usize::MAX),
        create: workload == Workload::Load,
        ..DbOptions::default()
    };
    let begin = driver.now();
    let db = Db::open(fs, DATABASE_PATH, &options)?;
    let open = driver.now().since(begin);
    let seconds = |time: Duration| time.as_secs_f64() / f64::from(drive.dilation().max(1));
    if workload == Workload::Load {
        // The workload `load` writes the same records again, from the first on.
        *records = 0;
    } else if db.get(&key(records.saturating_sub(1)))?.is_none() {
        return Err(Error::settings(format!(
            "the database does not hold {records} records: run the workload load first, with as many"
        )));
    }
    let operations = if workload == Workload::Load { load.records } else { load.operations };
    let distribution = load.distribution.unwrap_or(workload.distribution());
    // The picker has room for twice the expected number of inserts, as operations are drawn at random.
    let expected = operations.saturating_mul(workload.inserts()) / 50;
    let first = fs.superblock().metadata_first.0.saturating_add(fs.superblock().metadata_zones);
    counted.begin(ZoneId(first));
    let picker = match workload {
        // The workload `load` inserts only and picks no record.
        Workload::Load => Picker::new(super::Distribution::Uniform, 1, 0),
        _ => Picker::new(distribution, *records, expected),
    };
    let work = Arc::new(SharedState {
        db,
        load: load.clone(),
        workload,
        dilation: drive.dilation(),
        picker,
        inserted: Inserted::new(*records),
        next_record: AtomicU64::new(*records),
        next: AtomicU64::new(0),
        operations,
        begin: driver.now(),
        failed: Arc::default(),
        driver: Arc::clone(&driver),
    });
    let (own, elapsed) = block_on(&*driver, phase::run(&work))?;
    let device_operations = counted.counts();
    *records = work.inserted.below();
    work.db.close()?;
    let seconds_run = seconds(elapsed);
    Ok(Phase {
        workload,
        distribution,
        open_seconds: seconds(open),
        seconds: seconds_run,
        operations: own.overall().count(),
        ops_per_s: if seconds_run > 0.0 { own.overall().count() as f64 / seconds_run } else { 0.0 },
        missing: own.missing,
        kinds: own.each(drive.dilation()),
        device_operations,
    })
}
