//! A simulated cluster: its nodes, its network, its clients and its faults.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use kv::{Expiry, Overlay, Record};
use parking_lot::Mutex;
use raft::eraftpb::MessageType;
use replica::{Base, Configuration, Event, Index, ReplicaId, Role};
use shard::{Group, PeerMessage, Place, Refused, Row};
use units::{Driver as _, Instant};
use zoned::emu::Media;

use super::faults::{Fault, Faults};
use super::history::{Called, History};
use super::node::{GROUP, Node, Process};
use super::report::{ClusterFailureKind, Ended};
use super::rules::ClusterRules;
use super::tables::Committed;
use crate::Rng;

/// The election timeout. A heartbeat is a tenth of it.
const T: Duration = Duration::from_millis(100);
/// The most by which a node's clock is faster or slower than true time, in millionths.
const DRIFT_PPM: u64 = 10_000;
/// The time for which faults happen, and for which the group may take to be whole again.
const FAULTY: Duration = Duration::from_millis(2_500);
const HEALING: Duration = Duration::from_secs(10);
/// The time after which a client gives up, and the pause of a client that was refused.
const CLIENT_TIMEOUT: Duration = Duration::from_millis(500);
const REFUSED_PAUSE: Duration = Duration::from_millis(5);
/// The time between two counts of the copies of values.
const CHECK_PAUSE: Duration = Duration::from_millis(20);
const CLIENTS: usize = 6;
/// Longer than the start of a node on a fast drive.
const RESTART: Duration = Duration::from_millis(3);
/// The most replicas that a group ever has.
const MAX_NODES: usize = 14;
/// The time for which the group is asked for new members.
const CHANGE_TIME: Duration = Duration::from_secs(1);

/// An event that is to come.
enum What {
    Deliver { from: ReplicaId, to: ReplicaId, message: Box<PeerMessage> },
    Start { node: usize, life: u64 },
    Flush { node: usize },
    Ask { client: usize, turn: u64 },
    GiveUp { client: usize, turn: u64 },
    Fault,
    CutOff { node: usize, until: Duration },
    EndCuts,
    Heal,
    Check,
}

/// A client, which asks one thing after the other.
#[derive(Default)]
struct Client {
    /// The number of its operations so far.
    turn: u64,
    /// The node that it asks next.
    node: usize,
    under_way: Option<Called>,
}

/// The end of a client's operation.
enum Answer {
    Written,
    Read(Option<Row>),
    Refused(Refused),
}

/// The end of a read.
type Found = Result<Option<Row>, Refused>;

/// The ends of operations: client, its turn, the answer.
type Answers = Arc<Mutex<Vec<(usize, u64, Answer)>>>;

pub(super) struct World {
    rng: Rng,
    process: Process,
    first: Base,
    new_drive: Option<(Base, Media)>,
    nodes: Vec<Node>,
    /// The events that are to come, by time and number.
    due: BTreeMap<(Instant, u64), What>,
    numbers: u64,
    now: Instant,
    faults: Faults,
    faulty_until: Instant,
    /// Pairs of nodes between which no message goes, in this direction.
    cut: BTreeSet<(ReplicaId, ReplicaId)>,
    clients: Vec<Client>,
    answers: Answers,
    history: History,
    committed: Arc<Committed>,
    values: u64,
    /// The last key that clients use.
    last_key: u64,
    /// The latest members that a replica has applied, and the index of that change.
    members: (Configuration, Index),
    /// The members that the group is asked for, until then.
    wanted: Option<(Configuration, Instant)>,
    ended: Ended,
}

