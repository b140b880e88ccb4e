//! A crash test of the parallel WAL: threads write while tables are flushed, and the power is cut at any moment.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};

use super::linear::{Did, Op, is_linearizable};
use super::model::*;
use crate::parallel_wal::*;
use parking_lot::Mutex;

const THREADS: u64 = 4;
const OPS: u64 = 40;
const REGISTERS: u64 = 6;
const COUNTERS: u64 = 2;

/// A random generator with a seed (splitmix64).
struct Rng(u64);

fn rng(seed: u64, stream: u64) -> Rng {
    Rng(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ stream.wrapping_mul(0xd1b5_4a32_d192_ed03))
}

impl Rng {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let z = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    fn below(&mut self, end: u64) -> u64 {
        self.next() % end
    }

    /// True with a probability of `n` in ten.
    fn tenths(&mut self, n: u64) -> bool {
        self.below(10) < n
    }
}

/// The operations of all threads of the test, in the order of one clock.
#[derive(Default, Clone)]
struct History {
    clock: u64,
    registers: BTreeMap<u64, Vec<Op>>,
    /// For each counter: the sum of the requested increments, and of the acknowledged ones.
    counters: BTreeMap<u64, (i64, i64)>,
    /// Values of the writes that failed.
    refused: Vec<i64>,
}

impl History {
    fn tick(&mut self) -> u64 {
        self.clock += 1;
        self.clock
    }
}

/// The operations of one thread. Writes of registers are synced, and no two writes have the same value.
fn run_thread(
    world: &World,
    history: &Mutex<History>,
    stop: &AtomicBool,
    seed: u64,
    thread: u64,
    exact: bool,
) {
    let mut rng = rng(seed, thread + 1);
    for n in 0..OPS {
        if stop.load(Ordering::Relaxed) {
            return;
        }
        let value = (thread * 1000 + n + 1) as i64;
        let key = rng.below(REGISTERS);
        let name = format!("r{key}");
        let register = |did| {
            let mut h = history.lock();
            let called = h.tick();
            let ops = h.registers.entry(key).or_default();
            ops.push(Op::pending(did, called));
            ops.len() - 1
        };
        let answer = |at: usize, did| {
            let mut h = history.lock();
            let now = h.tick();
            let op = &mut h.registers.get_mut(&key).unwrap()[at];
            (op.did, op.returned, op.certain) = (did, Some(now), true);
        };
        match rng.below(if exact { 10 } else { 8 }) {
            0..=2 => {
                let at = register(Did::Write(Some(value as u64)));
                world.write(WriteOptions::SYNCED, &ModelBatch::default().put(0, &name, value)).unwrap();
                answer(at, Did::Write(Some(value as u64)));
            }
            3 => {
                let at = register(Did::Write(None));
                world.write(WriteOptions::SYNCED, &ModelBatch::default().delete(0, &name)).unwrap();
                answer(at, Did::Write(None));
            }
            4 => {
                // An unsynced write of an unrelated key: a ticket that a cut may lose, and a record for the next flush
                // to sync.
                world.write(WriteOptions::UNSYNCED, &ModelBatch::default().put(0, "noise", value)).unwrap();
                world
                    .write(
                        WriteOptions::UNSYNCED,
                        &ModelBatch::default().put(0, "p", value).put(1, "q", value),
                    )
                    .unwrap();
            }
            5 => {
                let at = register(Did::Read(None));
                let saw = world.tables.get(0, &name);
                answer(at, Did::Read(saw.map(|v| v as u64)));
            }
            6 => {
                world.refused(WriteOptions::SYNCED, &ModelBatch::default().put(0, "refused", value));
                history.lock().refused.push(value);
            }
            7 => {
                world.write(WriteOptions::UNSYNCED, &ModelBatch::default().delete_range(1, "x", "z")).unwrap()
            }
            _ => {
                let counter = rng.below(COUNTERS);
                history.lock().counters.entry(counter).or_default().0 += 1;
                world
                    .write(WriteOptions::SYNCED, &ModelBatch::default().merge(1, &format!("c{counter}"), 1))
                    .unwrap();
                history.lock().counters.entry(counter).or_default().1 += 1;
            }
        }
    }
}

