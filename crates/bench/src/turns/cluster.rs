//! The replicated group: clients, the leader's proposals, acknowledgements, and the handing over of leadership.
//!
//! ```text
//!   clients --requests--> leader --entries--> every server's log: one append at a time, of all that waits
//!      ^                    |  ^                       |
//!      '----acknowledged----'  '------durable----------'        committed: a majority has the entry durably
//! ```
//!
//! Every arrow takes the time of a message, but those within a server.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use turns::Status;
use units::sync::Event;
use units::{Bytes, Driver, Instant, sleep_until};

use super::load::TurnsLoad;
use super::server::{Server, SnapshotUnderWay};
use super::tally::Tally;

/// The group.
pub(super) struct Cluster {
    pub(super) load: TurnsLoad,
    pub(super) driver: Arc<dyn Driver>,
    pub(super) tally: Mutex<Tally>,
    servers: Vec<Server>,
    group: Mutex<Group>,
    /// Signalled when the leader has requests, or may take them.
    requests: Event,
}

/// The leader's state: its term, requests and entries, as they pass from leader to leader.
#[derive(Debug)]
struct Group {
    leader: usize,
    term: u64,
    /// Requests that wait for the leader: when their clients sent them, and their number.
    waiting: VecDeque<Requests>,
    /// True while the leader computes for requests that it took.
    computes: bool,
    /// Entries that were proposed.
    proposed: u64,
    /// Entries that each server has durably.
    durable: Vec<u64>,
    /// Proposals that are not committed: the number of entries up to their end, and the requests in them.
    proposals: VecDeque<(u64, Vec<Requests>)>,
    transfer: Option<Transfer>,
}

/// Requests that clients sent at the same time.
#[derive(Clone, Copy, Debug)]
pub(super) struct Requests {
    sent: Instant,
    pub(super) count: u64,
}

/// A handing over of leadership. The leader takes no requests meanwhile.
#[derive(Clone, Copy, Debug)]
struct Transfer {
    to: usize,
    /// Votes for the new leader; `None` while entries of the old one are not committed.
    votes: Option<usize>,
}

impl Cluster {
    pub(super) fn new(
        load: TurnsLoad,
        driver: Arc<dyn Driver>,
        servers: Vec<Server>,
        tally: Tally,
    ) -> Arc<Cluster> {
        let now = driver.now();
        let group = Group {
            leader: 0,
            term: 1,
            waiting: [Requests { sent: now, count: u64::from(load.clients) }].into(),
            computes: false,
            proposed: 0,
            durable: vec![0; servers.len()],
            proposals: VecDeque::new(),
            transfer: None,
        };
        let (tally, group) = (Mutex::new(tally), Mutex::new(group));
        Arc::new(Cluster { load, driver, tally, servers, group, requests: Event::new() })
    }

    pub(super) fn len(&self) -> usize {
        self.servers.len()
    }

    pub(super) fn majority(&self) -> usize {
        self.servers.len() / 2 + 1
    }

    pub(super) fn server(&self, at: usize) -> &Server {
        self.servers.get(at).expect("a server of the group")
    }

    pub(super) fn now(&self) -> Instant {
        self.driver.now()
    }

    /// The leader, and its term.
    pub(super) fn leadership(&self) -> (usize, u64) {
        let group = self.group.lock();
        (group.leader, group.term)
    }

    /// Runs `then` when a message from one server to another arrives: at once within a server.
    pub(super) fn send(
        self: &Arc<Self>,
        from: usize,
        to: usize,
        then: impl FnOnce(&Arc<Cluster>) + Send + 'static,
    ) {
        if from == to { then(self) } else { self.later(self.load.one_way, then) }
    }

    fn later(self: &Arc<Self>, delay: Duration, then: impl FnOnce(&Arc<Cluster>) + Send + 'static) {
        let (cluster, at) = (Arc::clone(self), self.now().after(delay));
        let message = async move {
            sleep_until(&*cluster.driver, at).await;
            then(&cluster);
        };
        self.driver.spawn("message", Box::pin(message));
    }

    /// Takes up to `most` requests that wait for the leader, as soon as there are some, and the leader leads.
    pub(super) async fn take_requests(&self, most: u64) -> Vec<Requests> {
        loop {
            let version = self.requests.version();
            let taken = self.group.lock().take_requests(most);
            if !taken.is_empty() {
                return taken;
            }
            self.requests.changed_since(version).await;
        }
    }

    /// The leader proposes the entries of `requests`, which it took.
    pub(super) fn propose(self: &Arc<Self>, requests: Vec<Requests>) {
        let (leader, end) = {
            let mut group = self.group.lock();
            group.computes = false;
            group.proposed += requests.iter().map(|requests| requests.count).sum::<u64>();
            let end = group.proposed;
            group.proposals.push_back((end, requests));
            (group.leader, end)
        };
        for to in 0..self.len() {
            self.send(leader, to, move |cluster| {
                let server = cluster.server(to);
                let mut state = server.state.lock();
                state.received = state.received.max(end);
                drop(state);
                server.log_work.notify();
            });
        }
    }