impl World {
    pub(super) fn new(seed: u64, run: u64, rules: ClusterRules) -> World {
        let mut rng = Rng::at(seed, &[run, 0xc1a5]);
        let k = 1 + rng.index(2);
        let roles = std::iter::once(Role::Witness)
            .chain(std::iter::repeat_n(Role::Backup, k))
            .chain(std::iter::repeat_n(Role::Witness, k));
        let voters = Configuration::new((1..).map(ReplicaId).zip(roles));
        let drift = u32::try_from(2 * DRIFT_PPM).unwrap_or(u32::MAX);
        let settings = rules.settings(T, T / 10, drift);
        let log_bytes = 1 << (15 + rng.below(4));
        let faults = Faults::of(&mut rng);
        let mut world = World {
            process: Process::new(settings, log_bytes, rules),
            first: Base::first(voters.clone(), ReplicaId(1)),
            new_drive: None,
            nodes: Vec::new(),
            due: BTreeMap::new(),
            numbers: 0,
            now: Instant::ORIGIN,
            faults,
            faulty_until: Instant::ORIGIN.after(FAULTY),
            cut: BTreeSet::new(),
            clients: (0..CLIENTS).map(|_| Client::default()).collect(),
            answers: Answers::default(),
            history: History::default(),
            committed: Arc::default(),
            values: 0,
            last_key: 0,
            members: (voters.clone(), Index(1)),
            wanted: None,
            ended: Ended::default(),
            rng,
        };
        for (_, role) in voters.voters() {
            world.add_node(role);
        }
        world
    }

    /// Simulates the whole run.
    pub(super) fn run(mut self) -> Ended {
        for client in 0..CLIENTS {
            self.after_us(10_000, What::Ask { client, turn: 0 });
        }
        self.after(self.faults.pause, What::Fault);
        self.after(FAULTY, What::Heal);
        self.after(CHECK_PAUSE, What::Check);
        self.run_until(self.faulty_until);
        self.become_whole();
        for fault in self.history.judge() {
            self.fail(ClusterFailureKind::NotLinearizable, fault);
        }
        self.ended.operations = self.history.answered;
        self.ended.seconds = self.now.0 / 1_000_000_000;
        let terms =
            self.nodes.iter().filter_map(Node::group).map(|group| group.with_replica(|of| of.term().0));
        self.ended.terms = terms.max().unwrap_or_default();
        self.ended.digest = self.digest();
        for node in &mut self.nodes {
            node.die(0, false);
        }
        self.ended
    }

    fn digest(&mut self) -> u64 {
        let parts = [self.now.0, self.numbers, self.history.answered, self.ended.terms, self.rng.draw()];
        Rng::at(0, &parts).draw()
    }

    fn fail(&mut self, kind: ClusterFailureKind, what: String) {
        self.ended.failure.get_or_insert((kind, format!("at {:?}: {what}", self.now)));
    }

    fn after(&mut self, time: Duration, what: What) {
        self.numbers += 1;
        self.due.insert((self.now.after(time), self.numbers), what);
    }

    fn after_us(&mut self, below: u64, what: What) {
        let time = Duration::from_micros(1 + self.rng.below(below));
        self.after(time, what);
    }

    /// Adds a node with a new replica, and starts it.
    fn add_node(&mut self, role: Role) -> ReplicaId {
        let replica = ReplicaId(self.nodes.len() as u64 + 1);
        let is_first = self.first.state.members.role(replica).is_some();
        let base = if is_first { self.first.clone() } else { Base::joining() };
        if self.new_drive.as_ref().is_none_or(|(of, _)| *of != base) {
            let seed = self.rng.draw();
            match self.process.new_drive(&base, seed) {
                Ok(media) => self.new_drive = Some((base, media)),
                Err(error) => self.fail(ClusterFailureKind::Stuck, format!("no drive: {error}")),
            }
        }
        let Some((_, media)) = self.new_drive.clone() else { return replica };
        let speed = 1_000_000 - DRIFT_PPM + self.rng.below(2 * DRIFT_PPM + 1);
        let slowness = [1, 1, 1, 20, 200].get(self.rng.index(5)).copied().unwrap_or(1);
        let place = Place { group: GROUP, replica, role };
        self.nodes.push(Node::new(place, self.process, media, &self.committed, (speed, slowness)));
        let node = self.nodes.len() - 1;
        self.start(node);
        if self.faults.flush_us > 0 {
            self.after_us(self.faults.flush_us, What::Flush { node });
        }
        replica
    }

    fn start(&mut self, node: usize) {
        let (now, seed) = (self.now, self.rng.draw());
        let Some(of) = self.nodes.get_mut(node).filter(|of| !of.is_lost && of.group().is_none()) else {
            return;
        };
        if let Err(error) = of.start(now, seed) {
            self.fail(ClusterFailureKind::Stuck, format!("node {} does not start: {error}", node + 1));
        }
    }

