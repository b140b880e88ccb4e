//! Decides which queued operations may be sent, and checks them against the zone's state.

use std::collections::VecDeque;
use std::ops::Range;

use super::{
    Part, QueueRules, Reply, Step, Transfer, WriteRequest, ZoneQueue, ZoneTask, blocks_of, ranges_overlap,
};
use crate::kernel::{Failure, ShortVec};
use crate::{Action, ErrorKind, ZoneEvent, ZoneState};

impl<W> ZoneQueue<W> {
    /// Sends the zone's queued operations until one has to wait.
    pub(super) fn dispatch(&mut self, rules: &QueueRules, out: &mut ShortVec<Step<W>>) {
        while let Some(head) = self.queue.front() {
            if self.pointer_unknown {
                if !self.is_changing() {
                    self.busy = true;
                    out.push(Step::Report);
                }
                return;
            }
            let started = match &head.task {
                ZoneTask::Fence => !self.is_changing() && self.answer_head(Ok(Reply::Unit), out),
                ZoneTask::Read { at, into } => {
                    let (at, len) = (*at, blocks_of(rules, into.len()));
                    self.start_read(rules, at, len, out)
                }
                ZoneTask::Zone(action) => {
                    let action = *action;
                    self.start_command(action, out)
                }
                ZoneTask::Append { data, .. } if rules.native_append && !self.conventional => {
                    let len = blocks_of(rules, data.len());
                    self.start_append(rules, len, out)
                }
                ZoneTask::Write { at, data, .. } if self.conventional => {
                    let span = *at..*at + blocks_of(rules, data.len());
                    self.start_rewrite(rules, span, out)
                }
                ZoneTask::Write { .. } | ZoneTask::Append { .. } => {
                    !self.is_changing() && self.start_write(rules, out)
                }
            };
            if !started {
                return;
            }
        }
        // An inactive zone frees its queue: a drive may have 75,000 zones.
        if !self.state.is_active() && self.queue.capacity() > 0 && !self.is_changing() {
            self.queue = VecDeque::new();
        }
    }

    /// Completes the operation at the head of the zone's queue.
    fn answer_head(&mut self, result: Result<Reply, Failure>, out: &mut ShortVec<Step<W>>) -> bool {
        let Some(item) = self.queue.pop_front() else { return false };
        let result = match (item.task, result, item.attempts) {
            (ZoneTask::Read { into, .. }, Err(failure), _) => Err(failure.with_buffer(into)),
            // A repeated write reports its first failure, unless the zone has become read-only or offline since.
            (_, Err(failure), Some(first)) => Err(match failure.kind {
                ErrorKind::ZoneReadOnly | ErrorKind::ZoneOffline => failure,
                _ => first.failure,
            }),
            (_, result, _) => result,
        };
        out.push(Step::Answer { waiter: item.waiter, result });
        true
    }

    fn start_read(&mut self, rules: &QueueRules, at: u64, len: u64, out: &mut ShortVec<Step<W>>) -> bool {
        let range = at..at + len;
        if self.state == ZoneState::Offline {
            return self.answer_head(Err(Failure::new(ErrorKind::ZoneOffline, String::new())), out);
        }
        if self.conventional {
            if self.transfers.iter().any(|span| span.write && ranges_overlap(&span.blocks, &range)) {
                return false;
            }
        } else if self.resetting || (range.end > self.solid && self.is_changing()) {
            return false;
        }
        // Blocks past the pointer read as zero. The read sent to the drive ends at the pointer, because
        // drives differ past it.
        let there = if self.conventional { len } else { self.solid.saturating_sub(at).min(len) };
        let Some(item) = self.queue.pop_front() else { return false };
        let ZoneTask::Read { mut into, .. } = item.task else { return false };
        if there == 0 {
            into.fill(0);
            out.push(Step::Answer { waiter: item.waiter, result: Ok(Reply::Read(into)) });
            return true;
        }
        let past = (there < len).then(|| {
            let head = into.split_to(there as usize * rules.block);
            std::mem::replace(&mut into, head)
        });
        if self.conventional {
            self.transfers.push(Transfer { blocks: range, write: false });
        } else {
            self.reads += 1;
        }
        out.push(Step::Read { at, into, past, waiter: item.waiter });
        true
    }

