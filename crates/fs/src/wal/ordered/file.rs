//! A log file: the ordered log of [`crate::wal`] as a file, with segments from the file system's zones.
//!
//! A sequential zone belongs to one open log at a time (a lease). The unwritten rest of the zone of a closed log is offered to the
//! next log (a rest). Segments of several logs may lie in one conventional zone. A log takes a zone opened ahead without waiting; `sync` waits until the metadata record that gives the
//! zone to the log is durable.

use std::future::Future;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Weak};

use parking_lot::Mutex;
use units::sync::Turnstile;
use units::{Blocks, Bytes, Driver};

use crate::device::{self, Purpose};
use crate::error::{Error, ErrorKind, Result};
use crate::metadata::format::record::Record;
use crate::metadata::state::State;
use crate::options::FileKind;
use crate::shared::{Handle, Shared};
use crate::wal::index::LogIndex;
use crate::wal::ordered::buffer::LogIdentity;
use crate::wal::ordered::writer::LogWriter;
use crate::wal::segment::{Next, Segment, SegmentSource};

/// The writer of a log file.
#[derive(Debug)]
pub(crate) struct LogFile {
    handle: Arc<Handle>,
    writer: Arc<LogWriter>,
    turn: Turnstile,
    closed: AtomicBool,
    settled: AtomicBool,
    /// Older logs of the directory that are not synced yet. They are synced before this log's first entry is
    /// written: after a power cut the surviving records are a prefix of the directory's records.
    older: Mutex<Option<Vec<Arc<LogWriter>>>>,
    metadata: Arc<MetadataRecords>,
}

/// The metadata records that a log's entries depend on: the file's creation, its epoch and its segments.
#[derive(Debug, Default)]
struct MetadataRecords {
    /// Metadata records up to this number must be durable before a byte appended to the log counts as
    /// durable.
    needed: AtomicU64,
    /// Metadata records up to this number are known to be durable.
    durable: AtomicU64,
    /// True from when the log leaves a zone until the cleaner is woken to check whether that zone is full.
    left_a_zone: AtomicBool,
}

/// Supplies an ordered log with segments of the file system's zones.
#[derive(Debug)]
struct FileSegmentSource {
    shared: Weak<Shared>,
    ino: u64,
    metadata: Arc<MetadataRecords>,
}

impl SegmentSource for FileSegmentSource {
    fn next(&self) -> Pin<Box<dyn Future<Output = Result<Next>> + Send + '_>> {
        Box::pin(async move {
            let closed =
                || Error::new(ErrorKind::Closed, "extending a log").because("the file system is gone");
            let shared = self.shared.upgrade().ok_or_else(closed)?;
            let (segment, record, beside) = shared.next_segment(self.ino, FileKind::Log).await?;
            self.metadata.needed.fetch_max(record, Ordering::AcqRel);
            self.metadata.left_a_zone.store(true, Ordering::Release);
            Ok(Next { segment, beside })
        })
    }
}

impl Shared {
    /// Ends the writers of all ordered logs for good, and waits for their operations in flight. Another mount may use the blocks of a
    /// conventional zone that this one has leased to a log: a write there after the unmount would destroy what the other mount wrote.
    pub(crate) async fn end_log_writers(&self) {
        let writers: Vec<Arc<LogWriter>> = {
            let state = self.state.lock();
            state.files().filter_map(|node| node.file.content.read().log.writer.clone()).collect()
        };
        for writer in writers {
            let why = "the file system was unmounted";
            writer.end(Error::new(ErrorKind::Closed, "writing a log").because(why)).await;
        }
    }
}

impl LogFile {
    /// Opens a log for appending, under a new epoch. The epoch's cut precedes the segment of its first entry in the
    /// metadata. `older`: the other open logs of the directory.
    pub(crate) async fn open(handle: Arc<Handle>, older: Vec<Arc<LogWriter>>) -> Result<Arc<LogFile>> {
        let shared = Arc::clone(&handle.shared);
        let ino = handle.file.ino;
        let index = shared.log_index(&handle.file).await?;
        if let Some(damage) = handle.file.content.read().log.damage.clone() {
            return Err(damage);
        }
        // The new epoch's cut says that all entries of older epochs are durable.
        if index.size() > Bytes::ZERO {
            device::flush(shared.device.purpose(Purpose::Log), "flushing before a log goes on").await?;
        }
        let (epoch, sequence, record) = {
            let mut state = shared.state.lock();
            let (epoch, sequence) = {
                let content = handle.file.content.read();
                let epoch = content.log.cuts.last().map_or(1, |cut| cut.epoch + 1);
                (epoch, content.log.sealed.map_or(0, |(_, next)| next))
            };
            state.commit(Record::Cut { ino, sequence, offset: index.size().0, epoch })?;
            (epoch, sequence, state.journal.applied)
        };
        let metadata =
            Arc::new(MetadataRecords { needed: AtomicU64::new(record), ..MetadataRecords::default() });
        let options = shared.options.log_options();
        let source = Arc::new(FileSegmentSource {
            shared: Arc::downgrade(&shared),
            ino,
            metadata: Arc::clone(&metadata),
        });
        let (dev, uuid) = (Arc::clone(shared.device.purpose(Purpose::Log)), shared.superblock.uuid);
        let index = LogIndex::clone(&index);
        let writer = Arc::new(LogWriter::new(
            dev,
            LogIdentity { uuid, log: ino, epoch },
            sequence,
            index,
            options,
            source,
        ));
        handle.file.content.write().log.writer = Some(Arc::clone(&writer));
        Ok(Arc::new(LogFile {
            handle,
            writer,
            turn: Turnstile::new(),
            closed: AtomicBool::new(false),
            settled: AtomicBool::new(false),
            older: Mutex::new(Some(older)),
            metadata,
        }))
    }

