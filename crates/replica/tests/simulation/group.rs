//! A group of replicas, its network and its drives.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet, BinaryHeap};
use std::time::Duration;

use raft::eraftpb::MessageType;
use replica::{
    Action, Base, Body, Command, Configuration, Event, Index, Message, ProposalId, ReadId, Recovered,
    Replica, ReplicaId, Role, Settings, Term,
};
use units::{Instant, SplitMix64};

use crate::due::{Due, What};
use crate::faults::{Faults, Outcome};
use crate::node::{DRIFT, Node, Request};
use crate::tables::{Parts, Record, Tables};

/// The time for which faults happen, and for which the group may take to be whole again afterwards.
const FAULTY: Duration = Duration::from_secs(3);
const HEALING: Duration = Duration::from_secs(10);
/// The time for which the group is asked for other members, and the most replicas that a group ever has.
const PATIENCE: Duration = Duration::from_secs(1);
const MAX_NODES: usize = 16;
const T: Duration = Duration::from_millis(100);

pub struct Group {
    settings: Settings,
    first: Base,
    /// The latest members that a replica has applied, and the index of that change.
    members: (Configuration, Index),
    /// The members that the group is asked for, until then.
    wanted: Option<(Configuration, Instant)>,
    /// Changes that ended.
    changes: u64,
    nodes: Vec<Node>,
    due: BinaryHeap<Reverse<Due>>,
    numbers: u64,
    now: Instant,
    chance: SplitMix64,
    faults: Faults,
    /// Pairs of nodes between which no message goes, in this direction.
    cut: BTreeSet<(usize, usize)>,
    proposals: u64,
    /// The index and term of each command that a replica has applied.
    committed: BTreeMap<u64, (Index, Term)>,
    /// The last committed command of each key.
    latest: BTreeMap<u64, (u64, Index, Term)>,
    /// The committed commands that delete keys: key and index.
    deleted: BTreeSet<(u64, Index)>,
    snapshots: u64,
    /// Drives that were lost.
    lost: u64,
    acknowledged: usize,
    found: Vec<String>,
    reads: u64,
    /// The key of each read, and the highest index of an acknowledged command for it when a client asked.
    asked: BTreeMap<u64, (u64, Index)>,
    /// Reads answered by a round of heartbeats, and by the lease.
    answered: [u64; 2],
    /// The highest index of an acknowledged command, by key.
    known: BTreeMap<u64, Index>,
    /// The times at which commands were acknowledged, and the highest index acknowledged by then.
    acknowledged_at: Vec<(Instant, Index)>,
    /// Steps of backups whose tables were behind by less than an election timeout.
    fresh: u64,
}

impl Group {
    pub fn new(k: usize, seed: u64, broken: Option<replica::BrokenRule>) -> Group {
        let settings = Settings {
            election_timeout: T,
            heartbeat: T / 10,
            drift: 2 * DRIFT,
            broken_rule: broken,
            ..Settings::default()
        };
        let roles = std::iter::once(Role::Witness)
            .chain(std::iter::repeat_n(Role::Backup, k))
            .chain(std::iter::repeat_n(Role::Witness, k));
        let voters = Configuration::new((1..).map(ReplicaId).zip(roles));
        let mut chance = SplitMix64::new(seed);
        let first = Base::first(voters.clone(), ReplicaId(1));
        let mut nodes: Vec<Node> =
            voters.voters().map(|(id, role)| Node::new(id, role, &first, &mut chance)).collect();
        if chance.draw().is_multiple_of(3) {
            // The first leader is the only one with a slow drive.
            nodes.iter_mut().for_each(|node| node.write_us = if node.id.0 == 1 { 30_000 } else { 100 });
        }
        let mut group = Group {
            settings,
            members: (voters, Index::default()),
            first,
            wanted: None,
            changes: 0,
            due: BinaryHeap::new(),
            numbers: 0,
            now: Instant::ORIGIN,
            chance,
            faults: Faults::NONE,
            cut: BTreeSet::new(),
            proposals: 0,
            committed: BTreeMap::new(),
            latest: BTreeMap::new(),
            deleted: BTreeSet::new(),
            snapshots: 0,
            lost: 0,
            acknowledged: 0,
            found: Vec::new(),
            reads: 0,
            asked: BTreeMap::new(),
            answered: [0; 2],
            known: BTreeMap::new(),
            acknowledged_at: Vec::new(),
            fresh: 0,
            nodes,
        };
        (0..group.nodes.len()).for_each(|node| group.start(node));
        group
    }

