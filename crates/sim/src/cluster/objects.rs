//! The objects that clients of a simulated cluster read and change: registers, pairs of registers, counters, and keys that expire.

use crate::linear::{Effect, Value};

/// The parts of an object: a pair has two keys, every other object has one.
pub(super) const PARTS: usize = 2;

/// The kind of an object.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Kind {
    /// A key that is set, deleted and read.
    Register,
    /// Two keys that are set together or one alone, and read together.
    Pair,
    /// A key whose number grows by one: it is read and written by one command.
    Counter,
    /// A key that is set with an expiry.
    Expiring,
}

/// An object: its group and its number there.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) struct Object {
    pub group: usize,
    pub number: u64,
}

impl Object {
    /// Kinds go round with the numbers.
    pub(super) const ROUND: u64 = 5;

    /// The kind of the object.
    pub(super) fn kind(self) -> Kind {
        match self.number % Object::ROUND {
            0 | 1 => Kind::Register,
            2 => Kind::Pair,
            3 => Kind::Counter,
            _ => Kind::Expiring,
        }
    }

    /// The key of a part.
    pub(super) fn key(self, part: usize) -> Vec<u8> {
        let mut key = self.number.to_be_bytes().to_vec();
        key.extend(u8::try_from(part));
        key
    }
}

/// The effect of an operation on the parts of an object, or the parts that the operation read.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Done {
    /// Sets parts; `None` leaves a part as it is.
    Set([Option<Value>; PARTS]),
    /// Reads parts and sees these values; `None` does not read a part.
    Saw([Option<Value>; PARTS]),
    /// Adds one to the first part, and sees the sum, where that is known.
    Counted(Option<u64>),
    /// The first part, which has this value, expires.
    Expired(u64),
}

impl Effect for Done {
    type State = [Value; PARTS];

