//! The segments of a parallel log and the tickets in each: which segments can be freed.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::{Mutex, MutexGuard};
use units::Blocks;

use crate::error::Result;
use crate::metadata::format::record::Record;
use crate::shared::Handle;
use crate::wal::parallel::order::Order;
use crate::wal::parallel::zone::LogZone;

/// A segment of a parallel log, and its tickets.
#[derive(Debug)]
pub(super) struct SegmentTickets {
    /// The segment's zone, if this opening of the log wrote there.
    pub(super) zone: Option<Arc<LogZone>>,
    /// A ticket above all tickets in the segment; `None` while entries may be added.
    pub(super) end: Option<u64>,
}

impl SegmentTickets {
    fn is(&self, zone: &Arc<LogZone>) -> bool {
        self.zone.as_ref().is_some_and(|mine| Arc::ptr_eq(mine, zone))
    }
}

/// All segments of the log, in the order of the metadata.
#[derive(Debug)]
pub(super) struct Segments {
    handle: Arc<Handle>,
    list: Mutex<Vec<SegmentTickets>>,
    /// Every ticket of the log below this one is retired.
    retired: AtomicU64,
    order: Arc<Order>,
}

impl Segments {
    /// The segments of a log that was just opened. `ends`: for each segment, a ticket above all tickets in
    /// it.
    pub(super) fn new(handle: Arc<Handle>, ends: &[u64], retired: u64, order: Arc<Order>) -> Segments {
        let list = ends.iter().map(|end| SegmentTickets { zone: None, end: Some(*end) }).collect();
        Segments { handle, list: Mutex::new(list), retired: AtomicU64::new(retired), order }
    }

    pub(super) fn len(&self) -> usize {
        self.list.lock().len()
    }

    pub(super) fn push(&self, zone: Arc<LogZone>) {
        self.list.lock().push(SegmentTickets { zone: Some(zone), end: None });
    }

    /// Notes that no entry is added to `zone`'s segment any more: its tickets were all handed out by now.
    pub(super) fn end(&self, zone: &Arc<LogZone>) {
        if let Some(segment) = self.list.lock().iter_mut().find(|segment| segment.is(zone)) {
            segment.end = Some(self.order.next());
        }
    }

    /// Retires all tickets of the log below `below`, and frees the segments that have only retired tickets.
    /// True if a segment was freed.
    pub(super) fn retire(&self, below: u64) -> Result<bool> {
        self.retired.fetch_max(below.min(self.order.next()), Ordering::AcqRel);
        self.free_retired(false)
    }

    /// True if any ticket of the log is retired.
    pub(super) fn has_retired(&self) -> bool {
        self.retired.load(Ordering::Acquire) > 0
    }

    /// Frees the log's oldest segments whose tickets are all retired. `mark`: the metadata gets the retired
    /// ticket even if no segment is freed. True if a metadata record was made.
    pub(super) fn free_retired(&self, mark: bool) -> Result<bool> {
        let below = self.retired.load(Ordering::Acquire);
        let mut list = self.list.lock();
        let over = list.iter().take_while(|segment| segment.end.is_some_and(|end| end <= below)).count();
        if over == 0 && !mark {
            return Ok(false);
        }
        let segments = u32::try_from(over).expect("a log has fewer segments than zones");
        let (ino, shared) = (self.handle.file.ino, &self.handle.shared);
        shared.state.lock().commit(Record::Retire { ino, below, segments })?;
        list.drain(..over);
        drop(list);
        shared.kick_cleaner();
        shared.space.notify();
        Ok(true)
    }

    /// Broken rule: ends `zone`'s segment in the metadata at block `end`, as a recovery would that takes
    /// padding for the log's end.
    pub(super) fn cut_off(&self, zone: &Arc<LogZone>, end: Blocks) {
        let list = self.list.lock();
        if let Some(at) = list.iter().position(|segment| segment.is(zone)) {
            let _broken_anyway = self.trim(at, end);
        }
    }

    fn trim(&self, at: usize, end: Blocks) -> Result<()> {
        let segment = u32::try_from(at).expect("a log has fewer segments than zones");
        let trim = Record::Trim { ino: self.handle.file.ino, segment, end };
        self.handle.shared.state.lock().commit(trim)
    }

    /// Locks the list of segments, for a close that changes the file system's state too: the list is locked
    /// before the state.
    pub(super) fn lock(&self) -> MutexGuard<'_, Vec<SegmentTickets>> {
        self.list.lock()
    }

    /// The position of `zone`'s segment in the locked list.
    pub(super) fn position(list: &[SegmentTickets], zone: &Arc<LogZone>) -> Option<usize> {
        list.iter().position(|segment| segment.is(zone))
    }
}
