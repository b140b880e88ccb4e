//! A simulated group: machines with clocks of their own, a network, elections, and the work that turns are for.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use ::turns::{
    Action, Event, Grant, Leader, Members, Node, NodeId, Options, Ping, Report, Revoke, Status, Term,
};
use units::Bytes;

use super::machine::{ENTRY, Machine, Machines};
use super::rules::TurnsRules;
use crate::Rng;

const MILLISECOND: u64 = 1_000_000;
const SECOND: u64 = 1_000 * MILLISECOND;
const MB: u64 = 1_000_000;

/// Machines look at their work this often.
const TICK: u64 = 50 * MILLISECOND;
/// Faults happen up to this time, and the log of a run with faults grows.
const FAULTS_END: u64 = 40 * SECOND;
/// The log of a run without faults grows up to this time, longer than any limit allows without turns.
const CALM_GROWTH_ENDS: u64 = 100 * SECOND;
/// All work is done at this time.
const RUN_ENDS: u64 = 160 * SECOND;
/// A change of the membership may leave more turns than the new one allows for this long, as long as none was granted by a leader that knows the change: the leases
/// end meanwhile.
const AFTER_CHANGE: u64 = 4 * SECOND;

/// A message between two machines.
#[derive(Clone, Debug)]
enum Message {
    Ping(Ping),
    Report(Report),
    Grant(Grant),
    Revoke(Revoke),
}

#[derive(Clone, Debug)]
enum SimulatedEvent {
    Tick,
    Delivery {
        from: usize,
        to: usize,
        message: Message,
    },
    /// The bytes that an incarnation of a machine wrote are durable.
    Flushed {
        machine: usize,
        incarnation: u64,
    },
    Fault,
    Restart(usize),
    /// The newest leader begins, or ends, the removal or return of a voter.
    ChangeMembers(usize),
    /// A majority elects a leader, if it can the preferred one.
    Election {
        preferred: Option<usize>,
    },
    Heal,
}

/// One run.
pub(super) struct Group {
    rules: TurnsRules,
    options: Options,
    rng: Rng,
    now: u64,
    /// Events to come, by time, and then in the order in which they were planned.
    planned: BTreeMap<(u64, u64), SimulatedEvent>,
    next_number: u64,
    machines: Machines,
    members: Members,
    /// The newest term.
    term: Term,
    /// The voters after the change of members that is under way.
    changing_to: Option<BTreeSet<NodeId>>,
    /// When the members last changed.
    changed_at: Option<u64>,
    /// Number of changes of the members.
    changes: u64,
    /// Entries of the group's log.
    committed: u64,
    /// True for a run without faults.
    is_without_faults: bool,
    /// True if voters are removed and become voters again while grants to them are on their way.
    returns_voters: bool,
    /// Of a hundred messages so many are lost, and so many late, by about a lease at most.
    lost: u64,
    late: u64,
    growth: u64,
    drive_rate: u64,
    /// True if syncs are so few that their times say nothing of the drive.
    hides_sync_times: bool,
    /// Description of the first violation of a rule.
    pub violation: Option<String>,
    /// Snapshots that became durable.
    pub done: u64,
    /// Snapshots that were begun at the hard limit, or went on there.
    pub forced: u64,
}