    fn start_command(&mut self, action: Action, out: &mut ShortVec<Step<W>>) -> bool {
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
        if let Err(failure) = self.check_event(event) {
            self.resets = self.resets.saturating_sub(u32::from(action == Action::Reset));
            return self.answer_head(Err(failure), out);
        }
        let Some(item) = self.queue.pop_front() else { return false };
        self.busy = true;
        self.resetting = action == Action::Reset;
        out.push(Step::Zone { action, waiter: Some(item.waiter) });
        true
    }

    fn start_append(&mut self, rules: &QueueRules, len: u64, out: &mut ShortVec<Step<W>>) -> bool {
        if self.busy || (self.appends > 0 && self.sent + len > rules.capacity) {
            return false;
        }
        if self.appends == 0
            && let Err(failure) = self.check_write(rules, None, self.sent, len)
        {
            return self.answer_head(Err(failure), out);
        }
        let Some(item) = self.queue.pop_front() else { return false };
        let ZoneTask::Append { data, durable } = item.task else { return false };
        self.appends += 1;
        self.sent += len;
        out.push(Step::Append { data, durable, waiter: item.waiter });
        true
    }

    /// Starts a write to a conventional zone, beside transfers of other blocks.
    fn start_rewrite(&mut self, rules: &QueueRules, span: Range<u64>, out: &mut ShortVec<Step<W>>) -> bool {
        if self.busy || self.transfers.iter().any(|other| ranges_overlap(&other.blocks, &span)) {
            return false;
        }
        if let Err(failure) = self.check_event(ZoneEvent::Write { fills: false }) {
            return self.answer_head(Err(failure), out);
        }
        let Some(item) = self.queue.pop_front() else { return false };
        let ZoneTask::Write { at, data, durable } = item.task else { return false };
        self.transfers.push(Transfer { blocks: span, write: true });
        let blocks = blocks_of(rules, data.len());
        let part = Part { data, durable, append: false, attempts: None, waiter: item.waiter };
        out.push(Step::Write(WriteRequest { at, blocks, durable, parts: vec![part] }));
        true
    }

    /// Starts a write to a sequential zone: the head of the queue, merged with the adjacent writes queued after it.
    fn start_write(&mut self, rules: &QueueRules, out: &mut ShortVec<Step<W>>) -> bool {
        let at = self.sent;
        let mut end = at;
        let mut parts: Vec<Part<W>> = Vec::new();
        while let Some(item) = self.queue.front() {
            let (wanted, len) = match &item.task {
                ZoneTask::Write { at, data, .. } => (Some(*at), blocks_of(rules, data.len())),
                ZoneTask::Append { data, .. } if !rules.native_append => (None, blocks_of(rules, data.len())),
                _ => break,
            };
            // A write that has failed before is sent alone, so that its failure does not fail its neighbours.
            let alone = item.attempts.is_some() || parts.last().is_some_and(|last| last.attempts.is_some());
            if !parts.is_empty() && (alone || end - at + len > rules.max_transfer) {
                break;
            }
            if let Err(failure) = self.check_write(rules, wanted, end, len) {
                // A queued write is checked again when the writes before it have completed, for they may
                // fail.
                if parts.is_empty() {
                    return self.answer_head(Err(failure), out);
                }
                break;
            }
            let Some(item) = self.queue.pop_front() else { break };
            let (ZoneTask::Write { data, durable, .. } | ZoneTask::Append { data, durable }) = item.task
            else {
                break;
            };
            let append = item.append || wanted.is_none();
            parts.push(Part { data, durable, append, attempts: item.attempts, waiter: item.waiter });
            end += len;
        }
        if parts.is_empty() {
            return false;
        }
        self.busy = true;
        self.sent = end;
        // One durable part makes the whole merged write durable: a durable block makes all blocks below it
        // durable.
        let durable = parts.iter().any(|part| part.durable);
        out.push(Step::Write(WriteRequest { at, blocks: end - at, durable, parts }));
        true
    }

    /// Checks a write of `len` blocks at `wanted` (`None` for an append) to a zone whose pointer is at `pointer`.
    fn check_write(
        &self,
        rules: &QueueRules,
        wanted: Option<u64>,
        pointer: u64,
        len: u64,
    ) -> Result<(), Failure> {
        self.check_event(ZoneEvent::Write { fills: false })
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

    /// Checks that the zone's state allows `event`.
    fn check_event(&self, event: ZoneEvent) -> Result<(), Failure> {
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
}
