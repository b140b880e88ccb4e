//! One zone's operations, in order: what has been asked, what is with the kernel, what may go out next.
//!
//! Neither the kernel's scheduler nor its write plugging is trusted with the order: of a sequential zone at most one
//! write (neighbours merged into it) is with the kernel at a time, or one zone command, or, where the drive has
//! appends, any number of those. What the zone's state forbids is refused here, when its turn comes, and never sent;
//! the limits on open and active zones are left to the drive, which alone knows what it has closed by itself.
//!
//! ```text
//!   submit --> queue --> pump --> Step (to the kernel, or an answer)
//!                         ^                  |
//!                         +-- wrote, appended, acted, reported, read_over
//! ```
//!
//! No clock, no lock, no thread: the device holds the lane's lock, and carries the steps out after it let go.
//!
//! After a failure the pointer is *in doubt*: nothing goes out until everything has come back and a report has said
//! how the zone is.

mod back;
mod pump;

use std::collections::VecDeque;
use std::ops::Range;

use crate::kernel::{Failure, Few};
use crate::{Action, Buf, BufMut, ZoneInfo, ZoneKind, ZoneState};

/// What the lanes of a device have in common.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Rules {
    /// Bytes in a block.
    pub(crate) block: usize,
    /// Writable blocks of a sequential zone.
    pub(crate) capacity: u64,
    /// The longest write, merged ones too.
    pub(crate) max_transfer: u64,
    /// Whether the drive has appends; otherwise they are writes at the pointer.
    pub(crate) native_append: bool,
    /// Whether the block layer lies between, which keeps pointers of its own and fails writes at the right place when it
    /// has lost track of one. So a write that failed without moving the pointer is sent again, alone, after the
    /// report, which puts that right; and an empty zone whose first write failed is reset, because of a drive with
    /// several paths the report does not reach the path's own memory (kernel 6.12).
    pub(crate) block_layer: bool,
}

/// An operation of a zone. Addresses are blocks from the zone's start.
#[derive(Debug)]
pub(crate) enum Task {
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
    /// Answered when everything before it is over.
    Fence,
}

/// What an operation is told.
#[derive(Debug)]
pub(crate) enum Told {
    Unit,
    At(u64),
    Read(BufMut),
}

/// What is to be done now. Each goes out exactly once; those for the kernel come back through a method of the lane.
#[derive(Debug)]
pub(crate) enum Step<W> {
    /// Comes back through [`Lane::read_over`]. `past`, the rest of the buffer, lies past the pointer: zero.
    Read { at: u64, into: BufMut, past: Option<BufMut>, waiter: W },
    /// Comes back through [`Lane::wrote`].
    Write(Flight<W>),
    /// Comes back through [`Lane::appended`].
    Append { data: Buf, durable: bool, waiter: W },
    /// Comes back through [`Lane::acted`]. Without a waiter it is the lane's own.
    Zone { action: Action, waiter: Option<W> },
    /// Comes back through [`Lane::reported`].
    Report,
    /// An operation is over.
    Answer { waiter: W, result: Result<Told, Failure> },
}

/// What a zone claims of what a drive has a limited number of.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct Claims {
    pub(crate) active: bool,
    pub(crate) held_open: bool,
}

/// A write, perhaps of several operations.
#[derive(Debug)]
pub(crate) struct Flight<W> {
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
    tried: Option<Tried>,
    waiter: W,
}

/// A write failed before.
#[derive(Debug)]
struct Tried {
    times: u32,
    /// As what it failed first.
    failure: Failure,
}

/// How often a write is sent at most.
const TRIES: u32 = 3;

impl<W> Flight<W> {
    /// Whether it failed before: it goes by a system call that blocks, for the kernel (6.12) forgets to look at the
    /// pointer anew when it fails a write that must not block.
    pub(crate) fn is_repeated(&self) -> bool {
        self.parts.iter().any(|part| part.tried.is_some())
    }

    /// The bytes, one part behind the other. Copies nothing.
    pub(crate) fn data(&self) -> Vec<Buf> {
        self.parts.iter().map(|part| part.data.clone()).collect()
    }
}

#[derive(Debug)]
struct Item<W> {
    task: Task,
    /// Of a write that failed: how often, and whether it is an append in truth.
    tried: Option<Tried>,
    append: bool,
    waiter: W,
}

/// A transfer of a conventional zone that is with the kernel.
#[derive(Clone, PartialEq, Debug)]
struct Span {
    blocks: Range<u64>,
    write: bool,
}

