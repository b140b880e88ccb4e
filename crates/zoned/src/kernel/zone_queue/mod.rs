//! The queue of one zone: submitted operations, requests in flight, and which request may be sent next.
//!
//! The kernel may reorder writes, so a sequential zone has at most one write in flight (adjacent writes are merged), or
//! one zone command, or, on a drive with native appends, any number of appends. An operation that the zone's state
//! forbids fails when its turn comes and is never sent. Only the drive checks the open and active limits, because only
//! the drive knows which zones it has closed itself.
//!
//! ```text
//!   submit --> queue --> dispatch --> Step (to the kernel, or an answer)
//!                         ^                  |
//!                         +-- write_done, append_done, command_done, report_done, read_done
//! ```
//!
//! The queue has no clock, lock or thread. The device holds the queue's lock during a call and executes the returned
//! steps after it has released the lock.
//!
//! After a failure the write pointer is unknown: nothing is sent until every request in flight has returned and a
//! report has given the zone's state.

mod completion;
mod dispatch;

use std::collections::VecDeque;
use std::ops::Range;

use crate::kernel::{Failure, ShortVec};
use crate::{Action, Buf, BufMut, Geometry, ZoneInfo, ZoneKind, ZoneState};

/// Properties that all zone queues of a device share.
#[derive(Clone, Copy, Debug)]
pub(crate) struct QueueRules {
    /// Bytes in a block.
    pub(crate) block: usize,
    /// Number of writable blocks of a sequential zone.
    pub(crate) capacity: u64,
    /// Longest write in blocks, merged writes included.
    pub(crate) max_transfer: u64,
    /// True if the drive has append commands; otherwise an append is sent as a write at the pointer.
    pub(crate) native_append: bool,
    /// True if requests pass the block layer. The block layer keeps its own copy of each write pointer and fails correct
    /// writes if the copy is stale. A report corrects the copy, so a write that failed without moving the pointer is sent
    /// again, alone, after the report. On a drive with several paths the report does not correct the copy of each path
    /// (kernel 6.12), so an empty zone whose first write failed is also reset.
    pub(crate) block_layer: bool,
}

impl QueueRules {
    /// The rules of a device with this geometry. `native_append`: the drive has appends, and requests do not pass the block
    /// layer, which has none.
    pub(crate) fn of(geometry: &Geometry, native_append: bool) -> QueueRules {
        QueueRules {
            block: geometry.block_size as usize,
            capacity: geometry.zone_capacity.0,
            max_transfer: geometry.max_transfer.0,
            native_append,
            block_layer: !native_append,
        }
    }
}

/// An operation on a zone. Addresses are blocks from the zone's start.
#[derive(Debug)]
pub(crate) enum ZoneTask {
    Read {
        at: u64,
        into: BufMut,
    },
    Write {
        at: u64,
        data: Buf,
        durable: bool,
    },
    Append {
        data: Buf,
        durable: bool,
    },
    Zone(Action),
    /// An operation that completes when every operation submitted before has completed.
    Fence,
}

/// Result of a successful operation on a zone.
#[derive(Debug)]
pub(crate) enum Reply {
    Unit,
    At(u64),
    Read(BufMut),
}

/// A step: an action for the device to execute. Every step is returned exactly once; the completion of a
/// kernel request is reported by a method of the queue.
#[derive(Debug)]
pub(crate) enum Step<W> {
    /// A read, completed by [`ZoneQueue::read_done`]. `past` is the part of the buffer past the pointer, to
    /// be zeroed.
    Read { at: u64, into: BufMut, past: Option<BufMut>, waiter: W },
    /// A write, completed by [`ZoneQueue::write_done`].
    Write(WriteRequest<W>),
    /// An append, completed by [`ZoneQueue::append_done`].
    Append { data: Buf, durable: bool, waiter: W },
    /// A zone command, completed by [`ZoneQueue::command_done`]. Without a waiter the queue itself issued the
    /// command.
    Zone { action: Action, waiter: Option<W> },
    /// A zone report, completed by [`ZoneQueue::report_done`].
    Report,
    /// The result of an operation, for its submitter.
    Answer { waiter: W, result: Result<Reply, Failure> },
}