    fn carry_out(&self, before: &[Value; PARTS]) -> Option<[Value; PARTS]> {
        let [first, second] = *before;
        match *self {
            Done::Set([one, two]) => Some([one.unwrap_or(first), two.unwrap_or(second)]),
            Done::Saw([one, two]) => {
                let fits = one.is_none_or(|saw| saw == first) && two.is_none_or(|saw| saw == second);
                fits.then_some(*before)
            }
            Done::Counted(saw) => {
                let sum = first.unwrap_or_default() + 1;
                saw.is_none_or(|saw| saw == sum).then_some([Some(sum), second])
            }
            Done::Expired(value) => (first == Some(value)).then_some([None, second]),
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use stateright::semantics::{ConsistencyTester, LinearizabilityTester, SequentialSpec};

    use super::*;
    use crate::linear::{Op, is_linearizable};

    /// The object for stateright's tester, which asks an object for the answer of an operation.
    #[derive(Clone, Debug, PartialEq, Eq, Hash, Default)]
    struct Parts([Value; PARTS]);

    #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
    enum Asked {
        Set([Option<Value>; PARTS]),
        Read,
        Count,
    }

    #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
    enum Answer {
        Set,
        Read([Value; PARTS]),
        Sum(u64),
    }

    impl SequentialSpec for Parts {
        type Op = Asked;
        type Ret = Answer;

        fn invoke(&mut self, asked: &Asked) -> Answer {
            match *asked {
                Asked::Set(parts) => {
                    for (own, set) in self.0.iter_mut().zip(parts) {
                        *own = set.unwrap_or(*own);
                    }
                    Answer::Set
                }
                Asked::Read => Answer::Read(self.0),
                Asked::Count => {
                    let sum = self.0[0].unwrap_or_default() + 1;
                    self.0[0] = Some(sum);
                    Answer::Sum(sum)
                }
            }
        }
    }

    fn done(asked: Asked, answer: Option<Answer>) -> Done {
        match (asked, answer) {
            (Asked::Set(parts), _) => Done::Set(parts),
            (_, Some(Answer::Read([one, two]))) => Done::Saw([Some(one), Some(two)]),
            (_, Some(Answer::Sum(sum))) => Done::Counted(Some(sum)),
            (Asked::Read, _) => Done::Saw([None; PARTS]),
            (Asked::Count, _) => Done::Counted(None),
        }
    }

    fn value() -> impl Strategy<Value = Value> {
        prop_oneof![1 => Just(None), 3 => (1..4_u64).prop_map(Some)]
    }

    /// The operations of three threads, each with the answer of an object that the operation changes when it is answered.
    fn histories() -> impl Strategy<Value = Vec<Vec<Asked>>> {
        let part = || prop_oneof![1 => Just(None), 2 => value().prop_map(Some)];
        let asked = prop_oneof![
            2 => (part(), part()).prop_map(|(one, two)| Asked::Set([one, two])),
            2 => Just(Asked::Read),
            1 => Just(Asked::Count),
        ];
        prop::collection::vec(prop::collection::vec(asked, 0..5), 3)
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(1000))]

        /// Stateright's tester, an independent implementation, gives the same answer to a history of registers set together and counted, and to the same history with one answer altered.
        #[test]
        fn the_search_agrees_with_stateright_on_pairs_and_counters(
            threads in histories(),
            order in prop::collection::vec((0..3_usize, any::<bool>()), 0..40),
            altered in (0..12_usize, value(), 0..5_u64),
        ) {
            for alters in [false, true] {
                let mut tester = LinearizabilityTester::new(Parts::default());
                let mut object = Parts::default();
                let mut ops: Vec<Op<Done>> = Vec::new();
                let mut at = [0_usize; 3];
                let mut open: [Option<(usize, Option<Answer>)>; 3] = [None; 3];
                let mut answers = 0;
                for (now, (thread, early)) in order.iter().copied().enumerate() {
                    let now = now as u64;
                    let Some(asked) = threads[thread].get(at[thread]).copied() else { continue };
                    match open[thread].take() {
                        None => {
                            tester.on_invoke(thread, asked).unwrap();
                            // The object is changed at the call, or at the answer.
                            let answer = early.then(|| object.invoke(&asked));
                            open[thread] = Some((ops.len(), answer));
                            ops.push(Op::pending(done(asked, None), now));
                        }
                        Some((op, answer)) => {
                            let mut answer = answer.unwrap_or_else(|| object.invoke(&asked));
                            if alters && answers == altered.0 {
                                answer = match answer {
                                    Answer::Set => Answer::Set,
                                    Answer::Read([_, two]) => Answer::Read([altered.1, two]),
                                    Answer::Sum(_) => Answer::Sum(altered.2),
                                };
                            }
                            answers += 1;
                            tester.on_return(thread, answer).unwrap();
                            ops[op] = Op::answered(done(asked, Some(answer)), ops[op].called, now);
                            at[thread] += 1;
                        }
                    }
                }
                let found = is_linearizable(&ops);
                prop_assert_eq!(found, tester.is_consistent(), "{:?}", ops);
                prop_assert!(alters || found, "{:?}", ops);
            }
        }
    }

    #[test]
    fn a_pair_that_is_read_half_set_is_found() {
        let set = |one, called, returned| {
            Op::answered(Done::Set([Some(Some(one)), Some(Some(one))]), called, returned)
        };
        let saw = |one, two| Op::answered(Done::Saw([Some(one), Some(two)]), 3, 6);
        for (one, two, fits) in [(1, 1, true), (2, 2, true), (1, 2, false), (2, 1, false)] {
            let ops = [set(1, 1, 2), set(2, 4, 5), saw(Some(one), Some(two))];
            assert_eq!(is_linearizable(&ops), fits, "{one} {two}");
        }
    }

    #[test]
    fn a_key_that_comes_back_after_it_was_seen_expired_is_found() {
        let history = |last| {
            let set = Op::answered(Done::Set([Some(Some(7)), None]), 1, 2);
            let saw = |value, called| Op::answered(Done::Saw([Some(value), None]), called, called + 1);
            is_linearizable(&[set, Op::pending(Done::Expired(7), 1), saw(None, 3), saw(last, 5)])
        };
        assert!(history(None));
        assert!(!history(Some(7)));
    }

    #[test]
    fn a_sum_that_two_commands_see_is_found() {
        let count = |saw, called| Op::answered(Done::Counted(Some(saw)), called, called + 2);
        assert!(is_linearizable(&[count(1, 1), count(2, 2)]));
        assert!(!is_linearizable(&[count(1, 1), count(1, 2)]));
    }
}
