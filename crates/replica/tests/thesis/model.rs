//! An abstract group of replicas: roles and rules of chapter 3 of the thesis and of Furrow, without clocks, drives or messages on their way. Each call is one step.
//!
//! A group stores one value, under one key: each update replaces it. Entries are numbered from 1, as in Raft. What witnesses keep, who is in office and who may go is decided by the crate's own code.

use std::collections::{BTreeMap, BTreeSet};

use replica::{
    Configuration, Index, Office, OfficeEntry, Offices, ReplicaId, Role, Settings, StableIndex, Term,
    check_removal,
};

/// A replica, by its place in the group's list: a witness with the first office, K backups, K witnesses.
pub type Replica = usize;

/// What an update writes: each update of a trace has a number of its own.
pub type Update = u32;

/// How a voter compares a candidate's log with its own.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum LogOrder {
    Index,
    TermAndIndex,
}

/// How many replicas make an update committed.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Quorum {
    Majority,
    /// A majority with every voting backup; a witness stands in for each backup that is suspected.
    MajorityWithBackups,
}

/// When a witness drops values.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Drop {
    /// When they are committed, unless it is the primary.
    AtCommit,
    /// When they are committed and with every voting backup and the leader of the moment, unless it leads.
    WithLeaderOfTheMoment,
    /// When they are stable, by the crate's code.
    Stable,
}

/// When a leader and its backups answer a read.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Read {
    /// From what a backup has in its index, at any time after the election.
    FromIndex,
    /// From what a backup has in its index, once the leader has committed an entry of its own term.
    FromIndexAfterCommit,
    /// Once the leader has committed an entry of its own term, and the backup has applied everything up to there.
    UpToCommit,
}

/// The rules of a group.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Rules {
    pub order: LogOrder,
    /// A refused candidate takes the voter's last index for its own.
    pub adopts_index: bool,
    /// A backup may stand.
    pub backups_stand: bool,
    pub quorum: Quorum,
    /// A new leader that lacks entries up to its adopted index discards those that one backup does not have.
    pub null_discards: bool,
    pub drop: Drop,
    pub read: Read,
    /// A replica that restarted votes at once.
    pub votes_after_restart: bool,
    /// A removal needs copies, by the crate's code.
    pub counts_copies: bool,
    /// The crate's rule that is broken.
    pub broken: Option<replica::BrokenRule>,
}

impl Rules {
    pub const THESIS: Rules = Rules {
        order: LogOrder::Index,
        adopts_index: true,
        backups_stand: false,
        quorum: Quorum::MajorityWithBackups,
        null_discards: true,
        drop: Drop::AtCommit,
        read: Read::FromIndex,
        votes_after_restart: true,
        counts_copies: false,
        broken: None,
    };

    pub const FURROW: Rules = Rules {
        order: LogOrder::TermAndIndex,
        adopts_index: false,
        backups_stand: true,
        quorum: Quorum::Majority,
        null_discards: false,
        drop: Drop::Stable,
        read: Read::UpToCommit,
        votes_after_restart: false,
        counts_copies: true,
        broken: None,
    };

    fn settings(&self) -> Settings {
        Settings { broken_rule: self.broken, ..Settings::default() }
    }
}

#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
enum Body {
    /// Raft's empty entry at the begin of a term.
    Empty,
    Update(Update),
    Office(OfficeEntry),
}

#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
struct Entry {
    term: u64,
    body: Body,
    has_value: bool,
}

#[derive(Clone, PartialEq, Eq, Hash, Debug)]
struct Member {
    role: Role,
    is_lost: bool,
    is_suspected: bool,
    term: u64,
    log: Vec<Entry>,
    /// The index that a refused candidate has adopted.
    adopted: usize,
    committed: usize,
    /// The index up to which a backup's index in memory holds the log.
    indexed: usize,
    offices: Offices,
    stable: StableIndex,
    /// The term in which the replica leads.
    leads: Option<u64>,
    /// The index up to which each replica has acknowledged the log of the term in which this one leads.
    matched: BTreeMap<Replica, usize>,
    /// True while a promise not to vote, given with a lease, counts: a restarted replica forgets it.
    has_promised: bool,
    has_restarted: bool,
    /// True if the replica has every value of before its first entry.
    is_whole: bool,
}

impl Member {
    fn last(&self) -> (u64, usize) {
        (self.log.last().map_or(0, |entry| entry.term), self.log.len())
    }

    fn claimed_index(&self) -> usize {
        self.log.len().max(self.adopted)
    }

