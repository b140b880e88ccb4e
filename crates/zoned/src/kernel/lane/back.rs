//! What has come back from the kernel.

use std::ops::Range;

use super::{Flight, Item, Lane, Part, Rules, Span, Step, TRIES, Task, Told, Tried, blocks};
use crate::kernel::{Failure, Few};
use crate::{Action, ErrorKind, ZoneEvent, ZoneInfo, ZoneState};

impl<W> Lane<W> {
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

    /// The drive carried the move out. Where that cannot be, it is the report's to say what happened.
    pub(super) fn moved(&mut self, event: ZoneEvent) {
        match self.state.transition(event) {
            Ok(state) => self.state = state,
            Err(_) => self.doubt = true,
        }
    }

    pub(super) fn drop_span(&mut self, blocks: Range<u64>, write: bool) {
        let span = Span { blocks, write };
        if let Some(place) = self.spans.iter().position(|other| *other == span) {
            self.spans.swap_remove(place);
        }
    }
}
