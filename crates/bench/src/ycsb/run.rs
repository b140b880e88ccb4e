//! The run of a YCSB load: the drive, the file system, and one workload after the other.

use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::time::Duration;

use fs::{CreateOptions, FormatOptions, Fs, Lifetime, MountOptions, Purpose};
use units::block_on;
use zoned::{DeviceUrl, ZonedDevice};

use super::database::{Database, wait_for_compactions};
use super::keys::{Inserted, Picker};
use super::load::{Phase, YcsbLoad, YcsbOutcome};
use super::phase::{self, KEY_BYTES, SharedState, key};
use super::workload::Workload;
use crate::{Clock, Counted, Drive, Error, Result};

/// The file of zeros that a load's utilisation asks for, and the bytes of a write to it.
const FILLER: &str = "/filler";
const FILLER_WRITE_BYTES: usize = 1 << 20;

/// Runs the workloads one after the other. `seen` is called with the numbers of each finished workload.
///
/// # Errors
///
/// [`Error::Settings`]; `Exists` of the file system where `load` meets a drive that holds data and [`YcsbLoad::force`] is not
/// set; errors of drive, file system and engine.
pub fn run(load: &YcsbLoad, seen: &dyn Fn(&Phase)) -> Result<YcsbOutcome> {
    load.validate()?;
    let url: DeviceUrl = load.device.parse()?;
    let clock = match load.clock {
        Some(clock) => Some(clock),
        None if url.is_emulated() && url.options()?.dilation > 1 => None,
        // An engine's threads cannot run on the virtual clock.
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
    let memory = load.shares()?;
    let options = MountOptions {
        log: load.log,
        cache: memory.page_cache,
        cache_mode: load.cache_mode.mount_mode().unwrap_or_default(),
        ..MountOptions::default()
    };
    let fs = block_on(&*driver, Fs::mount(dev, &options))?;
    // A missing database is refused before it is opened, since opening would make its directory.
    if !loads && let Err(error) = fs.stat(&format!("{}/CURRENT", load.engine.path())) {
        block_on(&*driver, fs.unmount())?;
        return Err(match error.kind() {
            fs::ErrorKind::NotFound => Error::settings(format!(
                "{} holds no records of {} yet: run load first, as in --workload load",
                load.device, load.engine
            )),
            _ => error.into(),
        });
    }
    block_on(&*driver, fill_up(&fs, load))?;
    let run = Run { drive: &drive, fs: &fs, counted: &counted, load };
    let mut records = if loads { 0 } else { load.records };
    let mut phases = Vec::new();
    let mut open: Option<Arc<Database>> = None;
    for workload in &load.workloads {
        let begin = driver.now();
        let (db, opened) = match open.take() {
            Some(db) => (db, None),
            None => {
                let db = Database::open(&fs, load, &memory, *workload == Workload::Load)?;
                (Arc::new(db), Some(driver.now().since(begin)))
            }
        };
        let phase = run.workload(*workload, &db, opened, &mut records)?;
        seen(&phase);
        phases.push(phase);
        if load.reopen {
            close(db)?;
        } else {
            open = Some(db);
        }
    }
    open.map_or(Ok(()), close)?;
    block_on(&*driver, fs.unmount())?;
    Ok(YcsbOutcome { clock: drive.clock(), dilation: drive.dilation(), memory, phases })
}

/// Writes the file of zeros that the load's utilisation asks for.
async fn fill_up(fs: &Fs, load: &YcsbLoad) -> Result<()> {
    let wanted = (fs.statfs().capacity.0 as f64 * load.utilisation) as u64;
    if wanted == 0 {
        return Ok(());
    }
    let records = load.records.saturating_mul(load.value.0 + KEY_BYTES);
    let mut left = wanted.checked_sub(records).ok_or_else(|| {
        let (records, wanted) = (records >> 20, wanted >> 20);
        Error::settings(format!(
            "{records} MiB of records, where the utilisation leaves room for {wanted} MiB"
        ))
    })?;
    let options = CreateOptions { lifetime: Lifetime::Extreme, ..CreateOptions::default() };
    let file = fs.create(FILLER, &options).await?;
    let zeros = vec![0; FILLER_WRITE_BYTES];
    while left > 0 {
        let bytes = usize::try_from(left).unwrap_or(usize::MAX).min(zeros.len());
        let part = zeros.get(..bytes).unwrap_or_default();
        file.append(part).await?;
        left -= bytes as u64;
    }
    file.sync().await?;
    file.close().await?;
    Ok(())
}

fn close(db: Arc<Database>) -> Result<()> {
    Arc::into_inner(db).map_or(Ok(()), Database::close)
}

/// A run of workloads on one mounted file system.
struct Run<'a> {
    drive: &'a Drive,
    fs: &'a Fs,
    counted: &'a Arc<Counted>,
    load: &'a YcsbLoad,
}