impl Group {
    pub(super) fn new(seed: u64, run: u64, rules: TurnsRules) -> Group {
        let mut rng = Rng::at(seed, &[0x7075, run]);
        let drift = match rng.below(4) {
            0 => 0,
            1 => 1_000,
            _ => 100_000,
        };
        let options = Options {
            lease: Duration::from_secs(2),
            report_age: Duration::from_millis(500),
            drift: u32::try_from(drift).expect("a small number"),
            least_rate: Bytes(20 * MB),
            least_log: Bytes(20 * MB),
            longest_log: Bytes(4_000 * MB),
            most_behind: 20_000,
            hands_over: rng.chance(75),
            hand_over_patience: Duration::from_secs(2),
        };
        let count = 3 + rng.below(5);
        let (is_without_faults, hides_sync_times) = (rng.chance(25), rng.chance(33));
        let snapshot = (50 + rng.below(100)) * MB;
        let growth = (5 + rng.below(15)) * MB;
        // Where nothing fails the work fits: every node in turn, with an election and a lease between each two.
        let seconds = count * 8 + 20;
        let limit = snapshot + growth * if is_without_faults { seconds } else { 5 + rng.below(seconds) };
        let setup = (count, snapshot, limit, drift, options);
        let machines = (1..=count).map(|id| Machine::new(NodeId(id), setup, &mut rng));
        let machines = Machines(machines.collect());
        let (lost, late) = if is_without_faults { (0, 0) } else { (rng.below(15), rng.below(25)) };
        let mut group = Group {
            rules,
            options,
            members: Members::of((1..=count).map(NodeId)),
            rng,
            now: 0,
            planned: BTreeMap::new(),
            next_number: 0,
            machines,
            term: Term(0),
            changing_to: None,
            changed_at: None,
            changes: 0,
            committed: 0,
            is_without_faults,
            // The leases after a change hide other faults from the oracle, so that most runs have few changes.
            returns_voters: !is_without_faults && Rng::at(seed, &[0x7076, run]).chance(25),
            lost,
            late,
            growth,
            drive_rate: (100 + 100 * count) * MB,
            hides_sync_times,
            violation: None,
            done: 0,
            forced: 0,
        };
        group.plan(0, SimulatedEvent::Election { preferred: None });
        group.plan(TICK, SimulatedEvent::Tick);
        group.plan(FAULTS_END, SimulatedEvent::Heal);
        if !group.is_without_faults {
            group.plan(SECOND, SimulatedEvent::Fault);
        }
        group
    }

    /// Runs to the end, or to the first violation.
    pub(super) fn run(&mut self) {
        while let Some(((at, _), event)) = self.planned.pop_first() {
            if at >= RUN_ENDS || self.violation.is_some() {
                break;
            }
            self.now = at;
            self.handle(event);
            self.check_turns();
        }
        if self.violation.is_none() {
            self.check_end();
        }
    }

    fn plan(&mut self, after: u64, event: SimulatedEvent) {
        self.planned.insert((self.now + after, self.next_number), event);
        self.next_number += 1;
    }

    fn handle(&mut self, event: SimulatedEvent) {
        match event {
            SimulatedEvent::Tick => {
                self.grow();
                self.note_undisturbed();
                for machine in 0..self.machines.len() {
                    self.work(machine);
                    self.lead(machine, Event::Tick);
                }
                self.plan(TICK, SimulatedEvent::Tick);
            }
            SimulatedEvent::Delivery { from, to, message } => self.deliver(from, to, message),
            SimulatedEvent::Flushed { machine, incarnation } => self.flushed(machine, incarnation),
            SimulatedEvent::Fault => self.fault(),
            SimulatedEvent::Restart(machine) => self.restart(machine),
            SimulatedEvent::ChangeMembers(machine) => self.change_members(machine),
            SimulatedEvent::Election { preferred } => self.elect(preferred),
            SimulatedEvent::Heal => self.heal(),
        }
    }

    /// The machine that leads in the newest term. A machine that dies leads no longer.
    fn newest_leader(&self) -> Option<usize> {
        let leads =
            |machine: &Machine| machine.leader.as_ref().is_some_and(|leader| leader.term() == self.term);
        self.machines.iter().position(leads)
    }

    /// The side of the newest leader, if that leader has a majority of every configuration.
    fn leading_side(&self) -> Option<usize> {
        let side = self.machines.at(self.newest_leader()?).side;
        self.has_majority(side).then_some(side)
    }

    fn has_majority(&self, side: usize) -> bool {
        self.members.configurations().all(|voters| {
            let reachable = voters.iter().filter(|id| {
                let machine = self.machine(**id).and_then(|at| self.machines.get(at));
                machine.is_some_and(|machine| machine.is_up && machine.side == side)
            });
            2 * reachable.count() > voters.len()
        })
    }

