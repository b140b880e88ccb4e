//! Tests of the zone queue alone; the test plays a drive of one zone.

use std::collections::BTreeMap;

use proptest::prelude::*;

use super::*;
use crate::{Blocks, ErrorKind, ZoneId};

const BLOCK_BYTES: usize = 512;
const CAPACITY_BLOCKS: u64 = 24;

fn queue_rules(native_append: bool) -> QueueRules {
    let block_layer = !native_append;
    QueueRules { block: BLOCK_BYTES, capacity: CAPACITY_BLOCKS, max_transfer: 4, native_append, block_layer }
}

fn info(state: ZoneState, pointer: u64) -> ZoneInfo {
    let (capacity, pointer) = (Blocks(CAPACITY_BLOCKS), Blocks(pointer));
    ZoneInfo { zone: ZoneId(0), kind: ZoneKind::Sequential, state, pointer, capacity }
}

/// A zone queue under test, its steps in flight and its results.
struct Harness {
    queue: ZoneQueue<u32>,
    rules: QueueRules,
    in_flight: Vec<Step<u32>>,
    answers: BTreeMap<u32, Result<Reply, ErrorKind>>,
    next: u32,
}

impl Harness {
    fn new(native_append: bool) -> Harness {
        Harness::over(native_append, &info(ZoneState::Empty, 0))
    }

    fn over(native_append: bool, info: &ZoneInfo) -> Harness {
        let (queue, rules) = (ZoneQueue::new(info), queue_rules(native_append));
        Harness { queue, rules, in_flight: Vec::new(), answers: BTreeMap::new(), next: 0 }
    }

    fn take(&mut self, out: ShortVec<Step<u32>>) {
        for step in out {
            match step {
                Step::Answer { waiter, result } => {
                    let before = self.answers.insert(waiter, result.map_err(|failure| failure.kind));
                    assert!(before.is_none(), "{waiter} is answered twice");
                }
                step => self.in_flight.push(step),
            }
        }
        let count = |what: fn(&Step<u32>) -> bool| self.in_flight.iter().filter(|step| what(step)).count();
        let appends = count(|step| matches!(step, Step::Append { .. }));
        let others = count(|step| matches!(step, Step::Write(_) | Step::Zone { .. } | Step::Report));
        let alone = others <= 1 && (others == 0 || appends == 0);
        assert!(
            alone || self.queue.conventional,
            "{appends} appends and {others} others are in flight together"
        );
    }

    fn submit(&mut self, task: ZoneTask) -> u32 {
        let (waiter, mut out) = (self.next, ShortVec::new());
        self.next += 1;
        self.queue.submit(&self.rules, task, waiter, &mut out);
        self.take(out);
        waiter
    }

    fn write(&mut self, at: u64, blocks: usize) -> u32 {
        self.submit(ZoneTask::Write { at, data: Buf::zeroed(blocks * BLOCK_BYTES), durable: false })
    }

    fn append(&mut self, blocks: usize) -> u32 {
        self.submit(ZoneTask::Append { data: Buf::zeroed(blocks * BLOCK_BYTES), durable: false })
    }

    fn read(&mut self, at: u64, blocks: usize) -> u32 {
        self.submit(ZoneTask::Read { at, into: BufMut::zeroed(blocks * BLOCK_BYTES) })
    }

    /// Completes the queue's step at `index`: an append lands at `place`, a report returns `report`.
    fn complete(&mut self, index: usize, failure: Option<ErrorKind>, place: u64, report: &ZoneInfo) {
        let mut out = ShortVec::new();
        let failed = || failure.map(|kind| Failure::new(kind, String::new()));
        let unit = || failed().map_or(Ok(()), Err);
        let (queue, rules) = (&mut self.queue, &self.rules);
        match self.in_flight.remove(index) {
            Step::Read { at, into, waiter, .. } => {
                let reply = failed().map_or(Ok(Reply::Unit), Err);
                queue.read_done(rules, at, (into.len() / BLOCK_BYTES) as u64, failure.is_none(), &mut out);
                out.push(Step::Answer { waiter, result: reply });
            }
            Step::Write(write) => queue.write_done(rules, write, unit(), &mut out),
            Step::Append { data, waiter, .. } => {
                let len = (data.len() / BLOCK_BYTES) as u64;
                queue.append_done(rules, len, waiter, failed().map_or(Ok(place), Err), &mut out);
            }
            Step::Zone { action, waiter } => queue.command_done(rules, action, waiter, unit(), &mut out),
            Step::Report => queue.report_done(rules, failed().map_or(Ok(*report), Err), &mut out),
            Step::Answer { .. } => unreachable!("answers are not sent"),
        }
        self.take(out);
    }

