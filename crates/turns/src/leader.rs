//! A leader grants, renews and revokes turns.

use std::collections::BTreeMap;

use units::{Bytes, Instant};

use crate::members::Members;
use crate::message::{Grant, NodeId, Ping, Report, ReportId, Revoke, Term, TurnKind};
use crate::options::Options;
use crate::rate::LogGrowth;
use crate::rules::Rules;

/// Nodes are asked this many times within [`Options::report_age`].
const PINGS_PER_REPORT_AGE: u32 = 4;

/// A node counts as disturbed if its log's syncs take more than this many times as long as alone.
const DISTURBED: u32 = 2;

/// A handing over that failed is tried again after this many times [`Options::hand_over_patience`].
const RETRY_HAND_OVER_AFTER: u32 = 10;

/// An input of [`Leader::step`].
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Event {
    /// Time has passed.
    Tick,
    /// A report has arrived. The leader's own node reports too.
    Report(Report),
    /// The group has other voters. Only voters take turns: the snapshots of other nodes disturb no majority.
    Members(Members),
    /// A recovery of the group began (true) or ended: turns are revoked, and none is granted meanwhile.
    Recovery(bool),
}

/// A task that [`Leader::step`] gives to its caller.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Action {
    /// Send the ping to every node of the group, the leader's own among them.
    Ping(Ping),
    /// Send the grant to its node: a new turn, or a longer one.
    Grant(Grant),
    /// Send the request to stop to its node.
    Revoke(Revoke),
    /// Have the group's consensus make this node the leader.
    HandOver(NodeId),
}

/// One leadership: made when a node becomes the leader, dropped when it is no longer.
#[derive(Debug)]
pub struct Leader {
    me: NodeId,
    term: Term,
    options: Options,
    members: Members,
    /// Turns that leaders before granted are over at this time.
    grants_from: Instant,
    recovers: bool,
    pinged_at: Option<Instant>,
    nodes: BTreeMap<NodeId, Known>,
    /// Nodes that are no voters any more, until their turns are over: such a node may become a voter again before.
    removed: BTreeMap<NodeId, Known>,
    growth: LogGrowth,
    hand_over: HandOver,
    rules: Rules,
}

/// The newest report of one node, and the leader's turns for the node.
#[derive(Debug)]
struct Known {
    report: Report,
    turn: Option<GrantedTurn>,
    /// The report that the last revocation answers.
    revoked: Option<ReportId>,
}

/// A turn that this leader granted and that may not be over.
#[derive(Clone, Copy, Debug)]
struct GrantedTurn {
    /// The report that the last grant answers.
    report: ReportId,
    /// When that grant was sent.
    granted_at: Instant,
    /// When the turn is over by every clock.
    over_at: Instant,
    /// Bytes a second that the last grant gave.
    rate: Bytes,
}

/// The leader's attempt to lead no longer, so that its node can have a turn.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum HandOver {
    NotTried,
    AskedAt(Instant),
    /// The leader still led at this time.
    FailedAt(Instant),
}

impl Leader {
    /// Node `me` became the leader of `members` at `now`.
    pub fn new(me: NodeId, term: Term, members: Members, options: Options, now: Instant) -> Leader {
        let old_leases = options.stretched(options.lease + options.report_age);
        Leader {
            me,
            term,
            options,
            members,
            grants_from: now.after(old_leases),
            recovers: false,
            pinged_at: None,
            nodes: BTreeMap::new(),
            removed: BTreeMap::new(),
            growth: LogGrowth::default(),
            hand_over: HandOver::NotTried,
            rules: Rules::default(),
        }
    }

    /// Breaks a rule, to prove that a test finds the fault.
    #[cfg(feature = "broken-rules")]
    #[must_use]
    pub fn breaking(mut self, rule: Option<crate::BrokenRule>) -> Leader {
        self.rules.broken = rule;
        self
    }

    /// The leader's term.
    pub fn term(&self) -> Term {
        self.term
    }

