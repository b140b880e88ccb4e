//! A log in a file.

use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use rustix::fs::{AtFlags, FlockOperation, FsWord, Mode, OFlags, StatxFlags};
use rustix::io::Errno;
use sys::{Buf, BufMut, Engine, EngineKind, Finished, Priority};
use units::{Driver, RealDriver, block_on, sleep_until};

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
    /// The process that opened the log.
    process: u32,
}

impl LogFile {
    /// Makes a file, and its name, durable, for a new log. Fails if the file exists.
    pub fn create(path: impl AsRef<Path>, options: &Options) -> Result<LogFile> {
        let path = path.as_ref();
        options.validate()?;
        let file = open_file(path, OFlags::CREATE | OFlags::EXCL, options.block)?;
        let lock =
            file.try_clone().map_err(|source| Error::Io { doing: "share", path: path.to_owned(), source })?;
        let made = LogFile::over_new(path, file, options);
        // No file is left after an error, so that the next try finds none. It goes while it is locked: no other log can be in it.
        if made.is_err() {
            let _stays_behind = std::fs::remove_file(path);
        }
        drop(lock);
        made
    }

    fn over_new(path: &Path, file: File, options: &Options) -> Result<LogFile> {
        file.sync_all().map_err(|source| Error::Io { doing: "sync", path: path.to_owned(), source })?;
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
        let file = open_again(path, options.block)?;
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
            let read = || rustix::io::pread(&file, &mut tail[..], end - within_block as u64);
            let read = rustix::io::retry_on_intr(read).map_err(|e| io("read the last block of", e.into()))?;
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
        Ok(LogFile { log, file, path: path.to_owned(), real_time, process: std::process::id() })
    }

    /// Appends bytes, which stay together. Returns where they end, for [`sync`](LogFile::sync). Ends in memory; waits while [`Options::buffer`] is full.
    pub fn append(&self, bytes: &[u8]) -> Result<u64> {
        self.check_process()?;
        block_on(&**driver(), self.log.append(bytes))
    }

    /// Makes all bytes below `upto` durable, and waits for that.
    pub fn sync(&self, upto: u64) -> Result<()> {
        self.check_process()?;
        block_on(&**driver(), self.log.sync(upto))
    }

    /// A forked child has the parent's log at the state of the fork, and would write over what the parent writes.
    fn check_process(&self) -> Result<()> {
        if self.process == std::process::id() { Ok(()) } else { Err(Error::Forked) }
    }

    /// Why no room is zeroed ahead of the log any more; `None` while there is room. Without room each write may cost a commit of the file system's journal.
    pub fn room_failure(&self) -> Option<String> {
        self.log.room_failure()
    }

    /// Number of appended bytes.
    pub fn end(&self) -> u64 {
        self.log.end()
    }

    /// Number of bytes, from the log's begin, that are durable.
    pub fn durable(&self) -> u64 {
        self.log.durable()
    }

    /// True if the log's writes were real-time when it was opened; false without `CAP_SYS_NICE`, where they are best effort of the highest level.
    pub fn is_real_time(&self) -> bool {
        self.real_time
    }

    /// Makes everything durable and truncates the file to the appended bytes.
    pub fn close(self) -> Result<()> {
        self.check_process()?;
        let end = block_on(&**driver(), self.log.close())?;
        let io = |doing, source| Error::Io { doing, path: self.path.clone(), source };
        self.file.set_len(end).map_err(|e| io("truncate", e))?;
        self.file.sync_all().map_err(|e| io("sync", e))?;
        // Processes that were forked meanwhile have the descriptor, and with it the lock.
        let _no_lock_is_left = rustix::fs::flock(&*self.file, FlockOperation::Unlock);
        Ok(())
    }
}

/// How long [`LogFile::open`] waits for the lock of a log that is just ending: requests in flight and the writer process of a killed program keep it for a moment.
const LOCK_PATIENCE: Duration = Duration::from_secs(1);
/// Between two tries to get the lock.
const LOCK_PAUSE: Duration = Duration::from_millis(5);

