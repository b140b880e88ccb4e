//! A log on a zoned drive: a file of kind `Log` of the file system there.

use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};

use fs::{Bytes, CreateOptions, FileKind, Fs, Reader, Writer};
use mounts::Mount;
use parking_lot::Mutex;
use units::block_on;

use crate::error::{Error, Result};

/// Suffix of the name of a copy: a log that is opened before its end is copied up to there, and the copy replaces the log. No log's name ends with this suffix.
const COPY_SUFFIX: &str = ".furrow-cut";

/// Bytes that are copied at a time.
const COPY_BYTES: usize = 1 << 20;

/// One thread at a time looks whether a path is taken, and creates the log.
static CREATING: Mutex<()> = Mutex::new(());

/// A path in the file system of a zoned drive.
#[derive(Debug)]
pub(crate) struct DrivePath {
    drive: String,
    path: String,
}

impl DrivePath {
    /// The path `path` on the drive of URL `drive`. Paths begin at the root of the file system there, with or without a slash.
    pub fn new(drive: &str, path: &Path) -> Result<DrivePath> {
        let text = path.to_str().filter(|text| !text.ends_with(COPY_SUFFIX));
        let text = text.ok_or_else(|| Error::Path(path.to_owned()))?;
        let path = format!("/{}", text.trim_start_matches('/'));
        Ok(DrivePath { drive: drive.to_owned(), path })
    }

    /// The copy that replaces the log with one that is shorter.
    fn copy(&self) -> String {
        format!("{}{COPY_SUFFIX}", self.path)
    }

    fn mount(&self) -> Result<Mount> {
        // The mounts and their threads are the parent's.
        if mounts::is_forked() {
            return Err(prio::Error::Forked.into());
        }
        Ok(mounts::mount(&self.drive, false)?)
    }

    /// Waits for a call of the file system, and names the log in its error.
    fn wait<T>(&self, fs: &Fs, doing: &'static str, call: impl Future<Output = fs::Result<T>>) -> Result<T> {
        block_on(&**fs.driver(), call).map_err(|source| self.error(doing, source))
    }

    fn error(&self, doing: &'static str, source: fs::Error) -> Error {
        Error::Drive { doing, path: self.path.clone(), drive: self.drive.clone(), source }
    }

    /// Makes the folders of the path.
    fn make_folders(&self, fs: &Fs) -> Result<()> {
        let ends = self.path.match_indices('/').map(|(at, _)| at).filter(|at| *at > 0);
        for folder in ends.filter_map(|end| self.path.get(..end)) {
            match block_on(&**fs.driver(), fs.mkdir(folder)) {
                Err(error) if error.kind() != fs::ErrorKind::Exists => {
                    return Err(self.error("make the folders of", error));
                }
                _ => {}
            }
        }
        Ok(())
    }

    /// Removes the log, durably.
    pub fn remove(&self) -> Result<()> {
        let mount = self.mount()?;
        let fs = mount.fs();
        self.wait(fs, "remove", async {
            fs.unlink(&self.path).await?;
            drop_copy(fs, &self.copy()).await?;
            fs.sync_names().await
        })
    }
}

fn log() -> CreateOptions {
    CreateOptions { kind: FileKind::Log, ..CreateOptions::default() }
}

/// A value of the process that mounted the drive. A forked child forgets it: the mount's threads are its parent's.
#[derive(Debug)]
struct OfParent<T>(Option<T>);

impl<T> OfParent<T> {
    fn get(&self) -> Result<&T> {
        if mounts::is_forked() {
            return Err(prio::Error::Forked.into());
        }
        Ok(self.0.as_ref().expect("the value is there until it is dropped"))
    }
}

impl<T> Drop for OfParent<T> {
    fn drop(&mut self) {
        if mounts::is_forked() {
            std::mem::forget(self.0.take());
        }
    }
}

/// A log that is open for appending. Dropping it closes the writer before its share of the mount is given up, so that the next opening finds the log free.
#[derive(Debug)]
struct OpenLog {
    writer: Writer,
    mount: Mount,
}

