//! The voters of a group.

use std::collections::BTreeSet;

use crate::message::NodeId;

/// From this many voters on a group keeps one undisturbed node more than a majority.
const LEAST_VOTERS_WITH_SPARE: usize = 5;

/// The voters of the group: of one configuration, or of two while the membership changes (joint consensus).
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Members {
    voters: BTreeSet<NodeId>,
    joint: Option<BTreeSet<NodeId>>,
}

impl Members {
    /// The voters of one configuration.
    pub fn of(voters: impl IntoIterator<Item = NodeId>) -> Members {
        Members { voters: voters.into_iter().collect(), joint: None }
    }

    /// The voters of two configurations, both of which must agree.
    pub fn joint(old: impl IntoIterator<Item = NodeId>, new: impl IntoIterator<Item = NodeId>) -> Members {
        Members { voters: old.into_iter().collect(), joint: Some(new.into_iter().collect()) }
    }

    /// The configurations: one or two.
    pub fn configurations(&self) -> impl Iterator<Item = &BTreeSet<NodeId>> {
        [Some(&self.voters), self.joint.as_ref()].into_iter().flatten()
    }

    /// All voters.
    pub fn voters(&self) -> BTreeSet<NodeId> {
        self.configurations().flatten().copied().collect()
    }

    /// Number of voters of a configuration of `voters` that must stay undisturbed while another node has a turn: a majority, and a spare one from five voters
    /// on. A configuration in which no majority is left without one node keeps all others undisturbed.
    pub fn min_undisturbed(voters: usize) -> usize {
        let majority = voters / 2 + 1;
        let spare = usize::from(voters >= LEAST_VOTERS_WITH_SPARE);
        (majority + spare).min(voters.saturating_sub(1))
    }

    /// The most turns at the same time in a configuration of `voters`.
    pub fn max_turns(voters: usize) -> usize {
        voters - Members::min_undisturbed(voters)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_majority_stays_undisturbed_and_a_spare_one_from_five_voters_on() {
        let most: Vec<usize> = (1..=9).map(Members::max_turns).collect();
        assert_eq!(most, [1, 1, 1, 1, 1, 1, 2, 2, 3]);
        assert!((3..=9).all(|n| Members::min_undisturbed(n) > n / 2));
    }

    #[test]
    fn the_voters_of_a_joint_configuration_are_those_of_both() {
        let members = Members::joint([1, 2, 3].map(NodeId), [3, 4, 5].map(NodeId));
        assert_eq!(members.configurations().count(), 2);
        assert_eq!(members.voters(), [1, 2, 3, 4, 5].map(NodeId).into());
    }
}
