//! The one way from a mount to its device.
//!
//! ```text
//!   metadata log   --Metadata--+
//!   logs           --Log-------+
//!   file readers   --Read------+--> OperationQueue::submit(class, op) --> device
//!   file writers   --Write-----+
//!   cleaner        --Reclaim---+
//! ```
//!
//! Every part of a mount is handed a view of its class ([`Device::class`]), which is a device itself. All views lead to
//! [`OperationQueue::submit`], which passes each operation on at once, in the order of the calls, and counts it and the bytes that it
//! writes.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use units::Driver;
use zoned::{Geometry, Io, Op, ZonedDevice};

use crate::error::{Error, Result};

/// The purpose of a device operation.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum IoClass {
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

impl IoClass {
    /// All classes of device operations, in the order of the declaration.
    pub const ALL: [IoClass; 5] =
        [IoClass::Metadata, IoClass::Log, IoClass::Read, IoClass::Write, IoClass::Reclaim];
}

/// The device of one mount.
#[derive(Debug)]
pub(crate) struct Device {
    queue: Arc<OperationQueue>,
    /// One view of the device per class, in the order of [`IoClass::ALL`].
    views: [Arc<dyn ZonedDevice>; IoClass::ALL.len()],
}

impl Device {
    pub(crate) fn new(device: Arc<dyn ZonedDevice>) -> Device {
        let queue = Arc::new(OperationQueue { device, submitted: Default::default() });
        let views = IoClass::ALL.map(|class| -> Arc<dyn ZonedDevice> {
            Arc::new(ClassView { queue: Arc::clone(&queue), class })
        });
        Device { queue, views }
    }

    /// The view of the device that counts operations under `class`.
    pub(crate) fn class(&self, class: IoClass) -> &Arc<dyn ZonedDevice> {
        let [metadata, log, read, write, reclaim] = &self.views;
        match class {
            IoClass::Metadata => metadata,
            IoClass::Log => log,
            IoClass::Read => read,
            IoClass::Write => write,
            IoClass::Reclaim => reclaim,
        }
    }

    /// The mount's device without a class, for callers outside the mount.
    pub(crate) fn raw(&self) -> &Arc<dyn ZonedDevice> {
        &self.queue.device
    }

    pub(crate) fn geometry(&self) -> &Geometry {
        self.queue.device.geometry()
    }

    /// Number of operations of `class` submitted since the mount.
    pub(crate) fn submitted(&self, class: IoClass) -> u64 {
        self.queue.submitted.get(class as usize).map_or(0, |count| count.operations.load(Ordering::Relaxed))
    }

    /// Bytes of the writes and appends of `class` submitted since the mount.
    pub(crate) fn written_bytes(&self, class: IoClass) -> u64 {
        self.queue
            .submitted
            .get(class as usize)
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

/// Passes operations to the device, and counts them by class.
#[derive(Debug)]
struct OperationQueue {
    device: Arc<dyn ZonedDevice>,
    /// By class.
    submitted: [OperationCount; IoClass::ALL.len()],
}

/// The counters of a class in a cache line of their own: threads that read and threads that append do not slow
/// each other down.
#[derive(Debug, Default)]
#[repr(align(64))]
struct OperationCount {
    operations: AtomicU64,
    written_bytes: AtomicU64,
}

impl OperationQueue {
    fn submit(&self, class: IoClass, op: Op) -> Io {
        if let Some(count) = self.submitted.get(class as usize) {
            count.operations.fetch_add(1, Ordering::Relaxed);
            if let Op::Append { data, .. } | Op::Write { data, .. } = &op {
                count.written_bytes.fetch_add(data.len() as u64, Ordering::Relaxed);
            }
        }
        self.device.submit(op)
    }
}

/// A view of the mount's device that counts every operation under one class.
#[derive(Debug)]
struct ClassView {
    queue: Arc<OperationQueue>,
    class: IoClass,
}

impl ZonedDevice for ClassView {
    fn geometry(&self) -> &Geometry {
        self.queue.device.geometry()
    }

    fn submit(&self, op: Op) -> Io {
        self.queue.submit(self.class, op)
    }

    fn driver(&self) -> &Arc<dyn Driver> {
        self.queue.device.driver()
    }

    fn details(&self) -> Vec<(&'static str, String)> {
        self.queue.device.details()
    }
}
