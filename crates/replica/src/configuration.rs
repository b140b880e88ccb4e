//! The voters and learners of a group.

use std::collections::BTreeMap;

use crate::{ReplicaId, Role};

/// The replicas of a group. While the group changes from one set of voters to another (Raft's joint consensus) both sets decide.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Default)]
pub struct Configuration {
    voters: BTreeMap<ReplicaId, Role>,
    /// Replicas that are brought up and do not vote yet, with the role that they will have.
    learners: BTreeMap<ReplicaId, Role>,
    /// The voters before the change that is under way; empty while none is.
    outgoing: BTreeMap<ReplicaId, Role>,
}

impl Configuration {
    /// The configuration of these voters.
    pub fn new(voters: impl IntoIterator<Item = (ReplicaId, Role)>) -> Configuration {
        Configuration { voters: voters.into_iter().collect(), ..Configuration::default() }
    }

    /// This configuration, with `learners` in place of its own learners.
    #[must_use]
    pub fn with_learners(self, learners: impl IntoIterator<Item = (ReplicaId, Role)>) -> Configuration {
        Configuration { learners: learners.into_iter().collect(), ..self }
    }

    /// The configuration in which both the voters of this one and those of `target` decide.
    #[must_use]
    pub fn joint_with(&self, target: &Configuration) -> Configuration {
        Configuration { outgoing: self.voters.clone(), ..target.clone() }
    }

    /// The configuration that a joint one leads to.
    #[must_use]
    pub fn left(&self) -> Configuration {
        Configuration { outgoing: BTreeMap::new(), ..self.clone() }
    }

    /// True while a change is under way.
    pub fn is_joint(&self) -> bool {
        !self.outgoing.is_empty()
    }

    /// The voters before the change that is under way.
    pub fn outgoing(&self) -> impl ExactSizeIterator<Item = (ReplicaId, Role)> {
        self.outgoing.iter().map(|(id, role)| (*id, *role))
    }

    /// The learners.
    pub fn learners(&self) -> impl ExactSizeIterator<Item = (ReplicaId, Role)> {
        self.learners.iter().map(|(id, role)| (*id, *role))
    }

    /// The voters of the configuration; of a joint one those that it leads to.
    pub fn voters(&self) -> impl ExactSizeIterator<Item = (ReplicaId, Role)> {
        self.voters.iter().map(|(id, role)| (*id, *role))
    }

    /// The backups that vote, in either part of a joint configuration.
    pub fn backups(&self) -> impl Iterator<Item = ReplicaId> {
        let both =
            self.voters.iter().chain(self.outgoing.iter().filter(|(id, _)| !self.voters.contains_key(id)));
        both.filter(|(_, role)| **role == Role::Backup).map(|(id, _)| *id)
    }

    /// True if the replica votes as a backup.
    pub fn is_backup(&self, replica: ReplicaId) -> bool {
        self.role(replica) == Some(Role::Backup)
    }

    /// True if the replica votes also when the change under way, if there is one, has ended.
    pub fn stays(&self, replica: ReplicaId) -> bool {
        self.voters.contains_key(&replica)
    }

    /// The highest number of a member, 0 where there are none.
    pub fn last_replica(&self) -> ReplicaId {
        let all = self.voters().chain(self.outgoing()).chain(self.learners());
        all.map(|(id, _)| id).max().unwrap_or(ReplicaId(0))
    }

    /// The role of a voter.
    pub fn role(&self, replica: ReplicaId) -> Option<Role> {
        self.voters.get(&replica).or_else(|| self.outgoing.get(&replica)).copied()
    }

    /// The role that a voter or learner has.
    pub fn member(&self, replica: ReplicaId) -> Option<Role> {
        self.role(replica).or_else(|| self.learners.get(&replica).copied())
    }

    /// True if a majority of the voters, of both parts of a joint configuration, has what `has` asks for.
    pub fn is_majority(&self, has: impl Fn(ReplicaId) -> bool) -> bool {
        [&self.voters, &self.outgoing].into_iter().all(|part| {
            let count = part.keys().filter(|id| has(**id)).count();
            part.is_empty() || count * 2 > part.len()
        })
    }

    /// Number of voters that may fail while the others are a majority: K of 2K + 1.
    pub fn may_fail(&self) -> usize {
        self.voters.len().saturating_sub(1) / 2
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn group(backups: &[u64], witnesses: &[u64]) -> Configuration {
        let of = |ids: &[u64], role| ids.iter().map(move |id| (ReplicaId(*id), role)).collect::<Vec<_>>();
        Configuration::new([of(backups, Role::Backup), of(witnesses, Role::Witness)].concat())
    }

    #[test]
    fn both_parts_of_a_joint_configuration_decide() {
        let joint = group(&[2], &[1, 3]).joint_with(&group(&[4], &[1, 5]));
        let has = |ids: &'static [u64]| joint.is_majority(|id| ids.contains(&id.0));
        assert!(has(&[1, 2, 4]));
        assert!(!has(&[1, 2, 3]));
        assert!(!has(&[1, 4, 5]));
        assert_eq!(joint.backups().collect::<Vec<_>>(), [ReplicaId(4), ReplicaId(2)]);
        assert_eq!(joint.role(ReplicaId(3)), Some(Role::Witness));
        assert!(joint.is_joint());
        assert_eq!(joint.left(), group(&[4], &[1, 5]));
    }

    #[test]
    fn a_learner_is_a_member_without_a_vote() {
        let group = group(&[2], &[1, 3]).with_learners([(ReplicaId(4), Role::Backup)]);
        assert_eq!(group.role(ReplicaId(4)), None);
        assert_eq!(group.member(ReplicaId(4)), Some(Role::Backup));
        assert_eq!(group.backups().collect::<Vec<_>>(), [ReplicaId(2)]);
        assert!(group.is_majority(|id| [1, 2].contains(&id.0)));
    }

    #[test]
    fn k_of_2k_and_one_may_fail() {
        assert_eq!(group(&[2], &[1, 3]).may_fail(), 1);
        assert_eq!(group(&[2, 3], &[1, 4, 5]).may_fail(), 2);
        assert_eq!(group(&[2, 3], &[1, 4]).may_fail(), 1);
    }
}