    fn die(&mut self, node: usize) {
        let (seed, flushed) = (self.rng.draw(), self.rng.chance(20));
        let Some(of) = self.nodes.get_mut(node).filter(|of| of.group().is_some()) else { return };
        of.die(seed, flushed);
        let life = of.life;
        self.ended.power_cuts += 1;
        self.after_us(self.faults.down_us, What::Start { node, life });
    }

    /// Runs the world until a true time, or until something happens that must not.
    fn run_until(&mut self, end: Instant) {
        while self.ended.failure.is_none() {
            let event = self.due.first_key_value().map(|((at, _), _)| *at);
            let of_node = self.nodes.iter().filter_map(Node::due).min();
            let Some(next) = event.into_iter().chain(of_node).min().filter(|next| *next <= end) else {
                break;
            };
            self.now = self.now.max(next);
            if event.is_some_and(|at| at <= self.now)
                && let Some((_, what)) = self.due.pop_first()
            {
                self.happens(what);
                continue;
            }
            for node in 0..self.nodes.len() {
                if self.nodes.get(node).and_then(Node::due).is_some_and(|due| due <= self.now) {
                    self.visit(node, |_| {});
                }
            }
        }
        self.now = self.now.max(end);
    }

    /// A node runs until now, and does what `then` says.
    fn visit(&mut self, node: usize, then: impl FnOnce(&Group)) {
        let Some(of) = self.nodes.get(node) else { return };
        let from = of.place().replica;
        let messages = of.run(self.now, then);
        if let Some(group) = of.group() {
            let members = group.with_replica(|replica| {
                let members = replica.members();
                (members.since() > self.members.1).then(|| (members.current().clone(), members.since()))
            });
            self.members = members.unwrap_or_else(|| self.members.clone());
            if let Some(why) = group.ended() {
                self.fail(ClusterFailureKind::Stuck, format!("node {} ended: {why}", node + 1));
            }
        }
        for (to, message) in messages {
            self.send(from, to, message);
        }
        let answers = std::mem::take(&mut *self.answers.lock());
        for (client, turn, answer) in answers {
            self.answered(client, turn, answer);
        }
    }

    /// The last committed value of each key is on more members' drives than may fail, those that are lost included; one node answers reads.
    fn check_copies_and_leases(&mut self) {
        let answering = self.nodes.iter().filter(|node| node.answers(self.now)).count();
        if answering > 1 {
            let kind = ClusterFailureKind::NotLinearizable;
            self.fail(kind, format!("{answering} nodes answer reads by their leases"));
        }
        let members = &self.members.0;
        if members.is_joint() {
            return;
        }
        let votes = |node: &&Node| members.role(node.place().replica).is_some();
        let nodes: Vec<&Node> = self.nodes.iter().filter(votes).collect();
        let lost = self.lost_members().len();
        let puts = self.committed.puts();
        let has: Vec<Vec<bool>> = nodes.iter().map(|node| node.has(&puts)).collect();
        let lacks = puts.into_iter().enumerate().find_map(|(place, (key, write))| {
            let copies = has.iter().filter(|has| has.get(place) == Some(&true)).count();
            (copies + lost <= members.may_fail()).then(|| {
                format!("the value of {key:?} by {write:?} has {copies} copies, and {lost} drives are lost")
            })
        });
        if let Some(lacks) = lacks.or(self.committed.contradiction()) {
            self.fail(ClusterFailureKind::Lost, lacks);
        }
    }

    fn send(&mut self, from: ReplicaId, to: ReplicaId, message: PeerMessage) {
        if self.cut.contains(&(from, to)) || self.rng.below(self.faults.lost) == 0 {
            return;
        }
        let message = Box::new(message);
        for _ in 0..=u64::from(self.rng.below(self.faults.lost) == 0) {
            let slow = if self.rng.below(20) == 0 { self.faults.slow_us } else { 100 };
            self.after_us(10 + slow, What::Deliver { from, to, message: message.clone() });
        }
    }

