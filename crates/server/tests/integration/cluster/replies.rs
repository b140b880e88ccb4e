//! Tests of CLUSTER, of commands that concern all groups of a node, and of stock programs.

use std::collections::BTreeSet;

use super::*;

fn names(values: Value) -> BTreeSet<String> {
    values.items().iter().map(Value::text).collect()
}

#[test]
fn every_subcommand_of_cluster_has_an_answer() {
    let nodes = Nodes::start(2, [Some(0), Some(1), Some(0)], &with_hold(LONG_MS));
    let mut client = nodes.0[0].client();
    let names = [1, 2].map(|n| format!("{n:040x}"));
    let ports = [0, 1].map(|n: usize| nodes.0[n].server.address.port());
    assert_eq!(client.line("CLUSTER MYID"), bulk(&names[0]));
    assert_eq!(client.line("CLUSTER KEYSLOT {foo}x"), Value::Integer(12182));
    let node = |n: usize| {
        let port = Value::Integer(ports[n].into());
        Value::Array(vec![bulk("127.0.0.1"), port, bulk(&names[n]), Value::Array(Vec::new())])
    };
    // A backup that leads other ranges is not listed.
    let range =
        |first, last, leader| Value::Array(vec![Value::Integer(first), Value::Integer(last), node(leader)]);
    let slots = [range(0, 5460, 0), range(5461, 10922, 1), range(10923, 16383, 0)];
    assert_eq!(client.line("CLUSTER SLOTS"), Value::Array(slots.to_vec()));
    let shards = client.line("cluster shards").items();
    assert_eq!(shards.len(), 3);
    let shard = shards[1].clone().items();
    assert_eq!(shard[..2], [bulk("slots"), Value::Array(vec![Value::Integer(5461), Value::Integer(10922)])]);
    let text = format!(
        "{} 127.0.0.1:{}@0 myself,master - 0 0 7 connected 0-5460 10923-16383\n\
         {} 127.0.0.1:{}@0 master - 0 0 7 connected 5461-10922\n",
        names[0], ports[0], names[1], ports[1]
    );
    assert_eq!(client.line("CLUSTER NODES"), bulk(&text));
    let replica = format!("{} 127.0.0.1:{}@0 slave {} 0 0 7 connected", names[1], ports[1], names[0]);
    for name in ["REPLICAS", "SLAVES"] {
        let line = format!("CLUSTER {name} {}", names[0]);
        assert_eq!(client.line(&line), Value::Array(vec![bulk(&replica)]));
    }
    assert_eq!(client.line("CLUSTER REPLICAS x"), error("ERR Unknown node x"));
    let info = client.line("CLUSTER INFO").text();
    assert!(info.starts_with("cluster_state:ok\r\ncluster_slots_assigned:16384\r\n"), "{info}");
    let reports = format!("CLUSTER COUNT-FAILURE-REPORTS {}", names[1]);
    assert_eq!(client.line(&reports), Value::Integer(0));
    assert_eq!(client.line("CLUSTER LINKS"), Value::Array(Vec::new()));
    assert!(client.line("CLUSTER HELP").items().len() > 20);
    for changing in [
        "MEET 127.0.0.1 1",
        "ADDSLOTS 1",
        "ADDSLOTSRANGE 1 2",
        "DELSLOTS 1",
        "DELSLOTSRANGE 1 2",
        "FLUSHSLOTS",
        "FAILOVER",
        "FORGET x",
        "REPLICATE x",
        "RESET",
        "SETSLOT 1 STABLE",
        "SET-CONFIG-EPOCH 1",
        "BUMPEPOCH",
        "SAVECONFIG",
    ] {
        let text = client.line(&format!("CLUSTER {changing}")).text();
        assert!(text.starts_with("ERR ") && text.contains("'furrow cluster'"), "{changing}: {text}");
    }
    assert_eq!(client.line("CLUSTER NO"), error("ERR unknown subcommand 'NO'. Try CLUSTER HELP."));
    assert_eq!(
        client.line("CLUSTER KEYSLOT"),
        error("ERR wrong number of arguments for 'cluster|keyslot' command")
    );
    assert_eq!(client.line("ASKING"), ok());
    let described = client.line("COMMAND INFO cluster readonly readwrite asking").items();
    assert!(described.iter().all(|one| matches!(one, Value::Array(_))), "{described:?}");
    let info = client.line("INFO").text();
    assert!(info.contains("redis_mode:cluster\r\n") && info.contains("# Cluster\r\ncluster_enabled:1\r\n"));
    client.line("HELLO 3");
    assert!(matches!(client.line("CLUSTER NODES"), Value::Verbatim(text) if text[4..] == *text_of(&ports)));
}

