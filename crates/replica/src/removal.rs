//! The changes of members that a group refuses.

use crate::{Configuration, GroupState, ReplicaId, Role, Settings, Version};

/// The reason why a group does not go on with fewer replicas.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum RemovalRefused {
    /// No backup would vote any more.
    #[error("the last voting backup stays: without one no value becomes stable")]
    LastBackup,
    /// Too few replicas would have every value.
    #[error("{whole} replicas with every value would be left; {wanted} are needed where {may_fail} may fail")]
    TooFewCopies {
        /// Replicas of the new configuration with every value.
        whole: usize,
        /// The least number of them.
        wanted: usize,
        /// Replicas of the new configuration that may fail.
        may_fail: usize,
    },
}

/// Says whether a group may go on with the voters of `after`, fewer than before. `is_whole`: the replica is known to have every value, on its drive.
///
/// # Errors
/// The last backup would go, or so many copies that the failures which the new configuration tolerates could take all that are left.
pub fn check_removal(
    settings: &Settings,
    after: &Configuration,
    is_whole: impl Fn(ReplicaId) -> bool,
) -> Result<(), RemovalRefused> {
    let rules = settings.rules();
    if rules.counts_no_copies() || rules.needs_no_backup() {
        return Ok(());
    }
    if after.backups().next().is_none() {
        return Err(RemovalRefused::LastBackup);
    }
    let whole = after.voters().filter(|(id, _)| is_whole(*id)).count();
    let may_fail = after.may_fail();
    let wanted = may_fail + 1;
    if whole < wanted { Err(RemovalRefused::TooFewCopies { whole, wanted, may_fail }) } else { Ok(()) }
}

/// The reason why a group does not change its members.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum ChangeRefused {
    /// Another replica leads, or none.
    #[error("this replica does not lead the group in office")]
    NotLeading,
    /// The leader would go.
    #[error("the leader is to go: it hands leadership over first")]
    WithoutLeader,
    /// A voter would get another role.
    #[error("replica {} has another role: a replica keeps its role for life", .0.0)]
    OtherRole(ReplicaId),
    /// Too few replicas of a role: after as many failures as the group may have nobody could lead, or values would have too few copies.
    #[error("{count} {role:?} replicas of {voters} voters: at least {least} are needed")]
    TooFew {
        /// The role.
        role: Role,
        /// Voters with that role.
        count: usize,
        /// All voters.
        voters: usize,
        /// The least number with that role.
        least: usize,
    },
    /// A replica would join whose number one of the group may have had before: a plan of an old backup of etcd.
    #[error("the group may have had a replica {} before: its numbers up to {} are taken", .replica.0, .last.0)]
    NumberTaken {
        /// The replica.
        replica: ReplicaId,
        /// The highest number that a replica of the group had since version 2.
        last: ReplicaId,
    },
    /// Replicas would go that must stay.
    #[error(transparent)]
    Removal(#[from] RemovalRefused),
}

/// Says whether the group of `leader` in the state `current` may be asked for the voters of `target`.
///
/// # Errors
/// What is wrong with the target.
pub fn check_change(
    settings: &Settings,
    leader: ReplicaId,
    current: &GroupState,
    target: &Configuration,
) -> Result<(), ChangeRefused> {
    if target.role(leader).is_none() {
        return Err(ChangeRefused::WithoutLeader);
    }
    let members = &current.members;
    let is_other =
        |(id, role): &(ReplicaId, Role)| members.member(*id).is_some_and(|present| present != *role);
    if let Some((id, _)) = target.voters().find(is_other) {
        return Err(ChangeRefused::OtherRole(id));
    }
    let last = current.last_replica;
    let is_taken = |id: ReplicaId| members.member(id).is_none() && id <= last;
    if current.version >= Version::LAST_REPLICA
        && let Some((replica, _)) = target.voters().find(|(id, _)| is_taken(*id))
    {
        return Err(ChangeRefused::NumberTaken { replica, last });
    }
    if settings.rules().needs_no_backup() {
        return Ok(());
    }
    if target.backups().next().is_none() {
        return Err(RemovalRefused::LastBackup.into());
    }
    let voters = target.voters().len();
    for (role, least) in [(Role::Witness, target.may_fail() + 1), (Role::Backup, target.may_fail())] {
        let count = target.voters().filter(|(_, has)| *has == role).count();
        if count < least {
            return Err(ChangeRefused::TooFew { role, count, voters, least });
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Index;

    fn check(backups: &[u64], witnesses: &[u64], whole: &'static [u64]) -> Result<(), RemovalRefused> {
        let of = |ids: &[u64], role| ids.iter().map(move |id| (ReplicaId(*id), role)).collect::<Vec<_>>();
        let after = Configuration::new([of(backups, Role::Backup), of(witnesses, Role::Witness)].concat());
        check_removal(&Settings::default(), &after, |id| whole.contains(&id.0))
    }

    #[test]
    fn a_removal_leaves_more_whole_copies_than_may_fail() {
        assert_eq!(check(&[2], &[1, 4], &[1, 2]), Ok(()));
        assert_eq!(check(&[2], &[1, 4, 5], &[1, 2]), Ok(()));
        let refused = RemovalRefused::TooFewCopies { whole: 2, wanted: 3, may_fail: 2 };
        assert_eq!(check(&[2, 3], &[1, 4, 5], &[2, 3]), Err(refused));
        assert!(refused.to_string().contains("2 replicas with every value"));
    }

    #[test]
    fn a_group_keeps_witnesses_that_can_lead_and_backups_for_its_copies() {
        let of = |backups: &[u64], witnesses: &[u64]| {
            let of = |ids: &[u64], role| ids.iter().map(move |id| (ReplicaId(*id), role)).collect::<Vec<_>>();
            Configuration::new([of(backups, Role::Backup), of(witnesses, Role::Witness)].concat())
        };
        let five = of(&[2, 3], &[1, 4, 5]);
        let state = GroupState::first_version(five, Index(1), Vec::new());
        let check = |target: &Configuration| check_change(&Settings::default(), ReplicaId(1), &state, target);
        assert_eq!(check(&of(&[2, 3], &[1, 4])), Ok(()));
        let too_few = |role, count, voters, least| Err(ChangeRefused::TooFew { role, count, voters, least });
        assert_eq!(check(&of(&[2, 3], &[1])), too_few(Role::Witness, 1, 3, 2));
        assert_eq!(check(&of(&[2], &[1, 4, 5, 6])), too_few(Role::Backup, 1, 5, 2));
        assert_eq!(check(&of(&[2, 3], &[4, 5])), Err(ChangeRefused::WithoutLeader));
        let other = of(&[2, 4], &[1, 5, 6]);
        assert_eq!(check(&other), Err(ChangeRefused::OtherRole(ReplicaId(4))));
        // Replica 7 was there, and has gone.
        let state = GroupState { version: Version(2), last_replica: ReplicaId(7), ..state };
        let check = |target: &Configuration| check_change(&Settings::default(), ReplicaId(1), &state, target);
        assert_eq!(check(&of(&[2, 3], &[1, 5, 8])), Ok(()));
        let taken = ChangeRefused::NumberTaken { replica: ReplicaId(7), last: ReplicaId(7) };
        assert_eq!(check(&of(&[2, 3], &[1, 5, 7])), Err(taken));
    }

    #[test]
    fn the_last_backup_stays() {
        assert_eq!(check(&[], &[1, 4, 5], &[1, 4]), Err(RemovalRefused::LastBackup));
    }
}
