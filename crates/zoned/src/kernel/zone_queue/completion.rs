//! Completions of a zone's kernel requests.

use std::ops::Range;

use super::{
    FailedAttempts, MAX_ATTEMPTS, Part, QueueRules, QueuedTask, Reply, Step, Transfer, WriteRequest,
    ZoneQueue, ZoneTask, blocks_of,
};
use crate::kernel::{Failure, ShortVec};
use crate::{Action, ErrorKind, ZoneEvent, ZoneInfo, ZoneState};

impl<W> ZoneQueue<W> {
    /// Handles the completion of a write.
    pub(crate) fn write_done(
        &mut self,
        rules: &QueueRules,
        write: WriteRequest<W>,
        result: Result<(), Failure>,
        out: &mut ShortVec<Step<W>>,
    ) {
        let WriteRequest { at, blocks: len, parts, .. } = write;
        if self.conventional {
            self.remove_transfer(at..at + len, true);
        } else {
            self.busy = false;
        }
        match result {
            Ok(()) => {
                if !self.conventional {
                    self.solid = at + len;
                    self.apply_event(ZoneEvent::Write { fills: self.solid == rules.capacity });
                }
                let mut offset = at;
                for part in parts {
                    let reply = if part.append { Reply::At(offset) } else { Reply::Unit };
                    offset += blocks_of(rules, part.data.len());
                    out.push(Step::Answer { waiter: part.waiter, result: Ok(reply) });
                }
            }
            Err(failure) => {
                self.pointer_unknown = true;
                self.first_write_failed = rules.block_layer && at == 0;
                self.failed(rules, at, parts, failure, out);
            }
        }
        self.dispatch(rules, out);
    }

    /// Fails the parts of a failed write, or puts them back at the front of the queue for another attempt.
    fn failed(
        &mut self,
        rules: &QueueRules,
        at: u64,
        parts: Vec<Part<W>>,
        failure: Failure,
        out: &mut ShortVec<Step<W>>,
    ) {
        let again = rules.block_layer && !self.conventional && failure.may_come_from_stale_write_pointer();
        let mut offset = at;
        let mut items = Vec::new();
        for part in parts {
            let at = offset;
            offset += blocks_of(rules, part.data.len());
            let attempts =
                part.attempts.unwrap_or_else(|| FailedAttempts { count: 0, failure: failure.duplicate() });
            if again && attempts.count + 1 < MAX_ATTEMPTS {
                let (data, durable) = (part.data, part.durable);
                let task = ZoneTask::Write { at, data, durable };
                let attempts = Some(FailedAttempts { count: attempts.count + 1, ..attempts });
                items.push(QueuedTask { task, attempts, append: part.append, waiter: part.waiter });
            } else {
                // After the last attempt the first failure of the write is reported.
                let failure = if again { attempts.failure } else { failure.duplicate() };
                out.push(Step::Answer { waiter: part.waiter, result: Err(failure) });
            }
        }
        for item in items.into_iter().rev() {
            self.queue.push_front(item);
        }
    }

    /// Handles the completion of an append of `len` blocks. `result` is the append's offset in the zone.
    pub(crate) fn append_done(
        &mut self,
        rules: &QueueRules,
        len: u64,
        waiter: W,
        result: Result<u64, Failure>,
        out: &mut ShortVec<Step<W>>,
    ) {
        self.appends = self.appends.saturating_sub(1);
        let result = result.and_then(|at| {
            // An append's address below the acknowledged blocks or past the capacity is a failure of the
            // drive.
            let fits = at >= self.solid && at.checked_add(len).is_some_and(|end| end <= rules.capacity);
            if fits && !self.landed.iter().any(|span| at < span.end && span.start < at + len) {
                return Ok(at);
            }
            let why = format!("the drive says that it landed at block {at} of the zone, which cannot be");
            Err(Failure::new(ErrorKind::Host, why))
        });
        match result {
            Ok(at) => {
                self.add_landed(at..at + len);
                self.apply_event(ZoneEvent::Write { fills: self.solid == rules.capacity });
                out.push(Step::Answer { waiter, result: Ok(Reply::At(at)) });
            }
            Err(failure) => {
                self.pointer_unknown = true;
                out.push(Step::Answer { waiter, result: Err(failure) });
            }
        }
        // Every append succeeded but their blocks leave a gap: a report is needed to find the pointer.
        self.pointer_unknown |= self.appends == 0 && self.solid != self.sent;
        self.dispatch(rules, out);
    }