    fn push(&mut self, entry: Entry) {
        self.log.push(entry);
        if let Body::Office(office) = entry.body {
            self.offices.append(index(self.log.len()), office);
        }
    }

    fn truncate(&mut self, len: usize) {
        self.log.truncate(len);
        self.offices.truncate(index(len + 1));
    }

    fn commit(&mut self, upto: usize) {
        self.committed = upto;
        self.offices.commit(index(upto));
    }
}

fn index(index: usize) -> Index {
    Index(index as u64)
}

fn id(replica: Replica) -> ReplicaId {
    ReplicaId(replica as u64)
}

/// One step of a group.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub enum Step {
    /// The replica stands for election with these voters, and prepares its term if it is elected.
    Elect(Replica, Vec<Replica>),
    /// The leader appends an update.
    Append(Replica, Update),
    /// The leader brings another replica up.
    Send(Replica, Replica),
    /// The leader commits what a quorum has.
    Commit(Replica),
    /// The witness drops the values that it may drop.
    DropValues(Replica),
    /// The leader gets the values that it lacks from a backup.
    Pull(Replica, Replica),
    /// The leader relieves another replica of its offices.
    Relieve(Replica, Replica),
}

/// A group of replicas and the updates that it has acknowledged.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Group {
    rules: Rules,
    replicas: Vec<Member>,
    members: BTreeSet<Replica>,
    /// The index and term of each acknowledged update.
    acknowledged: BTreeMap<Update, (usize, u64)>,
}

impl Group {
    /// A witness with the first office, which leads in term 1, `k` backups and `k` witnesses, in this order. Their logs are empty.
    pub fn new(k: usize, rules: Rules) -> Group {
        let roles = std::iter::once(Role::Witness)
            .chain(std::iter::repeat_n(Role::Backup, k))
            .chain(std::iter::repeat_n(Role::Witness, k));
        let mut replicas: Vec<Member> = roles.map(|role| Group::member(role, &rules)).collect();
        replicas[0].leads = Some(1);
        replicas[0].term = 1;
        replicas[0].is_whole = true;
        let members = (0..replicas.len()).collect();
        Group { rules, replicas, members, acknowledged: BTreeMap::new() }
    }

    fn member(role: Role, rules: &Rules) -> Member {
        let settings = rules.settings();
        let first = Office { holder: id(0), term: Term(1) };
        Member {
            role,
            is_lost: false,
            is_suspected: false,
            term: 0,
            log: Vec::new(),
            adopted: 0,
            committed: 0,
            indexed: 0,
            offices: Offices::new(&settings, [first]),
            stable: StableIndex::new(&settings, Index(0)),
            leads: None,
            matched: BTreeMap::new(),
            has_promised: false,
            has_restarted: false,
            is_whole: role == Role::Backup,
        }
    }

    /// Carries out a step.
    pub fn apply(&mut self, step: &Step) {
        match step {
            Step::Elect(candidate, voters) => {
                if self.elect(*candidate, voters) {
                    let backup = (0..self.replicas.len()).find(|id| self.replicas[*id].role == Role::Backup);
                    self.reconcile(*candidate, backup.expect("a group has a backup"));
                }
            }
            Step::Append(leader, update) => self.append(*leader, *update),
            Step::Send(leader, to) => self.send(*leader, *to),
            Step::Commit(leader) => self.commit(*leader),
            Step::DropValues(witness) => self.drop_values(*witness),
            Step::Pull(leader, backup) => self.pull(*leader, *backup),
            Step::Relieve(leader, other) => self.relieve(*leader, *other),
        }
    }

    /// The leader appends an update to its own log.
    pub fn append(&mut self, leader: Replica, update: Update) {
        self.push(leader, Body::Update(update));
    }

    fn push(&mut self, leader: Replica, body: Body) {
        let term = self.replicas[leader].leads.expect("a leader appends");
        self.replicas[leader].push(Entry { term, body, has_value: true });
    }

