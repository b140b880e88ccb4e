//! The faults of a simulated cluster, as they happen.

use std::time::Duration;

use replica::{Configuration, Event, ReplicaId, Role, Version};
use zoned::emu::{FaultOp, FaultSpec};

use super::super::faults::Fault;
use super::super::node::Node;
use super::{T, What, World, leads};

/// The most nodes that a run has, unless drives are lost.
const MAX_NODES: usize = 14;
/// The time for which a group is asked for new members.
const CHANGE_TIME: Duration = Duration::from_secs(1);
/// The most operations of a drive that succeed before one fails.
const BEFORE_ERROR: u64 = 20;

impl World {
    pub(super) fn break_something(&mut self) {
        let pause = self.faults.pause;
        self.after_us(2 * u64::try_from(pause.as_micros()).unwrap_or(1), What::Fault);
        self.ended.counts.faults += 1;
        let node = self.rng.index(self.nodes.len());
        let other = self.rng.index(self.nodes.len());
        let group = self.rng.index(self.groups.len());
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
            Fault::HandOver => self.hand_over(group, node),
            Fault::VoteBesideLease => {
                let Some(leader) = self.leader(group) else { return };
                let time = self.deafen(leader, node);
                self.after(time, What::CutOff { node: leader, until: 2 * T });
            }
            Fault::RestartBesideLease => {
                let Some(leader) = self.leader(group).filter(|leader| *leader != node) else { return };
                let time = self.deafen(leader, node);
                self.after(time, What::CutOffAndRestart { leader, candidate: node });
            }
            Fault::HandOverCutOff => {
                let Some(leader) = self.leader(group) else { return };
                self.hand_over(group, leader);
                self.after_us(2_000, What::CutOff { node: leader, until: 2 * T });
            }
            Fault::ReadAfterCutOff => self.read_after_cut_off(),
            Fault::OldLeaderReturns => self.return_old_leader(group),
            Fault::Replace => self.replace(group, node),
            Fault::ReplaceOldLeader => {
                let Some(leader) = self.leader(group) else { return };
                self.hand_over(group, leader);
                self.after_us(40_000, What::Replace { group, node: leader });
            }
            Fault::WithoutBackups => self.ask_for_no_backups(group),
            Fault::DriveLost => self.lose_drive(node),
            Fault::DriveError => self.fail_drive(node),
            Fault::Finalize => self.programs.wanted = Version::NEWEST,
        }
        self.ask_for_members();
    }

    /// The leader of the group that was written last is cut off, and all clients read what was written.
    fn read_after_cut_off(&mut self) {
        let Some(object) = self.clients.written else { return };
        let Some(leader) = self.leader(object.group) else { return };
        self.clients.focus = Some((object, self.now.after(3 * T)));
        self.cut_off(leader);
        self.after(3 * T, What::EndCuts);
        self.hurry_clients(T);
    }

    /// The leader is cut off while clients write to it, until another one leads.
    fn return_old_leader(&mut self, group: usize) {
        let Some(leader) = self.leader(group) else { return };
        self.cut_off(leader);
        self.clients.each.iter_mut().for_each(|client| client.node = leader);
        self.hurry_clients(Duration::ZERO);
        let pause = T + Duration::from_micros(self.rng.below(100_000));
        self.after(pause, What::OldLeaderReturns { group });
    }

    /// The clients that wait for nothing ask again after a pause.
    fn hurry_clients(&mut self, pause: Duration) {
        for client in 0..self.clients.each.len() {
            let is_idle = self.clients.each.get(client).is_some_and(|client| client.under_way.is_none());
            let pause = pause + Duration::from_micros(self.rng.below(20_000));
            if is_idle {
                self.next_turn(client, pause);
            }
        }
    }

    pub(super) fn leader(&self, group: usize) -> Option<usize> {
        self.groups.get(group).and_then(|group| group.leader(&self.nodes))
    }

    fn hand_over(&mut self, group: usize, node: usize) {
        self.visit(node, |node| {
            if let Some(group) = node.group(group) {
                group.tell(Event::HandOver);
            }
        });
    }

    /// A node hears no more of the leader. Returns about an election timeout.
    fn deafen(&mut self, leader: usize, node: usize) -> Duration {
        self.cut.insert((ReplicaId(leader as u64 + 1), ReplicaId(node as u64 + 1)));
        T * 4 / 5 + Duration::from_micros(self.rng.below(60_000))
    }

    /// One of the next operations of a drive fails, with or without effect.
    fn fail_drive(&mut self, node: usize) {
        let operation = if self.rng.chance(70) { FaultOp::Write } else { FaultOp::Flush };
        let after = self.rng.below(BEFORE_ERROR);
        let fault = FaultSpec { after, landed: self.rng.chance(50), ..FaultSpec::next(operation) };
        if let Some(node) = self.nodes.get_mut(node) {
            node.fail_drive(fault);
        }
    }

    /// A new replica is to take the place of a member.
    pub(super) fn replace(&mut self, group: usize, node: usize) {
        let Some((gone, roles)) = self.nodes.get(node).map(|node| (node.id(), node.roles().to_vec())) else {
            return;
        };
        let Some((state, role)) = self.groups.get(group).zip(roles.get(group).copied()) else { return };
        let members = &state.members.0;
        let is_free = state.wanted.is_none() && !members.is_joint() && self.nodes.len() < MAX_NODES;
        let is_member = members.role(gone).is_some();
        if is_free && is_member && state.lost_members(&self.nodes).is_empty() {
            let new = self.add_node(roles);
            let target = self.members_with(group, gone, (new, role));
            self.want(group, target);
        }
    }

    fn want(&mut self, group: usize, target: Option<Configuration>) {
        let until = self.now.after(CHANGE_TIME);
        if let Some(state) = self.groups.get_mut(group) {
            state.wanted = target.map(|target| (target, until));
        }
    }

    /// The leader of a group with one backup is asked for a witness in the backup's place.
    fn ask_for_no_backups(&mut self, group: usize) {
        let Some(leader) = self.leader(group) else { return };
        let Some(state) = self.groups.get(group) else { return };
        let backups: Vec<ReplicaId> = state.members.0.backups().collect();
        let [backup] = backups[..] else { return };
        if state.members.0.is_joint() || state.wanted.is_some() || self.nodes.len() >= MAX_NODES {
            return;
        }
        let new = self.add_node(vec![Role::Witness; self.groups.len()]);
        let Some(target) = self.members_with(group, backup, (new, Role::Witness)) else { return };
        self.visit(leader, |node| {
            if let Some(group) = node.group(group) {
                group.tell(Event::Change(target));
            }
        });
    }

    /// A drive is lost, unless too many are lost already. New replicas are to take the places of those that are gone.
    fn lose_drive(&mut self, node: usize) {
        let Some(id) = self.nodes.get(node).map(Node::id) else { return };
        let is_member = self.groups.iter().any(|group| group.members.0.role(id).is_some());
        if is_member && self.groups.iter().all(|group| group.may_lose(id, &self.nodes)) {
            if let Some(node) = self.nodes.get_mut(node) {
                node.lose();
            }
            self.ended.counts.drives_lost += 1;
            self.replace_lost();
        }
    }

    /// The groups are asked for new replicas in the places of those whose drives are lost.
    pub(super) fn replace_lost(&mut self) {
        for place in 0..self.groups.len() {
            let Some(group) = self.groups.get(place) else { return };
            let lost = group.lost_members(&self.nodes);
            if lost.is_empty() || group.wanted.is_some() || group.members.0.is_joint() {
                continue;
            }
            let members: Vec<(ReplicaId, Role)> = group.members.0.voters().collect();
            let mut target = Vec::new();
            for (id, role) in members {
                if lost.contains(&id) {
                    let new = self.replacement(place, (id, role), &target);
                    target.push((new, role));
                } else {
                    target.push((id, role));
                }
            }
            self.want(place, Some(Configuration::new(target)));
        }
        self.ask_for_members();
    }

    /// The replica that takes the place of a lost one: one with a later number than any of the group had, or one of a new node.
    fn replacement(
        &mut self,
        place: usize,
        (gone, role): (ReplicaId, Role),
        taken: &[(ReplicaId, Role)],
    ) -> ReplicaId {
        let is_free = |node: &&Node| {
            let id = node.id();
            let is_new = self.groups.get(place).is_some_and(|group| id > group.last_replica);
            !node.is_lost && node.role(place) == Some(role) && is_new && taken.iter().all(|(of, _)| *of != id)
        };
        if let Some(free) = self.nodes.iter().rev().find(is_free) {
            return free.id();
        }
        let roles = self.nodes.iter().find(|node| node.id() == gone).map(|node| node.roles().to_vec());
        self.add_node(roles.unwrap_or_default())
    }

    /// Each leader is asked for the members that its group is to have.
    pub(super) fn ask_for_members(&mut self) {
        for place in 0..self.groups.len() {
            let Some(group) = self.groups.get_mut(place) else { return };
            let Some((wanted, until)) = group.wanted.clone() else { continue };
            if self.now >= until || group.members.0 == wanted {
                group.wanted = None;
                continue;
            }
            for node in 0..self.nodes.len() {
                self.visit(node, |node| {
                    if let Some(group) = node.group(place).filter(|group| leads(group)) {
                        group.tell(Event::Change(wanted.clone()));
                    }
                });
            }
        }
    }
}
