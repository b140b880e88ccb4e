//! A term in which a replica leads.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use units::Instant;

use crate::event::{Action, ProposalId, ReadId};
use crate::{Configuration, Index, LeaderLease, ReplicaId, Settings, Term, Version};

/// Rounds of heartbeats in the time of one, at most, for reads without a lease.
const READ_ROUNDS: u32 = 10;

/// The state of a replica that it has only while it leads, for one term.
#[derive(Debug)]
pub(super) struct Leadership {
    pub term: Term,
    pub lease: LeaderLease,
    /// When the term began.
    pub began: Instant,
    /// The process asked that another replica leads.
    pub is_asked_to_hand_over: bool,
    /// The witness that is to take over, and no other one.
    pub successor: Option<ReplicaId>,
    /// When a handing over began.
    pub handed_over: Option<Instant>,
    /// The index of the leader's office in the log, if it took one.
    pub office: Option<Index>,
    /// The voters that the group is to have.
    pub wanted: Option<Configuration>,
    /// The version that the group is to have at least.
    pub wanted_version: Version,
    /// The newest version that each replica's program speaks, by its last acknowledgement, with the time at which the acknowledged heartbeat was sent.
    spoken: BTreeMap<ReplicaId, (Instant, Version)>,
    /// The replicas that take snapshots, the index of the first one, and when one was sent last.
    installing: BTreeMap<ReplicaId, (Index, Instant)>,
    heartbeat: Duration,
    last_heartbeat: Instant,
    next_heartbeat: Instant,
    /// Commands that are not committed yet.
    proposals: BTreeMap<Index, ProposalId>,
    /// Reads that wait, and when they came.
    reads: Vec<(ReadId, Instant)>,
    /// The last question for the commit index of each backup.
    pub inquiries: BTreeMap<ReplicaId, u64>,
    /// The replicas whose drives near full, by their last acknowledgements.
    pub lacking_room: BTreeSet<ReplicaId>,
}

impl Leadership {
    /// The leadership of a term that begins at `now`.
    pub(super) fn new(settings: &Settings, leader: ReplicaId, term: Term, now: Instant) -> Leadership {
        Leadership {
            term,
            lease: LeaderLease::new(settings, leader, now),
            began: now,
            is_asked_to_hand_over: false,
            successor: None,
            handed_over: None,
            office: None,
            wanted: None,
            wanted_version: Version::FIRST,
            spoken: BTreeMap::new(),
            installing: BTreeMap::new(),
            heartbeat: settings.heartbeat,
            last_heartbeat: now,
            next_heartbeat: now,
            proposals: BTreeMap::new(),
            reads: Vec::new(),
            inquiries: BTreeMap::new(),
            lacking_room: BTreeSet::new(),
        }
    }

    /// When the next heartbeat is due.
    pub(super) fn next_heartbeat(&self) -> Instant {
        self.next_heartbeat
    }

    /// A heartbeat is sent.
    pub(super) fn sends_heartbeat(&mut self, now: Instant) {
        self.last_heartbeat = now;
        self.next_heartbeat = now.after(self.heartbeat);
    }

    /// The command of the log's entry at `index` was proposed.
    pub(super) fn proposed(&mut self, index: Index, proposal: ProposalId) {
        self.proposals.insert(index, proposal);
    }

    /// The log is committed up to `last`, an entry of `term`. An entry of another term may have replaced a proposed one.
    pub(super) fn committed(&mut self, last: Index, term: Term, actions: &mut Vec<Action>) {
        if term == self.term {
            let later = self.proposals.split_off(&Index(last.0 + 1));
            let committed = std::mem::replace(&mut self.proposals, later);
            actions
                .extend(committed.into_iter().map(|(index, proposal)| Action::Acknowledge(proposal, index)));
        }
    }

    /// A snapshot is sent, perhaps again.
    pub(super) fn sends_snapshot(&mut self, now: Instant, to: ReplicaId, index: Index) {
        let (_, sent) = self.installing.entry(to).or_insert((index, now));
        *sent = now;
    }

    /// `matched`: the index up to which a replica holds the log.
    pub(super) fn end_snapshots(&mut self, matched: impl Fn(ReplicaId) -> Index) {
        self.installing.retain(|id, (index, _)| matched(*id) < *index);
    }

    /// The index from which on the log is kept for replicas that take snapshots: those to which one was sent in the last while.
    pub(super) fn kept_from(&self, now: Instant, while_long: Duration) -> Option<Index> {
        let lately = self.installing.values().filter(|(_, sent)| now.since(*sent) < while_long);
        lately.map(|(index, _)| *index).min()
    }

    /// A client wants to read.
    pub(super) fn read(&mut self, now: Instant, read: ReadId, voters: &Configuration) {
        self.reads.push((read, now));
        if !self.lease.lasts(now, voters) {
            // A heartbeat that is sent later than the read came answers it, and all that came meanwhile.
            let soon = self.last_heartbeat.after(self.heartbeat / READ_ROUNDS);
            self.next_heartbeat = self.next_heartbeat.min(soon.max(now.after(Duration::from_nanos(1))));
        }
    }

    /// A replica acknowledged a heartbeat and said whether its drive nears full.
    pub(super) fn notes_room(&mut self, replica: ReplicaId, lacks: bool) {
        if lacks {
            self.lacking_room.insert(replica);
        } else {
            self.lacking_room.remove(&replica);
        }
    }

    /// A replica acknowledged the heartbeat that was sent at `sent`, and said the newest version that its program speaks.
    pub(super) fn notes_version(&mut self, replica: ReplicaId, sent: Instant, version: Option<Version>) {
        let is_later = self.spoken.get(&replica).is_none_or(|(last, _)| *last <= sent);
        if let Some(version) = version.filter(|_| is_later) {
            self.spoken.insert(replica, (sent, version));
        }
    }

    /// True if the replica has acknowledged a heartbeat that was sent after `after`, and its program spoke `version` then.
    pub(super) fn has_said_to_speak(&self, replica: ReplicaId, version: Version, after: Instant) -> bool {
        self.spoken.get(&replica).is_some_and(|(sent, speaks)| *sent > after && *speaks >= version)
    }

    /// Answers reads under the lease, or, where there is none, once a majority has acknowledged a heartbeat that was sent after the read came: then no other replica was elected before it. `index`: what is committed, an entry of this term among it.
    pub(super) fn answer_reads(
        &mut self,
        now: Instant,
        index: Index,
        voters: &Configuration,
        actions: &mut Vec<Action>,
    ) {
        if self.reads.is_empty() {
            return;
        }
        let by_lease = self.lease.lasts(now, voters);
        let confirmed = self.lease.confirmed_at(voters);
        self.reads.retain(|(read, came)| {
            let answered = by_lease || *came < confirmed;
            actions.extend(answered.then_some(Action::Answer { read: *read, index, by_lease }));
            !answered
        });
    }

    /// The replica leads no more, or not in this term.
    pub(super) fn ends(self, actions: &mut Vec<Action>) {
        actions.extend(self.proposals.into_values().map(Action::LoseProposal));
        actions.extend(self.reads.into_iter().map(|(read, _)| Action::RefuseRead(read, None)));
    }
}
