//! The faults of a simulated cluster, as they happen.

use std::time::Duration;

use replica::{Event, Version};
use zoned::emu::{FaultOp, FaultSpec};

use super::super::faults::Fault;
use super::{ETCD, T, What, World};

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
        match self.faults.draw(&mut self.rng) {
            Fault::PowerCut => self.die(node),
            Fault::PowerCutEverywhere => (0..self.nodes.len()).for_each(|node| self.die(node)),
            Fault::CutOff => {
                let (from, to) = [(true, true), (true, false), (false, true)]
                    .get(self.rng.index(3))
                    .copied()
                    .unwrap_or_default();
                let etcd = self.rng.chance(50).then_some(ETCD);
                for other in (0..self.nodes.len()).chain(etcd) {
                    self.cut.extend(from.then_some((node, other)));
                    self.cut.extend(to.then_some((other, node)));
                }
            }
            Fault::Parted => self.cut.extend([(node, other), (other, node)]),
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
            Fault::Drain => {
                self.drain(node);
                if self.rng.chance(30) {
                    self.drain(other);
                }
            }
            Fault::DrainOldLeader => {
                let Some(leader) = self.leader(group) else { return };
                self.hand_over(group, leader);
                self.after_us(40_000, What::Drain { node: leader });
            }
            Fault::WithoutBackups => self.ask_for_no_backups(group),
            Fault::DriveLost => self.lose_drive(node),
            Fault::DriveError => self.fail_drive(node),
            Fault::Finalize => self.programs.wanted = Version::NEWEST,
            Fault::EtcdGone => self.lose_etcd(),
            Fault::EtcdRestored => self.restore_etcd(),
        }
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
        self.cut.insert((leader, node));
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

    /// A drive is lost, unless too many are lost already.
    fn lose_drive(&mut self, node: usize) {
        let is_member = self.groups.iter().any(|group| group.has_member(&self.nodes, node));
        let Some(of) = self.nodes.get(node).filter(|_| is_member) else { return };
        if self.groups.iter().all(|group| group.may_lose(of, &self.nodes)) {
            self.ended.counts.drives_lost += 1;
            let empty = self.new_drive.clone().filter(|_| self.rules.keeps_names());
            let Some(of) = self.nodes.get_mut(node) else { return };
            if let Some(empty) = empty {
                of.replace_drive(empty);
                return self.start(node);
            }
            of.lose();
            self.declare_gone(node);
        }
    }
}
