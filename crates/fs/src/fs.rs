//! The handle of a mounted file system.

use std::collections::BTreeSet;
use std::sync::{Arc, Weak};

use parking_lot::Mutex;
use units::{Bytes, Driver};
use zoned::{Geometry, ZonedDevice};

use crate::cache::{CacheStats, PageCache};
use crate::check;
use crate::device::Purpose;
use crate::error::{Error, ErrorKind, Result};
use crate::files::file::File;
use crate::files::path;
use crate::files::reader::Reader;
use crate::files::stat::{CheckReport, DirEntry, Stat, StatFs, Superblock, ZoneUse};
use crate::files::writer::Writer;
use crate::files::writes::WriteOut;
use crate::metadata::format::record::Record;
use crate::metadata::state::{Node, State};
use crate::metadata::{mkfs, mount};
use crate::options::{CreateOptions, FileKind, FormatOptions, Lifetime, MountOptions};
use crate::shared::{Handle, Shared};
use crate::wal::ordered::file::LogFile;
use crate::wal::ordered::writer::LogWriter;
use crate::wal::parallel::log::ParallelLog;
use crate::wal::parallel::open;
use crate::wal::parallel::options::ParallelOptions;
use crate::wal::parallel::replay::Replay;
use crate::writeback::dirty::DirtyBytes;
use crate::zones::usage;

/// A mounted file system. Cloning gives another handle of the same mount.
///
/// Paths are absolute and UTF-8. Changes of names are atomic, and become durable in the order of the calls: [`Fs::sync`], and the
/// `sync` of any file, makes all earlier changes durable. Any number of threads may call at once.
#[derive(Clone, Debug)]
pub struct Fs {
    shared: Arc<Shared>,
}

/// A lock on a path, taken by [`Fs::lock`]. Dropping the guard releases the lock.
#[derive(Debug)]
pub struct FileLock {
    locks: Arc<Mutex<BTreeSet<String>>>,
    path: String,
}

/// The recovery of a database, begun by [`Fs::begin_recovery`]. Dropping the guard ends the recovery.
#[derive(Debug)]
pub struct Recovery(Weak<Shared>);

impl Drop for Recovery {
    fn drop(&mut self) {
        let Some(shared) = self.0.upgrade() else { return };
        shared.state.lock().allocator.reserve.recoveries -= 1;
        shared.kick_cleaner();
    }
}

impl Drop for FileLock {
    fn drop(&mut self) {
        self.locks.lock().remove(&self.path);
    }
}

fn path_error(kind: ErrorKind, doing: &'static str, path: &str) -> Error {
    Error::new(kind, doing).at_path(path)
}

impl Fs {
    /// Checks whether a device of this geometry can be formatted with `options`; the device need not exist
    /// yet.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Invalid`]: too few zones or open zones, or a label that is too long.
    pub fn check_format(geometry: &Geometry, options: &FormatOptions) -> Result<()> {
        mkfs::check_format(geometry, options).map(drop)
    }

    /// Makes a file system on `dev`.
    ///
    /// # Errors
    ///
    /// `Exists` where the device holds data, unless `options.force`; `Invalid` where the geometry does not
    /// fit; the device's errors.
    pub async fn format(dev: &Arc<dyn ZonedDevice>, options: &FormatOptions) -> Result<Superblock> {
        mkfs::format(dev, options).await
    }

    /// Mounts a file system: reads the superblock and the metadata log, and recovers logs that were open. A
    /// read-only mount writes nothing.
    ///
    /// # Errors
    ///
    /// `NotFound` on a blank device, `Version`, `Corrupt` where the medium lost durable metadata, and the
    /// device's errors.
    pub async fn mount(dev: Arc<dyn ZonedDevice>, options: &MountOptions) -> Result<Fs> {
        Ok(Fs { shared: mount::mount(dev, options).await? })
    }

    /// Unmounts: makes all data and all names durable, and stops the background tasks. Later calls fail
    /// with `Closed`. No background task references the device when this returns: once the caller has dropped the mount
    /// and its files, the device can be opened again. Files and logs that were dropped without being closed reference it until
    /// their last operations have ended; so do readers of logs that are dropped before their end and after this call.
    pub async fn unmount(&self) -> Result<()> {
        let shared = &self.shared;
        if shared.metadata.is_closed() {
            shared.background.all_ended(&shared.space).await;
            return Ok(());
        }
        let committed = if shared.options.read_only { Ok(()) } else { self.sync().await };
        shared.metadata.close();
        shared.end_log_writers().await;
        shared.metadata.wait_for_roll().await;
        shared.kick_cleaner();
        if let Some(dirty) = &shared.dirty {
            dirty.wake_task();
        }
        shared.background.all_ended(&shared.space).await;
        committed
    }

