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

use std::collections::VecDeque;
use std::ops::Range;

use crate::kernel::{Failure, Few};
use crate::{Action, Buf, BufMut, ErrorKind, ZoneEvent, ZoneInfo, ZoneKind, ZoneState};

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

    /// A write came back.
    pub(crate) fn wrote(
        &mut self,
        rules: &Rules,
        flight: Flight<W>,
        result: Result<(), Failure>,
        out: &mut Few<Step<W>>,
    ) {
        let Flight { at, blocks: len, parts, .. } = flight;
        if self.conventional {
            self.drop_span(at..at + len, true);
        } else {
            self.busy = false;
        }
        match result {
            Ok(()) => {
                if !self.conventional {
                    self.solid = at + len;
                    self.moved(ZoneEvent::Write { fills: self.solid == rules.capacity });
                }
                let mut offset = at;
                for part in parts {
                    let told = if part.append { Told::At(offset) } else { Told::Unit };
                    offset += blocks(rules, part.data.len());
                    out.push(Step::Answer { waiter: part.waiter, result: Ok(told) });
                }
            }
            Err(failure) => {
                self.doubt = true;
                self.stuck = rules.block_layer && at == 0;
                self.failed(rules, at, parts, failure, out);
            }
        }
        self.pump(rules, out);
    }

    /// The parts of a failed write are answered, or stand in front of the queue again.
    fn failed(
        &mut self,
        rules: &Rules,
        at: u64,
        parts: Vec<Part<W>>,
        failure: Failure,
        out: &mut Few<Step<W>>,
    ) {
        let again = rules.block_layer && !self.conventional && failure.may_be_lost_track();
        let mut offset = at;
        let mut items = Vec::new();
        for part in parts {
            let at = offset;
            offset += blocks(rules, part.data.len());
            let tried = part.tried.unwrap_or_else(|| Tried { times: 0, failure: failure.again() });
            if again && tried.times + 1 < TRIES {
                let (data, durable) = (part.data, part.durable);
                let task = Task::Write { at, data, durable };
                let tried = Some(Tried { times: tried.times + 1, ..tried });
                items.push(Item { task, tried, append: part.append, waiter: part.waiter });
            } else {
                // A limit or a worn zone says more than what it looked like at first.
                let failure = if again { tried.failure } else { failure.again() };
                out.push(Step::Answer { waiter: part.waiter, result: Err(failure) });
            }
        }
        for item in items.into_iter().rev() {
            self.queue.push_front(item);
        }
    }

    /// An append of `len` blocks came back: where it landed.
    pub(crate) fn appended(
        &mut self,
        rules: &Rules,
        len: u64,
        waiter: W,
        result: Result<u64, Failure>,
        out: &mut Few<Step<W>>,
    ) {
        self.appends = self.appends.saturating_sub(1);
        let result = result.and_then(|at| {
            // Whatever the drive says, a place that cannot be is no success.
            let fits = at >= self.solid && at.checked_add(len).is_some_and(|end| end <= rules.capacity);
            if fits && !self.landed.iter().any(|span| at < span.end && span.start < at + len) {
                return Ok(at);
            }
            let why = format!("the drive says that it landed at block {at} of the zone, which cannot be");
            Err(Failure::new(ErrorKind::Host, why))
        });
        match result {
            Ok(at) => {
                self.land(at..at + len);
                self.moved(ZoneEvent::Write { fills: self.solid == rules.capacity });
                out.push(Step::Answer { waiter, result: Ok(Told::At(at)) });
            }
            Err(failure) => {
                self.doubt = true;
                out.push(Step::Answer { waiter, result: Err(failure) });
            }
        }
        // All came back well, and yet there is a gap: only the drive knows.
        self.doubt |= self.appends == 0 && self.solid != self.sent;
        self.pump(rules, out);
    }

    /// Notes an acknowledged append.
    fn land(&mut self, span: Range<u64>) {
        let place = self.landed.partition_point(|other| other.end < span.start);
        let mut span = span;
        while let Some(next) = self.landed.get(place).filter(|next| next.start <= span.end) {
            span = span.start.min(next.start)..span.end.max(next.end);
            self.landed.remove(place);
        }
        if span.start <= self.solid {
            self.solid = self.solid.max(span.end);
        } else {
            self.landed.insert(place, span);
        }
    }

    /// A zone command came back.
    pub(crate) fn acted(
        &mut self,
        rules: &Rules,
        action: Action,
        waiter: Option<W>,
        result: Result<(), Failure>,
        out: &mut Few<Step<W>>,
    ) {
        self.busy = false;
        self.clearing = false;
        self.resets = self.resets.saturating_sub(u32::from(action == Action::Reset));
        match (&result, action) {
            // What a failed reset left of the content, the report says.
            (Err(_), Action::Reset) => {
                self.doubt = true;
                self.solid = 0;
                self.landed.clear();
            }
            (Err(_), _) => self.doubt = true,
            // Drives differ: without content it may be empty again, or closed. The report says.
            (Ok(()), Action::Close) => {
                self.doubt = self.sent == 0;
                self.moved(ZoneEvent::Close { empty: self.sent == 0 });
            }
            (Ok(()), Action::Open) => self.moved(ZoneEvent::Open),
            (Ok(()), Action::Finish) => {
                self.moved(ZoneEvent::Finish);
                (self.solid, self.sent) = (rules.capacity, rules.capacity);
            }
            (Ok(()), Action::Reset) => {
                self.moved(ZoneEvent::Reset);
                (self.solid, self.sent) = (0, 0);
            }
        }
        if let Some(waiter) = waiter {
            out.push(Step::Answer { waiter, result: result.map(|()| Told::Unit) });
        }
        self.pump(rules, out);
    }

    /// A read came back. One that failed may be the first sign of a worn zone.
    pub(crate) fn read_over(&mut self, rules: &Rules, at: u64, len: u64, ok: bool, out: &mut Few<Step<W>>) {
        self.doubt |= !ok;
        if self.conventional {
            self.drop_span(at..at + len, false);
        } else {
            self.reads = self.reads.saturating_sub(1);
        }
        self.pump(rules, out);
    }

    /// The report that was asked for came back. Without one, whatever waits for it fails.
    pub(crate) fn reported(
        &mut self,
        rules: &Rules,
        result: Result<ZoneInfo, Failure>,
        out: &mut Few<Step<W>>,
    ) {
        self.busy = false;
        match result {
            Ok(info) => {
                self.learn(&info);
                if std::mem::take(&mut self.stuck) && info.state == ZoneState::Empty {
                    (self.busy, self.clearing) = (true, true);
                    self.resets += 1;
                    out.push(Step::Zone { action: Action::Reset, waiter: None });
                }
            }
            Err(failure) => {
                let why = format!("an operation before it failed, and so did the report: {}", failure.detail);
                self.give_up(&Failure::new(failure.kind, why), out);
            }
        }
        self.pump(rules, out);
    }

    /// Fails whatever is queued.
    pub(crate) fn give_up(&mut self, failure: &Failure, out: &mut Few<Step<W>>) {
        self.resets = 0;
        for item in std::mem::take(&mut self.queue) {
            let failure = item.tried.map_or_else(|| failure.again(), |tried| tried.failure);
            let result = match item.task {
                Task::Read { into, .. } => Err(failure.with_buffer(into)),
                _ => Err(failure),
            };
            out.push(Step::Answer { waiter: item.waiter, result });
        }
    }

    /// Sends what may go out.
    fn pump(&mut self, rules: &Rules, out: &mut Few<Step<W>>) {
        while let Some(head) = self.queue.front() {
            if self.doubt {
                if !self.is_changing() {
                    self.busy = true;
                    out.push(Step::Report);
                }
                return;
            }
            let went = match &head.task {
                Task::Fence => !self.is_changing() && self.answer(Ok(Told::Unit), out),
                Task::Read { at, into } => {
                    let (at, len) = (*at, blocks(rules, into.len()));
                    self.start_read(rules, at, len, out)
                }
                Task::Zone(action) => {
                    let action = *action;
                    self.start_command(action, out)
                }
                Task::Append { data, .. } if rules.native_append && !self.conventional => {
                    let len = blocks(rules, data.len());
                    self.start_append(rules, len, out)
                }
                Task::Write { at, data, .. } if self.conventional => {
                    let span = *at..*at + blocks(rules, data.len());
                    self.start_rewrite(rules, span, out)
                }
                Task::Write { .. } | Task::Append { .. } => {
                    !self.is_changing() && self.start_write(rules, out)
                }
            };
            if !went {
                return;
            }
        }
        // A zone that is done with gives its room back: there may be very many.
        if !self.state.is_active() && self.queue.capacity() > 0 && !self.is_changing() {
            self.queue = VecDeque::new();
        }
    }

    /// Answers the head of the queue.
    fn answer(&mut self, result: Result<Told, Failure>, out: &mut Few<Step<W>>) -> bool {
        let Some(item) = self.queue.pop_front() else { return false };
        let result = match (item.task, result, item.tried) {
            (Task::Read { into, .. }, Err(failure), _) => Err(failure.with_buffer(into)),
            // It did not land, and its place is taken: the first failure is the reason, if the zone is not.
            (_, Err(failure), Some(first)) => Err(match failure.kind {
                ErrorKind::ZoneReadOnly | ErrorKind::ZoneOffline => failure,
                _ => first.failure,
            }),
            (_, result, _) => result,
        };
        out.push(Step::Answer { waiter: item.waiter, result });
        true
    }

    fn start_read(&mut self, rules: &Rules, at: u64, len: u64, out: &mut Few<Step<W>>) -> bool {
        let range = at..at + len;
        if self.state == ZoneState::Offline {
            return self.answer(Err(Failure::new(ErrorKind::ZoneOffline, String::new())), out);
        }
        if self.conventional {
            if self.spans.iter().any(|span| span.write && overlap(&span.blocks, &range)) {
                return false;
            }
        } else if self.clearing || (range.end > self.solid && self.is_changing()) {
            return false;
        }
        // Past the pointer a drive may say anything, or refuse: it is answered here, as zero.
        let there = if self.conventional { len } else { self.solid.saturating_sub(at).min(len) };
        let Some(item) = self.queue.pop_front() else { return false };
        let Task::Read { mut into, .. } = item.task else { return false };
        if there == 0 {
            into.fill(0);
            out.push(Step::Answer { waiter: item.waiter, result: Ok(Told::Read(into)) });
            return true;
        }
        let past = (there < len).then(|| {
            let head = into.split_to(there as usize * rules.block);
            std::mem::replace(&mut into, head)
        });
        if self.conventional {
            self.spans.push(Span { blocks: range, write: false });
        } else {
            self.reads += 1;
        }
        out.push(Step::Read { at, into, past, waiter: item.waiter });
        true
    }

    fn start_command(&mut self, action: Action, out: &mut Few<Step<W>>) -> bool {
        let clears = matches!(action, Action::Reset | Action::Finish);
        if self.is_changing() || (clears && self.reads > 0) {
            return false;
        }
        let event = match action {
            Action::Open => ZoneEvent::Open,
            Action::Close => ZoneEvent::Close { empty: self.sent == 0 },
            Action::Finish => ZoneEvent::Finish,
            Action::Reset => ZoneEvent::Reset,
        };
        if let Err(failure) = self.allows(event) {
            self.resets = self.resets.saturating_sub(u32::from(action == Action::Reset));
            return self.answer(Err(failure), out);
        }
        let Some(item) = self.queue.pop_front() else { return false };
        self.busy = true;
        self.clearing = action == Action::Reset;
        out.push(Step::Zone { action, waiter: Some(item.waiter) });
        true
    }

    fn start_append(&mut self, rules: &Rules, len: u64, out: &mut Few<Step<W>>) -> bool {
        if self.busy || (self.appends > 0 && self.sent + len > rules.capacity) {
            return false;
        }
        if self.appends == 0
            && let Err(failure) = self.takes(rules, None, self.sent, len)
        {
            return self.answer(Err(failure), out);
        }
        let Some(item) = self.queue.pop_front() else { return false };
        let Task::Append { data, durable } = item.task else { return false };
        self.appends += 1;
        self.sent += len;
        out.push(Step::Append { data, durable, waiter: item.waiter });
        true
    }

    /// A write to a conventional zone: beside any other that it does not touch.
    fn start_rewrite(&mut self, rules: &Rules, span: Range<u64>, out: &mut Few<Step<W>>) -> bool {
        if self.busy || self.spans.iter().any(|other| overlap(&other.blocks, &span)) {
            return false;
        }
        if let Err(failure) = self.allows(ZoneEvent::Write { fills: false }) {
            return self.answer(Err(failure), out);
        }
        let Some(item) = self.queue.pop_front() else { return false };
        let Task::Write { at, data, durable } = item.task else { return false };
        self.spans.push(Span { blocks: span, write: true });
        let blocks = blocks(rules, data.len());
        let part = Part { data, durable, append: false, tried: None, waiter: item.waiter };
        out.push(Step::Write(Flight { at, blocks, durable, parts: vec![part] }));
        true
    }

    /// A write to a sequential zone: the head of the queue, and behind it what follows on.
    fn start_write(&mut self, rules: &Rules, out: &mut Few<Step<W>>) -> bool {
        let at = self.sent;
        let mut end = at;
        let mut parts: Vec<Part<W>> = Vec::new();
        while let Some(item) = self.queue.front() {
            let (wanted, len) = match &item.task {
                Task::Write { at, data, .. } => (Some(*at), blocks(rules, data.len())),
                Task::Append { data, .. } if !rules.native_append => (None, blocks(rules, data.len())),
                _ => break,
            };
            // What failed once goes alone, so that its neighbours do not suffer for it again.
            let alone = item.tried.is_some() || parts.last().is_some_and(|last| last.tried.is_some());
            if !parts.is_empty() && (alone || end - at + len > rules.max_transfer) {
                break;
            }
            if let Err(failure) = self.takes(rules, wanted, end, len) {
                // Behind a write that may yet fail it is too early to judge.
                if parts.is_empty() {
                    return self.answer(Err(failure), out);
                }
                break;
            }
            let Some(item) = self.queue.pop_front() else { break };
            let (Task::Write { data, durable, .. } | Task::Append { data, durable }) = item.task else {
                break;
            };
            let append = item.append || wanted.is_none();
            parts.push(Part { data, durable, append, tried: item.tried, waiter: item.waiter });
            end += len;
        }
        if parts.is_empty() {
            return false;
        }
        self.busy = true;
        self.sent = end;
        // Durable for one is durable for all: a durable block makes the blocks below it durable in any case.
        let durable = parts.iter().any(|part| part.durable);
        out.push(Step::Write(Flight { at, blocks: end - at, durable, parts }));
        true
    }

    /// Whether the zone takes `len` blocks at `wanted` when its pointer is at `pointer`.
    fn takes(&self, rules: &Rules, wanted: Option<u64>, pointer: u64, len: u64) -> Result<(), Failure> {
        self.allows(ZoneEvent::Write { fills: false })
            .map_err(|failure| failure.at(wanted.unwrap_or(pointer)))?;
        if let Some(wanted) = wanted
            && wanted != pointer
        {
            let kind = ErrorKind::NotAtWritePointer;
            let why = format!("the pointer is {pointer} blocks into the zone");
            return Err(Failure::new(kind, why).at(wanted));
        }
        if pointer + len > rules.capacity {
            let why = format!("{len} blocks, {} left", rules.capacity.saturating_sub(pointer));
            return Err(Failure::new(ErrorKind::ZoneFull, why).at(pointer));
        }
        Ok(())
    }

    /// Whether the zone's state allows the move.
    fn allows(&self, event: ZoneEvent) -> Result<(), Failure> {
        self.state.transition(event).map(drop).map_err(|illegal| {
            let write = matches!(event, ZoneEvent::Write { .. });
            let kind = match illegal.from {
                ZoneState::Conventional => ErrorKind::Conventional,
                ZoneState::ReadOnly => ErrorKind::ZoneReadOnly,
                ZoneState::Offline => ErrorKind::ZoneOffline,
                ZoneState::Full if write => ErrorKind::ZoneFull,
                _ => ErrorKind::IllegalMove,
            };
            Failure::new(kind, format!("the zone is {:?}", self.state))
        })
    }

    /// The drive carried the move out. Where that cannot be, it is the report's to say what happened.
    fn moved(&mut self, event: ZoneEvent) {
        match self.state.transition(event) {
            Ok(state) => self.state = state,
            Err(_) => self.doubt = true,
        }
    }

    fn drop_span(&mut self, blocks: Range<u64>, write: bool) {
        let span = Span { blocks, write };
        if let Some(place) = self.spans.iter().position(|other| *other == span) {
            self.spans.swap_remove(place);
        }
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
