//! One replica of a group: Raft, and the group's rules around it.

mod change;
mod handing_over;
mod install;
mod leadership;
mod observed;
mod raising;
mod snapshots;
mod writes;

use std::time::Duration;

use raft::eraftpb::{Entry, HardState, MessageType};
use raft::{Config, INVALID_ID, RawNode, StateRole};
use units::{Instant, SplitMix64};

use self::install::Install;
use self::leadership::Leadership;
use self::writes::Writes;
use crate::base::Base;
use crate::entry::{Body, Command, changes_state, lacks_value};
use crate::event::{Action, Event, Message, ProposalId, ReadId};
use crate::log::GroupLog;
use crate::version::GroupVersion;
use crate::{
    Candidacy, Freshness, Index, Inquiry, Membership, Office, OfficeEntry, Offices, ReplicaCounts, ReplicaId,
    Role, Settings, StableIndex, Term, TooOld, VotePromise,
};

/// Raft's ticks: a replica has its own times, and never ticks Raft. Raft asks for numbers in this order.
const RAFT_TICKS: (usize, usize) = (1, 10);
/// Bytes of entries in one message, and messages in flight to one replica.
const MAX_MESSAGE_BYTES: u64 = 1 << 20;
const MAX_IN_FLIGHT: usize = 256;
/// The context of a vote that a leader asked for by handing over.
const HANDED_OVER: &[u8] = b"CampaignTransfer";
/// Makes the numbers of inquiries others than those that elections draw.
const INQUIRIES: u64 = 0x1e55_0f7a_b1e5;

/// The state on a replica's drive when it starts.
#[derive(Clone, Debug)]
pub struct Recovered {
    /// The state behind which the log begins.
    pub base: Base,
    /// The log's entries, from the one behind the base on.
    pub entries: Vec<Entry>,
    /// Term, vote and commit index.
    pub vote: HardState,
    /// The index up to which the tables hold the log. A snapshot that they took moves it only once its base is durable.
    pub applied: Index,
    /// The stable index, as far as it is known.
    pub stable: Index,
    /// Each record of the tables has its value, whatever entry wrote it.
    pub is_whole: bool,
}

/// One replica of a group, without I/O and without a clock: see [`Event`] and [`Action`].
pub struct Replica {
    id: ReplicaId,
    role: Role,
    settings: Settings,
    members: Membership,
    version: GroupVersion,
    node: RawNode<GroupLog>,
    offices: Offices,
    stable: StableIndex,
    candidacy: Candidacy,
    promise: VotePromise,
    chance: SplitMix64,
    /// The snapshot that the replica takes.
    install: Install,
    /// The request with a base that took the log's place and is not durable yet, and the base's index.
    taken_over: Option<(u64, Index)>,
    /// The index up to which the tables hold the log, and up to which they hold it durably, as far as is known.
    applied: Index,
    flushed: Index,
    /// The tables hold every value, but for those of entries of the log.
    is_whole: bool,
    /// The index up to which offices know of entries.
    known: Index,
    committed: Index,
    dropped: Index,
    leadership: Option<Leadership>,
    writes: Writes,
    /// The commit index has changed since the vote was written. Raft needs it on no drive, so that it goes with the next write.
    has_new_commit: bool,
    /// The term of the last heartbeat that came, and when it was sent, by its leader's clock.
    heartbeat: Option<(Term, Instant)>,
    freshness: Freshness,
    /// When the replica stopped leading because no majority acknowledged its heartbeats; `None` once it knows a leader.
    cut_off_at: Option<Instant>,
    counts: ReplicaCounts,
    /// The replica's drive nears full.
    lacks_room: bool,
}

