//! The rules of turns, without I/O and clock: whose snapshot is commanded next, and when a turn is over.
//!
//! # What holds
//!
//! - **One turn at a time.** A turn begins with the command. It ends by evidence that no commanded snapshot is under way:
//!
//!   | the command's end | evidence | the turn ends |
//!   |---|---|---|
//!   | the snapshot is taken | the answer | when the server's syncs are as fast as before |
//!   | refused, not sent, or failed in the server | the answer | at once |
//!   | no answer | the server's counter shows every commanded snapshot | when the syncs are as fast as before |
//!   | no answer | nobody listened at the server's address, and a server answers there again | at once |
//!   | no answer | nobody listens there after [`Settings::longest_snapshot`] | at once |
//!   | no answer | the command, sent again, is answered: taken, or failed in the server | as in the first two rows |
//!
//!   The command is sent again [`Settings::longest_snapshot`] after its end, to the same server, while a turn could begin there. A process writes its snapshots
//!   one after the other, so that still only one server is at it, that a second command's answer comes after the first one's snapshot, and that a snapshot which
//!   the server takes by itself is not counted before the commanded one.
//! - **A new coordinator waits** for [`Settings::longest_snapshot`]: one before may have commanded a snapshot just before its end.
//! - **The leader is last**: its turn begins when no other server that answers is due, but for servers with more than twice its room.
//! - **Enough others are undisturbed**: [`Members::min_undisturbed`] of them, a majority and a spare one from five on, all but the one with the turn in ensembles of three and five.
//! - **No turn beside snapshots that servers take by themselves**: a server that has begun to serve, whose leader has changed, or whose counter shows a snapshot of
//!   its own counts as disturbed until its syncs have been fast for a while, and no turn begins while a server is disturbed or starting.
//!
//! Imports go down: `server`, `message`, `settings`.

mod message;
mod server;
mod settings;

use std::collections::{BTreeMap, BTreeSet};

use turns::Members;
use units::{Bytes, Instant};

pub use message::{Action, Event, Notice, Outcome, TurnEnd};
use server::{Server, UNKNOWN_RECORD};
pub use settings::Settings;

use crate::sample::{Health, Role, ServerId};

/// Bytes of a log's record beside the proposal: a checksum, a length, an end mark.
const RECORD_HEADER: u64 = 13;

/// The weight of the older mean size of a proposal against a new sample's.
const MEMORY: u64 = 7;

/// The turn under way.
#[derive(Clone, Copy, Debug)]
struct Turn {
    server: ServerId,
    began: Instant,
    /// When the user was last told that there is no answer.
    noticed_at: Instant,
    /// A command without an answer is sent again from this time on.
    again_from: Instant,
    phase: Phase,
}

/// The event that a turn waits for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Phase {
    /// The command's end.
    Commanded,
    /// Evidence that no snapshot is under way: the command ended without an answer.
    Unanswered,
    /// The end of the command that was sent again.
    CommandedAgain,
    /// Syncs that are as fast as before.
    Settling,
}

/// Grants the turns of one ensemble. A coordinator lives as long as its process.
#[derive(Debug)]
pub struct Coordinator {
    settings: Settings,
    /// The coordinator before can have commanded no snapshot that goes on at this time.
    begins_at: Instant,
    servers: BTreeMap<ServerId, Server>,
    turn: Option<Turn>,
    /// The newest time at which a turn was under way.
    turn_at: Instant,
    /// The leader and its epoch, as last seen.
    leader: Option<(ServerId, u64)>,
    /// Mean size of the leader's proposals.
    proposal: Option<Bytes>,
    /// Why no turn begins, as the last notice says; none if no turn is waited for.
    reported_wait: Option<String>,
}

impl Coordinator {
    /// A coordinator of the voters `servers` that begins at `now`.
    pub fn new(servers: &BTreeSet<ServerId>, settings: Settings, now: Instant) -> Coordinator {
        Coordinator {
            settings,
            begins_at: now.after(settings.longest_snapshot),
            servers: servers.iter().map(|server| (*server, Server::default())).collect(),
            turn: None,
            turn_at: now,
            leader: None,
            proposal: None,
            reported_wait: None,
        }
    }

