//! The members of a group, by the log of one replica.

use std::collections::BTreeSet;

use crate::pending::Pending;
use crate::{Configuration, Index, ReplicaId};

/// The members of a group: those of the last change that the replica applied, and what entries above lead to.
///
/// Crash safety: the state is a function of the log and the index up to which it is applied. Whoever drops entries from a log keeps [`Membership::current`] in the [`Base`](crate::Base) that takes their place.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Membership {
    current: Configuration,
    /// The index of the last change that was applied.
    since: Index,
    /// The changes of entries that are not applied yet, by index. `None`: the end of a change.
    pending: Pending<Option<Configuration>>,
}

impl Membership {
    /// The membership of a replica that has applied the change at `since`, which led to these members.
    pub fn new(current: Configuration, since: Index) -> Membership {
        Membership { current, since, pending: Pending::default() }
    }

    /// The index of the last change that the replica applied: of two replicas' members those with the higher one are the later.
    pub fn since(&self) -> Index {
        self.since
    }

    /// The members that decide now.
    pub fn current(&self) -> &Configuration {
        &self.current
    }

    /// True if a change is under way, or an entry of the log begins one.
    pub fn is_changing(&self) -> bool {
        self.current.is_joint() || !self.pending.is_empty()
    }

    /// An entry that begins a change to `target`, or ends one, was appended to the log.
    pub fn append(&mut self, index: Index, target: Option<Configuration>) {
        self.pending.append(index, target);
    }

    /// The log's entries from `first` on were replaced by those of another leader.
    pub fn truncate(&mut self, first: Index) {
        self.pending.truncate(first);
    }

    /// Everything up to `index` is applied.
    pub fn apply(&mut self, index: Index) {
        while let Some((since, target)) = self.pending.take(index) {
            self.since = since;
            self.current = match target {
                Some(target) => self.current.joint_with(&target),
                None => self.current.left(),
            };
        }
    }

    /// The entry at `index` changes nothing: Raft refused it.
    pub fn refuse(&mut self, index: Index) {
        self.pending.remove(index);
    }

    /// True if the replica votes, and votes still when every change that the log has is over. A leader that does not stay takes no office: the copies that it relieves others of, or that it makes a value stable with, would go with it.
    pub fn stays(&self, replica: ReplicaId) -> bool {
        let mut targets = self.pending.iter().filter_map(Option::as_ref);
        self.current.stays(replica) && targets.all(|target| target.stays(replica))
    }

    /// The backups without which no value is stable: those that vote, and those that will vote once an entry of the log is committed. A value that becomes stable before a backup votes is with it then.
    pub fn backups(&self) -> BTreeSet<ReplicaId> {
        let targets = self.pending.iter().filter_map(Option::as_ref);
        let later = targets.flat_map(Configuration::backups);
        self.current.backups().chain(later).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Role;

    fn members(backups: &[u64], witnesses: &[u64]) -> Configuration {
        let of = |ids: &[u64], role| ids.iter().map(move |id| (ReplicaId(*id), role)).collect::<Vec<_>>();
        Configuration::new([of(backups, Role::Backup), of(witnesses, Role::Witness)].concat())
    }

    #[test]
    fn a_backup_counts_from_the_entry_on_that_lets_it_vote_until_a_change_without_it_ends() {
        let mut membership = Membership::new(members(&[2], &[1, 3]), Index(0));
        membership.append(Index(7), Some(members(&[4], &[1, 3])));
        assert!(membership.is_changing());
        assert_eq!(membership.backups(), BTreeSet::from([ReplicaId(2), ReplicaId(4)]));
        assert_eq!(membership.current(), &members(&[2], &[1, 3]));
        membership.apply(Index(7));
        assert_eq!(membership.backups(), BTreeSet::from([ReplicaId(2), ReplicaId(4)]));
        assert!(membership.is_changing());
        membership.append(Index(9), None);
        membership.apply(Index(9));
        assert_eq!(membership.backups(), BTreeSet::from([ReplicaId(4)]));
        assert!(!membership.is_changing());
    }

    #[test]
    fn who_is_to_go_stays_no_more_from_the_entry_on_that_says_so() {
        let mut membership = Membership::new(members(&[2], &[1, 3]), Index(0));
        assert!(membership.stays(ReplicaId(3)) && !membership.stays(ReplicaId(4)));
        membership.append(Index(7), Some(members(&[2], &[1, 4])));
        assert!(!membership.stays(ReplicaId(3)) && !membership.stays(ReplicaId(4)));
        membership.apply(Index(7));
        assert!(!membership.stays(ReplicaId(3)) && membership.stays(ReplicaId(4)));
    }

    #[test]
    fn a_change_that_another_leader_s_entries_replace_never_was() {
        let mut membership = Membership::new(members(&[2], &[1, 3]), Index(0));
        membership.append(Index(7), Some(members(&[4], &[1, 3])));
        membership.truncate(Index(7));
        membership.apply(Index(8));
        assert_eq!(membership, Membership::new(members(&[2], &[1, 3]), Index(0)));
    }
}
