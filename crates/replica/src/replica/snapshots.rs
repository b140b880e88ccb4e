//! Snapshots: what a replica does that lacks entries which no log has any more, and how entries are retired.

use raft::eraftpb::{Message as RaftMessage, MessageType, Snapshot};
use raft::{ProgressState, SnapshotStatus, Storage as _};
use units::Instant;

use super::Replica;
use crate::base::Base;
use crate::entry::lacks_value;
use crate::event::{Action, Message};
use crate::version::GroupVersion;
use crate::{Index, Membership, Offices, ReplicaId, Role};

impl Replica {
    /// A snapshot came. Returns it if the log holds it: Raft gets it at once. Else the tables are to be got first.
    pub(super) fn receive_snapshot(
        &mut self,
        message: Box<Message>,
        actions: &mut Vec<Action>,
    ) -> Option<Box<Message>> {
        let base = Base::of_snapshot(message.raft.get_snapshot())?;
        let (log, rules) = (&self.node.raft.raft_log, self.settings.rules());
        if message.raft.term < self.node.raft.term
            || base.index.0 <= log.committed
            || rules.takes_snapshots_early()
            || log.match_term(base.index.0, base.term.0)
        {
            return Some(message);
        }
        // The log that goes may have the values that a witness keeps for its office: it gets all of them.
        let keeps_values =
            self.role == Role::Backup || (base.keeps_values(self.id) && !rules.gives_offices_no_values());
        // A leader has the values above its stable index; older ones are with backups, and with a leader that is whole.
        let from = Some(ReplicaId(message.raft.from)).filter(|_| !keeps_values || message.is_whole);
        let backups = base.state.members.backups().filter(|id| *id != self.id);
        let sources = from.into_iter().chain(backups).collect();
        let values_above = if keeps_values { Index::default() } else { message.stable };
        if self.install.begin(message, &base) {
            // Records without values take the places of older ones.
            self.is_whole &= keeps_values;
            actions.push(Action::Install { index: base.index, sources, values_above });
        }
        None
    }

    /// Raft took a snapshot: the log begins behind it. Returns the base, which is to be made durable.
    pub(super) fn take_over(&mut self, number: u64, snapshot: &Snapshot) -> Option<Base> {
        let base = Base::of_snapshot(snapshot).filter(|base| base.index > Index::default())?;
        self.node.mut_store().begin_behind(&base);
        self.members = Membership::new(base.state.members.clone(), base.state.since);
        self.version = GroupVersion::new(base.state.version);
        self.offices = Offices::new(&self.settings, base.state.offices.iter().copied());
        self.known = base.index;
        self.committed = self.committed.max(base.index);
        // A backup's snapshot may be above the stable index.
        if self.settings.rules().takes_snapshots_for_stable() {
            self.stable.learn(base.index);
        }
        self.dropped = self.dropped.max(base.index);
        self.is_whole &= self.role == Role::Backup || base.keeps_values(self.id);
        self.taken_over = Some((number, base.index));
        self.counts.snapshots_taken += 1;
        Some(base)
    }

    /// Everything up to a request is durable: a snapshot that it had counts as applied.
    pub(super) fn taken_over(&mut self, number: u64) {
        if let Some((_, index)) = self.taken_over.take_if(|(of, _)| *of <= number) {
            self.apply_to(index);
        }
    }

    /// A backup gets a snapshot instead of entries without their values.
    pub(super) fn with_values(&mut self, message: RaftMessage) -> Option<RaftMessage> {
        let to_witness = self.members.current().member(ReplicaId(message.to)) == Some(Role::Witness);
        if to_witness || !message.entries.iter().any(lacks_value) {
            return Some(message);
        }
        let snapshot = self.node.store().snapshot(message.index + 1, message.to);
        let progress = self.node.raft.mut_prs().get_mut(message.to)?;
        let Ok(snapshot) = snapshot else {
            // The entry is not applied yet: the next heartbeat's acknowledgement lets Raft try again.
            progress.become_probe();
            progress.pause();
            return None;
        };
        progress.become_snapshot(snapshot.get_metadata().index);
        let RaftMessage { from, to, term, .. } = message;
        let mut message =
            RaftMessage { msg_type: MessageType::MsgSnapshot, from, to, term, ..RaftMessage::default() };
        message.set_snapshot(snapshot);
        Some(message)
    }

    /// The snapshot was sent to a replica that has acknowledged a heartbeat since: it is sent again with a later one, in case it was lost.
    pub(super) fn repeat_snapshot(&mut self, to: ReplicaId) {
        let progress = self.node.raft.prs().get(to.0);
        if progress.is_some_and(|of| of.state == ProgressState::Snapshot) {
            self.node.report_snapshot(to.0, SnapshotStatus::Failure);
        }
    }

    /// Entries go that are durable in the tables and stable, and that no replica needs which takes a snapshot.
    pub(super) fn retire(&mut self, now: Instant, actions: &mut Vec<Action>) {
        let index = self.flushed;
        let applied = Index(self.node.raft.raft_log.applied);
        let leads = self.leadership.as_ref();
        let kept = leads.and_then(|leads| leads.kept_from(now, self.settings.election_timeout));
        let stable = if self.settings.rules().retires_unstable() { index } else { self.stable.get() };
        let upto = index.min(applied).min(stable).min(kept.unwrap_or(index));
        if upto > self.node.store().base() {
            let mut base = self.node.mut_store().retire(upto);
            if self.settings.rules().writes_newest_base() {
                base.state.version = self.settings.speaks;
                base.state.last_replica = base.state.members.last_replica();
            }
            actions.push(Action::Retire(base));
        }
    }
}