/// Runs the writing threads, cuts the power, recovers, and returns the rules that the contents break.
fn run_until_cut(seed: u64, options: ParallelWalOptions, exact: bool) -> Vec<String> {
    let world = World::new(options);
    let history = Mutex::new(History::default());
    let stop = AtomicBool::new(false);
    let mut rng = rng(seed, 0);
    let when = 1 + rng.below(THREADS * OPS);
    let mut cut = None;
    std::thread::scope(|scope| {
        let workers: Vec<_> = (0..THREADS)
            .map(|thread| {
                let (world, history, stop) = (&world, &history, &stop);
                scope.spawn(move || run_thread(world, history, stop, seed, thread, exact))
            })
            .collect();
        let mut since = 0;
        while cut.is_none() {
            let done = workers.iter().all(|worker| worker.is_finished());
            let clock = history.lock().clock;
            if clock > since + 20 {
                since = clock;
                world.tables.flush().unwrap();
            }
            // The power cut: history, tables and log are copied at one moment.
            let h = history.lock();
            if h.clock >= when || done {
                let state = world.tables.state.lock();
                let lose_all = seed.is_multiple_of(3);
                let keep_mark = rng.tenths(5);
                let log = world.log.cut(&mut |_| !lose_all && rng.tenths(6), keep_mark);
                cut = Some((h.clone(), state.durable.clone(), log));
            }
            drop(h);
            std::thread::yield_now();
        }
        stop.store(true, Ordering::Relaxed);
    });
    let (mut history, durable, log) = cut.unwrap();
    let recoveries: Vec<u64> = (0..rng.below(3)).map(|_| rng.below(30)).collect();
    let after = World::cut(&log, durable, &mut |_| true, false, &recoveries);
    judge(&mut history, &after.tables)
}

fn judge(history: &mut History, tables: &ModelTables) -> Vec<String> {
    let mut wrong = Vec::new();
    for key in 0..REGISTERS {
        let now = history.tick();
        let saw = tables.get(0, &format!("r{key}"));
        let ops = history.registers.entry(key).or_default();
        // A read that did not return constrains nothing.
        ops.retain(|op| op.returned.is_some() || matches!(op.did, Did::Write(_)));
        ops.push(Op::answered(Did::Read(saw.map(|v| v as u64)), now, now + 1));
        if !is_linearizable(ops) {
            wrong.push(format!("register {key} has {saw:?} after {ops:?}"));
        }
    }
    for (counter, (asked, acknowledged)) in &history.counters {
        let has = tables.get(1, &format!("c{counter}")).unwrap_or(0);
        if !(*acknowledged..=*asked).contains(&has) {
            wrong.push(format!(
                "counter {counter} is {has}, of {acknowledged} acknowledged and {asked} asked"
            ));
        }
    }
    if tables.get(0, "p") != tables.get(1, "q") {
        wrong.push(format!("a batch is torn: {:?} and {:?}", tables.get(0, "p"), tables.get(1, "q")));
    }
    if tables.get(0, "refused").is_some_and(|value| history.refused.contains(&value)) {
        wrong.push("a batch that the tables refused came back".to_owned());
    }
    wrong
}

#[test]
fn no_acknowledged_batch_is_lost_torn_or_repeated_by_a_cut() {
    for seed in 0..300 {
        assert_eq!(run_until_cut(seed, DEFAULT, seed % 2 == 1), Vec::<String>::new(), "seed {seed}");
    }
}

#[test]
fn in_the_model_a_flush_that_ends_late_does_not_take_the_floor_away() {
    let world = World::new(DEFAULT);
    let sealed = world.tables.state.lock().live.clone();
    world.parallel_wal.exactly_once().unwrap();
    world.tables.install(sealed);
    assert!(world.tables.state.lock().durable.floor.is_some());
}

/// Histories that break each rule of the checker. `protocol.rs` tests the steps of the protocol that keep the rules.
#[test]
fn the_checker_reports_lost_torn_repeated_and_returning_batches() {
    let mut history = History { refused: vec![7], ..History::default() };
    history.registers.insert(0, vec![Op::answered(Did::Write(Some(1)), 0, 1)]);
    history.counters.insert(0, (1, 1));
    let found = |batch: ModelBatch| {
        let tables = ModelTables::new();
        tables.apply(&batch.done(), None);
        judge(&mut history.clone(), &tables).len()
    };
    let right = || ModelBatch::default().put(0, "r0", 1).merge(1, "c0", 1).put(0, "p", 3).put(1, "q", 3);
    assert_eq!(found(right()), 0);
    assert_eq!(found(right().delete(0, "r0")), 1, "lost");
    assert_eq!(found(right().merge(1, "c0", 1)), 1, "doubled");
    assert_eq!(found(right().put(1, "q", 4)), 1, "torn");
    assert_eq!(found(right().put(0, "refused", 7)), 1, "came back");
}
