//! A node reports to leaders, and asks before it writes whether and how fast it may.

use std::collections::VecDeque;

use units::{Bytes, Instant};

use crate::message::{Grant, NodeId, Ping, Report, ReportId, Revoke, Status, Term, TurnKind};
use crate::options::Options;

/// Number of reports whose times a node keeps: a grant that answers an older one is refused.
const REPORTS_KEPT: usize = 64;

/// One incarnation of a node: made when its process starts.
#[derive(Debug)]
pub struct Node {
    me: NodeId,
    incarnation: u64,
    options: Options,
    /// The newest term that the node heard of.
    term: Term,
    /// The numbers and times of the last reports of this term, oldest first.
    sent: VecDeque<(u64, Instant)>,
    next_report: u64,
    refuses_below: u64,
    turn: Option<Turn>,
    /// The number of the report that the last grant answered.
    answered: Option<u64>,
    forced: u64,
    /// True if the snapshot that is not durable yet was counted as forced.
    is_counted: bool,
}

#[derive(Clone, Copy, Debug)]
enum Turn {
    Granted(GrantedTurn),
    Forced { since: Instant },
}

#[derive(Clone, Copy, Debug)]
struct GrantedTurn {
    ends_at: Instant,
    rate: Bytes,
    /// Nothing more is written, and the turn ends once nothing is in flight.
    is_stopped: bool,
    /// Since when the node went on without a turn before this one: it does so again afterwards.
    forced_since: Option<Instant>,
}

impl Node {
    /// A node `me` whose process has just started. `incarnation` is a number that no earlier process of the node had. Call [`follow`](Node::follow) with the term that
    /// the node's consensus has on its drive before anything else.
    pub fn new(me: NodeId, incarnation: u64, options: Options) -> Node {
        Node {
            me,
            incarnation,
            options,
            term: Term::default(),
            sent: VecDeque::new(),
            next_report: 0,
            refuses_below: 0,
            turn: None,
            answered: None,
            forced: 0,
            is_counted: false,
        }
    }

    /// The newest term that the node heard of.
    pub fn term(&self) -> Term {
        self.term
    }

    /// Number of snapshots that this incarnation of the node took, or went on with, at its hard limit without a turn.
    pub fn forced(&self) -> u64 {
        self.forced
    }

    /// The group has a leader of `term`, for whom this node has voted, or which it is: grants of older terms are refused from now on. A granted turn goes on.
    pub fn follow(&mut self, term: Term) {
        if term > self.term {
            self.term = term;
            self.sent.clear();
        }
    }

    /// This node leads in `term`. A turn that it was granted before stops: another node must lead while it has one.
    pub fn lead(&mut self, term: Term) {
        self.follow(term);
        self.stop();
    }

    /// Answers a ping at `now`, the time by this node's clock, at which the report is sent; `None` for a ping of an older leader.
    pub fn report(&mut self, now: Instant, ping: Ping, status: Status) -> Option<Report> {
        if ping.term < self.term {
            return None;
        }
        self.follow(ping.term);
        self.expire(now);
        let number = self.next_report;
        self.next_report += 1;
        self.sent.push_back((number, now));
        if self.sent.len() > REPORTS_KEPT {
            self.sent.pop_front();
        }
        let turn = self.turn.map(|turn| match turn {
            Turn::Granted(_) => TurnKind::Granted,
            Turn::Forced { .. } => TurnKind::Forced,
        });
        Some(Report {
            node: self.me,
            term: self.term,
            id: ReportId { incarnation: self.incarnation, number },
            asked_at: ping.asked_at,
            refuses_below: self.refuses_below,
            turn,
            status,
        })
    }

    /// Takes a grant. Returns false if the node refuses the grant: one of another term or an earlier incarnation, one that is too late, one that was sent before the turn was
    /// revoked or a later grant.
    pub fn granted(&mut self, now: Instant, grant: &Grant) -> bool {
        self.expire(now);
        let is_ours =
            grant.node == self.me && grant.term == self.term && grant.report.incarnation == self.incarnation;
        let is_older = self.answered.is_some_and(|answered| grant.report.number < answered);
        if !is_ours || is_older || grant.report.number < self.refuses_below {
            return false;
        }
        let sent = self.sent.iter().find(|(number, _)| *number == grant.report.number);
        let Some((_, sent_at)) = sent else { return false };
        let ends_at = sent_at.after(grant.lease.min(self.options.lease));
        if ends_at <= now {
            return false;
        }
        self.answered = Some(grant.report.number);
        let turn = GrantedTurn { ends_at, rate: grant.rate, is_stopped: false, forced_since: None };
        self.turn = Some(Turn::Granted(match self.turn {
            Some(Turn::Granted(before)) => GrantedTurn {
                ends_at: ends_at.max(before.ends_at),
                forced_since: before.forced_since,
                ..turn
            },
            Some(Turn::Forced { since }) => GrantedTurn { forced_since: Some(since), ..turn },
            None => turn,
        }));
        true
    }

