//! A node's part in what the cluster agrees on by etcd, as the process of a real node does it: the node registers, follows the plans, tells who leads, and places where it is elected to.
//!
//! The decisions are those of real processes: [`placement::new_replica`], [`placement::next_step`], [`placement::members_to_ask`], [`placement::without_deleted`], [`placement::upkeep`], [`placement::accepts`].

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use fs::Uuid;
use parking_lot::Mutex;
use placement::{
    Address, ClusterView, Epoch, Offers, Rack, Remembered, Seen, SilentNodes, Step, Want, accepts,
    members_to_ask, new_replica, next_step, upkeep, without_deleted,
};
use replica::{Event, GroupId, Index, NodeId, ReplicaId, Version};
use shard::Group;
use units::{Driver as _, Instant};

use super::etcd::Etcd;
use super::faults::Faults;
use super::node::Node;
use super::rules::ClusterRules;
use crate::Rng;

/// The time without a sign of life after which others see a node as not alive, and after which its replicas are replaced then.
pub(super) const NODE_TTL: Duration = Duration::from_millis(150);
const REPLACE_AFTER: Duration = Duration::from_millis(150);
/// The pause after which a leader is asked again for the members of its group's plan.
const CHANGE_PAUSE: Duration = Duration::from_millis(40);
/// The pause after the cluster's epoch was raised, in which leaders write what their logs say.
const EPOCH_PAUSE: Duration = Duration::from_millis(200);
/// The share, in per cent, of rounds in which a node gets no new view of etcd.
const LATE_PER_CENT: u64 = 20;

/// The answer of other members whether they have left a replica out, once it is there.
type LeftOut = Arc<Mutex<Option<Option<Index>>>>;

/// Numbers of what a node did in a round.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Round {
    /// Replicas that joined a group that has begun.
    pub joined: u64,
    /// Replicas that were left out, and were deleted.
    pub deleted: u64,
    /// The power of the node is to be cut: a creation or a deletion was cut short.
    pub is_cut_short: bool,
    /// Replicas for which the placer found no node.
    pub lacking: usize,
}

/// A node's part in what the cluster agrees on.
pub(super) struct Agreement {
    node: NodeId,
    number: usize,
    rules: ClusterRules,
    /// Kept on the drive: the process's starts, and the last view of etcd.
    starts: u64,
    remembered: Option<Remembered>,
    view: Option<Arc<ClusterView>>,
    /// Of the node's process with this life.
    life: Option<u64>,
    /// The nodes of replicas, as far as the process knows them.
    addresses: BTreeMap<(GroupId, ReplicaId), usize>,
    has_registered: bool,
    asked: BTreeMap<GroupId, LeftOut>,
    change_at: Instant,
    /// Times at which leaders were asked.
    changes: usize,
    /// The last values that were written of the groups that this node leads.
    written: BTreeMap<GroupId, Seen>,
    silent: SilentNodes,
    /// The earliest time at which this node changes plans.
    place_at: Instant,
}

impl Agreement {
    /// The part of the node at a place of the run. The node has not heard of its cluster yet.
    pub(super) fn new(number: usize, rules: ClusterRules) -> Agreement {
        Agreement {
            node: node_id(number),
            number,
            rules,
            starts: 0,
            remembered: None,
            view: None,
            life: None,
            addresses: BTreeMap::new(),
            has_registered: false,
            asked: BTreeMap::new(),
            change_at: Instant::ORIGIN,
            changes: 0,
            written: BTreeMap::new(),
            silent: SilentNodes::default(),
            place_at: Instant::ORIGIN,
        }
    }

    pub(super) fn node(&self) -> NodeId {
        self.node
    }

    /// The highest epoch that the node remembers.
    pub(super) fn epoch(&self) -> Option<Epoch> {
        self.remembered.map(|remembered| remembered.epoch)
    }

    /// The node of a replica, if the process knows it.
    pub(super) fn address(&self, group: GroupId, replica: ReplicaId) -> Option<usize> {
        self.addresses.get(&(group, replica)).copied()
    }

    /// Notes the node that sent a replica's message, where the replica's node is not known yet, as the network of a real process does.
    pub(super) fn note_sender(&mut self, group: GroupId, replica: ReplicaId, node: usize) {
        self.addresses.entry((group, replica)).or_insert(node);
    }