    /// Takes in what happened by `now`, and says what to do. Call it with [`Event::Tick`] each second or so.
    pub fn step(&mut self, now: Instant, event: Event) -> Vec<Action> {
        let mut actions = Vec::new();
        match event {
            Event::Tick => {}
            Event::Polled { server, asked_at, health } => {
                self.record(now, server, asked_at, health, &mut actions)
            }
            Event::Ended { server, outcome } => self.end_command(now, server, &outcome, &mut actions),
        }
        self.settle(now, &mut actions);
        self.command_again(now, &mut actions);
        self.begin_turn(now, &mut actions);
        if self.turn.is_some() {
            self.turn_at = now;
        }
        actions
    }

    /// True if a snapshot is due on a server that was heard of, or a turn is under way, or a server was not heard of yet.
    pub fn is_busy(&self) -> bool {
        let record = self.record_size();
        self.turn.is_some()
            || self
                .servers
                .values()
                .any(|server| server.health().is_none() || server.is_due(record, &self.settings))
    }

    /// The cause why no turn could begin for [`Settings::longest_snapshot`] and [`Settings::longest_settle_time`] together, although a server is due or was not heard of.
    pub fn stalled(&self, now: Instant) -> Option<String> {
        let patience = self.settings.longest_snapshot + self.settings.longest_settle_time;
        if !self.is_busy() || now.since(self.turn_at) < patience {
            return None;
        }
        let record = self.record_size();
        let is_silent = |server: &Server| {
            server.fresh(now, &self.settings).is_none()
                && (server.health().is_none() || server.is_due(record, &self.settings))
        };
        let why = self.reported_wait.clone().or_else(|| {
            let (id, _) = self.servers.iter().find(|(_, server)| is_silent(server))?;
            Some(format!("{id} does not answer, and its snapshot is due, or may be"))
        });
        Some(format!("no turn could begin for {patience:?}: {}", why.unwrap_or_default()))
    }

    /// The server whose turn would be next, by what is known so far: due, least room first, the leader last.
    pub fn next(&self, now: Instant) -> Option<ServerId> {
        let due = self.due(now);
        let leads =
            |server: &ServerId| self.servers.get(server).is_some_and(|s| s.leads(now, &self.settings));
        due.iter().find(|server| !leads(server)).or(due.first()).copied()
    }

    /// Estimated bytes of a server's log since its last snapshot, and of a snapshot.
    pub fn estimates(&self, server: ServerId) -> Option<(Bytes, Bytes)> {
        self.servers.get(&server).map(|server| (server.log(self.record_size()), server.snapshot()))
    }

    fn record(
        &mut self,
        now: Instant,
        id: ServerId,
        asked_at: Instant,
        health: Health,
        actions: &mut Vec<Action>,
    ) {
        let has_turn = self.turn.is_some_and(|turn| turn.server == id);
        let Some(server) = self.servers.get_mut(&id) else { return };
        let before = server.health().cloned();
        notice_of_health(id, before.as_ref(), &health, actions);
        if let Health::Serving(sample) = &health
            && let Some(size) = sample.proposal
        {
            let mean = self
                .proposal
                .map_or(size.0, |mean| mean.0.saturating_mul(MEMORY).saturating_add(size.0) / (MEMORY + 1));
            self.proposal = Some(Bytes(mean));
        }
        let changes = server.record(asked_at, health, &self.settings, has_turn);
        if changes.own_snapshots > 0 {
            actions.push(Action::Notify(Notice::OwnSnapshots { server: id, count: changes.own_snapshots }));
        }
        if let Some(turn) = &mut self.turn
            && turn.server == id
            && turn.phase == Phase::Unanswered
            && asked_at >= turn.began
        {
            if changes.restarted {
                let took = now.since(turn.began);
                self.turn = None;
                actions.push(Action::Notify(Notice::TurnEnds {
                    server: id,
                    took,
                    because: TurnEnd::Restarted,
                }));
            } else if changes.counts_commanded {
                turn.phase = Phase::Settling;
                server.disturb(now, &self.settings);
            }
        }
        self.note_leader(now, actions);
    }