    fn note_undisturbed(&mut self) {
        let sides: Vec<usize> = self.machines.iter().map(|machine| machine.side).collect();
        for at in (0..self.machines.len()).filter(|at| self.is_undisturbed(*at)).collect::<Vec<_>>() {
            let machine = self.machines.at_mut(at);
            let own = machine.side;
            for (leading, _) in sides.iter().enumerate().filter(|(_, side)| **side == own) {
                machine.note_undisturbed(leading, self.now);
            }
        }
    }

    /// True if a machine is up, lacks few entries, has no turn of any kind, and syncs nearly as fast as alone.
    fn is_undisturbed(&self, at: usize) -> bool {
        let (machine, status) = (self.machines.at(at), self.status(at));
        machine.is_up
            && !machine.is_at_work(self.now)
            && !machine.is_forced
            && status.behind <= self.options.most_behind
            && status.sync_p99 <= 2 * status.sync_p99_alone
    }

    fn machine(&self, id: NodeId) -> Option<usize> {
        usize::try_from(id.0).ok()?.checked_sub(1).filter(|at| *at < self.machines.len())
    }

    /// The group's log grows where a majority is led, and the machines of that side follow.
    fn grow(&mut self) {
        let Some(side) = self.leading_side() else { return };
        if self.now < if self.is_without_faults { CALM_GROWTH_ENDS } else { FAULTS_END } {
            self.committed += self.growth * TICK / SECOND / ENTRY;
        }
        for machine in self.machines.iter_mut().filter(|machine| machine.is_up && machine.side == side) {
            // A machine that lacks entries gets them ten times as fast as they are made.
            let most = 10 * self.growth * TICK / SECOND / ENTRY;
            let more = (self.committed - machine.applied).min(most);
            machine.applied += more;
            machine.entries += more;
            machine.log += more * ENTRY;
        }
    }

    fn status(&self, machine: usize) -> Status {
        let machine = self.machines.at(machine);
        let alone = Duration::from_micros(100);
        let is_disturbed = machine.is_slow || machine.writes || machine.flushes_in_turn.is_some();
        Status {
            log: Bytes(machine.log),
            entries: machine.entries,
            snapshot: Bytes(machine.snapshot),
            left: machine.left.map(Bytes),
            room: Bytes(machine.limit.saturating_sub(machine.log)),
            behind: self.committed - machine.applied,
            sync_p99: if is_disturbed && !self.hides_sync_times { 5 * alone } else { alone },
            sync_p99_alone: alone,
        }
    }

    /// A machine writes its snapshot for a tick, if it may.
    fn work(&mut self, at: usize) {
        let status = self.status(at);
        let now = self.now;
        let is_wanted = status.left.is_some() || status.log >= status.snapshot.max(self.options.least_log);
        let machine = self.machines.at_mut(at);
        machine.writes = false;
        if !machine.is_up || status.left == Some(Bytes::ZERO) {
            return;
        }
        // Bytes that a tick writes reach the drive before the next tick.
        machine.node.nothing_in_flight();
        if !is_wanted {
            return;
        }
        let clock = machine.clock(now);
        let rate = machine.node.rate(clock, &status);
        machine.is_forced = rate.is_some() && machine.node.ends_at().is_none();
        let Some(rate) = rate else { return };
        let forced = machine.node.forced();
        self.forced += forced - std::mem::replace(&mut machine.forced, forced);
        let left = machine.left.unwrap_or_else(|| {
            machine.begun_at = (machine.log, machine.entries);
            machine.snapshot
        });
        let drive_rate = if machine.is_slow { self.drive_rate / 10 } else { self.drive_rate };
        let left = left.saturating_sub(rate.0.min(drive_rate) * TICK / SECOND);
        (machine.left, machine.writes) = (Some(left), true);
        let writes_on = !machine.is_forced && machine.leases_end.is_none_or(|end| end <= clock);
        if left == 0 {
            let incarnation = machine.incarnation;
            machine.flushes_in_turn = machine.node.ends_at();
            if self.rules.ends_turns_when_written() {
                machine.node.durable();
            }
            let takes = 20 + self.rng.below(if self.is_without_faults { 100 } else { 1_500 });
            self.plan(takes * MILLISECOND, SimulatedEvent::Flushed { machine: at, incarnation });
        }
        if writes_on {
            self.violates(format!("node {} writes after its lease", at + 1));
        }
    }

