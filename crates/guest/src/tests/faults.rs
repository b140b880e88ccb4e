//! Tests of a drive's faults: the caller gets an error, a file system whose metadata cannot be written
//! becomes read-only, nothing hangs, and no acknowledged data is lost.

use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use fs::{Bytes, CreateOptions, ErrorKind, FileKind, FormatOptions, Fs, MountOptions, ZoneRole};
use units::block_on;
use xtask::guest::job::Event;
use zoned::{ZoneId, ZoneState, ZonedDevice};

use super::device::open;
use crate::checks::Checks;
use crate::control::Control;
use crate::text;

/// Time limit of each fault test.
const FAULT_TEST_LIMIT: Duration = Duration::from_secs(60);

/// Content of a file written before the fault, which must survive.
const KEPT_FILE_BYTES: usize = 300_000;

/// QEMU's drives for the fault tests, one for each interface, and the drives that are unplugged.
const FAILING_DRIVES: [(usize, &str); 2] = [(0, "nvme:/dev/furrow/ng-zns0"), (1, "blk:/dev/furrow/zns1")];
const UNPLUGGED_DRIVES: [(usize, &str); 2] = [(2, "nvme:/dev/furrow/ng-zns2"), (3, "blk:/dev/furrow/zns3")];
/// The null_blk device, and its zones that are read-only and offline from the start.
const NULL_BLK_WITH_WORN_ZONES: &str = "blk:/dev/furrow/nullb0";
const READ_ONLY_ZONE: ZoneId = ZoneId(10);
const OFFLINE_ZONE: ZoneId = ZoneId(11);

pub fn run(checks: &mut Checks) -> Result<()> {
    for (drive, url) in FAILING_DRIVES {
        checks.check(&format!("{url}: reads fail"), FAULT_TEST_LIMIT, |control| {
            reads_fail(control, drive, url)
        })?;
        checks.check(&format!("{url}: writes fail"), FAULT_TEST_LIMIT, |control| {
            writes_fail(control, drive, url)
        })?;
        checks.check(&format!("{url}: flushes fail"), FAULT_TEST_LIMIT, |control| {
            flushes_fail(control, drive, url)
        })?;
        checks.check(&format!("{url}: a log's writes fail"), FAULT_TEST_LIMIT, |control| {
            log_fails(control, drive, url)
        })?;
        checks.check(&format!("{url}: the drive is slow"), FAULT_TEST_LIMIT, |control| {
            slow_drive_loses_nothing(control, drive, url)
        })?;
    }
    checks.check("null_blk: read-only and offline zones are let be", FAULT_TEST_LIMIT, |_| {
        worn_zones_are_avoided()
    })?;
    checks.check("null_blk: a zone under a file turns read-only", FAULT_TEST_LIMIT, |control| {
        zone_turns_unwritable(control, "zone_readonly")
    })?;
    checks.check("null_blk: a zone under a file goes offline", FAULT_TEST_LIMIT, |control| {
        zone_turns_unwritable(control, "zone_offline")
    })?;
    for (drive, url) in UNPLUGGED_DRIVES {
        checks.check(&format!("{url}: unplugged under load"), FAULT_TEST_LIMIT, |control| {
            unplugged_drive_fails_operations(control, drive, url)
        })?;
    }
    Ok(())
}

fn bytes(length: usize, salt: usize) -> Vec<u8> {
    (0..length).map(|at| u8::try_from((at / 7 + at * salt) % 251).unwrap_or_default()).collect()
}

/// A device with a new file system.
fn format(url: &str) -> Result<Arc<dyn ZonedDevice>> {
    let device = open(url)?;
    let options = FormatOptions { force: true, ..FormatOptions::default() };
    block_on(&**device.driver(), Fs::format(&device, &options))?;
    Ok(device)
}

fn mount(device: &Arc<dyn ZonedDevice>) -> Result<Fs> {
    Ok(block_on(&**device.driver(), Fs::mount(Arc::clone(device), &MountOptions::default()))?)
}

/// Writes a whole file, and syncs it.
fn put(fs: &Fs, path: &str, data: &[u8]) -> fs::Result<()> {
    block_on(&**fs.driver(), async {
        let writer = fs.create(path, &CreateOptions::default()).await?;
        writer.append(data).await?;
        writer.sync().await?;
        writer.close().await
    })
}

