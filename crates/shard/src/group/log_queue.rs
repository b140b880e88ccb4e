//! The queue of a replica's requests to the groups' log. Requests that come while a record is being written join the next record.

use std::collections::VecDeque;

use raft::eraftpb::{Entry, HardState};
use replica::Base;

use crate::Change;

/// Bytes of entries that one record of the groups' log has, about.
const RECORD_BYTES: usize = 256 << 10;

/// Records with entries that may come before the one that retires others, while there are any.
const WRITES_BEFORE_RETIREMENT: u32 = 8;

/// A record of the groups' log, and the requests of the replica that it carries out.
#[derive(Debug, PartialEq)]
pub(super) struct Request {
    pub change: Change,
    /// The numbers of the first and the last `replica::Action::Persist`; `None` for a `Retire`.
    pub numbers: Option<(u64, u64)>,
}

/// The requests that wait.
#[derive(Debug, Default)]
pub(super) struct LogQueue {
    /// Entries and votes, in order.
    writes: VecDeque<Request>,
    /// The base behind which the log is to begin, and the last write before the replica said so. That write may have entries up to the base, so that it comes first.
    retired: Option<(Base, u64)>,
    /// Bytes of the entries that came into the last of them.
    bytes: usize,
    /// The number of the last write that was asked for.
    last: u64,
    /// Writes taken since the log was retired last.
    taken: u32,
}

impl LogQueue {
    /// The replica wants entries and vote durable, perhaps behind a new base.
    pub(super) fn persist(
        &mut self,
        number: u64,
        base: Option<Base>,
        entries: Vec<Entry>,
        vote: Option<HardState>,
    ) {
        self.last = number;
        let bytes: usize = entries.iter().map(|entry| entry.data.len()).sum();
        if base.is_some() {
            // The new base is behind the one before.
            self.retired = None;
        }
        if let Some(Request { change: Change::Write { base: b, entries: e, vote: v }, numbers }) =
            self.writes.back_mut()
            && self.bytes < RECORD_BYTES
        {
            self.bytes += bytes;
            if base.is_some() {
                (*b, *e) = (base, Vec::new());
            }
            if let Some(first) = entries.first() {
                e.retain(|entry| entry.index < first.index);
            }
            e.extend(entries);
            *v = vote.or(v.take());
            *numbers = numbers.map(|(first, _)| (first, number));
            return;
        }
        self.bytes = bytes;
        let change = Change::Write { base, entries, vote };
        self.writes.push_back(Request { change, numbers: Some((number, number)) });
    }

    /// The replica needs no entries up to a base any more.
    pub(super) fn retire(&mut self, base: Base) {
        self.retired = Some((base, self.last));
    }

    /// True if no entries and no vote wait to be written.
    pub(super) fn has_no_writes(&self) -> bool {
        self.writes.is_empty()
    }

    /// True if a record that retires others is among those that wait.
    pub(super) fn is_to_retire(&self) -> bool {
        self.retired.is_some()
    }

    /// The record that retires others, if all writes that came before it were taken.
    pub(super) fn take_retirement(&mut self) -> Option<Request> {
        let first = self.writes.front().and_then(|write| write.numbers).map(|(first, _)| first);
        let is_behind = |after: u64| first.is_none_or(|first| first > after);
        let (base, _) = self.retired.take_if(|(_, after)| is_behind(*after))?;
        self.taken = 0;
        Some(Request { change: Change::Retired(base), numbers: None })
    }

    /// The next record. A record that retires others waits while there are entries and votes to be written, but not for ever.
    pub(super) fn take(&mut self) -> Option<Request> {
        if self.writes.is_empty() || self.taken >= WRITES_BEFORE_RETIREMENT {
            let retirement = self.take_retirement();
            if retirement.is_some() {
                return retirement;
            }
        }
        let write = self.writes.pop_front();
        self.taken += u32::from(write.is_some());
        write
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

    fn write(base: Option<Base>, entries: Vec<Entry>, vote: Option<HardState>) -> Change {
        Change::Write { base, entries, vote }
    }

    #[test]
    fn requests_join_and_what_retires_entries_comes_behind_them() {
        let mut queue = LogQueue::default();
        let vote = HardState { term: 2, ..HardState::default() };
        queue.persist(1, None, entries(4..7, 1), Some(vote.clone()));
        queue.retire(base(2));
        queue.persist(2, None, entries(5..6, 2), None);
        queue.retire(base(3));
        let joined: Vec<Entry> = entries(4..5, 1).into_iter().chain(entries(5..6, 2)).collect();
        let wanted = [(write(None, joined, Some(vote)), Some((1, 2))), (Change::Retired(base(3)), None)];
        for (change, numbers) in wanted {
            assert_eq!(queue.take(), Some(Request { change, numbers }));
        }
        assert_eq!(queue.take(), None);
    }

    #[test]
    fn a_base_that_takes_the_log_s_place_leaves_nothing_to_retire() {
        let mut queue = LogQueue::default();
        queue.persist(1, None, entries(4..7, 1), None);
        queue.retire(base(3));
        queue.persist(2, Some(base(9)), vec![], None);
        let change = write(Some(base(9)), vec![], None);
        assert_eq!(queue.take(), Some(Request { change, numbers: Some((1, 2)) }));
        assert_eq!(queue.take(), None);
    }

    #[test]
    fn entries_are_retired_beside_writes_without_end_but_never_before_they_are_written() {
        let mut queue = LogQueue::default();
        let mut retired = Vec::new();
        for number in 1..40 {
            queue.persist(number, None, entries(number..number + 1, 1), None);
            if let Some(Request { change: Change::Retired(base), .. }) = queue.take() {
                retired.push((number, base.index.0));
            }
            queue.retire(base(number));
        }
        assert_eq!(retired, [(9, 8), (18, 17), (27, 26), (36, 35)]);
    }
}
