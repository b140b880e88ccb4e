//! A simulated cluster: its nodes, its network, its clients, and the events that are to come.

mod agreeing;
mod breaking;
mod healing;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use raft::eraftpb::MessageType;
use replica::{Event, ReplicaId, Version};
use shard::{Answer as PeerAnswer, GroupId, GroupOptions, PeerMessage};
use units::{Driver as _, Instant};
use zoned::emu::Media;

use super::agreement::{Agreement, place_of};
use super::clients::{CLIENTS, Clients};
use super::engine::{Command, Unanswered};
use super::etcd::Etcd;
use super::faults::Faults;
use super::group::{Fault as GroupFault, GroupState};
use super::node::{Machine, Node, Process, Sent, id_of};
use super::programs::Programs;
use super::report::{ClusterFailureKind, Ended};
use super::rules::ClusterRules;
use crate::Rng;

/// The election timeout. A heartbeat is a tenth of it.
const T: Duration = Duration::from_millis(100);
/// The most by which a node's clock is faster or slower than true time, in millionths.
const DRIFT_PPM: u64 = 10_000;
/// The time for which faults happen, and the least number of them: the time goes on until then.
const FAULTY: Duration = Duration::from_millis(2_500);
const LEAST_FAULTS: u64 = 8;
/// The time after which a client gives up, and the pause of a client that was refused.
const CLIENT_TIMEOUT: Duration = Duration::from_millis(500);
const REFUSED_PAUSE: Duration = Duration::from_millis(5);
/// The time between two counts of the copies of values.
const CHECK_PAUSE: Duration = Duration::from_millis(20);
/// Entries by which a replica's tables are behind those of another one, for the report.
const BEHIND: u64 = 8;
/// The number that stands for etcd among those of nodes.
const ETCD: usize = usize::MAX;
/// Longer than the start of a node on a fast drive.
const RESTART: Duration = Duration::from_millis(3);

/// An event that is to come.
enum What {
    Deliver {
        nodes: (usize, usize),
        group: GroupId,
        replicas: (ReplicaId, ReplicaId),
        message: Box<PeerMessage>,
    },
    Start {
        node: usize,
        life: u64,
    },
    Die {
        node: usize,
        life: u64,
    },
    Flush {
        node: usize,
    },
    Ask {
        client: usize,
        turn: u64,
    },
    GiveUp {
        client: usize,
        turn: u64,
    },
    Fault,
    CutOff {
        node: usize,
        until: Duration,
    },
    CutOffAndRestart {
        leader: usize,
        candidate: usize,
    },
    OldLeaderReturns {
        group: usize,
    },
    Drain {
        node: usize,
    },
    Undrain {
        node: usize,
    },
    RaiseEpoch,
    EtcdReturns,
    BackUpEtcd,
    Agree {
        node: usize,
    },
    EndCuts,
    Check,
}

pub(super) struct World {
    rng: Rng,
    process: Process,
    rules: ClusterRules,
    groups: Vec<GroupState>,
    /// The drive of a new node.
    new_drive: Option<Media>,
    nodes: Vec<Node>,
    /// The nodes' parts in what the cluster agrees on.
    agreements: Vec<Agreement>,
    etcd: Etcd,
    /// The events that are to come, by time and number.
    due: BTreeMap<(Instant, u64), What>,
    numbers: u64,
    now: Instant,
    faults: Faults,
    programs: Programs,
    /// All faults have ended.
    is_healed: bool,
    /// Pairs of nodes between which no message goes, in this direction. One of the two may be [`ETCD`].
    cut: BTreeSet<(usize, usize)>,
    clients: Clients,
    /// A number that follows from everything that clients were told.
    answers: u64,
    ended: Ended,
}

impl World {
    pub(super) fn new(seed: u64, run: u64, rules: ClusterRules) -> World {
        let mut rng = Rng::at(seed, &[run, 0xc1a5]);
        let k = 1 + rng.index(2);
        let drift = u32::try_from(2 * DRIFT_PPM).unwrap_or(u32::MAX);
        let settings = rules.settings(T, T / 10, drift);
        let faults = Faults::of(&mut rng);
        let options = GroupOptions { settings, ..rules.group_options() };
        let programs = Programs::of(&mut rng, 2 * k + 1);
        let mut world = World {
            process: Process::new(options, (faults.log_bytes, faults.group_bytes), rules),
            rules,
            groups: Vec::new(),
            new_drive: None,
            nodes: Vec::new(),
            agreements: Vec::new(),
            etcd: Etcd::new(k, faults.groups),
            due: BTreeMap::new(),
            numbers: 0,
            now: Instant::ORIGIN,
            faults,
            programs,
            is_healed: false,
            cut: BTreeSet::new(),
            clients: Clients::new(),
            answers: 0,
            ended: Ended::default(),
            rng,
        };
        world.create_cluster(k);
        world.ended.counts.groups = world.groups.len() as u64;
        world
    }