/// The text of NODES in the test above.
fn text_of(ports: &[u16; 2]) -> &'static str {
    let [first, second] = ports;
    let names = [1, 2].map(|n| format!("{n:040x}"));
    format!(
        "{} 127.0.0.1:{first}@0 myself,master - 0 0 7 connected 0-5460 10923-16383\n\
         {} 127.0.0.1:{second}@0 master - 0 0 7 connected 5461-10922\n",
        names[0], names[1]
    )
    .leak()
}

#[test]
fn the_keys_of_a_slot_are_counted_and_listed_where_its_group_is_led() {
    let nodes = Nodes::start(2, [Some(0), Some(1), Some(0)], &with_hold(LONG_MS));
    let mut client = nodes.0[0].client();
    client.line("MSET {b}1 x {b}2 x {b}3 x");
    client.line("SET hello x");
    assert_eq!(client.line("CLUSTER COUNTKEYSINSLOT 3300"), Value::Integer(3));
    assert_eq!(client.line("CLUSTER GETKEYSINSLOT 3300 2"), Value::Array(vec![bulk("{b}1"), bulk("{b}2")]));
    let mut other = nodes.0[1].client();
    assert_eq!(other.line("CLUSTER COUNTKEYSINSLOT 3300"), Value::Integer(0));
    assert_eq!(other.line("CLUSTER GETKEYSINSLOT 3300 9"), Value::Array(Vec::new()));
    for wrong in ["COUNTKEYSINSLOT 16384", "GETKEYSINSLOT -1 1", "GETKEYSINSLOT 1 -1"] {
        let expected = error("ERR Invalid slot or number of keys");
        assert_eq!(client.line(&format!("CLUSTER {wrong}")), expected, "{wrong}");
    }
    assert_eq!(
        client.line("CLUSTER COUNTKEYSINSLOT x"),
        error("ERR value is not an integer or out of range")
    );
}

#[test]
fn a_server_without_a_cluster_says_so() {
    let server = start(options());
    let mut client = server.client();
    for line in ["CLUSTER INFO", "CLUSTER MEET a 1", "READONLY", "READWRITE", "ASKING"] {
        let expected = error("ERR This instance has cluster support disabled");
        assert_eq!(client.line(line), expected, "{line}");
    }
    let info = client.line("INFO").text();
    assert!(info.contains("redis_mode:standalone\r\n") && info.contains("cluster_enabled:0\r\n"), "{info}");
    assert_eq!(client.line("MSET b 1 c 2"), ok());
}