    fn flushed(&mut self, at: usize, incarnation: u64) {
        let machine = self.machines.at_mut(at);
        if !machine.is_up || machine.incarnation != incarnation {
            return;
        }
        machine.node.durable();
        machine.log -= machine.begun_at.0.min(machine.log);
        machine.entries -= machine.begun_at.1.min(machine.entries);
        (machine.left, machine.flushes_in_turn, machine.leases_end) = (None, None, None);
        machine.is_forced = false;
        self.done += 1;
    }

    fn send(&mut self, from: usize, to: usize, message: Message) {
        self.send_late(from, to, message, 0);
    }

    /// Sends a message that arrives `after` later than others.
    fn send_late(&mut self, from: usize, to: usize, message: Message, after: u64) {
        let (sender, receiver) = (self.machines.at(from), self.machines.at(to));
        if from == to {
            return self.plan(after, SimulatedEvent::Delivery { from, to, message });
        }
        if sender.side != receiver.side || self.rng.chance(self.lost) {
            return;
        }
        let percent = if self.rng.chance(50) { self.rng.below(105) } else { 85 + self.rng.below(20) };
        let late = if self.rng.chance(self.late) {
            self.options.lease / 100 * percent as u32
        } else {
            Duration::ZERO
        };
        let delay = after + late.as_nanos() as u64 + (1 + self.rng.below(20)) * MILLISECOND;
        self.plan(delay, SimulatedEvent::Delivery { from, to, message });
    }

    fn deliver(&mut self, from: usize, to: usize, message: Message) {
        if !self.machines.at(to).is_up {
            return;
        }
        let clock = self.machines.at(to).clock(self.now);
        match message {
            Message::Ping(ping) => {
                self.follow_term(to, ping.term);
                let status = self.status(to);
                if self.is_undisturbed(to) {
                    self.machines.at_mut(to).note_undisturbed(from, self.now);
                }
                let report = self.machines.at_mut(to).node.report(clock, ping, status);
                if let Some(report) = report {
                    self.machines.at_mut(to).sent.insert(report.id.number, clock);
                    self.send(to, from, Message::Report(report));
                }
            }
            Message::Report(report) => self.lead(to, Event::Report(report)),
            Message::Grant(grant) => {
                let machine = self.machines.at_mut(to);
                let sent = machine.sent.get(&grant.report.number).copied();
                let begins = machine.node.ends_at().is_none();
                if machine.node.granted(clock, &grant)
                    && let Some(sent) = sent
                {
                    machine.leases_end = machine.leases_end.max(Some(sent.after(grant.lease)));
                    if begins && from == to {
                        self.check_leaders_turn(to);
                    }
                }
            }
            Message::Revoke(revoke) => self.machines.at_mut(to).node.revoked(&revoke),
        }
    }

    /// A machine that hears of a newer leader leads no longer.
    fn follow_term(&mut self, at: usize, term: Term) {
        let machine = self.machines.at_mut(at);
        if machine.leader.as_ref().is_some_and(|leader| leader.term() < term) {
            machine.leader = None;
        }
        machine.node.follow(term);
    }

