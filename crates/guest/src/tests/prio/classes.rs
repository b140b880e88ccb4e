//! The priority of every write: of logs in files, of unmodified programs under `furrow prio run`, with the capability and without.

use std::fs::{self, File, OpenOptions};
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use rustix::fs::{OFlags, XattrFlags};
use sys::{BufMut, Priority};

use super::drives::Drive;
use super::extents::Extents;
use super::trace::{Trace, Write};
use super::write_log::{self, FIRST_ZEROS, HOWS, RECORDS};
use crate::checks::Checks;
use crate::shell;

/// Time limit of a test, and of each program that it starts.
const LIMIT: Duration = Duration::from_secs(60);
/// Bytes of a direct bulk write, and of the file that such writes go to.
const BULK_WRITE: usize = 64 << 10;
const BULK_FILE: u64 = 4 << 20;
/// Synced writes of the worker thread and of the main thread, each of a block.
const WRITES: u64 = 20;
const BLOCK: usize = 4096;
/// This program.
const SELF: &str = "/init";
/// Starts a program without the capabilities that allow real-time: either of the two does.
const WITHOUT_CAPABILITIES: [&str; 3] =
    ["setpriv", "--bounding-set=-sys_nice,-sys_admin", "--inh-caps=-sys_nice,-sys_admin"];
/// Starts a program as an ordinary user.
const AS_USER: [&str; 4] = ["setpriv", "--reuid=1000", "--regid=1000", "--clear-groups"];
const USER: u32 = 1000;

/// The priorities of log and bulk.
#[derive(Clone, Copy)]
struct Wanted {
    log: Priority,
    bulk: Priority,
}

const WITH_CAPABILITY: Wanted = Wanted { log: Priority::RealTime(4), bulk: Priority::BestEffort(7) };
const WITHOUT_CAPABILITY: Wanted = Wanted { log: Priority::BestEffort(0), bulk: Priority::Idle };

pub(super) fn run(checks: &mut Checks) -> Result<()> {
    let drives = Drive::make_both()?;
    for drive in &drives {
        for how in HOWS {
            let name =
                format!("{}: a log by {how} is real-time, its room and other bulk are not", drive.name);
            checks
                .check(&name, LIMIT, |control| control.note(file_log(drive, how, &[], WITH_CAPABILITY)?))?;
        }
        let name = format!("{}: prio run: dd's log is real-time, dd's bulk is not", drive.name);
        checks.check(&name, LIMIT, |control| control.note(prio_run(drive, &[], WITH_CAPABILITY)?))?;
    }
    let [drive, _] = &drives;
    for how in HOWS {
        let name = format!("without CAP_SYS_NICE a log by {how} is best effort 0, its room idle");
        checks.check(&name, LIMIT, |control| {
            control.note(file_log(drive, how, &WITHOUT_CAPABILITIES, WITHOUT_CAPABILITY)?)
        })?;
    }
    checks.check(
        "without CAP_SYS_NICE prio run: dd's log is best effort 0, dd's bulk idle",
        LIMIT,
        |control| control.note(prio_run(drive, &WITHOUT_CAPABILITIES, WITHOUT_CAPABILITY)?),
    )?;
    checks.check(
        "a user's log by a writer with the capability on its file is real-time",
        LIMIT,
        |control| control.note(writer_with_capability(drive)?),
    )?;
    checks.check("getpid() names the main thread: no write of a worker is real-time", LIMIT, |control| {
        control.note(process_id_of_a_worker(drive)?)
    })
}

/// Writes a log in a file by a process of its own, started by `launcher`, beside bulk of this process.
fn file_log(drive: &Drive, how: &str, launcher: &[&str], wanted: Wanted) -> Result<String> {
    file_log_by(drive, how, launcher, wanted, "furrow-prio-writer")
}

