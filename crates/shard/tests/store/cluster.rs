//! A group of three replicas in one process, each on an emulated drive with tables in RocksDB, and an engine over each.

use std::collections::HashMap;
use std::sync::{Arc, Weak, mpsc};
use std::time::{Duration, Instant};

use bytes::Bytes;
use fs::{FormatOptions, Fs, MountOptions};
use kv::{Args, Claims, Engine, EngineOptions, Reply, Span, Store, Txn, Work, claim, execute, find};
use parking_lot::Mutex;
use replica::{Base, Configuration, ReplicaId, Role, Settings};
use shard::{
    BrokenRule, Change, Group, GroupId, GroupOptions, GroupStore, GroupTables, GroupsLog, GroupsLogOptions,
    Parts, PeerMessage, Peers, Place, StoredGroup, Tables, TablesDb, TablesOptions,
};
use units::{Blocks, Driver, RealDriver, block_on};
use zoned::ZonedDevice;
use zoned::emu::{Emu, EmuOptions};

pub const GROUP: GroupId = GroupId(1);
/// Longest time that a test waits before it fails.
pub const TEST_TIMEOUT: Duration = Duration::from_secs(300);
pub const ROLES: [Role; 3] = [Role::Witness, Role::Backup, Role::Witness];

type Sent = (ReplicaId, ReplicaId, PeerMessage);

/// The messages on their way to another replica.
#[derive(Debug)]
struct Channel(Mutex<mpsc::Sender<Sent>>);

impl Peers for Channel {
    fn send(&self, _group: GroupId, from: ReplicaId, to: ReplicaId, message: PeerMessage) {
        let _ended = self.0.lock().send((from, to, message));
    }
}

pub struct Node {
    device: Arc<dyn ZonedDevice>,
    pub fs: Fs,
    db: Arc<TablesDb>,
    log: Arc<GroupsLog>,
    pub tables: Arc<dyn Tables>,
    pub group: Arc<Group>,
    pub engine: Engine,
}

pub struct Cluster {
    pub nodes: Vec<Node>,
    pub groups: Arc<Mutex<HashMap<ReplicaId, Weak<Group>>>>,
    peers: Arc<dyn Peers>,
    broken_rule: Option<BrokenRule>,
}

impl Cluster {
    pub fn start() -> Cluster {
        Cluster::with_broken_rule(None)
    }

    pub fn with_broken_rule(broken_rule: Option<BrokenRule>) -> Cluster {
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
        let mut cluster = Cluster { nodes: Vec::new(), groups, peers, broken_rule };
        for place in 0..ROLES.len() {
            cluster.start_node(place, None);
        }
        cluster
    }

    /// Starts a node: a new one, or one that was stopped, from its drive.
    fn start_node(&mut self, place: usize, device: Option<Arc<dyn ZonedDevice>>) {
        let replica = ReplicaId(place as u64 + 1);
        let node = Node::start(
            Place { group: GROUP, replica, role: ROLES[place] },
            Arc::clone(&self.peers),
            device,
            self.broken_rule,
        );
        self.groups.lock().insert(replica, Arc::downgrade(&node.group));
        self.nodes.insert(place, node);
    }

    /// Ends a node's process.
    pub fn end(&mut self, place: usize) -> Ended {
        self.groups.lock().remove(&ReplicaId(place as u64 + 1));
        Ended(place, self.nodes.remove(place).close())
    }

    /// Starts a node's process again.
    pub fn start_again(&mut self, Ended(place, device): Ended) {
        self.start_node(place, Some(device));
    }