    /// The leader brings the log of `to` up to its own, and tells it what is committed and stable. Values that the leader lacks come to a backup from another one.
    pub fn send(&mut self, leader: Replica, to: Replica) {
        let from = self.replicas[leader].clone();
        let Some(term) = from.leads.filter(|term| self.replicas[to].term <= *term) else { return };
        let wants_values = self.replicas[to].role == Role::Backup;
        let agrees =
            |at: usize| self.replicas[to].log.get(at).is_some_and(|own| own.term == from.log[at].term);
        let agreed = (0..from.log.len()).take_while(|at| agrees(*at)).count();
        let mut log = from.log;
        for (entry, at) in log.iter_mut().zip(1..) {
            entry.has_value |= wants_values && self.has_value(at, entry.term);
        }
        self.replicas[leader].matched.insert(to, log.len());
        let to = &mut self.replicas[to];
        if agreed < log.len() {
            to.truncate(agreed);
        }
        for (own, entry) in to.log.iter_mut().zip(&log) {
            own.has_value |= wants_values && entry.has_value;
        }
        log.drain(..agreed);
        log.into_iter().for_each(|entry| to.push(entry));
        (to.term, to.adopted, to.leads) = (term, 0, None);
        to.commit(from.committed);
        to.stable.learn(from.stable.get());
    }

    /// The number of replicas that are not lost and have the value of the entry.
    fn copies(&self, at: usize, term: u64) -> usize {
        let has_value = |member: &Member| {
            member.log.get(at - 1).is_some_and(|entry| entry.term == term && entry.has_value)
        };
        self.alive().filter(|(_, member)| has_value(member)).count()
    }

    fn has_value(&self, at: usize, term: u64) -> bool {
        self.copies(at, term) > 0
    }

    fn alive(&self) -> impl Iterator<Item = (Replica, &Member)> {
        self.replicas.iter().enumerate().filter(|(_, member)| !member.is_lost)
    }

    fn backups(&self) -> impl Iterator<Item = (Replica, &Member)> {
        self.members
            .iter()
            .map(|id| (*id, &self.replicas[*id]))
            .filter(|(_, member)| member.role == Role::Backup)
    }

    /// The leader commits, and acknowledges, all that the quorum holds of its log.
    pub fn commit(&mut self, leader: Replica) {
        let Some(term) = self.replicas[leader].leads else { return };
        let log = self.replicas[leader].log.clone();
        let first = self.replicas[leader].committed + 1;
        let is_committed = |at: &usize| log[*at - 1].term == term && self.is_quorum(leader, *at);
        if let Some(upto) = (first..=log.len()).rev().find(is_committed) {
            self.replicas[leader].commit(upto);
            let updates = log[..upto].iter().zip(1..).filter_map(|(entry, at)| match entry.body {
                Body::Update(update) => Some((update, (at, entry.term))),
                _ => None,
            });
            self.acknowledged.extend(updates);
        }
        self.settle(leader);
    }

    fn holds(&self, id: Replica, at: usize, term: u64) -> bool {
        self.replicas[id].log.get(at - 1).is_some_and(|entry| entry.term == term)
    }

    /// Up to where the replica has acknowledged the leader's log in the leader's term.
    fn matched(&self, leader: Replica, id: Replica) -> usize {
        let leading = &self.replicas[leader];
        if id == leader { leading.log.len() } else { leading.matched.get(&id).copied().unwrap_or_default() }
    }

    fn is_quorum(&self, leader: Replica, at: usize) -> bool {
        let holders = self.members.iter().filter(|id| self.matched(leader, **id) >= at).count();
        let is_majority = holders * 2 > self.members.len();
        let mut backups = self.backups().filter(|(_, member)| !member.is_suspected);
        match self.rules.quorum {
            Quorum::Majority => is_majority,
            Quorum::MajorityWithBackups => {
                is_majority && backups.all(|(id, _)| self.matched(leader, id) >= at)
            }
        }
    }

    /// The leader moves the stable index.
    fn settle(&mut self, leader: Replica) {
        let matched: Vec<Index> =
            self.backups().map(|(backup, _)| index(self.matched(leader, backup))).collect();
        let in_office = match self.rules.drop {
            Drop::AtCommit => return,
            Drop::WithLeaderOfTheMoment => true,
            Drop::Stable => self.is_in_office(leader),
        };
        let member = &mut self.replicas[leader];
        let own = in_office.then(|| index(member.log.len()));
        member.stable.advance(index(member.committed), own, matched);
    }

    fn is_in_office(&self, replica: Replica) -> bool {
        self.replicas[replica].offices.current().is_some_and(|office| office.holder == id(replica))
    }

    /// The leader, whose office is committed and who has every value, relieves another replica of its earlier offices.
    pub fn relieve(&mut self, leader: Replica, other: Replica) {
        let member = &self.replicas[leader];
        let has_all = member.log.iter().all(|entry| entry.has_value);
        if member.leads.is_none() || !has_all || !self.is_in_office(leader) {
            return;
        }
        let earlier = member.offices.to_relieve().iter().filter(|office| office.holder == id(other));
        for office in earlier.copied().collect::<Vec<_>>() {
            let relief = Body::Office(OfficeEntry::Relieved(office));
            if self.replicas[leader].log.iter().all(|entry| entry.body != relief) {
                self.push(leader, relief);
            }
        }
    }