    fn below(&mut self, bound: u64) -> u64 {
        self.chance.draw() % bound
    }

    fn after(&mut self, time: Duration, node: usize, what: What) {
        self.numbers += 1;
        let life = self.nodes[node].life;
        self.due.push(Reverse(Due { at: self.now.after(time), number: self.numbers, node, life, what }));
    }

    fn start(&mut self, node: usize) {
        let seed = self.chance.draw();
        let now = self.nodes[node].clock(self.now);
        let of = &mut self.nodes[node];
        if of.is_lost {
            return;
        }
        of.life += 1;
        let recovered = Recovered {
            base: of.disk.base.clone(),
            entries: of.disk.entries.clone(),
            vote: of.disk.vote.clone(),
            applied: of.disk.tables.applied,
            stable: Index(0),
            is_whole: of.disk.tables.is_whole(),
        };
        let replica = Replica::new(&self.settings, (of.id, of.role), recovered, (now, seed));
        of.replica = Some(replica.expect("what is durable is good"));
        of.tables = of.disk.tables.clone();
        of.tables.applied = of.tables.applied.max(of.disk.base.index);
        of.clear();
        of.wakes_at = None;
        self.wake(node);
    }

    fn die(&mut self, node: usize) {
        let of = &mut self.nodes[node];
        of.replica = None;
        of.life += 1;
        of.clear();
        let longest = if self.below(2) == 0 { 5_000 } else { 400_000 };
        let pause = Duration::from_micros(self.below(longest));
        self.after(pause, node, What::Start);
    }

    /// Sees to it that the node's next tick comes.
    fn wake(&mut self, node: usize) {
        let of = &self.nodes[node];
        let Some(replica) = &of.replica else { return };
        let at = of.true_time(replica.wakes_at());
        if of.wakes_at.is_none_or(|present| at < present) {
            self.nodes[node].wakes_at = Some(at);
            let time = at.since(self.now);
            self.after(time, node, What::Tick);
        }
    }

    fn step(&mut self, node: usize, event: Event) {
        let now = self.nodes[node].clock(self.now);
        let Some(replica) = self.nodes[node].replica.as_mut() else { return };
        let actions = replica.step(now, event);
        for action in actions {
            self.act(node, action);
        }
        self.check_freshness(node);
        if let Some(members) = self.nodes[node].replica.as_ref().map(Replica::members)
            && members.since() > self.members.1
        {
            self.changes += u64::from(!members.current().is_joint());
            self.members = (members.current().clone(), members.since());
        }
        self.wake(node);
    }