    /// The driver of the device: the clock and the executor of the mount.
    pub fn driver(&self) -> &Arc<dyn Driver> {
        &self.shared.driver
    }

    /// The mount's device. Operations submitted to it directly are counted under no purpose.
    pub fn device(&self) -> &Arc<dyn ZonedDevice> {
        self.shared.device.raw()
    }

    /// Number of device operations of `purpose` submitted since the mount.
    pub fn operations(&self, purpose: Purpose) -> u64 {
        self.shared.device.submitted(purpose)
    }

    /// Bytes that device operations of `purpose` wrote since the mount: of [`Purpose::Reclaim`], the bytes that reclaim moved.
    pub fn written_bytes(&self, purpose: Purpose) -> Bytes {
        Bytes(self.shared.device.written_bytes(purpose))
    }

    /// What the page cache holds, and what it did since the mount.
    pub fn cache_stats(&self) -> CacheStats {
        let cache = self.shared.cache.as_ref().map(PageCache::stats).unwrap_or_default();
        CacheStats { dirty: Bytes(self.shared.dirty.as_ref().map_or(0, DirtyBytes::total)), ..cache }
    }

    /// Whether new logs go to conventional zones first: the drive has some for logs, and [`LogOptions`](crate::wal::LogOptions) allow it.
    pub fn logs_go_to_conventional_zones(&self) -> bool {
        self.shared.state.lock().allocator.prefers_conventional
    }

    /// The superblock.
    pub fn superblock(&self) -> &Superblock {
        &self.shared.superblock
    }

    /// Space and counts.
    pub fn statfs(&self) -> StatFs {
        usage::statfs(&self.shared)
    }

    /// Every zone of the device and its use.
    pub fn zone_map(&self) -> Vec<ZoneUse> {
        usage::zone_map(&self.shared)
    }

    /// Creates a file, or replaces an existing one by an empty file: open handles still read the old content.
    pub async fn create(&self, path: &str, options: &CreateOptions) -> Result<Writer> {
        const DOING: &str = "creating";
        let shared = &self.shared;
        shared.check_writable()?;
        let (handle, older, released) = {
            let mut state = shared.state.lock();
            let (parent, name) = state.parent(DOING, path)?;
            if let Some(ino) = state.lookup(parent, name)
                && matches!(state.nodes.get(&ino), Some(Node::Directory { .. }))
            {
                return Err(path_error(ErrorKind::IsADirectory, DOING, path));
            }
            if let Some(other) = function_that_creates(options.kind) {
                let why = format!("`{other}` creates a file of this kind");
                return Err(path_error(ErrorKind::Invalid, DOING, path).because(why));
            }
            let ino = self.create_file(&mut state, parent, name, options.kind, options.lifetime)?;
            let older =
                if options.kind == FileKind::Log { open_logs(&state, parent, ino) } else { Vec::new() };
            let handle = self.handle_for_writing(&mut state, ino, DOING, path)?;
            handle.file.writes.status.lock().expected = options.preallocate.0;
            (handle, older, std::mem::take(&mut state.released))
        };
        shared.free_pages(released);
        shared.metadata.bound_pending().await?;
        self.writer(handle, older).await
    }

    /// Opens a file for appending. Fails with `Busy` while the file has a writer.
    pub async fn open_append(&self, path: &str) -> Result<Writer> {
        const DOING: &str = "opening for append";
        self.shared.check_writable()?;
        let (handle, older) = {
            let mut state = self.shared.state.lock();
            let (parent, name) = state.parent(DOING, path)?;
            let ino =
                state.lookup(parent, name).ok_or_else(|| path_error(ErrorKind::NotFound, DOING, path))?;
            let older = open_logs(&state, parent, ino);
            (self.handle_for_writing(&mut state, ino, DOING, path)?, older)
        };
        self.writer(handle, older).await
    }

