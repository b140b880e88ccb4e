//! How a group comes from the members that it has to those that it is to have.

use raft::eraftpb::{ConfChangeSingle, ConfChangeTransition, ConfChangeType, ConfChangeV2};

use super::Replica;
use crate::entry::Body;
use crate::event::Action;
use crate::{
    ChangeRefused, Configuration, Index, RemovalRefused, ReplicaId, Role, check_change, check_removal,
};

/// The next step of a change.
#[derive(Debug, PartialEq, Eq)]
enum Step {
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
fn next(current: &Configuration, wanted: &Configuration) -> Step {
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
fn begin(current: &Configuration, target: Configuration) -> ConfChangeV2 {
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
fn end() -> ConfChangeV2 {
    ConfChangeV2::default()
}

impl Replica {
    /// The group is to have the voters of `target`.
    pub(super) fn want(&mut self, target: Configuration, actions: &mut Vec<Action>) {
        let serves = self.serves();
        let refused = match self.leadership.as_mut().filter(|_| serves) {
            None => Some(ChangeRefused::NotLeading),
            Some(leads) => {
                let checked =
                    check_change(&self.settings, self.id, &self.node.store().state().state, &target);
                checked.map(|()| leads.wanted = Some(target)).err()
            }
        };
        actions.extend(refused.map(Action::RefuseChange));
    }

    /// Takes the next step from the group's members to those that it is to have, once the one before is applied.
    pub(super) fn change_to_wanted(&mut self, actions: &mut Vec<Action>) {
        let current = self.members.current();
        if self.node.raft.has_pending_conf() {
            return;
        }
        if current.is_joint() {
            return self.propose_change(end());
        }
        let is_whole = self.is_whole_copy();
        let Some(leads) = self.leadership.as_mut().filter(|_| !self.members.is_changing()) else { return };
        let Some(wanted) = leads.wanted.clone() else { return };
        // A replica that joined since the change was asked for may have another role.
        if let Err(why) = check_change(&self.settings, self.id, &self.node.store().state().state, &wanted) {
            leads.wanted = None;
            actions.push(Action::RefuseChange(why));
            return;
        }
        let joining = match next(current, &wanted) {
            Step::Done => {
                leads.wanted = None;
                return;
            }
            Step::BringUp(target) => return self.propose_change(begin(current, target)),
            Step::LetVote { joining } => joining,
        };
        let progress = self.node.raft.prs();
        let has = |id: ReplicaId, index: Index| progress.get(id.0).is_some_and(|of| of.matched >= index.0);
        if !joining.into_iter().all(|id| has(id, self.committed)) {
            return;
        }
        let stable = self.stable.get();
        let holds_all = |id| if id == self.id { is_whole } else { wanted.is_backup(id) && has(id, stable) };
        match check_removal(&self.settings, &wanted, holds_all) {
            Ok(()) => self.propose_change(begin(current, wanted)),
            // Copies come with time.
            Err(RemovalRefused::TooFewCopies { .. }) => {}
            Err(why @ RemovalRefused::LastBackup) => {
                leads.wanted = None;
                actions.push(Action::RefuseChange(why.into()));
            }
        }
    }

    /// Raft takes each entry of a leader, but while it hands over.
    fn propose_change(&mut self, change: ConfChangeV2) {
        self.node.propose_conf_change(Vec::new(), change).ok();
    }
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
