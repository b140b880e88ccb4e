//! A replica that takes a snapshot, step by step.

use std::time::Duration;

use raft::eraftpb::{ConfState, HardState, Message as RaftMessage, MessageType, Snapshot};
use replica::{
    Action, Base, Configuration, Event, GroupState, Index, Message, Office, Recovered, Replica, ReplicaId,
    Role, Settings, Term,
};
use units::Instant;

fn base(index: u64, term: u64, primary: u64) -> Base {
    let roles = [Role::Witness, Role::Backup, Role::Backup, Role::Witness, Role::Witness];
    let members = Configuration::new((1..).map(ReplicaId).zip(roles));
    let offices = vec![Office { holder: ReplicaId(primary), term: Term(term) }];
    let state = GroupState::first_version(members, Index(0), offices);
    Base { index: Index(index), term: Term(term), state }
}

/// A witness whose log ends with entry 50, which is applied, at ten seconds of its clock.
fn witness() -> (Replica, Instant) {
    let recovered = Recovered {
        base: base(50, 1, 1),
        entries: Vec::new(),
        vote: HardState { term: 1, commit: 50, ..HardState::default() },
        applied: Index(50),
        stable: Index(40),
        is_whole: true,
    };
    let now = Instant::ORIGIN.after(Duration::from_secs(10));
    let replica = Replica::new(&Settings::default(), (ReplicaId(1), Role::Witness), recovered, (now, 7));
    (replica.expect("starts"), now)
}

/// The snapshot of 100 that the leader of a term sends.
fn snapshot(leader: u64, term: u64) -> Event {
    let base = base(100, 2, 4);
    let mut snapshot = Snapshot { data: base.encode().into(), ..Snapshot::default() };
    let metadata = snapshot.mut_metadata();
    (metadata.index, metadata.term) = (100, 2);
    metadata.set_conf_state(ConfState { voters: vec![1, 2, 3, 4, 5], ..ConfState::default() });
    let msg_type = MessageType::MsgSnapshot;
    let mut raft = RaftMessage { msg_type, from: leader, to: 1, term, ..RaftMessage::default() };
    raft.set_snapshot(snapshot);
    Event::Message(Box::new(Message {
        raft,
        sent: None,
        stable: Index(100),
        is_whole: true,
        inquiry: None,
        lacks_room: false,
        version: None,
    }))
}

fn heartbeat(leader: u64, term: u64) -> Event {
    let msg_type = MessageType::MsgHeartbeat;
    let raft = RaftMessage { msg_type, from: leader, to: 1, term, ..RaftMessage::default() };
    let sent = Some(Instant::ORIGIN);
    Event::Message(Box::new(Message {
        raft,
        sent,
        stable: Index(100),
        is_whole: false,
        inquiry: None,
        lacks_room: false,
        version: None,
    }))
}

/// True if the tables are to be got for a snapshot.
fn installs(actions: &[Action]) -> bool {
    actions.iter().any(|action| matches!(action, Action::Install { index: Index(100), .. }))
}

/// The request to make the snapshot's base durable.
fn takes_base(actions: &[Action]) -> Option<u64> {
    actions.iter().find_map(|action| match action {
        Action::Persist { number, base: Some(base), .. } if base.index == Index(100) => Some(*number),
        _ => None,
    })
}

#[test]
fn a_snapshot_counts_once_the_tables_hold_it() {
    let (mut replica, now) = witness();
    replica.step(now, heartbeat(4, 2));
    let actions = replica.step(now, snapshot(4, 2));
    assert!(installs(&actions) && takes_base(&actions).is_none());
    assert!(!installs(&replica.step(now, snapshot(4, 2))), "it is repeated, and under way");
    let number = takes_base(&replica.step(now, Event::Installed(Index(100)))).expect("the base");
    let actions = replica.step(now, Event::Persisted(number));
    let answers = |action: &Action| {
        matches!(action, Action::Send(ReplicaId(4), message)
            if message.raft.msg_type == MessageType::MsgAppendResponse && message.raft.index == 100)
    };
    assert!(actions.iter().any(answers), "{actions:?}");
}

#[test]
fn a_replica_does_not_stand_while_its_base_is_written() {
    let (mut replica, now) = witness();
    replica.step(now, heartbeat(4, 2));
    replica.step(now, snapshot(4, 2));
    let number = takes_base(&replica.step(now, Event::Installed(Index(100)))).expect("the base");
    // The leader is dead, and the drive is slow. Raft would look for entries below the base, and end the process.
    let late = now.after(Duration::from_secs(2));
    replica.step(late, Event::Tick);
    assert_eq!(replica.term(), Term(2));
    replica.step(late, Event::Persisted(number));
    let stands = |actions: &[Action]| {
        actions.iter().any(|action| {
            matches!(action, Action::Send(_, message) if message.raft.msg_type == MessageType::MsgRequestPreVote)
        })
    };
    let mut actions = replica.step(late.after(Duration::from_secs(2)), Event::Tick);
    let requests = actions.iter().filter_map(|action| match action {
        Action::Persist { number, .. } => Some(*number),
        _ => None,
    });
    if let Some(number) = requests.max() {
        actions.extend(replica.step(late.after(Duration::from_secs(2)), Event::Persisted(number)));
    }
    assert!(stands(&actions), "{actions:?}");
}

#[test]
fn an_install_for_one_leader_does_not_count_for_another() {
    let (mut replica, now) = witness();
    replica.step(now, heartbeat(4, 2));
    assert!(installs(&replica.step(now, snapshot(4, 2))));
    replica.step(now, heartbeat(5, 3));
    replica.step(now, snapshot(5, 3));
    assert!(takes_base(&replica.step(now, Event::Installed(Index(100)))).is_none());
    assert!(installs(&replica.step(now, snapshot(5, 3))), "the tables are got anew");
}
