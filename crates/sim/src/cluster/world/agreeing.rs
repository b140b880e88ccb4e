//! The nodes of a simulated cluster follow etcd, and etcd's faults.

use std::time::Duration;

use placement::{Candidate, Drain, Epoch, place};
use replica::{Configuration, Event, Role};

use super::super::agreement::{Agreement, NODE_TTL, node_id};
use super::super::group::GroupState;
use super::super::node::id_of;
use super::{ETCD, What, World};

/// The most nodes of a run whose drives are not lost.
const MAX_NODES: usize = 14;
/// The longest pause between two rounds in which a node follows etcd.
const ROUND_US: u64 = 40_000;
/// The time for which a node stays drained.
const DRAINED: Duration = Duration::from_millis(600);
/// The longest time between a restore of etcd and the raise of the epoch, and that for which etcd is gone.
const UNRAISED_US: u64 = 100_000;
const GONE_US: u64 = 800_000;
/// The longest pause between two backups of etcd.
const BACKUP_US: u64 = 800_000;

impl World {
    /// Creates the cluster: its first nodes, and the plans of its groups.
    pub(super) fn create_cluster(&mut self, copies: usize) {
        let nodes: Vec<Agreement> =
            (0..=2 * copies).map(|number| Agreement::new(number, self.rules)).collect();
        let candidate = |of: &Agreement| Candidate::new(of.node(), &of.value());
        let candidates: Vec<Candidate> = nodes.iter().map(candidate).collect();
        let groups = u32::try_from(self.faults.groups).expect("a run has few groups");
        let plans = place(&candidates, groups, copies).expect("2K + 1 nodes take every role");
        for of in &nodes {
            self.etcd.register(of.node(), &of.value(), self.now.after(NODE_TTL));
        }
        for (group, plan) in plans.iter().enumerate() {
            self.groups.push(GroupState::new(group, plan));
            self.etcd.write_want(id_of(group), plan, None);
        }
        nodes.iter().for_each(|_| self.add_node());
    }

    /// A round in which a node follows etcd.
    pub(super) fn agree(&mut self, node: usize) {
        if self.nodes.get(node).is_none_or(|of| of.is_lost) {
            return;
        }
        self.after_us(ROUND_US, What::Agree { node });
        self.visit(node, |_| {});
        self.etcd.end_leases(self.now);
        let reaches = [(node, ETCD), (ETCD, node)].iter().all(|pair| !self.cut.contains(pair));
        let etcd = (reaches && !self.etcd.is_gone()).then_some(&mut self.etcd);
        let parts = self.nodes.get_mut(node).zip(self.agreements.get_mut(node));
        let Some((of, agreement)) = parts.filter(|(of, _)| of.is_free(self.now)) else { return };
        let (life, round) = (of.life, agreement.round(self.now, of, etcd, (&mut self.rng, &self.faults)));
        match round {
            Ok(round) => {
                self.ended.counts.joined += round.joined;
                self.ended.counts.deleted += round.deleted;
                if round.deleted > 0 && self.rng.below(self.faults.cut_deletions) == 0 {
                    (0..self.nodes.len()).for_each(|node| self.die(node));
                }
                if round.lacking > 0 {
                    self.add_spare_node();
                }
                if round.is_cut_short {
                    self.ended.counts.cut_short += 1;
                    self.die(node);
                }
            }
            Err(_) if self.nodes.get(node).is_some_and(|of| of.has_bad_drive) => {
                self.after_us(10_000, What::Die { node, life });
            }
            // The drive has no room now.
            Err(_) => {}
        }
        for state in &mut self.groups {
            if let Some(plan) = self.etcd.plan(state.id()) {
                state.planned = placement::configuration(&plan);
            }
        }
        self.visit(node, |_| {});
    }

    /// Adds a node, unless there are many, or another new one has not heard of the cluster yet.
    fn add_spare_node(&mut self) {
        let live = self.nodes.iter().filter(|node| !node.is_lost).count();
        let is_new = |of: &Agreement| of.epoch().is_none();
        if live < MAX_NODES && !self.agreements.iter().any(is_new) {
            self.add_node();
        }
    }

    /// An operator has a node's replicas replaced for a time, where no change of its groups is under way.
    pub(super) fn drain(&mut self, node: usize) {
        let has = |group: &GroupState| group.has_member(&self.nodes, node);
        let is_quiet = |group: &GroupState| !has(group) || group.has_planned_members();
        let is_there = self.nodes.get(node).is_some_and(|of| !of.is_lost);
        if is_there && !self.etcd.is_gone() && self.groups.iter().any(has) && self.groups.iter().all(is_quiet)
        {
            self.ended.counts.drains += 1;
            self.etcd.set_drain(node_id(node), Some(Drain { is_last: false }));
            self.after(DRAINED, What::Undrain { node });
        }
    }

    /// A drained node may have replicas again, as soon as etcd takes that.
    pub(super) fn undrain(&mut self, node: usize) {
        if self.etcd.is_gone() {
            return self.after(DRAINED, What::Undrain { node });
        }
        if self.nodes.get(node).is_some_and(|of| !of.is_lost) {
            self.etcd.set_drain(node_id(node), None);
        }
    }

    /// An operator says every second time that a node whose drive is lost is gone for good.
    pub(super) fn declare_gone(&mut self, node: usize) {
        if self.rng.chance(50) && !self.etcd.is_gone() {
            self.etcd.set_drain(node_id(node), Some(Drain { is_last: true }));
        }
    }

    /// Etcd answers nothing for a time.
    pub(super) fn lose_etcd(&mut self) {
        if !self.etcd.is_gone() {
            self.ended.counts.etcd_outages += 1;
            self.etcd.vanish();
            self.after_us(GONE_US, What::EtcdReturns);
        }
    }

    pub(super) fn return_etcd(&mut self) {
        self.etcd.come_back(self.now, NODE_TTL);
    }

    pub(super) fn back_up_etcd(&mut self) {
        self.etcd.back_up();
        self.after_us(BACKUP_US, What::BackUpEtcd);
    }

    /// An operator restores etcd from its last backup, and raises the epoch a moment later.
    pub(super) fn restore_etcd(&mut self) {
        let known = |group| {
            let replicas = self.nodes.iter().filter_map(|node| node.group(group));
            let last =
                replicas.map(|group| group.with_replica(|replica| replica.state().state.last_replica.0));
            last.max().unwrap_or_default()
        };
        let known: Vec<u64> = (0..self.groups.len()).map(known).collect();
        if self.etcd.restore(self.now, NODE_TTL, &known) {
            self.ended.counts.etcd_restores += 1;
            self.after_us(UNRAISED_US, What::RaiseEpoch);
        }
    }

    pub(super) fn raise_epoch(&mut self) {
        let remembered = self.agreements.iter().filter_map(Agreement::epoch).max();
        self.etcd.raise_epoch(remembered.unwrap_or(Epoch(1)));
    }

    /// The leader of a group with one backup is asked for members without it, which it is to refuse. No plan says so.
    pub(super) fn ask_for_no_backups(&mut self, group: usize) {
        let Some(leader) = self.leader(group) else { return };
        let Some(state) = self.groups.get(group).filter(|state| state.has_planned_members()) else { return };
        let members = &state.members.0;
        if members.backups().count() != 1 {
            return;
        }
        let witnesses = members.voters().filter(|(_, role)| *role == Role::Witness);
        let target = Configuration::new(witnesses);
        self.visit(leader, |node| {
            if let Some(group) = node.group(group) {
                group.tell(Event::Change(target));
            }
        });
    }
}
