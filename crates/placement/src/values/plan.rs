//! The members that a group is to have: the value of a key `groups/N/want`.

use std::collections::BTreeSet;

use replica::{ReplicaId, Role};
use serde::{Deserialize, Serialize};

use super::json;
use super::meta::MAX_COPIES;
use crate::names::parse_node;
use crate::value_error::ValueError;
use replica::NodeId;

/// The most replicas that leave a group at the same time.
const MAX_LEAVING: usize = 64;

/// The highest number of a replica that is decoded: far from where numbers would end.
pub(super) const MAX_REPLICA: u64 = 1 << 48;

/// A replica that a group is to have.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Member {
    /// The replica's number.
    pub replica: ReplicaId,
    /// The node that has it.
    pub node: NodeId,
    /// Its role, for life. The primary is a witness that holds the office.
    pub role: Role,
}

/// The members that a group is to have: K backups and K + 1 witnesses, each on a node of its own.
///
/// The group's own log is the truth about the members that it has: it follows a changed plan by a change of its members in which new ones are brought up before old ones go.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct GroupPlan {
    /// In ascending order of their numbers.
    members: Vec<Member>,
    /// The witness that is elected first if it can be, and to which the office goes back.
    preferred: ReplicaId,
    /// The highest number that a replica of the group ever had.
    last_replica: ReplicaId,
    /// Replicas that others have taken the places of, and that are not known to be deleted. In ascending order of their numbers.
    leaving: Vec<Member>,
}

/// A role's name in etcd.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum RoleName {
    Backup,
    Witness,
}

impl From<Role> for RoleName {
    fn from(role: Role) -> RoleName {
        match role {
            Role::Backup => RoleName::Backup,
            Role::Witness => RoleName::Witness,
        }
    }
}

impl From<RoleName> for Role {
    fn from(name: RoleName) -> Role {
        match name {
            RoleName::Backup => Role::Backup,
            RoleName::Witness => Role::Witness,
        }
    }
}

/// The fields in etcd.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Fields {
    last_replica: u64,
    preferred: u64,
    members: Vec<MemberFields>,
    leaving: Vec<MemberFields>,
}

/// The fields of a member in etcd.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct MemberFields {
    replica: u64,
    node: String,
    role: RoleName,
}

impl GroupPlan {
    /// A plan of these members.
    ///
    /// # Errors
    /// [`ValueError::Rule`]: members that are not K backups and K + 1 witnesses, K from 1 to 7; two replicas with one number or on one node; numbers that do not ascend from 1 up to
    /// `last_replica`; a preferred replica that is no witness of the group.
    pub fn new(
        members: Vec<Member>,
        preferred: ReplicaId,
        last_replica: ReplicaId,
    ) -> Result<GroupPlan, ValueError> {
        let backups = members.iter().filter(|member| member.role == Role::Backup).count();
        if !(1..=MAX_COPIES).contains(&backups) || members.len() != 2 * backups + 1 {
            return Err(ValueError::rule(format!(
                "{backups} backups and {} witnesses are not K and K + 1, K from 1 to {MAX_COPIES}",
                members.len() - backups
            )));
        }
        let mut last = 0;
        let mut nodes = BTreeSet::new();
        for member in &members {
            if member.replica.0 <= last {
                return Err(ValueError::rule("the numbers of the replicas do not ascend from 1 on"));
            }
            last = member.replica.0;
            if !nodes.insert(member.node) {
                return Err(ValueError::rule(format!("two replicas are on node {}", member.node)));
            }
        }
        if last > last_replica.0 {
            return Err(ValueError::rule(format!(
                "replica {last} is above the last number given, {}",
                last_replica.0
            )));
        }
        let plan = GroupPlan { members, preferred, last_replica, leaving: Vec::new() };
        if plan.member(preferred).is_none_or(|member| member.role != Role::Witness) {
            return Err(ValueError::rule(format!(
                "the preferred replica {} is no witness of the group",
                preferred.0
            )));
        }
        Ok(plan)
    }

