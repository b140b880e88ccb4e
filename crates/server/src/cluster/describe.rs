//! The cluster as the replies of CLUSTER describe it, in the formats of Redis 7.
//!
//! A node of Redis is either a master or a replica of one master. A node here may lead some ranges and back up others.
//! - SLOTS and SHARDS list each range, or each group, with its leader and its backups, so that a node appears in both roles.
//!   Clients that take their map from SLOTS (redis-py, go-redis, Jedis, ioredis) send every command to the right node.
//! - NODES has one line for a node. A node that leads a range is a master with its slots. A node that only backs up ranges is a
//!   replica of the leader of the first of them: a client that reads there in READONLY mode from another range's slots is
//!   answered if the node has a backup of them, and otherwise gets MOVED. A client that takes its map from NODES does not learn
//!   of backups on nodes that lead, so that it reads from fewer replicas, and correctly.
//! - A range without a leader is listed under one of its backups: any node keeps a command until the range has a leader, but
//!   many clients refuse slots without a node by themselves.

use std::collections::BTreeMap;
use std::fmt::Write;

use kv::{Answer, SLOTS};

use super::topology::{ClusterNode, NodeIndex, SlotRange, Topology};
use replica::GroupId;

/// The node to which clients are to send commands of a range.
fn serving_node(topology: &Topology, range: &SlotRange) -> NodeIndex {
    let is_alive = |index: &NodeIndex| topology.node(*index).is_some_and(|node| node.is_alive);
    let backup = range.backups.iter().find(|index| is_alive(index)).or(range.backups.first());
    range.leader.or(backup.copied()).unwrap_or(topology.me)
}

/// The backups of a range, without the node that serves it, and without those that lead other ranges: some clients (redis-py) take a node for what it is in the first range that has it.
fn replicas<'t>(topology: &'t Topology, range: &'t SlotRange) -> impl Iterator<Item = NodeIndex> + 't {
    let serving = serving_node(topology, range);
    let leads = |index: NodeIndex| topology.ranges.iter().any(|range| range.leader == Some(index));
    let listed =
        move |index: &NodeIndex| *index != serving && topology.node(*index).is_some() && !leads(*index);
    range.backups.iter().copied().filter(listed)
}

/// The nodes, with their places.
fn nodes(topology: &Topology) -> impl Iterator<Item = (NodeIndex, &ClusterNode)> {
    (0..).map(NodeIndex).zip(&topology.nodes)
}

/// The node with a name in the words of a client.
pub(crate) fn find_node(topology: &Topology, name: &[u8]) -> Option<NodeIndex> {
    nodes(topology).find(|(_, node)| name.eq_ignore_ascii_case(node.name.as_bytes())).map(|(index, _)| index)
}

/// Writes the reply of CLUSTER SLOTS: each range, its leader and its backups.
pub(crate) fn reply_slots(topology: &Topology, out: &mut dyn Answer) {
    out.array(topology.ranges.len());
    for range in &topology.ranges {
        let serving = serving_node(topology, range);
        let listed: Vec<&ClusterNode> = std::iter::once(serving)
            .chain(replicas(topology, range))
            .filter_map(|index| topology.node(index))
            .collect();
        out.array(2 + listed.len());
        out.integer(range.first.into());
        out.integer(range.last.into());
        for node in listed {
            out.array(4);
            out.bulk(node.host.as_bytes());
            out.integer(node.port.into());
            out.bulk(node.name.as_bytes());
            // No further names of the node.
            out.map(0);
        }
    }
}

/// Writes the reply of CLUSTER SHARDS: each group with its ranges, its leader and its backups. `speaks_tls`: whether the nodes'
/// ports speak TLS.
pub(crate) fn reply_shards(topology: &Topology, speaks_tls: bool, out: &mut dyn Answer) {
    let mut groups: BTreeMap<GroupId, Vec<&SlotRange>> = BTreeMap::new();
    for range in &topology.ranges {
        groups.entry(range.group).or_default().push(range);
    }
    out.array(groups.len());
    for ranges in groups.values() {
        out.map(2);
        out.bulk(b"slots");
        out.array(2 * ranges.len());
        for range in ranges {
            out.integer(range.first.into());
            out.integer(range.last.into());
        }
        let listed: Vec<(&str, &ClusterNode)> = ranges.first().map_or(Vec::new(), |range| {
            let serving = topology.node(serving_node(topology, range)).map(|node| ("master", node));
            let backups = replicas(topology, range).filter_map(|index| topology.node(index));
            serving.into_iter().chain(backups.map(|node| ("replica", node))).collect()
        });
        out.bulk(b"nodes");
        out.array(listed.len());
        for (role, node) in listed {
            out.map(7);
            reply_field(out, "id", &node.name);
            out.bulk(if speaks_tls { b"tls-port" } else { b"port" });
            out.integer(node.port.into());
            reply_field(out, "ip", &node.host);
            reply_field(out, "endpoint", &node.host);
            reply_field(out, "role", role);
            // Replicas are not compared by bytes of a replication stream.
            out.bulk(b"replication-offset");
            out.integer(0);
            reply_field(out, "health", if node.is_alive { "online" } else { "fail" });
        }
    }
}

