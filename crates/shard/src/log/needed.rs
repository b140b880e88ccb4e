//! The records of the groups' log that a group still needs.

use std::collections::VecDeque;

use fs::Ticket;

use super::record::Change;
use crate::rules::Rules;

/// The tickets of the records that one group needs: those of its base, of its last vote, and of its entries.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Needed {
    rules: Rules,
    base: Ticket,
    vote: Ticket,
    /// For each record with entries that are needed: the first of its entries, and the ticket. The first entry of the next record ends those that are needed.
    entries: VecDeque<(u64, Ticket)>,
    /// The index of the log's last entry.
    last: u64,
}

impl Needed {
    /// The records that a group needs of which the record with this ticket is the first one that is known.
    pub(super) fn from(rules: Rules, ticket: Ticket) -> Needed {
        Needed { rules, base: ticket, vote: ticket, entries: VecDeque::new(), last: 0 }
    }

    /// The record with a change of the group is durable.
    pub(super) fn note(&mut self, ticket: Ticket, change: &Change) {
        if self.rules.forgets_votes() {
            self.vote = ticket;
        }
        match change {
            Change::State(state) => {
                *self = Needed::from(self.rules, ticket);
                self.last = state.base.index.0 + state.entries.len() as u64;
                let first = state.entries.first().map(|entry| (entry.index, ticket));
                self.entries.extend(first);
            }
            Change::Write { base, entries, vote } => {
                if let Some(base) = base {
                    (self.base, self.last) = (ticket, base.index.0);
                    self.entries.clear();
                }
                if vote.is_some() {
                    self.vote = ticket;
                }
                if let (Some(first), Some(last)) = (entries.first(), entries.last()) {
                    let kept = self.entries.partition_point(|(of, _)| *of < first.index);
                    self.entries.truncate(kept);
                    if self.rules.forgets_replaced_records() && first.index <= self.last {
                        self.entries.pop_back();
                    }
                    self.entries.push_back((first.index, ticket));
                    self.last = last.index;
                }
            }
            Change::Retired(base) => {
                self.base = ticket;
                while self.entries.get(1).is_some_and(|(next, _)| *next <= base.index.0 + 1) {
                    self.entries.pop_front();
                }
                if self.last <= base.index.0 {
                    self.entries.clear();
                }
            }
            Change::Removed => {}
        }
    }

    /// The lowest ticket that the group needs.
    pub(super) fn oldest(&self) -> Ticket {
        let entries = self.entries.front().map(|(_, ticket)| *ticket);
        self.base.min(self.vote).min(entries.unwrap_or(self.base))
    }
}

#[cfg(test)]
mod tests {
    use raft::eraftpb::{Entry, HardState};
    use replica::{Base, Configuration, Index, ReplicaId};

    use super::super::stored::StoredGroup;
    use super::*;

    fn write(entries: std::ops::Range<u64>, votes: bool) -> Change {
        let entry = |index| Entry { index, ..Entry::default() };
        let vote = votes.then(HardState::default);
        Change::Write { base: None, entries: entries.map(entry).collect(), vote }
    }

    fn base(index: u64) -> Base {
        Base { index: Index(index), ..Base::first(Configuration::default(), ReplicaId(1)) }
    }

    fn oldest(changes: &[Change]) -> u64 {
        let mut needed = Needed::from(Rules::default(), Ticket(1));
        for (change, ticket) in changes.iter().zip(1..) {
            needed.note(Ticket(ticket), change);
        }
        needed.oldest().0
    }

    #[test]
    fn a_group_needs_its_base_its_vote_and_the_records_of_its_entries() {
        let state = || Change::State(StoredGroup::new(base(0)));
        let retired = |index| Change::Retired(base(index));
        assert_eq!(oldest(&[state(), write(1..4, true)]), 1);
        assert_eq!(oldest(&[state(), write(1..4, true), retired(2)]), 2);
        assert_eq!(oldest(&[state(), write(1..4, false), write(4..6, true), retired(3)]), 3);
        // Entry 3 is needed still, though later entries of its record were replaced.
        assert_eq!(oldest(&[state(), write(1..6, true), write(4..6, true), retired(2)]), 2);
        assert_eq!(oldest(&[state(), write(1..6, true), write(4..6, true), retired(3)]), 3);
        assert_eq!(oldest(&[state(), write(1..6, true), write(6..7, true), retired(6)]), 3);
        let snapshot = Change::Write { base: Some(base(9)), entries: vec![], vote: None };
        assert_eq!(oldest(&[state(), write(1..6, true), snapshot]), 2);
    }
}