    /// The plan with these members in the place of its own. Members that go leave.
    ///
    /// # Errors
    /// The rules of [`GroupPlan::new`] and [`GroupPlan::with_leaving`].
    pub fn replaced_by(
        &self,
        members: Vec<Member>,
        preferred: ReplicaId,
        last_replica: ReplicaId,
    ) -> Result<GroupPlan, ValueError> {
        let goes = |member: &&Member| !members.iter().any(|new| new.replica == member.replica);
        let mut leaving: Vec<Member> = self.leaving.clone();
        leaving.extend(self.members.iter().filter(goes));
        leaving.sort_by_key(|member| member.replica);
        GroupPlan::new(members, preferred, last_replica)?.with_leaving(leaving)
    }

    /// The plan with these replicas as those that leave.
    ///
    /// # Errors
    /// [`ValueError::Rule`]: numbers that do not ascend from 1 up to the last one given, or that a member has; more than 64 replicas.
    pub fn with_leaving(self, leaving: Vec<Member>) -> Result<GroupPlan, ValueError> {
        if leaving.len() > MAX_LEAVING {
            return Err(ValueError::rule(format!(
                "{} replicas leave the group, more than {MAX_LEAVING}",
                leaving.len()
            )));
        }
        let mut last = 0;
        for Member { replica, .. } in &leaving {
            if replica.0 <= last || *replica > self.last_replica {
                return Err(ValueError::rule("the numbers of the replicas that leave do not ascend"));
            }
            if self.member(*replica).is_some() {
                return Err(ValueError::rule(format!("replica {} is a member and leaves", replica.0)));
            }
            last = replica.0;
        }
        Ok(GroupPlan { leaving, ..self })
    }

    /// The plan without the replicas that leave for which `is_gone` is true.
    #[must_use]
    pub fn without_gone(mut self, is_gone: impl Fn(&Member) -> bool) -> GroupPlan {
        self.leaving.retain(|member| !is_gone(member));
        self
    }

    /// The value in `bytes`.
    ///
    /// # Errors
    /// [`ValueError`]: no such fields, an unknown role, or a rule of [`GroupPlan::new`] and [`GroupPlan::with_leaving`].
    pub fn decode(bytes: &[u8]) -> Result<GroupPlan, ValueError> {
        let fields: Fields = json::decode(bytes)?;
        let member = |fields: &MemberFields| {
            Ok(Member {
                replica: ReplicaId(fields.replica),
                node: parse_node(&fields.node)?,
                role: fields.role.into(),
            })
        };
        if fields.last_replica > MAX_REPLICA {
            return Err(ValueError::rule(format!("{} is no number of a replica", fields.last_replica)));
        }
        let members = fields.members.iter().map(member).collect::<Result<_, _>>()?;
        let leaving = fields.leaving.iter().map(member).collect::<Result<_, _>>()?;
        GroupPlan::new(members, ReplicaId(fields.preferred), ReplicaId(fields.last_replica))?
            .with_leaving(leaving)
    }

    /// The value's bytes.
    pub fn encode(&self) -> Vec<u8> {
        let member = |member: &Member| MemberFields {
            replica: member.replica.0,
            node: member.node.to_string(),
            role: member.role.into(),
        };
        json::encode(&Fields {
            last_replica: self.last_replica.0,
            preferred: self.preferred.0,
            members: self.members.iter().map(member).collect(),
            leaving: self.leaving.iter().map(member).collect(),
        })
    }

    /// K: the number of backups.
    pub fn copies(&self) -> usize {
        self.members.len() / 2
    }

    /// The members, in ascending order of their numbers.
    pub fn members(&self) -> &[Member] {
        &self.members
    }

    /// The member with this number.
    pub fn member(&self, replica: ReplicaId) -> Option<&Member> {
        self.members.iter().find(|member| member.replica == replica)
    }

    /// The member on this node.
    pub fn member_on(&self, node: NodeId) -> Option<&Member> {
        self.members.iter().find(|member| member.node == node)
    }

    /// The replicas that others have taken the places of, in ascending order of their numbers. Each stays in the plan until its node has deleted it, or has been removed from the cluster.
    pub fn leaving(&self) -> &[Member] {
        &self.leaving
    }

