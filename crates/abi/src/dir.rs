//! The C functions of a mounted file system: names, directories, locks.

use std::ffi::{c_char, c_void};
use std::sync::Arc;

use fs::{Bytes, FileKind, FileLock, Fs};
use mounts::{Mount, OpenLogs};
use units::{Driver, block_on};

use crate::recovery::Recoveries;
use crate::replay::Replays;
use crate::status::{Failure, FurrowStatus, StatusCode, run_entry, run_infallible_entry};
use crate::strings::{bytes, path};

/// A mounted file system, owned by C++.
#[derive(Debug)]
pub struct FurrowFs {
    fs: Fs,
    replays: Replays,
    recoveries: Recoveries,
    /// The share in a mount by URL: dropping the last share unmounts. `None` for a file system that Rust code mounted.
    mount: Option<Mount>,
}

impl FurrowFs {
    /// A handle of `fs` for C++, which counts the logs that are read by it in `replays`. Freeing the handle does not unmount.
    pub fn borrowed(fs: Fs, replays: Replays) -> *mut FurrowFs {
        Box::into_raw(Box::new(FurrowFs { fs, replays, recoveries: Recoveries::default(), mount: None }))
    }

    /// The mounted file system.
    pub fn fs(&self) -> &Fs {
        &self.fs
    }

    /// The logs that the unmount makes durable; `None` for a file system that Rust code mounted.
    pub(crate) fn logs(&self) -> Option<&OpenLogs> {
        self.mount.as_ref().map(Mount::logs)
    }

    pub(crate) fn recoveries(&self) -> &Recoveries {
        &self.recoveries
    }

    pub(crate) fn replays(&self) -> &Replays {
        &self.replays
    }

    pub(crate) fn driver(&self) -> &Arc<dyn Driver> {
        self.fs.driver()
    }

    fn wait<T>(&self, call: impl Future<Output = fs::Result<T>>) -> Result<T, Failure> {
        Ok(block_on(&**self.driver(), call)?)
    }
}

/// A held file lock, owned by C++.
#[derive(Debug)]
pub struct FurrowLock {
    _held: FileLock,
    /// The directory of the database whose lock this is.
    database: Option<String>,
    recoveries: Recoveries,
}

impl Drop for FurrowLock {
    fn drop(&mut self) {
        if let Some(dir) = &self.database {
            self.recoveries.end(dir);
        }
    }
}

/// Rust side of `FurrowStat` in `furrow_abi.h`: inode number, size, type and times of a file.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct FurrowStat {
    ino: u64,
    size: u64,
    modified_ms: u64,
    links: u64,
    is_dir: u8,
}

/// Mounts the file system on the device that the URL names. `parallel_logs` is not 0: the program keeps its write-ahead logs in parallel logs, which keep room for their own
/// flush, so that the mount keeps none for recoveries.
///
/// # Safety
/// `url` and `out` are valid; the result goes to [`furrow_release`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn furrow_mount(
    url: *const c_char,
    len: usize,
    parallel_logs: u8,
    out: *mut *mut FurrowFs,
) -> FurrowStatus {
    run_entry(|| {
        // SAFETY: the caller guarantees that `url` has `len` readable bytes.
        let url = unsafe { bytes(url, len) };
        let url = std::str::from_utf8(url)
            .map_err(|_| Failure::new(StatusCode::Invalid, "the device URL is not UTF-8"))?;
        let mount = mounts::mount(url, parallel_logs != 0)?;
        let handle = Box::new(FurrowFs {
            fs: mount.fs().clone(),
            replays: Replays::default(),
            recoveries: Recoveries::default(),
            mount: Some(mount),
        });
        // SAFETY: the caller guarantees that `out` can be written.
        unsafe { *out = Box::into_raw(handle) };
        Ok(())
    })
}

/// Frees a file system handle. The last handle of a mount unmounts.
///
/// # Safety
/// `fs` came from this library, is not in use and is not released again.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn furrow_release(fs: *mut FurrowFs) {
    // SAFETY: the caller guarantees that `fs` came from this library and is freed once.
    run_infallible_entry((), || drop(unsafe { Box::from_raw(fs) }));
}

/// Unmounts every file system that is still mounted by URL. Runs when the process ends.
#[unsafe(no_mangle)]
pub extern "C" fn furrow_unmount_all() {
    run_infallible_entry((), mounts::unmount_all);
}

/// The time of day in milliseconds since 1970, by the file system's clock.
///
/// # Safety
/// `fs` is alive.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn furrow_unix_ms(fs: *const FurrowFs) -> u64 {
    // SAFETY: the caller guarantees that `fs` is alive.
    run_infallible_entry(0, || unsafe { &*fs }.driver().unix_millis())
}

/// Writes to `bytes` how many bytes can still be written to the file system.
///
/// # Safety
/// `fs` is alive and `bytes` is valid.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn furrow_free_space(fs: *const FurrowFs, bytes: *mut u64) -> FurrowStatus {
    run_entry(|| {
        // SAFETY: the caller guarantees that `fs` is alive and that `bytes` can be written.
        unsafe { *bytes = (*fs).fs.statfs().free.0 };
        Ok(())
    })
}

/// Writes inode number, size, type and times of the file or directory `name` to `out`.
///
/// # Safety
/// `fs` is alive; `name` and `out` are valid.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn furrow_stat(
    fs: *const FurrowFs,
    name: *const c_char,
    len: usize,
    out: *mut FurrowStat,
) -> FurrowStatus {
    run_entry(|| {
        // SAFETY: the caller guarantees that `fs` is alive and that `name` has `len` readable bytes.
        let (fs, name) = unsafe { (&*fs, path(name, len)?) };
        let stat = fs.fs.stat(&name)?;
        let found = FurrowStat {
            ino: stat.ino,
            size: stat.size.0,
            modified_ms: stat.modified_ms,
            links: u64::from(stat.links),
            is_dir: u8::from(stat.kind == FileKind::Directory),
        };
        // SAFETY: the caller guarantees that `out` can be written.
        unsafe { *out = found };
        Ok(())
    })
}

