use std::sync::Arc;

use kv::Engine;
use tokio::sync::watch;

use super::*;
use crate::cluster::{Cluster, ClusterNode, GroupStats, HandingOver, NodeIndex, SlotRange, Topology};
use crate::session::Transaction;

/// A process that leads the groups 1 and 2, and backs up group 3. Nobody leads group 4.
///
/// The keys `b` (slot 3300) and `hello` (866) are in group 1, `c` (7365) in group 2, `d` (11298) in group 3, `a` (15495) in 4.
#[derive(Debug)]
struct Process(Topology);

impl Cluster for Process {
    fn topology(&self) -> Arc<Topology> {
        Arc::new(self.0.clone())
    }
    fn engine(&self, _group: GroupId) -> Option<Engine> {
        None
    }
    fn leads(&self, group: GroupId) -> bool {
        group.0 <= 2
    }
    fn behind_ms(&self, _group: GroupId) -> Option<u64> {
        Some(0)
    }
    fn is_cut_off(&self, _group: GroupId) -> bool {
        false
    }
    fn stats(&self) -> Vec<GroupStats> {
        Vec::new()
    }
    fn hand_over(&self) -> HandingOver {
        Box::pin(std::future::ready(()))
    }
    fn changes(&self) -> watch::Receiver<u64> {
        watch::channel(0).1
    }
    fn close(&self) -> kv::Result<()> {
        Ok(())
    }
}

fn process() -> Process {
    let node = |port: u16| ClusterNode { name: port.to_string(), host: "h".into(), port, is_alive: true };
    let range = |first, last, group, leader: Option<usize>| SlotRange {
        first,
        last,
        group: GroupId(group),
        leader: leader.map(NodeIndex),
        backups: vec![NodeIndex(0)],
    };
    Process(Topology {
        epoch: 1,
        me: NodeIndex(0),
        nodes: vec![node(1), node(2)],
        ranges: vec![
            range(0, 5000, 1, Some(0)),
            range(5001, 10000, 2, Some(0)),
            range(10001, 12000, 3, Some(1)),
            range(12001, 16383, 4, None),
        ],
    })
}

fn session() -> Session {
    Session::new(1, true)
}

/// The first turn of command lines as text: its number of commands, its needs, where it runs, and the refused commands.
fn plan_for(session: &Session, queue: &Queue, lines: &[&str]) -> String {
    let process = process();
    let router = Router {
        topology: &process.0,
        cluster: &process,
        stale_limit_ms: 0,
        gave_back: None,
        hold_is_over: false,
    };
    let words: Vec<OwnedWords> =
        lines.iter().map(|line| OwnedWords::new(line.split(' ').map(str::as_bytes), 0)).collect();
    let commands = words.iter().map(|words| (Resolved::of(words.args().get(0)), words.args()));
    let (turn, place) = Planner { router: &router, session, queue }.plan(0, commands);
    let place = match place {
        Place::NoData => "no data".to_owned(),
        Place::Leader(group) => format!("leader of {}", group.0),
        Place::Backup(group) => format!("backup of {}", group.0),
        Place::Gathering(_) => "gathering".to_owned(),
        Place::Unled => "unled".to_owned(),
    };
    let mut text = format!("{} {:?} at {place}", turn.end, turn.needs);
    for n in 0..turn.end {
        if let Verdict::Refuse(error) = turn.verdict(n) {
            text.push_str(&format!("; {n} {}", error.split(' ').next().unwrap()));
        }
    }
    text
}

fn plan(lines: &[&str]) -> String {
    plan_for(&session(), &Queue::new(1000), lines)
}

