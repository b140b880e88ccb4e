use std::collections::HashMap;
use std::hash::RandomState;

use proptest::prelude::*;

use super::*;
use crate::txn::Txn;

/// A pipeline without commands.
struct EmptyPipeline;

impl Work for EmptyPipeline {
    fn claims(&self, _: &mut Claims) {}

    fn run(&mut self, _: &mut Txn<'_>) {}

    fn writes_are_durable(self: Box<Self>) {}
}

#[derive(Clone, Debug)]
enum Step {
    Push(Vec<u8>),
    All,
    Take,
    /// Takes a group, and puts back its pipelines after the first so many.
    TakeSome(usize),
    /// Releases a group in flight.
    Release(usize),
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let step = prop_oneof![
        6 => proptest::collection::vec(0..12_u8, 1..4).prop_map(Step::Push),
        1 => Just(Step::All),
        3 => Just(Step::Take),
        1 => (0..3_usize).prop_map(Step::TakeSome),
        4 => (0..8_usize).prop_map(Step::Release),
    ];
    proptest::collection::vec(step, 0..120)
}

/// A schedule, and a check of its rules after each push, take and release.
struct CheckedSchedule {
    schedule: Schedule,
    hash: RandomState,
    /// The keys of each pipeline, by the pipeline's number; `None`: all keys.
    keys: Vec<Option<Vec<u8>>>,
    waiting: Vec<usize>,
    flying: Vec<(Vec<usize>, Group)>,
    /// The number of the pipeline with these claims.
    numbers: HashMap<Vec<u32>, usize>,
}

fn keys_overlap(a: &Option<Vec<u8>>, b: &Option<Vec<u8>>) -> bool {
    match (a, b) {
        (Some(a), Some(b)) => a.iter().any(|key| b.contains(key)),
        _ => true,
    }
}

impl CheckedSchedule {
    fn new(wal: WalMode) -> CheckedSchedule {
        CheckedSchedule {
            schedule: Schedule::new(wal),
            hash: RandomState::new(),
            keys: Vec::new(),
            waiting: Vec::new(),
            flying: Vec::new(),
            numbers: HashMap::new(),
        }
    }

    fn push(&mut self, keys: Option<Vec<u8>>) {
        let number = self.keys.len();
        // Each pipeline claims a key of its own, so that its claims identify it. If two keys share a stripe,
        // try the next key.
        let claims = (0..).map(|name| {
            let mut claims = Claims::new(&self.hash);
            match &keys {
                Some(keys) => keys.iter().for_each(|key| claims.key(&[*key])),
                None => claims.claim_all_keys(),
            }
            claims.key(format!("number {number}.{name}").as_bytes());
            claims
        });
        let mut claims = claims.filter(|claims| !self.numbers.contains_key(claims.stripes()));
        let claims = claims.next().unwrap();
        self.numbers.insert(claims.stripes().to_vec(), number);
        self.keys.push(keys);
        self.waiting.push(number);
        self.schedule.push(WaitingPipeline { work: Box::new(EmptyPipeline), claims });
    }

    fn take(&mut self, some: Option<usize>) {
        if !self.flying.is_empty() {
            assert!(
                self.schedule.take(|| false).is_none(),
                "the store takes no more batches beside those in flight"
            );
        }
        let Some(mut group) = self.schedule.take(|| true) else {
            self.assert_the_oldest_is_blocked();
            return;
        };
        assert!(!group.works.is_empty());
        let mut taken: Vec<usize> = group.claims.iter().map(|c| self.numbers[c.stripes()]).collect();
        for (at, number) in taken.iter().enumerate() {
            let met =
                |other: &&usize| *other < number && keys_overlap(&self.keys[*number], &self.keys[**other]);
            assert_eq!(taken[at..].iter().find(met), None, "the order in {taken:?}");
        }
        if let Some(some) = some.filter(|some| *some < taken.len()) {
            self.schedule.put_back(&mut group, some);
            taken.truncate(some);
        }
        for number in &taken {
            let keys = &self.keys[*number];
            for (flying, _) in &self.flying {
                assert!(
                    flying.iter().all(|other| !keys_overlap(keys, &self.keys[*other])),
                    "{number} beside {flying:?}"
                );
            }
            let earlier = self.waiting.iter().filter(|other| *other < number && !taken.contains(other));
            for other in earlier {
                assert!(!keys_overlap(keys, &self.keys[*other]), "{number} before {other}");
            }
        }
        self.waiting.retain(|number| !taken.contains(number));
        self.flying.push((taken, group));
    }

    /// Asserts that the pipeline that waits longest waits for a group in flight: for any with a log that takes one group at a time,
    /// else for one whose stripes of keys are its own too.
    fn assert_the_oldest_is_blocked(&self) {
        let Some(oldest) = self.waiting.iter().min() else { return };
        let in_flight = || self.flying.iter().flat_map(|(numbers, _)| numbers);
        let blocked = match self.keys[*oldest] {
            _ if !self.schedule.wal.is_parallel() => !self.flying.is_empty(),
            None => !self.flying.is_empty(),
            Some(_) => in_flight().any(|other| self.shares_stripe(*oldest, *other)),
        };
        assert!(blocked, "{oldest} waits for nothing beside {:?}", in_flight().collect::<Vec<_>>());
    }

    /// Whether two pipelines claim a common stripe of keys.
    fn shares_stripe(&self, one: usize, other: usize) -> bool {
        let stripes = |number| self.numbers.iter().find(|(_, of)| **of == number).unwrap().0;
        let all = self.keys[one].is_none() || self.keys[other].is_none();
        all || stripes(one).iter().any(|stripe| stripes(other).contains(stripe))
    }

    fn release(&mut self, at: usize) {
        if self.flying.is_empty() {
            return;
        }
        let (_, group) = self.flying.remove(at % self.flying.len());
        self.schedule.release(&group.into_pipelines().1);
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    #[test]
    fn pipelines_that_share_a_key_run_in_the_order_of_arrival_and_all_run(
        steps in steps(),
        wal in prop_oneof![Just(WalMode::Group), Just(WalMode::Auto), Just(WalMode::Waltz)],
    ) {
        let mut check = CheckedSchedule::new(wal);
        for step in steps {
            match step {
                Step::Push(keys) => check.push(Some(keys)),
                Step::All => check.push(None),
                Step::Take => check.take(None),
                Step::TakeSome(some) => check.take(Some(some)),
                Step::Release(at) => check.release(at),
            }
            prop_assert_eq!(check.schedule.len(), check.waiting.len());
        }
        // Run the remaining pipelines: each round takes and releases every group that may run.
        for _ in 0..=check.keys.len() {
            while check.schedule.may_take(|| true) {
                let before = check.waiting.len();
                check.take(None);
                if check.waiting.len() == before {
                    break;
                }
            }
            while !check.flying.is_empty() {
                check.release(0);
            }
        }
        prop_assert!(check.schedule.is_idle(), "{:?} never went", check.waiting);
        prop_assert!(!check.schedule.held_all && !check.schedule.blocked_all);
        for bits in [&check.schedule.held, &check.schedule.blocked_keys, &check.schedule.grouped] {
            prop_assert!(bits.is_empty());
        }
    }
}