    /// The leader asks to stop: [`rate`](Node::rate) is `None` from now on. The turn lasts until the caller says that nothing is in flight any more.
    pub fn revoked(&mut self, revoke: &Revoke) {
        if revoke.node == self.me && revoke.term == self.term {
            self.stop();
        }
    }

    /// No byte of the snapshot is on its way to the drive, or in a cache from which it will be written: a turn that was stopped ends. Call it after
    /// [`revoked`](Node::revoked) and [`lead`](Node::lead).
    pub fn nothing_in_flight(&mut self) {
        if matches!(self.turn, Some(Turn::Granted(GrantedTurn { is_stopped: true, .. }))) {
            self.end_granted_turn();
        }
    }

    /// The rate in bytes a second at which the node may write its snapshot now; `None`: not at all. Ask before each piece, and let a piece take a small part
    /// of a lease. A node whose `status` has no room left goes without a turn, at the least rate, and twice as fast after each lease that this takes: the log may grow faster
    /// than the least rate lets a snapshot end.
    pub fn rate(&mut self, now: Instant, status: &Status) -> Option<Bytes> {
        self.expire(now);
        if self.turn.is_none() && status.room == Bytes::ZERO {
            self.turn = Some(Turn::Forced { since: now });
            self.forced += u64::from(!std::mem::replace(&mut self.is_counted, true));
        }
        match self.turn? {
            Turn::Granted(turn) => (!turn.is_stopped).then_some(turn.rate),
            Turn::Forced { since } => {
                let leases = now.since(since).as_nanos() / self.options.lease.as_nanos().max(1);
                let times = 1_u64.checked_shl(u32::try_from(leases).unwrap_or(u32::MAX)).unwrap_or(u64::MAX);
                Some(Bytes(self.options.least_rate.0.saturating_mul(times)))
            }
        }
    }

    /// When the granted turn ends unless it is renewed.
    pub fn ends_at(&self) -> Option<Instant> {
        match self.turn {
            Some(Turn::Granted(turn)) => Some(turn.ends_at),
            Some(Turn::Forced { .. }) | None => None,
        }
    }

    /// The snapshot is durable: the turn ends.
    pub fn durable(&mut self) {
        self.turn = None;
        self.refuses_below = self.next_report;
        self.is_counted = false;
    }

    fn expire(&mut self, now: Instant) {
        if self.ends_at().is_some_and(|ends_at| ends_at <= now) {
            self.end_granted_turn();
        }
    }

    fn stop(&mut self) {
        if let Some(Turn::Granted(turn)) = &mut self.turn {
            turn.is_stopped = true;
            // A renewal that was sent before the revocation does not start the turn again.
            self.refuses_below = self.next_report;
        }
    }

