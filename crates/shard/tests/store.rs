//! A group of three replicas in one process, each on an emulated drive with tables in RocksDB, and an engine over each.
#![allow(clippy::indexing_slicing, reason = "a test may panic")]
#![allow(clippy::disallowed_methods, reason = "the replicas run in real time")]

use std::collections::HashMap;
use std::sync::{Arc, Weak, mpsc};
use std::time::{Duration, Instant};

use bytes::Bytes;
use fs::{FormatOptions, Fs, MountOptions};
use kv::{Args, Claims, Engine, EngineOptions, Reply, Span, Store, Txn, Work, execute, find};
use parking_lot::Mutex;
use replica::{Base, Configuration, ReplicaId, Role, Settings};
use shard::{
    Change, Group, GroupId, GroupOptions, GroupStore, GroupTables, GroupsLog, GroupsLogOptions, MAX_COMMAND,
    Parts, PeerMessage, Peers, Place, StoredGroup, Tables, TablesDb, TablesOptions,
};
use units::{Blocks, Driver, RealDriver, block_on};
use zoned::ZonedDevice;
use zoned::emu::{Emu, EmuOptions};

const GROUP: GroupId = GroupId(1);
/// Longest time that a test waits before it fails.
const TEST_TIMEOUT: Duration = Duration::from_secs(300);
const ROLES: [Role; 3] = [Role::Witness, Role::Backup, Role::Witness];

type Sent = (ReplicaId, ReplicaId, PeerMessage);

/// The messages on their way to another replica.
#[derive(Debug)]
struct Channel(Mutex<mpsc::Sender<Sent>>);

impl Peers for Channel {
    fn send(&self, _group: GroupId, from: ReplicaId, to: ReplicaId, message: PeerMessage) {
        let _ended = self.0.lock().send((from, to, message));
    }
}

struct Node {
    fs: Fs,
    db: Arc<TablesDb>,
    log: Arc<GroupsLog>,
    group: Arc<Group>,
    engine: Engine,
}

struct Cluster {
    nodes: Vec<Node>,
    groups: Arc<Mutex<HashMap<ReplicaId, Weak<Group>>>>,
}

impl Cluster {
    fn start() -> Cluster {
        let (sender, receiver) = mpsc::channel::<Sent>();
        let peers: Arc<dyn Peers> = Arc::new(Channel(Mutex::new(sender)));
        let groups: Arc<Mutex<HashMap<ReplicaId, Weak<Group>>>> = Arc::default();
        let known = Arc::clone(&groups);
        std::thread::spawn(move || {
            for (from, to, message) in receiver {
                let group = known.lock().get(&to).and_then(Weak::upgrade);
                if let Some(group) = group {
                    group.receive(from, message);
                }
            }
        });
        let mut cluster = Cluster { nodes: Vec::new(), groups };
        for (number, role) in (1..).zip(ROLES) {
            let place = Place { group: GROUP, replica: ReplicaId(number), role };
            let node = Node::start(place, Arc::clone(&peers));
            cluster.groups.lock().insert(place.replica, Arc::downgrade(&node.group));
            cluster.nodes.push(node);
        }
        cluster
    }

    /// The node that leads and takes commands.
    fn leader(&self) -> usize {
        let begun = Instant::now();
        while begun.elapsed() < TEST_TIMEOUT {
            if let Some(leads) = self.nodes.iter().position(|node| node.group.view().is_ok()) {
                return leads;
            }
            std::thread::sleep(Duration::from_millis(5));
        }
        panic!("nobody leads in time");
    }

    /// The replies to a pipeline, from whoever leads.
    fn ask(&self, lines: &[&str]) -> Vec<Reply> {
        let begun = Instant::now();
        while begun.elapsed() < TEST_TIMEOUT {
            match ask(&self.nodes[self.leader()].engine, lines) {
                Answer::Replies(replies) => return replies,
                Answer::NotLeader => {}
            }
        }
        panic!("no answer in time");
    }

    /// The machine of a node stops: it sends and hears nothing any more.
    fn stop(&self, node: usize) {
        self.groups.lock().remove(&self.nodes[node].group.place().replica);
        self.nodes[node].group.close();
    }

    fn close(self) {
        for Node { fs, db, log, group, engine } in self.nodes {
            engine.close().expect("closes");
            group.close();
            let driver = Arc::clone(fs.driver());
            block_on(&*driver, group.finished());
            db.close().expect("closes");
            block_on(&*driver, log.close()).expect("closes");
            block_on(&*driver, fs.unmount()).expect("unmounts");
        }
    }
}

