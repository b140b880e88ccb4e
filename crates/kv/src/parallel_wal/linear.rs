//! Whether concurrent operations on one register have an order that explains them: the search of Wing and Gong, which
//! remembers what it has tried, as Lowe's and porcupine's do.
//!
//! A crash adds what their models lack: an operation that was answered may be lost with all that nobody was promised.
//! If it is there, though, it is there at its time.

use std::collections::HashSet;

/// Operations on one register that a search takes.
pub const LIMIT: usize = 128;

/// A register's value; none is a register that was never set, or deleted.
pub type Value = Option<u64>;

/// What an operation did.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Did {
    /// Set the register.
    Write(Value),
    /// Saw it.
    Read(Value),
}

/// An operation and when it ran.
#[derive(Clone, Copy, Debug)]
pub struct Op {
    /// What it did.
    pub did: Did,
    /// When it began.
    pub called: u64,
    /// When it was answered. None: never, so that it may have happened at any later time.
    pub returned: Option<u64>,
    /// It happened. Otherwise it may have, or not.
    pub certain: bool,
}

impl Op {
    /// An operation that was answered, and happened.
    pub fn answered(did: Did, called: u64, returned: u64) -> Op {
        Op { did, called, returned: Some(returned), certain: true }
    }

    /// An operation without an answer.
    pub fn pending(did: Did, called: u64) -> Op {
        Op { did, called, returned: None, certain: false }
    }

    /// An answered operation that a crash may have taken.
    pub fn unpromised(did: Did, called: u64, returned: u64) -> Op {
        Op { did, called, returned: Some(returned), certain: false }
    }
}

/// Whether some order of all operations that are certain, and of some of the others, is one that a register could have
/// gone through, with no operation before one that had ended when it began.
///
/// # Panics
/// With more than [`LIMIT`] operations.
pub fn is_linearizable(ops: &[Op]) -> bool {
    assert!(ops.len() <= LIMIT, "{} operations: the search takes {LIMIT}", ops.len());
    let certain = ops.iter().enumerate().filter(|(_, op)| op.certain).fold(0, |mask, (n, _)| mask | 1 << n);
    Search { ops, certain, seen: HashSet::new() }.from(0, None, 0)
}

struct Search<'a> {
    ops: &'a [Op],
    certain: u128,
    /// What was tried: operations done, and the value after them.
    seen: HashSet<(u128, Value)>,
}

impl Search<'_> {
    /// `latest` is when the last of those that are done began.
    fn from(&mut self, done: u128, value: Value, latest: u64) -> bool {
        if done & self.certain == self.certain {
            return true;
        }
        if !self.seen.insert((done, value)) {
            return false;
        }
        let ops = self.ops;
        let left = || ops.iter().enumerate().filter(move |(n, _)| done >> n & 1 == 0);
        // Nothing may come after what ended before it began.
        let first_end =
            left().filter(|(_, op)| op.certain).filter_map(|(_, op)| op.returned).min().unwrap_or(u64::MAX);
        let fits = |op: &Op| op.called < first_end && op.returned.is_none_or(|end| end > latest);
        left().filter(|(_, op)| fits(op)).any(|(n, op)| {
            let (fits, after) = match op.did {
                Did::Write(new) => (true, new),
                Did::Read(saw) => (saw == value, value),
            };
            fits && self.from(done | 1 << n, after, latest.max(op.called))
        })
    }
}

#[cfg(test)]
mod tests;
