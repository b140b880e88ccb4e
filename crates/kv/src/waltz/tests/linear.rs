//! Whether concurrent operations on one register have an order that explains them (Wing and Gong's search).

use std::collections::HashSet;

/// What an operation did.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Did {
    /// Set the register; nothing is a delete.
    Write(Option<i64>),
    /// Saw it.
    Read(Option<i64>),
}

/// An operation and when it ran.
#[derive(Clone, Copy, Debug)]
pub struct Op {
    pub did: Did,
    pub called: u64,
    /// None: it was never answered, and may have happened at any later time, or not at all.
    pub returned: Option<u64>,
}

/// Whether some order of the operations is one that a register could have gone through.
pub fn is_linearizable(ops: &[Op]) -> bool {
    assert!(ops.len() <= 64, "{} operations: the search takes 64", ops.len());
    let answered =
        ops.iter().enumerate().filter(|(_, op)| op.returned.is_some()).fold(0, |m, (n, _)| m | 1 << n);
    search(ops, answered, 0, None, &mut HashSet::new())
}

fn search(
    ops: &[Op],
    answered: u64,
    done: u64,
    value: Option<i64>,
    seen: &mut HashSet<(u64, Option<i64>)>,
) -> bool {
    if done & answered == answered {
        return true;
    }
    if !seen.insert((done, value)) {
        return false;
    }
    let left = || (0..ops.len()).filter(|n| done >> n & 1 == 0);
    // Nothing may come after an operation that ended before it began.
    let first_return = left().filter_map(|n| ops[n].returned).min().unwrap_or(u64::MAX);
    left().filter(|n| ops[*n].called < first_return).any(|n| match ops[n].did {
        Did::Write(new) => search(ops, answered, done | 1 << n, new, seen),
        Did::Read(saw) => saw == value && search(ops, answered, done | 1 << n, value, seen),
    })
}

#[test]
fn a_read_of_a_value_that_was_overwritten_before_it_began_is_found() {
    let op = |did, called, returned| Op { did, called, returned };
    let writes = [op(Did::Write(Some(1)), 0, Some(1)), op(Did::Write(Some(2)), 2, Some(3))];
    let with = |read: Op| is_linearizable(&[writes[0], writes[1], read]);
    assert!(with(op(Did::Read(Some(2)), 4, Some(5))));
    assert!(!with(op(Did::Read(Some(1)), 4, Some(5))));
    assert!(with(op(Did::Read(Some(1)), 1, Some(5))), "it ran beside the second write");
    assert!(!with(op(Did::Read(None), 1, Some(5))));
}

#[test]
fn a_write_without_an_answer_may_have_happened_or_not_but_not_before_it_was_called() {
    let pending = Op { did: Did::Write(Some(1)), called: 5, returned: None };
    let read = |value, called| Op { did: Did::Read(value), called, returned: Some(called + 1) };
    assert!(is_linearizable(&[pending, read(None, 6), read(Some(1), 8)]));
    assert!(is_linearizable(&[pending, read(None, 6), read(None, 8)]));
    assert!(!is_linearizable(&[pending, read(Some(1), 6), read(None, 8)]));
    assert!(!is_linearizable(&[pending, read(Some(1), 1)]));
}
