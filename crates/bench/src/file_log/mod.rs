//! Logs in ordinary files: how long a record takes to be durable by [`prio::LogFile`], beside a plain file with `fdatasync`, alone and beside bulk writers of the same
//! file system, and beside the paper's writer process behind a pipe. On the machine's clock, and so a measurement of the machine and its drive.

mod pipe;

use std::ffi::OsString;
use std::fs::{File, OpenOptions};
use std::io;
use std::io::Write as _;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use ::prio::{How, LogFile, Options};
use rustix::fs::OFlags;
use serde::Serialize;
use sys::BufMut;
use units::{Driver, RealDriver};

use self::pipe::PipeLog;
pub use self::pipe::serve_pipe;
use crate::{Error, Latencies, Recorder, Result, Scratch};

/// Prefix of the folder that a measurement makes.
const SCRATCH: &str = "furrow-bench-prio-";
/// Bytes of one bulk write.
const BULK_WRITE: usize = 1 << 20;
/// Bytes of a bulk writer's file, which the writer begins anew at its end.
const BULK_FILE: u64 = 256 << 20;

/// How records become durable.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Way {
    /// `write` to the end of a plain file, and `fdatasync`: what most programs do.
    Plain,
    /// [`LogFile`] over io_uring.
    Request,
    /// [`LogFile`] over helper threads.
    Thread,
    /// [`LogFile`] over a writer process.
    Process,
    /// A writer process behind a pipe, as the paper's: see [`serve_pipe`].
    Pipe,
}

impl Way {
    /// All ways, in the order of their measurement.
    pub const ALL: [Way; 5] = [Way::Plain, Way::Request, Way::Thread, Way::Process, Way::Pipe];
}

/// The load of a measurement of logs in files.
#[derive(Clone, Debug)]
pub struct FileLogLoad {
    /// A folder on the measured file system. Everything made in it is removed.
    pub folder: PathBuf,
    /// Bytes of a record.
    pub record: usize,
    /// Number of records, each synced before the next.
    pub records: u64,
    /// Number of bulk writers beside the log: 1 MiB at a time, direct.
    pub bulk: u32,
    /// The program `furrow-prio-writer`; without it [`Way::Process`] is left out.
    pub writer: Option<PathBuf>,
    /// The program of [`Way::Pipe`] and its arguments, behind which the log's path comes; without them [`Way::Pipe`] is left out. The program calls [`serve_pipe`].
    pub pipe_writer: Option<Vec<OsString>>,
}

impl FileLogLoad {
    /// True if the program that the way needs is named.
    fn has(&self, way: Way) -> bool {
        match way {
            Way::Plain | Way::Request | Way::Thread => true,
            Way::Process => self.writer.is_some(),
            Way::Pipe => self.pipe_writer.is_some(),
        }
    }
}

/// One way's latencies.
#[derive(Clone, Debug, Serialize)]
pub struct FileLogLine {
    /// How records became durable.
    pub way: Way,
    /// True if bulk was written meanwhile.
    pub beside_bulk: bool,
    /// Latencies from before an append to the end of its sync.
    pub latencies: Latencies,
    /// The bulk writers' bytes a second.
    pub bulk_bytes_per_s: f64,
    /// True if the log's writes were real-time requests.
    pub real_time: bool,
}

/// Measures every way, alone and beside bulk, one after the other.
///
/// # Errors
/// A folder that cannot be written, or a file system without direct I/O.
pub fn measure(load: &FileLogLoad) -> Result<Vec<FileLogLine>> {
    Scratch::sweep(&load.folder, SCRATCH)?;
    if load.record == 0 || load.records == 0 {
        return Err(Error::settings("a record has one byte at least, and there is one record at least"));
    }
    let mut lines = Vec::new();
    for way in Way::ALL.into_iter().filter(|way| load.has(*way)) {
        for beside_bulk in [false, true] {
            if !beside_bulk || load.bulk > 0 {
                lines.push(measure_way(load, way, beside_bulk)?);
            }
        }
    }
    Ok(lines)
}

fn measure_way(load: &FileLogLoad, way: Way, beside_bulk: bool) -> Result<FileLogLine> {
    let scratch = Scratch::new(&load.folder, SCRATCH)?;
    let (stop, bulk_bytes) = (AtomicBool::new(false), AtomicU64::new(0));
    let driver = RealDriver::new();
    let bulk_writers = if beside_bulk { load.bulk } else { 0 };
    std::thread::scope(|scope| {
        let writers: Vec<_> = (0..bulk_writers)
            .map(|n| {
                let path = Path::new(scratch.path()).join(format!("bulk{n}"));
                let (stop, bulk_bytes) = (&stop, &bulk_bytes);
                scope.spawn(move || write_bulk(&path, stop, bulk_bytes))
            })
            .collect();
        let begin = (driver.now(), bulk_bytes.load(Ordering::Relaxed));
        let measured = write_log(load, way, &Path::new(scratch.path()).join("log"), &*driver);
        let seconds = driver.now().since(begin.0).as_secs_f64();
        let written = bulk_bytes.load(Ordering::Relaxed) - begin.1;
        stop.store(true, Ordering::Relaxed);
        for writer in writers {
            writer.join().map_err(|_| Error::settings("a bulk writer panicked"))??;
        }
        let (recorder, real_time) = measured?;
        Ok(FileLogLine {
            way,
            beside_bulk,
            latencies: recorder.summary(1),
            bulk_bytes_per_s: written as f64 / seconds,
            real_time,
        })
    })
}