    /// Takes in what happened by `now`, the time by this machine's clock, and says what to do. Call it with [`Event::Tick`] at least four times
    /// within a report age.
    pub fn step(&mut self, now: Instant, event: Event) -> Vec<Action> {
        match event {
            Event::Tick => {}
            Event::Report(report) => self.record_report(now, report),
            Event::Members(members) => self.change_members(members),
            Event::Recovery(recovers) => self.recovers = recovers,
        }
        let mut actions = Vec::new();
        self.ping(now, &mut actions);
        self.end_turns(now);
        self.renew_or_revoke(now, &mut actions);
        if !self.recovers && (now >= self.grants_from || self.rules.waits_for_no_lease()) {
            self.grant_to_those_due(now, &mut actions);
        }
        actions
    }

    fn change_members(&mut self, members: Members) {
        let voters = members.voters();
        self.members = members;
        let known = std::mem::take(&mut self.nodes).into_iter().chain(std::mem::take(&mut self.removed));
        (self.nodes, self.removed) = known.partition(|(node, _)| voters.contains(node));
        if self.rules.forgets_removed_nodes() {
            self.removed.clear();
        }
    }

    fn ping(&mut self, now: Instant, actions: &mut Vec<Action>) {
        let pause = self.options.report_age / PINGS_PER_REPORT_AGE;
        if self.pinged_at.is_none_or(|pinged| now.since(pinged) >= pause) {
            self.pinged_at = Some(now);
            actions.push(Action::Ping(Ping { term: self.term, asked_at: now }));
        }
    }

    fn record_report(&mut self, now: Instant, report: Report) {
        let is_of_voter = self.members.configurations().any(|voters| voters.contains(&report.node));
        if report.term != self.term || report.asked_at > now || !is_of_voter {
            return;
        }
        if report.node == self.me {
            self.growth.note(now, report.status.log);
        }
        let Some(known) = self.nodes.get_mut(&report.node) else {
            self.nodes.insert(report.node, Known { report, turn: None, revoked: None });
            return;
        };
        let (old, new) = (&known.report, &report);
        let is_newer = new.asked_at > old.asked_at
            || new.id.incarnation == old.id.incarnation && new.id.number > old.id.number;
        if !is_newer {
            return;
        }
        let waits = !self.rules.waits_for_no_lease();
        known.turn = known.turn.filter(|turn| {
            // A node that was restarted takes no grant of its incarnation before, and does no work of that incarnation.
            let takes_grant = waits && new.refuses_below <= turn.report.number;
            new.id.incarnation == turn.report.incarnation
                && (takes_grant || new.turn == Some(TurnKind::Granted))
        });
        known.report = report;
    }

    fn end_turns(&mut self, now: Instant) {
        for known in self.nodes.values_mut().chain(self.removed.values_mut()) {
            known.turn = known.turn.filter(|turn| now < turn.over_at);
        }
        self.removed.retain(|_, known| known.turn.is_some());
    }

    fn renew_or_revoke(&mut self, now: Instant, actions: &mut Vec<Action>) {
        let nodes: Vec<NodeId> = self.nodes.keys().copied().collect();
        for node in nodes {
            let Some(Known { report, turn, revoked }) = self.nodes.get(&node) else { continue };
            // A turn that another leader granted is not renewed.
            let is_ours = turn.is_some_and(|turn| {
                report.id.incarnation == turn.report.incarnation && report.id.number > turn.report.number
            });
            if report.turn != Some(TurnKind::Granted)
                || !self.is_fresh(now, report)
                || turn.is_some() && !is_ours
            {
                continue;
            }
            let is_revoked = revoked.is_some_and(|revoked| {
                report.id.incarnation == revoked.incarnation && report.id.number <= revoked.number
            });
            let is_old = turn.is_some_and(|turn| now.since(turn.granted_at) >= self.options.lease / 2);
            if self.recovers || is_ours && !(self.is_due(report) && self.leaves_enough_undisturbed(now, node))
            {
                if !is_revoked {
                    let answered = report.id;
                    actions.push(Action::Revoke(Revoke { node, term: self.term }));
                    self.nodes.get_mut(&node).expect("looked up above").revoked = Some(answered);
                }
            } else if is_ours && is_old {
                actions.push(self.grant(now, node));
            }
        }
    }

