use std::time::Duration;

use super::*;
use crate::message::{Status, TurnKind};
use crate::node::Node;

const MIB: u64 = 1 << 20;

fn at(millis: u64) -> Instant {
    Instant(millis * 1_000_000)
}

fn options() -> Options {
    Options { lease: Duration::from_secs(4), drift: 0, ..Options::default() }
}

/// A node whose snapshot is due, with `room` MiB left.
fn due(room: u64) -> Status {
    Status { log: Bytes(200 * MIB), snapshot: Bytes(100 * MIB), ..well(room) }
}

fn well(room: u64) -> Status {
    let alone = Duration::from_millis(1);
    Status {
        room: Bytes(room * MIB),
        sync_p99: alone,
        sync_p99_alone: alone,
        snapshot: Bytes(100 * MIB),
        ..Status::default()
    }
}

/// A leader, node 1, with the nodes of its group, all of whom have one clock.
struct Group {
    leader: Leader,
    nodes: Vec<Node>,
    now: u64,
}

impl Group {
    /// A group of `n` nodes whose leader waits for no older lease any more.
    fn of(n: u64, options: Options) -> Group {
        let ids = (1..=n).map(NodeId);
        let leader = Leader::new(NodeId(1), Term(1), Members::of(ids.clone()), options, at(0));
        let now = 1 + (options.lease + options.report_age).as_millis() as u64;
        Group { leader, nodes: ids.map(|id| Node::new(id, 0, options)).collect(), now }
    }

    /// All nodes with a status report, and take the grants that follow. Returns the grants' nodes and the other actions.
    fn round(&mut self, statuses: &[Option<Status>]) -> (Vec<u64>, Vec<Action>) {
        self.now += 250;
        let now = at(self.now);
        let mut actions = self.leader.step(now, Event::Tick);
        let ping = actions.iter().find_map(|action| match action {
            Action::Ping(ping) => Some(*ping),
            _ => None,
        });
        let ping = ping.expect("four pings a report age");
        for (node, status) in self.nodes.iter_mut().zip(statuses) {
            let report = status.and_then(|status| node.report(now, ping, status));
            if let Some(report) = report {
                actions.extend(self.leader.step(now, Event::Report(report)));
            }
        }
        let mut granted = Vec::new();
        actions.retain(|action| match action {
            Action::Ping(_) => false,
            Action::Grant(grant) => {
                granted.push(grant.node.0);
                let takers = self.nodes.iter_mut().filter_map(|node| node.granted(now, grant).then_some(()));
                assert_eq!(takers.count(), 1, "refused: {grant:?}");
                false
            }
            _ => true,
        });
        (granted, actions)
    }
}

#[test]
fn the_node_with_the_least_room_goes_first_and_the_next_one_when_its_work_is_durable() {
    let mut group = Group::of(3, options());
    // The first reports arrive one by one: nobody is granted a turn before a majority was heard.
    let statuses = [Some(well(90)), Some(due(80)), Some(due(70))];
    assert_eq!(group.round(&statuses).0, [3]);
    assert_eq!(group.round(&statuses).0, [], "one of three");
    group.nodes[2].durable();
    let statuses = [Some(well(90)), Some(due(80)), Some(well(100))];
    assert_eq!(group.round(&statuses).0, [2]);
}

#[test]
fn five_nodes_have_one_turn_and_seven_have_two() {
    for (n, turns) in [(4, 1), (5, 1), (6, 1), (7, 2), (8, 2), (9, 3)] {
        let mut group = Group::of(n, options());
        let statuses: Vec<Option<Status>> =
            (0..n).map(|node| Some(if node == 0 { well(90) } else { due(80) })).collect();
        let granted: Vec<u64> = (0..4).flat_map(|_| group.round(&statuses).0).collect();
        assert_eq!(granted.len(), turns, "{n} nodes: {granted:?}");
    }
}

#[test]
fn nobody_goes_while_another_node_is_gone_behind_or_slow() {
    let slow = Status { sync_p99: Duration::from_millis(3), ..well(90) };
    let behind = Status { behind: 2_000, ..well(90) };
    let forced = Status { room: Bytes::ZERO, ..due(0) };
    for other in [None, Some(slow), Some(behind), Some(forced)] {
        let mut group = Group::of(3, options());
        if other == Some(forced) {
            group.nodes[2].rate(at(0), &forced);
        }
        for _ in 0..8 {
            assert_eq!(group.round(&[Some(well(90)), Some(due(80)), other]).0, [], "{other:?}");
        }
        assert_eq!(
            group.round(&[Some(well(90)), Some(due(80)), Some(well(90))]).0.len(),
            usize::from(other != Some(forced))
        );
    }
}

#[test]
fn a_turn_is_renewed_after_half_of_its_lease_and_revoked_when_others_are_disturbed() {
    let mut group = Group::of(3, options());
    let begun = Status { left: Some(Bytes(50 * MIB)), ..due(70) };
    assert_eq!(group.round(&[Some(well(90)), Some(well(90)), Some(due(70))]).0, [3]);
    let renewed: Vec<usize> =
        (0..32).map(|_| group.round(&[Some(well(90)), Some(well(90)), Some(begun)]).0.len()).collect();
    assert_eq!(renewed.iter().sum::<usize>(), 4, "every 2 s of 8: {renewed:?}");
    let slow = Status { sync_p99: Duration::from_millis(3), ..well(90) };
    let (granted, actions) = group.round(&[Some(well(90)), Some(slow), Some(begun)]);
    assert_eq!(
        (granted, actions.last()),
        (vec![], Some(&Action::Revoke(Revoke { node: NodeId(3), term: Term(1) })))
    );
}