    fn happens(&mut self, what: What) {
        match what {
            What::Deliver { from, to, message } => {
                let Some(node) = self.nodes.iter().position(|node| node.place().replica == to) else {
                    return;
                };
                if asks_for_vote(&message) && self.rng.below(self.faults.restarts) == 0 {
                    self.restart(node);
                    return self.after(RESTART, What::Deliver { from, to, message });
                }
                self.visit(node, |group| group.receive(from, *message));
            }
            What::Start { node, life } => {
                if self.nodes.get(node).is_some_and(|of| of.life == life) {
                    self.start(node);
                }
            }
            What::Flush { node } => {
                self.visit(node, Group::flush);
                let pause = self.faults.flush_us;
                self.after_us(2 * pause, What::Flush { node });
            }
            What::Ask { client, turn } => self.ask(client, turn),
            What::GiveUp { client, turn } => {
                let Some(of) = self.clients.get_mut(client).filter(|of| of.turn == turn) else { return };
                if let Some(called) = of.under_way.take() {
                    self.history.given_up(called);
                }
                of.node = self.rng.index(self.nodes.len());
                self.next_turn(client, Duration::ZERO);
            }
            What::Fault if self.now < self.faulty_until => self.break_something(),
            What::Fault => {}
            What::CutOff { node, until } => {
                let id = ReplicaId(node as u64 + 1);
                let others: Vec<ReplicaId> = self.nodes.iter().map(|node| node.place().replica).collect();
                self.cut.extend(others.into_iter().flat_map(|other| [(id, other), (other, id)]));
                self.after(until, What::EndCuts);
            }
            What::EndCuts => self.cut.clear(),
            What::Heal => self.heal(),
            What::Check => {
                self.check_copies_and_leases();
                self.after(CHECK_PAUSE, What::Check);
            }
        }
    }

    /// A client begins an operation.
    fn ask(&mut self, client: usize, turn: u64) {
        let mut key = self.rng.below(self.faults.keys);
        // The judge takes so many operations on a key: then another one takes its place.
        while self.history.is_full(key) {
            key += self.faults.keys;
        }
        self.last_key = self.last_key.max(key);
        let reads = self.rng.below(10) < self.faults.reads;
        let deletes = self.rng.chance(10);
        let Some(of) = self.clients.get_mut(client).filter(|of| of.turn == turn) else { return };
        let node = of.node;
        let called = if reads {
            self.history.call_read(key)
        } else {
            self.values += 1;
            self.history.call_write(key, (!deletes).then_some(self.values))
        };
        of.under_way = Some(called);
        let name = key.to_be_bytes().to_vec();
        let mut batch = Overlay::default();
        if !reads && deletes {
            batch.delete(name.clone().into());
        } else if !reads {
            let value = self.values.to_le_bytes().to_vec().into();
            batch.put(name.clone().into(), Record { expires: Expiry::NEVER, value });
        }
        let asked =
            self.nodes.get(node).and_then(|of| Some((Arc::clone(of.group()?), Arc::clone(of.driver()?))));
        if let Some((group, driver)) = asked {
            let answers = Arc::clone(&self.answers);
            let operation = async move {
                let answer = if reads {
                    group.get(&name).await.map_or_else(Answer::Refused, Answer::Read)
                } else {
                    group.write(&batch).await.map_or_else(Answer::Refused, |_| Answer::Written)
                };
                answers.lock().push((client, turn, answer));
            };
            driver.spawn("client", Box::pin(operation));
            self.visit(node, |_| {});
        } else {
            // The node is down: nothing was sent.
            self.history.refused(called);
        }
        self.after(CLIENT_TIMEOUT, What::GiveUp { client, turn });
    }