/// Opens the file of a log that exists. Waits for the lock, but not for long.
fn open_again(path: &Path, block: u32) -> Result<File> {
    let driver = &**driver();
    let until = driver.now().after(LOCK_PATIENCE);
    loop {
        match open_file(path, OFlags::empty(), block) {
            Err(Error::Held(_)) if driver.now() < until => {
                block_on(driver, sleep_until(driver, driver.now().after(LOCK_PAUSE)));
            }
            other => return other,
        }
    }
}

/// The clock and executor of all logs of this process.
fn driver() -> &'static Arc<RealDriver> {
    static DRIVER: OnceLock<Arc<RealDriver>> = OnceLock::new();
    DRIVER.get_or_init(RealDriver::new)
}

/// `TMPFS_MAGIC` and `RAMFS_MAGIC` of the kernel's headers.
const TMPFS_MAGIC: FsWord = 0x0102_1994;
const RAMFS_MAGIC: FsWord = 0x8584_58f6;

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
    // A creation that failed may have removed the file between this call's opening and its lock.
    if rustix::fs::fstat(&file).map_err(|e| io("stat", e))?.st_nlink == 0 {
        return Err(Error::Held(path.to_owned()));
    }
    let fits = check_direct_io(path, &file, block);
    if fits.is_err() && flags.contains(OFlags::EXCL) {
        let _stays_behind = std::fs::remove_file(path);
    }
    fits.map(|()| file)
}

/// Refuses a file that direct I/O does not reach, or not by blocks of the log's size.
fn check_direct_io(path: &Path, file: &File, block: u32) -> Result<()> {
    let io = |doing, error: Errno| Error::Io { doing, path: path.to_owned(), source: error.into() };
    // A file system in memory takes the flag, and keeps nothing.
    let kind = rustix::fs::fstatfs(file).map_err(|e| io("stat the file system of", e))?.f_type;
    if [TMPFS_MAGIC, RAMFS_MAGIC].contains(&kind) {
        return Err(Error::NoDirectIo(path.to_owned()));
    }
    // Kernels before 6.1 do not tell the alignment that a file wants; a write that is not aligned then fails, and poisons the log.
    let alignment = rustix::fs::statx(file, "", AtFlags::EMPTY_PATH, StatxFlags::DIOALIGN);
    let known = alignment.ok().filter(|found| found.stx_mask & StatxFlags::DIOALIGN.bits() != 0);
    let wanted = known.map(|found| found.stx_dio_offset_align);
    if wanted == Some(0) {
        return Err(Error::NoDirectIo(path.to_owned()));
    }
    if let Some(wanted) = wanted.filter(|wanted| *wanted > block) {
        return Err(Error::Block { path: path.to_owned(), wanted, block });
    }
    Ok(())
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
            Request::Zeros { at, len, durable, urgent } => {
                let priority = if urgent { self.priority } else { Priority::of_bulk() };
                (at, self.zeros(len), durable, priority)
            }
        };
        let write = Write { file: Arc::clone(&self.file), at, data, durable, priority };
        write_all(Arc::clone(&self.engine), write, finish);
    }
}

/// A write of a file.
struct Write {
    file: Arc<File>,
    /// The first byte.
    at: u64,
    data: Buf,
    durable: bool,
    priority: Priority,
}

/// Writes all of the data. Writes the rest after a short write, whose next call tells why it was short: no space, for example.
fn write_all(engine: Arc<Engine>, write: Write, finish: Finish) {
    let Write { file, at, data, durable, priority } = write;
    let request =
        sys::Request::Write { file: Arc::clone(&file), at, data: vec![data.clone()], durable, priority };
    let next = Arc::clone(&engine);
    let done = move |Finished { result, .. }: Finished| {
        let written = match result {
            Ok(written) => usize::try_from(written).unwrap_or(usize::MAX).min(data.len()),
            Err(error) => return finish(Err(error)),
        };
        if written == data.len() {
            finish(Ok(()));
        } else if written == 0 {
            finish(Err(io::ErrorKind::WriteZero.into()));
        } else {
            let rest = data.slice(written..);
            write_all(next, Write { file, at: at + written as u64, data: rest, durable, priority }, finish);
        }
    };
    engine.submit(request, Box::new(done));
}