    /// Completes the queue's step at `index` without a failure.
    fn succeed(&mut self, index: usize) {
        self.complete(index, None, 0, &info(ZoneState::Empty, 0));
    }
}

#[test]
fn adjacent_writes_queued_behind_a_write_are_merged_up_to_the_transfer_limit() {
    let mut harness = Harness::new(false);
    for at in 0..10 {
        harness.write(at, 1);
    }
    let mut sizes = Vec::new();
    while let Some(Step::Write(write)) = harness.in_flight.first() {
        sizes.push((write.at, write.blocks));
        harness.succeed(0);
    }
    assert_eq!(sizes, [(0, 1), (1, 4), (5, 4), (9, 1)]);
    assert_eq!(harness.answers.len(), 10);
}

#[test]
fn an_append_that_may_not_fit_waits_for_the_appends_before_it() {
    let mut harness = Harness::over(true, &info(ZoneState::Closed, CAPACITY_BLOCKS - 3));
    let (first, second, third) = (harness.append(2), harness.append(2), harness.append(1));
    assert_eq!(harness.in_flight.len(), 1, "the second one may fit or not");
    // The first append fails, and the report shows that the append wrote no blocks.
    harness.complete(0, Some(ErrorKind::Media), 0, &info(ZoneState::Closed, 0));
    harness.complete(0, None, 0, &info(ZoneState::Closed, CAPACITY_BLOCKS - 3));
    assert_eq!(harness.in_flight.len(), 2);
    harness.complete(0, None, CAPACITY_BLOCKS - 3, &info(ZoneState::Closed, 0));
    harness.complete(0, None, CAPACITY_BLOCKS - 1, &info(ZoneState::Closed, 0));
    assert!(
        harness.answers[&first].is_err()
            && harness.answers[&second].is_ok()
            && harness.answers[&third].is_ok()
    );
    let late = harness.append(1);
    assert!(matches!(harness.answers[&late], Err(ErrorKind::ZoneFull)), "and nothing was sent");
}

#[test]
fn blocks_are_readable_once_they_are_acknowledged() {
    let mut harness = Harness::over(true, &info(ZoneState::Closed, 4));
    let appends = [harness.append(1), harness.append(1)];
    harness.complete(1, None, 5, &info(ZoneState::Closed, 0));
    harness.read(0, 4);
    harness.read(5, 1);
    assert_eq!(harness.in_flight.len(), 3, "below the pointer, and an append that overtook another");
    harness.read(4, 1);
    assert_eq!(harness.in_flight.len(), 3);
    harness.complete(0, None, 4, &info(ZoneState::Closed, 0));
    assert_eq!(harness.in_flight.len(), 3);
    assert!(appends.iter().all(|waiter| harness.answers[waiter].is_ok()));
}

#[test]
fn after_a_failure_nothing_is_sent_before_the_report() {
    let mut harness = Harness::new(true);
    let (first, second) = (harness.append(1), harness.append(1));
    harness.complete(0, Some(ErrorKind::Media), 0, &info(ZoneState::Empty, 0));
    let behind = harness.write(1, 1);
    assert_eq!(harness.in_flight.len(), 1, "the other append has not come back");
    harness.complete(0, None, 1, &info(ZoneState::Empty, 0));
    assert!(matches!(harness.in_flight.as_slice(), [Step::Report]));
    harness.complete(0, None, 0, &info(ZoneState::ImplicitOpen, 2));
    assert!(matches!(harness.answers[&behind], Err(ErrorKind::NotAtWritePointer)));
    assert!(harness.answers[&first].is_err() && harness.answers[&second].is_ok());
}