    /// Server `at` has the entries up to `end` durably, and the votes `votes`.
    pub(super) fn durable(self: &Arc<Self>, at: usize, end: u64, votes: VecDeque<(u64, usize)>) {
        let (leader, _) = self.leadership();
        self.send(at, leader, move |cluster| cluster.acknowledge(at, end));
        for (term, candidate) in votes {
            self.send(at, candidate, move |cluster| cluster.vote(term));
        }
    }

    fn acknowledge(self: &Arc<Self>, at: usize, end: u64) {
        let now = self.now();
        let committed = self.group.lock().acknowledge(at, end, self.majority());
        for Requests { sent, count } in committed {
            let answered = now.after(self.load.one_way);
            self.tally.lock().note_writes(answered, sent, count);
            self.later(2 * self.load.one_way, move |cluster| {
                cluster.group.lock().waiting.push_back(Requests { sent: answered, count });
                cluster.requests.notify();
            });
        }
        self.campaign();
    }

    /// The leader is to hand leadership over to server `to`: it commits what it has proposed, and takes no more requests.
    pub(super) fn hand_over(self: &Arc<Self>, to: usize) {
        {
            let mut group = self.group.lock();
            if group.transfer.is_some() || group.leader == to {
                return;
            }
            group.transfer = Some(Transfer { to, votes: None });
        }
        self.campaign();
    }

    /// Once the leader that hands over has committed all, and its successor has all, the successor asks for votes. A vote is durable before it is given.
    fn campaign(self: &Arc<Self>) {
        let Some((leader, to, term)) = self.group.lock().begin_campaign() else { return };
        self.send(leader, to, move |cluster| {
            for voter in 0..cluster.len() {
                cluster.send(to, voter, move |cluster| {
                    let server = cluster.server(voter);
                    server.state.lock().votes.push_back((term, to));
                    server.log_work.notify();
                });
            }
        });
    }

    fn vote(&self, term: u64) {
        let leads = self.group.lock().vote(term, self.majority());
        if leads {
            self.tally.lock().hand_overs += 1;
            self.requests.notify();
        }
    }

    /// The state of server `at`, whose log may have `limit` bytes.
    pub(super) fn status(&self, at: usize, limit: Bytes) -> Status {
        let committed = self.group.lock().committed(self.majority());
        let mut state = self.server(at).state.lock();
        let entries = state.entries_since_snapshot();
        let log = Bytes(entries * self.load.entry.0);
        let (sync_p99, sync_p99_alone) = state.syncs.p99(self.now());
        Status {
            log,
            entries,
            snapshot: self.load.snapshot,
            left: state.snapshot.map(|snapshot: SnapshotUnderWay| Bytes(snapshot.left)),
            room: Bytes(limit.0.saturating_sub(log.0)),
            behind: committed.saturating_sub(state.durable),
            sync_p99,
            sync_p99_alone,
        }
    }
}

impl Group {
    fn take_requests(&mut self, most: u64) -> Vec<Requests> {
        let (mut taken, mut left) = (Vec::new(), most);
        while self.transfer.is_none()
            && left > 0
            && let Some(first) = self.waiting.front_mut()
        {
            let count = first.count.min(left);
            taken.push(Requests { count, ..*first });
            left -= count;
            first.count -= count;
            if first.count == 0 {
                self.waiting.pop_front();
            }
        }
        self.computes = !taken.is_empty();
        taken
    }

    /// The number of entries that a majority has durably.
    fn committed(&self, majority: usize) -> u64 {
        let mut durable = self.durable.clone();
        durable.sort_unstable_by(|a, b| b.cmp(a));
        durable.get(majority - 1).copied().unwrap_or(0)
    }

    /// Server `at` has the entries up to `end` durably. Returns the requests that are committed by that.
    fn acknowledge(&mut self, at: usize, end: u64, majority: usize) -> Vec<Requests> {
        if let Some(durable) = self.durable.get_mut(at) {
            *durable = (*durable).max(end);
        }
        let committed = self.committed(majority);
        let mut requests = Vec::new();
        while self.proposals.front().is_some_and(|(end, _)| *end <= committed) {
            requests.extend(self.proposals.pop_front().into_iter().flat_map(|(_, requests)| requests));
        }
        requests
    }

    /// The old leader, the new one and the new term, if the old leader has nothing left to do.
    fn begin_campaign(&mut self) -> Option<(usize, usize, u64)> {
        let transfer = self.transfer.as_mut()?;
        let has_all = self.durable.get(transfer.to) == Some(&self.proposed);
        if transfer.votes.is_some() || self.computes || !self.proposals.is_empty() || !has_all {
            return None;
        }
        transfer.votes = Some(0);
        Some((self.leader, transfer.to, self.term + 1))
    }

    /// The candidate of `term` has one more vote. True if it leads by that.
    fn vote(&mut self, term: u64, majority: usize) -> bool {
        let Some(Transfer { to, votes: Some(votes) }) = &mut self.transfer else { return false };
        if term != self.term + 1 {
            return false;
        }
        *votes += 1;
        if *votes < majority {
            return false;
        }
        (self.leader, self.term, self.transfer) = (*to, term, None);
        true
    }
}
