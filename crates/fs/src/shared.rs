//! The state of one mount, shared by all its handles.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use parking_lot::Mutex;
use units::Driver;
use units::sync::{Event, Turnstile};

use crate::background::BackgroundTasks;
use crate::cache::PageCache;
use crate::device::Device;
use crate::error::{Error, ErrorKind, Result};
use crate::files::file::File;
use crate::files::stat::Superblock;
use crate::metadata::log::MetadataLog;
use crate::metadata::state::{ReleasedFile, State};
use crate::options::MountOptions;
use crate::writeback::dirty::DirtyBytes;
use crate::zones::pins::Pins;
use crate::zones::pool::ReadBufferPool;

/// One mount.
#[derive(Debug)]
pub(crate) struct Shared {
    pub device: Device,
    pub driver: Arc<dyn Driver>,
    pub superblock: Superblock,
    pub options: MountOptions,
    /// The lock of the mount's state is taken before that of any file's content.
    pub state: Arc<Mutex<State>>,
    pub metadata: Arc<MetadataLog>,
    pub pins: Pins,
    pub pool: ReadBufferPool,
    /// The page cache; `None` where [`MountOptions::cache`] is 0.
    pub cache: Option<PageCache>,
    /// The bytes in memory only; `None` where appended bytes are written at once.
    pub dirty: Option<DirtyBytes>,
    /// Wakes the mount's background tasks.
    pub work: Event,
    /// Notified when space or an open zone became free, or certainly will not: tasks that wait for space or
    /// for an open zone check again.
    pub space: Event,
    /// Held while zones are finished and reset in the path of a log's writer, which waits for both (mounts
    /// that open no zones ahead).
    pub zone_turn: Turnstile,
    pub background: BackgroundTasks,
    /// Number of times that a log waited for a zone.
    pub log_waits: AtomicU64,
    pub locks: Arc<Mutex<BTreeSet<String>>>,
}

impl Shared {
    /// Fails when the file system cannot be changed.
    pub(crate) fn check_writable(&self) -> Result<()> {
        self.check_open()?;
        if self.options.read_only {
            return Err(Error::new(ErrorKind::ReadOnly, "changing the file system")
                .because("it is mounted read-only; mount it for writing"));
        }
        self.metadata.check()
    }

    /// Fails after the unmount of the file system.
    pub(crate) fn check_open(&self) -> Result<()> {
        self.metadata.check_open()
    }

    /// Bytes in a block.
    pub(crate) fn block(&self) -> u64 {
        u64::from(self.device.geometry().block_size)
    }

    /// Drops the pages of files that nobody can read any more. The caller took `released` from the state.
    pub(crate) fn free_pages(&self, released: Vec<ReleasedFile>) {
        for ReleasedFile { file, stored } in released {
            if let Some(cache) = &self.cache {
                cache.remove_released(file.ino, &stored);
            }
            if let Some(dirty) = &self.dirty {
                dirty.set(&file, 0, false, self.driver.now());
            }
            self.release_own_zone(&file);
        }
        self.leave_memory_to_dirty_bytes();
    }

    /// Wakes the mount's background tasks.
    pub(crate) fn kick_cleaner(&self) {
        self.work.notify();
    }
}

impl Drop for Shared {
    fn drop(&mut self) {
        // Background tasks that wait find the mount gone, and end.
        self.work.notify();
        self.space.notify();
        if let Some(dirty) = &self.dirty {
            dirty.wake_task();
        }
    }
}

/// A handle of an open file. The inode lives until its last handle is dropped.
#[derive(Debug)]
pub(crate) struct Handle {
    pub shared: Arc<Shared>,
    pub file: Arc<File>,
}

impl Handle {
    /// A further handle of the open file `file`. The caller holds the state's lock and has found the file in
    /// the state.
    pub(crate) fn new_counted(shared: &Arc<Shared>, state: &mut State, file: &Arc<File>) -> Arc<Handle> {
        if let Some(node) = state.file_node(file.ino) {
            node.handles += 1;
        }
        Arc::new(Handle { shared: Arc::clone(shared), file: Arc::clone(file) })
    }
}

impl Drop for Handle {
    fn drop(&mut self) {
        let (released, work) = {
            let mut state = self.shared.state.lock();
            state.drop_handle(self.file.ino);
            if state.file_node(self.file.ino).is_none_or(|node| node.handles == 0) {
                self.file.drop_lost_pages();
            }
            (std::mem::take(&mut state.released), state.allocator.table.has_dead())
        };
        self.shared.free_pages(released);
        if work {
            self.shared.kick_cleaner();
        }
    }
}