    fn act(&mut self, node: usize, action: Action) {
        match action {
            Action::Send(to, message) => self.send(node, to, message),
            Action::Persist { number, base, entries, vote } => {
                self.snapshots += u64::from(base.is_some());
                self.nodes[node].writing.push((number, Request { base, entries, vote }));
                let time = Duration::from_micros(
                    15 + self.nodes[node].write_us / 2 + self.below(self.nodes[node].write_us / 2),
                );
                self.after(time, node, What::Durable(number));
            }
            Action::Apply(commands) => {
                for (index, _, command) in &commands {
                    if let Some(command) = command {
                        self.note_commit(node, *index, &Parts::of(command));
                    }
                }
                if self.below(self.faults.mean) == 0
                    && let Some(leader) = self.nodes[node].replica.as_ref().and_then(Replica::leader)
                {
                    let time = Duration::from_micros(self.below(20_000));
                    self.after(time, leader.0 as usize - 1, What::Die);
                }
                let of = &mut self.nodes[node];
                of.applying.push_back(commands);
                let longest = of.apply_us;
                let time = Duration::from_micros(self.below(longest));
                self.after(time, node, What::Apply);
            }
            Action::Acknowledge(ProposalId(proposal), index) => {
                self.acknowledged += 1;
                let highest = self.acknowledged_at.last().map_or(index, |(_, highest)| index.max(*highest));
                self.acknowledged_at.push((self.now, highest));
                if let Some((key, ..)) = self.latest.iter().find(|(_, (latest, ..))| *latest == proposal) {
                    let known = self.known.entry(*key).or_default();
                    *known = (*known).max(index);
                }
                if self.committed.get(&proposal).map(|(at, _)| *at) != Some(index) {
                    self.found
                        .push(format!("command {proposal} is acknowledged, and not committed at {index:?}"));
                }
                self.check_copies();
            }
            Action::Answer { read: ReadId(read), index, by_lease } => {
                self.nodes[node].reading.push((read, index, by_lease));
                self.answer_reads(node);
            }
            Action::Install { index, sources, values_above } => {
                let time = Duration::from_micros(200 + self.below(30_000));
                self.after(time, node, What::Install { index, sources, values_above });
            }
            Action::Retire(base) => {
                let disk = &mut self.nodes[node].disk;
                disk.entries.retain(|entry| entry.index > base.index.0);
                disk.base = base;
            }
            Action::DropValues(index) => {
                let of = &mut self.nodes[node];
                of.tables.drop_values(index);
                let disk = &mut of.disk;
                disk.tables.drop_values(index);
                for entry in disk.entries.iter_mut().take_while(|entry| entry.index <= index.0) {
                    if let Some(Body::Command(command)) = Body::of(entry) {
                        entry.data = Body::Command(Command { value: None, ..command }).encode().into();
                    }
                }
            }
            Action::RefuseProposal(..)
            | Action::LoseProposal(_)
            | Action::RefuseRead(..)
            | Action::RefuseChange(_)
            | Action::End(_) => {}
        }
    }

    fn send(&mut self, from: usize, to: ReplicaId, message: Box<Message>) {
        let to = to.0 as usize - 1;
        if self.cut.contains(&(from, to)) || self.below(self.faults.lost) == 0 {
            return;
        }
        let copies = if self.below(self.faults.lost) == 0 { 2 } else { 1 };
        for _ in 0..copies {
            let slow = if self.below(20) == 0 { self.faults.slow_us } else { 100 };
            let time = Duration::from_micros(10 + self.below(slow));
            self.after(time, to, What::Deliver(message.clone()));
        }
    }

    /// True if the node lives, and a message from it to the other one arrives.
    fn reaches(&self, from: usize, to: usize) -> bool {
        self.nodes[from].replica.is_some() && !self.cut.contains(&(from, to))
    }

    fn durable(&mut self, node: usize, number: u64) {
        let of = &mut self.nodes[node];
        let ready: Vec<_> = of.writing.extract_if(.., |(of, _)| *of <= number).collect();
        for (_, request) in ready {
            of.disk.take(request);
        }
        of.tables.applied = of.tables.applied.max(of.disk.base.index);
        self.step(node, Event::Persisted(number));
        self.answer_reads(node);
    }

    fn apply(&mut self, node: usize) {
        let of = &mut self.nodes[node];
        if let Some(commands) = of.applying.pop_front() {
            of.tables.apply(&commands);
            if let Some((last, ..)) = commands.last() {
                self.step(node, Event::Applied(*last));
            }
            self.answer_reads(node);
        }
    }

    /// Answers the reads for which the tables hold enough.
    fn answer_reads(&mut self, node: usize) {
        let now = self.nodes[node].clock(self.now);
        let of = &mut self.nodes[node];
        let applied = of.tables.applied;
        let ready: Vec<_> = of.reading.extract_if(.., |(_, index, _)| *index <= applied).collect();
        for (read, _, by_lease) in ready {
            let of = &self.nodes[node];
            let (key, known) = self.asked.remove(&read).unwrap_or_default();
            let counts = !by_lease || of.replica.as_ref().is_some_and(|replica| replica.may_answer(now));
            self.answered[usize::from(by_lease)] += u64::from(counts);
            let record = of.tables.records.get(&key);
            let index = record.map_or(Index(0), |record| record.index);
            if counts && !self.is_current(key, record, known) {
                self.found.push(format!("a read from {} finds {index:?}: {known:?} was known", of.id.0));
            }
            let value = record.and_then(|record| record.value);
            if let Some(value) =
                value.filter(|value| self.committed.get(value).map(|(at, _)| *at) != Some(index))
            {
                self.found.push(format!("a read from {} finds {value} of {index:?}", of.id.0));
            }
        }
    }

