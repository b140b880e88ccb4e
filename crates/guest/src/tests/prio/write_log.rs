//! The program that writes a log in a file: `furrow-guest write-log HOW FILE WRITER`.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::{Context, Result, bail};
use prio::{How, LogFile, Options};

use super::trace::MARKER;
use crate::clock;

/// The program's name.
pub(super) const PROGRAM: &str = "write-log";
/// Bytes of the room ahead of the log.
pub(super) const ROOM: u64 = 1 << 20;
/// Bytes of the room that the first records may reach: their zeros are the log's, those behind them are bulk.
pub(super) const FIRST_ZEROS: u64 = ROOM / 4;
/// Threads that append, and records of each.
const THREADS: u64 = 2;
const RECORDS_PER_THREAD: u64 = 20;
/// Records in all: each is durable before its thread's next one.
pub(super) const RECORDS: u64 = THREADS * RECORDS_PER_THREAD;
/// Bytes of a record: several are in a block, whose writes follow each other.
const RECORD_BYTES: usize = 512;
/// Bytes that are pending at most.
const BUFFER: u64 = 64 << 10;

/// Opens a log and waits for its room; marks the trace; appends and syncs.
pub(super) fn run(arguments: &[String]) -> Result<()> {
    let [how, path, writer] = arguments else { bail!("wanted: HOW FILE WRITER") };
    let options = Options {
        how: how_by_name(how)?,
        writer: PathBuf::from(writer),
        room: ROOM,
        buffer: BUFFER,
        ..Options::default()
    };
    let path = Path::new(path);
    let log = Arc::new(LogFile::create(path, &options)?);
    clock::wait_for("room ahead of the log", || {
        fs::metadata(path).ok().filter(|found| found.len() >= ROOM).map(|_| ())
    })?;
    // The kernel takes a mark from pages that are present alone: not from a constant in the program's file, perhaps.
    fs::write(MARKER, String::from("entries")).context("marking the trace")?;
    std::thread::scope(|scope| {
        let append = || -> Result<()> {
            for _ in 0..RECORDS_PER_THREAD {
                log.sync(log.append(&[b'r'; RECORD_BYTES])?)?;
            }
            Ok(())
        };
        let threads: Vec<_> = (0..THREADS).map(|_| scope.spawn(append)).collect();
        threads.into_iter().try_for_each(|thread| match thread.join() {
            Ok(result) => result,
            Err(_) => bail!("a thread panicked"),
        })
    })?;
    println!("{}", if log.is_real_time() { "real-time" } else { "best effort" });
    // The file keeps its room, and so its extents.
    Ok(())
}

/// The names of the ways in which a log is written.
pub(super) const HOWS: [&str; 3] = ["request", "thread", "process"];

/// The way of that name.
pub(super) fn how_by_name(name: &str) -> Result<How> {
    match name {
        "request" => Ok(How::Request),
        "thread" => Ok(How::Thread),
        "process" => Ok(How::Process),
        _ => bail!("{name} is no way to write a log"),
    }
}