    /// A round of a node that runs. `etcd`: if the node reaches it.
    ///
    /// # Errors
    /// The drive's: the process ends.
    pub(super) fn round(
        &mut self,
        now: Instant,
        of: &mut Node,
        mut etcd: Option<&mut Etcd>,
        (rng, faults): (&mut Rng, &Faults),
    ) -> shard::Result<Round> {
        self.start_process(of.life);
        let mut round = Round::default();
        let is_late = self.view.is_some() && rng.chance(LATE_PER_CENT);
        let mut is_current = etcd.is_some();
        if let Some(etcd) = etcd.as_deref_mut() {
            if !is_late {
                is_current = etcd.load().is_some_and(|view| self.take(view, now));
            }
            if is_current {
                self.stay_registered(etcd, now);
            }
            self.write_leaders(etcd, of);
        }
        let Some(view) = self.view.clone() else { return Ok(round) };
        if is_current {
            self.create(&view, of, (rng, faults.cut_short), &mut round)?;
        }
        self.change_members(&view, of, now);
        if let Some(etcd) = etcd.filter(|_| is_current) {
            self.delete_left_out(&view, of, etcd, (rng, faults.cut_short), &mut round)?;
            self.place(&view, etcd, now, &mut round);
        }
        Ok(round)
    }

    /// A process that has started anew knows what lies on the drive.
    fn start_process(&mut self, life: u64) {
        if self.life.replace(life) == Some(life) {
            return;
        }
        self.starts += 1;
        self.addresses.clear();
        self.has_registered = false;
        self.asked.clear();
        self.written.clear();
        self.silent.forget();
        (self.change_at, self.place_at) = (Instant::ORIGIN, Instant::ORIGIN);
        if let Some(view) = self.view.clone() {
            self.note_addresses(&view);
        }
    }

    fn note_addresses(&mut self, view: &ClusterView) {
        for (group, Want { plan, .. }) in &view.want {
            for member in plan.replicas() {
                let address = self.addresses.entry((*group, member.replica)).or_insert(number(member.node));
                // A plan of an old backup of etcd may name an earlier node, and is better than none.
                if !view.has_old_plan(*group) {
                    *address = number(member.node);
                }
            }
        }
    }

    /// Takes a view of etcd. False: the view is one of an old backup.
    fn take(&mut self, view: Arc<ClusterView>, now: Instant) -> bool {
        let accepted = match &self.remembered {
            None => Some(Remembered {
                cluster: view.meta.cluster(),
                epoch: view.meta.epoch(),
                revision: view.revision,
            }),
            Some(remembered) => accepts(remembered, &view.meta, view.revision).ok(),
        };
        let Some(accepted) = accepted else { return false };
        if self
            .view
            .as_ref()
            .is_some_and(|before| before.revision == view.revision && before.meta == view.meta)
        {
            return true;
        }
        if self.remembered.is_some_and(|before| before.epoch != accepted.epoch) {
            self.written.clear();
            self.silent.forget();
            self.place_at = now.after(EPOCH_PAUSE);
        }
        self.remembered = Some(accepted);
        self.note_addresses(&view);
        self.view = Some(view);
        true
    }

    fn stay_registered(&mut self, etcd: &mut Etcd, now: Instant) {
        let until = now.after(NODE_TTL);
        if !self.has_registered || !etcd.keep_alive(self.node, until) {
            etcd.register(self.node, &self.value(), until);
            self.has_registered = true;
        }
    }

    /// The node's value in etcd.
    pub(super) fn value(&self) -> placement::Node {
        let address = |port| Address::parse(&format!("n{}:{port}", self.number)).expect("a host and a port");
        placement::Node {
            peer: address(7000),
            client: address(6379),
            offers: Offers::ALL,
            rack: Rack::parse(&format!("r{}", self.number % 3)).expect("a letter and a digit"),
            starts: self.starts.max(1),
            speaks: Version::NEWEST,
        }
    }

    /// Writes who leads the groups that this node leads, where that is new.
    fn write_leaders(&mut self, etcd: &mut Etcd, of: &Node) {
        let Some(epoch) = self.epoch() else { return };
        for group in of.groups() {
            let place = group.place();
            let node_of = |id| self.address(place.group, id).map(node_id);
            let seen = group.with_replica(|replica| {
                (replica.leader() == Some(place.replica))
                    .then(|| Seen::of(replica, (self.node, epoch), node_of))
            });
            // A restored etcd may hold an older value than was written.
            let held = self.view.as_ref().and_then(|view| view.seen.get(&place.group));
            if let Some(seen) = seen
                && (self.written.get(&place.group) != Some(&seen) || held != Some(&seen))
            {
                etcd.write_seen(place.group, &seen);
                self.written.insert(place.group, seen);
            }
        }
    }

