//! A group's members by its own log: the value of a key `groups/N/seen`.

use std::collections::BTreeMap;

use replica::{Configuration, GroupState, Index, NodeId, Replica, ReplicaId, Role, Term, Version};
use serde::{Deserialize, Serialize};

use super::json;
use super::plan::{MAX_REPLICA, RoleName};
use crate::names::{Epoch, parse_node};
use crate::value_error::ValueError;

/// The most replicas in each part of a configuration.
const MAX_PART: usize = 64;

/// The members that a group has by its own log, as its leader wrote them to etcd. Etcd may lag behind the log, and is never ahead of it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Seen {
    /// The members by the last change that is committed.
    pub configuration: Configuration,
    /// The index of that change in the group's log.
    pub index: Index,
    /// The term in which the value was written.
    pub term: Term,
    /// The leader of that term.
    pub leader: Option<ReplicaId>,
    /// The group's version.
    pub version: Version,
    /// The highest number that a replica of the group is known to have had, by its log: a member's, or in groups of version 2 that of any.
    pub last_replica: ReplicaId,
    /// The nodes of the members, as far as the leader's process knows them.
    pub nodes: BTreeMap<ReplicaId, NodeId>,
    /// The epoch of the cluster in which the value was written.
    pub epoch: Epoch,
}

/// The fields in etcd.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Fields {
    index: u64,
    term: u64,
    leader: Option<u64>,
    version: u16,
    last_replica: u64,
    epoch: u64,
    voters: Vec<MemberFields>,
    outgoing: Vec<MemberFields>,
    learners: Vec<MemberFields>,
}

/// The fields of a member in etcd.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct MemberFields {
    replica: u64,
    role: RoleName,
    node: Option<String>,
}

impl Seen {
    /// The value that a group's leader on this node writes in this epoch of the cluster. `node_of`: the node of another replica, if the process knows it.
    pub fn of(
        replica: &Replica,
        (node, epoch): (NodeId, Epoch),
        node_of: impl Fn(ReplicaId) -> Option<NodeId>,
    ) -> Seen {
        let GroupState { members, since, version, last_replica, .. } = replica.state().state;
        let own = |id: ReplicaId| (replica.leader() == Some(id)).then_some(node);
        let nodes =
            all(&members).filter_map(|(id, _)| Some((id, own(id).or_else(|| node_of(id))?))).collect();
        Seen {
            index: since,
            term: replica.term(),
            leader: replica.leader(),
            version,
            last_replica: last_replica.max(members.last_replica()),
            nodes,
            epoch,
            configuration: members,
        }
    }

    /// The value in `bytes`.
    ///
    /// # Errors
    /// [`ValueError`]: no such fields, an unknown role, no voters, more than 64 replicas in a part, numbers that do not ascend, a replica with two roles, a learner that votes, a leader that is no
    /// member, a member above the highest number.
    pub fn decode(bytes: &[u8]) -> Result<Seen, ValueError> {
        let fields: Fields = json::decode(bytes)?;
        let (voters, outgoing, learners) =
            (part(&fields.voters)?, part(&fields.outgoing)?, part(&fields.learners)?);
        if voters.is_empty() {
            return Err(ValueError::rule("the group has no voters"));
        }
        let votes = |id: ReplicaId| voters.iter().chain(&outgoing).find(|(voter, _)| *voter == id);
        if let Some((id, _)) =
            outgoing.iter().find(|(id, role)| votes(*id).is_some_and(|found| found.1 != *role))
        {
            return Err(ValueError::rule(format!("replica {} has two roles", id.0)));
        }
        if let Some((id, _)) = learners.iter().find(|(id, _)| votes(*id).is_some()) {
            return Err(ValueError::rule(format!("replica {} votes and learns", id.0)));
        }
        let leader = fields.leader.map(ReplicaId);
        if let Some(leader) = leader.filter(|leader| votes(*leader).is_none()) {
            return Err(ValueError::rule(format!("the leader {} does not vote", leader.0)));
        }
        let target = Configuration::new(voters).with_learners(learners);
        let configuration =
            if outgoing.is_empty() { target } else { Configuration::new(outgoing).joint_with(&target) };
        let members = fields.voters.iter().chain(&fields.outgoing).chain(&fields.learners);
        let mut nodes = BTreeMap::new();
        for (replica, node) in members.filter_map(|member| Some((member.replica, member.node.as_ref()?))) {
            let node = parse_node(node)?;
            if nodes.insert(ReplicaId(replica), node).is_some_and(|before| before != node) {
                return Err(ValueError::rule(format!("replica {replica} is on two nodes")));
            }
        }
        let last_replica = ReplicaId(fields.last_replica);
        if last_replica.0 > MAX_REPLICA || fields.version == 0 || fields.epoch == 0 {
            return Err(ValueError::rule("a number of a replica, a version or an epoch is out of range"));
        }
        if configuration.last_replica() > last_replica {
            return Err(ValueError::rule("a member is above the highest number"));
        }
        Ok(Seen {
            configuration,
            index: Index(fields.index),
            term: Term(fields.term),
            leader,
            version: Version(fields.version),
            last_replica,
            nodes,
            epoch: Epoch(fields.epoch),
        })
    }