/// A zone: its state and pointer as far as they are known, and its operations.
#[derive(Debug)]
pub(crate) struct Lane<W> {
    queue: VecDeque<Item<W>>,
    /// Acknowledged appends above `solid`, in order, none touching the next.
    landed: Vec<Range<u64>>,
    /// Transfers of a conventional zone with the kernel.
    spans: Vec<Span>,
    /// Blocks below are acknowledged, or were there before.
    solid: u64,
    /// Where the pointer is when everything with the kernel has landed.
    sent: u64,
    /// Appends with the kernel.
    appends: u32,
    /// Reads of a sequential zone with the kernel.
    reads: u32,
    /// Resets in the queue or with the kernel: reads behind them wait.
    resets: u32,
    /// The flush that makes the cached blocks of this zone durable, by its number; 0 where there are none.
    cached_until: u32,
    /// A durable append was acknowledged while one below it was on its way.
    overtaken: bool,
    state: ZoneState,
    conventional: bool,
    /// A write, a zone command or a report is with the kernel.
    busy: bool,
    /// What is with the kernel is a reset.
    clearing: bool,
    /// The pointer is not known.
    doubt: bool,
    /// The first write to an empty zone failed.
    stuck: bool,
}

impl<W> Lane<W> {
    /// A zone as a report describes it, with nothing to do.
    pub(crate) fn new(info: &ZoneInfo) -> Lane<W> {
        let mut lane = Lane {
            queue: VecDeque::new(),
            landed: Vec::new(),
            spans: Vec::new(),
            solid: 0,
            sent: 0,
            appends: 0,
            reads: 0,
            resets: 0,
            // Whoever wrote before may have left it in the drive's cache: the first flush of all.
            cached_until: u32::from(info.state.is_active()),
            overtaken: false,
            state: info.state,
            conventional: info.kind == ZoneKind::Conventional,
            busy: false,
            clearing: false,
            doubt: false,
            stuck: false,
        };
        lane.learn(info);
        lane
    }

    fn learn(&mut self, info: &ZoneInfo) {
        self.state = info.state;
        (self.solid, self.sent) = (info.pointer.0, info.pointer.0);
        self.landed.clear();
        self.doubt = false;
    }

    /// Whether nothing is queued or changes the zone: what a report says now is all that was asked so far.
    pub(crate) fn is_quiet(&self) -> bool {
        self.queue.is_empty() && !self.is_changing()
    }

    /// What is known of the zone's state.
    pub(crate) fn state(&self) -> ZoneState {
        self.state
    }

    /// What the zone claims of the drive, what is with the kernel included.
    pub(crate) fn claims(&self) -> Claims {
        let active = self.state.is_active() || (!self.conventional && self.is_changing());
        Claims { active, held_open: self.state == ZoneState::ExplicitOpen }
    }

    /// Cached blocks were acknowledged: flush number `flush`, or a later one, makes them durable.
    pub(crate) fn cached(&mut self, flush: u32) {
        if !self.conventional {
            self.cached_until = flush;
        }
    }

    /// The flush that the blocks below a durable one need to be durable too.
    pub(crate) fn cached_until(&self) -> u32 {
        self.cached_until
    }

    /// Whether what comes back now may lie below a durable block, and needs a flush for that.
    pub(crate) fn is_overtaken(&self) -> bool {
        self.overtaken
    }

    /// Something was acknowledged, `durable` or not.
    pub(crate) fn note(&mut self, durable: bool) {
        self.overtaken = (self.overtaken || durable) && !self.landed.is_empty();
    }

    fn is_changing(&self) -> bool {
        self.busy || self.appends > 0 || self.spans.iter().any(|span| span.write)
    }

    /// An operation is asked for.
    pub(crate) fn submit(&mut self, rules: &Rules, task: Task, waiter: W, out: &mut Few<Step<W>>) {
        match task {
            Task::Read { at, into } if self.may_pass(rules, at, &into) => {
                self.reads += 1;
                out.push(Step::Read { at, into, past: None, waiter });
            }
            task => {
                self.resets += u32::from(matches!(task, Task::Zone(Action::Reset)));
                self.queue.push_back(Item { task, tried: None, append: false, waiter });
                self.pump(rules, out);
            }
        }
    }

    /// Whether a read overtakes the queue: what it reads is acknowledged, and no reset stands before it.
    fn may_pass(&self, rules: &Rules, at: u64, into: &BufMut) -> bool {
        let end = at + blocks(rules, into.len());
        let there = end <= self.solid || self.landed.iter().any(|span| span.start <= at && end <= span.end);
        !self.conventional && !self.doubt && self.resets == 0 && self.state != ZoneState::Offline && there
    }
}

fn overlap(a: &Range<u64>, b: &Range<u64>) -> bool {
    a.start < b.end && b.start < a.end
}

fn blocks(rules: &Rules, bytes: usize) -> u64 {
    bytes.checked_div(rules.block).unwrap_or(0) as u64
}

#[cfg(test)]
#[path = "lane_tests.rs"]
mod tests;
