//! The contents that a database and its checkpoints may have after a power cut.
//!
//! Every key is a register of its own: [`linear`](crate::linear) says whether the writes and reads before the cut and the read
//! after the cut have an order. A write must be found if the write was promised, if another write of its batch is found, or if
//! the log has the write and the write was answered before the beginning of a batch that is found.
//! A merge sets a digit of its counter that no other merge sets: the digit shows how often the merge was applied.
//! A drop of a family deletes the family's keys.
//!
//! A checkpoint is judged by the same rules, with its own beginning and its answer in place of the cut: every write that was
//! answered before the checkpoint began must be found in it.

use std::collections::BTreeMap;

use crate::linear::{Did, Op, Value, is_linearizable};

use super::database::Content;
use super::plan::{
    Act, COUNTER_KEYS, Change, Key, MERGES_PER_COUNTER, STEPS_PER_WRITER, Values, checkpoint_name, step_of,
};
use super::shape::WRITERS;
use crate::model::{Fault, fault};
use crate::plan::Plan;
use crate::report::FailureKind;
use crate::trace::Event;
use crate::{Recorder, Step};

/// Bits of a mark in a trace below the index of a step: they hold the result of a read.
const READ_RESULT_BITS: u32 = 20;

/// The marks of one step in a trace. Places are indices of events.
#[derive(Clone, Copy, Default, Debug)]
struct StepMarks {
    begun: Option<usize>,
    answered: Option<usize>,
    /// The result of the step, if it is a read.
    saw: Value,
    promised: Option<usize>,
    refused: Option<usize>,
}

/// Records that a writer begins a step. An answer is recorded as the attempt of a step of a writer that does not exist.
pub(super) fn mark_begun(recorder: &Recorder, writer: usize, index: usize) {
    recorder.attempt(Plan::step(writer, index));
}

/// Records that a step was answered; `saw`: the result of a read.
pub(super) fn mark_answered(recorder: &Recorder, writer: usize, index: usize, saw: Value) {
    let number = (index as u64) << READ_RESULT_BITS | saw.unwrap_or(0);
    recorder.attempt(Plan::step(WRITERS + writer, usize::try_from(number).unwrap_or(usize::MAX)));
}

/// Judges the database content found after power cuts of one workload.
pub(super) struct Judge {
    values: Values,
    plan: Vec<Vec<Act>>,
    done: Vec<Vec<StepMarks>>,
    /// For each event, the index of the next event that changes the drive.
    next_io: Vec<usize>,
}

/// A workload's history as one cut, or one checkpoint, sees it. Places are indices of events.
struct HistoryView<'a> {
    judge: &'a Judge,
    found: &'a Content,
    /// Steps that began at or after this place have no effect.
    cut: usize,
    /// The history ends at this event: only marks of steps before it count.
    until: usize,
    /// Steps that were answered before this place have taken effect.
    settled: usize,
    /// Only promises of durability made before this event count.
    promises: usize,
    /// The places from and to which the content `found` was read.
    read: (usize, usize),
    /// The place at which the newest found batch began.
    latest: usize,
}