    /// Grants turns to nodes whose snapshot is due: the one with the least room first, the leader's own node last.
    fn grant_to_those_due(&mut self, now: Instant, actions: &mut Vec<Action>) {
        let mut due: Vec<(Bytes, NodeId)> = self
            .nodes
            .iter()
            .filter(|(_, known)| {
                // A node that went without a turn gets one, and with it a rate at which its work ends.
                known.turn.is_none()
                    && known.report.turn != Some(TurnKind::Granted)
                    && self.is_fresh(now, &known.report)
            })
            .filter(|(_, known)| self.is_due(&known.report))
            .map(|(node, known)| (known.report.status.room, *node))
            .collect();
        due.sort_unstable();
        if self.rules.wants_most_entries_and_bytes() {
            self.keep_most_entries_and_bytes(&mut due);
        }
        if self.rules.treats_leaders_like_any() {
            for (_, node) in due {
                if self.leaves_enough_undisturbed(now, node) {
                    actions.push(self.grant(now, node));
                }
            }
            return;
        }
        let me = self.me;
        let own_room = due.iter().find(|(_, node)| *node == me).map(|(room, _)| *room);
        if self.nodes.get(&me).is_some_and(|known| !self.is_due(&known.report)) {
            self.hand_over = HandOver::NotTried;
        }
        let is_leaders_turn = own_room.is_some_and(|room| {
            !self.nodes.iter().any(|(node, known)| *node != me && self.precedes_leader(now, known, room))
        });
        if is_leaders_turn {
            return self.hand_over_or_take_turn(now, actions);
        }
        for (_, node) in due.into_iter().filter(|(_, node)| *node != me) {
            if self.leaves_enough_undisturbed(now, node) {
                actions.push(self.grant(now, node));
            }
        }
    }

    /// True if the leader's node, which has `room`, waits for another node: one with a turn, or whose snapshot is due. Nodes whose snapshots are due again and again
    /// do not keep a leader with less than half of their room waiting up to its limit.
    fn precedes_leader(&self, now: Instant, other: &Known, room: Bytes) -> bool {
        let report = &other.report;
        let is_due = self.is_fresh(now, report) && self.is_due(report);
        (other.turn.is_some() || is_due) && report.status.room.0 / 2 <= room.0
    }

    fn keep_most_entries_and_bytes(&self, due: &mut Vec<(Bytes, NodeId)>) {
        let of = |node: &NodeId| self.nodes.get(node).map(|known| known.report.status);
        let entries = due.iter().filter_map(|(_, node)| of(node)).map(|status| status.entries).max();
        let bytes = due.iter().filter_map(|(_, node)| of(node)).map(|status| status.log).max();
        due.retain(|(_, node)| {
            of(node).is_some_and(|status| Some(status.entries) == entries && Some(status.log) == bytes)
        });
    }

    /// The leader's own snapshot is next: another node is to lead first. Where no other voter can, or none took over, the leader has a turn while all others are undisturbed.
    fn hand_over_or_take_turn(&mut self, now: Instant, actions: &mut Vec<Action>) {
        let patience = self.options.hand_over_patience;
        if let HandOver::AskedAt(asked) = self.hand_over {
            if now.since(asked) < patience {
                return;
            }
            self.hand_over = HandOver::FailedAt(asked.after(patience));
        }
        if let HandOver::FailedAt(failed) = self.hand_over
            && now.since(failed) >= RETRY_HAND_OVER_AFTER * patience
        {
            self.hand_over = HandOver::NotTried;
        }
        if self.hand_over == HandOver::NotTried
            && self.options.hands_over
            && self.successors().next().is_some()
        {
            if let Some(node) = self.successor(now) {
                self.hand_over = HandOver::AskedAt(now);
                actions.push(Action::HandOver(node));
            }
            return;
        }
        let voters = self.members.voters();
        if voters.iter().filter(|node| **node != self.me).all(|node| self.is_undisturbed(now, *node)) {
            actions.push(self.grant(now, self.me));
        }
    }