    /// Notes a new leader, or a new epoch of the same. Every server may have taken a snapshot by itself then.
    fn note_leader(&mut self, now: Instant, actions: &mut Vec<Action>) {
        let Some(leader) = self.leader(now) else { return };
        if self.leader != Some(leader) {
            self.leader = Some(leader);
            actions.push(Action::Notify(Notice::Leader { server: leader.0 }));
            for server in self.servers.values_mut() {
                server.disturb(now, &self.settings);
            }
        }
    }

    /// The leader on which all servers that answer agree, and the greatest epoch among them.
    fn leader(&self, now: Instant) -> Option<(ServerId, u64)> {
        let fresh = || self.servers.iter().filter_map(|(id, s)| Some((*id, s.fresh(now, &self.settings)?)));
        let mut leaders = fresh().filter(|(_, sample)| sample.role == Role::Leader).map(|(id, _)| id);
        let (Some(leader), None) = (leaders.next(), leaders.next()) else { return None };
        let agree = fresh().all(|(_, sample)| sample.leader == leader);
        let known = self.leader.filter(|(known, _)| *known == leader).map(|(_, epoch)| epoch);
        let epoch = fresh().map(|(_, sample)| sample.zxid.epoch()).chain(known).max()?;
        agree.then_some((leader, epoch))
    }

    fn end_command(&mut self, now: Instant, id: ServerId, outcome: &Outcome, actions: &mut Vec<Action>) {
        let Some(turn) = &mut self.turn else { return };
        let Some(server) = self.servers.get_mut(&id) else { return };
        let is_again = turn.phase == Phase::CommandedAgain;
        if turn.server != id || !is_again && turn.phase != Phase::Commanded {
            return;
        }
        server.note_outcome(now, outcome, &self.settings);
        let took = now.since(turn.began);
        let why = match outcome {
            Outcome::Taken { size, .. } => {
                actions.push(Action::Notify(Notice::SnapshotTaken { server: id, size: *size, took }));
                server.disturb(now, &self.settings);
                turn.phase = Phase::Settling;
                return;
            }
            Outcome::RateLimited => "a snapshot of the server was commanded a moment ago (429)".to_owned(),
            Outcome::Unanswered(why) | Outcome::Refused(why) | Outcome::Failed(why) => why.clone(),
        };
        let again_after = match outcome {
            Outcome::Unanswered(_) => Some(self.settings.longest_snapshot),
            // A refusal says nothing about the snapshot that was commanded before.
            Outcome::RateLimited | Outcome::Refused(_) => is_again.then_some(self.settings.retry_after),
            Outcome::Taken { .. } | Outcome::Failed(_) => None,
        };
        if let Some(again_after) = again_after {
            let again_from = now.after(again_after);
            *turn = Turn { phase: Phase::Unanswered, noticed_at: now, again_from, ..*turn };
            actions.push(Action::Notify(Notice::Unanswered { server: id, why }));
        } else {
            let because = TurnEnd::NoSnapshot;
            actions.push(Action::Notify(Notice::NoSnapshot { server: id, why }));
            actions.push(Action::Notify(Notice::TurnEnds { server: id, took, because }));
            self.turn = None;
        }
    }

    /// Commands the snapshot again whose command had no answer, once the longest time of a snapshot has passed. Otherwise notifies of the cause now and then.
    fn command_again(&mut self, now: Instant, actions: &mut Vec<Action>) {
        let Some(turn) = self.turn.filter(|turn| turn.phase == Phase::Unanswered) else { return };
        let id = turn.server;
        match self.may_command_again(now, turn) {
            Ok(()) => {
                let Some(server) = self.servers.get_mut(&id) else { return };
                server.note_command();
                self.turn = Some(Turn { phase: Phase::CommandedAgain, ..turn });
                actions.push(Action::Notify(Notice::CommandedAgain { server: id }));
                actions.push(Action::Command(id));
            }
            Err(why) if now.since(turn.noticed_at) >= self.settings.longest_snapshot => {
                let why = format!("it gave no answer, and is not commanded again yet: {why}");
                self.turn = Some(Turn { noticed_at: now, ..turn });
                actions.push(Action::Notify(Notice::Unanswered { server: id, why }));
            }
            Err(_) => {}
        }
    }