    fn answered(&mut self, client: usize, turn: u64, answer: Answer) {
        let others = self.nodes.len();
        let Some(of) = self.clients.get_mut(client).filter(|of| of.turn == turn) else { return };
        let Some(called) = of.under_way.take() else { return };
        match answer {
            Answer::Written => self.history.written(called),
            Answer::Read(Some(Row { value: None, .. })) => {
                self.fail(ClusterFailureKind::NotLinearizable, "a read is answered without its value".into());
            }
            Answer::Read(row) => {
                self.history.read(called, row.as_ref().and_then(value_of));
            }
            Answer::Refused(why) => {
                let leader = if let Refused::NotLeader(leader) = why { leader } else { None };
                of.node = match leader {
                    Some(leader) => usize::try_from(leader.0).map_or(0, |id| id.saturating_sub(1)),
                    None => self.rng.index(others),
                };
                if matches!(why, Refused::NotLeader(_) | Refused::NoCopy | Refused::Full) {
                    self.history.refused(called);
                }
                return self.next_turn(client, REFUSED_PAUSE);
            }
        }
        let pause = Duration::from_micros(self.rng.below(self.faults.think_us));
        self.next_turn(client, pause);
    }

    fn next_turn(&mut self, client: usize, pause: Duration) {
        let Some(of) = self.clients.get_mut(client) else { return };
        of.turn += 1;
        let turn = of.turn;
        self.after(pause + Duration::from_micros(1), What::Ask { client, turn });
    }

    /// The node that leads in the highest term.
    fn leader(&self) -> Option<usize> {
        let leads = self.nodes.iter().enumerate().filter_map(|(node, of)| {
            let group = of.group()?;
            let term = group.with_replica(|replica| {
                (replica.leader() == Some(group.place().replica)).then(|| replica.term())
            });
            term.map(|term| (term, node))
        });
        leads.max().map(|(_, node)| node)
    }

    /// A node loses its power, and starts at once.
    fn restart(&mut self, node: usize) {
        let seed = self.rng.draw();
        if let Some(of) = self.nodes.get_mut(node).filter(|of| of.group().is_some()) {
            of.die(seed, false);
            self.ended.power_cuts += 1;
            self.start(node);
        }
    }

    fn break_something(&mut self) {
        let pause = self.faults.pause;
        self.after_us(2 * u64::try_from(pause.as_micros()).unwrap_or(1), What::Fault);
        self.ended.faults += 1;
        let node = self.rng.index(self.nodes.len());
        let other = self.rng.index(self.nodes.len());
        let id = |node: usize| ReplicaId(node as u64 + 1);
        match self.faults.draw(&mut self.rng) {
            Fault::PowerCut => self.die(node),
            Fault::PowerCutEverywhere => (0..self.nodes.len()).for_each(|node| self.die(node)),
            Fault::CutOff => {
                let (from, to) = [(true, true), (true, false), (false, true)]
                    .get(self.rng.index(3))
                    .copied()
                    .unwrap_or_default();
                for other in (0..self.nodes.len()).map(id) {
                    self.cut.extend(from.then_some((id(node), other)));
                    self.cut.extend(to.then_some((other, id(node))));
                }
            }
            Fault::Parted => self.cut.extend([(id(node), id(other)), (id(other), id(node))]),
            Fault::Healed => self.cut.clear(),
            Fault::HandOver => self.visit(node, |group| group.tell(Event::HandOver)),
            Fault::VoteBesideLease => {
                let Some(leader) = self.leader() else { return };
                self.cut.insert((id(leader), id(node)));
                let time = T * 4 / 5 + Duration::from_micros(self.rng.below(60_000));
                self.after(time, What::CutOff { node: leader, until: 2 * T });
            }
            Fault::HandOverCutOff => {
                let Some(leader) = self.leader() else { return };
                self.visit(leader, |group| group.tell(Event::HandOver));
                self.after_us(2_000, What::CutOff { node: leader, until: 2 * T });
            }
            Fault::Replace => self.replace(node),
            Fault::DriveLost => self.lose_drive(node),
        }
        self.ask_for_members();
    }

    /// A new replica is to take the place of a member.
    fn replace(&mut self, node: usize) {
        let Some(gone) = self.nodes.get(node).map(Node::place) else { return };
        let members = self.members.0.clone();
        let is_free = self.wanted.is_none() && !members.is_joint() && self.nodes.len() < MAX_NODES;
        if is_free && members.role(gone.replica).is_some() && self.lost_members().is_empty() {
            let new = self.add_node(gone.role);
            let stay = members.voters().filter(|(id, _)| *id != gone.replica);
            let target = Configuration::new(stay.chain([(new, gone.role)]));
            self.wanted = Some((target, self.now.after(CHANGE_TIME)));
        }
    }

