//! The lane alone: what goes out when, with a drive of one zone that the test plays.

use std::collections::BTreeMap;

use proptest::prelude::*;

use super::*;
use crate::{Blocks, ErrorKind, ZoneId};

const BLOCK: usize = 512;
const CAPACITY: u64 = 24;

fn rules(native_append: bool) -> Rules {
    let block_layer = !native_append;
    Rules { block: BLOCK, capacity: CAPACITY, max_transfer: 4, native_append, block_layer }
}

fn info(state: ZoneState, pointer: u64) -> ZoneInfo {
    let (capacity, pointer) = (Blocks(CAPACITY), Blocks(pointer));
    ZoneInfo { zone: ZoneId(0), kind: ZoneKind::Sequential, state, pointer, capacity }
}

/// A lane, what is with the kernel, and what was answered.
struct Bench {
    lane: Lane<u32>,
    rules: Rules,
    flying: Vec<Step<u32>>,
    answers: BTreeMap<u32, Result<Told, ErrorKind>>,
    next: u32,
}

impl Bench {
    fn new(native_append: bool) -> Bench {
        Bench::over(native_append, &info(ZoneState::Empty, 0))
    }

    fn over(native_append: bool, info: &ZoneInfo) -> Bench {
        let (lane, rules) = (Lane::new(info), rules(native_append));
        Bench { lane, rules, flying: Vec::new(), answers: BTreeMap::new(), next: 0 }
    }

    fn take(&mut self, out: Few<Step<u32>>) {
        for step in out {
            match step {
                Step::Answer { waiter, result } => {
                    let before = self.answers.insert(waiter, result.map_err(|failure| failure.kind));
                    assert!(before.is_none(), "{waiter} is answered twice");
                }
                step => self.flying.push(step),
            }
        }
        let count = |what: fn(&Step<u32>) -> bool| self.flying.iter().filter(|step| what(step)).count();
        let appends = count(|step| matches!(step, Step::Append { .. }));
        let others = count(|step| matches!(step, Step::Write(_) | Step::Zone { .. } | Step::Report));
        let alone = others <= 1 && (others == 0 || appends == 0);
        assert!(alone || self.lane.conventional, "{appends} appends and {others} others fly together");
    }

    fn ask(&mut self, task: Task) -> u32 {
        let (waiter, mut out) = (self.next, Few::new());
        self.next += 1;
        self.lane.submit(&self.rules, task, waiter, &mut out);
        self.take(out);
        waiter
    }

    fn write(&mut self, at: u64, blocks: usize) -> u32 {
        self.ask(Task::Write { at, data: Buf::zeroed(blocks * BLOCK), durable: false })
    }

    fn append(&mut self, blocks: usize) -> u32 {
        self.ask(Task::Append { data: Buf::zeroed(blocks * BLOCK), durable: false })
    }

    fn read(&mut self, at: u64, blocks: usize) -> u32 {
        self.ask(Task::Read { at, into: BufMut::zeroed(blocks * BLOCK) })
    }

    /// The kernel answers what is at `index`: an append lands at `place`.
    fn end(&mut self, index: usize, failure: Option<ErrorKind>, place: u64, report: &ZoneInfo) {
        let mut out = Few::new();
        let failed = || failure.map(|kind| Failure::new(kind, String::new()));
        let unit = || failed().map_or(Ok(()), Err);
        let (lane, rules) = (&mut self.lane, &self.rules);
        match self.flying.remove(index) {
            Step::Read { at, into, waiter, .. } => {
                let told = failed().map_or(Ok(Told::Unit), Err);
                lane.read_over(rules, at, (into.len() / BLOCK) as u64, failure.is_none(), &mut out);
                out.push(Step::Answer { waiter, result: told });
            }
            Step::Write(flight) => lane.wrote(rules, flight, unit(), &mut out),
            Step::Append { data, waiter, .. } => {
                let len = (data.len() / BLOCK) as u64;
                lane.appended(rules, len, waiter, failed().map_or(Ok(place), Err), &mut out);
            }
            Step::Zone { action, waiter } => lane.acted(rules, action, waiter, unit(), &mut out),
            Step::Report => lane.reported(rules, failed().map_or(Ok(*report), Err), &mut out),
            Step::Answer { .. } => unreachable!("answers do not fly"),
        }
        self.take(out);
    }

