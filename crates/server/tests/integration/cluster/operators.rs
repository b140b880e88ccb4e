//! Tests of what operators see of a node: metrics, the page, and its end.

use std::sync::atomic::Ordering;
use std::time::Duration;

use replica::{GroupStats, Index, ReplicaCounts, ReplicaId, ReplicaStats, Role, Term};
use server::ServeOptions;
use server::cluster::GroupId;

use super::nodes::Nodes;
use super::{LONG_MS, error, moved, ok, with_hold};
use crate::common::*;

/// The numbers of a replica of a group.
fn stats(group: u64, role: Role, serves: bool) -> GroupStats {
    let replica = ReplicaStats {
        replica: ReplicaId(2),
        role,
        leader: Some(ReplicaId(1)),
        serves,
        term: Term(7),
        committed: Index(90),
        applied: Index(80),
        version: replica::Version::FIRST,
        stable: Index(70),
        log_entries: 20,
        log_bytes: 25_000,
        behind: (role == Role::Backup).then_some(Duration::from_millis(1_500)),
        counts: ReplicaCounts { elections: 3, snapshots_sent: 2, snapshots_taken: 1 },
    };
    let (log_limit, unfinished, refused_full) = (100_000, 5, 4);
    GroupStats { group: GroupId(group), replica, log_limit, unfinished, refused_full, has_ended: false }
}

#[test]
fn metrics_and_the_page_show_each_group_and_the_replica_here() {
    let http = Some("127.0.0.1:0".parse().unwrap());
    let options = ServeOptions { http, ..with_hold(LONG_MS) };
    let nodes = Nodes::start(2, [Some(0), Some(1), None], &options);
    let node = &nodes.0[0];
    node.set_stats(vec![stats(1, Role::Witness, true), stats(2, Role::Backup, false)]);
    let metrics = http_get(node.server.http.unwrap(), "/metrics", "");
    for line in [
        "furrow_group_is_leader{group=\"1\",role=\"witness\"} 1",
        "furrow_group_is_leader{group=\"2\",role=\"backup\"} 0",
        "furrow_group_has_leader{group=\"2\",role=\"backup\"} 1",
        "furrow_group_ended{group=\"2\",role=\"backup\"} 0",
        "furrow_group_term{group=\"2\",role=\"backup\"} 7",
        "furrow_group_commit_index{group=\"2\",role=\"backup\"} 90",
        "furrow_group_applied_index{group=\"2\",role=\"backup\"} 80",
        "furrow_group_stable_index{group=\"2\",role=\"backup\"} 70",
        "furrow_group_log_entries{group=\"2\",role=\"backup\"} 20",
        "furrow_group_log_bytes{group=\"2\",role=\"backup\"} 25000",
        "furrow_group_log_limit_bytes{group=\"2\",role=\"backup\"} 100000",
        "furrow_group_unfinished_writes{group=\"2\",role=\"backup\"} 5",
        "furrow_group_behind_seconds{group=\"2\",role=\"backup\"} 1.5",
        "furrow_group_elections_total{group=\"2\",role=\"backup\"} 3",
        "furrow_group_snapshots_sent_total{group=\"2\",role=\"backup\"} 2",
        "furrow_group_snapshots_taken_total{group=\"2\",role=\"backup\"} 1",
        "furrow_group_refused_full_total{group=\"2\",role=\"backup\"} 4",
    ] {
        assert!(metrics.lines().any(|other| other == line), "{line} is not in {metrics}");
    }
    assert!(!metrics.contains("furrow_group_behind_seconds{group=\"1\""), "a witness is no backup");
    let page = http_get(node.server.http.unwrap(), "/", "");
    assert!(page.contains("2 of 2 nodes alive, 2 of 3 groups led"), "{page}");
    let rows: Vec<&str> =
        page.lines().filter(|line| line.starts_with("<tr><td>") && line.contains('-')).collect();
    let row =
        |group: &str| rows.iter().find(|row| row.starts_with(&format!("<tr><td>{group}</td>"))).unwrap();
    assert!(row("1").contains("<td>ok</td>") && row("1").contains("<td>primary</td>"), "{}", row("1"));
    assert!(row("2").contains("<td>90, 80, 70</td>") && row("2").contains("25 %"), "{}", row("2"));
    assert!(row("2").contains("<td>1.50 s</td>"), "{}", row("2"));
    assert!(row("3").contains("<td>no leader</td>") && row("3").contains("no replica"), "{}", row("3"));
}

#[test]
fn commands_of_a_leader_that_lost_its_majority_are_refused_at_once_and_none_waits_on() {
    let nodes = Nodes::start(2, [None, Some(1), None], &with_hold(LONG_MS));
    let node = &nodes.0[0];
    let mut parked = node.client();
    parked.send_raw(b"SET b 1\r\n");
    std::thread::sleep(Duration::from_millis(100));
    node.set_cut_off(true);
    let down = error("CLUSTERDOWN Hash slot not served");
    assert_eq!(parked.reply(), Some(down.clone()));
    let mut client = node.client();
    assert_eq!(client.line("GET b"), down);
    assert_eq!(client.line("GET c"), moved(7365, &nodes, 1), "the group has a leader elsewhere");
    node.set_cut_off(false);
    client.send_raw(b"SET b 2\r\n");
    std::thread::sleep(Duration::from_millis(100));
    nodes.lead([Some(0), Some(1), None], 1);
    assert_eq!(client.reply(), Some(ok()), "it waits for the next leader again");
}

#[test]
fn a_node_that_ends_hands_its_groups_over_first() {
    let mut nodes = Nodes::start(2, [Some(0), Some(1), None], &with_hold(LONG_MS));
    let node = nodes.0.remove(0);
    let handed_over = node.handed_over();
    assert!(!handed_over.load(Ordering::SeqCst));
    node.client().send(&["SHUTDOWN"]);
    node.server.end().unwrap();
    assert!(handed_over.load(Ordering::SeqCst));
}