    async fn writer(&self, handle: Arc<Handle>, older: Vec<Arc<LogWriter>>) -> Result<Writer> {
        let ino = handle.file.ino;
        let opened = match handle.file.kind {
            FileKind::Data => {
                let writer = Writer::data(handle);
                writer.resume().await.map(|()| writer)
            }
            FileKind::Log => LogFile::open(handle, older).await.map(Writer::log),
            FileKind::ParallelLog | FileKind::Directory => {
                Err(Error::new(ErrorKind::Invalid, "opening for append")
                    .because("it is a parallel log: `parallel_log` opens it"))
            }
        };
        if opened.is_err()
            && let Some(node) = self.shared.state.lock().file_node(ino)
        {
            node.writing = false;
        }
        opened
    }

    fn handle_for_writing(
        &self,
        state: &mut State,
        ino: u64,
        doing: &'static str,
        path: &str,
    ) -> Result<Arc<Handle>> {
        let node = state.file_node(ino).ok_or_else(|| path_error(ErrorKind::IsADirectory, doing, path))?;
        if std::mem::replace(&mut node.writing, true) {
            return Err(path_error(ErrorKind::Busy, doing, path)
                .because("it has a writer already; close that one first"));
        }
        let file = Arc::clone(&node.file);
        Ok(Handle::new_counted(&self.shared, state, &file))
    }

    fn create_file(
        &self,
        state: &mut State,
        parent: u64,
        name: &str,
        kind: FileKind,
        lifetime: Lifetime,
    ) -> Result<u64> {
        self.shared.metadata.check_room(state, 256 + name.len() as u64)?;
        let (ino, modified_ms) = (state.next_ino, self.shared.driver.unix_millis());
        state.commit(Record::Create { ino, parent, modified_ms, kind, lifetime, name: name.to_owned() })?;
        Ok(ino)
    }

    /// Opens the parallel log at `path`, or creates it. Returns the log's writer, and the records that the log holds: from before
    /// a crash, or from before a close. The caller applies the records before it appends.
    ///
    /// # Errors
    /// `Invalid` where the path names another kind of file; `Busy` while the log has a writer; `Corrupt` where the medium lost
    /// durable records.
    pub async fn parallel_log(&self, path: &str, options: &ParallelOptions) -> Result<(ParallelLog, Replay)> {
        const DOING: &str = "opening a parallel log";
        let shared = &self.shared;
        shared.check_writable()?;
        let handle = {
            let mut state = shared.state.lock();
            let (parent, name) = state.parent(DOING, path)?;
            let ino = match state.lookup(parent, name) {
                Some(ino) => ino,
                None => self.create_file(&mut state, parent, name, FileKind::ParallelLog, Lifetime::Short)?,
            };
            check_is_parallel_log(&state, ino, DOING, path)?;
            self.handle_for_writing(&mut state, ino, DOING, path)?
        };
        let ino = handle.file.ino;
        let opened = open::open(handle, options).await;
        if opened.is_err()
            && let Some(node) = shared.state.lock().file_node(ino)
        {
            node.writing = false;
        }
        opened
    }

    /// The records of the parallel log at `path`, as the next opening would return them. Changes nothing.
    ///
    /// # Errors
    ///
    /// As [`parallel_log`](Fs::parallel_log).
    pub async fn read_parallel_log(&self, path: &str) -> Result<Replay> {
        const DOING: &str = "reading a parallel log";
        self.shared.check_open()?;
        let handle = {
            let mut state = self.shared.state.lock();
            let ino = state.resolve(DOING, path, &path::parts(DOING, path)?)?;
            let file = check_is_parallel_log(&state, ino, DOING, path)?;
            if state.file_node(ino).is_some_and(|node| node.writing) {
                return Err(
                    path_error(ErrorKind::Busy, DOING, path).because("it has a writer; close that one first")
                );
            }
            Handle::new_counted(&self.shared, &mut state, &file)
        };
        open::read(handle).await
    }

    /// Opens a file for reading.
    ///
    /// # Errors
    /// Once, that the file lost bytes that were not synced, if nobody has been told: its writer has closed it before. The next call opens what is left.
    pub fn open(&self, path: &str) -> Result<Reader> {
        const DOING: &str = "opening";
        self.shared.check_open()?;
        let mut state = self.shared.state.lock();
        let ino = state.resolve(DOING, path, &path::parts(DOING, path)?)?;
        let file = state.file(ino).ok_or_else(|| path_error(ErrorKind::IsADirectory, DOING, path))?;
        let has_writer = state.file_node(ino).is_some_and(|node| node.writing);
        if let Some(error) = (!has_writer).then(|| file.writes.take_untold()).flatten() {
            return Err(error);
        }
        Ok(Reader::new(Handle::new_counted(&self.shared, &mut state, &file)))
    }