#[test]
fn commands_on_all_keys_concern_the_groups_that_the_node_leads() {
    let nodes = Nodes::start(2, [Some(0), Some(1), Some(0)], &with_hold(LONG_MS));
    let (mut first, mut second) = (nodes.0[0].client(), nodes.0[1].client());
    let mut all = BTreeSet::new();
    for n in 0..300 {
        let (key, word) = (format!("key:{n}"), format!("SET key:{n} x"));
        if first.line(&word) == ok() {
            all.insert(key);
        } else {
            assert_eq!(second.line(&word), ok());
        }
    }
    assert!((100..300).contains(&all.len()), "the node leads two groups of three");
    assert_eq!(first.line("DBSIZE"), Value::Integer(all.len() as i64));
    assert_eq!(second.line("DBSIZE"), Value::Integer(300 - all.len() as i64));
    assert_eq!(names(first.line("KEYS *")), all);
    assert!(first.line("INFO keyspace").text().contains(&format!("db0:keys={},expires=0", all.len())));
    let (mut cursor, mut found, mut pages) = ("0".to_owned(), BTreeSet::new(), 0);
    loop {
        let page = first.line(&format!("SCAN {cursor} COUNT 30 MATCH key:*")).items();
        cursor = page[0].text();
        found.extend(names(page[1].clone()));
        pages += 1;
        assert!(pages < 30, "the scan does not end");
        if cursor == "0" {
            break;
        }
    }
    assert_eq!(found, all);
    assert_eq!(first.line("SCAN x"), error("ERR invalid cursor"));
    assert_eq!(first.line("FLUSHALL"), ok());
    assert_eq!(first.line("DBSIZE"), Value::Integer(0));
    assert_eq!(second.line("DBSIZE"), Value::Integer(300 - all.len() as i64));
    nodes.lead([Some(0); 3], 2);
    assert_eq!(second.line("DBSIZE"), Value::Integer(0));
    assert_eq!(second.line("FLUSHALL"), error("READONLY this node leads no group of the cluster"));
    // A group whose replica has just lost its lead counts as not led.
    nodes.0[0].replica(2).view.store(0, Ordering::SeqCst);
    assert_eq!(first.line("DBSIZE"), Value::Integer(0));
    assert_eq!(first.line("FLUSHALL"), ok());
}

#[test]
fn a_list_of_keys_beyond_the_unreserved_memory_is_sent_whole() {
    let nodes = Nodes::start(1, [Some(0); 3], &with_hold(LONG_MS));
    let mut client = nodes.0[0].client();
    let tail = "x".repeat(100 << 10);
    for n in 0..30 {
        assert_eq!(client.ask(&["SET", &format!("{n}{tail}"), ""]), ok());
    }
    assert_eq!(names(client.line("KEYS *")).len(), 30);
}

#[test]
fn redis_cli_follows_the_slots() {
    let nodes = Nodes::start(2, [Some(0), Some(1), Some(0)], &with_hold(LONG_MS));
    let cli = |words: &[&str]| {
        let output = run(stock_command("redis-cli").args(["-p", &nodes.0[0].server.port()]).args(words));
        assert!(output.status.success(), "{output:?}");
        String::from_utf8(output.stdout).unwrap()
    };
    for key in ["a", "b", "c", "foo", "hello"] {
        assert_eq!(cli(&["-c", "set", key, key]), "OK\n");
        assert_eq!(cli(&["-c", "get", key]), format!("{key}\n"));
    }
    assert!(cli(&["set", "c", "1"]).starts_with("MOVED 7365 127.0.0.1:"));
    let check = cli(&["--cluster", "check", &nodes.0[0].server.address.to_string()]);
    assert!(check.contains("All nodes agree about slots configuration"), "{check}");
    assert!(check.contains("All 16384 slots covered"), "{check}");
    let all = cli(&["--cluster", "call", &nodes.0[0].server.address.to_string(), "dbsize"]);
    assert!(all.contains(": 4\n") && all.contains(": 1\n"), "{all}");
}

#[test]
fn redis_benchmark_in_cluster_mode_runs_to_its_end() {
    let nodes = Nodes::start(2, [Some(0), Some(1), Some(0)], &with_hold(LONG_MS));
    let port = nodes.0[0].server.port();
    let words = ["--cluster", "-p", &port, "-t", "set,get", "-P", "4", "-n", "4000", "-r", "500", "-q"];
    let output = run(stock_command("redis-benchmark").args(words));
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(output.status.success() && text.contains("GET: "), "{output:?}");
    let keys = nodes.0.iter().map(|node| node.client().line("DBSIZE").text().parse::<i64>().unwrap());
    assert!(keys.sum::<i64>() > 100);
}