    /// # Errors
    /// The cause why the snapshot of a turn without an answer is not commanded again now.
    fn may_command_again(&self, now: Instant, turn: Turn) -> Result<(), String> {
        let id = turn.server;
        if now < turn.again_from {
            return Err(format!("{id} was commanded a moment ago"));
        }
        if self.servers.get(&id).is_none_or(|server| server.fresh(now, &self.settings).is_none()) {
            return Err(format!("{id} does not answer, or serves no clients"));
        }
        self.settled_leader(now)?;
        self.leaves_enough_undisturbed(now, id)
    }

    /// Ends disturbances whose time is over, and with one of them the turn.
    fn settle(&mut self, now: Instant, actions: &mut Vec<Action>) {
        if let Some(turn) = self.turn.filter(|turn| turn.phase == Phase::Unanswered)
            && now.since(turn.began) >= self.settings.longest_snapshot
            && self.servers.get(&turn.server).is_some_and(Server::is_not_listening)
        {
            let took = now.since(turn.began);
            self.turn = None;
            actions.push(Action::Notify(Notice::TurnEnds {
                server: turn.server,
                took,
                because: TurnEnd::Gone,
            }));
        }
        let on_drive = self.settings.settle_time.is_zero();
        for (id, server) in &mut self.servers {
            let turn = self.turn.filter(|turn| turn.server == *id && turn.phase == Phase::Settling);
            let settled = server.settle(now, &self.settings);
            // Where an answered snapshot is on the drive, a server that fell silent after its answer has no turn either.
            let Some(still_slow) = settled.or(turn.filter(|_| on_drive).map(|_| false)) else { continue };
            if let Some(turn) = turn {
                let because = if still_slow { TurnEnd::StillSlow } else { TurnEnd::Settled };
                let took = now.since(turn.began);
                actions.push(Action::Notify(Notice::TurnEnds { server: *id, took, because }));
                self.turn = None;
            }
        }
    }

    /// Begins the next server's turn, if one is due and may begin. Otherwise notifies of the cause, when it changes.
    fn begin_turn(&mut self, now: Instant, actions: &mut Vec<Action>) {
        if self.turn.is_some() {
            return;
        }
        match self.choose(now) {
            Ok(Some(id)) => {
                let record = self.record_size();
                let also_due = self.due(now).into_iter().filter(|other| *other != id).collect();
                let Some(server) = self.servers.get_mut(&id) else { return };
                let role = if server.leads(now, &self.settings) { Role::Leader } else { Role::Follower };
                let (log, snapshot) = (server.log(record), server.snapshot());
                server.note_command();
                self.turn = Some(Turn {
                    server: id,
                    began: now,
                    noticed_at: now,
                    again_from: now,
                    phase: Phase::Commanded,
                });
                self.reported_wait = None;
                actions.push(Action::Notify(Notice::TurnBegins {
                    server: id,
                    role,
                    log,
                    snapshot,
                    also_due,
                }));
                actions.push(Action::Command(id));
            }
            Ok(None) => self.reported_wait = None,
            Err(why) => {
                if self.reported_wait.as_ref() != Some(&why) {
                    self.reported_wait = Some(why.clone());
                    actions.push(Action::Notify(Notice::Waits { why }));
                }
            }
        }
    }

    /// The server whose turn begins now; none if no snapshot is due.
    ///
    /// # Errors
    /// The cause why no turn begins although a snapshot is due.
    fn choose(&self, now: Instant) -> Result<Option<ServerId>, String> {
        let due = self.due(now);
        let record = self.record_size();
        if due.is_empty() {
            return match self.slow_server(now) {
                Some((id, server)) if server.is_due(record, &self.settings) => Err(self.slowness(id)),
                _ => Ok(None),
            };
        }
        if now < self.begins_at {
            return Err("a snapshot commanded before this start may still be under way".into());
        }
        let leader = self.settled_leader(now)?;
        let leader_waits =
            due.contains(&leader) && due.iter().any(|other| self.precedes(now, *other, leader));
        let can_go = |id: &ServerId| {
            let retries_later = self.servers.get(id).is_none_or(|server| server.retries_later(now));
            !retries_later && (*id != leader || !leader_waits)
        };
        // A leader that waits for nobody has less than half of the others' room.
        let leader_first = due.contains(&leader) && !leader_waits;
        let order = leader_first.then_some(leader).into_iter().chain(due.iter().copied());
        let Some(next) = order.into_iter().find(can_go) else {
            return Err("the servers whose snapshots are due refused a moment ago".into());
        };
        self.leaves_enough_undisturbed(now, next)?;
        Ok(Some(next))
    }

