//! What a group's replica wants to have in the groups' log, in order. What comes while a request is in flight joins the next one.

use std::collections::VecDeque;

use raft::eraftpb::{Entry, HardState};
use replica::Base;

use crate::Change;

/// Bytes of entries that one record of the groups' log has, about.
const RECORD_BYTES: usize = 256 << 10;

/// A record of the groups' log, and the last request of the replica that it carries out.
#[derive(Debug, PartialEq)]
pub(super) struct Request {
    pub change: Change,
    /// The number of the `replica::Action::Persist`; `None` for a `Retire`.
    pub number: Option<u64>,
}

/// The requests that wait, in order.
#[derive(Debug, Default)]
pub(super) struct LogQueue(VecDeque<Request>);

impl LogQueue {
    /// The replica wants entries and vote durable, perhaps behind a new base.
    pub(super) fn persist(
        &mut self,
        number: u64,
        base: Option<Base>,
        entries: Vec<Entry>,
        vote: Option<HardState>,
    ) {
        if let Some(Request { change: Change::Write { base: b, entries: e, vote: v }, number: n }) =
            self.0.back_mut()
            && e.iter().map(|entry| entry.data.len()).sum::<usize>() < RECORD_BYTES
        {
            if base.is_some() {
                (*b, *e) = (base, Vec::new());
            }
            if let Some(first) = entries.first() {
                e.retain(|entry| entry.index < first.index);
            }
            e.extend(entries);
            *v = vote.or(v.take());
            *n = Some(number);
            return;
        }
        self.0.push_back(Request { change: Change::Write { base, entries, vote }, number: Some(number) });
    }

    /// The replica needs no entries up to a base any more.
    pub(super) fn retire(&mut self, base: Base) {
        if let Some(Request { change: Change::Retired(last), .. }) = self.0.back_mut() {
            *last = base;
            return;
        }
        self.0.push_back(Request { change: Change::Retired(base), number: None });
    }

    /// The next record.
    pub(super) fn take(&mut self) -> Option<Request> {
        self.0.pop_front()
    }
}

#[cfg(test)]
mod tests {
    use replica::{Configuration, Index, ReplicaId, Term};

    use super::*;

    fn entries(indexes: std::ops::Range<u64>, term: u64) -> Vec<Entry> {
        indexes.map(|index| Entry { index, term, ..Entry::default() }).collect()
    }

    fn base(index: u64) -> Base {
        Base { index: Index(index), term: Term(1), ..Base::first(Configuration::default(), ReplicaId(1)) }
    }

    #[test]
    fn requests_join_unless_the_log_is_retired_between() {
        let mut queue = LogQueue::default();
        let vote = HardState { term: 2, ..HardState::default() };
        queue.persist(1, None, entries(4..7, 1), Some(vote.clone()));
        queue.persist(2, None, entries(5..6, 2), None);
        queue.retire(base(2));
        queue.retire(base(3));
        queue.persist(3, None, entries(6..7, 2), None);
        queue.persist(4, Some(base(9)), vec![], None);
        let joined: Vec<Entry> = entries(4..5, 1).into_iter().chain(entries(5..6, 2)).collect();
        let first = Change::Write { base: None, entries: joined, vote: Some(vote) };
        let last = Change::Write { base: Some(base(9)), entries: vec![], vote: None };
        let wanted = [(first, Some(2)), (Change::Retired(base(3)), None), (last, Some(4))];
        for (change, number) in wanted {
            assert_eq!(queue.take(), Some(Request { change, number }));
        }
        assert_eq!(queue.take(), None);
    }
}