fn reply_field(out: &mut dyn Answer, name: &str, value: &str) {
    out.bulk(name.as_bytes());
    out.bulk(value.as_bytes());
}

/// The part of a node in NODES.
enum Part<'t> {
    /// The node serves these ranges.
    Master(Vec<&'t SlotRange>),
    /// The node only backs up ranges, the first of them of this master.
    Replica(NodeIndex),
}

fn part_of(topology: &Topology, index: NodeIndex) -> Part<'_> {
    let serves = |range: &&SlotRange| serving_node(topology, range) == index;
    let led: Vec<&SlotRange> = topology.ranges.iter().filter(serves).collect();
    if led.is_empty()
        && let Some(range) = topology.ranges.iter().find(|range| range.backups.contains(&index))
    {
        return Part::Replica(serving_node(topology, range));
    }
    Part::Master(led)
}

/// A node's line in NODES, without its end.
fn node_line(topology: &Topology, index: NodeIndex, node: &ClusterNode, part: &Part<'_>) -> String {
    let mut flags = String::new();
    if index == topology.me {
        flags.push_str("myself,");
    }
    let master = match part {
        Part::Master(_) => None,
        Part::Replica(master) => topology.node(*master),
    };
    flags.push_str(if master.is_some() { "slave" } else { "master" });
    if !node.is_alive {
        flags.push_str(",fail");
    }
    let (master, link) =
        (master.map_or("-", |node| &node.name), if node.is_alive { "connected" } else { "disconnected" });
    // The port behind `@` is that of Redis's cluster bus, which does not exist here, as the times of its messages.
    let ClusterNode { name, host, port, .. } = node;
    let mut line = format!("{name} {host}:{port}@0 {flags} {master} 0 0 {} {link}", topology.epoch);
    if let Part::Master(ranges) = part {
        for range in ranges {
            let _infallible = match range.first == range.last {
                true => write!(line, " {}", range.first),
                false => write!(line, " {}-{}", range.first, range.last),
            };
        }
    }
    line
}

/// The text of CLUSTER NODES: a line for each node.
pub(crate) fn nodes_text(topology: &Topology) -> String {
    let line = |(index, node)| node_line(topology, index, node, &part_of(topology, index)) + "\n";
    nodes(topology).map(line).collect()
}

/// Writes the reply of CLUSTER REPLICAS: a line for each node with a backup of a range that `master` leads, as a replica of
/// `master`, also where the node leads other ranges.
///
/// # Errors
/// The error reply, where the node leads no range.
pub(crate) fn reply_replicas(
    topology: &Topology,
    master: NodeIndex,
    out: &mut dyn Answer,
) -> Result<(), String> {
    let Part::Master(led) = part_of(topology, master) else {
        return Err("ERR The specified node is not a master".into());
    };
    let has_backup =
        |index: &NodeIndex| *index != master && led.iter().any(|range| range.backups.contains(index));
    let listed: Vec<_> = nodes(topology).filter(|(index, _)| has_backup(index)).collect();
    out.array(listed.len());
    for (index, node) in listed {
        out.bulk(node_line(topology, index, node, &Part::Replica(master)).as_bytes());
    }
    Ok(())
}

/// The text of CLUSTER INFO.
pub(crate) fn cluster_info(topology: &Topology) -> String {
    let count = |range: &SlotRange| u64::from(range.last.saturating_sub(range.first)) + 1;
    let assigned: u64 = topology.ranges.iter().map(count).sum();
    let led: u64 = topology.ranges.iter().filter(|range| range.leader.is_some()).map(count).sum();
    let mut masters: Vec<NodeIndex> = topology.ranges.iter().filter_map(|range| range.leader).collect();
    masters.sort();
    masters.dedup();
    let state = if led == u64::from(SLOTS) { "ok" } else { "fail" };
    let (epoch, failed) = (topology.epoch, assigned - led);
    format!(
        "cluster_state:{state}\r\ncluster_slots_assigned:{assigned}\r\ncluster_slots_ok:{led}\r\n\
         cluster_slots_pfail:0\r\ncluster_slots_fail:{failed}\r\ncluster_known_nodes:{}\r\ncluster_size:{}\r\n\
         cluster_current_epoch:{epoch}\r\ncluster_my_epoch:{epoch}\r\ncluster_stats_messages_sent:0\r\n\
         cluster_stats_messages_received:0\r\ntotal_cluster_links_buffer_limit_exceeded:0\r\n",
        topology.nodes.len(),
        masters.len(),
    )
}

#[cfg(test)]
mod tests;
