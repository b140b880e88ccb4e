//! The handle of a mounted file system.

use std::sync::Arc;

use units::{Bytes, Driver};
use zoned::ZonedDevice;

use crate::{
    CheckReport, CreateOptions, DirEntry, FormatOptions, MountOptions, Reader, Result, Stat, StatFs, Superblock,
    Writer, ZoneUse,
};

/// A mounted file system. Cloning gives another handle of the same mount.
#[derive(Clone, Debug)]
pub struct Fs {
    shared: Arc<()>,
}

/// A lock that [`Fs::lock`] gave; dropping it releases it.
#[derive(Debug)]
pub struct FileLock {}

#[allow(unused_variables, clippy::todo, clippy::unused_async)]
impl Fs {
    /// Makes a file system on `dev`. Refuses a device that holds anything unless `options.force`.
    pub async fn format(dev: &Arc<dyn ZonedDevice>, options: &FormatOptions) -> Result<Superblock> {
        todo!()
    }
    /// Mounts: reads the superblock and the metadata log, recovers open logs.
    pub async fn mount(dev: Arc<dyn ZonedDevice>, options: &MountOptions) -> Result<Fs> {
        todo!()
    }
    /// Writes everything out and stops background work; later calls fail with `Closed`.
    pub async fn unmount(&self) -> Result<()> {
        todo!()
    }
    /// The clock everything runs on.
    pub fn driver(&self) -> &Arc<dyn Driver> {
        todo!()
    }
    /// The device underneath.
    pub fn device(&self) -> &Arc<dyn ZonedDevice> {
        todo!()
    }
    /// Space and counts.
    pub fn statfs(&self) -> StatFs {
        todo!()
    }
    /// Every zone and its use.
    pub fn zone_map(&self) -> Vec<ZoneUse> {
        todo!()
    }
    /// Creates a file, or truncates an existing one: handles of the old content still read it.
    pub async fn create(&self, path: &str, options: &CreateOptions) -> Result<Writer> {
        todo!()
    }
    /// Opens a file to write on at its end.
    pub async fn open_append(&self, path: &str) -> Result<Writer> {
        todo!()
    }
    /// Opens a file to read.
    pub fn open(&self, path: &str) -> Result<Reader> {
        todo!()
    }
    /// Makes a directory.
    pub async fn mkdir(&self, path: &str) -> Result<()> {
        todo!()
    }
    /// Removes an empty directory.
    pub async fn rmdir(&self, path: &str) -> Result<()> {
        todo!()
    }
    /// Removes a name of a file; the content goes with its last name and handle.
    pub async fn unlink(&self, path: &str) -> Result<()> {
        todo!()
    }
    /// Renames a file or directory; an existing file is replaced atomically.
    pub async fn rename(&self, from: &str, to: &str) -> Result<()> {
        todo!()
    }
    /// Gives a file a second name.
    pub async fn link(&self, from: &str, to: &str) -> Result<()> {
        todo!()
    }
    /// Cuts or extends (with zeroes) a file that nobody writes.
    pub async fn truncate(&self, path: &str, size: Bytes) -> Result<()> {
        todo!()
    }
    /// What a path names.
    pub fn stat(&self, path: &str) -> Result<Stat> {
        todo!()
    }
    /// The entries of a directory, in name order.
    pub fn read_dir(&self, path: &str) -> Result<Vec<DirEntry>> {
        todo!()
    }
    /// Makes every metadata operation so far durable.
    pub async fn sync(&self) -> Result<()> {
        todo!()
    }
    /// Checks an unmounted file system without writing.
    pub async fn check(dev: &Arc<dyn ZonedDevice>) -> Result<CheckReport> {
        todo!()
    }
    /// The superblock and every metadata record that a mount would replay, one per line, for people.
    pub async fn dump(dev: &Arc<dyn ZonedDevice>) -> Result<Vec<String>> {
        todo!()
    }
    /// Locks a path within this process; a second lock of the same path fails with `Busy`.
    pub fn lock(&self, path: &str) -> Result<FileLock> {
        todo!()
    }
}