/// Which limited resources of the drive a zone uses.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct Claims {
    pub(crate) active: bool,
    pub(crate) held_open: bool,
}

/// A write request, merged from one or several operations.
#[derive(Debug)]
pub(crate) struct WriteRequest<W> {
    pub(crate) at: u64,
    pub(crate) blocks: u64,
    pub(crate) durable: bool,
    parts: Vec<Part<W>>,
}

#[derive(Debug)]
struct Part<W> {
    data: Buf,
    durable: bool,
    append: bool,
    attempts: Option<FailedAttempts>,
    waiter: W,
}

/// Earlier failed attempts of a write.
#[derive(Debug)]
struct FailedAttempts {
    count: u32,
    /// The failure of the write's first attempt.
    failure: Failure,
}

/// Largest number of attempts of a write.
const MAX_ATTEMPTS: u32 = 3;

impl<W> WriteRequest<W> {
    /// True if a part of the merged write has failed before. Such a write is sent by a blocking system call,
    /// because the kernel (6.12) does not refresh its copy of the pointer after a failed non-blocking write.
    pub(crate) fn is_repeated(&self) -> bool {
        self.parts.iter().any(|part| part.attempts.is_some())
    }

    /// Who waits for the write.
    pub(crate) fn waiters(&self) -> impl Iterator<Item = &W> {
        self.parts.iter().map(|part| &part.waiter)
    }

    /// The data of all parts of the merged write in order, without a copy.
    pub(crate) fn data(&self) -> Vec<Buf> {
        self.parts.iter().map(|part| part.data.clone()).collect()
    }
}

#[derive(Debug)]
struct QueuedTask<W> {
    task: ZoneTask,
    /// Earlier failed attempts of the queued write.
    attempts: Option<FailedAttempts>,
    /// True for an append that is sent again as a write.
    append: bool,
    waiter: W,
}

/// A transfer of a conventional zone in flight.
#[derive(Clone, PartialEq, Debug)]
struct Transfer {
    blocks: Range<u64>,
    write: bool,
}

/// The known state and pointer of a zone, and the zone's operations.
#[derive(Debug)]
pub(crate) struct ZoneQueue<W> {
    queue: VecDeque<QueuedTask<W>>,
    /// Acknowledged appends above `solid`: sorted, disjoint, not adjacent.
    landed: Vec<Range<u64>>,
    /// The conventional zone's transfers in flight.
    transfers: Vec<Transfer>,
    /// The end of the blocks that are acknowledged or were written before the device was opened.
    solid: u64,
    /// The write pointer once every request in flight has succeeded.
    sent: u64,
    /// Number of the zone's appends in flight.
    appends: u32,
    /// Number of the sequential zone's reads in flight.
    reads: u32,
    /// Number of resets queued or in flight. Reads submitted after a reset wait for the reset.
    resets: u32,
    /// Number of the flush that makes the zone's cached blocks durable; 0 if no block is cached.
    cached_until: u32,
    /// True if a durable append was acknowledged while an append below it was in flight.
    durable_above_gap: bool,
    state: ZoneState,
    conventional: bool,
    /// True while a write, a zone command or a report is in flight.
    busy: bool,
    /// True while a reset is in flight.
    resetting: bool,
    /// True if the write pointer is unknown until the next report.
    pointer_unknown: bool,
    /// True if the first write to the empty zone failed.
    first_write_failed: bool,
}