fn file_log_by(drive: &Drive, how: &str, launcher: &[&str], wanted: Wanted, writer: &str) -> Result<String> {
    let [log, bulk] = ["log", "bulk"].map(|name| drive.at.join(name));
    let path = log.to_str().context("a path of the guest")?;
    // A test that failed may have left its log.
    fs::remove_file(&log).ok();
    let line: Vec<&str> =
        launcher.iter().copied().chain([SELF, write_log::PROGRAM, how, path, writer]).collect();
    let trace = Trace::begin()?;
    let said = beside_bulk(&bulk, || shell::run_successfully(&line, LIMIT))?;
    let (before, after) = trace.end(drive)?;
    let (log_extents, bulk_extents) = (Extents::of(&log)?, Extents::of(&bulk)?);
    fs::remove_file(&log)?;
    let is_real_time = wanted.log == WITH_CAPABILITY.log;
    ensure!((said.trim() == "real-time") == is_real_time, "the log says of itself: {said}");
    let entries = log_extents.choose(&after);
    // Two threads' syncs may be one write.
    ensure!(entries.len() as u64 >= RECORDS / 2, "{} writes of {RECORDS} synced records", entries.len());
    all(&entries, "the log's write", |priority| priority == wanted.log)?;
    let zeros = log_extents.choose(&before);
    let ahead = |write: &&Write| log_extents.offset(write).is_some_and(|at| at >= FIRST_ZEROS);
    let (room, first): (Vec<Write>, Vec<Write>) = zeros.into_iter().partition(|write| ahead(&write));
    ensure!(!room.is_empty(), "no room was zeroed");
    all(&room, "the room's write", |priority| priority == wanted.bulk)?;
    all(&first, "the write of the first zeros", |priority| priority == wanted.log)?;
    let bulk = bulk_extents.choose(&after);
    ensure!(!bulk.is_empty(), "no bulk was written beside the log");
    all(&bulk, "the bulk's write", |priority| !matches!(priority, Priority::RealTime(_)))?;
    Ok(format!(
        "{} log writes {:?}, {} of room {:?}, {} of bulk beside",
        entries.len(),
        wanted.log,
        room.len(),
        wanted.bulk,
        bulk.len()
    ))
}

/// A log of a user without any capability, written by a process whose file has the capability.
fn writer_with_capability(drive: &Drive) -> Result<String> {
    /// `struct vfs_cap_data` of the kernel: revision 2 and effective; permitted, inheritable; the upper halves of both.
    const CAP_SYS_NICE: u32 = 1 << 23;
    const CAPABILITIES: [u32; 5] = [0x0200_0001, CAP_SYS_NICE, 0, 0, 0];
    let writer = drive.at.join("writer");
    fs::copy("/bin/furrow-prio-writer", &writer)?;
    let bytes = CAPABILITIES.map(u32::to_le_bytes).concat();
    rustix::fs::setxattr(&writer, "security.capability", &bytes, XattrFlags::empty())
        .context("giving the writer the capability")?;
    std::os::unix::fs::chown(&drive.at, Some(USER), Some(USER))?;
    let path = writer.to_str().context("a path of the guest")?;
    file_log_by(drive, "process", &AS_USER, WITH_CAPABILITY, path)
}

/// Writes a file over and over, direct, while `work` runs.
fn beside_bulk<T>(path: &Path, work: impl FnOnce() -> Result<T>) -> Result<T> {
    let file = open_direct(path, OFlags::empty())?;
    let mut data = BufMut::zeroed(BULK_WRITE);
    data.fill(b'b');
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let bulk = scope.spawn(|| -> Result<()> {
            let mut at = 0;
            while !stop.load(Ordering::Relaxed) {
                file.write_all_at(&data, at)?;
                at = (at + BULK_WRITE as u64) % BULK_FILE;
            }
            Ok(())
        });
        let done = work();
        stop.store(true, Ordering::Relaxed);
        bulk.join().map_err(|_| anyhow::anyhow!("the bulk writer panicked"))??;
        done
    })
}

/// `O_DSYNC`: a write is durable when it ends. The flag of that name in `OFlags` is `O_SYNC`, which also waits for the file's times in the journal.
pub(super) const DURABLE: OFlags = OFlags::from_bits_retain(0o1_0000);

/// Opens a file for direct writes.
pub(super) fn open_direct(path: &Path, more: OFlags) -> Result<File> {
    let flags = (OFlags::DIRECT | more).bits().cast_signed();
    let mut options = OpenOptions::new();
    options.write(true).create(true).truncate(false).custom_flags(flags);
    options.open(path).with_context(|| format!("opening {}", path.display()))
}