impl Replica {
    /// A replica of a role that starts at `now`. `seed`: another number at each start.
    ///
    /// # Errors
    /// The fault of the settings, or of the state on the drive, for people: also a group of a version that the program does not speak.
    pub fn new(
        settings: &Settings,
        (id, role): (ReplicaId, Role),
        recovered: Recovered,
        (now, seed): (Instant, u64),
    ) -> Result<Replica, String> {
        settings.check()?;
        let mut chance = SplitMix64::new(seed);
        let Recovered { base, entries, vote, applied, stable, is_whole } = recovered;
        let first = base.index.0 + 1;
        let last = base.index.0 + entries.len() as u64;
        if vote.commit > last || !entries.iter().map(|entry| entry.index).eq(first..=last) {
            let vote = vote.commit;
            return Err(format!(
                "the log is to hold entries {first} to {last}, the tables hold what was committed up to {applied:?}, the vote says {vote}"
            ));
        }
        // A commit index need not be durable before what it lets apply, nor the tables' index before a base.
        let applied = applied.min(Index(last)).max(base.index);
        let mut vote = vote;
        vote.commit = vote.commit.max(applied.0);
        // The first members' base has a term, before any vote.
        vote.term = vote.term.max(base.term.0);
        let committed = Index(vote.commit);
        let log = GroupLog::new(&base, &entries, vote);
        TooOld::check(base.state.version, settings.speaks).map_err(|why| why.to_string())?;
        let mut version = GroupVersion::new(base.state.version);
        let mut offices = Offices::new(settings, base.state.offices);
        let mut members = Membership::new(base.state.members, base.state.since);
        let mut known = base.index;
        for entry in &entries {
            let body = Body::of(entry);
            let body = body.ok_or_else(|| format!("entry {} of the log is garbled", entry.index))?;
            known = Index(entry.index);
            note(&mut offices, &mut members, &mut version, known, body);
            TooOld::check(version.of_log(), settings.speaks).map_err(|why| why.to_string())?;
        }
        let is_whole = is_whole && log.last_lacking().is_none();
        offices.commit(committed);
        let config = Config {
            id: id.0,
            applied: base.index.0,
            heartbeat_tick: RAFT_TICKS.0,
            election_tick: RAFT_TICKS.1,
            max_size_per_msg: MAX_MESSAGE_BYTES,
            max_inflight_msgs: MAX_IN_FLIGHT,
            pre_vote: true,
            // The entries of one event go in one message.
            batch_append: true,
            ..Config::default()
        };
        let logger = slog::Logger::root(slog::Discard, slog::o!());
        let node = RawNode::new(&config, log, &logger).map_err(|why| why.to_string())?;
        Ok(Replica {
            id,
            role,
            settings: *settings,
            members,
            version,
            node,
            offices,
            stable: StableIndex::new(settings, stable),
            candidacy: Candidacy::new(settings, role, now, chance.draw()),
            promise: VotePromise::new(settings, now),
            chance,
            install: Install::default(),
            taken_over: None,
            applied,
            flushed: Index::default(),
            is_whole,
            known,
            committed,
            dropped: Index::default(),
            leadership: None,
            writes: Writes::default(),
            has_new_commit: false,
            heartbeat: None,
            freshness: Freshness::new(settings, SplitMix64::new(seed ^ INQUIRIES).draw()),
            cut_off_at: None,
            counts: ReplicaCounts::default(),
            lacks_room: false,
        })
    }

    /// When [`Event::Tick`] is due at the latest.
    pub fn wakes_at(&self) -> Instant {
        self.leadership.as_ref().map_or(self.candidacy.stands_at(), |leads| leads.next_heartbeat())
    }

    /// The leader of this replica's term, as far as it knows.
    pub fn leader(&self) -> Option<ReplicaId> {
        Some(self.node.raft.leader_id).filter(|id| *id != INVALID_ID).map(ReplicaId)
    }

    /// The replica's term.
    pub fn term(&self) -> Term {
        Term(self.node.raft.term)
    }

    /// The group's members, as far as the replica has applied its log.
    pub fn members(&self) -> &Membership {
        &self.members
    }

    /// The group's state behind the last entry that is committed, as far as the replica knows. A member that it lacks, and that once was one, never is one again.
    pub fn state(&self) -> Base {
        self.node.store().state()
    }

    /// The offices that are committed as far as the replica knows. Their holders keep every value, as backups do.
    pub fn offices(&self) -> &Offices {
        &self.offices
    }