    /// Members whose drives are lost.
    fn lost_members(&self) -> Vec<ReplicaId> {
        let lost = self.nodes.iter().filter(|node| node.is_lost).map(|node| node.place().replica);
        lost.filter(|id| self.members.0.role(*id).is_some()).collect()
    }

    /// A drive is lost, unless too many are lost already. New replicas are to take the places of those that are gone.
    fn lose_drive(&mut self, node: usize) {
        let members = &self.members.0;
        let may_fail = members.may_fail().min(self.first.state.members.may_fail());
        let is_free = self.wanted.is_none() && !members.is_joint();
        let Some(of) = self.nodes.get(node).map(Node::place) else { return };
        // Until a majority of the new members has applied the end of a change, the old ones decide too: one more of these may not go.
        let has_applied = |id: ReplicaId| {
            let of_id = self.nodes.iter().find(|node| node.place().replica == id && id != of.replica);
            let group = of_id.and_then(Node::group);
            group.is_some_and(|group| group.with_replica(|replica| replica.members().current() == members))
        };
        let is_free = is_free && members.is_majority(has_applied);
        if is_free && members.role(of.replica).is_some() && self.lost_members().len() < may_fail {
            if let Some(node) = self.nodes.get_mut(node) {
                node.lose();
            }
            self.ended.drives_lost += 1;
            self.replace_lost();
        }
    }

    /// The group is asked for new replicas in the places of those whose drives are lost.
    fn replace_lost(&mut self) {
        let lost = self.lost_members();
        if lost.is_empty() || self.wanted.is_some() || self.members.0.is_joint() {
            return;
        }
        let members: Vec<(ReplicaId, Role)> = self.members.0.voters().collect();
        let mut target = Vec::new();
        for (id, role) in members {
            if !lost.contains(&id) {
                target.push((id, role));
                continue;
            }
            let is_free = |node: &&Node| {
                let place = node.place();
                !node.is_lost
                    && place.role == role
                    && self.members.0.member(place.replica).is_none()
                    && self.first.state.members.role(place.replica).is_none()
                    && !target.iter().any(|(id, _)| *id == place.replica)
            };
            let free = self.nodes.iter().rev().find(is_free).map(|node| node.place().replica);
            let id = free.unwrap_or_else(|| self.add_node(role));
            target.push((id, role));
        }
        self.wanted = Some((Configuration::new(target), self.now.after(CHANGE_TIME)));
        self.ask_for_members();
    }

    /// Each leader is asked for the members that the group is to have.
    fn ask_for_members(&mut self) {
        let Some((wanted, until)) = self.wanted.clone() else { return };
        if self.now >= until || self.members.0 == wanted {
            self.wanted = None;
            return;
        }
        for node in 0..self.nodes.len() {
            self.visit(node, |group| {
                if group.with_replica(|replica| replica.leader()) == Some(group.place().replica) {
                    group.tell(Event::Change(wanted.clone()));
                }
            });
        }
    }

    /// All faults end, and every node that has its drive runs.
    fn heal(&mut self) {
        self.cut.clear();
        self.faults.end();
        for node in 0..self.nodes.len() {
            self.start(node);
        }
    }

    /// Runs on until the group is whole: all drives that were lost are replaced, every node holds the same, clients are served.
    fn become_whole(&mut self) {
        let end = self.now.after(HEALING);
        let quiet_from = self.now.after(HEALING / 4);
        let mut why = (ClusterFailureKind::Stuck, String::new());
        while self.now < end && self.ended.failure.is_none() {
            self.run_until(self.now.after(T / 2));
            self.replace_lost();
            self.ask_for_members();
            match self.is_whole() {
                Ok(()) => return self.read_all(),
                Err(lacks) => why = lacks,
            }
            if self.now >= quiet_from {
                // Slow drives may not keep up with the clients.
                self.clients.iter_mut().for_each(|client| client.turn += 1);
            }
        }
        if self.ended.failure.is_none() {
            let (kind, why) = why;
            self.fail(kind, format!("the group does not become whole: {why}"));
        }
    }