fn write_log(load: &FileLogLoad, way: Way, path: &Path, driver: &dyn Driver) -> Result<(Recorder, bool)> {
    let record = vec![b'r'; load.record];
    let mut recorder = Recorder::new();
    let mut time = |append: &mut dyn FnMut() -> Result<()>| {
        let begin = driver.now();
        append()?;
        recorder.record(driver.now().since(begin));
        Ok::<(), Error>(())
    };
    let how = match way {
        Way::Plain => {
            let mut file = File::create(path).map_err(|e| failed("create", path, &e))?;
            for _ in 0..load.records {
                time(&mut || {
                    file.write_all(&record).map_err(|e| failed("write", path, &e))?;
                    file.sync_data().map_err(|e| failed("sync", path, &e))
                })?;
            }
            return Ok((recorder, false));
        }
        Way::Pipe => {
            let writer = load.pipe_writer.as_deref().unwrap_or_default();
            let mut log =
                PipeLog::start(writer, path).map_err(|e| failed("start the pipe's writer of", path, &e))?;
            for _ in 0..load.records {
                time(&mut || {
                    log.append(&record).map(drop).map_err(|e| failed("write through the pipe to", path, &e))
                })?;
            }
            let real_time = log.is_real_time();
            log.close().map_err(|e| failed("close", path, &e))?;
            return Ok((recorder, real_time));
        }
        Way::Request => How::Request,
        Way::Thread => How::Thread,
        Way::Process => How::Process,
    };
    let mut options = Options { how, ..Options::default() };
    if let Some(writer) = &load.writer {
        options.writer.clone_from(writer);
    }
    let log = LogFile::create(path, &options)?;
    for _ in 0..load.records {
        time(&mut || Ok(log.sync(log.append(&record)?)?))?;
    }
    let real_time = log.is_real_time();
    log.close()?;
    Ok((recorder, real_time))
}

/// Writes a file over and over until `stop`.
fn write_bulk(path: &Path, stop: &AtomicBool, bytes: &AtomicU64) -> Result<()> {
    let direct = i32::try_from(OFlags::DIRECT.bits()).expect("a flag of open(2) is a C int");
    let mut options = OpenOptions::new();
    options.write(true).create(true).truncate(true).custom_flags(direct);
    let file = options.open(path).map_err(|e| failed("create", path, &e))?;
    let mut data = BufMut::zeroed(BULK_WRITE);
    data.fill(b'b');
    let mut at = 0;
    while !stop.load(Ordering::Relaxed) {
        file.write_all_at(&data, at).map_err(|e| failed("write", path, &e))?;
        bytes.fetch_add(BULK_WRITE as u64, Ordering::Relaxed);
        at = (at + BULK_WRITE as u64) % BULK_FILE;
    }
    Ok(())
}

fn failed(doing: &str, path: &Path, error: &io::Error) -> Error {
    Error::settings(format!("cannot {doing} {}: {error}", path.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_way_is_measured_alone_and_beside_bulk_and_leaves_nothing() {
        let program = std::env::current_exe().expect("has a path");
        let folder = program.parent().expect("lies in a folder").join("bench-prio-test");
        std::fs::create_dir_all(&folder).expect("makes it");
        let load = FileLogLoad {
            folder: folder.clone(),
            record: 512,
            records: 20,
            bulk: 1,
            writer: None,
            pipe_writer: None,
        };
        let lines = measure(&load).expect("measures");
        let seen: Vec<(Way, bool)> = lines.iter().map(|line| (line.way, line.beside_bulk)).collect();
        let wanted: Vec<(Way, bool)> =
            Way::ALL[..3].iter().flat_map(|way| [(*way, false), (*way, true)]).collect();
        assert_eq!(seen, wanted);
        assert!(lines.iter().all(|line| line.latencies.max > 0.0));
        assert_eq!(std::fs::read_dir(&folder).expect("lists").count(), 0);
        std::fs::remove_dir(&folder).expect("removes it");
        assert!(measure(&FileLogLoad { record: 0, ..load }).is_err());
    }
}