    /// Makes a directory.
    pub async fn mkdir(&self, path: &str) -> Result<()> {
        const DOING: &str = "making a directory";
        self.shared.check_writable()?;
        {
            let mut state = self.shared.state.lock();
            if path::parts(DOING, path)?.is_empty() {
                return Err(path_error(ErrorKind::Exists, DOING, path));
            }
            let (parent, name) = state.parent(DOING, path)?;
            if state.lookup(parent, name).is_some() {
                return Err(path_error(ErrorKind::Exists, DOING, path));
            }
            self.create_file(&mut state, parent, name, FileKind::Directory, Lifetime::NotSet)?;
        }
        self.shared.metadata.bound_pending().await
    }

    /// Removes an empty directory.
    pub async fn rmdir(&self, path: &str) -> Result<()> {
        self.remove("removing a directory", path, true).await
    }

    /// Removes a name of a file. The content is freed with the last name and the last handle.
    pub async fn unlink(&self, path: &str) -> Result<()> {
        self.remove("removing", path, false).await
    }

    async fn remove(&self, doing: &'static str, path: &str, directory: bool) -> Result<()> {
        self.shared.check_writable()?;
        let released = {
            let mut state = self.shared.state.lock();
            let (parent, name) = state.parent(doing, path)?;
            let ino =
                state.lookup(parent, name).ok_or_else(|| path_error(ErrorKind::NotFound, doing, path))?;
            match state.nodes.get(&ino) {
                Some(Node::Directory { entries, .. }) if directory && !entries.is_empty() => {
                    return Err(path_error(ErrorKind::NotEmpty, doing, path));
                }
                Some(Node::Directory { .. }) if !directory => {
                    return Err(path_error(ErrorKind::IsADirectory, doing, path));
                }
                Some(Node::File(_)) if directory => {
                    return Err(path_error(ErrorKind::NotADirectory, doing, path));
                }
                _ => {}
            }
            state.commit(Record::Unlink { parent, name: name.to_owned() })?;
            std::mem::take(&mut state.released)
        };
        self.shared.free_pages(released);
        self.shared.kick_cleaner();
        self.shared.metadata.bound_pending().await
    }

    /// Renames a file or directory; an existing file, or empty directory, is replaced atomically.
    pub async fn rename(&self, from: &str, to: &str) -> Result<()> {
        self.shared.check_writable()?;
        if self.shared.options.rules().splits_renames() {
            return self.rename_in_two_steps(from, to).await;
        }
        let released = loop {
            let written = self.write_out_before_naming(from).await?;
            let mut state = self.shared.state.lock();
            let ((from_parent, from), (to_parent, to)) = check_rename(&state, from, to)?;
            if self.shared.dirty.is_some() && state.lookup(from_parent, from) != written {
                continue;
            }
            let (from, to) = (from.to_owned(), to.to_owned());
            state.commit(Record::Rename { from_parent, to_parent, from, to })?;
            break std::mem::take(&mut state.released);
        };
        self.shared.free_pages(released);
        self.shared.kick_cleaner();
        self.shared.metadata.bound_pending().await
    }

    /// A rename in two steps, which a power cut can tear: see `BrokenRule::Rename`.
    async fn rename_in_two_steps(&self, from: &str, to: &str) -> Result<()> {
        let ((from_parent, from), (to_parent, to)) = check_rename(&self.shared.state.lock(), from, to)?;
        let replaced = self.shared.state.lock().lookup(to_parent, to);
        if replaced.is_some() {
            self.shared.state.lock().commit(Record::Unlink { parent: to_parent, name: to.to_owned() })?;
            self.shared.metadata.commit_all().await?;
        }
        let (from, to) = (from.to_owned(), to.to_owned());
        self.shared.state.lock().commit(Record::Rename { from_parent, to_parent, from, to })
    }

    /// Gives a file a second name (a hard link).
    pub async fn link(&self, from: &str, to: &str) -> Result<()> {
        const DOING: &str = "linking";
        self.shared.check_writable()?;
        loop {
            let written = self.write_out_before_naming(from).await?;
            let mut state = self.shared.state.lock();
            let ino = state.resolve(DOING, from, &path::parts(DOING, from)?)?;
            if state.file(ino).is_none() {
                return Err(path_error(ErrorKind::IsADirectory, DOING, from));
            }
            if self.shared.dirty.is_some() && written != Some(ino) {
                continue;
            }
            let (parent, name) = state.parent(DOING, to)?;
            if state.lookup(parent, name).is_some() {
                return Err(path_error(ErrorKind::Exists, DOING, to));
            }
            self.shared.metadata.check_room(&state, 64 + name.len() as u64)?;
            state.commit(Record::Link { ino, parent, name: name.to_owned() })?;
            break;
        }
        self.shared.metadata.bound_pending().await
    }