    /// The node that leads and takes commands.
    pub fn leader(&self) -> usize {
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
    pub fn ask(&self, lines: &[&str]) -> Vec<Reply> {
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
    pub fn stop(&self, node: usize) {
        self.groups.lock().remove(&self.nodes[node].group.place().replica);
        self.nodes[node].group.close();
    }

    pub fn close(self) {
        self.nodes.into_iter().for_each(|node| {
            node.close();
        });
    }
}

/// A node whose process has ended: its place, and its drive.
pub struct Ended(usize, Arc<dyn ZonedDevice>);

impl Node {
    fn start(
        place: Place,
        peers: Arc<dyn Peers>,
        device: Option<Arc<dyn ZonedDevice>>,
        broken_rule: Option<BrokenRule>,
    ) -> Node {
        let driver = device
            .as_ref()
            .map_or_else(|| RealDriver::new() as Arc<dyn Driver>, |device| Arc::clone(device.driver()));
        let is_new = device.is_none();
        let device = device.unwrap_or_else(|| new_device(&driver));
        let fs =
            block_on(&*driver, Fs::mount(Arc::clone(&device), &MountOptions::default())).expect("mounts");
        let (log, stored) =
            block_on(&*driver, GroupsLog::open(&fs, "/groups", &GroupsLogOptions::default())).expect("opens");
        let log = Arc::new(log);
        let members = (1..).map(ReplicaId).zip(ROLES);
        let first = StoredGroup::new(Base::first(Configuration::new(members), ReplicaId(1)));
        let stored = stored.into_values().next().unwrap_or(first);
        if is_new {
            block_on(&*driver, log.write(GROUP, &Change::State(stored.clone()))).expect("writes");
        }
        let options = TablesOptions { broken_rule, ..TablesOptions::new(1 << 20, 8 << 20) };
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
        let store: Arc<dyn Store> = Arc::new(GroupStore::new(Arc::clone(&group), Arc::clone(&tables)));
        let engine = Engine::start(store, driver, EngineOptions::default());
        Node { device, fs, db, log, tables, group, engine }
    }

    /// Ends the process; nothing is made durable.
    fn close(self) -> Arc<dyn ZonedDevice> {
        let Node { device, fs, db, log, group, engine, .. } = self;
        engine.close().expect("closes");
        group.close();
        let driver = Arc::clone(fs.driver());
        block_on(&*driver, group.finished());
        db.close().expect("closes");
        block_on(&*driver, log.close()).expect("closes");
        block_on(&*driver, fs.unmount()).expect("unmounts");
        device
    }
}

/// A formatted drive.
fn new_device(driver: &Arc<dyn Driver>) -> Arc<dyn ZonedDevice> {
    let size = Blocks(1 << 10);
    let options = EmuOptions { zones: 64, zone_size: size, zone_capacity: size, ..EmuOptions::default() };
    let device: Arc<dyn ZonedDevice> = Emu::memory(options, Arc::clone(driver));
    block_on(&**driver, Fs::format(&device, &FormatOptions::default())).expect("formats");
    device
}

pub enum Answer {
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
            let command = find(line[0].as_bytes()).expect("a command");
            claim(&command.spec, Args::new(&bytes, &spans), claims);
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

/// The reply of a node's own tables to GET, whatever the node's role is.
pub fn read_here(node: &Node, key: &str) -> Reply {
    let (bytes, spans) = words(&["GET".to_owned(), key.to_owned()]);
    let mut replies = Vec::new();
    let command = find(b"GET").expect("a command");
    node.engine.read(|txn| execute(command, Args::new(&bytes, &spans), txn, &mut replies));
    replies.remove(0)
}

pub fn ask(engine: &Engine, lines: &[&str]) -> Answer {
    let lines = lines.iter().map(|line| line.split(' ').map(str::to_owned).collect()).collect();
    let (to, from) = mpsc::channel();
    let pipeline = Pipeline { lines, replies: Vec::new(), to };
    assert!(engine.submit(Box::new(pipeline)).is_ok(), "the engine takes the pipeline");
    from.recv_timeout(TEST_TIMEOUT).expect("an answer in time")
}

pub fn bulk(text: &str) -> Reply {
    Reply::Bulk(Bytes::copy_from_slice(text.as_bytes()))
}

pub fn ok() -> Reply {
    Reply::Simple("OK".into())
}