fn get(fs: &Fs, path: &str) -> fs::Result<Vec<u8>> {
    block_on(&**fs.driver(), async {
        let reader = fs.open(path)?;
        let mut data = vec![0; usize::try_from(reader.size().0).unwrap_or_default()];
        let mut done = 0;
        while let Some(part) = data.get_mut(done..).filter(|part| !part.is_empty()) {
            match reader.read_at(Bytes(u64::try_from(done).unwrap_or_default()), part).await? {
                0 => break,
                count => done += count,
            }
        }
        data.truncate(done);
        Ok(data)
    })
}

fn check_kept_file(fs: &Fs) -> Result<()> {
    ensure!(
        get(fs, "/kept")? == bytes(KEPT_FILE_BYTES, 3),
        "what was acknowledged before the fault is not there"
    );
    Ok(())
}

/// Creates a file system with a file that must survive.
fn device_with_kept_file(url: &str) -> Result<(Arc<dyn ZonedDevice>, Fs)> {
    let device = format(url)?;
    let fs = mount(&device)?;
    put(&fs, "/kept", &bytes(KEPT_FILE_BYTES, 3))?;
    Ok((device, fs))
}

/// Opens the drive after the fault has ended: no data is lost, and new data can be written.
fn check_recovered_drive(url: &str) -> Result<()> {
    let device = open(url)?;
    let report = block_on(&**device.driver(), Fs::check(&device))?;
    ensure!(report.problems.is_empty(), "the check found {:?}", report.problems);
    let fs = mount(&device)?;
    check_kept_file(&fs)?;
    put(&fs, "/after", &bytes(KEPT_FILE_BYTES, 5))?;
    ensure!(
        get(&fs, "/after")? == bytes(KEPT_FILE_BYTES, 5),
        "a file written after the fault is not what was written"
    );
    block_on(&**fs.driver(), fs.unmount())?;
    Ok(())
}

/// Requires an error.
fn expect_error<T>(what: &str, result: fs::Result<T>) -> Result<fs::Error> {
    match result {
        Ok(_) => bail!("{what} succeeded on a drive that fails"),
        Err(error) => Ok(error),
    }
}

fn reads_fail(control: &mut Control, drive: usize, url: &str) -> Result<()> {
    let (device, fs) = device_with_kept_file(url)?;
    control.ask(&format!("fail {drive} read"))?;
    let error = expect_error("a read", get(&fs, "/kept"))?;
    control.note(format!("a read: {error}"))?;
    put(&fs, "/meanwhile", &bytes(1000, 1)).context("writes go on where only reads fail")?;
    control.ask(&format!("heal {drive}"))?;
    check_kept_file(&fs).context("after the drive has healed")?;
    block_on(&**fs.driver(), fs.unmount())?;
    drop(fs);
    control.ask(&format!("fail {drive} read"))?;
    ensure!(mount(&device).is_err(), "a mount succeeded where nothing can be read");
    control.ask(&format!("heal {drive}"))?;
    drop(device);
    check_recovered_drive(url)
}

fn writes_fail(control: &mut Control, drive: usize, url: &str) -> Result<()> {
    let (device, fs) = device_with_kept_file(url)?;
    let driver = Arc::clone(device.driver());
    let writer = block_on(&*driver, fs.create("/lost", &CreateOptions::default()))?;
    control.ask(&format!("fail {drive} write"))?;
    block_on(&*driver, writer.append(&bytes(100_000, 1))).ok();
    let error = expect_error("a sync", block_on(&*driver, writer.sync()))?;
    control.note(format!("a sync: {error}"))?;
    let error = expect_error("a second sync", block_on(&*driver, writer.sync()))?;
    ensure!(
        matches!(error.kind(), ErrorKind::Poisoned | ErrorKind::ReadOnly),
        "the writer goes on after an error: {error}"
    );
    drop(writer);
    // If the data write failed first, a metadata write must be tried too, so that its failure is seen.
    let made = block_on(&*driver, async {
        fs.mkdir("/directory").await?;
        fs.sync().await
    });
    let error = expect_error("a directory", made)?;
    control.note(format!("a directory: {error}"))?;
    let error = expect_error("a file", block_on(&*driver, fs.create("/another", &CreateOptions::default())))?;
    control.note(format!("the next change: {error}"))?;
    ensure!(
        error.kind() == ErrorKind::ReadOnly,
        "it is not read-only after a failed metadata write: {error}"
    );
    check_kept_file(&fs).context("reads go on where only writes fail")?;
    drop(fs);
    drop(device);
    control.ask(&format!("heal {drive}"))?;
    check_recovered_drive(url)
}

