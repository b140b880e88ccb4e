use super::*;
use kv::Reply;

/// Three nodes of three groups: the first leads two, the second leads one, and the third only backs up.
fn topology() -> Topology {
    let node = |n: u64, is_alive| ClusterNode {
        name: format!("{n:040x}"),
        host: format!("10.0.0.{n}"),
        port: 7000,
        is_alive,
    };
    let range = |first, last, group, leader: Option<usize>, backups: &[usize]| SlotRange {
        first,
        last,
        group: GroupId(group),
        leader: leader.map(NodeIndex),
        backups: backups.iter().copied().map(NodeIndex).collect(),
    };
    Topology {
        epoch: 9,
        me: NodeIndex(1),
        nodes: vec![node(1, true), node(2, true), node(3, false)],
        ranges: vec![
            range(0, 5460, 1, Some(0), &[1]),
            range(5461, 5461, 2, Some(1), &[0, 2]),
            range(5462, 16000, 1, Some(0), &[1]),
            range(16001, 16382, 3, None, &[2, 0]),
        ],
    }
}

/// A reply as text: heads of lists as their lengths, in the order of the bytes.
fn text_of(reply: &[Reply]) -> String {
    let item = |reply: &Reply| match reply {
        Reply::Integer(n) => n.to_string(),
        Reply::Bulk(bytes) => {
            let text = String::from_utf8_lossy(bytes).into_owned();
            if text.len() == 40 { format!("node{}", text.trim_start_matches('0')) } else { text }
        }
        Reply::Array(len) => format!("*{len}"),
        Reply::Map(len) => format!("%{len}"),
        other => panic!("{other:?}"),
    };
    reply.iter().map(item).collect::<Vec<_>>().join(" ")
}

fn reply_text(write: impl FnOnce(&mut Vec<Reply>)) -> String {
    let mut reply = Vec::new();
    write(&mut reply);
    text_of(&reply)
}

const ONE: &str = "*4 10.0.0.1 7000 node1 %0";
const TWO: &str = "*4 10.0.0.2 7000 node2 %0";
const THREE: &str = "*4 10.0.0.3 7000 node3 %0";

#[test]
fn slots_lists_each_range_with_its_leader_and_its_backups() {
    let text = reply_text(|reply| reply_slots(&topology(), reply));
    let expected = format!(
        "*4 *3 0 5460 {ONE} *4 5461 5461 {TWO} {THREE} *3 5462 16000 {ONE} *4 16001 16382 {ONE} {THREE}"
    );
    assert_eq!(
        text, expected,
        "a range without a leader is listed under a backup that is alive, and no node as both"
    );
}

#[test]
fn shards_lists_each_group_with_its_ranges() {
    let text = reply_text(|reply| reply_shards(&topology(), false, reply));
    let node = |n, role, health| {
        format!(
            "%7 id node{n} port 7000 ip 10.0.0.{n} endpoint 10.0.0.{n} role {role} replication-offset 0 health {health}"
        )
    };
    let expected = [
        "*3 %2 slots *4 0 5460 5462 16000 nodes *1".to_owned(),
        node(1, "master", "online"),
        "%2 slots *2 5461 5461 nodes *2".to_owned(),
        node(2, "master", "online"),
        node(3, "replica", "fail"),
        "%2 slots *2 16001 16382 nodes *2".to_owned(),
        node(1, "master", "online"),
        node(3, "replica", "fail"),
    ];
    assert_eq!(text, expected.join(" "));
    let with_tls = reply_text(|reply| reply_shards(&topology(), true, reply));
    assert_eq!(with_tls, text.replace(" port 7000", " tls-port 7000"));
}

#[test]
fn nodes_has_a_line_for_each_node() {
    let [one, two, three] = [1, 2, 3].map(|n| format!("{n:040x}"));
    let expected = format!(
        "{one} 10.0.0.1:7000@0 master - 0 0 9 connected 0-5460 5462-16000 16001-16382\n\
         {two} 10.0.0.2:7000@0 myself,master - 0 0 9 connected 5461\n\
         {three} 10.0.0.3:7000@0 slave,fail {two} 0 0 9 disconnected\n"
    );
    assert_eq!(nodes_text(&topology()), expected);
}

#[test]
fn replicas_are_the_backups_of_what_a_node_leads() {
    let topology = topology();
    let mut reply = Vec::new();
    reply_replicas(&topology, NodeIndex(0), &mut reply).unwrap();
    let [Reply::Array(2), Reply::Bulk(first), Reply::Bulk(second)] = &reply[..] else { panic!("{reply:?}") };
    let (first, second) = (String::from_utf8_lossy(first), String::from_utf8_lossy(second));
    let one = format!("{:040x}", 1);
    assert!(first.contains(&format!("10.0.0.2:7000@0 myself,slave {one} ")), "{first}");
    assert!(second.contains(&format!("10.0.0.3:7000@0 slave,fail {one} ")), "{second}");
    let error = reply_replicas(&topology, NodeIndex(2), &mut reply).unwrap_err();
    assert_eq!(error, "ERR The specified node is not a master");
}

#[test]
fn a_node_is_found_by_its_name() {
    let name = format!("{:040X}", 2);
    assert_eq!(find_node(&topology(), name.as_bytes()), Some(NodeIndex(1)));
    assert_eq!(find_node(&topology(), b"2"), None);
}

#[test]
fn info_counts_slots_by_the_leaders_of_their_groups() {
    let expected = "cluster_state:fail\r\ncluster_slots_assigned:16383\r\ncluster_slots_ok:16001\r\n\
        cluster_slots_pfail:0\r\ncluster_slots_fail:382\r\ncluster_known_nodes:3\r\ncluster_size:2\r\n\
        cluster_current_epoch:9\r\ncluster_my_epoch:9\r\ncluster_stats_messages_sent:0\r\n\
        cluster_stats_messages_received:0\r\ntotal_cluster_links_buffer_limit_exceeded:0\r\n";
    assert_eq!(cluster_info(&topology()), expected);
    let mut whole = topology();
    for range in &mut whole.ranges {
        range.leader = Some(NodeIndex(0));
    }
    whole.ranges.last_mut().unwrap().last = SLOTS - 1;
    assert!(cluster_info(&whole).starts_with("cluster_state:ok\r\n"));
}
