//! What clients of a simulated cluster asked, and what they were told.

use std::collections::BTreeMap;

use crate::linear::{Did, LIMIT, Op, Value, is_linearizable};

/// Operations on a key that the judge takes beyond those after which no more are begun.
const SPARE: usize = 16;

/// The operations on each key, by their numbers.
#[derive(Debug, Default)]
pub(super) struct History {
    operations: BTreeMap<u64, BTreeMap<u64, Op>>,
    /// The order of calls and answers.
    clock: u64,
    /// Operations that were answered.
    pub answered: u64,
}

/// An operation of a history: its key and its number.
#[derive(Clone, Copy, Debug)]
pub(super) struct Called {
    key: u64,
    number: u64,
}

impl History {
    /// True if the judge takes no more operations on the key, but for those under way and a last read.
    pub(super) fn is_full(&self, key: u64) -> bool {
        self.operations.get(&key).is_some_and(|operations| operations.len() + SPARE >= LIMIT)
    }

    /// A client begins to write.
    pub(super) fn call_write(&mut self, key: u64, value: Value) -> Called {
        self.call(key, Did::Write(value))
    }

    /// A client begins to read.
    pub(super) fn call_read(&mut self, key: u64) -> Called {
        self.call(key, Did::Read(None))
    }

    fn call(&mut self, key: u64, did: Did) -> Called {
        self.clock += 1;
        let operation = Op { did, called: self.clock, returned: None, certain: false };
        self.operations.entry(key).or_default().insert(self.clock, operation);
        Called { key, number: self.clock }
    }

    fn end(&mut self, called: Called, change: impl FnOnce(&mut Op, u64)) {
        self.clock += 1;
        self.answered += 1;
        let operation = self.operations.get_mut(&called.key).and_then(|of| of.get_mut(&called.number));
        if let Some(operation) = operation {
            change(operation, self.clock);
        }
    }

    /// A write was acknowledged.
    pub(super) fn written(&mut self, called: Called) {
        self.end(called, |operation, now| (operation.returned, operation.certain) = (Some(now), true));
    }

    /// A read was answered.
    pub(super) fn read(&mut self, called: Called, value: Value) {
        self.end(called, |operation, now| *operation = Op::answered(Did::Read(value), operation.called, now));
    }

    /// Nothing of the operation was begun.
    pub(super) fn refused(&mut self, called: Called) {
        if let Some(operations) = self.operations.get_mut(&called.key) {
            operations.remove(&called.number);
        }
    }

    /// The client waits no longer. A write may be carried out later.
    pub(super) fn given_up(&mut self, called: Called) {
        let operation = self.operations.get(&called.key).and_then(|of| of.get(&called.number));
        if operation.is_some_and(|operation| matches!(operation.did, Did::Read(_))) {
            self.refused(called);
        }
    }

    /// The faults that the history shows.
    pub(super) fn judge(&self) -> Vec<String> {
        let mut faults = Vec::new();
        for (key, operations) in &self.operations {
            let counts = |operation: &&Op| operation.certain || matches!(operation.did, Did::Write(_));
            let operations: Vec<Op> = operations.values().filter(counts).copied().collect();
            if !is_linearizable(&operations) {
                let last: Vec<String> = operations.iter().rev().take(12).rev().map(describe).collect();
                faults.push(format!(
                    "key {key}: no order explains its operations, the last of which are {}",
                    last.join(", ")
                ));
            }
        }
        faults
    }
}

fn describe(operation: &Op) -> String {
    let Op { did, called, returned, .. } = operation;
    let returned = returned.map_or_else(|| "...".to_owned(), |at| at.to_string());
    match did {
        Did::Write(value) => format!("{called}-{returned} writes {value:?}"),
        Did::Read(value) => format!("{called}-{returned} reads {value:?}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_value_that_is_read_after_it_was_overwritten_is_found() {
        let mut history = History::default();
        for value in [1, 2] {
            let called = history.call_write(7, Some(value));
            history.written(called);
        }
        let (good, refused) = (history.call_read(7), history.call_write(7, Some(3)));
        history.read(good, Some(2));
        history.refused(refused);
        assert_eq!(history.judge(), Vec::<String>::new());
        let stale = history.call_read(7);
        history.read(stale, Some(1));
        assert_eq!(history.judge().len(), 1);
    }

    #[test]
    fn a_write_without_an_answer_may_be_carried_out_or_not() {
        for found in [None, Some(1)] {
            let mut history = History::default();
            history.call_write(1, Some(1));
            let read = history.call_read(1);
            history.read(read, found);
            assert_eq!(history.judge(), Vec::<String>::new());
        }
    }
}