    /// Cuts a file to `size` bytes, or extends it with zeros. Fails with `Busy` while the file has a writer.
    /// Fails with `Invalid` for a log, unless `size` is the log's length.
    pub async fn truncate(&self, path: &str, size: Bytes) -> Result<()> {
        let writer = self.open_append(path).await?;
        let truncated = writer.truncate(size).await;
        writer.close().await?;
        truncated
    }

    /// The kind, size and other attributes of the file or directory at `path`.
    pub fn stat(&self, path: &str) -> Result<Stat> {
        const DOING: &str = "looking up";
        self.shared.check_open()?;
        let state = self.shared.state.lock();
        let ino = state.resolve(DOING, path, &path::parts(DOING, path)?)?;
        match state.nodes.get(&ino) {
            Some(Node::Directory { entries, modified_ms, .. }) => {
                let (kind, size, modified_ms) =
                    (FileKind::Directory, Bytes(entries.len() as u64), *modified_ms);
                Ok(Stat { ino, kind, size, modified_ms, links: 1 })
            }
            Some(Node::File(node)) => {
                let (size, modified_ms) = (Bytes(node.file.size()), node.file.content.read().modified_ms);
                Ok(Stat { ino, kind: node.file.kind, size, modified_ms, links: node.links })
            }
            None => Err(path_error(ErrorKind::NotFound, DOING, path)),
        }
    }

    /// The entries of a directory, in name order.
    pub fn read_dir(&self, path: &str) -> Result<Vec<DirEntry>> {
        const DOING: &str = "listing";
        self.shared.check_open()?;
        let state = self.shared.state.lock();
        let ino = state.resolve(DOING, path, &path::parts(DOING, path)?)?;
        let entry = |(name, &ino): (&String, &u64)| {
            let kind = state.file(ino).map_or(FileKind::Directory, |file| file.kind);
            DirEntry { name: name.clone(), kind, ino }
        };
        Ok(state.directory(DOING, path, ino)?.iter().map(entry).collect())
    }

    /// Makes all earlier metadata changes durable, and the data of files closed or synced before; with a page cache all bytes appended to data files before.
    ///
    /// # Errors
    /// The device's errors; the write failure of one of the files that lost bytes since the last call.
    pub async fn sync(&self) -> Result<()> {
        self.shared.check_open()?;
        if self.shared.options.read_only {
            return Ok(());
        }
        let written = self.shared.write_out_all().await;
        self.shared.metadata.commit_all().await?;
        written
    }

    /// Makes all earlier metadata changes durable: names, and the data of files that was synced or written by now. What the sync of a directory does.
    pub async fn sync_names(&self) -> Result<()> {
        self.shared.check_open()?;
        if self.shared.options.read_only {
            return Ok(());
        }
        self.shared.metadata.commit_all().await
    }

    /// Writes the bytes of the file at `path`, or of all files if it names a directory: after a power cut a file that is seen under a new name has
    /// the bytes appended before. Returns the inode.
    async fn write_out_before_naming(&self, path: &str) -> Result<Option<u64>> {
        let Some(dirty) = &self.shared.dirty else { return Ok(None) };
        const DOING: &str = "naming";
        let (ino, file) = {
            let state = self.shared.state.lock();
            let Ok(ino) = state.resolve(DOING, path, &path::parts(DOING, path)?) else { return Ok(None) };
            (ino, state.file(ino))
        };
        if self.shared.options.rules().names_before_data() {
            return Ok(Some(ino));
        }
        match file {
            Some(file) if file.kind == FileKind::Data => {
                let written = self.shared.write_out(&file, WriteOut::Everything).await;
                written.inspect_err(|_| file.writes.note_told())?;
            }
            Some(_) => {}
            None => {
                for file in dirty.files() {
                    // A file that lost bytes has its failure. The directory is renamed all the same.
                    let _lost = self.shared.write_out(&file, WriteOut::Everything).await;
                }
            }
        }
        Ok(Some(ino))
    }