    fn end_granted_turn(&mut self) {
        if let Some(Turn::Granted(turn)) = self.turn {
            self.turn = turn.forced_since.map(|since| Turn::Forced { since });
            self.refuses_below = self.next_report;
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    const SECOND: u64 = 1_000_000_000;

    fn at(seconds: u64) -> Instant {
        Instant(seconds * SECOND)
    }

    fn node() -> Node {
        Node::new(NodeId(1), 7, Options::default())
    }

    fn ping(term: u64) -> Ping {
        Ping { term: Term(term), asked_at: Instant(5) }
    }

    fn full() -> Status {
        Status { room: Bytes(1), ..Status::default() }
    }

    fn grant(report: &Report) -> Grant {
        let lease = Duration::from_secs(10);
        Grant { node: report.node, term: report.term, report: report.id, lease, rate: Bytes(1000) }
    }

    #[test]
    fn a_turn_lasts_from_the_sending_of_the_report_and_no_longer() {
        let mut node = node();
        let report = node.report(at(1), ping(1), full()).unwrap();
        assert!(node.granted(at(9), &grant(&report)));
        assert_eq!(node.rate(Instant(11 * SECOND - 1), &full()), Some(Bytes(1000)));
        assert_eq!(node.rate(at(11), &full()), None);
        assert!(!node.granted(at(11), &grant(&report)), "the turn is over");
        let late = node.report(at(12), ping(1), full()).unwrap();
        assert_eq!((late.turn, late.refuses_below), (None, 1));
        assert!(!node.granted(at(22), &grant(&late)));
    }

    #[test]
    fn grants_of_older_terms_and_of_earlier_incarnations_are_refused() {
        let mut node = node();
        let report = node.report(at(1), ping(1), full()).unwrap();
        let of_before = Grant { report: ReportId { incarnation: 6, ..report.id }, ..grant(&report) };
        assert!(!node.granted(at(2), &of_before));
        node.follow(Term(2));
        assert!(!node.granted(at(2), &grant(&report)));
        assert_eq!(node.report(at(2), ping(1), full()), None, "nothing is told to an old leader");
        let report = node.report(at(3), ping(2), full()).unwrap();
        assert!(!node.granted(at(3), &Grant { term: Term(1), ..grant(&report) }));
        assert!(node.granted(at(3), &grant(&report)));
        node.follow(Term(3));
        assert!(node.rate(at(4), &full()).is_some(), "a new leader waits for the lease");
    }

    #[test]
    fn a_turn_ends_with_durable_work_a_revocation_or_leadership() {
        for end in [
            |node: &mut Node| node.durable(),
            |node: &mut Node| node.revoked(&Revoke { node: NodeId(1), term: Term(1) }),
            |node: &mut Node| node.lead(Term(2)),
        ] {
            let mut node = node();
            let report = node.report(at(1), ping(1), full()).unwrap();
            assert!(node.granted(at(1), &grant(&report)));
            node.nothing_in_flight();
            assert!(node.rate(at(1), &full()).is_some(), "a pause in a turn does not end the turn");
            end(&mut node);
            assert_eq!(node.rate(at(2), &full()), None);
            node.nothing_in_flight();
            assert_eq!(node.ends_at(), None);
            assert!(!node.granted(at(2), &grant(&report)), "a grant that was sent before the end");
        }
    }

    #[test]
    fn a_stopped_turn_lasts_while_bytes_are_in_flight_and_goes_on_with_the_next_grant() {
        let mut node = node();
        let report = node.report(at(1), ping(1), full()).unwrap();
        assert!(node.granted(at(1), &grant(&report)));
        node.revoked(&Revoke { node: NodeId(1), term: Term(1) });
        let flushing = node.report(at(2), ping(1), full()).unwrap();
        assert_eq!((flushing.turn, flushing.refuses_below), (Some(TurnKind::Granted), 1));
        assert_eq!(node.rate(at(2), &full()), None);
        assert!(node.granted(at(3), &grant(&flushing)));
        assert!(node.rate(at(3), &full()).is_some());
    }

    #[test]
    fn a_node_without_room_goes_at_a_rising_rate_and_counts_once() {
        let mut node = node();
        let (none, least) = (Status::default(), Options::default().least_rate.0);
        let rates = [1, 10, 11, 21, 31].map(|seconds| node.rate(at(seconds), &none));
        assert_eq!(rates, [1, 1, 2, 4, 8].map(|times| Some(Bytes(times * least))), "leases of 10 s");
        assert!(node.rate(at(100_000), &none).is_some());
        let report = node.report(at(100_001), ping(1), none).unwrap();
        assert_eq!((report.turn, node.forced()), (Some(TurnKind::Forced), 1));
        node.revoked(&Revoke { node: NodeId(1), term: Term(1) });
        assert!(node.rate(at(100_001), &none).is_some(), "the limit is hard");
        assert!(node.granted(at(100_002), &grant(&report)));
        assert_eq!(node.rate(at(100_002), &none), Some(Bytes(1000)), "a turn has a rate of its own");
        let flushing = Status { left: Some(Bytes::ZERO), ..none };
        let report = node.report(at(100_012), ping(1), flushing).unwrap();
        assert_eq!(report.turn, Some(TurnKind::Forced), "the turn is over, and the node goes on");
        assert!(node.rate(at(100_012), &none).is_some_and(|rate| rate.0 > least));
        assert_eq!(node.forced(), 1, "still the same snapshot");
        node.durable();
        assert_eq!(node.rate(at(100_013), &full()), None);
    }

    #[test]
    fn an_older_grant_changes_nothing() {
        let mut node = node();
        let first = node.report(at(1), ping(1), full()).unwrap();
        let second = node.report(at(2), ping(1), full()).unwrap();
        assert!(node.granted(at(2), &grant(&second)));
        assert!(!node.granted(at(3), &Grant { rate: Bytes(5), ..grant(&first) }));
        assert_eq!(node.rate(at(3), &full()), Some(Bytes(1000)));
        node.revoked(&Revoke { node: NodeId(1), term: Term(1) });
        assert!(!node.granted(at(3), &grant(&second)), "it was sent before the revocation");
        assert_eq!(node.rate(at(3), &full()), None);
    }
}