impl Judge {
    pub(super) fn new(values: Values, plan: Vec<Vec<Act>>, events: &[&Event]) -> Judge {
        let mut done = vec![vec![StepMarks::default(); STEPS_PER_WRITER]; WRITERS];
        let mut at = |step: Step, with: &dyn Fn(&mut StepMarks, Value)| {
            let (task, number) = Plan::task_and_index(step);
            let (writer, index, saw) = if task < WRITERS {
                (task, number, 0)
            } else {
                (task - WRITERS, number >> READ_RESULT_BITS, number as u64 & ((1 << READ_RESULT_BITS) - 1))
            };
            if let Some(done) = done.get_mut(writer).and_then(|acts| acts.get_mut(index)) {
                with(done, (saw != 0).then_some(saw));
            }
        };
        for (place, event) in events.iter().enumerate() {
            match event {
                Event::Attempt { step } if Plan::task_and_index(*step).0 < WRITERS => {
                    at(*step, &|done, _| done.begun = Some(place));
                }
                Event::Attempt { step } => {
                    at(*step, &|done, saw| (done.answered, done.saw) = (Some(place), saw));
                }
                Event::Acknowledged { step } => at(*step, &|done, _| done.promised = Some(place)),
                Event::Failed { step } => at(*step, &|done, _| done.refused = Some(place)),
                _ => {}
            }
        }
        let mut next_io = vec![events.len(); events.len()];
        let mut next = events.len();
        for (place, event) in events.iter().enumerate().rev() {
            if let Some(at) = next_io.get_mut(place) {
                *at = next;
            }
            if event.is_io() {
                next = place;
            }
        }
        Judge { values, plan, done, next_io }
    }

    /// The rules that the content found after a cut behind the event `cut` breaks.
    pub(super) fn judge(&self, cut: usize, found: &Content) -> Vec<Fault> {
        let until = self.marks_end(cut);
        let read = (until + 1, until + 2);
        HistoryView { judge: self, found, cut, until, settled: 0, promises: until, read, latest: 0 }.faults()
    }

    /// The rules that the checkpoints found after a cut behind the event `cut` break.
    pub(super) fn judge_checkpoints(&self, cut: usize, found: &BTreeMap<String, Content>) -> Vec<Fault> {
        let until = self.marks_end(cut);
        let mut faults = Vec::new();
        let mut missing = found.clone();
        for (_, done, (writer, index)) in self.steps().filter(|(act, ..)| **act == Act::Checkpoint) {
            let name = checkpoint_name(writer, index);
            let before = |place: Option<usize>| place.filter(|place| *place < until);
            match (missing.remove(&name), done.begun.filter(|begun| *begun < cut)) {
                (Some(content), Some(begun)) => {
                    let answered = before(done.answered).unwrap_or(until);
                    let read = (begun, answered + 1);
                    let (cut, until) = (cut.min(answered), until.min(answered));
                    let view = HistoryView {
                        judge: self,
                        found: &content,
                        cut,
                        until,
                        settled: begun,
                        promises: 0,
                        read,
                        latest: 0,
                    };
                    let of_checkpoint = |mut fault: Fault| {
                        fault.what = format!("checkpoint {name}: {}", fault.what);
                        fault
                    };
                    faults.extend(view.faults().into_iter().map(of_checkpoint));
                }
                (Some(_), None) => {
                    faults.push(fault(FailureKind::Invented, format!("checkpoint {name} was never begun")));
                }
                (None, _) if before(done.promised).is_some() => {
                    faults.push(fault(FailureKind::Lost, format!("checkpoint {name} is missing")));
                }
                (None, _) => {}
            }
        }
        faults.extend(missing.keys().map(|name| fault(FailureKind::Invented, format!("checkpoint {name}"))));
        faults
    }

    /// The place up to which marks count at a cut: marks up to the drive's next change lie before the cut as well as after, so
    /// promises count and new writes do not.
    fn marks_end(&self, cut: usize) -> usize {
        self.next_io.get(cut).copied().unwrap_or(cut)
    }

    fn steps(&self) -> impl Iterator<Item = (&Act, &StepMarks, (usize, usize))> {
        let writers = self.plan.iter().zip(&self.done).enumerate();
        writers.flat_map(|(writer, (acts, done))| {
            acts.iter().zip(done).enumerate().map(move |(index, (act, done))| (act, done, (writer, index)))
        })
    }
}