    /// True if a record, or that there is none, is what the entry at `known` or a later one left of the key.
    fn is_current(&self, key: u64, record: Option<&Record>, known: Index) -> bool {
        let deleted = self.deleted.range((key, known)..=(key, Index(u64::MAX))).next().is_some();
        record.map_or(deleted || known == Index(0), |record| record.index >= known)
    }

    /// Takes another node's tables, or half of them and dies.
    fn install(&mut self, node: usize, index: Index, sources: &[ReplicaId], values_above: Index) {
        if !self.nodes[node].applying.is_empty() {
            let sources = sources.to_vec();
            let time = Duration::from_millis(1);
            return self.after(time, node, What::Install { index, sources, values_above });
        }
        let has_values = |tables: &Tables| {
            let mut records = tables.records.values();
            records.all(|record| record.value.is_some() || record.index <= values_above)
        };
        let source = sources.iter().map(|id| id.0 as usize - 1).find(|source| {
            let tables = &self.nodes[*source].tables;
            self.reaches(*source, node) && tables.applied >= index && has_values(tables)
        });
        let Some(source) = source else { return self.step(node, Event::NotInstalled(index)) };
        let records = self.nodes[source].tables.records.clone();
        let dies = self.below(10) == 0;
        let half = records.keys().nth(records.len() / 2).copied().unwrap_or_default();
        let last = if dies { half } else { u64::MAX };
        self.nodes[node].tables.merge(&records, (last, index, values_above));
        let lasts = !dies || self.below(2) == 0;
        let of = &mut self.nodes[node];
        if lasts {
            of.disk.tables = of.tables.clone();
        }
        if dies { self.die(node) } else { self.step(node, Event::Installed(index)) }
    }

    /// The nodes' tables become durable, now and then.
    fn flush(&mut self) {
        for node in 0..self.nodes.len() {
            if self.nodes[node].replica.is_some() && self.below(self.faults.flush) == 0 {
                let of = &mut self.nodes[node];
                of.disk.tables = of.tables.clone();
                let applied = of.tables.applied;
                self.step(node, Event::Flushed(applied));
            }
        }
    }

    /// Members whose drives are lost.
    fn lost_members(&self) -> Vec<ReplicaId> {
        let members = &self.members.0;
        let lost = self.nodes.iter().filter(|node| node.is_lost && members.role(node.id).is_some());
        lost.map(|node| node.id).collect()
    }

    /// The last committed value of each key is on more members' drives than may fail, those that failed included.
    fn check_copies(&mut self) {
        let (members, _) = &self.members;
        if members.is_joint() {
            return;
        }
        let lost = self.lost_members().len();
        let latest = self.latest.iter();
        for (key, (proposal, index, term)) in
            latest.filter(|(key, (_, index, _))| !self.deleted.contains(&(**key, *index)))
        {
            let votes = self.nodes.iter().filter(|node| members.role(node.id).is_some());
            let copies = votes.filter(|node| node.disk.has_value(*key, *index, *term)).count();
            if copies + lost <= members.may_fail() {
                self.found.push(format!(
                    "command {proposal} at {index:?} has {copies} copies at {:?}, {lost} drives are lost",
                    self.now
                ));
                return;
            }
        }
    }

    fn check_leases(&mut self) {
        let answers = |node: &Node| {
            node.replica.as_ref().is_some_and(|replica| replica.may_answer(node.clock(self.now)))
        };
        let leaders: Vec<ReplicaId> =
            self.nodes.iter().filter(|node| answers(node)).map(|node| node.id).collect();
        if leaders.len() > 1 {
            self.found.push(format!("{leaders:?} answer reads at {:?}", self.now));
        }
    }

    /// The tables of a backup have what was acknowledged before the time since which it says that they may be behind.
    fn check_freshness(&mut self, node: usize) {
        let of = &self.nodes[node];
        let clock = of.clock(self.now);
        let Some(behind) = of.replica.as_ref().and_then(|replica| replica.behind(clock)) else { return };
        let current_at = of.true_time(Instant(clock.0 - behind.as_nanos() as u64));
        let before = self.acknowledged_at.partition_point(|(at, _)| *at < current_at);
        let highest = before.checked_sub(1).map_or(Index(0), |last| self.acknowledged_at[last].1);
        if highest > of.tables.applied {
            self.found.push(format!(
                "backup {} says that it is behind by {behind:?}, and has {:?} of {highest:?} in its tables",
                of.id.0, of.tables.applied
            ));
        }
        self.fresh += u64::from(behind < T);
    }