    /// All is well.
    fn well(&mut self, index: usize) {
        self.end(index, None, 0, &info(ZoneState::Empty, 0));
    }
}

#[test]
fn one_write_flies_and_the_next_ones_go_out_together_up_to_the_limit() {
    let mut bench = Bench::new(false);
    for at in 0..10 {
        bench.write(at, 1);
    }
    let mut sizes = Vec::new();
    while let Some(Step::Write(flight)) = bench.flying.first() {
        sizes.push((flight.at, flight.blocks));
        bench.well(0);
    }
    assert_eq!(sizes, [(0, 1), (1, 4), (5, 4), (9, 1)]);
    assert_eq!(bench.answers.len(), 10);
}

#[test]
fn an_append_that_may_not_fit_waits_until_it_is_known() {
    let mut bench = Bench::over(true, &info(ZoneState::Closed, CAPACITY - 3));
    let (first, second, third) = (bench.append(2), bench.append(2), bench.append(1));
    assert_eq!(bench.flying.len(), 1, "the second one may fit or not");
    // The first one fails: the report finds that it took no place.
    bench.end(0, Some(ErrorKind::Media), 0, &info(ZoneState::Closed, 0));
    bench.end(0, None, 0, &info(ZoneState::Closed, CAPACITY - 3));
    assert_eq!(bench.flying.len(), 2);
    bench.end(0, None, CAPACITY - 3, &info(ZoneState::Closed, 0));
    bench.end(0, None, CAPACITY - 1, &info(ZoneState::Closed, 0));
    assert!(
        bench.answers[&first].is_err() && bench.answers[&second].is_ok() && bench.answers[&third].is_ok()
    );
    let late = bench.append(1);
    assert!(matches!(bench.answers[&late], Err(ErrorKind::ZoneFull)), "and nothing was sent");
}

#[test]
fn acknowledged_blocks_are_read_at_once_and_others_when_they_are() {
    let mut bench = Bench::over(true, &info(ZoneState::Closed, 4));
    let appends = [bench.append(1), bench.append(1)];
    bench.end(1, None, 5, &info(ZoneState::Closed, 0));
    bench.read(0, 4);
    bench.read(5, 1);
    assert_eq!(bench.flying.len(), 3, "below the pointer, and an append that overtook another");
    bench.read(4, 1);
    assert_eq!(bench.flying.len(), 3);
    bench.end(0, None, 4, &info(ZoneState::Closed, 0));
    assert_eq!(bench.flying.len(), 3);
    assert!(appends.iter().all(|waiter| bench.answers[waiter].is_ok()));
}

#[test]
fn after_a_failure_nothing_goes_out_before_the_report() {
    let mut bench = Bench::new(true);
    let (first, second) = (bench.append(1), bench.append(1));
    bench.end(0, Some(ErrorKind::Media), 0, &info(ZoneState::Empty, 0));
    let behind = bench.write(1, 1);
    assert_eq!(bench.flying.len(), 1, "the other append has not come back");
    bench.end(0, None, 1, &info(ZoneState::Empty, 0));
    assert!(matches!(bench.flying.as_slice(), [Step::Report]));
    bench.end(0, None, 0, &info(ZoneState::ImplicitOpen, 2));
    assert!(matches!(bench.answers[&behind], Err(ErrorKind::NotAtWritePointer)));
    assert!(bench.answers[&first].is_err() && bench.answers[&second].is_ok());
}

