//! The one way from a mount to its device.
//!
//! ```text
//!   metadata log   --Metadata--+
//!   logs           --Log-------+
//!   file readers   --Read------+--> OperationQueue::submit(purpose, class, op) --> device
//!   file writers   --Write-----+
//!   cleaner        --Reclaim---+
//! ```
//!
//! Every part of a mount is handed a view of its purpose ([`Device::purpose`]), which is a device itself. All views lead to
//! [`OperationQueue::submit`], which passes each operation on at once, in the order of the calls, and counts it and the bytes that it
//! writes.
//!
//! The *class* of an operation tells the drive's scheduler, where there is one ([`zoned::Share`]), whether the operation may wait. A purpose has a class;
//! an operation that somebody waits for has the class of the waiter, if that is higher. Compactions that the program's own writes wait for go as reads.

use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use units::Driver;
use zoned::{Geometry, Io, IoClass, Lba, Op, ShareStatus, ZonedDevice};

use crate::error::{Error, Result};

/// The purpose of a device operation.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Purpose {
    /// The superblock and the metadata log, and the device report of a mount.
    Metadata,
    /// Entries of logs, their flushes, their recovery, and the zones opened ahead for them.
    Log,
    /// Reads of data files and of closed logs.
    Read,
    /// Writes of data files: RocksDB's flushes and compactions alike.
    Write,
    /// Operations of the cleaner: live blocks copied out of a zone, zones finished and reset.
    Reclaim,
}

impl Purpose {
    /// All purposes of device operations, in the order of the declaration.
    pub const ALL: [Purpose; 5] =
        [Purpose::Metadata, Purpose::Log, Purpose::Read, Purpose::Write, Purpose::Reclaim];

    /// The class of operations that nobody waits for otherwise.
    fn class(self) -> IoClass {
        match self {
            Purpose::Metadata => IoClass::Metadata,
            Purpose::Log => IoClass::Log,
            Purpose::Read => IoClass::Read,
            Purpose::Write => IoClass::Flush,
            Purpose::Reclaim => IoClass::Reclaim,
        }
    }
}

/// The device of one mount.
#[derive(Debug)]
pub(crate) struct Device {
    queue: Arc<OperationQueue>,
    /// One view of the device per purpose, in the order of [`Purpose::ALL`].
    views: [Arc<dyn ZonedDevice>; Purpose::ALL.len()],
}

impl Device {
    pub(crate) fn new(device: Arc<dyn ZonedDevice>) -> Device {
        let queue = Arc::new(OperationQueue {
            device,
            submitted: Default::default(),
            writers_await_compactions: AtomicBool::new(false),
        });
        let views = Purpose::ALL.map(|purpose| -> Arc<dyn ZonedDevice> {
            Arc::new(PurposeView { queue: Arc::clone(&queue), purpose })
        });
        Device { queue, views }
    }

    /// The view of the device that counts operations under `purpose`.
    pub(crate) fn purpose(&self, purpose: Purpose) -> &Arc<dyn ZonedDevice> {
        let [metadata, log, read, write, reclaim] = &self.views;
        match purpose {
            Purpose::Metadata => metadata,
            Purpose::Log => log,
            Purpose::Read => read,
            Purpose::Write => write,
            Purpose::Reclaim => reclaim,
        }
    }

    /// The mount's device without a purpose, for callers outside the mount.
    pub(crate) fn raw(&self) -> &Arc<dyn ZonedDevice> {
        &self.queue.device
    }

    pub(crate) fn geometry(&self) -> &Geometry {
        self.queue.device.geometry()
    }

    /// Says whether the program's own writes wait for its compactions. While they do, all compactions of the mount go as reads, which are never held.
    pub(crate) fn set_writers_await_compactions(&self, awaits: bool) {
        self.queue.writers_await_compactions.store(awaits, Ordering::Relaxed);
    }

    /// Number of operations of `purpose` submitted since the mount.
    pub(crate) fn submitted(&self, purpose: Purpose) -> u64 {
        self.queue.submitted.get(purpose as usize).map_or(0, |count| count.operations.load(Ordering::Relaxed))
    }

    /// Bytes of the writes and appends of `purpose` submitted since the mount.
    pub(crate) fn written_bytes(&self, purpose: Purpose) -> u64 {
        self.queue
            .submitted
            .get(purpose as usize)
            .map_or(0, |count| count.written_bytes.load(Ordering::Relaxed))
    }
}

/// Flushes the cache of `device`, where the device has a volatile one. `doing` names the purpose in the error.
pub(crate) async fn flush(device: &Arc<dyn ZonedDevice>, doing: &'static str) -> Result<()> {
    if !device.geometry().volatile_cache {
        return Ok(());
    }
    device.flush().await.map_err(|e| Error::device(doing, e))
}

/// Passes operations to the device, and counts them by purpose.
#[derive(Debug)]
struct OperationQueue {
    device: Arc<dyn ZonedDevice>,
    /// By purpose.
    submitted: [OperationCount; Purpose::ALL.len()],
    /// The program's own writes wait for its compactions.
    writers_await_compactions: AtomicBool,
}

/// The counters of a purpose in a cache line of their own: threads that read and threads that append do not slow
/// each other down.
#[derive(Debug, Default)]
#[repr(align(64))]
struct OperationCount {
    operations: AtomicU64,
    written_bytes: AtomicU64,
}

impl OperationQueue {
    fn submit(&self, purpose: Purpose, class: IoClass, op: Op) -> Io {
        if let Some(count) = self.submitted.get(purpose as usize) {
            count.operations.fetch_add(1, Ordering::Relaxed);
            if let Op::Append { data, .. } | Op::Write { data, .. } = &op {
                count.written_bytes.fetch_add(data.len() as u64, Ordering::Relaxed);
            }
        }
        self.device.submit_as(self.class_now(class), op)
    }

    /// The class in which the drive gets operations of `class` now: compactions that writers wait for go as reads.
    fn class_now(&self, class: IoClass) -> IoClass {
        let is_awaited =
            class == IoClass::Compaction && self.writers_await_compactions.load(Ordering::Relaxed);
        if is_awaited { IoClass::Read } else { class }
    }
}

/// A view of the mount's device that counts every operation under one purpose.
#[derive(Debug)]
struct PurposeView {
    queue: Arc<OperationQueue>,
    purpose: Purpose,
}

impl ZonedDevice for PurposeView {
    fn geometry(&self) -> &Geometry {
        self.queue.device.geometry()
    }

    fn submit(&self, op: Op) -> Io {
        self.queue.submit(self.purpose, self.purpose.class(), op)
    }

    fn submit_as(&self, class: IoClass, op: Op) -> Io {
        self.queue.submit(self.purpose, class, op)
    }

    fn raise(&self, class: IoClass, blocks: Range<Lba>) {
        self.queue.device.raise(self.queue.class_now(class), blocks);
    }

    fn driver(&self) -> &Arc<dyn Driver> {
        self.queue.device.driver()
    }

    fn details(&self) -> Vec<(&'static str, String)> {
        self.queue.device.details()
    }

    fn share_status(&self) -> Option<ShareStatus> {
        self.queue.device.share_status()
    }
}
