//! A log in a file.

use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};

use rustix::fs::{AtFlags, FlockOperation, Mode, OFlags, StatxFlags};
use rustix::io::Errno;
use sys::{Buf, BufMut, Engine, EngineKind, Finished, Priority};
use units::{RealDriver, block_on};

use crate::process::ProcessStorage;
use crate::{Error, Finish, How, Log, Options, Request, Result, Storage};

/// A log in a file, for threads. All methods may be called by any thread; appends and syncs of several threads are in flight side by side, and syncs that wait together are one write.
///
/// Dropping the log closes nothing: the file keeps zeros behind the appended bytes, and bytes that were not synced may be lost.
#[derive(Debug)]
pub struct LogFile {
    log: Log,
    file: Arc<File>,
    path: PathBuf,
    real_time: bool,
}

impl LogFile {
    /// Makes a file, and its name, durable, for a new log. Fails if the file exists.
    pub fn create(path: impl AsRef<Path>, options: &Options) -> Result<LogFile> {
        let path = path.as_ref();
        options.validate()?;
        let file = open_file(path, OFlags::CREATE | OFlags::EXCL, options.block)?;
        let parent = path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
        let io = |doing, source| Error::Io { doing, path: parent.to_owned(), source };
        let folder = File::open(parent).map_err(|e| io("open the folder", e))?;
        folder.sync_all().map_err(|e| io("sync the folder", e))?;
        LogFile::over(path, file, options, 0, &[])
    }

    /// Opens a log to go on at byte `end`, where the caller found its last record to end. Bytes of the file from there on are dropped first, durably: they are zeros, or entries
    /// that no finished sync covers.
    pub fn open(path: impl AsRef<Path>, end: u64, options: &Options) -> Result<LogFile> {
        let path = path.as_ref();
        options.validate()?;
        let file = open_file(path, OFlags::empty(), options.block)?;
        let io = |doing, source| Error::Io { doing, path: path.to_owned(), source };
        let len = file.metadata().map_err(|e| io("stat", e))?.len();
        if end > len {
            return Err(Error::BehindFile { path: path.to_owned(), len, end });
        }
        file.set_len(end).map_err(|e| io("truncate", e))?;
        file.sync_all().map_err(|e| io("sync", e))?;
        let within_block = usize::try_from(end % u64::from(options.block)).expect("blocks are short");
        let mut tail = BufMut::zeroed(options.block as usize);
        if within_block > 0 {
            let read = rustix::io::pread(&file, &mut tail[..], end - within_block as u64);
            let read = read.map_err(|e| io("read the last block of", e.into()))?;
            if read < within_block {
                return Err(io("read the last block of", io::ErrorKind::UnexpectedEof.into()));
            }
        }
        tail.truncate(within_block);
        LogFile::over(path, file, options, end, &tail)
    }

    fn over(path: &Path, file: File, options: &Options, end: u64, tail: &[u8]) -> Result<LogFile> {
        let io = |doing, path: &Path, source| Error::Io { doing, path: path.to_owned(), source };
        let file = Arc::new(file);
        let engine = |kind| {
            let engine = Engine::shared(kind).map_err(|e| io("start an I/O engine for", path, e))?;
            let storage = FileStorage::new(Arc::clone(&file), engine);
            Ok((matches!(storage.priority, Priority::RealTime(_)), Arc::new(storage) as Arc<dyn Storage>))
        };
        let (real_time, storage) = match options.how {
            How::Request => engine(None)?,
            How::Thread => engine(Some(EngineKind::Threads))?,
            How::Process => {
                let started = ProcessStorage::start(&options.writer, &file);
                let storage = started.map_err(|e| io("start the log's writer", &options.writer, e))?;
                (storage.is_real_time(), Arc::new(storage) as Arc<dyn Storage>)
            }
        };
        let log = Log::new(storage, options, end, tail)?;
        Ok(LogFile { log, file, path: path.to_owned(), real_time })
    }

    /// Appends bytes, which stay together. Returns where they end, for [`sync`](LogFile::sync). Ends in memory; waits while [`Options::buffer`] is full.
    pub fn append(&self, bytes: &[u8]) -> Result<u64> {
        block_on(&**driver(), self.log.append(bytes))
    }