    /// A node is to apply a command.
    fn note_commit(&mut self, node: usize, index: Index, parts: &Parts) {
        let Parts { key, value: Some(proposal), deletes } = *parts else { return };
        if deletes {
            self.deleted.insert((key, index));
        }
        let entry = self.nodes[node].replica.as_ref().and_then(|replica| replica.entry(index));
        let (term, _) = entry.expect("a command to apply is in the log");
        let known = *self.committed.entry(proposal).or_insert((index, term));
        if known != (index, term) {
            self.found
                .push(format!("command {proposal} is committed at {known:?} and at {:?}", (index, term)));
        }
        let latest = self.latest.entry(key).or_insert((proposal, index, term));
        if latest.1 < index {
            *latest = (proposal, index, term);
        }
    }

    /// A client asks a node, any of them, or the one that leads as far as it knows.
    fn ask(&mut self) {
        let node = self.below(self.nodes.len() as u64) as usize;
        let leader = self.nodes[node].replica.as_ref().and_then(Replica::leader);
        let node = leader.map_or(node, |leader| leader.0 as usize - 1);
        let key = self.below(self.faults.keys);
        if self.below(10) >= self.faults.reads {
            self.proposals += 1;
            let deletes = self.below(8) == 0;
            let command = Parts::command(key, self.proposals, deletes);
            self.step(node, Event::Propose(vec![(ProposalId(self.proposals), command)]));
        } else {
            self.reads += 1;
            let known = self.known.get(&key).copied().unwrap_or_default();
            self.asked.insert(self.reads, (key, known));
            self.step(node, Event::Read(ReadId(self.reads)));
        }
    }

    /// A leader whose tables lack values asks backups, and those who were in office before it.
    fn pull(&mut self) {
        if self.below(self.faults.pull) != 0 {
            return;
        }
        for node in 0..self.nodes.len() {
            let of = &self.nodes[node];
            let Some(replica) = of.replica.as_ref().filter(|_| of.leads()) else { continue };
            let (term, applied) = (replica.term(), of.tables.applied);
            if of.tables.is_whole() {
                self.nodes[node].disk.tables = self.nodes[node].tables.clone();
                self.step(node, Event::Whole { term, upto: applied });
                continue;
            }
            let holders = replica.offices().standing().iter().map(|office| office.holder);
            let asked: BTreeSet<ReplicaId> = self.members.0.backups().chain(holders).collect();
            for other in asked.into_iter().map(|id| id.0 as usize - 1).filter(|other| *other != node) {
                if self.reaches(node, other) && self.reaches(other, node) {
                    let tables = &self.nodes[node].tables;
                    let lacking = tables.records.iter().filter(|(_, record)| record.value.is_none());
                    let found = lacking.filter_map(|(key, record)| {
                        let value = self.nodes[other].value(*key, record)?;
                        Some((*key, Record { value: Some(value), ..*record }))
                    });
                    let found = found.collect();
                    self.after(Duration::from_micros(200), node, What::Pulled(term, found));
                }
            }
        }
    }

    /// Values from another node came.
    fn pulled(&mut self, node: usize, term: Term, records: Vec<(u64, Record)>) {
        let of = &mut self.nodes[node];
        if of.leads() && of.replica.as_ref().is_some_and(|replica| replica.term() == term) {
            records.into_iter().for_each(|(key, record)| of.tables.give(key, record));
        }
    }

    /// A new replica is to take the place of one that votes, or nobody.
    fn change_something(&mut self) {
        let (members, _) = &self.members;
        if self.nodes.len() >= MAX_NODES || members.is_joint() {
            return;
        }
        let voters: Vec<(ReplicaId, Role)> = members.voters().collect();
        let place = self.below(voters.len() as u64) as usize;
        let new = ReplicaId(self.nodes.len() as u64 + 1);
        let (gone, role) = voters[place];
        let joins = voters.len() <= 3 || self.below(3) != 0;
        let stay = voters.into_iter().filter(|(id, _)| *id != gone);
        let target = Configuration::new(stay.chain(joins.then_some((new, role))));
        self.wanted = Some((target, self.now.after(PATIENCE)));
        if joins {
            self.join(new, role);
        }
    }