impl Node {
    fn start(place: Place, peers: Arc<dyn Peers>) -> Node {
        let driver: Arc<dyn Driver> = RealDriver::new();
        let size = Blocks(1 << 10);
        let options = EmuOptions { zones: 64, zone_size: size, zone_capacity: size, ..EmuOptions::default() };
        let device: Arc<dyn ZonedDevice> = Emu::memory(options, Arc::clone(&driver));
        block_on(&*driver, Fs::format(&device, &FormatOptions::default())).expect("formats");
        let fs = block_on(&*driver, Fs::mount(device, &MountOptions::default())).expect("mounts");
        let (log, _) =
            block_on(&*driver, GroupsLog::open(&fs, "/groups", &GroupsLogOptions::default())).expect("opens");
        let log = Arc::new(log);
        let members = (1..).map(ReplicaId).zip(ROLES);
        let stored = StoredGroup::new(Base::first(Configuration::new(members), ReplicaId(1)));
        block_on(&*driver, log.write(GROUP, &Change::State(stored.clone()))).expect("writes");
        let options = TablesOptions::new(1 << 20, 8 << 20);
        let db = TablesDb::open(&fs, "/tables", &options).expect("opens");
        let tables: Arc<dyn Tables> = Arc::new(GroupTables::open(&db, GROUP, place.role).expect("opens"));
        let settings = Settings {
            election_timeout: Duration::from_millis(400),
            heartbeat: Duration::from_millis(40),
            ..Settings::default()
        };
        let options = GroupOptions { settings, ..GroupOptions::default() };
        let parts =
            Parts { driver: Arc::clone(&driver), log: Arc::clone(&log), tables: Arc::clone(&tables), peers };
        let group = Group::start(place, &options, parts, stored).expect("starts");
        let store: Arc<dyn Store> = Arc::new(GroupStore::new(Arc::clone(&group), tables));
        Node { fs, db, log, group, engine: Engine::start(store, driver, EngineOptions::default()) }
    }
}

enum Answer {
    Replies(Vec<Reply>),
    NotLeader,
}

struct Pipeline {
    lines: Vec<Vec<String>>,
    replies: Vec<Reply>,
    to: mpsc::Sender<Answer>,
}

/// A command's words, one after the other, and where each is.
fn words(line: &[String]) -> (Bytes, Vec<Span>) {
    let mut end = 0;
    let spans = line.iter().map(|word| {
        let start = end;
        end += u32::try_from(word.len()).expect("a short word");
        Span { start, end }
    });
    (Bytes::from(line.concat()), spans.collect())
}

impl Work for Pipeline {
    fn claims(&self, claims: &mut Claims) {
        for line in &self.lines {
            let (bytes, spans) = words(line);
            claims.command(&find(line[0].as_bytes()).expect("a command").spec, Args::new(&bytes, &spans));
        }
    }

    fn run(&mut self, txn: &mut Txn<'_>) {
        self.replies.clear();
        for line in &self.lines {
            let (bytes, spans) = words(line);
            let command = find(line[0].as_bytes()).expect("a command");
            execute(command, Args::new(&bytes, &spans), txn, &mut self.replies);
        }
    }

    fn writes_are_durable(self: Box<Self>) {
        let _gone = self.to.send(Answer::Replies(self.replies));
    }

    fn not_leader(self: Box<Self>) {
        let _gone = self.to.send(Answer::NotLeader);
    }
}

fn ask(engine: &Engine, lines: &[&str]) -> Answer {
    let lines = lines.iter().map(|line| line.split(' ').map(str::to_owned).collect()).collect();
    let (to, from) = mpsc::channel();
    let pipeline = Pipeline { lines, replies: Vec::new(), to };
    assert!(engine.submit(Box::new(pipeline)).is_ok(), "the engine takes the pipeline");
    from.recv_timeout(TEST_TIMEOUT).expect("an answer in time")
}

fn bulk(text: &str) -> Reply {
    Reply::Bulk(Bytes::copy_from_slice(text.as_bytes()))
}

fn ok() -> Reply {
    Reply::Simple("OK".into())
}

/// The reply of a node's own tables to GET, whatever the node's role is.
fn read_here(node: &Node, key: &str) -> Reply {
    let (bytes, spans) = words(&["GET".to_owned(), key.to_owned()]);
    let mut replies = Vec::new();
    let command = find(b"GET").expect("a command");
    node.engine.read(|txn| execute(command, Args::new(&bytes, &spans), txn, &mut replies));
    replies.remove(0)
}

/// Waits until a backup says that it is behind by more, or by less, than a time.
fn wait_until(backup: &Node, is_so: impl Fn(Duration) -> bool) {
    let begun = Instant::now();
    while !backup.group.behind().is_some_and(&is_so) {
        assert!(begun.elapsed() < TEST_TIMEOUT, "behind by {:?}", backup.group.behind());
        std::thread::sleep(Duration::from_millis(1));
    }
}