    /// Makes all bytes below `upto` durable, and waits for that.
    pub fn sync(&self, upto: u64) -> Result<()> {
        block_on(&**driver(), self.log.sync(upto))
    }

    /// Number of appended bytes.
    pub fn end(&self) -> u64 {
        self.log.end()
    }

    /// Number of bytes, from the log's begin, that are durable.
    pub fn durable(&self) -> u64 {
        self.log.durable()
    }

    /// True if the log's writes are real-time; false without `CAP_SYS_NICE`, where they are best effort of the highest level.
    pub fn is_real_time(&self) -> bool {
        self.real_time
    }

    /// Makes everything durable and truncates the file to the appended bytes.
    pub fn close(self) -> Result<()> {
        let end = block_on(&**driver(), self.log.close())?;
        let io = |doing, source| Error::Io { doing, path: self.path.clone(), source };
        self.file.set_len(end).map_err(|e| io("truncate", e))?;
        self.file.sync_all().map_err(|e| io("sync", e))
    }
}

/// The clock and executor of all logs of this process.
fn driver() -> &'static Arc<RealDriver> {
    static DRIVER: OnceLock<Arc<RealDriver>> = OnceLock::new();
    DRIVER.get_or_init(RealDriver::new)
}

/// Opens a file for direct I/O, and locks it against other logs.
fn open_file(path: &Path, flags: OFlags, block: u32) -> Result<File> {
    let flags = flags | OFlags::RDWR | OFlags::DIRECT | OFlags::CLOEXEC;
    let opened = rustix::fs::open(path, flags, Mode::RUSR | Mode::WUSR | Mode::RGRP);
    let io = |doing, error: Errno| Error::Io { doing, path: path.to_owned(), source: error.into() };
    let file = match opened {
        Ok(file) => File::from(file),
        Err(Errno::INVAL | Errno::OPNOTSUPP) => return Err(Error::NoDirectIo(path.to_owned())),
        Err(error) => return Err(io("open", error)),
    };
    match rustix::fs::flock(&file, FlockOperation::NonBlockingLockExclusive) {
        Ok(()) => {}
        Err(Errno::WOULDBLOCK) => return Err(Error::Held(path.to_owned())),
        Err(error) => return Err(io("lock", error)),
    }
    // Kernels before 6.1 do not tell; those file systems take blocks of 4,096 bytes.
    let told = rustix::fs::statx(&file, "", AtFlags::EMPTY_PATH, StatxFlags::DIOALIGN);
    let wanted = told.map_or(0, |found| found.stx_dio_offset_align);
    if wanted > block {
        return Err(Error::Block { path: path.to_owned(), wanted, block });
    }
    Ok(file)
}

/// The kernel's file of a log.
struct FileStorage {
    file: Arc<File>,
    engine: Arc<Engine>,
    /// The priority of entries.
    priority: Priority,
    zeros: OnceLock<Buf>,
}

impl FileStorage {
    fn new(file: Arc<File>, engine: Arc<Engine>) -> FileStorage {
        FileStorage { file, engine, priority: Priority::of_log(), zeros: OnceLock::new() }
    }

    /// A buffer of `len` zero bytes, the same for all requests that are no longer than the first.
    fn zeros(&self, len: u64) -> Buf {
        let len = usize::try_from(len).expect("zeros of one write fit into memory");
        let kept = self.zeros.get_or_init(|| Buf::zeroed(len));
        if kept.len() >= len { kept.slice(..len) } else { Buf::zeroed(len) }
    }
}

impl Storage for FileStorage {
    fn start(&self, request: Request, finish: Finish) {
        let (at, data, durable, priority) = match request {
            Request::Entries { at, data } => (at, data, true, self.priority),
            Request::Zeros { at, len, durable } => (at, self.zeros(len), durable, Priority::of_bulk()),
        };
        let wanted = data.len() as u64;
        let request =
            sys::Request::Write { file: Arc::clone(&self.file), at, data: vec![data], durable, priority };
        self.engine.submit(
            request,
            Box::new(move |Finished { result, .. }| {
                finish(result.and_then(|written| match written == wanted {
                    true => Ok(()),
                    false => Err(io::Error::other(format!("{written} bytes of {wanted} were written"))),
                }));
            }),
        );
    }
}