/// Defines an exported function that runs one file system operation on one path.
macro_rules! one_path {
    ($(#[$doc:meta])* $name:ident, $method:ident) => {
        $(#[$doc])*
        ///
        /// # Safety
        /// `fs` is alive and `name` is valid.
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $name(fs: *const FurrowFs, name: *const c_char, len: usize) -> FurrowStatus {
            run_entry(|| {
                // SAFETY: the caller guarantees that `fs` is alive and that `name` has `len` readable bytes.
                let (fs, name) = unsafe { (&*fs, path(name, len)?) };
                fs.wait(fs.fs.$method(&name))
            })
        }
    };
}

/// Defines an exported function that runs one file system operation on two paths.
macro_rules! two_paths {
    ($(#[$doc:meta])* $name:ident, $method:ident) => {
        $(#[$doc])*
        ///
        /// # Safety
        /// `fs` is alive and both names are valid.
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $name(
            fs: *const FurrowFs,
            from: *const c_char,
            from_len: usize,
            to: *const c_char,
            to_len: usize,
        ) -> FurrowStatus {
            run_entry(|| {
                // SAFETY: the caller guarantees that `fs` is alive and that `from` and `to` are readable.
                let (fs, from, to) = unsafe { (&*fs, path(from, from_len)?, path(to, to_len)?) };
                fs.wait(fs.fs.$method(&from, &to))
            })
        }
    };
}

one_path!(
    /// Makes a directory.
    furrow_mkdir, mkdir);
one_path!(
    /// Removes an empty directory.
    furrow_rmdir, rmdir);
one_path!(
    /// Removes a file's name.
    furrow_unlink, unlink);

two_paths!(
    /// Renames a file or directory. An existing file of the new name is replaced.
    furrow_rename, rename);
two_paths!(
    /// Gives a file a second name (a hard link).
    furrow_link, link);

/// Truncates a file to a size.
///
/// # Safety
/// `fs` is alive and `name` is valid.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn furrow_truncate(
    fs: *const FurrowFs,
    name: *const c_char,
    len: usize,
    size: u64,
) -> FurrowStatus {
    run_entry(|| {
        // SAFETY: the caller guarantees that `fs` is alive and that `name` has `len` readable bytes.
        let (fs, name) = unsafe { (&*fs, path(name, len)?) };
        fs.wait(fs.fs.truncate(&name, Bytes(size)))
    })
}

/// Makes all metadata operations so far durable.
///
/// # Safety
/// `fs` is alive.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn furrow_sync(fs: *const FurrowFs) -> FurrowStatus {
    run_entry(|| {
        // SAFETY: the caller guarantees that `fs` is alive.
        let fs = unsafe { &*fs };
        fs.wait(fs.fs.sync_names())
    })
}

/// Calls `each` with every name in a directory.
///
/// # Safety
/// `fs` is alive, `name` is valid, and `each` may be called with `context` and does not throw.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn furrow_read_dir(
    fs: *const FurrowFs,
    name: *const c_char,
    len: usize,
    context: *mut c_void,
    each: extern "C" fn(*mut c_void, *const c_char, usize),
) -> FurrowStatus {
    run_entry(|| {
        // SAFETY: the caller guarantees that `fs` is alive and that `name` has `len` readable bytes.
        let (fs, name) = unsafe { (&*fs, path(name, len)?) };
        for child in fs.fs.read_dir(&name)? {
            each(context, child.name.as_ptr().cast(), child.name.len());
        }
        Ok(())
    })
}

/// Locks the lock file `name` for this process.
///
/// # Safety
/// `fs` is alive; `name` and `out` are valid; the result goes to [`furrow_unlock`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn furrow_lock(
    fs: *const FurrowFs,
    name: *const c_char,
    len: usize,
    out: *mut *mut FurrowLock,
) -> FurrowStatus {
    run_entry(|| {
        // SAFETY: the caller guarantees that `fs` is alive and that `name` has `len` readable bytes.
        let (fs, name) = unsafe { (&*fs, path(name, len)?) };
        let held = fs.fs.lock(&name)?;
        let recoveries = fs.recoveries.clone();
        let lock = FurrowLock { _held: held, database: recoveries.begin(&fs.fs, &name), recoveries };
        // SAFETY: the caller guarantees that `out` can be written.
        unsafe { *out = Box::into_raw(Box::new(lock)) };
        Ok(())
    })
}

/// Ends the recovery of the database in the directory `name` before its lock is released.
///
/// # Safety
/// `fs` is alive and `name` is valid.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn furrow_end_recovery(fs: *const FurrowFs, name: *const c_char, len: usize) {
    run_infallible_entry((), || {
        // SAFETY: the caller guarantees that `fs` is alive and that `name` has `len` readable bytes.
        let (fs, name) = unsafe { (&*fs, path(name, len)) };
        // A path that is not UTF-8 has no database.
        if let Ok(name) = name {
            fs.recoveries().end(&name);
        }
    });
}

/// Releases a file lock.
///
/// # Safety
/// `lock` came from [`furrow_lock`] and is not unlocked again.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn furrow_unlock(lock: *mut FurrowLock) {
    // SAFETY: the caller guarantees that `lock` came from this library and is freed once.
    run_infallible_entry((), || drop(unsafe { Box::from_raw(lock) }));
}