    /// True if the replica keeps every value, and its tables and its log have them, as far as it knows.
    pub fn is_whole(&self) -> bool {
        self.is_whole
    }

    /// True if the replica leads, serves clients, and no other one can have been elected until `now`. To be asked after a read was carried out.
    pub fn may_answer(&self, now: Instant) -> bool {
        self.serves() && self.holds_lease(now)
    }

    /// True if the replica leads, knows everything that is committed, and no other one can have been elected until `now`.
    fn holds_lease(&self, now: Instant) -> bool {
        let lasts = |leads: &Leadership| leads.lease.lasts(now, self.members.current());
        self.knows_what_is_committed() && self.leadership.as_ref().is_some_and(lasts)
    }

    /// True if the drive of another voter nears full, by what it said within the last election timeout: a leader's commands that need more room are to be refused. A voter that is away says nothing, and the group goes on without it.
    pub fn voter_lacks_room(&self, now: Instant) -> bool {
        let Some(leads) = &self.leadership else { return false };
        let is_recent = |sent: Instant| now.since(sent) < self.settings.election_timeout;
        leads.lacking_room.iter().any(|id| {
            let votes = self.members.current().role(*id).is_some();
            votes && leads.lease.acknowledged_by(*id).is_some_and(is_recent)
        })
    }

    /// True if the replica led and lost its majority, at least two election timeouts after the last sign of it, and has heard of no other leader: the group cannot serve here, however long a command waits.
    pub fn is_cut_off(&self, now: Instant) -> bool {
        // The replica stopped leading one election timeout after the last sign, or later.
        self.cut_off_at.is_some_and(|at| now.since(at) >= self.settings.election_timeout)
    }

    /// The time by which the tables of this backup may be behind the group's leader: see [`Freshness`]. `None`: not known yet, or the replica is a witness.
    pub fn behind(&self, now: Instant) -> Option<Duration> {
        self.freshness.behind(now)
    }

    /// The term in which the replica leads and takes commands, and the index of its office: tables that hold the log up to there have every command that was committed in earlier terms.
    pub fn serves_in(&self) -> Option<(Term, Index)> {
        let leads = self.leadership.as_ref().filter(|_| self.serves())?;
        Some((leads.term, leads.office?))
    }

    /// Bytes of the entries in the replica's log.
    pub fn log_bytes(&self) -> u64 {
        self.node.store().bytes()
    }

    /// The term of the log's entry at `index`, and what it says.
    pub fn entry(&self, index: Index) -> Option<(Term, Body)> {
        self.node.store().entry(index)
    }

    /// Tells the replica what happened. Returns what it wants done.
    ///
    /// `now` is read from the replica's monotone clock after the event happened: promises and reads count from it, and a time from before would let two replicas lead.
    pub fn step(&mut self, now: Instant, event: Event) -> Vec<Action> {
        let mut actions = Vec::new();
        match event {
            Event::Tick => {}
            Event::Message(message) => self.receive(now, message, &mut actions),
            Event::Propose(commands) => {
                for (proposal, command) in commands {
                    self.propose(proposal, command, &mut actions);
                }
            }
            Event::Read(read) => self.read(now, read, &mut actions),
            Event::Persisted(number) => self.persisted(now, number, &mut actions),
            Event::Applied(index) => self.apply_to(index),
            Event::Flushed(index) => self.flushed = self.flushed.max(index),
            Event::Installed(index) => {
                if let Some(message) = self.install.installed(index, (self.leader(), self.term())) {
                    self.take(now, *message);
                }
            }
            Event::NotInstalled(index) => self.install.failed(index),
            Event::HandOver => self.is_to_hand_over(None),
            Event::HandOverTo(successor) => self.is_to_hand_over(Some(successor)),
            Event::Whole { term, upto } => {
                let has_all = self.node.store().last_given_without().is_none_or(|lacking| lacking <= upto);
                let leads = self.leadership.as_ref().is_some_and(|leads| leads.term == term);
                self.is_whole |= has_all && leads && self.offices.keeps_values(self.id);
            }
            Event::Room { lacks } => self.lacks_room = lacks,
            Event::Change(target) => self.want(target, &mut actions),
            Event::Raise(version) => self.want_version(version),
        }
        self.keep_time(now);
        loop {
            self.drain(now, &mut actions);
            self.follow_role(now, &mut actions);
            self.lead(now, &mut actions);
            if !self.node.has_ready() {
                break;
            }
        }
        if self.leader().is_some() {
            self.cut_off_at = None;
        }
        self.drop_values(&mut actions);
        self.retire(now, &mut actions);
        self.answer_reads(now, &mut actions);
        actions
    }

