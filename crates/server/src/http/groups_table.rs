//! The cluster's part of the server's HTML page.

use std::fmt::Write as _;

use replica::GroupStats;

use super::html::escape;
use crate::cluster::{NodeIndex, SlotRange, Topology};

/// The groups of a cluster as HTML: of each its slots, its health and its leader, and this process's replica of it.
pub(super) fn groups_table(topology: &Topology, stats: &[GroupStats]) -> String {
    let alive = topology.nodes.iter().filter(|node| node.is_alive).count();
    let led = topology.ranges.iter().filter(|range| range.leader.is_some()).count();
    let mut page = format!(
        "<h2>Cluster: {alive} of {} nodes alive, {led} of {} groups led</h2>\n<table>\n<tr><th>group</th><th>slots</th><th>health</th>\
         <th>leader</th><th>backups</th><th>here</th><th>term</th><th>committed, applied, stable</th><th>log</th><th>behind</th></tr>\n",
        topology.nodes.len(),
        topology.ranges.len(),
    );
    for range in &topology.ranges {
        let here = stats.iter().find(|group| group.group == range.group);
        let leader = range.leader.map_or_else(|| "-".to_owned(), |leader| name(topology, leader));
        let backups: Vec<String> = range.backups.iter().map(|backup| name(topology, *backup)).collect();
        let (group, health) = (range.group.0, health(topology, range, here));
        let (first, last, backups) = (range.first, range.last, backups.join(", "));
        // Writing to a string cannot fail.
        let _ = writeln!(
            page,
            "<tr><td>{group}</td><td>{first}-{last}</td><td>{health}</td><td>{leader}</td><td>{backups}</td>{}</tr>",
            here.map_or_else(
                || "<td>no replica</td><td></td><td></td><td></td><td></td>".to_owned(),
                replica_cells
            )
        );
    }
    page.push_str("</table>\n");
    page
}

/// The health of a group, as this process knows it: of witnesses on other nodes it knows nothing.
fn health(topology: &Topology, range: &SlotRange, here: Option<&GroupStats>) -> &'static str {
    let is_gone = |node: &NodeIndex| topology.node(*node).is_some_and(|node| !node.is_alive);
    if here.is_some_and(|group| group.has_ended) {
        "the replica here has ended"
    } else if range.leader.is_none() {
        "no leader"
    } else if range.backups.iter().any(is_gone) {
        "a backup is gone"
    } else {
        "ok"
    }
}

fn name(topology: &Topology, node: NodeIndex) -> String {
    let Some(known) = topology.node(node) else { return String::new() };
    let mark = if known.is_alive { "" } else { " (gone)" };
    format!("{}:{}{mark}", escape(&known.host), known.port)
}

/// The cells of this process's replica.
fn replica_cells(group: &GroupStats) -> String {
    let replica = &group.replica;
    let role = if replica.serves { "primary" } else { replica.role.name() };
    let behind = replica.behind.map_or(String::new(), |time| format!("{:.2} s", time.as_secs_f64()));
    let (committed, applied, stable) = (replica.committed.0, replica.applied.0, replica.stable.0);
    let (bytes, limit) = (replica.log_bytes, group.log_limit);
    let share = 100 * bytes / limit.max(1);
    format!(
        "<td>{role}</td><td>{}</td><td>{committed}, {applied}, {stable}</td><td>{} entries, {bytes} bytes, {share} %</td><td>{behind}</td>",
        replica.term.0, replica.log_entries
    )
}