    fn lead(&mut self, at: usize, event: Event) {
        let machine = self.machines.at_mut(at);
        let clock = machine.clock(self.now);
        let Some(leader) = machine.leader.as_mut().filter(|_| machine.is_up) else { return };
        for action in leader.step(clock, event) {
            match action {
                Action::Ping(ping) => {
                    for to in 0..self.machines.len() {
                        self.send(at, to, Message::Ping(ping));
                    }
                }
                Action::Grant(grant) => {
                    self.check_others(at, &grant);
                    if let Some(to) = self.machine(grant.node) {
                        self.machines.at_mut(to).granted_after = self.machines.at(at).knows_changes;
                        let late = self.remove_and_return(to);
                        self.send_late(at, to, Message::Grant(grant), late);
                    }
                }
                Action::Revoke(revoke) => {
                    if let Some(to) = self.machine(revoke.node) {
                        self.send(at, to, Message::Revoke(revoke));
                    }
                }
                Action::HandOver(node) => {
                    self.machines.at_mut(at).handed_over_at = Some(clock);
                    if self.rng.chance(90) {
                        let preferred = self.machine(node);
                        self.plan(50 * MILLISECOND, SimulatedEvent::Election { preferred });
                    }
                }
            }
        }
    }

    /// A side with a majority of every configuration elects a leader.
    fn elect(&mut self, preferred: Option<usize>) {
        let can_lead = |at: &usize| {
            let machine = self.machines.at(*at);
            let is_voter = self.members.voters().contains(&Machines::id(*at));
            machine.is_up && is_voter && self.has_majority(machine.side)
        };
        let able: Vec<usize> = (0..self.machines.len()).filter(can_lead).collect();
        let chosen = preferred.filter(|at| able.contains(at)).or_else(|| {
            let at = self.rng.index(able.len());
            able.get(at).copied()
        });
        let Some(chosen) = chosen else {
            return self.plan(SECOND, SimulatedEvent::Election { preferred: None });
        };
        self.term.0 += 1;
        let (term, side, now) = (self.term, self.machines.at(chosen).side, self.now);
        for at in self.voters_for(chosen, side) {
            self.follow_term(at, term);
        }
        let (members, changes, options) = (self.members.clone(), self.changes, self.options);
        let rules = self.rules;
        let machine = self.machines.at_mut(chosen);
        machine.leads_members = Some(members.clone());
        machine.knows_changes = changes;
        machine.recovers = false;
        machine.node.lead(term);
        let leader = Leader::new(Machines::id(chosen), term, members, options, machine.clock(now));
        machine.leader = Some(rules.leader(leader));
        machine.handed_over_at = None;
    }

    /// The machines of `side` that vote for the machine `chosen`: a majority of each configuration, or all.
    fn voters_for(&mut self, chosen: usize, side: usize) -> Vec<usize> {
        let can_vote: Vec<usize> = (0..self.machines.len())
            .filter(|at| self.machines.at(*at).is_up && self.machines.at(*at).side == side)
            .collect();
        let voting: Vec<usize> =
            can_vote.iter().copied().filter(|at| *at == chosen || self.rng.chance(60)).collect();
        let is_majority = self.members.configurations().all(|voters| {
            let votes = voting.iter().filter(|at| voters.contains(&Machines::id(**at)));
            2 * votes.count() > voters.len()
        });
        if is_majority { voting } else { can_vote }
    }

    fn fault(&mut self) {
        if self.now >= FAULTS_END {
            return;
        }
        let machines = self.machines.len();
        let at = self.rng.index(machines);
        match self.rng.below(9) {
            0 => {
                for machine in self.machines.iter_mut() {
                    machine.side = self.rng.index(2);
                }
            }
            1 => self.machines.iter_mut().for_each(|machine| machine.side = 0),
            2 => self.kill(at),
            3 => self.machines.at_mut(at).is_slow = !self.machines.at(at).is_slow,
            4 => self.plan(0, SimulatedEvent::Election { preferred: None }),
            5 => self.cut_leader_off(),
            6 => self.recover(),
            _ => self.change_members(at),
        }
        // A majority without a leader elects one.
        if self.leading_side().is_none() {
            let pause = (100 + self.rng.below(900)) * MILLISECOND;
            self.plan(pause, SimulatedEvent::Election { preferred: None });
        }
        let pause = (500 + self.rng.below(3_500)) * MILLISECOND;
        self.plan(pause, SimulatedEvent::Fault);
    }