    /// The members, and the replicas that leave.
    pub fn replicas(&self) -> impl Iterator<Item = &Member> {
        self.members.iter().chain(&self.leaving)
    }

    /// The witness that is to be the first primary.
    pub fn preferred(&self) -> ReplicaId {
        self.preferred
    }

    /// The highest number that a replica of the group ever had.
    pub fn last_replica(&self) -> ReplicaId {
        self.last_replica
    }
}

#[cfg(test)]
mod tests {
    use uuid::Uuid;

    use super::*;

    fn plan(text: &str) -> Result<GroupPlan, ValueError> {
        GroupPlan::decode(text.replace('#', "00000000-0000-4000-8000-00000000000").as_bytes())
    }

    const PLAN: &str = r##"{"last_replica":4,"preferred":1,"members":[{"replica":1,"node":"#1","role":"witness"},{"replica":2,"node":"#2","role":"backup"},{"replica":4,"node":"#3","role":"witness"}],"leaving":[{"replica":3,"node":"#3","role":"witness"}]}"##;

    #[test]
    fn a_plan_is_decoded() {
        let plan = plan(PLAN).unwrap();
        assert_eq!((plan.copies(), plan.preferred(), plan.last_replica()), (1, ReplicaId(1), ReplicaId(4)));
        let node = NodeId(Uuid::from_u128(0x4000_8000_0000_0000_0002));
        assert_eq!(plan.member_on(node).unwrap().replica, ReplicaId(2));
        assert_eq!(plan.leaving().iter().map(|member| member.replica).collect::<Vec<_>>(), [ReplicaId(3)]);
        assert_eq!(GroupPlan::decode(&plan.encode()).unwrap(), plan);
    }

    #[test]
    fn a_member_that_is_replaced_leaves_until_it_is_gone() {
        let plan = plan(PLAN).unwrap();
        let node = NodeId(Uuid::from_u128(9));
        let new = Member { replica: ReplicaId(5), node, role: Role::Backup };
        let members = plan.members().iter().filter(|member| member.role == Role::Witness).copied();
        let members = members.chain([new]).collect();
        let changed = plan.replaced_by(members, ReplicaId(1), ReplicaId(5)).unwrap();
        let leaving = |plan: &GroupPlan| plan.leaving().iter().map(|of| of.replica.0).collect::<Vec<_>>();
        assert_eq!(leaving(&changed), [2, 3]);
        assert_eq!(GroupPlan::decode(&changed.encode()).unwrap(), changed);
        assert_eq!(leaving(&changed.without_gone(|member| member.replica.0 == 2)), [3]);
    }

    #[test]
    fn a_plan_against_the_rules_of_a_group_is_refused() {
        for (from, to, why) in [
            ("backup", "witness", "0 backups and 3 witnesses"),
            (
                "\"replica\":4,\"node\":\"#3\",\"role\":\"witness\"",
                "\"replica\":4,\"node\":\"#3\",\"role\":\"backup\"",
                "2 backups and 1 witnesses",
            ),
            ("#3", "#2", "two replicas are on node"),
            ("\"replica\":4", "\"replica\":2", "do not ascend"),
            ("\"replica\":1", "\"replica\":0", "do not ascend"),
            ("\"last_replica\":4", "\"last_replica\":3", "above the last number given"),
            ("\"last_replica\":4", "\"last_replica\":18446744073709551615", "no number of a replica"),
            ("\"preferred\":1", "\"preferred\":2", "no witness of the group"),
            ("\"preferred\":1", "\"preferred\":3", "no witness of the group"),
            ("\"replica\":3", "\"replica\":2", "a member and leaves"),
            ("\"replica\":3", "\"replica\":9", "leave do not ascend"),
            ("\"replica\":3", "\"replica\":0", "leave do not ascend"),
            ("backup", "primary", "unknown variant `primary`"),
            ("#2", "2", "is no UUID"),
        ] {
            assert!(PLAN.contains(from), "{from}");
            let error = plan(&PLAN.replace(from, to)).unwrap_err();
            assert!(error.to_string().contains(why), "{to}: {error}");
        }
    }
}