    fn receive(&mut self, now: Instant, message: Box<Message>, actions: &mut Vec<Action>) {
        if let Err(why) = self.check_version(&message) {
            actions.push(Action::End(why));
            return;
        }
        let is_snapshot = message.raft.msg_type == MessageType::MsgSnapshot;
        let message = if is_snapshot { self.receive_snapshot(message, actions) } else { Some(message) };
        if let Some(message) = message {
            self.take(now, *message);
        }
    }

    /// Gives a message to Raft, unless a rule is against it.
    fn take(&mut self, now: Instant, message: Message) {
        let Message { raft: mut message, sent, stable, inquiry, lacks_room, version, .. } = message;
        let rules = self.settings.rules();
        let (from, kind) = (ReplicaId(message.from), message.msg_type);
        match kind {
            // A replica proposes, reads and hands over as a leader alone.
            MessageType::MsgPropose
            | MessageType::MsgReadIndex
            | MessageType::MsgReadIndexResp
            | MessageType::MsgTransferLeader => return,
            MessageType::MsgTimeoutNow if self.taken_over.is_some() => return,
            // A leader says no more than this replica has acknowledged: its log is that of a copied or older drive, and Raft would fail.
            MessageType::MsgHeartbeat if message.commit > self.node.raft.raft_log.last_index() => return,
            MessageType::MsgRequestVote | MessageType::MsgRequestPreVote => {
                let is_handed_over = message.context == HANDED_OVER;
                // A replica that knows no members yet has no vote: its leader has not brought it up.
                if self.members.since() == Index(0) || !self.promise.allows_vote(now, is_handed_over) {
                    return;
                }
                let own = (self.node.raft.raft_log.last_term(), self.node.raft.raft_log.last_index());
                if rules.compares_indexes_alone() {
                    message.log_term = own.0;
                }
                let is_stale = (message.log_term, message.index) < own;
                if is_stale && self.members.current().role(from) == Some(Role::Witness) {
                    self.candidacy.refuse_stale_witness(now);
                }
            }
            MessageType::MsgHeartbeatResponse => {
                let leads = self.leadership.as_mut().filter(|leads| leads.term.0 == message.term);
                if let Some((leads, sent)) = leads.zip(sent) {
                    leads.lease.acknowledge(from, sent, now);
                    leads.notes_room(from, lacks_room);
                    leads.notes_version(from, sent, version);
                }
                if let Some((leads, Inquiry::Asked(number))) = self.leadership.as_mut().zip(inquiry) {
                    leads.inquiries.insert(from, number);
                }
            }
            MessageType::MsgHeartbeat => {
                if let Some(Inquiry::Answered(number, index)) = inquiry {
                    self.freshness.answer(number, index, now);
                    self.freshness.applied(self.applied);
                }
            }
            MessageType::MsgAppendResponse if message.reject && rules.discards_what_a_backup_lacks() => {
                let is_backup = self.members.current().role(from) == Some(Role::Backup);
                if is_backup && self.leads_in(message.term) {
                    let first = Index(message.reject_hint.max(self.committed.0) + 1);
                    self.node.mut_store().discard(first, Term(message.term));
                }
            }
            _ => {}
        }
        let term = message.term;
        let voted = (self.node.raft.term, self.node.raft.vote);
        if kind == MessageType::MsgHeartbeatResponse && term == self.node.raft.term {
            self.repeat_snapshot(from);
        }
        // A message that Raft refuses changes nothing: its sender repeats it, or has a higher term's answer.
        self.node.step(message).ok();
        let is_leader_s = self.leader() == Some(from) && self.node.raft.term == term;
        let is_from_leader =
            matches!(kind, MessageType::MsgHeartbeat | MessageType::MsgAppend | MessageType::MsgSnapshot);
        if is_leader_s && is_from_leader {
            self.stable.learn(stable);
            self.candidacy.restart_timeout(now, self.chance.draw());
            if kind == MessageType::MsgHeartbeat {
                self.promise.acknowledge(now);
                self.heartbeat = sent.map(|sent| (Term(term), sent));
            }
        }
        if kind == MessageType::MsgRequestVote
            && self.node.raft.vote == from.0
            && voted != (self.node.raft.term, from.0)
        {
            self.candidacy.restart_timeout(now, self.chance.draw());
        }
    }