#[test]
fn a_new_leader_waits_for_a_lease_and_a_report_age() {
    let mut group = Group::of(3, Options { drift: 10_000, ..options() });
    group.now = 0;
    let statuses = [Some(well(90)), Some(due(80)), Some(well(90))];
    while group.round(&statuses).0.is_empty() {}
    assert_eq!(group.now, 5_250, "5 s and 1 % more");
}

#[test]
fn the_leader_goes_last_and_hands_over_first() {
    let mut group = Group::of(3, options());
    assert_eq!(group.round(&[Some(due(70)), Some(due(80)), Some(well(90))]).0, [2]);
    assert_eq!(group.round(&[Some(due(70)), Some(due(80)), Some(well(90))]), (vec![], vec![]));
    group.nodes[1].durable();
    let statuses = [Some(due(70)), Some(well(95)), Some(well(90))];
    assert_eq!(group.round(&statuses), (vec![], vec![Action::HandOver(NodeId(2))]));
    // The group has no other leader after five seconds: the leader goes while all others are undisturbed.
    let mut without = 0;
    loop {
        let (granted, actions) = group.round(&statuses);
        assert_eq!(actions, []);
        if !granted.is_empty() {
            assert_eq!(granted, [1]);
            break;
        }
        without += 1;
    }
    assert_eq!(without, 19, "rounds of 250 ms in 5 s");
}

#[test]
fn a_leader_that_cannot_hand_over_goes_while_all_others_are_undisturbed() {
    let mut group = Group::of(5, Options { hands_over: false, ..options() });
    let slow = Some(Status { sync_p99: Duration::from_millis(3), ..well(90) });
    let mut statuses = [Some(due(70)), Some(well(90)), Some(well(90)), Some(well(90)), slow];
    assert_eq!(group.round(&statuses).0, []);
    statuses[4] = Some(well(90));
    assert_eq!(group.round(&statuses).0, [1]);
}

#[test]
fn a_leader_with_less_than_half_of_the_room_of_others_does_not_wait_for_them() {
    for (room, hands_over) in [(39, true), (40, false)] {
        let mut group = Group::of(3, options());
        let (granted, actions) = group.round(&[Some(due(room)), Some(due(80)), Some(well(90))]);
        assert_eq!(granted, [2]);
        assert_eq!(actions == [Action::HandOver(NodeId(3))], hands_over, "{room}: {actions:?}");
    }
}

#[test]
fn a_joint_configuration_needs_majorities_of_both() {
    let mut group = Group::of(5, options());
    let members = Members::joint([1, 2, 3].map(NodeId), [3, 4, 5].map(NodeId));
    group.leader.step(at(group.now), Event::Members(members));
    let slow = Some(Status { sync_p99: Duration::from_millis(3), ..well(90) });
    let statuses = [Some(well(90)), Some(due(80)), Some(well(90)), Some(well(90)), slow];
    assert_eq!(group.round(&statuses).0, [2], "two of 3, 4, 5 are undisturbed");
    let mut group = Group::of(5, options());
    let members = Members::joint([1, 2, 3].map(NodeId), [3, 4, 5].map(NodeId));
    group.leader.step(at(group.now), Event::Members(members));
    let statuses = [Some(well(90)), Some(due(80)), slow, Some(well(90)), Some(well(90))];
    assert_eq!(group.round(&statuses).0, [], "of 1, 3 only 1 is undisturbed");
}

#[test]
fn nobody_goes_during_a_recovery() {
    let mut group = Group::of(3, options());
    let statuses = [Some(well(90)), Some(due(80)), Some(well(90))];
    assert_eq!(group.round(&statuses).0, [2]);
    group.leader.step(at(group.now), Event::Recovery(true));
    let (granted, actions) = group.round(&statuses);
    assert_eq!(
        (granted, actions.last()),
        (vec![], Some(&Action::Revoke(Revoke { node: NodeId(2), term: Term(1) })))
    );
}

#[test]
fn a_report_that_arrives_late_or_of_another_term_changes_nothing() {
    let mut group = Group::of(3, options());
    assert_eq!(group.round(&[Some(well(90)), Some(due(80)), Some(well(90))]).0, [2]);
    let now = at(group.now + 10);
    let ping = Ping { term: Term(1), asked_at: at(group.now) };
    let older = Ping { asked_at: at(1), ..ping };
    let report = group.nodes[1].report(now, older, well(90)).unwrap();
    assert_eq!(report.turn, Some(TurnKind::Granted));
    for bad in [
        Report { turn: None, refuses_below: 9, id: ReportId { life: 1, number: 0 }, ..report.clone() },
        Report { turn: None, refuses_below: 9, term: Term(2), asked_at: now, ..report.clone() },
        Report { turn: None, refuses_below: 9, asked_at: at(group.now + 60_000), ..report.clone() },
    ] {
        group.leader.step(now, Event::Report(bad));
    }
    let statuses = [Some(well(90)), None, Some(due(80))];
    assert_eq!(group.round(&statuses).0, [], "node 2 has the turn");
}