    /// The leader gets from a backup the values that it lacks.
    pub fn pull(&mut self, leader: Replica, backup: Replica) {
        let there = self.replicas[backup].log.clone();
        for (entry, there) in self.replicas[leader].log.iter_mut().zip(there) {
            entry.has_value |= there.has_value && there.term == entry.term;
        }
    }

    /// A witness drops the values that the rules let it drop.
    pub fn drop_values(&mut self, witness: Replica) {
        let member = &mut self.replicas[witness];
        let upto = match self.rules.drop {
            Drop::AtCommit if witness == 0 => 0,
            Drop::AtCommit => member.committed,
            Drop::WithLeaderOfTheMoment if member.leads.is_some() || witness == 0 => 0,
            Drop::WithLeaderOfTheMoment => member.stable.get().0 as usize,
            Drop::Stable => {
                member.stable.droppable(&member.offices, id(witness), member.leads.is_some()).0 as usize
            }
        };
        for entry in &mut member.log[..upto] {
            entry.has_value = false;
        }
    }

    /// The candidate asks each of the voters, and again whoever refused if it has adopted an index. True if it leads.
    pub fn elect(&mut self, candidate: Replica, voters: &[Replica]) -> bool {
        if self.replicas[candidate].role == Role::Backup && !self.rules.backups_stand {
            return false;
        }
        let term = 1 + self.replicas.iter().map(|member| member.term).max().unwrap_or_default();
        let mut granted = BTreeSet::from([candidate]);
        self.replicas[candidate].term = term;
        self.replicas[candidate].leads = None;
        for voter in voters.iter().chain(voters) {
            if self.grants(candidate, *voter) {
                self.replicas[*voter].term = term;
                self.replicas[*voter].leads = None;
                granted.insert(*voter);
            } else if self.rules.adopts_index {
                let index = self.replicas[*voter].log.len();
                let adopted = &mut self.replicas[candidate].adopted;
                *adopted = (*adopted).max(index);
            }
        }
        let wins = granted.len() * 2 > self.members.len();
        if wins {
            self.replicas[candidate].leads = Some(term);
            self.replicas[candidate].matched.clear();
        }
        wins
    }

    fn grants(&self, candidate: Replica, voter: Replica) -> bool {
        let (own, asked) = (&self.replicas[candidate], &self.replicas[voter]);
        if asked.is_lost || asked.has_promised || asked.has_restarted && !self.rules.votes_after_restart {
            return false;
        }
        match self.rules.order {
            LogOrder::Index => own.claimed_index() >= asked.log.len(),
            LogOrder::TermAndIndex => (own.last().0, own.claimed_index()) >= asked.last(),
        }
    }

    /// A new leader gets what it lacks: by the thesis from a backup, up to the index that it has adopted. Furrow's leader appends the entries of its term: an empty one and, as a witness, its office.
    pub fn reconcile(&mut self, leader: Replica, backup: Replica) {
        let (adopted, own) = (self.replicas[leader].adopted, self.replicas[leader].log.len());
        for at in own + 1..=adopted {
            match self.replicas[backup].log.get(at - 1).copied() {
                Some(entry) => self.replicas[leader].push(entry),
                None if self.rules.null_discards => break,
                None => {}
            }
        }
        self.replicas[leader].adopted = 0;
        if self.rules.drop == Drop::Stable {
            self.push(leader, Body::Empty);
            if self.replicas[leader].role == Role::Witness {
                let term = Term(self.replicas[leader].term);
                self.push(leader, Body::Office(OfficeEntry::Taken(Office { holder: id(leader), term })));
            }
        }
    }

    /// A leading backup brings a witness up, commits the entry of its term with `others`, and hands over. True if the witness leads.
    pub fn hand_over(&mut self, backup: Replica, witness: Replica, others: &[Replica]) -> bool {
        self.reconcile(backup, backup);
        for to in others.iter().chain([&witness]) {
            self.send(backup, *to);
        }
        self.commit(backup);
        self.send(backup, witness);
        let voters: Vec<Replica> = others.iter().copied().chain([backup]).collect();
        let wins = self.elect(witness, &voters);
        if wins {
            self.reconcile(witness, backup);
        }
        wins
    }

    /// A backup moves what it knows to be committed from its buffer into its index.
    pub fn index(&mut self, backup: Replica) {
        self.replicas[backup].indexed = self.replicas[backup].committed;
    }

