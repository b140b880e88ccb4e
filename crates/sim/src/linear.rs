//! A check of linearizability: whether concurrent operations on one object have an order that explains their results. The
//! search is Wing and Gong's with Lowe's memory of tried states, as in porcupine.
//!
//! A crash adds one case: an operation that was answered, but not promised to be durable, may be lost. An operation that is not
//! lost takes effect between its call and its answer, like any other.

use std::collections::HashSet;
use std::hash::Hash;

/// Most operations on one object that a search takes.
pub const LIMIT: usize = 128;

/// A register's value; none is a register that was never set, or deleted.
pub type Value = Option<u64>;

/// The effect of an operation on an object of one kind.
pub trait Effect: Copy {
    /// The object's state. Default: the state of an object that no operation changed.
    type State: Clone + Eq + Hash + Default;

    /// The state after the operation; `None` if the operation's result does not fit the state before.
    fn carry_out(&self, before: &Self::State) -> Option<Self::State>;
}

/// An operation's effect on a register.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Did {
    /// Sets the register; `None` deletes it.
    Write(Value),
    /// Reads the register and sees this value.
    Read(Value),
}

impl Effect for Did {
    type State = Value;

    fn carry_out(&self, before: &Value) -> Option<Value> {
        match *self {
            Did::Write(new) => Some(new),
            Did::Read(saw) => (saw == *before).then_some(saw),
        }
    }
}

/// An operation on an object and when it ran.
#[derive(Clone, Copy, Debug)]
pub struct Op<E = Did> {
    /// The operation's effect.
    pub did: E,
    /// When the operation began.
    pub called: u64,
    /// When the operation was answered. `None`: never, so that the operation may take effect at any time after `called`.
    pub returned: Option<u64>,
    /// Whether the operation certainly happened.
    pub certain: bool,
}

impl<E> Op<E> {
    /// An operation that was answered, and certainly happened.
    pub fn answered(did: E, called: u64, returned: u64) -> Op<E> {
        Op { did, called, returned: Some(returned), certain: true }
    }

    /// An operation without an answer.
    #[cfg(test)]
    pub fn pending(did: E, called: u64) -> Op<E> {
        Op { did, called, returned: None, certain: false }
    }

    /// An answered operation that a crash may have lost.
    #[cfg(test)]
    pub fn unpromised(did: E, called: u64, returned: u64) -> Op<E> {
        Op { did, called, returned: Some(returned), certain: false }
    }
}

/// Whether an object can have gone through all certain operations and some of the uncertain ones in some order, in which no
/// operation comes before one that had ended when it began.
///
/// # Panics
///
/// With more than [`LIMIT`] operations.
pub fn is_linearizable<E: Effect>(ops: &[Op<E>]) -> bool {
    assert!(ops.len() <= LIMIT, "{} operations: the search takes {LIMIT}", ops.len());
    let certain = ops.iter().enumerate().filter(|(_, op)| op.certain).fold(0, |mask, (n, _)| mask | 1 << n);
    Search { ops, certain, seen: HashSet::new() }.continue_from(0, &E::State::default(), 0)
}

struct Search<'a, E: Effect> {
    ops: &'a [Op<E>],
    certain: u128,
    /// The states that the search tried: the set of operations done, and the object's state after them.
    seen: HashSet<(u128, E::State)>,
}

