//! Log files: the zoned log of [`crate::wal`] as a file, and where its segments come from.
//!
//! A zone belongs to one open log at a time (a lease). What the log leaves of it when it is closed is offered to the
//! next log (a rest). A log that goes on in another zone waits for nothing where one is reserved: `sync` waits until
//! the metadata says durably that the zone is the log's.

use std::future::Future;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Weak};

use parking_lot::Mutex;
use units::sync::Turnstile;
use units::{Blocks, Bytes, Driver};

use crate::device::{self, IoClass};
use crate::error::{Error, ErrorKind, Result};
use crate::metadata::format::record::Record;
use crate::metadata::state::State;
use crate::shared::{Handle, Shared};
use crate::wal::index::LogIndex;
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
    /// Older logs of the directory: synced before this one's first entry, so that what survives is a prefix.
    older: Mutex<Option<Vec<Arc<LogWriter>>>>,
    ties: Arc<Ties>,
}

/// What a log's data needs of the metadata.
#[derive(Debug, Default)]
struct Ties {
    /// Records up to this number must be durable before what was appended so far is: the file's creation, its epoch
    /// and its segments.
    needs: AtomicU64,
    /// Of those, how many are known to be.
    durable: AtomicU64,
    /// The log has gone on in another zone, and nobody has looked since whether the one before it is full.
    left: AtomicBool,
}

/// Gives a log its segments.
#[derive(Debug)]
struct Source {
    shared: Weak<Shared>,
    ino: u64,
    ties: Arc<Ties>,
}

impl SegmentSource for Source {
    fn next(&self) -> Pin<Box<dyn Future<Output = Result<Next>> + Send + '_>> {
        Box::pin(async move {
            let closed =
                || Error::new(ErrorKind::Closed, "extending a log").because("the file system is gone");
            let shared = self.shared.upgrade().ok_or_else(closed)?;
            let (segment, record, beside) = shared.next_segment(self.ino).await?;
            self.ties.needs.fetch_max(record, Ordering::AcqRel);
            self.ties.left.store(true, Ordering::Release);
            Ok(Next { segment, beside })
        })
    }
}

impl LogFile {
    /// Opens a log for appending: a new epoch, whose cut is in the metadata before the segment of the first entry.
    /// `older` are the other open logs of its directory.
    pub(crate) async fn open(handle: Arc<Handle>, older: Vec<Arc<LogWriter>>) -> Result<Arc<LogFile>> {
        let shared = Arc::clone(&handle.shared);
        let ino = handle.file.ino;
        let index = shared.log_index(&handle.file).await?;
        if let Some(damage) = handle.file.content.read().log.damage.clone() {
            return Err(damage);
        }
        // The new epoch stands on what the old ones wrote.
        if index.size() > Bytes::ZERO {
            device::flush(shared.device.class(IoClass::Log), "flushing before a log goes on").await?;
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
        let ties = Arc::new(Ties { needs: AtomicU64::new(record), ..Ties::default() });
        let options = shared.options.log_options();
        let source = Arc::new(Source { shared: Arc::downgrade(&shared), ino, ties: Arc::clone(&ties) });
        let (dev, uuid) = (Arc::clone(shared.device.class(IoClass::Log)), shared.superblock.uuid);
        let index = LogIndex::clone(&index);
        let writer = Arc::new(LogWriter::resume(dev, uuid, ino, epoch, sequence, index, options, source));
        handle.file.content.write().log.writer = Some(Arc::clone(&writer));
        Ok(Arc::new(LogFile {
            handle,
            writer,
            turn: Turnstile::new(),
            closed: AtomicBool::new(false),
            settled: AtomicBool::new(false),
            older: Mutex::new(Some(older)),
            ties,
        }))
    }

    pub(crate) fn driver(&self) -> &Arc<dyn Driver> {
        &self.handle.shared.driver
    }

    /// Nothing is left to do for [`close`](LogFile::close): one that was dropped half way is done again.
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
        // Logs closed a moment ago may still be in the device's cache.
        device::flush(self.handle.shared.device.class(IoClass::Log), "flushing older logs").await
    }

    pub(crate) async fn flush(&self) -> Result<()> {
        self.check()?;
        self.writer.flush().await?;
        self.look_at_left_zones();
        Ok(())
    }

    pub(crate) async fn sync(&self) -> Result<()> {
        self.check()?;
        self.writer.sync().await?;
        self.look_at_left_zones();
        // The committer has begun with these when the zone was taken.
        let needs = self.ties.needs.load(Ordering::Acquire);
        if self.ties.durable.load(Ordering::Acquire) < needs {
            self.handle.shared.metadata.commit_upto(needs).await?;
            self.ties.durable.fetch_max(needs, Ordering::AcqRel);
        }
        Ok(())
    }

    /// The zones that the log has left may be full now, and their slots free.
    fn look_at_left_zones(&self) {
        if self.ties.left.load(Ordering::Acquire) && self.ties.left.swap(false, Ordering::AcqRel) {
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
        // After an unmount the device may be somebody else's: what is buffered is lost, as after a crash.
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
                // Nobody knows how far it came: it is recovered when it is opened again.
                let mut content = file.content.write();
                content.log.sealed = None;
                content.log.index = None;
                content.size = self.writer.durable().0;
                drop(content);
                state.end_lease(file.ino, None);
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
        let lease = state.places.leases.get(&ino).copied();
        let (segments, last) = {
            let content = self.handle.file.content.read();
            let all = &content.log.segments;
            // The last one goes if nothing was written in it.
            let same = |a: &Segment, b: &Segment| (a.zone, a.start) == (b.zone, b.start);
            let handed = lease.and_then(|l| all.iter().position(|s| same(s, &l.segment)));
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
        let segments = u32::try_from(segments).expect("a log has fewer segments than zones");
        let modified_ms = self.handle.shared.driver.unix_millis();
        let next_sequence = self.writer.next_sequence();
        state.commit(Record::Seal { ino, size, next_sequence, last_end, modified_ms, segments })?;
        state.end_lease(ino, Some(unused.map_or(u64::MAX, |u| u.start.0)));
        Ok(())
    }
}