    fn leads_in(&self, term: u64) -> bool {
        self.leadership.as_ref().is_some_and(|leads| leads.term.0 == term)
    }

    /// True if the replica may answer reads: an entry of its own term is committed, and with it all earlier ones.
    fn knows_what_is_committed(&self) -> bool {
        self.node.raft.commit_to_current_term() || self.settings.rules().answers_before_it_commits()
    }

    /// True if the replica is to take the office when it leads. A leader that may not brings a witness up that may.
    fn may_serve(&self) -> bool {
        let stays = self.members.stays(self.id) || self.settings.rules().lets_a_leaving_leader_serve();
        self.role == Role::Witness && stays
    }

    /// True if the replica leads, as a witness whose office is in its log: it takes clients' commands.
    fn serves(&self) -> bool {
        self.may_serve() && self.leadership.is_some() && self.offices.keeps_values(self.id)
    }

    fn propose(&mut self, proposal: ProposalId, command: Command, actions: &mut Vec<Action>) {
        let body = Body::Command(command);
        let accepted = self.serves() && self.node.propose(Vec::new(), body.encode()).is_ok();
        let last = Index(self.node.raft.raft_log.last_index());
        match self.leadership.as_mut().filter(|_| accepted) {
            Some(leads) => {
                leads.proposed(last, proposal);
            }
            None => {
                let leader = self.leader().filter(|leader| *leader != self.id);
                actions.push(Action::RefuseProposal(proposal, leader));
            }
        }
    }

    fn read(&mut self, now: Instant, read: ReadId, actions: &mut Vec<Action>) {
        let serves = self.serves();
        match self.leadership.as_mut().filter(|_| serves) {
            Some(leads) => leads.read(now, read, self.members.current()),
            None => {
                let leader = self.leader().filter(|leader| *leader != self.id);
                actions.push(Action::RefuseRead(read, leader));
            }
        }
    }

    fn persisted(&mut self, now: Instant, number: u64, actions: &mut Vec<Action>) {
        self.writes.end(number);
        self.take_durable(now, actions);
    }

    fn take_durable(&mut self, now: Instant, actions: &mut Vec<Action>) {
        if let Some((number, messages)) = self.writes.take_durable() {
            self.node.on_persist_ready(number);
            self.taken_over(number);
            self.send(now, messages, actions);
        }
    }

    /// The tables hold the log up to `index`. A snapshot that was taken meanwhile may hold more.
    fn apply_to(&mut self, index: Index) {
        self.applied = self.applied.max(index);
        self.freshness.applied(self.applied);
        if index.0 > self.node.raft.raft_log.applied {
            self.node.advance_apply_to(index.0);
        }
    }

