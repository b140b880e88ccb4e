//! The office of primary: its holder keeps every value.

use crate::pending::Pending;
use crate::rules::Rules;
use crate::{Index, ReplicaId, Settings, Term};

/// The office of primary, which a witness takes when it is elected. Each election gives another office, also to the same witness.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Office {
    /// The witness.
    pub holder: ReplicaId,
    /// The term in which it was elected.
    pub term: Term,
}

/// An entry of the group's log that concerns offices.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum OfficeEntry {
    /// The leader of the entry's term takes the office. The entry follows Raft's empty one, before any command.
    Taken(Office),
    /// The holder need not keep values for this office any more. Proposed by the holder of a later office, once that is committed and its holder has every value up to there.
    Relieved(Office),
}

impl OfficeEntry {
    /// The entry is committed: it changes the group's standing offices.
    pub(crate) fn change(self, standing: &mut Vec<Office>) {
        match self {
            OfficeEntry::Taken(office) => standing.push(office),
            OfficeEntry::Relieved(office) => standing.retain(|standing| *standing != office),
        }
    }
}

/// The offices of a group, by the log of one replica.
///
/// Crash safety: the state is a function of the log and its commit index. Whoever drops entries from a log keeps [`Offices::standing`] in the [`Base`](crate::Base) that takes their place.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Offices {
    rules: Rules,
    /// Committed offices whose holders no committed entry relieves, oldest first. The last one is the group's.
    standing: Vec<Office>,
    /// Entries above the commit index, by index.
    uncommitted: Pending<OfficeEntry>,
}

impl Offices {
    /// The offices of a group whose log is empty, or begins after a snapshot with these committed offices, oldest first.
    pub fn new(settings: &Settings, standing: impl IntoIterator<Item = Office>) -> Offices {
        let standing = standing.into_iter().collect();
        Offices { rules: settings.rules(), standing, uncommitted: Pending::default() }
    }

    /// The entry was appended to the log.
    pub fn append(&mut self, index: Index, entry: OfficeEntry) {
        self.uncommitted.append(index, entry);
    }

    /// The log's entries from `first` on were replaced by those of another leader.
    pub fn truncate(&mut self, first: Index) {
        self.uncommitted.truncate(first);
    }

    /// Everything up to `index` is committed.
    pub fn commit(&mut self, index: Index) {
        while let Some((_, entry)) = self.uncommitted.take(index) {
            entry.change(&mut self.standing);
        }
    }

    /// Committed offices whose holders are not relieved, oldest first.
    pub fn standing(&self) -> &[Office] {
        &self.standing
    }

    /// The office that was committed last.
    pub fn current(&self) -> Option<Office> {
        self.standing.last().copied()
    }

    /// True if the replica keeps every value: its log has an office of the replica's, committed or not, of which it is not relieved.
    pub fn keeps_values(&self, replica: ReplicaId) -> bool {
        let taken = self.uncommitted.iter().filter_map(|entry| match entry {
            OfficeEntry::Taken(office) => Some(office),
            OfficeEntry::Relieved(_) => None,
        });
        let mut offices = self.standing.iter().chain(taken);
        if self.rules.relieves_by_election() {
            return offices.next_back().is_some_and(|last| last.holder == replica);
        }
        offices.any(|office| office.holder == replica)
    }

    /// True if the log has an entry, not yet committed, that relieves the holder of this office.
    pub fn is_being_relieved(&self, office: Office) -> bool {
        self.uncommitted.iter().any(|entry| *entry == OfficeEntry::Relieved(office))
    }

    /// The offices of which the holder of the current one relieves the others, once it has every value up to its own office and a leader's empty entry.
    pub fn to_relieve(&self) -> &[Office] {
        self.standing.split_last().map_or(&[], |(_, earlier)| earlier)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn office(holder: u64, term: u64) -> Office {
        Office { holder: ReplicaId(holder), term: Term(term) }
    }

    fn first() -> Offices {
        Offices::new(&Settings::default(), [office(1, 1)])
    }

    #[test]
    fn an_office_counts_for_its_holder_at_once_and_for_the_group_when_it_is_committed() {
        let mut offices = first();
        offices.append(Index(8), OfficeEntry::Taken(office(4, 2)));
        assert!(offices.keeps_values(ReplicaId(4)));
        assert_eq!(offices.current(), Some(office(1, 1)));
        offices.commit(Index(7));
        assert_eq!(offices.current(), Some(office(1, 1)));
        offices.commit(Index(8));
        assert_eq!(offices.current(), Some(office(4, 2)));
        assert_eq!(offices.to_relieve(), [office(1, 1)]);
    }

    #[test]
    fn who_was_in_office_keeps_values_until_a_committed_entry_relieves_it() {
        let mut offices = first();
        offices.append(Index(8), OfficeEntry::Taken(office(4, 2)));
        offices.append(Index(9), OfficeEntry::Relieved(office(1, 1)));
        offices.commit(Index(8));
        assert!(offices.keeps_values(ReplicaId(1)));
        offices.commit(Index(9));
        assert!(!offices.keeps_values(ReplicaId(1)));
    }

    #[test]
    fn a_relief_of_an_earlier_office_leaves_a_later_one_of_the_same_witness() {
        let mut offices = first();
        offices.append(Index(8), OfficeEntry::Taken(office(4, 2)));
        offices.append(Index(9), OfficeEntry::Relieved(office(1, 1)));
        offices.append(Index(10), OfficeEntry::Taken(office(1, 3)));
        offices.commit(Index(10));
        assert!(offices.keeps_values(ReplicaId(1)));
        assert_eq!(offices.standing(), [office(4, 2), office(1, 3)]);
    }

    #[test]
    fn an_office_that_another_leader_s_entries_replace_never_was() {
        let mut offices = first();
        offices.append(Index(8), OfficeEntry::Taken(office(4, 2)));
        offices.truncate(Index(8));
        offices.append(Index(8), OfficeEntry::Taken(office(5, 3)));
        offices.commit(Index(8));
        assert!(!offices.keeps_values(ReplicaId(4)));
        assert_eq!(offices.current(), Some(office(5, 3)));
    }
}