impl OpenLog {
    fn wait<T>(&self, call: impl Future<Output = fs::Result<T>>) -> fs::Result<T> {
        block_on(&**self.mount.fs().driver(), call)
    }
}

impl Drop for OpenLog {
    fn drop(&mut self) {
        // Bytes that were not synced may reach the drive, and nobody waits for them.
        let _closed_or_failed = self.wait(self.writer.close());
    }
}

/// A log on a zoned drive that is being written.
#[derive(Debug)]
pub(crate) struct ZoneLog {
    open: OfParent<OpenLog>,
    /// Held during an append, so that its bytes end where it says.
    turn: Mutex<()>,
    /// Number of appended bytes. Changes under `turn`.
    end: AtomicU64,
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    /// Number of bytes, from the log's begin, that are durable. Does not change after a failure, whose error names it.
    durable: u64,
    /// The first failed write's error.
    failure: Option<String>,
}

impl ZoneLog {
    /// Creates the log, and makes its name durable.
    pub fn create(at: &DrivePath) -> Result<ZoneLog> {
        let mount = at.mount()?;
        let fs = mount.fs();
        let creating = CREATING.lock();
        at.make_folders(fs)?;
        if fs.stat(&at.path).is_ok() {
            return Err(at.error("create", fs::Error::new(fs::ErrorKind::Exists, "creating a log")));
        }
        let writer = at.wait(fs, "create", fs.create(&at.path, &log()))?;
        drop(creating);
        at.wait(fs, "create", fs.sync_names())?;
        Ok(ZoneLog::over(OpenLog { writer, mount }, 0))
    }

    /// Opens the log to go on at byte `end`.
    pub fn open(at: &DrivePath, end: u64) -> Result<ZoneLog> {
        let mount = at.mount()?;
        let fs = mount.fs();
        // The writer keeps others out, also while the log is copied.
        let writer = at.wait(fs, "open", fs.open_append(&at.path))?;
        let size = writer.size().0;
        let mut open = OpenLog { writer, mount: at.mount()? };
        if end > size {
            return Err(prio::Error::BehindFile { path: at.path.clone().into(), len: size, end }.into());
        }
        at.wait(fs, "remove a copy of", drop_copy(fs, &at.copy()))?;
        if end < size {
            let done = at.wait(fs, "cut", cut(fs, &at.path, &at.copy(), end));
            if done.is_err() {
                // The beginning of the copy takes room. The next opening removes one that stays here.
                let _removed_or_not = block_on(&**fs.driver(), drop_copy(fs, &at.copy()));
            }
            done?;
            drop(open);
            open = OpenLog { writer: at.wait(fs, "open", fs.open_append(&at.path))?, mount };
        }
        // Bytes that were in flight when the program died count as durable from here on.
        open.wait(open.writer.sync()).map_err(|error| at.error("sync", error))?;
        Ok(ZoneLog::over(open, end))
    }

    fn over(open: OpenLog, end: u64) -> ZoneLog {
        let state = Mutex::new(State { durable: end, failure: None });
        ZoneLog { open: OfParent(Some(open)), turn: Mutex::new(()), end: AtomicU64::new(end), state }
    }

    pub fn append(&self, bytes: &[u8]) -> Result<u64> {
        let open = self.open.get()?;
        let _turn = self.turn.lock();
        self.state.lock().check()?;
        match open.wait(open.writer.append(bytes)) {
            Ok(()) => {
                let end = self.end.load(Ordering::Relaxed) + bytes.len() as u64;
                self.end.store(end, Ordering::Release);
                Ok(end)
            }
            // A part of the bytes may be in the log.
            Err(error) => Err(self.state.lock().fail(&error)),
        }
    }