#[test]
fn a_turn_is_a_run_of_commands_of_one_group() {
    assert_eq!(plan(&["GET b", "PING", "GET hello", "GET c"]), "3 Reads at leader of 1");
    assert_eq!(plan(&["PING", "SET c 1", "GET c", "PING", "GET b"]), "4 Writes at leader of 2");
    assert_eq!(plan(&["PING", "NO", "GET"]), "3 Nothing at no data");
    assert_eq!(
        plan(&["GET d", "GET b", "MGET b c", "SET d 1", "GET b"]),
        "5 Reads at leader of 1; 0 MOVED; 2 CROSSSLOT; 3 MOVED",
        "errors join any turn"
    );
}

#[test]
fn a_turn_ends_before_a_command_that_waits() {
    assert_eq!(plan(&["GET b", "GET a"]), "1 Reads at leader of 1");
    assert_eq!(plan(&["GET a", "GET b"]), "0 Nothing at unled");
}

#[test]
fn a_command_on_all_groups_is_a_turn_of_its_own() {
    assert_eq!(plan(&["DBSIZE", "GET b"]), "1 Nothing at gathering");
    assert_eq!(plan(&["PING", "SCAN 0"]), "1 Nothing at no data");
    assert_eq!(plan(&["CLUSTER COUNTKEYSINSLOT 1", "PING"]), "1 Nothing at gathering");
    assert_eq!(plan(&["CLUSTER COUNTKEYSINSLOT x", "PING"]), "2 Nothing at no data");
}

#[test]
fn a_turn_of_reads_has_a_limit_and_one_of_writes_has_none() {
    assert_eq!(plan(&["GET b"; 40]), "16 Reads at leader of 1");
    let mut lines = ["GET b"; 40];
    lines[3] = "SET b 1";
    assert_eq!(plan(&lines), "40 Writes at leader of 1");
}

#[test]
fn the_mode_of_readonly_begins_with_the_next_turn() {
    assert_eq!(plan(&["READONLY", "GET d"]), "1 Nothing at no data");
    let reading = Session { read_only: true, ..session() };
    let queue = Queue::new(1000);
    let backup = plan_for(&reading, &queue, &["GET d", "PING", "SET d 1", "GET b"]);
    assert_eq!(backup, "3 Reads at backup of 3; 2 MOVED");
}

#[test]
fn a_transaction_is_planned_command_by_command_and_at_exec_as_a_whole() {
    assert_eq!(plan(&["GET b", "MULTI", "SET c 1"]), "2 Reads at leader of 1", "MULTI ends a turn");
    let mut queue = Queue::new(1000);
    let words = OwnedWords::new(["SET", "c", "1"].iter().map(|word| word.as_bytes()), 0);
    queue.push(Resolved::of(b"SET"), words.args()).unwrap();
    let open = Transaction { start: 0, end: 1, aborted: false };
    let multi = Session { transaction: Some(open), ..session() };
    let queued = ["SET b 1", "GET a", "SET d 1", "DBSIZE", "EXEC"];
    assert_eq!(
        plan_for(&multi, &queue, &queued),
        "4 Nothing at no data; 2 MOVED; 3 ERR",
        "EXEC begins a turn"
    );
    assert_eq!(plan_for(&multi, &queue, &["EXEC", "GET c"]), "1 Writes at leader of 2");
    let aborted = Session { transaction: Some(Transaction { aborted: true, ..open }), ..session() };
    assert_eq!(plan_for(&aborted, &queue, &["EXEC"]), "1 Nothing at no data");
    let words = OwnedWords::new(["GET", "b"].iter().map(|word| word.as_bytes()), 0);
    queue.push(Resolved::of(b"GET"), words.args()).unwrap();
    let both = Session { transaction: Some(Transaction { end: 2, ..open }), ..session() };
    assert_eq!(plan_for(&both, &queue, &["EXEC"]), "1 Nothing at no data; 0 CROSSSLOT");
}

#[test]
fn the_commands_of_a_client_without_the_password_need_no_group() {
    let unknown = Session::new(1, false);
    let text = plan_for(&unknown, &Queue::new(1000), &["GET a", "DBSIZE", "AUTH x", "GET a"]);
    assert_eq!(text, "3 Nothing at no data");
}