    /// Checks an unmounted file system without writing.
    pub async fn check(dev: &Arc<dyn ZonedDevice>) -> Result<CheckReport> {
        check::check(dev).await
    }

    /// The superblock and every metadata record that a mount would replay, one per line, in no stable format.
    pub async fn dump(dev: &Arc<dyn ZonedDevice>) -> Result<Vec<String>> {
        check::dump(dev).await
    }

    /// Begins the recovery of a database: until the guard is dropped, every write may use the empty zones kept by
    /// [`MountOptions::recovery_reserve`].
    pub fn begin_recovery(&self) -> Recovery {
        self.shared.state.lock().allocator.reserve.recoveries += 1;
        self.shared.space.notify();
        Recovery(Arc::downgrade(&self.shared))
    }

    /// Locks a path within this process. A second lock of the same path fails with `Busy`. No file needs to exist at the path.
    pub fn lock(&self, path: &str) -> Result<FileLock> {
        const DOING: &str = "taking a lock";
        let parts = path::parts(DOING, path)?.join("/");
        if !self.shared.locks.lock().insert(parts.clone()) {
            return Err(path_error(ErrorKind::Busy, DOING, path).because("the lock is held by this process"));
        }
        Ok(FileLock { locks: Arc::clone(&self.shared.locks), path: parts })
    }
}

/// The file of inode `ino`, which must be a parallel log: otherwise fails with `Invalid`.
fn check_is_parallel_log(state: &State, ino: u64, doing: &'static str, path: &str) -> Result<Arc<File>> {
    let file = state.file(ino).ok_or_else(|| path_error(ErrorKind::IsADirectory, doing, path))?;
    if file.kind == FileKind::ParallelLog {
        return Ok(file);
    }
    Err(path_error(ErrorKind::Invalid, doing, path).because("it is not a parallel log; choose another path"))
}

/// The name of the function that creates files of `kind`, for kinds that [`Fs::create`] refuses.
fn function_that_creates(kind: FileKind) -> Option<&'static str> {
    match kind {
        FileKind::Data | FileKind::Log => None,
        FileKind::ParallelLog => Some("parallel_log"),
        FileKind::Directory => Some("mkdir"),
    }
}

/// The open ordered logs of a directory, without the log `ino`.
fn open_logs(state: &State, parent: u64, ino: u64) -> Vec<Arc<LogWriter>> {
    let Ok(entries) = state.directory("", "", parent) else { return Vec::new() };
    let others = entries.values().filter(|other| **other != ino).filter_map(|other| state.file(*other));
    others.filter_map(|file| file.content.read().log.writer.clone()).collect()
}

type DirectoryAndName<'a> = (u64, &'a str);

/// The directories and names that a rename moves from and to. Fails where the rename is not allowed.
fn check_rename<'a>(
    state: &State,
    from: &'a str,
    to: &'a str,
) -> Result<(DirectoryAndName<'a>, DirectoryAndName<'a>)> {
    const DOING: &str = "renaming";
    let (from_parent, from_name) = state.parent(DOING, from)?;
    let (to_parent, to_name) = state.parent(DOING, to)?;
    let ino =
        state.lookup(from_parent, from_name).ok_or_else(|| path_error(ErrorKind::NotFound, DOING, from))?;
    let moves_directory = matches!(state.nodes.get(&ino), Some(Node::Directory { .. }));
    if moves_directory {
        let mut up = to_parent;
        loop {
            if up == ino {
                return Err(
                    path_error(ErrorKind::Invalid, DOING, to).because("a directory cannot move into itself")
                );
            }
            match state.nodes.get(&up) {
                Some(Node::Directory { parent, .. }) if *parent != up => up = *parent,
                _ => break,
            }
        }
    }
    if let Some(replaced) = state.lookup(to_parent, to_name).filter(|replaced| *replaced != ino) {
        match state.nodes.get(&replaced) {
            Some(Node::Directory { .. }) if !moves_directory => {
                return Err(path_error(ErrorKind::IsADirectory, DOING, to));
            }
            Some(Node::Directory { entries, .. }) if !entries.is_empty() => {
                return Err(path_error(ErrorKind::NotEmpty, DOING, to));
            }
            Some(Node::File(_)) if moves_directory => {
                return Err(path_error(ErrorKind::NotADirectory, DOING, to));
            }
            _ => {}
        }
    }
    Ok(((from_parent, from_name), (to_parent, to_name)))
}
