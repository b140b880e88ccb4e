//! The nodes of a cluster in one process: each a server over engines for three groups, with leaders that a test chooses.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};

use kv::{
    Engine, EngineOptions, Error, MemoryStore, OnceTable, Overlay, RecordId, Store, View, Visit, Writing,
};
use parking_lot::Mutex;
use server::cluster::{
    Cluster, ClusterNode, GroupId, GroupStats, HandingOver, NodeIndex, SlotRange, Topology,
};
use server::{ServeOptions, Server};
use tokio::sync::watch;
use units::RealDriver;

use crate::common::*;

/// A group's replica on a node: the data, which the replicas of all nodes share, seen in a view that can be taken away.
#[derive(Debug, Default)]
pub struct Replica {
    pub data: Arc<MemoryStore>,
    /// The present view; 0: the replica does not lead.
    pub view: AtomicU64,
    /// Number of the next confirmations of a view, and writes in a view, that fail.
    pub failing_confirmations: AtomicUsize,
    /// Whether writes end without a known outcome.
    pub outcomes_are_open: AtomicBool,
    /// Whether the replica lacks all values.
    pub lacks_values: AtomicBool,
}

fn not_leader() -> Error {
    Error::NotLeader("this replica does not lead".into())
}

impl Replica {
    /// Whether a confirmation or a write fails since the test has said so.
    fn is_told_to_fail(&self) -> bool {
        let one_less = |n: usize| n.checked_sub(1);
        self.failing_confirmations.fetch_update(Ordering::SeqCst, Ordering::SeqCst, one_less).is_ok()
    }

    fn check(&self) -> kv::Result<()> {
        match self.lacks_values.load(Ordering::SeqCst) {
            true => Err(Error::Missing("no replica has the value".into())),
            false => Ok(()),
        }
    }
}

impl Store for Replica {
    fn view(&self) -> kv::Result<View> {
        match self.view.load(Ordering::SeqCst) {
            0 => Err(not_leader()),
            view => Ok(View(view)),
        }
    }
    fn confirm(&self, view: View) -> Option<Writing<'_>> {
        let fails = self.is_told_to_fail() || self.view().ok() != Some(view);
        fails.then(|| -> Writing<'_> { Box::pin(std::future::ready(Err(not_leader()))) })
    }
    fn fetch(&self, records: Vec<RecordId>) -> Writing<'_> {
        Box::pin(std::future::ready(if records.is_empty() { Ok(()) } else { self.check() }))
    }
    fn once(&self) -> Option<&dyn OnceTable> {
        self.data.once()
    }
    fn get(&self, key: &[u8], found: &mut dyn FnMut(Option<&[u8]>)) -> kv::Result<()> {
        self.check()?;
        self.data.get(key, found)
    }
    fn multi_get(&self, keys: &[&[u8]], found: &mut dyn FnMut(usize, Option<&[u8]>)) -> kv::Result<()> {
        self.check()?;
        self.data.multi_get(keys, found)
    }
    fn scan(&self, from: &[u8], visit: &mut Visit<'_>) -> kv::Result<()> {
        self.data.scan(from, visit)
    }
    fn write(&self, batch: &Overlay, sync: bool, view: View) -> Writing<'_> {
        if self.is_told_to_fail() || self.view().ok() != Some(view) {
            return Box::pin(std::future::ready(Err(not_leader())));
        }
        if self.outcomes_are_open.load(Ordering::SeqCst) {
            return Box::pin(std::future::ready(Err(Error::Open("told to".into()))));
        }
        self.data.write(batch, sync, view)
    }
    fn key_estimate(&self) -> u64 {
        self.data.key_estimate()
    }
    fn sync(&self) -> kv::Result<()> {
        self.data.sync()
    }
    fn close(&self) -> kv::Result<()> {
        self.data.close()
    }
}

/// A node as its server sees the cluster.
#[derive(Debug)]
struct Process {
    topology: Mutex<Arc<Topology>>,
    replicas: BTreeMap<u64, (Arc<Replica>, Engine)>,
    behind_ms: Mutex<Option<u64>>,
    /// The groups that the process says it leads.
    led: Mutex<Vec<u64>>,
    is_cut_off: AtomicBool,
    stats: Mutex<Vec<GroupStats>>,
    handed_over: Arc<AtomicBool>,
    changes: watch::Sender<u64>,
}

impl Cluster for Process {
    fn topology(&self) -> Arc<Topology> {
        Arc::clone(&self.topology.lock())
    }
    fn engine(&self, group: GroupId) -> Option<Engine> {
        self.replicas.get(&group.0).map(|(_, engine)| engine.clone())
    }
    fn leads(&self, group: GroupId) -> bool {
        self.led.lock().contains(&group.0)
    }
    fn behind_ms(&self, _group: GroupId) -> Option<u64> {
        *self.behind_ms.lock()
    }
    fn is_cut_off(&self, _group: GroupId) -> bool {
        self.is_cut_off.load(Ordering::SeqCst)
    }
    fn stats(&self) -> Vec<GroupStats> {
        self.stats.lock().clone()
    }
    fn hand_over(&self) -> HandingOver {
        let handed_over = Arc::clone(&self.handed_over);
        Box::pin(async move {
            tokio::task::yield_now().await;
            handed_over.store(true, Ordering::SeqCst);
        })
    }
    fn changes(&self) -> watch::Receiver<u64> {
        self.changes.subscribe()
    }
    fn close(&self) -> kv::Result<()> {
        self.replicas.values().try_for_each(|(_, engine)| engine.close())
    }
}