    /// Stands for election, sends heartbeats, steps down: whatever is due.
    fn keep_time(&mut self, now: Instant) {
        match self.leadership.as_mut() {
            Some(leads) => {
                if leads.lease.is_cut_off(now, self.members.current()) {
                    self.cut_off_at = Some(now);
                    self.node.raft.become_follower(self.node.raft.term, INVALID_ID);
                } else if now >= leads.next_heartbeat() {
                    leads.sends_heartbeat(now);
                    self.node.ping();
                }
            }
            None if now >= self.candidacy.stands_at() => {
                self.candidacy.stood(now, self.chance.draw());
                // Learners and removed replicas do not stand, nor one whose base is not durable: Raft would look for entries before it.
                let is_left =
                    self.role == Role::Backup && self.settings.rules().leaves_elections_to_witnesses();
                if self.node.raft.promotable() && self.taken_over.is_none() && !is_left {
                    self.counts.elections += 1;
                    self.node.campaign().ok();
                }
            }
            None => {}
        }
    }

    /// Takes what Raft wants done.
    fn drain(&mut self, now: Instant, actions: &mut Vec<Action>) {
        while self.node.has_ready() {
            let mut ready = self.node.ready();
            let base = self.take_over(ready.number(), ready.snapshot());
            self.note_entries(ready.entries());
            let number = ready.number();
            let store = self.node.mut_store();
            store.append(ready.entries());
            let mut is_written = base.is_some() || !ready.entries().is_empty();
            if let Some(vote) = ready.hs() {
                is_written |= (vote.term, vote.vote) != (store.vote().term, store.vote().vote);
                store.set_vote(vote.clone());
                self.has_new_commit = true;
            }
            // A replica that was left out is deleted once members know of that durably.
            is_written |= self.has_new_commit && ready.committed_entries().iter().any(changes_state);
            let is_vote_written = is_written && std::mem::take(&mut self.has_new_commit);
            let vote = is_vote_written.then(|| store.vote().clone());
            self.send(now, ready.take_messages(), actions);
            let after = ready.take_persisted_messages();
            let entries = ready.take_entries();
            let committed = ready.take_committed_entries();
            self.node.advance_append_async(ready);
            self.writes.begin(number, is_written, after);
            if is_written {
                actions.push(Action::Persist { number, base, entries, vote });
            }
            self.take_durable(now, actions);
            self.apply(committed, actions);
        }
        self.committed = self.committed.max(Index(self.node.raft.raft_log.committed));
        self.offices.commit(self.committed);
    }

    /// New entries replace what the log has from the first of them on.
    fn note_entries(&mut self, entries: &[Entry]) {
        let Some(first) = entries.first() else { return };
        if Index(first.index) <= self.known {
            self.offices.truncate(Index(first.index));
            self.members.truncate(Index(first.index));
            self.version.truncate(Index(first.index));
        }
        for entry in entries {
            self.known = Index(entry.index);
            self.is_whole &= !lacks_value(entry);
            if let Some(body) = Some(entry).filter(|entry| changes_state(entry)).and_then(Body::of) {
                note(&mut self.offices, &mut self.members, &mut self.version, self.known, body);
            }
        }
    }

    fn apply(&mut self, committed: Vec<Entry>, actions: &mut Vec<Action>) {
        let Some((last, term)) = committed.last().map(|entry| (Index(entry.index), Term(entry.term))) else {
            return;
        };
        for entry in committed.iter().filter(|entry| changes_state(entry)) {
            match Body::of(entry) {
                Some(Body::Office(office)) => {
                    self.node.mut_store().change_offices(Index(entry.index), office);
                }
                Some(Body::Version(version)) => {
                    self.node.mut_store().change_version(Index(entry.index), version);
                }
                _ => self.change_members(entry),
            }
        }
        self.version.apply(last);
        self.node.mut_store().applied(last);
        // The tables of a replica that has started hold some entries already.
        let new = committed.iter().filter(|entry| entry.index > self.applied.0);
        let commands = new.map(|entry| match Body::of(entry) {
            Some(Body::Command(command)) => (Index(entry.index), Term(entry.term), Some(command)),
            _ => (Index(entry.index), Term(entry.term), None),
        });
        let commands: Vec<_> = commands.collect();
        if commands.is_empty() {
            self.apply_to(last);
        } else {
            self.install.applies();
            actions.push(Action::Apply(commands));
        }
        if let Some(leads) = &mut self.leadership {
            leads.committed(last, term, actions);
        }
    }