    /// An error says in what the nodes differ, or what they lack.
    fn is_whole(&self) -> Result<(), (ClusterFailureKind, String)> {
        let stuck = |why: String| Err((ClusterFailureKind::Stuck, why));
        let diverged = |why: String| Err((ClusterFailureKind::Diverged, why));
        let members = self.members.0.clone();
        if members.is_joint() || !self.lost_members().is_empty() || self.wanted.is_some() {
            return stuck(format!("members change: {members:?}, wanted {:?}", self.wanted));
        }
        let nodes = self.nodes.iter().filter(|node| members.role(node.place().replica).is_some());
        let nodes: Vec<&Node> = nodes.collect();
        let leaders = nodes.iter().filter_map(|node| node.group()).filter(|group| {
            group
                .with_replica(|replica| replica.leader() == Some(group.place().replica) && replica.is_whole())
        });
        let leaders: Vec<ReplicaId> = leaders.map(|group| group.place().replica).collect();
        let [leader] = leaders[..] else { return stuck(format!("{leaders:?} lead and are whole")) };
        let names = |node: &Node| {
            let contents = node.tables().contents();
            let names = contents.rows.iter().map(|(key, row)| (key.clone(), row.index, row.term));
            (contents.applied, names.collect::<Vec<_>>())
        };
        let of_leader = nodes.iter().find(|node| node.place().replica == leader).map(|node| names(node));
        let Some((applied, of_leader)) = of_leader else { return stuck("the leader is no member".into()) };
        for node in &nodes {
            let Place { replica, role, .. } = node.place();
            let (own, names) = names(node);
            if own != applied {
                return stuck(format!("replica {} has applied {own:?}, the leader {applied:?}", replica.0));
            }
            if names != of_leader {
                return diverged(format!("replica {} has other records than the leader", replica.0));
            }
            let rows = node.tables().contents().rows;
            let lacks = rows.values().filter(|row| row.value.is_none()).count();
            if lacks > 0 && (role == Role::Backup || replica == leader) {
                return diverged(format!("replica {} lacks {lacks} values", replica.0));
            }
        }
        Ok(())
    }

    /// Every key is read, from whoever leads.
    fn read_all(&mut self) {
        let end = self.now.after(HEALING);
        for key in 0..=self.last_key {
            let mut answer = None;
            while self.now < end && answer.is_none() && self.ended.failure.is_none() {
                let called = self.history.call_read(key);
                answer = self.read(key, called);
                if answer.is_none() {
                    self.history.refused(called);
                }
            }
            if answer.is_none() {
                self.fail(ClusterFailureKind::Stuck, format!("key {key} cannot be read after healing"));
            }
        }
    }

    /// Reads a key from the node that leads, if one does. `None` without an answer.
    fn read(&mut self, key: u64, called: Called) -> Option<()> {
        let node = self.leader();
        let asked = node.and_then(|node| {
            let of = self.nodes.get(node)?;
            Some((node, Arc::clone(of.group()?), Arc::clone(of.driver()?)))
        });
        let found: Arc<Mutex<Option<Found>>> = Arc::default();
        if let Some((node, group, driver)) = asked {
            let found = Arc::clone(&found);
            let read = async move {
                let row = group.get(&key.to_be_bytes()).await;
                *found.lock() = Some(row);
            };
            driver.spawn("client", Box::pin(read));
            self.visit(node, |_| {});
        }
        if !matches!(*found.lock(), Some(Ok(_))) {
            self.run_until(self.now.after(T));
        }
        let row = found.lock().take()?.ok()?;
        self.history.read(called, row.as_ref().and_then(value_of));
        Some(())
    }
}

fn asks_for_vote(message: &PeerMessage) -> bool {
    let PeerMessage::Replica(message) = message else { return false };
    matches!(message.raft.msg_type, MessageType::MsgRequestPreVote | MessageType::MsgRequestVote)
}

/// The value that a client put.
fn value_of(row: &Row) -> Option<u64> {
    let value = row.value.as_deref()?;
    value.try_into().ok().map(u64::from_le_bytes)
}
