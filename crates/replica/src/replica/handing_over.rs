//! A leader that hands leadership over: when it may, and to which replica.

use std::time::Duration;

use raft::{INVALID_ID, ProgressState};
use units::Instant;

use super::Replica;
use super::leadership::Leadership;
use crate::{ReplicaId, Role};

/// Heartbeats without an acknowledgement after which a replica counts as one that does not answer.
const HEARTBEATS_MISSED: u32 = 4;

impl Replica {
    /// True if the replica has led for a time, has every value, and could hand over to this other witness at once: the witness has everything committed, but for entries on their way, answers, and has room; no change of members is under way.
    pub fn could_hand_over_to(&self, successor: ReplicaId, now: Instant, led_for: Duration) -> bool {
        let Some(leads) = self.leadership.as_ref().filter(|_| self.serves() && self.is_whole_copy()) else {
            return false;
        };
        let is_witness = self.members.current().role(successor) == Some(Role::Witness);
        let is_settled = !self.members.is_changing() && !self.members.current().is_joint();
        let patience = self.settings.heartbeat * HEARTBEATS_MISSED;
        let answers = |leads: &Leadership| {
            leads.lease.acknowledged_by(successor).is_some_and(|sent| now.since(sent) <= patience)
        };
        let progress = self.node.raft.prs().get(successor.0);
        let is_caught_up = progress.is_some_and(|of| of.state == ProgressState::Replicate);
        successor != self.id
            && is_witness
            && is_settled
            && is_caught_up
            && leads.wanted.is_none()
            && leads.handed_over.is_none()
            && now.since(leads.began) >= led_for
            && answers(leads)
            && !leads.lacking_room.contains(&successor)
            && self.holds_lease(now)
    }

    /// The process asks that another replica leads: the successor, or any witness.
    pub(super) fn is_to_hand_over(&mut self, successor: Option<ReplicaId>) {
        if let Some(leads) = &mut self.leadership {
            (leads.is_asked_to_hand_over, leads.successor) = (true, successor);
        }
    }

    /// Begins to hand leadership over to a witness that has everything committed, or sees to it that it ends: a leader that is still there one election timeout later steps down, because it has had no lease since. Raft takes no proposals meanwhile, and sends the witness what it lacks.
    pub(super) fn hand_over(&mut self, now: Instant) {
        let Some(leads) = self.leadership.as_mut() else { return };
        if let Some(began) = leads.handed_over {
            if now.since(began) >= self.settings.election_timeout {
                self.node.raft.become_follower(self.node.raft.term, INVALID_ID);
            }
            return;
        }
        let progress = self.node.raft.prs();
        let witnesses =
            self.members.current().voters().filter(|(id, role)| *role == Role::Witness && *id != self.id);
        let successor = leads.successor;
        let witnesses = witnesses.filter(|(id, _)| self.members.stays(*id));
        let witnesses = witnesses.filter(|(id, _)| successor.is_none_or(|successor| successor == *id));
        let committed = self.committed;
        let has_all = |id: &ReplicaId| progress.get(id.0).is_some_and(|of| of.matched >= committed.0);
        let ready: Vec<ReplicaId> = witnesses.map(|(id, _)| id).filter(has_all).collect();
        let place = self.chance.draw() % ready.len().max(1) as u64;
        let Some(chosen) = usize::try_from(place).ok().and_then(|place| ready.get(place)) else { return };
        leads.lease.hand_over();
        leads.handed_over = Some(now);
        self.node.transfer_leader(chosen.0);
    }
}