#[test]
fn a_failed_report_fails_the_queue_and_the_next_operation_sends_another_report() {
    let mut harness = Harness::new(true);
    harness.append(1);
    harness.complete(0, Some(ErrorKind::Unknown), 0, &info(ZoneState::Empty, 0));
    let behind = harness.append(1);
    harness.complete(0, Some(ErrorKind::Host), 0, &info(ZoneState::Empty, 0));
    assert!(matches!(harness.answers[&behind], Err(ErrorKind::Host)));
    harness.append(1);
    assert!(matches!(harness.in_flight.as_slice(), [Step::Report]));
    harness.complete(0, None, 0, &info(ZoneState::ImplicitOpen, 1));
    assert!(matches!(harness.in_flight.as_slice(), [Step::Append { .. }]));
}

#[test]
fn a_gap_below_landed_appends_causes_a_report() {
    let mut harness = Harness::new(true);
    harness.append(1);
    harness.complete(0, None, 3, &info(ZoneState::Empty, 0));
    harness.append(1);
    assert!(matches!(harness.in_flight.as_slice(), [Step::Report]), "no append landed at block 0");
}

#[test]
fn conventional_writes_run_side_by_side_unless_they_overlap() {
    let conventional = ZoneInfo {
        kind: ZoneKind::Conventional,
        state: ZoneState::Conventional,
        ..info(ZoneState::Empty, 0)
    };
    let mut harness = Harness::over(false, &conventional);
    harness.write(0, 2);
    harness.write(8, 2);
    assert_eq!(harness.in_flight.len(), 2);
    harness.read(1, 1);
    harness.write(4, 1);
    assert_eq!(
        harness.in_flight.len(),
        2,
        "the read waits for what it overlaps, and all behind it for the read"
    );
    harness.succeed(0);
    assert_eq!(harness.in_flight.len(), 3);
    let refused = harness.submit(ZoneTask::Zone(Action::Reset));
    harness.succeed(0);
    harness.succeed(0);
    harness.succeed(0);
    assert!(matches!(harness.answers[&refused], Err(ErrorKind::Conventional)));
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, ..ProptestConfig::default() })]

    /// The zone queue keeps its rules for any operations, failures and reports.
    #[test]
    fn every_operation_completes_exactly_once(
        native: bool,
        moves in prop::collection::vec((0..8_u8, 0..CAPACITY_BLOCKS, 1..4_usize, any::<prop::sample::Index>()), 1..80),
    ) {
        let mut harness = Harness::new(native);
        // Number of blocks that the drive has written.
        let mut pointer = 0;
        let end_one = |harness: &mut Harness, pointer: &mut u64, index: usize, fails: bool| {
            let before = *pointer;
            match (harness.in_flight.get(index), fails) {
                (Some(Step::Write(write)), false) => *pointer = write.at + write.blocks,
                (Some(Step::Append { data, .. }), false) => *pointer += (data.len() / BLOCK_BYTES) as u64,
                (Some(Step::Zone { action: Action::Reset, .. }), false) => *pointer = 0,
                (Some(Step::Zone { action: Action::Finish, .. }), false) => *pointer = CAPACITY_BLOCKS,
                _ => {}
            }
            let state = match *pointer {
                0 => ZoneState::Empty,
                CAPACITY_BLOCKS => ZoneState::Full,
                _ => ZoneState::Closed,
            };
            harness.complete(index, fails.then_some(ErrorKind::Media), before, &info(state, *pointer));
        };
        for (what, at, len, index) in moves {
            match what {
                0 => {
                    harness.append(len);
                }
                1 => {
                    harness.write(at, len);
                }
                2 => {
                    harness.read(at, len);
                }
                3 => {
                    harness.submit(ZoneTask::Zone([Action::Reset, Action::Finish, Action::Open, Action::Close][len]));
                }
                4 => {
                    harness.submit(ZoneTask::Fence);
                }
                _ if harness.in_flight.is_empty() => {}
                5 => {
                    let index = index.index(harness.in_flight.len());
                    end_one(&mut harness, &mut pointer, index, true);
                }
                _ => {
                    let index = index.index(harness.in_flight.len());
                    end_one(&mut harness, &mut pointer, index, false);
                }
            }
        }
        while !harness.in_flight.is_empty() {
            end_one(&mut harness, &mut pointer, 0, false);
        }
        prop_assert!(harness.queue.is_quiet());
        prop_assert_eq!(harness.answers.len(), harness.next as usize);
    }
}