    /// A recovery of the group begins, or ends.
    fn recover(&mut self) {
        if let Some(leading) = self.newest_leader() {
            let machine = self.machines.at_mut(leading);
            machine.recovers = !machine.recovers;
            let event = Event::Recovery(machine.recovers);
            self.lead(leading, event);
        }
    }

    /// The newest leader and a part of the others, less than half, are on a side of their own: that leader goes on without knowing.
    fn cut_leader_off(&mut self) {
        let Some(leading) = self.newest_leader() else { return };
        let mut others = (self.machines.len() - 1) / 2;
        let first = self.rng.index(self.machines.len());
        for machine in self.machines.iter_mut() {
            machine.side = 0;
        }
        self.machines.at_mut(leading).side = 1;
        for step in 0..self.machines.len() {
            let at = (first + step) % self.machines.len();
            if at != leading && others > 1 {
                self.machines.at_mut(at).side = 1;
                others -= 1;
            }
        }
    }

    fn kill(&mut self, at: usize) {
        let machine = self.machines.at_mut(at);
        if !machine.is_up {
            return;
        }
        machine.is_up = false;
        machine.leader = None;
        (machine.left, machine.flushes_in_turn, machine.leases_end) = (None, None, None);
        machine.is_forced = false;
        let pause = (200 + self.rng.below(5_000)) * MILLISECOND;
        self.plan(pause, SimulatedEvent::Restart(at));
    }

    fn restart(&mut self, at: usize) {
        let machine = self.machines.at_mut(at);
        machine.is_up = true;
        machine.incarnation += 1;
        machine.forced = 0;
        // A voter keeps its term on its drive.
        let term = machine.node.term();
        machine.node = Node::new(Machines::id(at), machine.incarnation, self.options);
        machine.node.follow(term);
        machine.sent.clear();
    }

    /// In some runs the voter `at`, whose turn begins, is now and then removed and becomes a voter again while the grant is on its way. Returns how late the grant is.
    fn remove_and_return(&mut self, at: usize) -> u64 {
        let begins = !self.machines.at(at).is_at_work(self.now);
        if !self.returns_voters || self.now >= FAULTS_END || !begins || !self.rng.chance(40) {
            return 0;
        }
        let mut after = 0;
        for _ in 0..4 {
            after += (5 + self.rng.below(50)) * MILLISECOND;
            self.plan(after, SimulatedEvent::ChangeMembers(at));
        }
        let lease = u64::try_from(self.options.lease.as_nanos()).expect("short");
        lease / 100 * (30 + self.rng.below(60))
    }

    /// The newest leader begins, or ends, the removal or return of a voter, if its side has majorities.
    fn change_members(&mut self, at: usize) {
        if self.leading_side().is_none() {
            return;
        }
        let voters: BTreeSet<NodeId> = self.members.configurations().next().cloned().unwrap_or_default();
        let members = match self.changing_to.take() {
            Some(new) => Members::of(new),
            None => {
                let mut new = voters.clone();
                let id = Machines::id(at);
                if !new.remove(&id) {
                    new.insert(id);
                }
                if new.len() < 3 {
                    return;
                }
                self.changing_to = Some(new.clone());
                Members::joint(voters, new)
            }
        };
        self.members = members.clone();
        self.changed_at = Some(self.now);
        self.changes += 1;
        // A leader that is no voter any more makes way.
        if let Some(leading) = self.newest_leader() {
            if self.members.voters().contains(&Machines::id(leading)) {
                let machine = self.machines.at_mut(leading);
                machine.leads_members = Some(members.clone());
                machine.knows_changes = self.changes;
                self.lead(leading, Event::Members(members));
            } else {
                self.machines.at_mut(leading).leader = None;
                self.plan(0, SimulatedEvent::Election { preferred: None });
            }
        }
    }