    /// Adds an acknowledged append to `solid` or `landed`.
    fn add_landed(&mut self, span: Range<u64>) {
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

    /// Handles the completion of a zone command.
    pub(crate) fn command_done(
        &mut self,
        rules: &QueueRules,
        action: Action,
        waiter: Option<W>,
        result: Result<(), Failure>,
        out: &mut ShortVec<Step<W>>,
    ) {
        self.busy = false;
        self.resetting = false;
        self.resets = self.resets.saturating_sub(u32::from(action == Action::Reset));
        match (&result, action) {
            // A failed reset may have erased the zone: a report is needed.
            (Err(_), Action::Reset) => {
                self.pointer_unknown = true;
                self.solid = 0;
                self.landed.clear();
            }
            (Err(_), _) => self.pointer_unknown = true,
            // A closed zone without content is empty on some drives and closed on others: a report is needed.
            (Ok(()), Action::Close) => {
                self.pointer_unknown = self.sent == 0;
                self.apply_event(ZoneEvent::Close { empty: self.sent == 0 });
            }
            (Ok(()), Action::Open) => self.apply_event(ZoneEvent::Open),
            (Ok(()), Action::Finish) => {
                self.apply_event(ZoneEvent::Finish);
                (self.solid, self.sent) = (rules.capacity, rules.capacity);
            }
            (Ok(()), Action::Reset) => {
                self.apply_event(ZoneEvent::Reset);
                (self.solid, self.sent) = (0, 0);
            }
        }
        if let Some(waiter) = waiter {
            out.push(Step::Answer { waiter, result: result.map(|()| Reply::Unit) });
        }
        self.dispatch(rules, out);
    }

    /// Handles the completion of a read. After a failed read a report is requested, because the zone may have
    /// become offline.
    pub(crate) fn read_done(
        &mut self,
        rules: &QueueRules,
        at: u64,
        len: u64,
        ok: bool,
        out: &mut ShortVec<Step<W>>,
    ) {
        self.pointer_unknown |= !ok;
        if self.conventional {
            self.remove_transfer(at..at + len, false);
        } else {
            self.reads = self.reads.saturating_sub(1);
        }
        self.dispatch(rules, out);
    }

    /// Handles the completion of a report. If the report failed, every queued operation fails.
    pub(crate) fn report_done(
        &mut self,
        rules: &QueueRules,
        result: Result<ZoneInfo, Failure>,
        out: &mut ShortVec<Step<W>>,
    ) {
        self.busy = false;
        match result {
            Ok(info) => {
                self.apply_report(&info);
                if std::mem::take(&mut self.first_write_failed) && info.state == ZoneState::Empty {
                    (self.busy, self.resetting) = (true, true);
                    self.resets += 1;
                    out.push(Step::Zone { action: Action::Reset, waiter: None });
                }
            }
            Err(failure) => {
                let why = format!("an operation before it failed, and so did the report: {}", failure.detail);
                self.fail_all(&Failure::new(failure.kind, why), out);
            }
        }
        self.dispatch(rules, out);
    }

    /// Fails every queued operation of the zone.
    pub(crate) fn fail_all(&mut self, failure: &Failure, out: &mut ShortVec<Step<W>>) {
        self.resets = 0;
        for item in std::mem::take(&mut self.queue) {
            let failure = item.attempts.map_or_else(|| failure.duplicate(), |attempts| attempts.failure);
            let result = match item.task {
                ZoneTask::Read { into, .. } => Err(failure.with_buffer(into)),
                _ => Err(failure),
            };
            out.push(Step::Answer { waiter: item.waiter, result });
        }
    }

    /// Applies an event that the drive has executed. If the state machine forbids the event, a report is requested.
    pub(super) fn apply_event(&mut self, event: ZoneEvent) {
        match self.state.transition(event) {
            Ok(state) => self.state = state,
            Err(_) => self.pointer_unknown = true,
        }
    }

    pub(super) fn remove_transfer(&mut self, blocks: Range<u64>, write: bool) {
        let span = Transfer { blocks, write };
        if let Some(place) = self.transfers.iter().position(|other| *other == span) {
            self.transfers.swap_remove(place);
        }
    }
}