    fn join(&mut self, id: ReplicaId, role: Role) {
        self.nodes.push(Node::new(id, role, &Base::joining(), &mut self.chance));
        self.start(self.nodes.len() - 1);
    }

    /// A drive is lost: its node never comes back. New replicas are to take the places of those that are gone.
    fn lose_drive(&mut self, node: usize) {
        let members = &self.members.0;
        let id = self.nodes[node].id;
        let may_fail = members.may_fail().min(self.first.state.members.may_fail());
        let votes = members.role(id).is_some() && !members.is_joint() && self.wanted.is_none();
        if votes && self.lost_members().len() < may_fail && self.nodes.len() < MAX_NODES {
            let of = &mut self.nodes[node];
            (of.is_lost, of.replica) = (true, None);
            of.life += 1;
            of.clear();
            of.disk = Node::new(id, of.role, &self.first, &mut SplitMix64::new(0)).disk;
            self.lost += 1;
            self.replace_lost();
        }
    }

    /// The group is asked for new replicas in the places of those whose drives are lost.
    fn replace_lost(&mut self) {
        let lost = self.lost_members();
        if lost.is_empty() || self.wanted.is_some() || self.members.0.is_joint() {
            return;
        }
        let mut target: Vec<(ReplicaId, Role)> = self.members.0.voters().collect();
        for (id, role) in target.iter_mut().filter(|(id, _)| lost.contains(id)) {
            // A new replica that was asked for before is asked for again.
            let free = |node: &&Node| {
                !node.is_lost
                    && node.role == *role
                    && self.members.0.role(node.id).is_none()
                    && node.id.0 as usize > 5
            };
            let free = self.nodes.iter().rev().find(free).map(|node| node.id);
            *id = free.unwrap_or(ReplicaId(self.nodes.len() as u64 + 1));
            if free.is_none() {
                self.nodes.push(Node::new(*id, *role, &Base::joining(), &mut self.chance));
            }
        }
        let new = target.iter().map(|(id, _)| id.0 as usize - 1);
        let new: Vec<usize> = new.filter(|node| self.nodes[*node].life == 0).collect();
        new.into_iter().for_each(|node| self.start(node));
        self.wanted = Some((Configuration::new(target), self.now.after(PATIENCE)));
    }

    /// Each leader is asked again for the members that the group is to have.
    fn repeat_change(&mut self) {
        let Some((wanted, until)) = self.wanted.clone() else { return };
        if self.now >= until || self.members.0 == wanted {
            self.wanted = None;
            return;
        }
        for node in 0..self.nodes.len() {
            if self.nodes[node].leads() {
                self.step(node, Event::Change(wanted.clone()));
            }
        }
    }

    fn fail_something(&mut self) {
        let nodes = self.nodes.len() as u64;
        let node = self.below(nodes) as usize;
        let weights = self.faults.weights;
        let mut drawn = self.below(weights.iter().sum::<u64>().max(1));
        let kind = weights.iter().position(|weight| {
            let is_drawn = drawn < *weight;
            drawn = drawn.saturating_sub(*weight);
            is_drawn
        });
        match kind {
            Some(0) if self.nodes[node].replica.is_some() => self.die(node),
            Some(1) => self.cut_off(node),
            Some(2) => {
                let other = self.below(nodes) as usize;
                self.cut.extend([(node, other), (other, node)]);
            }
            Some(4) => {
                self.step(node, Event::HandOver);
                // Messages that the leader has sent arrive; later ones do not.
                if self.below(2) == 0 {
                    let time = Duration::from_micros(self.below(300));
                    self.after(time, node, What::CutOff);
                }
            }
            Some(5) => self.change_something(),
            Some(6) => self.lose_drive(node),
            _ => self.cut.clear(),
        }
    }