    fn heal(&mut self) {
        (self.lost, self.late) = (0, 0);
        for machine in self.machines.iter_mut() {
            (machine.side, machine.is_slow) = (0, false);
        }
        let recovering: Vec<usize> =
            (0..self.machines.len()).filter(|at| self.machines.at(*at).recovers).collect();
        for at in recovering {
            self.machines.at_mut(at).recovers = false;
            self.lead(at, Event::Recovery(false));
        }
        // Every machine that was killed is up again then.
        self.plan(6 * SECOND, SimulatedEvent::Election { preferred: None });
    }

    fn violates(&mut self, what: String) {
        let at = Duration::from_nanos(self.now);
        self.violation.get_or_insert_with(|| format!("after {at:?}: {what}"));
    }

    /// No configuration has more turns at once than it allows.
    fn check_turns(&mut self) {
        let at_work: Vec<NodeId> = (0..self.machines.len())
            .filter(|at| self.machines.at(*at).is_at_work(self.now))
            .map(Machines::id)
            .collect();
        let is_long_ago = self.changed_at.is_none_or(|changed| self.now >= changed + AFTER_CHANGE);
        let most = self.members.configurations().find_map(|voters| {
            let most = Members::max_turns(voters.len());
            let voters_at_work = || at_work.iter().filter(|id| voters.contains(id));
            let is_settled = is_long_ago || voters_at_work().any(|id| self.was_granted_after_changes(*id));
            (voters_at_work().count() > most && is_settled).then_some((voters.len(), most))
        });
        if let Some((voters, most)) = most {
            self.violates(format!("{at_work:?} have turns at once: {voters} voters allow {most}"));
        }
    }

    /// True if the leader of the newest grant to a machine knew the last change of the members: that leader counts all turns.
    fn was_granted_after_changes(&self, id: NodeId) -> bool {
        let machine = self.machine(id).and_then(|at| self.machines.get(at));
        machine.is_some_and(|machine| machine.granted_after == self.changes)
    }

    /// A leader that can hand over begins no turn before it tried, not long ago.
    fn check_leaders_turn(&mut self, at: usize) {
        let machine = self.machines.at(at);
        let patience = self.options.hand_over_patience;
        let waited = machine.handed_over_at.map(|asked| machine.clock(self.now).since(asked));
        let tried = waited.is_some_and(|waited| (patience..12 * patience).contains(&waited));
        if self.options.hands_over && !tried {
            self.violates(format!("node {} leads, can hand over, and begins a turn", at + 1));
        }
    }

    /// A grant leaves enough other voters, of the members that the leader knows, that were undisturbed and that the leader could hear of within a report age.
    fn check_others(&mut self, leading: usize, grant: &Grant) {
        let report_age = u64::try_from(self.options.report_age.as_nanos()).expect("short");
        let since = self.now.saturating_sub(report_age + 2 * TICK);
        let Some(members) = self.machines.at(leading).leads_members.clone() else { return };
        let is_enough = members.configurations().all(|voters| {
            let others = voters.iter().filter(|id| **id != grant.node).filter_map(|id| self.machine(*id));
            let undisturbed =
                others.filter(|at| self.machines.at(*at).was_undisturbed(leading, since)).count();
            undisturbed >= Members::min_undisturbed(voters.len())
        });
        if !is_enough {
            self.violates(format!(
                "{:?} has a turn from node {}, with reports of too few undisturbed voters",
                grant.node,
                leading + 1
            ));
        }
        if self.machines.at(leading).recovers {
            self.violates(format!("{:?} has a turn during a recovery", grant.node));
        }
    }

    fn check_end(&mut self) {
        if self.is_without_faults && self.forced > 0 {
            return self
                .violates(format!("{} snapshots at the hard limit, although the work fits", self.forced));
        }
        for at in 0..self.machines.len() {
            let status = self.status(at);
            let is_voter = self.members.voters().contains(&Machines::id(at));
            let is_due = status.left.is_some() || status.log >= status.snapshot.max(self.options.least_log);
            if is_voter && is_due {
                return self.violates(format!("node {} never had its turn: {status:?}", at + 1));
            }
        }
    }
}