#[test]
fn without_a_report_what_waits_fails_and_the_next_one_asks_again() {
    let mut bench = Bench::new(true);
    bench.append(1);
    bench.end(0, Some(ErrorKind::Unknown), 0, &info(ZoneState::Empty, 0));
    let behind = bench.append(1);
    bench.end(0, Some(ErrorKind::Host), 0, &info(ZoneState::Empty, 0));
    assert!(matches!(bench.answers[&behind], Err(ErrorKind::Host)));
    bench.append(1);
    assert!(matches!(bench.flying.as_slice(), [Step::Report]));
    bench.end(0, None, 0, &info(ZoneState::ImplicitOpen, 1));
    assert!(matches!(bench.flying.as_slice(), [Step::Append { .. }]));
}

#[test]
fn a_gap_below_landed_appends_makes_the_lane_ask() {
    let mut bench = Bench::new(true);
    bench.append(1);
    bench.end(0, None, 3, &info(ZoneState::Empty, 0));
    bench.append(1);
    assert!(matches!(bench.flying.as_slice(), [Step::Report]), "block 0 is nobody's");
}

#[test]
fn conventional_writes_fly_together_unless_they_touch() {
    let conventional = ZoneInfo {
        kind: ZoneKind::Conventional,
        state: ZoneState::Conventional,
        ..info(ZoneState::Empty, 0)
    };
    let mut bench = Bench::over(false, &conventional);
    bench.write(0, 2);
    bench.write(8, 2);
    assert_eq!(bench.flying.len(), 2);
    bench.read(1, 1);
    bench.write(4, 1);
    assert_eq!(bench.flying.len(), 2, "the read waits for what it overlaps, and all behind it for the read");
    bench.well(0);
    assert_eq!(bench.flying.len(), 3);
    let refused = bench.ask(Task::Zone(Action::Reset));
    bench.well(0);
    bench.well(0);
    bench.well(0);
    assert!(matches!(bench.answers[&refused], Err(ErrorKind::Conventional)));
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, ..ProptestConfig::default() })]

    /// Whatever is asked, fails or is reported: everybody is answered once, and nobody waits for ever.
    #[test]
    fn everybody_is_answered(
        native: bool,
        moves in prop::collection::vec((0..8_u8, 0..CAPACITY, 1..4_usize, any::<prop::sample::Index>()), 1..80),
    ) {
        let mut bench = Bench::new(native);
        // What the drive has written.
        let mut pointer = 0;
        let end_one = |bench: &mut Bench, pointer: &mut u64, index: usize, fails: bool| {
            let before = *pointer;
            match (bench.flying.get(index), fails) {
                (Some(Step::Write(flight)), false) => *pointer = flight.at + flight.blocks,
                (Some(Step::Append { data, .. }), false) => *pointer += (data.len() / BLOCK) as u64,
                (Some(Step::Zone { action: Action::Reset, .. }), false) => *pointer = 0,
                (Some(Step::Zone { action: Action::Finish, .. }), false) => *pointer = CAPACITY,
                _ => {}
            }
            let state = match *pointer {
                0 => ZoneState::Empty,
                CAPACITY => ZoneState::Full,
                _ => ZoneState::Closed,
            };
            bench.end(index, fails.then_some(ErrorKind::Media), before, &info(state, *pointer));
        };
        for (what, at, len, index) in moves {
            match what {
                0 => {
                    bench.append(len);
                }
                1 => {
                    bench.write(at, len);
                }
                2 => {
                    bench.read(at, len);
                }
                3 => {
                    bench.ask(Task::Zone([Action::Reset, Action::Finish, Action::Open, Action::Close][len]));
                }
                4 => {
                    bench.ask(Task::Fence);
                }
                _ if bench.flying.is_empty() => {}
                5 => {
                    let index = index.index(bench.flying.len());
                    end_one(&mut bench, &mut pointer, index, true);
                }
                _ => {
                    let index = index.index(bench.flying.len());
                    end_one(&mut bench, &mut pointer, index, false);
                }
            }
        }
        while !bench.flying.is_empty() {
            end_one(&mut bench, &mut pointer, 0, false);
        }
        prop_assert!(bench.lane.is_quiet());
        prop_assert_eq!(bench.answers.len(), bench.next as usize);
    }
}