    /// The value that the leader reads from a backup, or `None` if the read has to wait: the last update, 0 for none.
    pub fn read(&self, leader: Replica, backup: Replica) -> Option<Update> {
        let member = &self.replicas[leader];
        let term = member.leads?;
        let has_committed = member.log[..member.committed].iter().any(|entry| entry.term == term);
        let indexed = self.replicas[backup].indexed;
        let may_answer = match self.rules.read {
            Read::FromIndex => true,
            Read::FromIndexAfterCommit => has_committed,
            Read::UpToCommit => has_committed && indexed >= member.committed,
        };
        let mut updates = self.replicas[backup].log[..indexed].iter().filter_map(|entry| match entry.body {
            Body::Update(update) => Some(update),
            _ => None,
        });
        may_answer.then(|| updates.next_back().unwrap_or_default())
    }

    /// The voter promises not to vote for another replica while the leader's lease lasts.
    pub fn promise(&mut self, voter: Replica) {
        self.replicas[voter].has_promised = true;
    }

    /// The replica restarts: its log and term are there, promises are not.
    pub fn restart(&mut self, id: Replica) {
        self.replicas[id].has_promised = false;
        self.replicas[id].has_restarted = true;
    }

    /// The replicas that lead by what they know.
    pub fn leaders(&self) -> Vec<Replica> {
        self.alive().filter(|(_, member)| member.leads.is_some()).map(|(id, _)| id).collect()
    }

    pub fn suspect(&mut self, id: Replica) {
        self.replicas[id].is_suspected = true;
    }

    pub fn lose(&mut self, id: Replica) {
        self.replicas[id].is_lost = true;
        self.replicas[id].leads = None;
    }

    /// A replica joins that votes, and has the log, but not yet the values of before.
    pub fn join(&mut self, role: Role) -> Replica {
        let id = self.replicas.len();
        let rules = self.rules;
        self.replicas.push(Member { is_whole: false, ..Group::member(role, &rules) });
        self.members.insert(id);
        id
    }

    /// The group goes on without a replica, if the rules let it.
    pub fn remove(&mut self, gone: Replica) -> bool {
        let left: BTreeSet<Replica> = self.members.iter().copied().filter(|member| *member != gone).collect();
        let after = Configuration::new(left.iter().map(|member| (id(*member), self.replicas[*member].role)));
        let is_whole = |member: ReplicaId| {
            let member = &self.replicas[member.0 as usize];
            member.is_whole && !member.is_lost
        };
        let may_go =
            !self.rules.counts_copies || check_removal(&self.rules.settings(), &after, is_whole).is_ok();
        if may_go {
            self.members = left;
        }
        may_go
    }

    /// The number of members with every value.
    pub fn whole_copies(&self) -> usize {
        self.alive().filter(|(id, member)| self.members.contains(id) && member.is_whole).count()
    }

    /// The acknowledged updates that the replica's log lacks, or of which no more than `may_go` replicas that are not lost have the value.
    pub fn lost(&self, leader: Replica, may_go: usize) -> Vec<Update> {
        let is_safe = |at, term| self.holds(leader, at, term) && self.copies(at, term) > may_go;
        let lost = self.acknowledged.iter().filter(|(_, (at, term))| !is_safe(*at, *term));
        lost.map(|(update, _)| *update).collect()
    }

    /// True if an acknowledged update has no more than `may_go` copies, or a leader of the highest term lacks one.
    pub fn is_at_risk(&self, may_go: usize) -> bool {
        let term = self.term();
        let newest = self.replicas.iter().position(|member| member.leads == Some(term));
        self.acknowledged.iter().any(|(_, (at, of))| {
            self.copies(*at, *of) <= may_go || newest.is_some_and(|leader| !self.holds(leader, *at, *of))
        })
    }

    pub fn role(&self, id: Replica) -> Role {
        self.replicas[id].role
    }

    /// The highest term of any replica.
    pub fn term(&self) -> u64 {
        self.replicas.iter().map(|member| member.term).max().unwrap_or_default()
    }

    /// Number of updates in the longest log of a leader.
    pub fn updates(&self) -> usize {
        let updates =
            |member: &Member| member.log.iter().filter(|entry| matches!(entry.body, Body::Update(_))).count();
        self.replicas.iter().map(updates).max().unwrap_or_default()
    }

    /// True if the update was acknowledged.
    pub fn has_acknowledged(&self, update: Update) -> bool {
        self.acknowledged.contains_key(&update)
    }
}
