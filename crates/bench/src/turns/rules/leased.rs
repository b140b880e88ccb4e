//! The crate `turns`: the leader grants turns, which are leases, and hands leadership over before its own server has one.

use std::sync::Arc;
use std::time::Duration;

use ::turns::{Action, Event, Grant, Leader, Members, Node, NodeId, Options, Ping, Revoke, Term};
use parking_lot::Mutex;
use units::{Bytes, sleep_until};

use crate::turns::cluster::Cluster;
use crate::turns::load::TurnsLoad;
use crate::{Error, Result};

/// The leader looks at the time this often.
const TICK: Duration = Duration::from_millis(5);
/// The group grows its log by this much while nobody may have a turn, after each handing over of leadership: the limit of a log has room for it.
const ROOM_FOR_WAITS: u64 = 1 << 30;

/// The leader's and the servers' parts of the turns.
pub(in crate::turns) struct Leased {
    options: Options,
    /// The most bytes of a server's log.
    limit: Bytes,
    members: Members,
    leader: Mutex<Option<Leader>>,
    nodes: Vec<Mutex<Node>>,
}

/// The node's name of server `at`.
fn id(at: usize) -> NodeId {
    NodeId(at as u64)
}

impl Leased {
    pub(super) fn new(load: &TurnsLoad) -> Result<Leased> {
        let due = load.due_log();
        let options = Options {
            lease: Duration::from_secs(2),
            report_age: Duration::from_millis(500),
            least_log: due,
            longest_log: due,
            ..Options::default()
        };
        options.check().map_err(Error::settings)?;
        let limit = Bytes(2 * due.max(load.snapshot).0 + ROOM_FOR_WAITS);
        let ids = || (0..load.servers as usize).map(id);
        let nodes = ids().map(|id| Mutex::new(Node::new(id, 1, options))).collect();
        Ok(Leased { options, limit, members: Members::of(ids()), leader: Mutex::new(None), nodes })
    }

    /// Leads, on whichever server is the leader, for ever.
    pub(super) async fn lead(self: Arc<Self>, cluster: Arc<Cluster>) {
        loop {
            let (at, term) = cluster.leadership();
            self.follow_leadership(&cluster, at, Term(term));
            self.step(&cluster, at, Event::Tick);
            sleep_until(&*cluster.driver, cluster.now().after(TICK)).await;
        }
    }

    fn follow_leadership(&self, cluster: &Cluster, at: usize, term: Term) {
        let mut leader = self.leader.lock();
        if leader.as_ref().is_none_or(|leader| leader.term() < term) {
            if let Some(node) = self.nodes.get(at) {
                node.lock().lead(term);
            }
            *leader = Some(Leader::new(id(at), term, self.members.clone(), self.options, cluster.now()));
        }
    }

    fn step(self: &Arc<Self>, cluster: &Arc<Cluster>, at: usize, event: Event) {
        let actions = match &mut *self.leader.lock() {
            Some(leader) => leader.step(cluster.now(), event),
            None => return,
        };
        for action in actions {
            match action {
                Action::Ping(ping) => {
                    for to in 0..cluster.len() {
                        let turns = Arc::clone(self);
                        cluster.send(at, to, move |cluster| turns.answer(cluster, at, to, ping));
                    }
                }
                Action::Grant(grant) => self.deliver(cluster, at, grant.node, Message::Grant(grant)),
                Action::Revoke(revoke) => self.deliver(cluster, at, revoke.node, Message::Revoke(revoke)),
                Action::HandOver(node) => cluster.hand_over(place(node)),
            }
        }
    }

    /// Server `to` reports to the leader, server `from`.
    fn answer(self: &Arc<Self>, cluster: &Arc<Cluster>, from: usize, to: usize, ping: Ping) {
        let status = cluster.status(to, self.limit);
        let report = self.node(to).lock().report(cluster.now(), ping, status);
        let Some(report) = report else { return };
        let turns = Arc::clone(self);
        cluster.send(to, from, move |cluster| turns.step(cluster, from, Event::Report(report)));
    }

    fn deliver(self: &Arc<Self>, cluster: &Arc<Cluster>, from: usize, to: NodeId, message: Message) {
        let (turns, to) = (Arc::clone(self), place(to));
        cluster.send(from, to, move |cluster| {
            let mut node = turns.node(to).lock();
            match message {
                Message::Grant(grant) => {
                    node.granted(cluster.now(), &grant);
                }
                Message::Revoke(revoke) => node.revoked(&revoke),
            }
        });
    }

    fn node(&self, at: usize) -> &Mutex<Node> {
        self.nodes.get(at).expect("a server of the group")
    }

    /// The rate of server `at`, if the server has a turn, or is at its limit, and has something to write.
    pub(super) fn rate(&self, cluster: &Cluster, at: usize) -> Option<u64> {
        let (is_begun, log) = {
            let state = cluster.server(at).state.lock();
            (state.snapshot.is_some(), Bytes(state.entries_since_snapshot() * cluster.load.entry.0))
        };
        if !is_begun && log < self.options.least_log {
            return None;
        }
        let room = Bytes(self.limit.0.saturating_sub(log.0));
        // A node decides by the room alone.
        let status = ::turns::Status { log, room, ..::turns::Status::default() };
        self.node(at).lock().rate(cluster.now(), &status).map(|rate| rate.0)
    }

    pub(super) fn durable(&self, at: usize) {
        self.node(at).lock().durable();
    }

    pub(super) fn nothing_in_flight(&self, at: usize) {
        self.node(at).lock().nothing_in_flight();
    }

    pub(super) fn forced(&self) -> u64 {
        self.nodes.iter().map(|node| node.lock().forced()).sum()
    }
}

/// A leader's message to a node.
enum Message {
    Grant(Grant),
    Revoke(Revoke),
}

/// The server of a node's name.
fn place(node: NodeId) -> usize {
    usize::try_from(node.0).unwrap_or(usize::MAX)
}