fn flushes_fail(control: &mut Control, drive: usize, url: &str) -> Result<()> {
    let (device, fs) = device_with_kept_file(url)?;
    if !device.geometry().volatile_cache {
        return control.note("the drive has no volatile cache, so nothing is flushed");
    }
    control.ask(&format!("fail {drive} flush"))?;
    let error = expect_error("a sync", put(&fs, "/lost", &bytes(100_000, 1)))?;
    control.note(format!("a sync: {error}"))?;
    check_kept_file(&fs)?;
    drop(fs);
    drop(device);
    control.ask(&format!("heal {drive}"))?;
    check_recovered_drive(url)
}

fn log_fails(control: &mut Control, drive: usize, url: &str) -> Result<()> {
    const RECORD: usize = 5000;
    const RECORDS: usize = 20;
    let (device, fs) = device_with_kept_file(url)?;
    let driver = Arc::clone(device.driver());
    let kind = CreateOptions { kind: FileKind::Log, ..CreateOptions::default() };
    let log = block_on(&*driver, fs.create("/log", &kind))?;
    for record in 0..RECORDS {
        block_on(&*driver, log.append(&bytes(RECORD, record)))?;
        block_on(&*driver, log.sync())?;
    }
    control.ask(&format!("fail {drive} write"))?;
    block_on(&*driver, log.append(&bytes(RECORD, RECORDS))).ok();
    let error = expect_error("a log's sync", block_on(&*driver, log.sync()))?;
    control.note(format!("a log's sync: {error}"))?;
    expect_error("the next sync", block_on(&*driver, log.sync()))?;
    drop(log);
    drop(fs);
    drop(device);
    control.ask(&format!("heal {drive}"))?;
    check_recovered_drive(url)?;
    let device = open(url)?;
    let fs = mount(&device)?;
    let found = get(&fs, "/log")?;
    let wanted: Vec<u8> = (0..=RECORDS).flat_map(|record| bytes(RECORD, record)).collect();
    ensure!(
        found.len() >= RECORD * RECORDS,
        "{} of {} acknowledged bytes are there",
        found.len(),
        RECORD * RECORDS
    );
    ensure!(wanted.starts_with(&found), "the log has other bytes than were written");
    block_on(&**fs.driver(), fs.unmount())?;
    Ok(())
}

fn slow_drive_loses_nothing(control: &mut Control, drive: usize, url: &str) -> Result<()> {
    let (device, fs) = device_with_kept_file(url)?;
    control.ask(&format!("slow {drive}"))?;
    put(&fs, "/slow", &bytes(200_000, 7))?;
    check_kept_file(&fs)?;
    control.ask(&format!("heal {drive}"))?;
    ensure!(get(&fs, "/slow")? == bytes(200_000, 7), "what was written slowly is not there");
    block_on(&**fs.driver(), fs.unmount())?;
    drop(fs);
    drop(device);
    check_recovered_drive(url)
}

fn unplugged_drive_fails_operations(control: &mut Control, drive: usize, url: &str) -> Result<()> {
    let (device, fs) = device_with_kept_file(url)?;
    let driver = Arc::clone(device.driver());
    let kind = CreateOptions { kind: FileKind::Log, ..CreateOptions::default() };
    let log = block_on(&*driver, fs.create("/log", &kind))?;
    let load = std::thread::Builder::new().spawn({
        let driver = Arc::clone(&driver);
        move || {
            for record in 0.. {
                let done = block_on(&*driver, async {
                    log.append(&bytes(5000, record)).await?;
                    log.sync().await
                });
                if let Err(error) = done {
                    return (record, error);
                }
            }
            unreachable!("records do not run out")
        }
    })?;
    control.ask(&format!("unplug {drive}"))?;
    let (records, error) = load.join().ok().context("the writer panicked")?;
    control.note(format!("after {records} synced records: {error}"))?;
    let error = expect_error("a read", get(&fs, "/kept"))?;
    control.note(format!("a read: {error}"))?;
    expect_error("a file", put(&fs, "/more", &bytes(1000, 1)))?;
    // The operation must return, with or without an error: it must not hang.
    block_on(&*driver, fs.unmount()).ok();
    drop(fs);
    drop(device);
    ensure!(open(url).is_err(), "a drive that is gone was opened");
    Ok(())
}

