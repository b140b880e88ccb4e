//! A group of replicas, its network and its drives.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet, BinaryHeap};
use std::ops::RangeInclusive;
use std::time::Duration;

use raft::eraftpb::{Entry, HardState, MessageType};
use replica::{
    Action, Body, Command, Configuration, Event, Index, Message, Office, ProposalId, ReadId, Recovered,
    Replica, ReplicaId, Role, Settings, Term,
};
use units::{Instant, SplitMix64};

/// The time for which faults happen, and for which the group may take to be whole again afterwards.
const FAULTY: Duration = Duration::from_secs(3);
const HEALING: Duration = Duration::from_secs(10);
/// The time for which the group is asked for other members, and the most replicas that a group ever has.
const PATIENCE: Duration = Duration::from_secs(1);
const MAX_NODES: usize = 12;
const T: Duration = Duration::from_millis(100);
/// The rate of a clock's drift, in parts per million.
const DRIFT: u32 = 10_000;

/// Which faults a run has.
#[derive(Clone, Copy, Debug)]
pub struct Faults {
    /// One message in so many is lost, and one is repeated.
    lost: u64,
    /// The longest time of a message on its way, in microseconds.
    slow_us: u64,
    /// The mean time between two of what follows.
    pause: Duration,
    /// How often which of them comes: a death, a node cut off, two nodes cut off from each other, an end of all cuts, a handing over, a change of members.
    weights: [u64; 6],
    /// The longest time between two commands or reads, in microseconds, and how many of ten are reads.
    ask_us: u64,
    reads: u64,
    /// One time in so many that values could be pulled they are.
    pull: u64,
    /// One time in so many a replica starts anew just before it is asked for a pre-vote; a leader dies soon after a command is committed.
    mean: u64,
}

impl Faults {
    pub fn of(seed: u64) -> Faults {
        let mut chance = SplitMix64::new(seed ^ 0x5eed);
        let mut one_of = |values: &[u64]| values[(chance.draw() % values.len() as u64) as usize];
        Faults {
            lost: one_of(&[10, 100, 100_000, 100_000]),
            slow_us: one_of(&[100, 2_000, 150_000]),
            pause: Duration::from_millis(one_of(&[50, 100, 200, 400])),
            weights: [(); 6].map(|()| one_of(&[0, 1, 4])),
            ask_us: one_of(&[2_000, 5_000, 50_000]),
            reads: one_of(&[1, 5, 9]),
            pull: one_of(&[1, 10, 100]),
            mean: one_of(&[2, 20, u64::MAX, u64::MAX]),
        }
    }

    const NONE: Faults = Faults {
        lost: 1_000_000_000,
        slow_us: 100,
        pause: Duration::from_secs(3600),
        weights: [0, 0, 0, 1, 0, 0],
        ask_us: 5_000,
        reads: 5,
        pull: 1,
        mean: u64::MAX,
    };
}

/// What came of a run.
#[derive(Debug)]
pub struct Outcome {
    /// What must not happen and did, the first one first.
    pub faults: Vec<String>,
    pub acknowledged: usize,
    pub terms: u64,
    /// Changes of members that ended.
    pub changes: u64,
    /// Reads answered by a round of heartbeats, and by the lease.
    pub answered: [u64; 2],
}

/// What lies on a replica's drive.
#[derive(Clone, Debug, Default)]
struct Disk {
    entries: Vec<Entry>,
    vote: HardState,
    dropped: Index,
}

struct Node {
    id: ReplicaId,
    role: Role,
    replica: Option<Replica>,
    disk: Disk,
    /// What the drive has not made durable yet.
    writing: Vec<(u64, Vec<Entry>, Option<HardState>)>,
    /// The number of the node's starts: events of an earlier life are void.
    life: u64,
    /// The longest time of a write to its drive, in microseconds.
    write_us: u64,
    /// The node's clock by true time.
    speed_ppm: u64,
    wakes_at: Option<Instant>,
}

impl Node {
    fn new(id: ReplicaId, role: Role, chance: &mut SplitMix64) -> Node {
        Node {
            id,
            role,
            replica: None,
            disk: Disk::default(),
            writing: Vec::new(),
            life: 0,
            write_us: [100, 2_000, 30_000][(chance.draw() % 3) as usize],
            speed_ppm: 1_000_000 - u64::from(DRIFT) + chance.draw() % u64::from(2 * DRIFT + 1),
            wakes_at: None,
        }
    }