    /// The leader, if nothing speaks against a snapshot on any server.
    ///
    /// # Errors
    /// The cause why no snapshot may be commanded now.
    fn settled_leader(&self, now: Instant) -> Result<ServerId, String> {
        let Some((leader, _)) = self.leader(now) else {
            let slow = self.slow_server(now).map(|(id, _)| self.slowness(id));
            return Err(slow.unwrap_or_else(|| "the servers that answer agree on no leader".to_owned()));
        };
        if let Some((starting, _)) = self.servers.iter().find(|(_, server)| server.is_starting()) {
            return Err(format!("{starting} starts, and may be taking a snapshot by itself"));
        }
        if let Some((settling, _)) = self.servers.iter().find(|(_, server)| server.is_settling()) {
            return Err(format!(
                "{settling} served for a short time only, has another leader, or took a snapshot: its syncs are to be fast for a while first"
            ));
        }
        Ok(leader)
    }

    /// # Errors
    /// The cause why too few servers beside `next` are undisturbed.
    fn leaves_enough_undisturbed(&self, now: Instant, next: ServerId) -> Result<(), String> {
        let is_undisturbed =
            |(id, server): &(&ServerId, &Server)| **id != next && server.is_undisturbed(now, &self.settings);
        let undisturbed = self.servers.iter().filter(is_undisturbed).count();
        let needed = Members::min_undisturbed(self.servers.len());
        if undisturbed < needed {
            return Err(format!(
                "beside {next} only {undisturbed} servers are undisturbed, and {needed} are needed"
            ));
        }
        Ok(())
    }

    fn slow_server(&self, now: Instant) -> Option<(ServerId, &Server)> {
        let mut servers = self.servers.iter().map(|(id, server)| (*id, server));
        servers.find(|(_, server)| server.answers_slowly(now, &self.settings))
    }

    fn slowness(&self, server: ServerId) -> String {
        format!("{server} answers slowly: its newest sample is older than {:?}", self.settings.sample_age)
    }

    /// True if the leader waits for `other`, whose snapshot is due.
    fn precedes(&self, now: Instant, other: ServerId, leader: ServerId) -> bool {
        let record = self.record_size();
        let room =
            |id: ServerId| self.servers.get(&id).map_or(Bytes::ZERO, |s| s.room(record, &self.settings));
        let retries_later = self.servers.get(&other).is_none_or(|server| server.retries_later(now));
        other != leader && !retries_later && room(other).0 / 2 <= room(leader).0
    }

    /// The servers that answer and whose snapshots are due, the one with the least room first.
    fn due(&self, now: Instant) -> Vec<ServerId> {
        let record = self.record_size();
        let mut due: Vec<(Bytes, ServerId)> = self
            .servers
            .iter()
            .filter(|(_, s)| s.fresh(now, &self.settings).is_some() && s.is_due(record, &self.settings))
            .map(|(id, s)| (s.room(record, &self.settings), *id))
            .collect();
        due.sort_unstable();
        due.into_iter().map(|(_, id)| id).collect()
    }

    fn record_size(&self) -> Bytes {
        self.proposal.map_or(UNKNOWN_RECORD, |size| size.plus(Bytes(RECORD_HEADER)))
    }
}

/// The notice of a change of a server's health.
fn notice_of_health(server: ServerId, before: Option<&Health>, now: &Health, actions: &mut Vec<Action>) {
    let notice = match now {
        Health::Serving(_) if before.is_some_and(|before| !matches!(before, Health::Serving(_))) => {
            Notice::Serves { server }
        }
        Health::Serving(_) => return,
        _ if before == Some(now) => return,
        Health::Starting => Notice::NotServing { server, why: "serves no clients".to_owned() },
        Health::Unreachable(why) | Health::Gone(why) | Health::Faulty(why) => {
            Notice::NotServing { server, why: why.clone() }
        }
    };
    actions.push(Action::Notify(notice));
}

#[cfg(test)]
mod tests;