impl Run<'_> {
    /// Runs a workload on the open database. `opened`: the time that opening the database took, if it was opened for this workload. `records` is the
    /// number of records, and grows by inserts.
    fn workload(
        &self,
        workload: Workload,
        db: &Arc<Database>,
        opened: Option<Duration>,
        records: &mut u64,
    ) -> Result<Phase> {
        let Run { drive, fs, counted, load } = *self;
        let driver = Arc::clone(drive.driver());
        let seconds = |time: Duration| time.as_secs_f64() / f64::from(drive.dilation().max(1));
        if workload == Workload::Load {
            // The workload `load` writes the same records again, from the first on.
            *records = 0;
        } else if !db.has(&key(records.saturating_sub(1)))? {
            return Err(Error::settings(format!(
                "the database does not hold {records} records: run the workload load first, with as many"
            )));
        }
        let operations = if workload == Workload::Load { load.records } else { load.operations };
        let distribution = load.distribution.unwrap_or(workload.distribution());
        // The picker has room for twice the expected number of inserts, as operations are drawn at random.
        let expected = operations.saturating_mul(workload.inserts()) / 50;
        counted.begin(fs.superblock());
        let reclaimed = fs.written_bytes(Purpose::Reclaim);
        let picker = match workload {
            // The workload `load` inserts only and picks no record.
            Workload::Load => Picker::new(super::Distribution::Uniform, 1, 0),
            _ => Picker::new(distribution, *records, expected),
        };
        let work = Arc::new(SharedState {
            db: Arc::clone(db),
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
        *records = work.inserted.below();
        let ended = driver.now();
        wait_for_compactions(fs, load.engine, drive.dilation())?;
        let seconds_run = seconds(elapsed);
        Ok(Phase {
            workload,
            distribution,
            open_seconds: opened.map(seconds),
            seconds: seconds_run,
            operations: own.overall().count(),
            ops_per_s: if seconds_run > 0.0 { own.overall().count() as f64 / seconds_run } else { 0.0 },
            missing: own.missing,
            kinds: own.each(drive.dilation()),
            compaction_seconds: seconds(driver.now().since(ended)),
            device_operations: counted.counts(),
            reclaimed_bytes: fs.written_bytes(Purpose::Reclaim).0 - reclaimed.0,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ycsb::Engine;

    /// Small tables on a small drive: 64 zones of 1 MiB, without delay.
    fn load(engine: Engine, utilisation: f64) -> YcsbLoad {
        YcsbLoad {
            device: String::from("emu:mem?zones=64&zone-size=1MiB"),
            engine,
            workloads: vec![Workload::Load; 6],
            records: 3000,
            write_buffer: Some(units::Bytes(256 << 10)),
            block_cache: Some(units::Bytes(1 << 20)),
            table_size: Some(units::Bytes(256 << 10)),
            utilisation,
            ..YcsbLoad::default()
        }
    }

    #[test]
    fn what_reclaim_moves_on_a_drive_in_use_is_counted_as_a_part_of_what_is_written() {
        let sums = |utilisation| {
            let phases = run(&load(Engine::RocksDb, utilisation), &|_| ()).expect("it fits").phases;
            assert!(phases.iter().all(|phase| phase.operations == 3000 && phase.missing == 0));
            let of = |value: fn(&Phase) -> u64| phases.iter().map(value).sum::<u64>();
            (of(|phase| phase.reclaimed_bytes), of(|phase| phase.device_operations.bytes))
        };
        let (moved, written) = sums(0.7);
        assert!(0 < moved && moved < written, "{moved} of {written}");
        // The whole run fits a drive that holds nothing else twice over.
        assert!(sums(0.0).0 < moved, "nothing takes room");
    }

    #[test]
    fn a_utilisation_that_cannot_be_is_refused() {
        let refusal = |load: &YcsbLoad| run(load, &|_| ()).expect_err("refused").to_string();
        assert!(refusal(&load(Engine::LevelDb, 1.0)).contains("below 1"));
        assert!(refusal(&load(Engine::LevelDb, f64::NAN)).contains("utilisation"));
        let reads = YcsbLoad { workloads: vec![Workload::A], ..load(Engine::LevelDb, 0.5) };
        assert!(refusal(&reads).contains("load formats"));
        let little = refusal(&load(Engine::LevelDb, 0.01));
        assert!(little.contains("2 MiB of records"), "{little}");
    }
}