    /// Simulates the whole run.
    pub(super) fn run(mut self) -> Ended {
        for client in 0..CLIENTS {
            self.after_us(10_000, What::Ask { client, turn: 0 });
        }
        self.after(self.faults.pause, What::Fault);
        self.after(CHECK_PAUSE, What::Check);
        self.after(self.faults.pause, What::BackUpEtcd);
        self.run_until(Instant::ORIGIN.after(FAULTY));
        while self.ended.counts.faults < LEAST_FAULTS && self.ended.failure.is_none() {
            self.run_until(self.now.after(T));
        }
        self.heal();
        self.become_whole();
        if self.ended.failure.is_none() {
            for (kind, fault) in self.clients.history.judge() {
                self.fail(kind, fault);
            }
        }
        self.count();
        self.ended.digest = self.digest();
        for node in &mut self.nodes {
            node.die(0, false);
        }
        self.ended
    }

    fn count(&mut self) {
        let (counts, answered) = (&mut self.ended.counts, &self.clients.answered);
        (counts.operations, counts.pairs, counts.counts, counts.full) =
            (answered.all, answered.pairs, answered.counts, answered.full);
        (counts.milliseconds, counts.plans) = (self.now.0 / 1_000_000, self.etcd.plans);
        counts.replacements_forgotten = self.etcd.replacements_forgotten;
        for group in self.nodes.iter().flat_map(Node::groups) {
            let term = group.with_replica(|replica| {
                (replica.leader() == Some(group.place().replica)).then(|| replica.term().0)
            });
            counts.terms += term.unwrap_or_default();
            if term.is_some() {
                counts.raised += u64::from(group.with_replica(|replica| replica.version()) > Version::FIRST);
                counts.retired += group.with_stored(|stored| stored.base.index.0);
            }
        }
    }

    fn digest(&mut self) -> u64 {
        let counts = self.ended.counts;
        let parts = [
            self.now.0,
            self.numbers,
            counts.operations,
            counts.terms,
            counts.retired,
            self.answers,
            self.rng.draw(),
        ];
        Rng::at(0, &parts).draw()
    }

    fn fail(&mut self, kind: ClusterFailureKind, what: String) {
        self.ended.failure.get_or_insert((kind, format!("at {:?}: {what}", self.now)));
    }

    fn fail_group(&mut self, group: usize, (kind, what): GroupFault) {
        self.fail(kind, format!("{}: {what}", id_of(group)));
    }

    fn after(&mut self, time: Duration, what: What) {
        self.numbers += 1;
        self.due.insert((self.now.after(time), self.numbers), what);
    }

    fn after_us(&mut self, below: u64, what: What) {
        let time = Duration::from_micros(1 + self.rng.below(below));
        self.after(time, what);
    }

    /// Adds a node with an empty drive, and starts it.
    fn add_node(&mut self) {
        let new_drive = self.new_drive.take();
        let media = new_drive.map_or_else(|| self.process.new_drive(self.rng.draw()), Ok);
        let media = match media {
            Ok(media) => media,
            Err(error) => return self.fail(ClusterFailureKind::Stuck, format!("no drive: {error}")),
        };
        self.new_drive = Some(media.clone());
        let slowness = [1, 1, 1, 20, 200].get(self.rng.index(5)).copied().unwrap_or(1);
        self.ended.counts.slow_drives += u64::from(slowness > 1);
        let machine = Machine {
            speed_ppm: 1_000_000 - DRIFT_PPM + self.rng.below(2 * DRIFT_PPM + 1),
            slowness,
            pauses: self.faults.pauses,
            wall_ms: self.faults.wall_ms,
        };
        let committed = self.groups.iter().map(|group| Arc::clone(&group.committed)).collect();
        let node = self.nodes.len();
        self.nodes.push(Node::new(self.process, media, committed, machine));
        self.agreements.push(Agreement::new(node, self.rules));
        self.start(node);
        self.after_us(self.faults.flush_us, What::Flush { node });
        self.after_us(1, What::Agree { node });
    }