    /// Creates the replicas that plans have on this node, and that the node has not.
    fn create(
        &self,
        view: &ClusterView,
        of: &mut Node,
        (rng, cut_short): (&mut Rng, u64),
        round: &mut Round,
    ) -> shard::Result<()> {
        for group in view.want.keys() {
            if of.replica(place_of(*group)).is_some() {
                continue;
            }
            let Some((own, base)) = new_replica(view, *group, self.node) else { continue };
            let is_cut_short = rng.chance(cut_short);
            of.create(place_of(*group), (own.replica, own.role), &base, is_cut_short)?;
            if is_cut_short {
                round.is_cut_short = true;
                return Ok(());
            }
            round.joined += u64::from(base.index == Index(0));
        }
        Ok(())
    }

    /// Asks the groups that this node leads for the members of their plans.
    fn change_members(&mut self, view: &ClusterView, of: &Node, now: Instant) {
        if now < self.change_at {
            return;
        }
        self.change_at = now.after(CHANGE_PAUSE);
        self.changes += 1;
        for group in of.groups() {
            let place = group.place();
            let Some(Want { plan, .. }) = view.want.get(&place.group) else { continue };
            let state = group.with_replica(|replica| replica.serves_in().map(|_| replica.state().state));
            let Some(state) = state else { continue };
            match next_step(&state, plan, place.replica) {
                Step::Done | Step::OldPlan => {}
                Step::Change(wanted) => group.tell(Event::Change(wanted)),
                Step::HandOver(witnesses) => {
                    let could = |to| group.could_hand_over_to(to, Duration::ZERO);
                    if let Some(to) = Step::successor(&witnesses, self.changes, could) {
                        group.tell(Event::HandOverTo(to));
                    }
                }
            }
        }
    }

    /// Asks about replicas that the plans have no more, deletes those that their groups have left out, and takes them out of the plans.
    fn delete_left_out(
        &mut self,
        view: &ClusterView,
        of: &mut Node,
        etcd: &mut Etcd,
        (rng, cut_short): (&mut Rng, u64),
        round: &mut Round,
    ) -> shard::Result<()> {
        let mut left_out = Vec::new();
        self.asked.retain(|group, answer| {
            let answer = *answer.lock();
            left_out.extend(answer.flatten().map(|since| (*group, since)));
            answer.is_none()
        });
        for (group, since) in left_out {
            let is_cut_short = rng.chance(cut_short);
            let is_deleted = of.delete(place_of(group), since, is_cut_short)?;
            round.deleted += u64::from(is_deleted);
            round.is_cut_short |= is_deleted && is_cut_short;
        }
        for (group, Want { plan, changed }) in &view.want {
            let present = of.replica(place_of(*group)).map(|(replica, _)| replica);
            let local = of.group(place_of(*group)).cloned();
            if let Some((replica, local)) = present.zip(local)
                && !self.asked.contains_key(group)
                && let Some(others) = members_to_ask(plan, replica)
            {
                self.ask(local, others, of);
            }
            let without = without_deleted(plan, self.node, present);
            if without != *plan {
                etcd.write_want(*group, &without, Some(*changed));
            }
        }
        Ok(())
    }

    fn ask(&mut self, local: Arc<Group>, others: Vec<ReplicaId>, of: &Node) {
        let answer = LeftOut::default();
        self.asked.insert(local.place().group, Arc::clone(&answer));
        if self.rules.deletes_unasked() {
            *answer.lock() = Some(Some(Index(u64::MAX)));
            return;
        }
        let Some(driver) = of.driver() else { return };
        let question = async move {
            let left_out = local.left_out_at(&others).await;
            *answer.lock() = Some(left_out);
        };
        driver.spawn("left out", Box::pin(question));
    }

    /// Does what the cluster needs, where this node is elected to place.
    fn place(&mut self, view: &ClusterView, etcd: &mut Etcd, now: Instant, round: &mut Round) {
        if view.placer != Some(self.node) {
            self.silent.forget();
            if view.placer.is_none() {
                etcd.elect(self.node);
            }
            return;
        }
        if now < self.place_at {
            return;
        }
        let dead = self.silent.dead(view, Duration::from_nanos(now.0), REPLACE_AFTER);
        let needed = upkeep(view, &dead);
        for (group, plan) in &needed.plans {
            etcd.write_want(*group, plan, view.want.get(group).map(|want| want.changed));
        }
        needed.removed.iter().for_each(|node| etcd.remove_node(*node));
        round.lacking = needed.lacking.len();
    }
}

/// The place of a group among those of the run.
pub(super) fn place_of(group: GroupId) -> usize {
    usize::try_from(group.0).unwrap_or(usize::MAX)
}

/// The UUID of the node at a place of the run.
pub(super) fn node_id(number: usize) -> NodeId {
    NodeId(Uuid::from_u128(number as u128 + 1))
}

/// The place in the run of the node with this UUID.
pub(super) fn number(node: NodeId) -> usize {
    usize::try_from(node.0.as_u128()).map_or(usize::MAX, |number| number.saturating_sub(1))
}