    /// A committed entry changes the members. Raft refuses one that does not fit, on every replica alike.
    fn change_members(&mut self, entry: &Entry) {
        let index = Index(entry.index);
        let voters = crate::entry::change(entry).and_then(|change| self.node.apply_conf_change(&change).ok());
        match voters {
            Some(voters) => {
                self.members.apply(index);
                self.node.mut_store().change_members(index, self.members.current(), voters);
                // Raft lets a candidate that is no voter any more win its election, and fails there.
                if self.members.current().role(self.id).is_none()
                    && self.node.raft.state != StateRole::Follower
                {
                    self.node.raft.become_follower(self.node.raft.term, INVALID_ID);
                }
            }
            None => self.members.refuse(index),
        }
    }

    fn send(&mut self, now: Instant, messages: Vec<raft::eraftpb::Message>, actions: &mut Vec<Action>) {
        for raft in messages {
            let Some(mut raft) = self.with_values(raft) else { continue };
            let sent = match raft.msg_type {
                MessageType::MsgHeartbeat => Some(now),
                // An acknowledgement that had to wait for the drive is of its own term's heartbeat, whatever came since.
                MessageType::MsgHeartbeatResponse => {
                    self.heartbeat.filter(|(term, _)| term.0 == raft.term).map(|(_, sent)| sent)
                }
                _ => None,
            };
            let to = ReplicaId(raft.to);
            if self.members.current().member(to) == Some(Role::Witness) {
                self.strip_values(&mut raft);
            }
            if let Some(leads) =
                self.leadership.as_mut().filter(|_| raft.msg_type == MessageType::MsgSnapshot)
            {
                self.counts.snapshots_sent += 1;
                leads.sends_snapshot(now, to, Index(raft.get_snapshot().get_metadata().index));
            }
            let is_whole = raft.msg_type == MessageType::MsgSnapshot && self.is_whole_copy();
            let inquiry = self.inquiry(now, to, raft.msg_type);
            let lacks_room = self.lacks_room && raft.msg_type == MessageType::MsgHeartbeatResponse;
            let version = self.version_in(raft.msg_type);
            let stable = self.stable.get();
            let message = Message { raft, sent, stable, is_whole, inquiry, lacks_room, version };
            actions.push(Action::Send(to, Box::new(message)));
        }
    }

    /// The question that a backup's acknowledgement carries, or the answer that a heartbeat does.
    fn inquiry(&mut self, now: Instant, to: ReplicaId, kind: MessageType) -> Option<Inquiry> {
        match kind {
            MessageType::MsgHeartbeatResponse if self.role == Role::Backup => {
                Some(Inquiry::Asked(self.freshness.ask(now)))
            }
            MessageType::MsgHeartbeat
                if self.holds_lease(now) || self.settings.rules().answers_without_lease() =>
            {
                let number = self.leadership.as_ref()?.inquiries.get(&to)?;
                Some(Inquiry::Answered(*number, Index(self.node.raft.raft_log.committed)))
            }
            _ => None,
        }
    }

    /// Stable entries go to a witness without their values.
    fn strip_values(&self, message: &mut raft::eraftpb::Message) {
        let stable = self.stable.get().0;
        for entry in message.entries.iter_mut().take_while(|entry| entry.index <= stable) {
            if let Some(Body::Command(command @ Command { value: Some(_), .. })) = Body::of(entry) {
                entry.data = Body::Command(Command { value: None, ..command }).encode().into();
            }
        }
    }

    /// Begins or ends a term in which the replica leads.
    fn follow_role(&mut self, now: Instant, actions: &mut Vec<Action>) {
        let term = self.term();
        let leads = self.node.raft.state == StateRole::Leader;
        if leads && self.leadership.as_ref().is_some_and(|present| present.term == term) {
            return;
        }
        if let Some(past) = self.leadership.take() {
            past.ends(actions);
            self.candidacy.restart_timeout(now, self.chance.draw());
        }
        if leads {
            self.leadership = Some(Leadership::new(&self.settings, self.id, term, now));
            if self.may_serve() {
                self.propose_office(OfficeEntry::Taken(Office { holder: self.id, term }));
                let last = Index(self.node.raft.raft_log.last_index());
                if let Some(leads) = &mut self.leadership {
                    leads.office = Some(last);
                }
            }
        }
    }