impl<E: Effect> Search<'_, E> {
    /// Continues the search from a state. `latest`: the latest beginning of the operations that are done.
    fn continue_from(&mut self, done: u128, state: &E::State, latest: u64) -> bool {
        if done & self.certain == self.certain {
            return true;
        }
        if !self.seen.insert((done, state.clone())) {
            return false;
        }
        let ops = self.ops;
        let left = || ops.iter().enumerate().filter(move |(n, _)| done >> n & 1 == 0);
        // An operation that began after the end of another comes after it.
        let first_end =
            left().filter(|(_, op)| op.certain).filter_map(|(_, op)| op.returned).min().unwrap_or(u64::MAX);
        let fits = |op: &Op<E>| op.called < first_end && op.returned.is_none_or(|end| end > latest);
        left().filter(|(_, op)| fits(op)).any(|(n, op)| {
            let after = op.did.carry_out(state);
            after.is_some_and(|after| self.continue_from(done | 1 << n, &after, latest.max(op.called)))
        })
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use stateright::semantics::register::{Register, RegisterOp, RegisterRet};
    use stateright::semantics::{ConsistencyTester, LinearizabilityTester};

    use super::*;

    fn write(value: u64, called: u64, returned: u64) -> Op {
        Op::answered(Did::Write(Some(value)), called, returned)
    }

    fn read(value: Value, called: u64, returned: u64) -> Op {
        Op::answered(Did::Read(value), called, returned)
    }

    #[test]
    fn a_read_of_a_value_that_was_overwritten_before_it_began_is_found() {
        let with = |read: Op| is_linearizable(&[write(1, 0, 1), write(2, 2, 3), read]);
        assert!(with(read(Some(2), 4, 5)));
        assert!(!with(read(Some(1), 4, 5)));
        assert!(with(read(Some(1), 1, 5)), "it ran beside the second write");
        assert!(!with(read(None, 1, 5)));
    }

    #[test]
    fn two_readers_that_see_two_writes_in_opposite_orders_are_found() {
        let writes = [write(1, 0, 20), write(2, 0, 20)];
        let readers =
            |third, fourth| [read(Some(1), 1, 2), read(Some(2), 3, 4), read(third, 5, 6), read(fourth, 7, 8)];
        assert!(is_linearizable(&[&writes[..], &readers(Some(2), Some(2))[..]].concat()));
        assert!(!is_linearizable(&[&writes[..], &readers(Some(2), Some(1))[..]].concat()));
    }

    #[test]
    fn a_value_that_comes_back_after_it_was_deleted_is_found() {
        let history = |last| {
            let delete = Op::answered(Did::Write(None), 4, 5);
            is_linearizable(&[write(1, 0, 1), read(Some(1), 2, 3), delete, read(last, 6, 7)])
        };
        assert!(history(None));
        assert!(!history(Some(1)));
    }

    #[test]
    fn a_write_without_an_answer_may_have_happened_or_not_but_not_before_it_was_called() {
        let pending = Op::pending(Did::Write(Some(1)), 5);
        let read = |value, called| read(value, called, called + 1);
        assert!(is_linearizable(&[pending, read(None, 6), read(Some(1), 8)]));
        assert!(is_linearizable(&[pending, read(None, 6), read(None, 8)]));
        assert!(!is_linearizable(&[pending, read(Some(1), 6), read(None, 8)]));
        assert!(!is_linearizable(&[pending, read(Some(1), 1)]));
    }

    #[test]
    fn an_unpromised_write_may_be_lost_but_does_not_take_effect_late() {
        let early = Op::unpromised(Did::Write(Some(1)), 0, 1);
        let later = Op::unpromised(Did::Write(Some(2)), 2, 3);
        for (seen, fine) in [(None, true), (Some(1), true), (Some(2), true), (Some(3), false)] {
            assert_eq!(is_linearizable(&[early, later, read(seen, 10, 11)]), fine, "{seen:?}");
        }
        assert!(
            !is_linearizable(&[early, write(2, 2, 3), read(Some(1), 10, 11)]),
            "the later one was promised"
        );
        assert!(
            !is_linearizable(&[early, later, read(Some(2), 10, 11), read(Some(1), 12, 13)]),
            "it overtook"
        );
    }

    /// A random history of three threads, whose operations are answered or not.
    fn histories() -> impl Strategy<Value = Vec<Vec<(Did, bool)>>> {
        let value = || prop_oneof![1 => Just(None), 3 => (1..4_u64).prop_map(Some)];
        let did = prop_oneof![value().prop_map(Did::Write), value().prop_map(Did::Read)];
        prop::collection::vec(prop::collection::vec((did, any::<bool>()), 0..5), 3)
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(2000))]

        /// The linearizability tester of stateright, an independent implementation, gives the same answers. A write without an
        /// answer is the last operation of its thread.
        #[test]
        fn the_search_agrees_with_stateright(threads in histories(), order in prop::collection::vec(0..3_usize, 0..40)) {
            let mut tester = LinearizabilityTester::new(Register::<Value>(None));
            let mut ops: Vec<Op> = Vec::new();
            let mut at = [0_usize; 3];
            let mut open: [Option<usize>; 3] = [None; 3];
            for (now, thread) in order.into_iter().enumerate() {
                let now = now as u64;
                let Some((did, _)) = threads[thread].get(at[thread]).copied() else { continue };
                match open[thread].take() {
                    None => {
                        let op = match did {
                            Did::Write(value) => RegisterOp::Write(value),
                            Did::Read(_) => RegisterOp::Read,
                        };
                        tester.on_invoke(thread, op).unwrap();
                        open[thread] = Some(ops.len());
                        ops.push(Op::pending(did, now));
                    }
                    Some(op) => {
                        let answer = match did {
                            Did::Write(_) => RegisterRet::WriteOk,
                            Did::Read(value) => RegisterRet::ReadOk(value),
                        };
                        tester.on_return(thread, answer).unwrap();
                        (ops[op].returned, ops[op].certain) = (Some(now), true);
                        at[thread] += 1;
                    }
                }
            }
            // The search drops reads without an answer, which say nothing.
            ops.retain(|op| op.certain || matches!(op.did, Did::Write(_)));
            prop_assert_eq!(is_linearizable(&ops), tester.is_consistent(), "{:?}", ops);
        }
    }
}