    fn start(&mut self, node: usize) {
        let Some(of) = self.nodes.get_mut(node).filter(|of| !of.is_lost && !of.is_up()) else { return };
        let speaks = self.programs.draw(node, &mut self.rng);
        let Err(error) = of.start(self.now, speaks, &mut self.rng) else { return };
        let (life, why) = (of.life, error.to_string());
        let has_stayed = self.has_stayed(node);
        if !self.programs.may_be_refused(node, has_stayed, &why) {
            return self.fail(ClusterFailureKind::Stuck, format!("node {} does not start: {why}", node + 1));
        }
        self.ended.counts.too_old += 1;
        self.after(RESTART, What::Start { node, life });
    }

    /// True if no replica of the node took the place of another one: the groups have as many first members as the run has first nodes.
    fn has_stayed(&self, node: usize) -> bool {
        let first = |(replica, _): (ReplicaId, _)| replica.0 <= self.programs.first_nodes as u64;
        let of = self.nodes.get(node);
        of.is_some_and(|of| (0..self.groups.len()).filter_map(|group| of.replica(group)).all(first))
    }

    fn die(&mut self, node: usize) {
        let (seed, flushed) = (self.rng.draw(), self.rng.chance(20));
        let Some(of) = self.nodes.get_mut(node).filter(|of| of.is_up()) else { return };
        of.die(seed, flushed);
        let life = of.life;
        self.ended.counts.power_cuts += 1;
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
    fn visit(&mut self, node: usize, then: impl FnOnce(&Node)) {
        let Some(of) = self.nodes.get(node) else { return };
        let messages = of.run(self.now, then);
        let mut changing = None;
        for (place, state) in self.groups.iter_mut().enumerate() {
            let begins = of.group(place).is_some_and(|group| state.learn(group));
            changing = begins.then_some(place).or(changing);
        }
        if let Some(why) = of.ended() {
            self.replica_ended(node, why);
        }
        for message in messages {
            self.send(node, message);
        }
        if changing.is_some() && self.rng.below(self.faults.cut_changes) == 0 {
            let leader = changing.and_then(|group| self.leader(group));
            leader
                .into_iter()
                .for_each(|leader| self.after_us(2_000, What::CutOff { node: leader, until: 2 * T }));
        }
        let answers = std::mem::take(&mut *self.clients.answers.lock());
        for (client, turn, answer) in answers {
            self.answered(client, turn, answer);
        }
    }

    /// A replica of a node that runs has ended. Where an operation of the drive has failed the node's process ends too, and starts again later.
    fn replica_ended(&mut self, node: usize, why: String) {
        let (Some(of), has_stayed) = (self.nodes.get(node), self.has_stayed(node)) else { return };
        let life = of.life;
        if self.programs.may_be_refused(node, has_stayed, &why) {
            self.ended.counts.too_old += 1;
            self.die(node);
            return self.after(RESTART, What::Start { node, life: life + 1 });
        }
        let Some(of) = self.nodes.get_mut(node) else { return };
        if !of.has_bad_drive {
            return self.fail(ClusterFailureKind::Stuck, format!("node {} ended: {why}", node + 1));
        }
        self.after_us(10_000, What::Die { node, life });
    }

    fn send(&mut self, from: usize, (group, replicas, message): Sent) {
        let address = self.agreements.get(from).and_then(|of| of.address(group, replicas.1));
        let Some(to) = address else { return };
        if self.cut.contains(&(from, to)) || self.rng.below(self.faults.lost) == 0 {
            return;
        }
        self.ended.counts.table_parts +=
            u64::from(matches!(message, PeerMessage::Answer(_, PeerAnswer::Rows(_))));
        let message = Box::new(message);
        for _ in 0..u64::from(self.rng.below(self.faults.lost) == 0) {
            self.send_once((from, to), group, replicas, message.clone());
        }
        self.send_once((from, to), group, replicas, message);
    }

    fn send_once(
        &mut self,
        nodes: (usize, usize),
        group: GroupId,
        replicas: (ReplicaId, ReplicaId),
        message: Box<PeerMessage>,
    ) {
        let slow = if self.rng.below(20) == 0 { self.faults.slow_us } else { 100 };
        self.after_us(10 + slow, What::Deliver { nodes, group, replicas, message });
    }

    fn happens(&mut self, what: What) {
        match what {
            What::Deliver { nodes, group, replicas, message } => {
                let (from, node) = nodes;
                if asks_for_vote(&message) && self.rng.below(self.faults.restarts) == 0 {
                    self.restart(node);
                    return self.after(RESTART, What::Deliver { nodes, group, replicas, message });
                }
                if let Some(of) = self.agreements.get_mut(node) {
                    of.note_sender(group, replicas.0, from);
                }
                self.visit(node, |node| {
                    let group = node.group(place_of(group));
                    if let Some(group) = group.filter(|group| group.place().replica == replicas.1) {
                        group.receive(replicas.0, *message);
                    }
                });
            }
            What::Start { node, life } => {
                if self.nodes.get(node).is_some_and(|of| of.life == life) {
                    self.start(node);
                }
            }
            What::Die { node, life } => {
                if self.nodes.get(node).is_some_and(|of| of.life == life) {
                    self.ended.counts.drive_errors += 1;
                    self.die(node);
                }
            }
            What::Flush { node } => {
                self.visit(node, |node| node.groups().for_each(|group| group.flush()));
                let pause = self.faults.flush_us;
                self.after_us(2 * pause, What::Flush { node });
            }
            What::Ask { client, turn } => self.ask(client, turn),
            What::GiveUp { client, turn } => {
                let of = self.clients.each.get_mut(client).filter(|of| of.turn == turn);
                let Some(of) = of else { return };
                of.node = self.rng.index(self.nodes.len());
                if let Some(called) = of.under_way.take() {
                    self.clients.history.given_up(called);
                }
                self.next_turn(client, Duration::ZERO);
            }
            What::Fault if self.is_healed => {}
            What::Fault => self.break_something(),
            What::CutOff { node, until } => {
                self.cut_off(node);
                self.after(until, What::EndCuts);
            }
            What::CutOffAndRestart { leader, candidate } => {
                self.cut_off(leader);
                (0..self.nodes.len())
                    .filter(|node| ![leader, candidate].contains(node))
                    .for_each(|node| self.restart(node));
                self.after(2 * T, What::EndCuts);
            }
            What::OldLeaderReturns { group } => {
                self.cut.clear();
                if let Some(leader) = self.leader(group) {
                    self.cut_off(leader);
                }
                self.after(2 * T, What::EndCuts);
            }
            What::Drain { node } if !self.is_healed => self.drain(node),
            What::BackUpEtcd if !self.is_healed => self.back_up_etcd(),
            What::Drain { .. } | What::BackUpEtcd => {}
            What::Undrain { node } => self.undrain(node),
            What::RaiseEpoch => self.raise_epoch(),
            What::EtcdReturns => self.return_etcd(),
            What::Agree { node } => self.agree(node),
            What::EndCuts => self.cut.clear(),
            What::Check => self.check(),
        }
    }

    fn check(&mut self) {
        for place in 0..self.groups.len() {
            let Some(group) = self.groups.get(place) else { return };
            let checked = group.check(&self.nodes, self.now);
            self.ended.counts.tables_behind += u64::from(group.has_slow_tables(&self.nodes, BEHIND));
            if let Err(fault) = checked {
                self.fail_group(place, fault);
            }
        }
        self.ask_for_version();
        self.after(CHECK_PAUSE, What::Check);
    }

    /// The leaders of groups below the version that is wanted are asked for it: a leader forgets it when it leads no more.
    fn ask_for_version(&mut self) {
        let wanted = self.programs.wanted;
        for place in 0..self.groups.len() {
            let Some(leader) = self.leader(place).filter(|_| wanted > Version::FIRST) else { continue };
            self.visit(leader, |node| {
                if let Some(group) = node.group(place) {
                    group.tell(Event::Raise(wanted));
                }
            });
        }
    }

    /// A client begins an operation.
    fn ask(&mut self, client: usize, turn: u64) {
        let Some(node) = self.clients.each.get(client).filter(|of| of.turn == turn).map(|of| of.node) else {
            return;
        };
        let command = self.clients.draw(&mut self.rng, &self.faults, self.now);
        // Once all has healed clients know who leads.
        let leader = self.leader(command.object.group).filter(|_| self.is_healed);
        let node = leader.unwrap_or(node);
        let called = self.clients.call(command);
        if let Some(of) = self.clients.each.get_mut(client) {
            of.under_way = Some(called);
        }
        if !self.run_command(node, command, (client, turn)) {
            // The node is down: nothing was sent.
            self.clients.history.refused(called);
        }
        self.after(CLIENT_TIMEOUT, What::GiveUp { client, turn });
    }

    /// A node carries out a command. False if the node is down.
    fn run_command(&mut self, node: usize, command: Command, (client, turn): (usize, u64)) -> bool {
        let asked = self.nodes.get(node).and_then(|of| {
            let hosted = of.hosted(command.object.group)?;
            Some((Arc::clone(&hosted.engine), Arc::clone(of.driver()?)))
        });
        let Some((engine, driver)) = asked else { return false };
        let answers = Arc::clone(&self.clients.answers);
        let operation = async move {
            let answer = engine.run(command).await;
            answers.lock().push((client, turn, answer));
        };
        driver.spawn("client", Box::pin(operation));
        self.visit(node, |_| {});
        true
    }

    fn answered(&mut self, client: usize, turn: u64, answer: super::clients::Answer) {
        let others = self.nodes.len();
        let Some(of) = self.clients.each.get_mut(client).filter(|of| of.turn == turn) else { return };
        let Some(called) = of.under_way.take() else { return };
        match answer {
            Ok(done) => {
                self.answers = Rng::at(self.answers, &answer_numbers(done)).draw();
                self.clients.answered(called, done);
            }
            Err(Unanswered::Garbled) => {
                self.fail(ClusterFailureKind::Invented, "a value is not what any client wrote".into());
            }
            Err(Unanswered::WithoutValue) => {
                self.fail(ClusterFailureKind::NotLinearizable, "a read is answered without its value".into());
            }
            Err(why) => {
                let leader = if let Unanswered::Refused(leader) = why { leader } else { None };
                let group = id_of(called.object().group);
                let address = leader.and_then(|leader| {
                    self.agreements.get(of.node).and_then(|asked| asked.address(group, leader))
                });
                of.node = address.unwrap_or_else(|| self.rng.index(others));
                if why != Unanswered::Open {
                    self.clients.history.refused(called);
                }
                self.clients.answered.full += u64::from(why == Unanswered::Full);
                let is_hasty = self.clients.focus.is_some_and(|(_, until)| self.now < until);
                return self.next_turn(client, if is_hasty { REFUSED_PAUSE / 5 } else { REFUSED_PAUSE });
            }
        }
        let pause = Clients::pause(&mut self.rng, &self.faults);
        self.next_turn(client, pause);
    }

    fn next_turn(&mut self, client: usize, pause: Duration) {
        let Some(of) = self.clients.each.get_mut(client) else { return };
        of.turn += 1;
        let turn = of.turn;
        self.after(pause + Duration::from_micros(1), What::Ask { client, turn });
    }

    /// A node loses its power, and starts at once.
    fn restart(&mut self, node: usize) {
        let seed = self.rng.draw();
        if let Some(of) = self.nodes.get_mut(node).filter(|of| of.is_up()) {
            of.die(seed, false);
            self.ended.counts.power_cuts += 1;
            self.start(node);
        }
    }

    /// No message comes to a node or from it. Every second time it does not reach etcd either.
    fn cut_off(&mut self, node: usize) {
        let etcd = self.rng.chance(50).then_some(ETCD);
        let others = (0..self.nodes.len()).chain(etcd);
        self.cut.extend(others.flat_map(|other| [(node, other), (other, node)]));
    }
}

fn asks_for_vote(message: &PeerMessage) -> bool {
    let PeerMessage::Replica(message) = message else { return false };
    matches!(message.raft.msg_type, MessageType::MsgRequestPreVote | MessageType::MsgRequestVote)
}

/// The answer of an operation, as numbers of a digest.
fn answer_numbers(done: super::objects::Done) -> [u64; 2] {
    use super::objects::Done;
    match done {
        Done::Set(parts) | Done::Saw(parts) => parts.map(|part| part.flatten().unwrap_or_default()),
        Done::Counted(sum) => [sum.unwrap_or_default(), 1],
        Done::Expired(value) => [value, 2],
    }
}