    /// The other voters of all configurations.
    fn successors(&self) -> impl Iterator<Item = NodeId> {
        let is_in_all = |node: &NodeId| self.members.configurations().all(|voters| voters.contains(node));
        self.members.voters().into_iter().filter(move |node| *node != self.me && is_in_all(node))
    }

    /// The undisturbed successor with the most room, if there is one whose own snapshot is not due.
    fn successor(&self, now: Instant) -> Option<NodeId> {
        let undisturbed = self.successors().filter(|node| self.is_undisturbed(now, *node));
        undisturbed.max_by_key(|node| {
            let known = self.nodes.get(node);
            known.map(|known| (!self.is_due(&known.report), known.report.status.room))
        })
    }

    fn grant(&mut self, now: Instant, node: NodeId) -> Action {
        let rate = self.rate(now, node);
        let options = &self.options;
        let duration =
            if self.rules.ignores_drift() { options.lease } else { options.stretched(options.lease) };
        let known = self.nodes.get_mut(&node).expect("a grant answers a report");
        let report = known.report.id;
        let over_at = now.after(duration);
        // The rate is for a part of the time that is left. Were it found anew each time, the turn would end at the limit: what is left falls as that time does.
        let rate = known.turn.map_or(rate, |turn| rate.max(turn.rate));
        known.turn = Some(GrantedTurn { report, granted_at: now, over_at, rate });
        Action::Grant(Grant { node, term: self.term, report, lease: self.options.lease, rate })
    }

    /// Bytes a second that `node` is to write, so that neither the node nor one that waits for the turn's end reaches its limit.
    fn rate(&self, now: Instant, node: NodeId) -> Bytes {
        let least = self.options.least_rate;
        let Some(known) = self.nodes.get(&node) else { return least };
        let status = &known.report.status;
        let waits = |other: &&Known| {
            other.report.node != node
                && other.turn.is_none()
                && self.is_fresh(now, &other.report)
                && self.is_due(&other.report)
        };
        let waiting = || self.nodes.values().filter(waits).map(|other| other.report.status.room);
        let room = waiting().fold(status.room, Bytes::min);
        let together = self.members.configurations().map(|c| Members::max_turns(c.len())).min().unwrap_or(1);
        let waves = 1 + waiting().count().div_ceil(together.max(1));
        self.growth.rate(status.left.unwrap_or(status.snapshot), room, waves).max(least)
    }

    fn is_fresh(&self, now: Instant, report: &Report) -> bool {
        now.since(report.asked_at) <= self.options.report_age || self.rules.trusts_stale_reports()
    }

    /// True if the node's snapshot is due, or one was begun.
    fn is_due(&self, report: &Report) -> bool {
        let (options, status) = (&self.options, &report.status);
        status.left.is_some()
            || status.log >= status.snapshot.max(options.least_log)
            || status.log >= options.longest_log
    }

    /// True if `node` was heard of, lacks few entries, syncs nearly as fast as alone, and has no turn.
    fn is_undisturbed(&self, now: Instant, node: NodeId) -> bool {
        self.nodes.get(&node).is_some_and(|known| {
            let status = &known.report.status;
            known.turn.is_none()
                && known.report.turn.is_none()
                && self.is_fresh(now, &known.report)
                && status.behind <= self.options.most_behind
                && status.sync_p99 <= status.sync_p99_alone.saturating_mul(DISTURBED)
        })
    }

    /// True if, without `node`, each configuration has as many undisturbed voters as it needs.
    fn leaves_enough_undisturbed(&self, now: Instant, node: NodeId) -> bool {
        self.members.configurations().all(|voters| {
            let others = voters.iter().filter(|other| **other != node && self.is_undisturbed(now, **other));
            others.count() >= Members::min_undisturbed(voters.len())
        })
    }
}

#[cfg(test)]
mod tests;