    /// True if the office of this leader is on its drive: without it the leader would not know after a restart that it keeps values.
    fn office_is_written(&self) -> bool {
        let durable = self.node.raft.prs().get(self.id.0).map_or(0, |own| own.matched);
        let office = self.leadership.as_ref().and_then(|leads| leads.office);
        office.is_some_and(|office| durable >= office.0) || self.settings.rules().counts_unwritten()
    }

    /// True if this leader in office has every value on its drive.
    fn is_whole_copy(&self) -> bool {
        self.is_whole && self.office_is_written()
    }

    /// Raft takes each entry of a leader; it refuses those of others, of which there are none here.
    fn propose_office(&mut self, entry: OfficeEntry) {
        self.node.propose(Vec::new(), Body::Office(entry).encode()).ok();
    }

    /// A leader's own work, which no event asks for: the stable index, the relief of earlier holders, changes of members, handing over.
    fn lead(&mut self, now: Instant, actions: &mut Vec<Action>) {
        let Some(term) = self.leadership.as_ref().map(|leads| leads.term) else { return };
        let own = Office { holder: self.id, term };
        let in_office = self.offices.current() == Some(own);
        let progress = self.node.raft.prs();
        let matched = |id: ReplicaId| progress.get(id.0).map_or(Index::default(), |of| Index(of.matched));
        if let Some(leads) = &mut self.leadership {
            leads.end_snapshots(matched);
        }
        let backups: Vec<Index> = self.members.backups().into_iter().map(matched).collect();
        let own = (in_office && self.office_is_written()).then(|| matched(self.id));
        self.stable.advance(self.committed, own, backups);
        if in_office && self.is_whole_copy() {
            for office in self.offices.to_relieve().to_vec() {
                if !self.offices.is_being_relieved(office) {
                    self.propose_office(OfficeEntry::Relieved(office));
                }
            }
        }
        if in_office {
            self.change_to_wanted(actions);
            self.raise_to_wanted(now);
        }
        let is_asked = self.leadership.as_ref().is_some_and(|leads| leads.is_asked_to_hand_over);
        if (!self.may_serve() || is_asked) && self.node.raft.commit_to_current_term() {
            self.hand_over(now);
        }
    }

    fn drop_values(&mut self, actions: &mut Vec<Action>) {
        if self.role != Role::Witness {
            return;
        }
        let upto =
            self.stable.droppable(&self.offices, self.id, self.leadership.is_some()).min(self.committed);
        if upto > self.dropped {
            let first = Index(self.dropped.0 + 1);
            self.dropped = upto;
            self.is_whole = false;
            self.node.mut_store().drop_values(first, upto);
            actions.push(Action::DropValues(upto));
        }
    }

    fn answer_reads(&mut self, now: Instant, actions: &mut Vec<Action>) {
        let knows = self.knows_what_is_committed();
        if let Some(leads) = self.leadership.as_mut()
            && knows
        {
            leads.answer_reads(now, self.committed, self.members.current(), actions);
        }
    }
}

/// Tells offices, members and version of an entry of the log.
fn note(
    offices: &mut Offices,
    members: &mut Membership,
    version: &mut GroupVersion,
    index: Index,
    body: Body,
) {
    match body {
        Body::Office(office) => offices.append(index, office),
        Body::Members(target) => members.append(index, Some(target)),
        Body::Settled => members.append(index, None),
        Body::Version(raised) => version.append(index, raised),
        Body::Empty | Body::Command(_) => {}
    }
}

impl std::fmt::Debug for Replica {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Replica").field("id", &self.id).field("term", &self.term()).finish_non_exhaustive()
    }
}