#[test]
fn a_backup_has_what_was_acknowledged_before_the_time_that_it_may_be_behind() {
    let cluster = Cluster::start();
    let backup = &cluster.nodes[1];
    for n in 0..30 {
        assert_eq!(cluster.ask(&[&format!("SET n {n}")]), [ok()]);
        let acknowledged = Instant::now();
        wait_until(backup, |behind| behind < acknowledged.elapsed());
        assert_eq!(read_here(backup, "n"), bulk(&n.to_string()));
    }
    // Without a leader the backup's tables grow old.
    [0, 2].into_iter().for_each(|node| cluster.stop(node));
    wait_until(backup, |behind| behind > Duration::from_secs(1));
    assert_eq!(read_here(backup, "n"), bulk("29"));
    cluster.close();
}

#[test]
fn commands_run_where_the_group_is_led_and_survive_the_leader() {
    let cluster = Cluster::start();
    assert_eq!(cluster.ask(&["SET a 1", "INCR n", "GET a"]), [ok(), Reply::Integer(1), bulk("1")]);
    let leader = cluster.leader();
    for (number, node) in cluster.nodes.iter().enumerate().filter(|(number, _)| *number != leader) {
        assert!(matches!(ask(&node.engine, &["INCR n"]), Answer::NotLeader), "node {number} leads no group");
        assert!(node.engine.read_in_view(|_| ()).is_err(), "node {number} answers no reads");
    }
    for n in 2..=50 {
        assert_eq!(cluster.ask(&["INCR n"]), [Reply::Integer(n)]);
    }
    assert_eq!(cluster.ask(&["SET a 2 NX GET", "APPEND a x"]), [bulk("1"), Reply::Integer(2)]);
    cluster.stop(leader);
    // The next leader has no values of its own: it gets what a command reads.
    assert_eq!(cluster.ask(&["GET a", "INCR n"]), [bulk("1x"), Reply::Integer(51)]);
    assert_ne!(cluster.leader(), leader);
    assert_eq!(cluster.ask(&["DEL a", "EXISTS a n"]), [Reply::Integer(1), Reply::Integer(1)]);
    cluster.close();
}

#[test]
fn a_batch_that_no_message_takes_is_refused_and_nothing_else() {
    let cluster = Cluster::start();
    let long = format!("SET long {}", "x".repeat(usize::try_from(MAX_COMMAND.0).expect("fits") + 1));
    let replies = cluster.ask(&[&long]);
    assert!(matches!(&replies[..], [Reply::Error(text)] if text.contains("longer than")), "{replies:?}");
    assert_eq!(cluster.ask(&["SET short x", "EXISTS long"]), [ok(), Reply::Integer(0)]);
    cluster.close();
}

#[test]
fn a_read_counts_while_the_leader_is_one() {
    let cluster = Cluster::start();
    cluster.ask(&["SET a 1"]);
    let node = &cluster.nodes[cluster.leader()];
    let (value, reading) = node.engine.read_in_view(|txn| txn.value(b"a")).expect("it leads");
    assert_eq!(value.expect("reads").map(|record| record.value), Some("1".into()));
    assert!(block_on(&**node.fs.driver(), node.engine.settle(reading)).expect("it still leads"));
    let (_, reading) = node.engine.read_in_view(|txn| txn.value(b"a")).expect("it leads");
    // Cut off from the others, the leader confirms nothing once its lease is over.
    cluster.groups.lock().clear();
    let begun = Instant::now();
    while node.group.view().is_ok() {
        assert!(begun.elapsed() < TEST_TIMEOUT, "a leader without a majority steps down in time");
        std::thread::sleep(Duration::from_millis(5));
    }
    assert!(block_on(&**node.fs.driver(), node.engine.settle(reading)).is_err());
    cluster.close();
}

/// A heartbeat from the leader that says that more is committed than this replica's log has: its sender counts on entries that were here before, as after a copied or restored drive.
#[test]
fn a_commit_index_beyond_the_log_ends_no_thread() {
    let cluster = Cluster::start();
    cluster.ask(&["SET a 1"]);
    let leader = cluster.leader();
    let follower = (leader + 1) % ROLES.len();
    let (from, term) = {
        let group = &cluster.nodes[leader].group;
        (group.place().replica, group.with_replica(|replica| replica.term()))
    };
    let to = cluster.nodes[follower].group.place().replica;
    let raft = raft::eraftpb::Message {
        msg_type: raft::eraftpb::MessageType::MsgHeartbeat,
        from: from.0,
        to: to.0,
        term: term.0,
        commit: 1_000_000,
        ..Default::default()
    };
    let message = replica::Message {
        raft,
        sent: None,
        stable: replica::Index(0),
        is_whole: false,
        inquiry: None,
        lacks_room: false,
    };
    let group = Arc::clone(&cluster.nodes[follower].group);
    let received = std::thread::spawn(move || {
        group.receive(from, PeerMessage::Replica(Box::new(message)));
    });
    assert!(received.join().is_ok(), "the message is refused in words");
    assert_eq!(cluster.ask(&["GET a"]), [bulk("1")]);
    cluster.close();
}
