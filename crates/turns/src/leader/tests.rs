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
    /// Grants do not arrive yet.
    grants_are_late: bool,
}

impl Group {
    /// A group of `n` nodes whose leader waits for no older lease any more.
    fn of(n: u64, options: Options) -> Group {
        let ids = (1..=n).map(NodeId);
        let leader = Leader::new(NodeId(1), Term(1), Members::of(ids.clone()), options, at(0));
        let now = 1 + (options.lease + options.report_age).as_millis() as u64;
        Group {
            leader,
            nodes: ids.map(|id| Node::new(id, 0, options)).collect(),
            now,
            grants_are_late: false,
        }
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
                if self.grants_are_late {
                    return false;
                }
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
    for other in [None, Some(slow), Some(behind)] {
        let mut group = Group::of(3, options());
        for _ in 0..8 {
            assert_eq!(group.round(&[Some(well(90)), Some(due(80)), other]).0, [], "{other:?}");
        }
        assert_eq!(group.round(&[Some(well(90)), Some(due(80)), Some(well(90))]).0, [2]);
    }
}

#[test]
fn a_node_that_went_without_a_turn_disturbs_and_gets_one_first() {
    let mut group = Group::of(3, options());
    let full = Status { room: Bytes::ZERO, ..due(0) };
    group.nodes[2].rate(at(0), &full);
    let slow = Some(Status { sync_p99: Duration::from_millis(3), ..well(90) });
    assert_eq!(group.round(&[slow, Some(due(80)), Some(full)]).0, [], "node 1 is slow, node 3 has a turn");
    assert_eq!(group.round(&[Some(well(90)), Some(due(80)), Some(full)]).0, [3]);
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
    for (room, granted) in [(39, vec![]), (40, vec![2])] {
        let mut group = Group::of(3, options());
        let (turns, actions) = group.round(&[Some(due(room)), Some(due(80)), Some(well(90))]);
        assert_eq!(turns, granted, "{room}");
        assert_eq!(
            actions.iter().any(|action| matches!(action, Action::HandOver(_))),
            granted.is_empty(),
            "{room}"
        );
    }
}

#[test]
fn a_leader_hands_over_to_a_node_that_is_due_where_all_are() {
    let mut group = Group::of(3, Options { hand_over_patience: Duration::from_secs(1), ..options() });
    let statuses = [Some(due(30)), Some(due(80)), Some(due(90))];
    let (granted, actions) = group.round(&statuses);
    assert_eq!(granted, []);
    assert!(matches!(actions[..], [Action::HandOver(_)]), "{actions:?}");
    // The handing over fails: the leader goes itself, and asks again ten times as much later.
    let turns: Vec<u64> = (0..4).flat_map(|_| group.round(&statuses).0).collect();
    assert_eq!(turns, [1]);
    let slow = Some(Status { sync_p99: Duration::from_millis(3), ..due(90) });
    group.round(&[Some(due(30)), Some(due(80)), slow]);
    group.nodes[0].durable();
    let asked = (0..60).position(|_| !group.round(&[Some(due(30)), Some(due(80)), slow]).1.is_empty());
    assert!(asked.is_some_and(|rounds| (30..=40).contains(&rounds)), "{asked:?} rounds of 250 ms");
}

#[test]
fn a_leader_without_another_voter_of_all_configurations_goes_itself() {
    let mut group = Group::of(1, options());
    assert_eq!(group.round(&[Some(due(30))]).0, [1]);
    let mut group = Group::of(3, options());
    let members = Members::joint([1, 2].map(NodeId), [1, 3].map(NodeId));
    group.leader.step(at(group.now), Event::Members(members));
    assert_eq!(group.round(&[Some(due(30)), Some(well(80)), Some(well(90))]), (vec![1], vec![]));
}

#[test]
fn a_joint_configuration_needs_majorities_of_both() {
    let slow = Some(Status { sync_p99: Duration::from_millis(3), ..well(90) });
    let fine = Some(well(90));
    for (what, statuses, granted) in [
        ("two of 3, 4, 5 are undisturbed", [fine, Some(due(80)), fine, fine, slow], vec![2]),
        ("of 1, 3 only 1 is", [fine, Some(due(80)), slow, fine, fine], vec![]),
        ("of 3, 4, 5 only 3 is", [fine, Some(due(80)), fine, slow, slow], vec![]),
    ] {
        let mut group = Group::of(5, options());
        let members = Members::joint([1, 2, 3].map(NodeId), [3, 4, 5].map(NodeId));
        group.leader.step(at(group.now), Event::Members(members));
        assert_eq!(group.round(&statuses).0, granted, "{what}");
    }
}

#[test]
fn a_node_that_is_no_voter_has_no_turn_and_disturbs_nobody() {
    let mut group = Group::of(4, options());
    group.leader.step(at(group.now), Event::Members(Members::of([1, 2, 3].map(NodeId))));
    assert_eq!(group.round(&[Some(well(90)), Some(well(90)), Some(well(90)), Some(due(80))]).0, []);
    assert_eq!(group.round(&[Some(well(90)), Some(due(80)), Some(well(90)), Some(due(0))]).0, [2]);
}

#[test]
fn a_node_that_leaves_and_returns_keeps_the_turn_whose_grant_is_on_its_way() {
    let mut group = Group::of(4, options());
    let statuses = |third| [Some(well(90)), Some(well(90)), third, Some(due(70))];
    group.grants_are_late = true;
    assert_eq!(group.round(&statuses(Some(well(90)))).0, [4], "the grant is late");
    let begun = group.now;
    for members in [vec![1, 2, 3], vec![1, 2, 3, 4]] {
        let members = Members::of(members.into_iter().map(NodeId));
        assert_eq!(group.leader.step(at(group.now), Event::Members(members)), []);
    }
    let mut granted = Vec::new();
    while granted.is_empty() {
        granted = group.round(&statuses(Some(due(60)))).0;
    }
    assert_eq!((granted, group.now - begun), (vec![3], 4_000), "after the lease of node 4");
}

#[test]
fn the_turn_of_a_node_that_left_is_not_renewed() {
    let mut group = Group::of(4, options());
    let statuses = [Some(well(90)), Some(well(90)), Some(well(90)), Some(due(70))];
    assert_eq!(group.round(&statuses).0, [4]);
    group.leader.step(at(group.now), Event::Members(Members::of([1, 2, 3].map(NodeId))));
    let granted: Vec<u64> = (0..20).flat_map(|_| group.round(&statuses).0).collect();
    assert_eq!(granted, [0; 0]);
    assert!(group.leader.removed.is_empty(), "the lease is over");
}

#[test]
fn a_long_log_is_due_however_large_the_snapshot_is() {
    for (log, granted) in [(99, vec![]), (100, vec![2])] {
        let mut group = Group::of(3, Options { longest_log: Bytes(100 * MIB), ..options() });
        let status = Status { log: Bytes(log * MIB), snapshot: Bytes(5_000 * MIB), ..well(90) };
        assert_eq!(group.round(&[Some(well(90)), Some(status), Some(well(90))]).0, granted);
    }
}

/// The rate of the grant to node 2, which has 100 MiB to write and `room` MiB left, while the log grows by 10 MiB a second. Node 3 waits with `waiting` MiB left.
fn granted_rate(room: u64, waiting: Option<u64>) -> u64 {
    let mut group = Group::of(3, options());
    let grown = |log: u64| Some(Status { log: Bytes(log * 10 * MIB), snapshot: Bytes(u64::MAX), ..well(90) });
    for second in 0..40 {
        group.now += 750;
        group.round(&[grown(second), None, None]);
    }
    let grown = |log: u64| Status { log: Bytes(log * 10 * MIB), snapshot: Bytes(u64::MAX), ..well(90) };
    group.now += 750;
    let now = at(group.now);
    let ping = group.leader.step(now, Event::Tick);
    let Some(Action::Ping(ping)) = ping.first() else { panic!("no ping") };
    let third = waiting.map_or(well(90), due);
    let statuses = [grown(40), due(room), third];
    let actions: Vec<Action> = [0, 2, 1]
        .into_iter()
        .flat_map(|node| {
            let report = group.nodes[node].report(now, *ping, statuses[node]).unwrap();
            group.leader.step(now, Event::Report(report))
        })
        .collect();
    match actions[..] {
        [Action::Grant(grant)] if grant.node == NodeId(2) => grant.rate.0 / MIB,
        _ => panic!("{actions:?}"),
    }
}

#[test]
fn the_rate_is_as_low_as_the_room_of_the_node_and_of_those_who_wait_allows() {
    // 100 MiB in half of the 40 s that 400 MiB last.
    assert!((4..=5).contains(&granted_rate(400, None)), "{}", granted_rate(400, None));
    assert!((39..=41).contains(&granted_rate(50, None)));
    // Two snapshots until the node that waits is at its limit: node 2 has as much room here, and goes first.
    assert!((78..=82).contains(&granted_rate(50, Some(50))));
}

/// The log grows by 10 MiB a second, node 2 has 100 MiB to write and 400 MiB left, and writes as fast as its turn says.
#[test]
fn a_turn_ends_well_before_the_limit() {
    let mut group = Group::of(3, options());
    let grown = |seconds: u64| {
        Some(Status { log: Bytes(seconds * 10 * MIB), snapshot: Bytes(u64::MAX), ..well(900) })
    };
    for second in 0..40 {
        group.now += 750;
        group.round(&[grown(second), Some(well(900)), Some(well(900))]);
    }
    let (mut left, mut room, mut seconds) = (100.0, 400.0, 0.0);
    while left > 0.0 {
        let bytes = |mib: f64| Bytes((mib * MIB as f64) as u64);
        let status = Status { room: bytes(room), left: Some(bytes(left)), ..due(0) };
        let log = 40 + seconds as u64;
        group.round(&[grown(log), Some(status), Some(well(900))]);
        let rate = group.nodes[1].rate(at(group.now), &status).map_or(0.0, |rate| rate.0 as f64 / MIB as f64);
        left -= rate * 0.25;
        room -= 10.0 * 0.25;
        seconds += 0.25;
        assert!(room > 150.0, "{left} MiB are left, and {room} of 400 until the limit");
    }
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
fn an_inherited_turn_is_revoked_in_a_recovery_and_never_renewed() {
    let mut group = Group::of(3, options());
    let statuses = [Some(well(90)), Some(due(80)), Some(well(90))];
    assert_eq!(group.round(&statuses).0, [2]);
    let members = Members::of([1, 2, 3].map(NodeId));
    group.leader = Leader::new(NodeId(1), Term(2), members, options(), at(group.now));
    assert_eq!(group.round(&statuses), (vec![], vec![]));
    group.leader.step(at(group.now), Event::Recovery(true));
    let revocation = Action::Revoke(Revoke { node: NodeId(2), term: Term(2) });
    assert_eq!(group.round(&statuses), (vec![], vec![revocation.clone()]), "once for each report");
    assert_eq!(group.round(&statuses), (vec![], vec![revocation]));
}

#[test]
fn a_turn_without_work_is_revoked() {
    let mut group = Group::of(3, options());
    assert_eq!(group.round(&[Some(well(90)), Some(due(80)), Some(well(90))]).0, [2]);
    let (_, actions) = group.round(&[Some(well(90)), Some(well(90)), Some(well(90))]);
    assert_eq!(actions, [Action::Revoke(Revoke { node: NodeId(2), term: Term(1) })]);
}

#[test]
fn a_report_that_arrives_late_or_of_another_term_changes_nothing() {
    let mut group = Group::of(3, options());
    assert_eq!(group.round(&[Some(well(90)), Some(due(80)), Some(well(90))]).0, [2]);
    let now = at(group.now + 10);
    let ping = Ping { term: Term(1), asked_at: at(group.now) };
    let report = group.nodes[1].report(now, ping, due(80)).unwrap();
    assert_eq!(report.turn, Some(TurnKind::Granted));
    group.leader.step(now, Event::Report(report.clone()));
    for bad in [
        // Still fresh, and older than what the leader knows.
        Report {
            turn: None,
            refuses_below: 9,
            asked_at: at(group.now - 100),
            id: ReportId { incarnation: 0, number: 0 },
            ..report.clone()
        },
        Report { turn: None, refuses_below: 9, term: Term(2), asked_at: now, ..report.clone() },
        Report { turn: None, refuses_below: 9, asked_at: at(group.now + 60_000), ..report },
    ] {
        let actions = group.leader.step(now, Event::Report(bad.clone()));
        assert_eq!(actions, [], "{bad:?}");
    }
    let statuses = [Some(well(90)), None, Some(due(80))];
    assert_eq!(group.round(&statuses).0, [], "node 2 has the turn");
}

#[test]
fn reports_with_huge_numbers_are_taken() {
    let mut group = Group::of(3, options());
    let huge = Status {
        log: Bytes(u64::MAX),
        entries: u64::MAX,
        snapshot: Bytes(u64::MAX),
        left: Some(Bytes(u64::MAX)),
        room: Bytes(u64::MAX),
        behind: 0,
        sync_p99: Duration::MAX,
        sync_p99_alone: Duration::MAX,
    };
    assert_eq!(group.round(&[Some(huge), Some(well(9)), Some(huge)]).0, [3]);
}
