//! What clients of a simulated cluster asked, and what they were told.

use std::collections::{BTreeMap, BTreeSet};

use super::objects::{Done, Object};
use super::report::ClusterFailureKind;
use crate::linear::{LIMIT, Op, is_linearizable};

/// Operations on an object that the judge takes beyond those after which no more are begun.
const SPARE: usize = 16;

/// The operations on each object, by their numbers.
#[derive(Debug, Default)]
pub(super) struct History {
    operations: BTreeMap<Object, BTreeMap<u64, Op<Done>>>,
    /// The order of calls and answers.
    clock: u64,
}

/// An operation of a history: its object and its number.
#[derive(Clone, Copy, Debug)]
pub(super) struct Called {
    object: Object,
    number: u64,
}

impl Called {
    pub(super) fn object(self) -> Object {
        self.object
    }
}

impl History {
    /// True if the judge takes no more operations on the object, but for those under way and a last read.
    pub(super) fn is_full(&self, object: Object) -> bool {
        self.operations.get(&object).is_some_and(|operations| operations.len() + SPARE >= LIMIT)
    }

    /// A client begins an operation. Its effect counts until [`answered`](History::answered) says more.
    pub(super) fn call(&mut self, object: Object, did: Done) -> Called {
        self.clock += 1;
        let operation = Op { did, called: self.clock, returned: None, certain: false };
        self.operations.entry(object).or_default().insert(self.clock, operation);
        Called { object, number: self.clock }
    }

    /// An operation was answered: it did this.
    pub(super) fn answered(&mut self, called: Called, did: Done) {
        self.clock += 1;
        let operation = self.operations.get_mut(&called.object).and_then(|of| of.get_mut(&called.number));
        if let Some(operation) = operation {
            *operation = Op::answered(did, operation.called, self.clock);
        }
    }

    /// Nothing of the operation was begun.
    pub(super) fn refused(&mut self, called: Called) {
        if let Some(operations) = self.operations.get_mut(&called.object) {
            operations.remove(&called.number);
        }
    }

    /// The client waits no longer. What it asked may be carried out later.
    pub(super) fn given_up(&mut self, called: Called) {
        let operation = self.operations.get(&called.object).and_then(|of| of.get(&called.number));
        if operation.is_some_and(|operation| matches!(operation.did, Done::Saw(_))) {
            self.refused(called);
        }
    }

    /// The faults that the history shows.
    pub(super) fn judge(&self) -> Vec<(ClusterFailureKind, String)> {
        let mut faults = Vec::new();
        for (object, operations) in &self.operations {
            let operations: Vec<Op<Done>> = operations.values().copied().collect();
            let kind = if has_invented(&operations) {
                ClusterFailureKind::Invented
            } else if !is_linearizable(&operations) {
                ClusterFailureKind::NotLinearizable
            } else {
                continue;
            };
            let last: Vec<String> = operations.iter().rev().take(12).rev().map(describe).collect();
            let of = object.kind();
            faults.push((
                kind,
                format!(
                    "{of:?} {}.{}: no order explains its operations, the last of which are {}",
                    object.group,
                    object.number,
                    last.join(", ")
                ),
            ));
        }
        faults
    }
}

/// True if a client was told of a value that no client gave the object, or of a sum above the number of additions.
fn has_invented(operations: &[Op<Done>]) -> bool {
    let mut given = BTreeSet::new();
    let mut counted = 0;
    for operation in operations {
        match operation.did {
            Done::Set(parts) => given.extend(parts.into_iter().flatten().flatten()),
            Done::Counted(_) => counted += 1,
            Done::Saw(_) | Done::Expired(_) => {}
        }
    }
    operations.iter().any(|operation| match operation.did {
        Done::Saw(parts) => {
            parts.into_iter().flatten().flatten().any(|value| !given.contains(&value) && value > counted)
        }
        Done::Counted(Some(sum)) => sum > counted,
        Done::Set(_) | Done::Counted(None) | Done::Expired(_) => false,
    })
}

fn describe(operation: &Op<Done>) -> String {
    let Op { did, called, returned, .. } = operation;
    let returned = returned.map_or_else(|| "...".to_owned(), |at| at.to_string());
    format!("{called}-{returned} {did:?}")
}

#[cfg(test)]
mod tests {
    use super::*;

    const OBJECT: Object = Object { group: 0, number: 5 };

    fn set(value: u64) -> Done {
        Done::Set([Some(Some(value)), None])
    }

    fn saw(value: Option<u64>) -> Done {
        Done::Saw([Some(value), None])
    }

    fn kinds(history: &History) -> Vec<ClusterFailureKind> {
        history.judge().into_iter().map(|(kind, _)| kind).collect()
    }

    #[test]
    fn a_value_that_is_read_after_it_was_overwritten_is_found() {
        let mut history = History::default();
        for value in [101, 102] {
            let called = history.call(OBJECT, set(value));
            history.answered(called, set(value));
        }
        let (good, refused) = (history.call(OBJECT, saw(None)), history.call(OBJECT, set(103)));
        history.answered(good, saw(Some(102)));
        history.refused(refused);
        assert_eq!(kinds(&history), []);
        let stale = history.call(OBJECT, saw(None));
        history.answered(stale, saw(Some(101)));
        assert_eq!(kinds(&history), [ClusterFailureKind::NotLinearizable]);
    }

    #[test]
    fn a_value_that_nobody_gave_is_invented() {
        let mut history = History::default();
        let read = history.call(OBJECT, saw(None));
        history.answered(read, saw(Some(101)));
        assert_eq!(kinds(&history), [ClusterFailureKind::Invented]);
        let mut history = History::default();
        let count = history.call(OBJECT, Done::Counted(None));
        history.answered(count, Done::Counted(Some(2)));
        assert_eq!(kinds(&history), [ClusterFailureKind::Invented]);
    }

    #[test]
    fn a_write_without_an_answer_may_be_carried_out_or_not() {
        for found in [None, Some(101)] {
            let mut history = History::default();
            history.call(OBJECT, set(101));
            let read = history.call(OBJECT, saw(None));
            history.answered(read, saw(found));
            assert_eq!(kinds(&history), []);
        }
    }
}