    pub(crate) fn driver(&self) -> &Arc<dyn Driver> {
        &self.handle.shared.driver
    }

    /// True once [`close`](LogFile::close) of the log has finished. A call of `close` that was dropped half
    /// way is to be repeated.
    pub(crate) fn is_settled(&self) -> bool {
        self.settled.load(Ordering::Acquire)
    }

    fn is_closed(&self) -> bool {
        self.closed.load(Ordering::Acquire)
    }

    pub(crate) fn size(&self) -> Bytes {
        self.writer.size()
    }

    fn check(&self) -> Result<()> {
        if self.is_closed() {
            return Err(Error::new(ErrorKind::Closed, "writing a log").because("its writer is closed"));
        }
        self.handle.shared.check_open()
    }

    pub(crate) async fn append(&self, data: &[u8]) -> Result<()> {
        self.check()?;
        if self.older.lock().is_some() {
            let _turn = self.turn.acquire().await;
            let older = self.older.lock().clone();
            if let Some(older) = older {
                self.sync_older(&older).await?;
                *self.older.lock() = None;
            }
        }
        self.writer.append(data).await
    }

    async fn sync_older(&self, older: &[Arc<LogWriter>]) -> Result<()> {
        if self.handle.shared.options.rules().skips_flushes() {
            return Ok(());
        }
        for log in older {
            log.sync().await?;
        }
        // The older logs were closed without a flush: their entries may still be in the device's cache.
        device::flush(self.handle.shared.device.purpose(Purpose::Log), "flushing older logs").await
    }

    pub(crate) async fn flush(&self) -> Result<()> {
        self.check()?;
        self.writer.flush().await?;
        self.recheck_left_zones();
        Ok(())
    }

    pub(crate) async fn sync(&self) -> Result<()> {
        self.check()?;
        self.writer.sync().await?;
        self.recheck_left_zones();
        // The committer began to commit the segment's metadata records when the log took the zone.
        let needed = self.metadata.needed.load(Ordering::Acquire);
        if self.metadata.durable.load(Ordering::Acquire) < needed {
            self.handle.shared.metadata.commit_upto(needed).await?;
            self.metadata.durable.fetch_max(needed, Ordering::AcqRel);
        }
        Ok(())
    }

    /// Wakes the cleaner if the log left a zone: that zone may be full now, and its open-zone slot free.
    fn recheck_left_zones(&self) {
        let left = &self.metadata.left_a_zone;
        if left.load(Ordering::Acquire) && left.swap(false, Ordering::AcqRel) {
            self.handle.shared.kick_cleaner();
        }
    }

    pub(crate) async fn close(&self) -> Result<()> {
        let _turn = self.turn.acquire().await;
        if self.is_settled() {
            return Ok(());
        }
        self.closed.store(true, Ordering::Release);
        let shared = &self.handle.shared;
        // After an unmount another mount may own the device: the log's buffered bytes are lost, as after a
        // crash.
        let closed = match shared.check_open() {
            Ok(()) => self.writer.close().await,
            Err(error) => Err(error),
        };
        self.settled.store(true, Ordering::Release);
        let file = &self.handle.file;
        let mut state = shared.state.lock();
        if let Some(node) = state.file_node(file.ino) {
            node.writing = false;
        }
        let result = match closed {
            Ok(index) => self.seal(&mut state, index),
            Err(error) => {
                // How many of the log's entries reached the device is unknown. The next opening recovers the log.
                let mut content = file.content.write();
                content.log.sealed = None;
                content.log.index = None;
                content.size = self.writer.durable().0;
                drop(content);
                state.allocator.end_lease(file.ino, None);
                if let Some(zone) = self.writer.failed_zone() {
                    state.allocator.conventional.avoid(zone);
                }
                Err(error)
            }
        };
        file.content.write().log.writer = None;
        drop(state);
        shared.kick_cleaner();
        shared.space.notify();
        result
    }

    fn seal(&self, state: &mut State, index: LogIndex) -> Result<()> {
        let ino = self.handle.file.ino;
        let size = index.size().0;
        self.handle.file.content.write().log.index = Some(Arc::new(index));
        let unused = self.writer.unused();
        let lease = state.allocator.leases.get(&ino).copied();
        let (segments, last) = {
            let content = self.handle.file.content.read();
            let all = &content.log.segments;
            // A log's last segment without an entry is given back to the file system.
            let same = |a: &Segment, b: &Segment| (a.zone, a.start) == (b.zone, b.start);
            let handed = lease.and_then(|l| all.iter().rposition(|s| same(s, &l.segment)));
            let unwritten = lease.is_some_and(|l| unused.is_some_and(|u| same(&u, &l.segment)));
            let old = all.iter().filter(|s| s.start < s.end).count();
            let keep = match handed {
                Some(at) if unwritten => at,
                Some(at) => at + 1,
                None => old,
            };
            (keep, all.get(..keep).and_then(<[Segment]>::last).copied())
        };
        let in_last = |u: &Segment| last.is_some_and(|l| l.zone == u.zone && l.end == u.end);
        let last_end = match unused.filter(in_last) {
            Some(unused) => unused.start,
            None => last.map_or(Blocks::ZERO, |l| l.end),
        };
        let segments = u32::try_from(segments).expect("segments are counted in 32 bits");
        let modified_ms = self.handle.shared.driver.unix_millis();
        let next_sequence = self.writer.next_sequence();
        state.commit(Record::Seal { ino, size, next_sequence, last_end, modified_ms, segments })?;
        state.allocator.end_lease(ino, Some(unused.map_or(u64::MAX, |u| u.start.0)));
        Ok(())
    }
}