impl<W> ZoneQueue<W> {
    /// An idle queue for a zone as a report describes it.
    pub(crate) fn new(info: &ZoneInfo) -> ZoneQueue<W> {
        let mut queue = ZoneQueue {
            queue: VecDeque::new(),
            landed: Vec::new(),
            transfers: Vec::new(),
            solid: 0,
            sent: 0,
            appends: 0,
            reads: 0,
            resets: 0,
            // Blocks written before the device was opened may still be in the drive's cache: flush number 1 covers them.
            cached_until: u32::from(info.state.is_active()),
            durable_above_gap: false,
            state: info.state,
            conventional: info.kind == ZoneKind::Conventional,
            busy: false,
            resetting: false,
            pointer_unknown: false,
            first_write_failed: false,
        };
        queue.apply_report(info);
        queue
    }

    fn apply_report(&mut self, info: &ZoneInfo) {
        self.state = info.state;
        (self.solid, self.sent) = (info.pointer.0, info.pointer.0);
        self.landed.clear();
        self.pointer_unknown = false;
    }

    /// True if the queue is empty and no change is in flight, so that a report sent now reflects every
    /// operation.
    pub(crate) fn is_quiet(&self) -> bool {
        self.queue.is_empty() && !self.is_changing()
    }

    /// The last known state of the zone.
    pub(crate) fn state(&self) -> ZoneState {
        self.state
    }

    /// Which of the drive's limited resources the zone uses, counting requests in flight.
    pub(crate) fn claims(&self) -> Claims {
        let active = self.state.is_active() || (!self.conventional && self.is_changing());
        Claims { active, held_open: self.state == ZoneState::ExplicitOpen }
    }

    /// Records that cached blocks were acknowledged, which flush number `flush` or a later one makes durable.
    pub(crate) fn record_cached(&mut self, flush: u32) {
        if !self.conventional {
            self.cached_until = flush;
        }
    }

    /// Number of the flush that makes the zone's cached blocks durable.
    pub(crate) fn cached_until(&self) -> u32 {
        self.cached_until
    }

    /// True if an append that completes now may lie below a durable block and therefore needs a flush.
    pub(crate) fn needs_flush_below(&self) -> bool {
        self.durable_above_gap
    }

    /// Records the acknowledgement of a write or append to the zone.
    pub(crate) fn record_acknowledged(&mut self, durable: bool) {
        self.durable_above_gap = (self.durable_above_gap || durable) && !self.landed.is_empty();
    }

    fn is_changing(&self) -> bool {
        self.busy || self.appends > 0 || self.transfers.iter().any(|span| span.write)
    }

    /// Queues or starts an operation on the zone.
    pub(crate) fn submit(
        &mut self,
        rules: &QueueRules,
        task: ZoneTask,
        waiter: W,
        out: &mut ShortVec<Step<W>>,
    ) {
        match task {
            ZoneTask::Read { at, into } if self.may_bypass(rules, at, &into) => {
                self.reads += 1;
                out.push(Step::Read { at, into, past: None, waiter });
            }
            task => {
                self.resets += u32::from(matches!(task, ZoneTask::Zone(Action::Reset)));
                self.queue.push_back(QueuedTask { task, attempts: None, append: false, waiter });
                self.dispatch(rules, out);
            }
        }
    }

    /// True if a read may bypass the queue: its blocks are acknowledged and no reset is queued or in flight.
    fn may_bypass(&self, rules: &QueueRules, at: u64, into: &BufMut) -> bool {
        let end = at + blocks_of(rules, into.len());
        let there = end <= self.solid || self.landed.iter().any(|span| span.start <= at && end <= span.end);
        !self.conventional
            && !self.pointer_unknown
            && self.resets == 0
            && self.state != ZoneState::Offline
            && there
    }
}

fn ranges_overlap(a: &Range<u64>, b: &Range<u64>) -> bool {
    a.start < b.end && b.start < a.end
}

fn blocks_of(rules: &QueueRules, bytes: usize) -> u64 {
    bytes.checked_div(rules.block).unwrap_or(0) as u64
}

#[cfg(test)]
mod tests;