    pub fn sync(&self, upto: u64) -> Result<()> {
        let open = self.open.get()?;
        let end = self.end();
        if upto > end {
            return Err(prio::Error::BehindEnd { upto, end }.into());
        }
        {
            let state = self.state.lock();
            if state.durable >= upto {
                return Ok(());
            }
            state.check()?;
        }
        let synced = open.wait(open.writer.sync());
        let mut state = self.state.lock();
        match synced {
            Ok(()) if state.failure.is_none() => {
                state.durable = state.durable.max(end);
                Ok(())
            }
            // A sync that ends after another call's write failed makes nothing durable for sure.
            Ok(()) => state.check(),
            Err(error) => Err(state.fail(&error)),
        }
    }

    pub fn end(&self) -> u64 {
        self.end.load(Ordering::Acquire)
    }

    pub fn durable(&self) -> u64 {
        self.state.lock().durable
    }

    pub fn close(self) -> Result<()> {
        let open = self.open.get()?;
        self.state.lock().check()?;
        self.sync(self.end())?;
        open.wait(open.writer.close()).map_err(|error| self.state.lock().fail(&error))
    }
}

impl State {
    fn check(&self) -> Result<()> {
        self.failure.as_ref().map_or(Ok(()), |reason| Err(self.poisoned(reason)))
    }

    /// Keeps the first error. Returns that of every call from now on.
    fn fail(&mut self, error: &fs::Error) -> Error {
        let reason = self.failure.get_or_insert_with(|| error.to_string()).clone();
        self.poisoned(&reason)
    }

    fn poisoned(&self, reason: &str) -> Error {
        prio::Error::Poisoned { reason: reason.to_owned(), errno: None, durable: self.durable }.into()
    }
}

/// Removes the beginning of a copy that a crash left.
async fn drop_copy(fs: &Fs, copy: &str) -> fs::Result<()> {
    match fs.unlink(copy).await {
        Err(error) if error.kind() == fs::ErrorKind::NotFound => Ok(()),
        done => done,
    }
}

/// Replaces a log by one with its first `end` bytes, durably; `copy` takes these bytes, and then the log's name. A crash leaves the one or the other, and maybe the beginning of the copy.
async fn cut(fs: &Fs, path: &str, copy: &str, end: u64) -> fs::Result<()> {
    let reader = fs.open(path)?;
    let writer = fs.create(copy, &log()).await?;
    let mut buffer = vec![0; COPY_BYTES];
    let mut at = 0;
    while at < end {
        let len = usize::try_from(end - at).unwrap_or(COPY_BYTES).min(COPY_BYTES);
        let Some(into) = buffer.get_mut(..len) else { break };
        let read = reader.read_at(Bytes(at), into).await?;
        if read == 0 {
            return Err(fs::Error::new(fs::ErrorKind::Corrupt, "copying a log")
                .because("it has fewer bytes than its length says"));
        }
        writer.append(into.get(..read).unwrap_or_default()).await?;
        at += read as u64;
    }
    writer.sync().await?;
    writer.close().await?;
    fs.rename(copy, path).await?;
    fs.sync_names().await
}

/// A log on a zoned drive that is being read.
#[derive(Debug)]
pub(crate) struct ZoneLogReader {
    open: OfParent<(Reader, Mount)>,
    at: DrivePath,
}

impl ZoneLogReader {
    pub fn open(at: DrivePath) -> Result<ZoneLogReader> {
        let mount = at.mount()?;
        let reader = mount.fs().open(&at.path).map_err(|e| at.error("open", e))?;
        // The first read recovers a log that a crash left open: only then its length is known.
        at.wait(mount.fs(), "read", reader.read_at(Bytes::ZERO, &mut [0]))?;
        Ok(ZoneLogReader { open: OfParent(Some((reader, mount))), at })
    }

    pub fn len(&self) -> Result<u64> {
        Ok(self.open.get()?.0.size().0)
    }

    pub fn read_at(&self, offset: u64, into: &mut [u8]) -> Result<usize> {
        let (reader, mount) = self.open.get()?;
        self.at.wait(mount.fs(), "read", reader.read_at(Bytes(offset), into))
    }
}
