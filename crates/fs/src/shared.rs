//! What all handles of one mount share.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Weak};

use parking_lot::Mutex;
use units::sync::{Event, Turnstile};
use units::{Driver, ZoneId};
use zoned::ZonedDevice;

use crate::error::{Error, ErrorKind, Result};
use crate::files::file::File;
use crate::files::stat::Superblock;
use crate::metadata::meta::Meta;
use crate::metadata::state::State;
use crate::options::MountOptions;
use crate::zones::pool::Pool;

/// One mount.
#[derive(Debug)]
pub(crate) struct Shared {
    pub me: Weak<Shared>,
    pub dev: Arc<dyn ZonedDevice>,
    pub driver: Arc<dyn Driver>,
    pub superblock: Superblock,
    pub options: MountOptions,
    /// Locked before any file's content.
    pub state: Mutex<State>,
    pub meta: Meta,
    pub pins: Pins,
    pub pool: Pool,
    /// Something for the cleaner to do.
    pub work: Event,
    /// Space or a zone came free, or will not: who waits for either looks again.
    pub space: Event,
    /// Parallel logs that are open.
    pub parallel_logs: AtomicU32,
    /// Held while zones are finished and reset, where a log's writer waits for that.
    pub zone_turn: Turnstile,
    /// There are too few open zones for two metadata zones.
    pub tight: bool,
    pub closed: AtomicBool,
    /// Background tasks that have not ended.
    pub background: AtomicU32,
    /// How often a log waited for a zone.
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
        self.meta.check()
    }

    /// Fails after an unmount.
    pub(crate) fn check_open(&self) -> Result<()> {
        if self.closed.load(Ordering::Acquire) {
            return Err(Error::new(ErrorKind::Closed, "using a file system").because("it was unmounted"));
        }
        Ok(())
    }

    /// Bytes in a block.
    pub(crate) fn block(&self) -> u64 {
        u64::from(self.dev.geometry().block_size)
    }

    /// A background task ends, for the unmount that waits for it.
    pub(crate) fn end_background(&self) {
        self.background.fetch_sub(1, Ordering::AcqRel);
        self.space.notify();
    }

    /// Wakes the cleaner and the keeper.
    pub(crate) fn kick_cleaner(&self) {
        self.work.notify();
    }
}

impl Drop for Shared {
    fn drop(&mut self) {
        // Background tasks that wait find that there is nothing left to do.
        self.work.notify();
        self.space.notify();
    }
}

/// How many reads are under way in each zone: a zone is not reset under a reader.
#[derive(Debug)]
pub(crate) struct Pins(Vec<PinCount>);

// A line of its own each: readers of two zones would slow each other down.
#[derive(Debug, Default)]
#[repr(align(64))]
struct PinCount(AtomicU32);

impl Pins {
    pub(crate) fn new(zones: u32) -> Pins {
        Pins((0..zones).map(|_| PinCount::default()).collect())
    }

    /// Holds a zone.
    pub(crate) fn pin(&self, zone: ZoneId) -> Pin<'_> {
        let count = self.0.get(zone.index());
        if let Some(count) = count {
            count.0.fetch_add(1, Ordering::AcqRel);
        }
        Pin(count)
    }

    /// Whether anybody reads in it.
    pub(crate) fn is_pinned(&self, zone: ZoneId) -> bool {
        self.0.get(zone.index()).is_some_and(|count| count.0.load(Ordering::Acquire) > 0)
    }
}

/// A zone that is being read; dropping it lets go.
#[derive(Debug)]
pub(crate) struct Pin<'a>(Option<&'a PinCount>);

impl Drop for Pin<'_> {
    fn drop(&mut self) {
        if let Some(count) = self.0 {
            count.0.fetch_sub(1, Ordering::AcqRel);
        }
    }
}

/// An open file: the inode lives until the last one is dropped.
#[derive(Debug)]
pub(crate) struct Handle {
    pub shared: Arc<Shared>,
    pub file: Arc<File>,
}

impl Handle {
    /// Another reason for the inode to live. The caller holds the state's lock and has found the file there.
    pub(crate) fn counted(shared: &Arc<Shared>, state: &mut State, file: &Arc<File>) -> Arc<Handle> {
        if let Some(node) = state.file_node(file.ino) {
            node.handles += 1;
        }
        Arc::new(Handle { shared: Arc::clone(shared), file: Arc::clone(file) })
    }
}

impl Drop for Handle {
    fn drop(&mut self) {
        let work = {
            let mut state = self.shared.state.lock();
            state.drop_handle(self.file.ino);
            state.zones.has_dead()
        };
        if work {
            self.shared.kick_cleaner();
        }
    }
}