/// Lets dd write a log and bulk at the same time under `furrow prio run`, started by `launcher`.
fn prio_run(drive: &Drive, launcher: &[&str], wanted: Wanted) -> Result<String> {
    const LOG_WRITES: usize = 40;
    let directory = drive.at.join("wal");
    fs::create_dir_all(&directory)?;
    let (log, bulk) = (directory.join("0001"), drive.at.join("a.bulk"));
    let script = format!(
        "dd if=/dev/zero of={} bs=64k count=256 conv=fsync & \
         dd if=/dev/zero of={} bs=4k count={LOG_WRITES} oflag=dsync && wait $!",
        bulk.display(),
        log.display()
    );
    let run = ["furrow", "prio", "run", "--log", "wal/*", "--bulk", "*.bulk", "--", "sh", "-c", &script];
    let line: Vec<&str> = launcher.iter().copied().chain(run).collect();
    let trace = Trace::begin()?;
    shell::run_successfully(&line, LIMIT)?;
    let (writes, _) = trace.end(drive)?;
    let (log_writes, bulk_writes) = (Extents::of(&log)?.choose(&writes), Extents::of(&bulk)?.choose(&writes));
    for path in [log, bulk] {
        fs::remove_file(path)?;
    }
    ensure!(log_writes.len() >= LOG_WRITES, "{} writes of {LOG_WRITES} synced ones", log_writes.len());
    all(&log_writes, "the log's write", |priority| priority == wanted.log)?;
    // The thread that hands a request to the drive may be one of the kernel's, whoever wrote.
    let by_dd: Vec<Write> = bulk_writes.iter().filter(|write| write.thread == "dd").cloned().collect();
    all(&by_dd, "the bulk's write", |priority| priority == wanted.bulk)?;
    // The kernel's flushers have no class.
    let (behind, by_flushers): (Vec<Write>, Vec<Write>) =
        bulk_writes.into_iter().partition(|write| write.priority == wanted.bulk);
    ensure!(!behind.is_empty(), "no bulk was written behind");
    all(&by_flushers, "the bulk's write", |priority| !matches!(priority, Priority::RealTime(_)))?;
    Ok(format!(
        "{} log writes {:?}, {} of bulk {:?}, {} of bulk without that class",
        log_writes.len(),
        wanted.log,
        behind.len(),
        wanted.bulk,
        by_flushers.len()
    ))
}

/// A worker thread asks for real-time priority as "Mitigating Write-ahead Log Contention" does, for the process `getpid()`; then it writes, and after it the
/// main thread.
fn process_id_of_a_worker(drive: &Drive) -> Result<String> {
    let [worker_file, main_file] = ["worker", "main"].map(|name| drive.at.join(name));
    let trace = Trace::begin()?;
    let written = std::thread::scope(|scope| {
        let worker = scope.spawn(|| {
            set_priority(&["-c1", "-n4"])?;
            write_synced(&worker_file)
        });
        worker.join().map_err(|_| anyhow::anyhow!("the worker panicked"))?
    });
    let written = written.and_then(|()| write_synced(&main_file));
    // The main thread's priority is that of all threads that it starts.
    set_priority(&["-c0"])?;
    written?;
    let (writes, _) = trace.end(drive)?;
    let by_worker = Extents::of(&worker_file)?.choose(&writes);
    let by_main = Extents::of(&main_file)?.choose(&writes);
    ensure!(by_worker.len() as u64 >= WRITES, "the worker wrote {} times", by_worker.len());
    all(&by_worker, "the worker's write", |priority| !matches!(priority, Priority::RealTime(_)))?;
    ensure!(by_main.len() as u64 >= WRITES, "the main thread wrote {} times", by_main.len());
    all(&by_main, "the main thread's write", |priority| priority == Priority::RealTime(4))?;
    Ok(format!(
        "{} writes of the worker, {} real-time ones of the main thread",
        by_worker.len(),
        by_main.len()
    ))
}

/// Calls `ioprio_set(IOPRIO_WHO_PROCESS, getpid())` by `ionice`.
fn set_priority(class: &[&str]) -> Result<()> {
    let process = std::process::id().to_string();
    let line: Vec<&str> =
        ["ionice"].into_iter().chain(class.iter().copied()).chain(["-p", &process]).collect();
    shell::run_successfully(&line, LIMIT)?;
    Ok(())
}

/// Writes blocks, each durable before the next.
fn write_synced(path: &Path) -> Result<()> {
    let file = open_direct(path, DURABLE)?;
    let data = BufMut::zeroed(BLOCK);
    for block in 0..WRITES {
        file.write_all_at(&data, block * BLOCK as u64)?;
    }
    Ok(())
}

/// Fails if a write's priority does not `fit`.
fn all(writes: &[Write], what: &str, fits: impl Fn(Priority) -> bool) -> Result<()> {
    let wrong: Vec<&Write> = writes.iter().filter(|write| !fits(write.priority)).collect();
    match wrong.first() {
        None => Ok(()),
        Some(first) => bail!("{what} has a wrong priority, {} of {}: {first:?}", wrong.len(), writes.len()),
    }
}
