//! From where on witnesses keep values.

use crate::rules::Rules;
use crate::{Index, Offices, ReplicaId, Settings};

/// The index up to which a group's values are stable: committed, and with every voting backup and a holder of an office that is not relieved, K + 1 copies. Witnesses need not keep them.
///
/// The index never falls: a backup counts from the entry on that lets it vote, and the holder of the office keeps what it has until it is relieved.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct StableIndex {
    rules: Rules,
    index: Index,
}

impl StableIndex {
    /// The stable index of a group whose log begins after `index`.
    pub fn new(settings: &Settings, index: Index) -> StableIndex {
        StableIndex { rules: settings.rules(), index }
    }

    /// The index.
    pub fn get(&self) -> Index {
        self.index
    }

    /// The leader moves the index. `own`: where its current office is its own, up to where its log is durable; `None` elsewhere. `matched`: up to where each voting backup, of both parts of a joint configuration, has acknowledged the leader's log in the leader's term.
    ///
    /// A leading backup does not move it: its copy is one of the backups', and the witness that gets the office from it has none yet.
    pub fn advance(
        &mut self,
        committed: Index,
        own: Option<Index>,
        matched: impl IntoIterator<Item = Index>,
    ) {
        if self.rules.drops_at_commit() {
            return self.learn(committed);
        }
        let own = match own {
            Some(_) if self.rules.counts_unwritten() => committed,
            Some(durable) => durable,
            None if self.rules.takes_any_leader_for_a_copy() => committed,
            None => return,
        };
        match matched.into_iter().min() {
            Some(least) => self.learn(committed.min(own).min(least)),
            None if self.rules.needs_no_backup() => self.learn(committed.min(own)),
            None => {}
        }
    }

    /// The group's leader says that the index is at least this.
    pub fn learn(&mut self, index: Index) {
        self.index = self.index.max(index);
    }

    /// The index up to which a witness may drop values: none while it keeps them for an office, whether it leads or not.
    pub fn droppable(&self, offices: &Offices, witness: ReplicaId, leads: bool) -> Index {
        let keeps = offices.keeps_values(witness) && (leads || !self.rules.takes_any_leader_for_a_copy());
        if keeps { Index::default() } else { self.index }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Office, Term};

    fn advanced(committed: u64, own: Option<u64>, matched: &[u64]) -> u64 {
        let mut stable = StableIndex::new(&Settings::default(), Index(2));
        stable.advance(Index(committed), own.map(Index), matched.iter().map(|index| Index(*index)));
        stable.get().0
    }

    #[test]
    fn what_is_committed_and_with_every_backup_is_stable() {
        assert_eq!(advanced(9, Some(12), &[12, 7]), 7);
        assert_eq!(advanced(6, Some(12), &[12, 7]), 6);
    }

    #[test]
    fn what_the_leader_has_not_written_yet_is_not_stable() {
        assert_eq!(advanced(9, Some(5), &[9, 9]), 5);
    }

    #[test]
    fn a_leader_without_the_office_moves_nothing() {
        assert_eq!(advanced(9, None, &[9, 9]), 2);
    }

    #[test]
    fn without_a_voting_backup_nothing_becomes_stable() {
        assert_eq!(advanced(9, Some(9), &[]), 2);
    }

    #[test]
    fn the_index_never_falls() {
        assert_eq!(advanced(9, Some(9), &[1]), 2);
    }

    #[test]
    fn a_witness_in_office_drops_nothing() {
        let settings = Settings::default();
        let stable = StableIndex::new(&settings, Index(5));
        let office = Office { holder: ReplicaId(1), term: Term(1) };
        let offices = Offices::new(&settings, [office]);
        assert_eq!(stable.droppable(&offices, ReplicaId(1), false), Index(0));
        assert_eq!(stable.droppable(&offices, ReplicaId(3), false), Index(5));
    }
}