fn worn_zones_are_avoided() -> Result<()> {
    let (device, fs) = device_with_kept_file(NULL_BLK_WITH_WORN_ZONES)?;
    let zones = device.report_all()?;
    let state = |zone: ZoneId| zones.iter().find(|info| info.zone == zone).map(|info| info.state);
    ensure!(state(READ_ONLY_ZONE) == Some(ZoneState::ReadOnly), "zone 10 is {:?}", state(READ_ONLY_ZONE));
    ensure!(state(OFFLINE_ZONE) == Some(ZoneState::Offline), "zone 11 is {:?}", state(OFFLINE_ZONE));
    // Writes all zones of the device several times.
    let data = bytes(4_000_000, 9);
    for round in 0..60 {
        let path = format!("/file-{}", round % 10);
        if round >= 10 {
            block_on(&**fs.driver(), fs.unlink(&path))?;
        }
        put(&fs, &path, &data).with_context(|| format!("file {round}"))?;
    }
    for file in 0..10 {
        ensure!(get(&fs, &format!("/file-{file}"))? == data, "file {file} is not what was written");
    }
    check_kept_file(&fs)?;
    block_on(&**fs.driver(), fs.unmount())?;
    drop(fs);
    drop(device);
    check_recovered_drive(NULL_BLK_WITH_WORN_ZONES)
}

/// Turns the zone that holds a file read-only or offline by null_blk's `setting`, while the file is written.
fn zone_turns_unwritable(control: &mut Control, setting: &str) -> Result<()> {
    let (device, fs) = device_with_kept_file(NULL_BLK_WITH_WORN_ZONES)?;
    let driver = Arc::clone(device.driver());
    let before: Vec<_> = fs.zone_map();
    let writer = block_on(&*driver, fs.create("/hit", &CreateOptions::default()))?;
    block_on(&*driver, writer.append(&bytes(1_500_000, 1)))?;
    block_on(&*driver, writer.sync())?;
    let grown = fs
        .zone_map()
        .into_iter()
        .zip(before)
        .find(|(now, before)| matches!(now.role, ZoneRole::Data { .. }) && now.live > before.live);
    let zone = grown.context("no zone holds the file")?.0.zone;
    let sectors = u64::from(zone.0) * device.geometry().zone_size.bytes(device.geometry().block_size).0 / 512;
    text::put(format!("/sys/kernel/config/nullb/nullb0/{setting}"), sectors)?;
    block_on(&*driver, writer.append(&bytes(1_500_000, 2))).ok();
    let error = expect_error("a sync", block_on(&*driver, writer.sync()))?;
    control.note(format!("a sync: {error}"))?;
    drop(writer);
    // A second file uses other zones than the failed one.
    let second =
        (0..3).map(|attempt| put(&fs, &format!("/other-{attempt}"), &bytes(500_000, 4))).collect::<Vec<_>>();
    let went = second.iter().position(Result::is_ok);
    let last = second.into_iter().filter_map(Result::err).last();
    control.note(format!(
        "another file: {}",
        last.map_or("written at once".into(), |error| format!("attempt {went:?} succeeded; {error}"))
    ))?;
    ensure!(went.is_some(), "the other zones are of no use");
    let found = get(&fs, "/hit");
    match setting {
        "zone_readonly" => {
            let found = found.context("a read-only zone can be read")?;
            ensure!(found.starts_with(&bytes(1_500_000, 1)), "acknowledged bytes are not there");
            check_kept_file(&fs)?;
        }
        _ => {
            let error = expect_error("a read of an offline zone", found)?;
            control.note(format!("a read: {error}"))?;
        }
    }
    block_on(&*driver, fs.unmount()).ok();
    control.say(&Event::Note { text: format!("zone {} was hit", zone.0) })
}
