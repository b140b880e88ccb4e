//! How a group comes from the members that it has to those that it is to have.

use raft::eraftpb::{ConfChangeSingle, ConfChangeTransition, ConfChangeType, ConfChangeV2};

use crate::entry::Body;
use crate::{Configuration, ReplicaId, Role};

/// The next step of a change.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Step {
    /// The group has the members.
    Done,
    /// The entry that begins the change to these members, with those who join as learners.
    BringUp(Configuration),
    /// The replicas that join are to hold everything that is committed before they vote.
    LetVote {
        /// Replicas that the group does not have yet.
        joining: Vec<ReplicaId>,
    },
}

/// The next step from `current`, in which no change is under way, to the voters of `wanted`.
pub(super) fn next(current: &Configuration, wanted: &Configuration) -> Step {
    if current == wanted {
        return Step::Done;
    }
    let joining = wanted.voters().filter(|(id, _)| current.role(*id).is_none());
    let joining: Vec<(ReplicaId, Role)> = joining.collect();
    if joining.iter().copied().eq(current.learners()) {
        return Step::LetVote { joining: joining.into_iter().map(|(id, _)| id).collect() };
    }
    Step::BringUp(Configuration::new(current.voters()).with_learners(joining))
}

/// Raft's change from `current` to `target`, during which both decide.
pub(super) fn begin(current: &Configuration, target: Configuration) -> ConfChangeV2 {
    let votes = target.voters().filter(|(id, _)| current.role(*id).is_none());
    let learns = target.learners().filter(|(id, _)| current.member(*id).is_none());
    let all = current.voters().chain(current.learners());
    let leaves = all.filter(|(id, _)| target.member(*id).is_none());
    let changes = votes.map(|(id, _)| (id, ConfChangeType::AddNode));
    let changes = changes.chain(learns.map(|(id, _)| (id, ConfChangeType::AddLearnerNode)));
    let changes = changes.chain(leaves.map(|(id, _)| (id, ConfChangeType::RemoveNode)));
    let changes: Vec<ConfChangeSingle> = changes
        .map(|(id, kind)| ConfChangeSingle {
            node_id: id.0,
            change_type: kind,
            ..ConfChangeSingle::default()
        })
        .collect();
    let mut change = ConfChangeV2::default();
    change.set_changes(changes.into());
    change.set_transition(ConfChangeTransition::Explicit);
    change.set_context(Body::Members(target).encode().into());
    change
}

/// Raft's end of the change under way.
pub(super) fn end() -> ConfChangeV2 {
    ConfChangeV2::default()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn group(ids: &[(u64, Role)]) -> Configuration {
        Configuration::new(ids.iter().map(|(id, role)| (ReplicaId(*id), *role)))
    }

    #[test]
    fn who_joins_learns_before_it_votes() {
        let has = group(&[(1, Role::Witness), (2, Role::Backup), (3, Role::Witness)]);
        let wanted = group(&[(1, Role::Witness), (2, Role::Backup), (4, Role::Witness)]);
        let learning = has.clone().with_learners([(ReplicaId(4), Role::Witness)]);
        assert_eq!(next(&has, &wanted), Step::BringUp(learning.clone()));
        assert_eq!(next(&learning, &wanted), Step::LetVote { joining: vec![ReplicaId(4)] });
        assert_eq!(next(&wanted, &wanted), Step::Done);
        // Another target: the learner of the one before goes.
        assert_eq!(next(&learning, &has), Step::BringUp(has.clone()));
    }

    #[test]
    fn raft_s_change_names_who_comes_and_who_goes() {
        let has = group(&[(1, Role::Witness), (2, Role::Backup), (3, Role::Witness)])
            .with_learners([(ReplicaId(4), Role::Witness)]);
        let wanted = group(&[(1, Role::Witness), (2, Role::Backup), (4, Role::Witness)]);
        let change = begin(&has, wanted);
        let changes: Vec<(u64, ConfChangeType)> =
            change.changes.iter().map(|single| (single.node_id, single.get_change_type())).collect();
        assert_eq!(changes, [(4, ConfChangeType::AddNode), (3, ConfChangeType::RemoveNode)]);
        assert_eq!(change.enter_joint(), Some(false));
        assert!(end().leave_joint());
    }
}