    /// The value's bytes.
    pub fn encode(&self) -> Vec<u8> {
        let member = |(id, role): (ReplicaId, Role)| MemberFields {
            replica: id.0,
            role: role.into(),
            node: self.nodes.get(&id).map(NodeId::to_string),
        };
        let part = |members: &mut dyn Iterator<Item = (ReplicaId, Role)>| members.map(member).collect();
        json::encode(&Fields {
            index: self.index.0,
            term: self.term.0,
            leader: self.leader.map(|leader| leader.0),
            version: self.version.0,
            last_replica: self.last_replica.0,
            epoch: self.epoch.0,
            voters: part(&mut self.configuration.voters()),
            outgoing: part(&mut self.configuration.outgoing()),
            learners: part(&mut self.configuration.learners()),
        })
    }

    /// True if the value may take the place of `other` in etcd: its change of members is later, or is the same one, seen in the same or a later term.
    pub fn may_replace(&self, other: &Seen) -> bool {
        (self.index, self.term) >= (other.index, other.term)
    }
}

/// All members of a configuration.
fn all(members: &Configuration) -> impl Iterator<Item = (ReplicaId, Role)> {
    members.voters().chain(members.outgoing()).chain(members.learners())
}

/// One part of a configuration: replicas in ascending order of their numbers, from 1 on.
fn part(members: &[MemberFields]) -> Result<Vec<(ReplicaId, Role)>, ValueError> {
    if members.len() > MAX_PART {
        return Err(ValueError::rule(format!("{} replicas are more than a group has", members.len())));
    }
    let mut last = 0;
    let mut part = Vec::with_capacity(members.len());
    for member in members {
        if member.replica <= last {
            return Err(ValueError::rule("the numbers of the replicas do not ascend from 1 on"));
        }
        last = member.replica;
        part.push((ReplicaId(member.replica), member.role.into()));
    }
    Ok(part)
}

#[cfg(test)]
mod tests {
    use super::*;

    const SEEN: &str = r##"{"index":7,"term":3,"leader":1,"version":2,"last_replica":6,"epoch":3,"voters":[{"replica":1,"role":"witness","node":null},{"replica":4,"role":"backup","node":"#4"}],"outgoing":[{"replica":1,"role":"witness","node":null},{"replica":2,"role":"backup","node":"#2"}],"learners":[{"replica":5,"role":"witness","node":"#5"}]}"##;

    fn text() -> String {
        SEEN.replace('#', "00000000-0000-4000-8000-00000000000")
    }

    #[test]
    fn a_configuration_is_decoded_with_all_its_parts() {
        let text = text();
        let seen = Seen::decode(text.as_bytes()).unwrap();
        assert!(seen.configuration.is_joint());
        assert_eq!(seen.configuration.member(ReplicaId(5)), Some(Role::Witness));
        assert_eq!((seen.last_replica, seen.epoch, seen.nodes.len()), (ReplicaId(6), Epoch(3), 3));
        assert_eq!(String::from_utf8(seen.encode()).unwrap(), text);
    }

    #[test]
    fn contradicting_members_are_refused() {
        for (from, to, why) in [
            (
                r##"[{"replica":1,"role":"witness","node":null},{"replica":4,"role":"backup","node":"#4"}]"##,
                "[]",
                "no voters",
            ),
            (
                r##"{"replica":2,"role":"backup","node":"#2"}"##,
                r##"{"replica":4,"role":"witness","node":"#4"}"##,
                "two roles",
            ),
            (
                r##"{"replica":2,"role":"backup","node":"#2"}"##,
                r##"{"replica":4,"role":"backup","node":"#2"}"##,
                "two nodes",
            ),
            (r#""last_replica":6"#, r#""last_replica":4"#, "above the highest number"),
            (r#""last_replica":6"#, r#""last_replica":18446744073709551615"#, "out of range"),
            (r#""version":2"#, r#""version":0"#, "out of range"),
            (r#""epoch":3"#, r#""epoch":0"#, "out of range"),
            (r#""replica":5"#, r#""replica":2"#, "votes and learns"),
            (r#""leader":1"#, r#""leader":5"#, "does not vote"),
            (r#""replica":4"#, r#""replica":1"#, "do not ascend"),
            (r#""replica":1"#, r#""replica":0"#, "do not ascend"),
        ] {
            assert!(SEEN.contains(from), "{from}");
            let names = |text: &str| text.replace('#', "00000000-0000-4000-8000-00000000000");
            let error = Seen::decode(text().replace(&names(from), &names(to)).as_bytes()).unwrap_err();
            assert!(error.to_string().contains(why), "{to}: {error}");
        }
    }

    #[test]
    fn a_later_change_replaces_an_earlier_one_and_a_later_term_the_same() {
        let seen = |index, term| Seen {
            configuration: Configuration::new([(ReplicaId(1), Role::Witness)]),
            index: Index(index),
            term: Term(term),
            leader: None,
            version: Version(1),
            last_replica: ReplicaId(1),
            nodes: BTreeMap::new(),
            epoch: Epoch(1),
        };
        assert!(seen(8, 2).may_replace(&seen(7, 3)));
        assert!(!seen(7, 3).may_replace(&seen(8, 2)));
        assert!(seen(7, 4).may_replace(&seen(7, 3)));
        assert!(!seen(7, 2).may_replace(&seen(7, 3)));
        assert!(seen(7, 3).may_replace(&seen(7, 3)));
    }
}
