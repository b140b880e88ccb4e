//! The raise of a group to a newer version, and the refusal of versions that are too new for a replica's program.

use raft::eraftpb::MessageType;
use units::Instant;

use super::Replica;
use crate::base::Base;
use crate::entry::{Body, raises_to};
use crate::event::Message;
use crate::{TooOld, Version};

impl Replica {
    /// The group's version, as far as the replica has applied its log.
    pub fn version(&self) -> Version {
        self.version.get()
    }

    /// The group is to be at `version` at least.
    pub(super) fn want_version(&mut self, version: Version) {
        if let Some(leads) = &mut self.leadership {
            leads.wanted_version = leads.wanted_version.max(version);
        }
    }

    /// Proposes the version that the group is to have, once each member has said within the last election timeout that its program speaks that version. A member that has gone back to an older program since ends, and takes nothing of the version; the newer program goes on there.
    pub(super) fn raise_to_wanted(&mut self, now: Instant) {
        let Some(leads) = &self.leadership else { return };
        let wanted = leads.wanted_version;
        if wanted <= self.version.of_log() || wanted > self.settings.speaks || self.members.is_changing() {
            return;
        }
        let members = self.members.current();
        let timeout = u64::try_from(self.settings.election_timeout.as_nanos()).unwrap_or(u64::MAX);
        let after = Instant(now.0.saturating_sub(timeout));
        let mut all = members.voters().chain(members.learners());
        let all_speak = all.all(|(id, _)| id == self.id || leads.has_said_to_speak(id, wanted, after));
        if all_speak || self.settings.rules().raises_unasked() {
            // Raft takes each entry of a leader.
            self.node.propose(Vec::new(), Body::Version(wanted).encode()).ok();
        }
    }

    /// The version that a message of this kind carries.
    pub(super) fn version_in(&self, kind: MessageType) -> Option<Version> {
        match kind {
            MessageType::MsgHeartbeat => Some(self.version.get()),
            MessageType::MsgHeartbeatResponse => Some(self.settings.speaks),
            _ => None,
        }
    }

    /// Checks that the program speaks what a message has, before anything of it is taken.
    pub(super) fn check_version(&self, message: &Message) -> Result<(), TooOld> {
        let of_group = match message.raft.msg_type {
            MessageType::MsgHeartbeat => message.version,
            MessageType::MsgAppend => message.raft.entries.iter().filter_map(raises_to).max(),
            MessageType::MsgSnapshot => {
                Base::of_snapshot(message.raft.get_snapshot()).map(|base| base.state.version)
            }
            _ => None,
        };
        of_group.map_or(Ok(()), |version| TooOld::check(version, self.settings.speaks))
    }
}