    fn clock(&self, now: Instant) -> Instant {
        Instant((u128::from(now.0) * u128::from(self.speed_ppm) / 1_000_000) as u64)
    }

    fn true_time(&self, clock: Instant) -> Instant {
        Instant((u128::from(clock.0) * 1_000_000).div_ceil(u128::from(self.speed_ppm)) as u64)
    }

    /// The value of the entry of that index and term on the drive.
    fn value(&self, index: Index, term: Term) -> Option<Vec<u8>> {
        let entry = self.disk.entries.get(index.0 as usize - 1).filter(|entry| entry.term == term.0)?;
        match Body::of(entry)? {
            Body::Command(command) => command.value,
            _ => None,
        }
    }
}

#[derive(Clone, Debug)]
enum What {
    Deliver(Box<Message>),
    Durable(u64),
    Applied(Index),
    Tick,
    Values(Vec<((Index, Term), Vec<u8>)>),
    Start,
    CutOff,
    Die,
}

#[derive(Clone, Debug)]
struct Due {
    at: Instant,
    number: u64,
    node: usize,
    life: u64,
    what: What,
}

impl PartialEq for Due {
    fn eq(&self, other: &Due) -> bool {
        self.number == other.number
    }
}

impl Eq for Due {}

impl PartialOrd for Due {
    fn partial_cmp(&self, other: &Due) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Due {
    fn cmp(&self, other: &Due) -> std::cmp::Ordering {
        (self.at, self.number).cmp(&(other.at, other.number))
    }
}

pub struct Group {
    settings: Settings,
    initial: Configuration,
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
    acknowledged: usize,
    found: Vec<String>,
    reads: u64,
    /// The highest index that a client knew to be committed when it asked for a read.
    asked: BTreeMap<u64, Index>,
    /// Reads answered by a round of heartbeats, and by the lease.
    answered: [u64; 2],
    /// The highest index of an acknowledged command.
    known: Index,
}

fn value(proposal: u64) -> Vec<u8> {
    proposal.to_le_bytes().to_vec()
}

impl Group {
    pub fn new(k: usize, seed: u64, broken: Option<replica::BrokenRule>) -> Group {
        let settings =
            Settings { election_timeout: T, heartbeat: T / 10, drift: 2 * DRIFT, broken_rule: broken };
        let roles = std::iter::once(Role::Witness)
            .chain(std::iter::repeat_n(Role::Backup, k))
            .chain(std::iter::repeat_n(Role::Witness, k));
        let voters = Configuration::new((1..).map(ReplicaId).zip(roles));
        let mut chance = SplitMix64::new(seed);
        let mut nodes: Vec<Node> =
            voters.voters().map(|(id, role)| Node::new(id, role, &mut chance)).collect();
        if chance.draw().is_multiple_of(3) {
            // The first leader is the only one with a slow drive.
            nodes.iter_mut().for_each(|node| node.write_us = if node.id.0 == 1 { 30_000 } else { 100 });
        }
        let mut group = Group {
            settings,
            members: (voters.clone(), Index::default()),
            initial: voters,
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
            acknowledged: 0,
            found: Vec::new(),
            reads: 0,
            asked: BTreeMap::new(),
            answered: [0; 2],
            known: Index::default(),
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
        of.life += 1;
        let recovered = Recovered {
            base: (Index(0), Term(0)),
            entries: of.disk.entries.clone(),
            vote: of.disk.vote.clone(),
            applied: Index(0),
            offices: vec![Office { holder: ReplicaId(1), term: Term(0) }],
            stable: Index(0),
            is_whole: true,
            members: (self.initial.clone(), Index(0)),
        };
        let replica = Replica::new(&self.settings, (of.id, of.role), recovered, (now, seed));
        of.replica = Some(replica.expect("what is durable is good"));
        of.writing.clear();
        of.wakes_at = None;
        self.wake(node);
    }

    fn die(&mut self, node: usize) {
        let of = &mut self.nodes[node];
        of.replica = None;
        of.life += 1;
        of.writing.clear();
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
            Action::Persist { number, entries, vote } => {
                self.nodes[node].writing.push((number, entries, vote));
                let time = Duration::from_micros(
                    15 + self.nodes[node].write_us / 2 + self.below(self.nodes[node].write_us / 2),
                );
                self.after(time, node, What::Durable(number));
            }
            Action::Apply(commands) => {
                for (index, command) in &commands {
                    if let Some(Command { value: Some(value), .. }) = command {
                        self.note_commit(node, *index, value);
                    }
                }
                if self.below(self.faults.mean) == 0
                    && let Some(leader) = self.nodes[node].replica.as_ref().and_then(Replica::leader)
                {
                    let time = Duration::from_micros(self.below(20_000));
                    self.after(time, leader.0 as usize - 1, What::Die);
                }
                if let Some((last, _)) = commands.last().cloned() {
                    self.after(Duration::ZERO, node, What::Applied(last));
                }
            }
            Action::Acknowledge(ProposalId(proposal), index) => {
                self.acknowledged += 1;
                self.known = self.known.max(index);
                if self.committed.get(&proposal).map(|(at, _)| *at) != Some(index) {
                    self.found
                        .push(format!("command {proposal} is acknowledged, and not committed at {index:?}"));
                }
                self.check_copies(proposal..=proposal);
            }
            Action::Answer { read: ReadId(read), index, by_lease } => {
                let known = self.asked.remove(&read).unwrap_or_default();
                let now = self.nodes[node].clock(self.now);
                let counts = !by_lease
                    || self.nodes[node].replica.as_ref().is_some_and(|replica| replica.may_answer(now));
                self.answered[usize::from(by_lease)] += u64::from(counts);
                if counts && index < known {
                    self.found.push(format!("a read from {} up to {index:?}: {known:?} was known", node));
                }
            }
            Action::Fetch(wanted) => self.fetch(node, &wanted),
            Action::DropValues(index) => {
                let disk = &mut self.nodes[node].disk;
                disk.dropped = disk.dropped.max(index);
                for entry in disk.entries.iter_mut().take_while(|entry| entry.index <= index.0) {
                    if let Some(Body::Command(command)) = Body::of(entry) {
                        entry.data = Body::Command(Command { value: None, ..command }).encode().into();
                    }
                }
            }
            Action::RefuseProposal(..)
            | Action::LoseProposal(_)
            | Action::RefuseRead(..)
            | Action::RefuseChange(_) => {}
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

    /// Asks a backup that lives for the values.
    fn fetch(&mut self, node: usize, wanted: &[(Index, Term)]) {
        let holders = self.nodes[node].replica.iter().flat_map(|replica| replica.offices().standing());
        let holders = holders.map(|office| office.holder);
        let backups: Vec<usize> =
            self.members.0.backups().chain(holders).map(|id| id.0 as usize - 1).collect();
        let lives = |backup: &usize| self.nodes[*backup].replica.is_some();
        let values: Vec<((Index, Term), Vec<u8>)> = wanted
            .iter()
            .filter_map(|(index, term)| {
                let value =
                    backups.iter().filter(|id| lives(id)).find_map(|id| self.nodes[*id].value(*index, *term));
                value.map(|value| ((*index, *term), value))
            })
            .collect();
        self.after(Duration::from_micros(200), node, What::Values(values));
    }

    fn durable(&mut self, node: usize, number: u64) {
        let of = &mut self.nodes[node];
        let ready: Vec<_> = of.writing.extract_if(.., |(of, _, _)| *of <= number).collect();
        for (_, entries, vote) in ready {
            if let Some(first) = entries.first() {
                of.disk.entries.truncate(first.index as usize - 1);
                of.disk.entries.extend(entries);
            }
            if let Some(vote) = vote {
                of.disk.vote = vote;
            }
        }
        self.step(node, Event::Persisted(number));
    }

    /// The value of each of these committed commands is on more members' drives than may fail.
    fn check_copies(&mut self, commands: RangeInclusive<u64>) {
        let (members, _) = &self.members;
        if members.is_joint() {
            return;
        }
        for (proposal, (index, term)) in self.committed.range(commands) {
            let votes = self.nodes.iter().filter(|node| members.role(node.id).is_some());
            let copies = votes.filter(|node| node.value(*index, *term) == Some(value(*proposal))).count();
            if copies <= members.may_fail() {
                self.found
                    .push(format!("command {proposal} at {index:?} has {copies} copies at {:?}", self.now));
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

    /// A node has applied a command, whose value says which proposal it was.
    fn note_commit(&mut self, node: usize, index: Index, value: &[u8]) {
        let entry = self.nodes[node].replica.as_ref().and_then(|replica| replica.entry(index));
        let (term, _) = entry.expect("an applied command is in the log");
        let proposal = u64::from_le_bytes(value.try_into().expect("values have eight bytes"));
        let known = *self.committed.entry(proposal).or_insert((index, term));
        if known != (index, term) {
            self.found
                .push(format!("command {proposal} is committed at {known:?} and at {:?}", (index, term)));
        }
    }

    /// A client asks a node, any of them, or the one that leads as far as it knows.
    fn ask(&mut self) {
        let node = self.below(self.nodes.len() as u64) as usize;
        let leader = self.nodes[node].replica.as_ref().and_then(Replica::leader);
        let node = leader.map_or(node, |leader| leader.0 as usize - 1);
        if self.below(10) >= self.faults.reads {
            self.proposals += 1;
            let command = Command { record: b"key".to_vec(), value: Some(value(self.proposals)) };
            self.step(node, Event::Propose(ProposalId(self.proposals), command));
        } else {
            self.reads += 1;
            self.asked.insert(self.reads, self.known);
            self.step(node, Event::Read(ReadId(self.reads)));
        }
    }

    /// A leader gets the values that its log lacks, as a pull of everything does, which takes its time.
    fn pull(&mut self) {
        if self.below(self.faults.pull) != 0 {
            return;
        }
        for node in 0..self.nodes.len() {
            let leads = self.nodes[node]
                .replica
                .as_ref()
                .is_some_and(|replica| replica.leader() == Some(self.nodes[node].id));
            let entries = &self.nodes[node].disk.entries;
            let lacking: Vec<(Index, Term)> = entries
                .iter()
                .filter(|entry| Body::of(entry).is_some_and(|body| !body.has_value()))
                .map(|entry| (Index(entry.index), Term(entry.term)))
                .collect();
            if leads && !lacking.is_empty() {
                self.fetch(node, &lacking);
            }
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
            self.nodes.push(Node::new(new, role, &mut self.chance));
            self.start(self.nodes.len() - 1);
        }
    }

    /// Each leader is asked again for the members that the group is to have.
    fn repeat_change(&mut self) {
        let Some((wanted, until)) = self.wanted.clone() else { return };
        if self.now >= until || self.members.0 == wanted {
            self.wanted = None;
            return;
        }
        for node in 0..self.nodes.len() {
            let leads = |replica: &Replica| replica.leader() == Some(self.nodes[node].id);
            if self.nodes[node].replica.as_ref().is_some_and(leads) {
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
                self.check_copies(0..=u64::MAX);
                self.pull();
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
            What::Applied(index) => self.step(node, Event::Applied(index)),
            What::Tick => self.step(node, Event::Tick),
            What::Values(values) => {
                // The drive has them too.
                for ((index, term), value) in &values {
                    let entry = self.nodes[node].disk.entries.get_mut(index.0 as usize - 1);
                    if let Some(entry) = entry.filter(|entry| entry.term == term.0)
                        && let Some(Body::Command(command)) = Body::of(entry)
                    {
                        let command = Command { value: Some(value.clone()), ..command };
                        entry.data = Body::Command(command).encode().into();
                    }
                }
                self.step(node, Event::Values(values));
            }
            What::Start => self.start(node),
            What::CutOff => self.cut_off(node),
        }
    }

    pub fn run(&mut self, faults: &Faults) {
        self.run_until(Instant::ORIGIN.after(FAULTY), faults);
    }

    /// Everything heals; then the group must take commands again, and its leader must have each acknowledged one.
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
        while self.found.is_empty() && (self.acknowledged == before || answers(&self).is_none()) {
            if self.now >= end {
                self.found.push(format!("no command was acknowledged in {HEALING:?} after all had healed"));
            }
            self.run_until(self.now.after(T), &Faults::NONE);
        }
        let leader = answers(&self).map(|node| &self.nodes[node]);
        let log = |index: Index| leader.and_then(|leader| leader.replica.as_ref()?.entry(index));
        if self.found.is_empty() {
            for (proposal, (index, term)) in &self.committed {
                if log(*index).map(|(term, _)| term) != Some(*term) {
                    self.found.push(format!("command {proposal} at {index:?} is not in the leader's log"));
                    break;
                }
            }
        }
        if self.found.is_empty() {
            self.check_copies(0..=u64::MAX);
        }
        let terms = self.nodes.iter().map(|node| node.disk.vote.term).max().unwrap_or_default();
        Outcome {
            faults: self.found,
            acknowledged: self.acknowledged,
            terms,
            changes: self.changes,
            answered: self.answered,
        }
    }
}
