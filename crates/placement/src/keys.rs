//! The keys of a cluster in etcd.
//!
//! | key | value |
//! |---|---|
//! | `/furrow/CLUSTER/meta` | [`Meta`](crate::Meta) |
//! | `/furrow/CLUSTER/nodes/UUID` | [`Node`](crate::Node) |
//! | `/furrow/CLUSTER/alive/UUID` | [`Liveness`](crate::Liveness), bound to a lease of the node |
//! | `/furrow/CLUSTER/groups/N/want` | [`GroupPlan`](crate::GroupPlan) |
//! | `/furrow/CLUSTER/groups/N/seen` | [`Seen`](crate::Seen) |
//! | `/furrow/CLUSTER/slots` | [`SlotMap`](crate::SlotMap) |
//! | `/furrow/CLUSTER/draining/UUID` | [`Drain`](crate::Drain) |
//! | `/furrow/CLUSTER/placer` | the UUID of the node that is elected to place, bound to a lease of that node |

use crate::names::{ClusterName, parse_node};
use crate::value_error::ValueError;
use replica::{GroupId, NodeId};

/// A key of a cluster.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Key {
    /// The cluster's identity and numbers.
    Meta,
    /// A node.
    Node(NodeId),
    /// A node's sign of life.
    Alive(NodeId),
    /// A node that is to have no replicas.
    Draining(NodeId),
    /// The members that a group is to have.
    Want(GroupId),
    /// The members by a group's log.
    Seen(GroupId),
    /// The groups' slots.
    Slots,
    /// The node that is elected to place.
    Placer,
}

impl Key {
    /// The key as etcd has it.
    pub fn path(self, cluster: &ClusterName) -> String {
        let prefix = prefix(cluster);
        match self {
            Key::Meta => format!("{prefix}meta"),
            Key::Node(node) => format!("{prefix}nodes/{node}"),
            Key::Alive(node) => format!("{prefix}alive/{node}"),
            Key::Draining(node) => format!("{prefix}draining/{node}"),
            Key::Want(GroupId(group)) => format!("{prefix}groups/{group}/want"),
            Key::Seen(GroupId(group)) => format!("{prefix}groups/{group}/seen"),
            Key::Slots => format!("{prefix}slots"),
            Key::Placer => format!("{prefix}placer"),
        }
    }

    /// The key in `path`.
    pub(crate) fn parse(cluster: &ClusterName, path: &str) -> Result<Key, ValueError> {
        let unknown = || ValueError::rule("this version of Furrow knows no such key");
        let rest = path.strip_prefix(&prefix(cluster)).ok_or_else(unknown)?;
        if let Some(node) = rest.strip_prefix("nodes/") {
            return parse_node(node).map(Key::Node);
        }
        if let Some(node) = rest.strip_prefix("alive/") {
            return parse_node(node).map(Key::Alive);
        }
        if let Some(node) = rest.strip_prefix("draining/") {
            return parse_node(node).map(Key::Draining);
        }
        if let Some((group, kind)) = rest.strip_prefix("groups/").and_then(|rest| rest.split_once('/')) {
            let number = group.parse::<u64>().ok().filter(|number| number.to_string() == group);
            let group = GroupId(number.ok_or_else(unknown)?);
            return match kind {
                "want" => Ok(Key::Want(group)),
                "seen" => Ok(Key::Seen(group)),
                _ => Err(unknown()),
            };
        }
        match rest {
            "meta" => Ok(Key::Meta),
            "slots" => Ok(Key::Slots),
            "placer" => Ok(Key::Placer),
            _ => Err(unknown()),
        }
    }
}

/// The prefix of a cluster's keys. No name of a cluster has a `/`, so no cluster's keys lie among those of another one.
pub(crate) fn prefix(cluster: &ClusterName) -> String {
    format!("/furrow/{cluster}/")
}

#[cfg(test)]
mod tests {
    use uuid::Uuid;

    use super::*;

    #[test]
    fn every_key_is_parsed_again_and_no_other_one_is() {
        let barn = ClusterName::parse("barn").unwrap();
        let node = NodeId(Uuid::from_u128(7));
        let group = GroupId(12);
        for key in [
            Key::Meta,
            Key::Node(node),
            Key::Alive(node),
            Key::Draining(node),
            Key::Want(group),
            Key::Seen(group),
            Key::Slots,
            Key::Placer,
        ] {
            assert_eq!(Key::parse(&barn, &key.path(&barn)).unwrap(), key);
        }
        for path in [
            "/furrow/barn/",
            "/furrow/barn/metas",
            "/furrow/barn/nodes/7",
            "/furrow/barn/groups/012/want",
            "/furrow/barn/groups/1/want/",
            "/furrow/barn2/meta",
            "",
        ] {
            assert!(Key::parse(&barn, path).is_err(), "{path}");
        }
    }
}