    /// No message reaches the node, or none from it arrives, or both.
    fn cut_off(&mut self, node: usize) {
        let which = self.below(3);
        for other in (0..self.nodes.len()).filter(|other| *other != node) {
            if which != 1 {
                self.cut.insert((node, other));
            }
            if which != 0 {
                self.cut.insert((other, node));
            }
        }
    }

    fn run_until(&mut self, end: Instant, faults: &Faults) {
        self.faults = *faults;
        let mut next_ask = self.now;
        let mut next_fault = self.now.after(faults.pause);
        let mut next_pull = self.now;
        while self.now < end && self.found.is_empty() {
            let due = self.due.peek().map_or(end, |due| due.0.at);
            let next = due.min(next_ask).min(next_fault).min(next_pull);
            self.now = self.now.max(next);
            if next == next_ask {
                next_ask = self.now.after(Duration::from_micros(500 + self.below(faults.ask_us)));
                self.ask();
            } else if next == next_fault {
                next_fault =
                    self.now.after(Duration::from_micros(self.below(2 * faults.pause.as_micros() as u64)));
                self.fail_something();
            } else if next == next_pull {
                next_pull = self.now.after(Duration::from_millis(20));
                self.check_copies();
                self.flush();
                self.pull();
                self.replace_lost();
                self.repeat_change();
            } else if let Some(Reverse(Due { node, life, what, .. })) = self.due.pop() {
                if let What::Tick = what {
                    self.nodes[node].wakes_at = None;
                }
                if life == self.nodes[node].life || matches!(what, What::Deliver(_)) {
                    self.happen(node, what);
                }
            }
            self.check_leases();
        }
    }

    fn happen(&mut self, node: usize, what: What) {
        match what {
            What::Deliver(message) => {
                let is_asked = message.raft.msg_type == MessageType::MsgRequestPreVote;
                if is_asked && self.nodes[node].replica.is_some() && self.below(self.faults.mean) == 0 {
                    self.start(node);
                }
                self.step(node, Event::Message(message));
            }
            What::Die => self.die(node),
            What::Durable(number) => self.durable(node, number),
            What::Apply => self.apply(node),
            What::Tick => self.step(node, Event::Tick),
            What::Install { index, sources, values_above } => {
                self.install(node, index, &sources, values_above);
            }
            What::Pulled(term, records) => self.pulled(node, term, records),
            What::Start => self.start(node),
            What::CutOff => self.cut_off(node),
        }
    }

    pub fn run(&mut self, faults: &Faults) {
        self.run_until(Instant::ORIGIN.after(FAULTY), faults);
    }

    /// Everything heals; then the group must take commands again, replace what is lost, and its leader must have each acknowledged command.
    pub fn heal_and_finish(mut self) -> Outcome {
        self.cut.clear();
        let (before, end) = (self.acknowledged, self.now.after(HEALING));
        let answers = |group: &Group| {
            let now = group.now;
            let answers = |node: &Node| {
                node.replica.as_ref().is_some_and(|replica| replica.may_answer(node.clock(now)))
            };
            group.nodes.iter().position(answers)
        };
        let is_whole = |group: &Group| {
            group.acknowledged > before && group.lost_members().is_empty() && answers(group).is_some()
        };
        while self.found.is_empty() && !is_whole(&self) {
            if self.now >= end {
                let (count, lost) = (self.acknowledged - before, self.lost_members());
                self.found.push(format!(
                    "in {HEALING:?} after all had healed {count} commands were acknowledged; {lost:?} still vote"
                ));
            }
            self.run_until(self.now.after(T), &Faults::NONE);
        }
        let known = self.known.clone();
        self.run_until(self.now.after(T), &Faults::NONE);
        if let Some(leader) = answers(&self).filter(|_| self.found.is_empty()) {
            let records = &self.nodes[leader].tables.records;
            for (key, index) in &known {
                if !self.is_current(*key, records.get(key), *index) {
                    self.found.push(format!("key {key} of {index:?} is not in the leader's tables"));
                    break;
                }
            }
        }
        self.check_copies();
        let terms = self.nodes.iter().map(|node| node.disk.vote.term).max().unwrap_or_default();
        Outcome {
            faults: self.found,
            acknowledged: self.acknowledged,
            terms,
            changes: self.changes,
            snapshots: self.snapshots,
            lost: self.lost,
            answered: self.answered,
            fresh: self.fresh,
        }
    }
}