impl HistoryView<'_> {
    fn faults(mut self) -> Vec<Fault> {
        self.latest = self.begin_of_newest_found_batch();
        let mut faults = Vec::new();
        let registers = self.register_operations();
        for (key, ops) in &registers {
            faults.extend(self.judge_register(key, ops));
        }
        (0..COUNTER_KEYS).for_each(|n| faults.extend(self.judge_counter(&Key::counter_key(n))));
        faults.extend(self.judge_batch_atomicity());
        let counters: Vec<Key> = (0..COUNTER_KEYS).map(Key::counter_key).collect();
        for (family, name) in self.found.keys() {
            let key = Key { family: *family, name: String::from_utf8_lossy(name).into_owned() };
            if !registers.contains_key(&key) && !counters.contains(&key) {
                faults.push(fault(FailureKind::Invented, format!("{} was never written", key.name)));
            }
        }
        faults
    }

    fn lies_before_cut(&self, place: Option<usize>) -> bool {
        place.is_some_and(|place| place < self.until)
    }

    fn value(&self, key: &Key) -> Option<&Vec<u8>> {
        self.found.get(&(key.family, key.name.clone().into_bytes()))
    }

    /// The step whose value a key has in the found content.
    fn step_of_value(&self, key: &Key) -> Value {
        self.value(key).and_then(|value| value.first_chunk()).map(|number| u64::from_le_bytes(*number))
    }

    fn digit(&self, counter: &Key, digit: u32) -> u64 {
        self.step_of_value(counter).unwrap_or(0) >> (2 * digit) & 3
    }

    /// Whether a value or a digit shows that a step's batch is found.
    fn shows(&self, act: &Act, step: (usize, usize)) -> bool {
        let has = |key| self.step_of_value(key).and_then(step_of) == Some(step);
        match act {
            Act::Write { changes, .. } => changes.iter().any(|change| match change {
                Change::Put(key) => has(key),
                Change::Merge(key, digit) => self.digit(key, *digit) > 0,
                _ => false,
            }),
            Act::Ingest(keys) => keys.iter().any(has),
            _ => false,
        }
    }

    /// The place at which the newest found batch began. An ingested table does not count, as it is not in the log.
    fn begin_of_newest_found_batch(&self) -> usize {
        let batches = self.judge.steps().filter(|(act, ..)| matches!(act, Act::Write { .. }));
        let there = batches.filter(|(act, _, step)| self.shows(act, *step));
        there.filter_map(|(_, done, _)| done.begun).filter(|begun| *begun < self.cut).max().unwrap_or(0)
    }

    /// Whether the whole effect of the step must be found.
    fn must_be_found(&self, act: &Act, done: &StepMarks, step: (usize, usize)) -> bool {
        let answered_before = |place: usize| done.answered.is_some_and(|at| at < place);
        done.promised.is_some_and(|at| at < self.promises)
            || answered_before(self.settled)
            || act.is_in_the_log() && answered_before(self.latest)
            || self.shows(act, step)
    }

    /// A write as an operation on a register; `None` if the write had not begun, or was refused.
    fn write_operation(&self, act: &Act, done: &StepMarks, step: (usize, usize), did: Did) -> Option<Op> {
        let begun = done.begun.filter(|begun| *begun < self.cut)?;
        if self.lies_before_cut(done.refused) {
            return None;
        }
        let returned = done.answered.filter(|at| *at < self.until).map(|at| at as u64);
        Some(Op { did, called: begun as u64, returned, certain: self.must_be_found(act, done, step) })
    }

    /// The operations on each key before the cut.
    fn register_operations(&self) -> BTreeMap<Key, Vec<Op>> {
        let mut registers: BTreeMap<Key, Vec<Op>> = BTreeMap::new();
        for (act, done, step) in self.judge.steps() {
            match act {
                Act::Write { changes, .. } => {
                    for (key, set) in changes.iter().flat_map(Change::sets) {
                        let did = Did::Write(set.then(|| super::plan::id(step.0, step.1)));
                        registers.entry(key).or_default().extend(self.write_operation(act, done, step, did));
                    }
                }
                Act::Read(register) => {
                    if let (Some(begun), Some(answered)) = (done.begun, done.answered)
                        && answered < self.until
                    {
                        let read = Op::answered(Did::Read(done.saw), begun as u64, answered as u64);
                        registers.entry(Key::register_key(*register)).or_default().push(read);
                    }
                }
                Act::Ingest(keys) => {
                    for key in keys {
                        let did = Did::Write(Some(super::plan::id(step.0, step.1)));
                        registers
                            .entry(key.clone())
                            .or_default()
                            .extend(self.write_operation(act, done, step, did));
                    }
                }
                Act::DropFamily(family) => {
                    for key in Key::own(*family) {
                        let ops = registers.entry(key).or_default();
                        ops.extend(self.write_operation(act, done, step, Did::Write(None)));
                    }
                }
                Act::Flush | Act::FlushPast | Act::Sync | Act::CreateFamily(_) | Act::Checkpoint => {}
            }
        }
        registers
    }

    fn judge_register(&self, key: &Key, ops: &[Op]) -> Option<Fault> {
        let number = self.step_of_value(key);
        if let Some(found) = self.value(key)
            && number.is_none_or(|id| self.judge.values.of(id) != *found)
        {
            return Some(fault(FailureKind::Invented, format!("{} has bytes that no step wrote", key.name)));
        }
        let (from, to) = self.read;
        let ops = [ops, &[Op::answered(Did::Read(number), from as u64, to as u64)]].concat();
        if is_linearizable(&ops) {
            return None;
        }
        let written = number.is_none() || ops.iter().any(|op| op.did == Did::Write(number));
        let kind = if written { FailureKind::Lost } else { FailureKind::Invented };
        let what = number.map_or_else(|| "nothing".to_owned(), |id| format!("{id} of {:?}", step_of(id)));
        Some(fault(
            kind,
            format!("{} has {what}: no order explains it: {}", key.name, describe_operations(&ops)),
        ))
    }

    fn judge_counter(&self, key: &Key) -> Vec<Fault> {
        let mut faults = Vec::new();
        let mut merges: BTreeMap<u32, (&StepMarks, bool)> = BTreeMap::new();
        for (act, done, step) in self.judge.steps() {
            let Act::Write { changes, .. } = act else { continue };
            for change in changes {
                if let Change::Merge(counter, digit) = change
                    && counter == key
                {
                    merges.insert(*digit, (done, self.must_be_found(act, done, step)));
                }
            }
        }
        for digit in 0..=MERGES_PER_COUNTER {
            let times = self.digit(key, digit);
            let merge =
                merges.get(&digit).filter(|(done, _)| done.begun.is_some_and(|begun| begun < self.cut));
            let what = match merge {
                None if times > 0 => (FailureKind::Invented, "was never written"),
                Some(_) if times > 1 => (FailureKind::Invented, "was done more than once"),
                Some((_, true)) if times == 0 => (FailureKind::Lost, "is missing"),
                _ => continue,
            };
            faults.push(fault(what.0, format!("merge {digit} of {} {}", key.name, what.1)));
        }
        faults
    }

    fn judge_batch_atomicity(&self) -> Option<Fault> {
        let [p, q] = Key::paired_keys().map(|key| self.step_of_value(&key));
        (p != q).then(|| fault(FailureKind::Lost, format!("a batch is torn: {p:?} and {q:?}")))
    }
}

/// The last operations of a history, for the description of a fault.
fn describe_operations(ops: &[Op]) -> String {
    let mut ops = ops.to_vec();
    ops.sort_by_key(|op| op.called);
    let skip = ops.len().saturating_sub(12);
    let tell = |op: &Op| {
        let end = op.returned.map_or_else(|| "?".to_owned(), |end| end.to_string());
        format!("{:?}{} {}-{end}", op.did, if op.certain { "" } else { " perhaps" }, op.called)
    };
    ops.iter().skip(skip).map(tell).collect::<Vec<_>>().join(", ")
}