/// A node of a test's cluster.
pub struct Node {
    process: Arc<Process>,
    pub server: Running,
}

impl Node {
    pub fn client(&self) -> Client {
        self.server.client()
    }

    pub fn replica(&self, group: u64) -> &Replica {
        &self.process.replicas[&group].0
    }

    /// Sets whether the node says that it leads a group, and the view of its replica.
    pub fn set_view(&self, group: u64, view: u64) {
        self.replica(group).view.store(view, Ordering::SeqCst);
        let mut led = self.process.led.lock();
        led.retain(|other| *other != group);
        led.extend((view != 0).then_some(group));
        drop(led);
        self.process.changes.send_modify(|number| *number += 1);
    }

    /// Sets how far the node's backups are behind.
    pub fn set_behind_ms(&self, behind: Option<u64>) {
        *self.process.behind_ms.lock() = behind;
    }

    /// Sets whether the node says that its replicas have lost their majorities.
    pub fn set_cut_off(&self, is_cut_off: bool) {
        self.process.is_cut_off.store(is_cut_off, Ordering::SeqCst);
        self.process.changes.send_modify(|number| *number += 1);
    }

    /// Sets the numbers of the node's replicas.
    pub fn set_stats(&self, stats: Vec<GroupStats>) {
        *self.process.stats.lock() = stats;
    }

    /// Whether the node has handed the lead of its groups over.
    pub fn handed_over(&self) -> Arc<AtomicBool> {
        Arc::clone(&self.process.handed_over)
    }

    /// Makes the node know no slots of a group.
    pub fn forget_slots(&self, group: u64) {
        let mut topology = Topology::clone(&self.process.topology());
        topology.ranges.retain(|range| range.group.0 != group);
        self.set_topology(topology);
    }

    fn set_topology(&self, topology: Topology) {
        *self.process.topology.lock() = Arc::new(topology);
        self.process.changes.send_modify(|number| *number += 1);
    }
}

/// The nodes of a cluster. The three groups have a third of the slots each.
pub struct Nodes(pub Vec<Node>);

impl Nodes {
    /// Starts as many nodes as `leaders` name, with the same options. `leaders`: the node that leads each group.
    pub fn start(nodes: usize, leaders: [Option<usize>; 3], options: &ServeOptions) -> Nodes {
        let data = [1, 2, 3].map(|group| Arc::new(MemoryStore::new().with_once(group)));
        let empty = Arc::new(topology(&[], 0, [None; 3]));
        let start = |_| {
            let replica = |group: u64| {
                let data = Arc::clone(&data[group as usize - 1]);
                let replica = Arc::new(Replica { data, ..Replica::default() });
                let store = Arc::clone(&replica) as Arc<dyn Store>;
                (group, (replica, Engine::start(store, RealDriver::new(), EngineOptions::default())))
            };
            let process = Arc::new(Process {
                topology: Mutex::new(Arc::clone(&empty)),
                replicas: (1..4).map(replica).collect(),
                behind_ms: Mutex::default(),
                led: Mutex::default(),
                is_cut_off: AtomicBool::new(false),
                stats: Mutex::default(),
                handed_over: Arc::default(),
                changes: watch::Sender::new(0),
            });
            let cluster = Arc::clone(&process) as Arc<dyn Cluster>;
            let server = Server::start_in_cluster(cluster, RealDriver::new(), None, options.clone());
            Node { process, server: run_server(server.expect("the server starts")) }
        };
        let nodes = Nodes((0..nodes).map(start).collect());
        nodes.lead(leaders, 1);
        nodes
    }

    /// Makes all nodes know these leaders of the groups, which lead in `view`.
    pub fn lead(&self, leaders: [Option<usize>; 3], view: u64) {
        let ports: Vec<u16> = self.0.iter().map(|node| node.server.address.port()).collect();
        for (n, node) in self.0.iter().enumerate() {
            for (group, leader) in (1..).zip(leaders) {
                node.set_view(group, if leader == Some(n) { view } else { 0 });
            }
            node.set_topology(topology(&ports, n, leaders));
        }
    }
}

fn topology(ports: &[u16], me: usize, leaders: [Option<usize>; 3]) -> Topology {
    let nodes = ports.iter().zip(1..).map(|(port, n)| ClusterNode {
        name: format!("{n:040x}"),
        host: "127.0.0.1".into(),
        port: *port,
        is_alive: true,
    });
    let range = |group: usize, first, last| SlotRange {
        first,
        last,
        group: GroupId(group as u64 + 1),
        leader: leaders[group].map(NodeIndex),
        backups: (0..ports.len()).map(NodeIndex).filter(|n| Some(n.0) != leaders[group]).collect(),
    };
    Topology {
        epoch: 7,
        me: NodeIndex(me),
        nodes: nodes.collect(),
        ranges: vec![range(0, 0, 5460), range(1, 5461, 10922), range(2, 10923, 16383)],
    }
}
