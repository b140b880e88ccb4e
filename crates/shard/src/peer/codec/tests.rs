//! The codec's tests.

use ::raft::CAMPAIGN_TRANSFER;
use ::raft::eraftpb::{
    ConfChangeSingle, ConfChangeTransition, ConfChangeType, ConfChangeV2, Entry, EntryType,
    Message as RaftMessage, MessageType,
};
use kv::Expiry;
use proptest::collection::vec;
use proptest::option;
use proptest::prelude::*;
use protobuf::Message as _;
use replica::{Base, Command, Configuration, GroupState, Inquiry, Message, Office, Role, Version};
use units::Instant;

use super::*;

const GROUP: GroupId = GroupId(5);
const FROM: ReplicaId = ReplicaId(1);
const TO: ReplicaId = ReplicaId(2);

fn base(index: u64) -> Base {
    let members = |ids: &[u64]| Configuration::new(ids.iter().map(|id| (ReplicaId(*id), Role::Backup)));
    let target = members(&[1, 2, 4]).with_learners([(ReplicaId(5), Role::Witness)]);
    let offices = vec![Office { holder: ReplicaId(1), term: Term(2) }];
    let state = GroupState::first_version(members(&[1, 2, 3]).joint_with(&target), Index(0), offices);
    Base { index: Index(index), term: Term(2), state }
}

/// Raft's bytes of a change of members, without a library that writes them.
fn change_of_members(context: &[u8]) -> Vec<u8> {
    [&[8, 2, 0x12, 4, 8, 1, 0x10, 7, 0x1a, u8::try_from(context.len()).expect("short")], context].concat()
}

fn entries(index: u64, data: Vec<(bool, u64, Vec<u8>)>) -> Vec<Entry> {
    let entries = data.into_iter().zip(index + 1..).map(|((is_normal, term, data), index)| {
        let (entry_type, data) = if is_normal {
            (EntryType::EntryNormal, data)
        } else {
            (EntryType::EntryConfChangeV2, change_of_members(&data))
        };
        Entry { entry_type, index, term, data: data.into(), ..Entry::default() }
    });
    entries.collect()
}

fn raft(msg_type: MessageType) -> RaftMessage {
    RaftMessage { msg_type, from: FROM.0, to: TO.0, term: 7, ..RaftMessage::default() }
}

fn replica(raft: RaftMessage) -> PeerMessage {
    let sent = (raft.msg_type == MessageType::MsgHeartbeat).then_some(Instant(77));
    let is_whole = raft.msg_type == MessageType::MsgSnapshot;
    let inquiry = match raft.msg_type {
        MessageType::MsgHeartbeat => Some(Inquiry::Answered(1 << 50, Index(8))),
        MessageType::MsgHeartbeatResponse => Some(Inquiry::Asked(1 << 51)),
        _ => None,
    };
    let lacks_room = raft.msg_type == MessageType::MsgHeartbeatResponse;
    let version = match raft.msg_type {
        MessageType::MsgHeartbeat => Some(Version(1)),
        MessageType::MsgHeartbeatResponse => Some(Version(0x0102)),
        _ => None,
    };
    let stable = Index(3);
    PeerMessage::Replica(Box::new(Message { raft, sent, stable, is_whole, inquiry, lacks_room, version }))
}

fn row(value: Option<&[u8]>) -> Row {
    Row {
        index: Index(4),
        term: Term(2),
        expires: Expiry::at(1_795_294_357_811),
        value: value.map(<[u8]>::to_vec),
    }
}

/// One message of each kind, by a name for its golden file.
fn one_of_each() -> Vec<(&'static str, PeerMessage)> {
    let vote = |msg_type, context: &[u8]| RaftMessage {
        log_term: 2,
        index: 9,
        commit: 8,
        commit_term: 1,
        context: context.to_vec().into(),
        ..raft(msg_type)
    };
    let voted = |msg_type| RaftMessage { commit: 8, commit_term: 1, reject: true, ..raft(msg_type) };
    let new = vec![(true, 2, b"value".to_vec()), (false, 3, b"members".to_vec())];
    let mut append = RaftMessage { log_term: 2, index: 9, commit: 8, ..raft(MessageType::MsgAppend) };
    append.set_entries(entries(9, new).into());
    let refused = RaftMessage {
        log_term: 2,
        index: 9,
        commit: 8,
        reject: true,
        reject_hint: 6,
        ..raft(MessageType::MsgAppendResponse)
    };
    let mut snapshot = raft(MessageType::MsgSnapshot);
    snapshot.set_snapshot(base(9).snapshot());
    let state = GroupState { version: Version(2), last_replica: ReplicaId(5), ..base(9).state };
    let second_version = Base { state, ..base(9) };
    let id = RequestId(1 << 40);
    let name = RecordName { key: b"key".to_vec(), index: Index(4), term: Term(2) };
    let rows = vec![(b"a".to_vec(), row(Some(b"value"))), (b"b".to_vec(), row(None))];
    let rows = Rows { from: b"a".to_vec(), to: Some(b"c".to_vec()), rows };
    let heartbeat = |msg_type| RaftMessage { commit: 8, ..raft(msg_type) };
    vec![
        ("append", replica(append)),
        ("append-response", replica(refused)),
        ("vote", replica(vote(MessageType::MsgRequestVote, CAMPAIGN_TRANSFER))),
        ("vote-response", replica(voted(MessageType::MsgRequestVoteResponse))),
        ("pre-vote", replica(vote(MessageType::MsgRequestPreVote, b""))),
        ("pre-vote-response", replica(voted(MessageType::MsgRequestPreVoteResponse))),
        ("snapshot", replica(snapshot)),
        ("heartbeat", replica(heartbeat(MessageType::MsgHeartbeat))),
        ("heartbeat-response", replica(heartbeat(MessageType::MsgHeartbeatResponse))),
        ("timeout-now", replica(raft(MessageType::MsgTimeoutNow))),
        ("request-values", PeerMessage::Request(id, Request::Values(vec![name]))),
        ("request-rows", PeerMessage::Request(id, Request::Rows { from: b"a".to_vec(), applied: Index(9) })),
        ("values", PeerMessage::Answer(id, Answer::Values(vec![Some(b"value".to_vec()), None]))),
        ("rows", PeerMessage::Answer(id, Answer::Rows(rows))),
        ("not-now", PeerMessage::Answer(id, Answer::NotNow)),
        ("request-members", PeerMessage::Request(id, Request::Members)),
        ("members", PeerMessage::Answer(id, Answer::Members(Box::new(base(9))))),
        ("members-version-2", PeerMessage::Answer(id, Answer::Members(Box::new(second_version)))),
    ]
}

#[test]
fn a_message_with_the_base_of_a_newer_group_is_named() {
    let state = GroupState { version: Version(Version::NEWEST.0 + 1), ..base(9).state };
    let newer = Base { state, ..base(9) };
    let members = PeerMessage::Answer(RequestId(1), Answer::Members(Box::new(newer.clone())));
    let members = members.encode(GROUP, FROM, TO).expect("bytes");
    // A snapshot of this version, with the bytes of the newer base in the place of its own.
    let mut message = raft(MessageType::MsgSnapshot);
    message.set_snapshot(base(9).snapshot());
    let mut snapshot = replica(message).encode(GROUP, FROM, TO).expect("bytes");
    snapshot.truncate(snapshot.len() - base(9).encode().len() - 4);
    put_counted(&mut snapshot, &newer.encode());
    for bytes in [members, snapshot] {
        let error = PeerMessage::decode(&bytes).expect_err("newer");
        assert!(matches!(error, Error::TooOld(_)), "{error}");
    }
}

#[test]
fn each_message_is_that_of_the_golden_file_and_no_part_of_it_is_one() {
    let directory = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/golden");
    for (name, message) in one_of_each() {
        let bytes = message.encode(GROUP, FROM, TO).expect("replicas send it");
        let file = format!("{directory}/peer-{name}-v1.bin");
        if std::env::var_os("FURROW_BLESS").is_some() {
            std::fs::write(&file, &bytes).expect("writes");
        }
        assert_eq!(std::fs::read(&file).expect("a golden file"), bytes, "{name}");
        assert_eq!(PeerMessage::decode(&bytes).expect("decodes"), (GROUP, FROM, TO, message), "{name}");
        for len in 0..bytes.len() {
            assert!(PeerMessage::decode(&bytes[..len]).is_err(), "{len} of {name}");
        }
        assert!(PeerMessage::decode(&[&bytes[..], &[0]].concat()).is_err(), "{name}");
    }
}

#[test]
fn a_message_of_another_version_is_refused_in_words() {
    let error = PeerMessage::decode(&[2, 20]).expect_err("another version").to_string();
    assert!(error.contains("version 2"), "{error}");
}

#[test]
fn messages_and_fields_that_replicas_do_not_send_have_no_bytes() {
    let heartbeat = raft(MessageType::MsgHeartbeat);
    assert!(replica(heartbeat.clone()).encode(GROUP, FROM, TO).is_some());
    for msg_type in [
        MessageType::MsgHup,
        MessageType::MsgBeat,
        MessageType::MsgPropose,
        MessageType::MsgUnreachable,
        MessageType::MsgSnapStatus,
        MessageType::MsgCheckQuorum,
        MessageType::MsgTransferLeader,
        MessageType::MsgReadIndex,
        MessageType::MsgReadIndexResp,
    ] {
        assert_eq!(replica(raft(msg_type)).encode(GROUP, FROM, TO), None, "{msg_type:?}");
    }
    let mut append = RaftMessage { index: 9, ..raft(MessageType::MsgAppend) };
    append.set_entries(entries(10, vec![(true, 1, Vec::new())]).into());
    let mut with_context = entries(9, vec![(true, 1, Vec::new())]);
    with_context[0].context = "context".into();
    let mut other_change = entries(9, vec![(false, 1, Vec::new())]);
    other_change[0].entry_type = EntryType::EntryConfChange;
    for bad in [
        RaftMessage { from: 9, ..heartbeat.clone() },
        RaftMessage { to: 9, ..heartbeat.clone() },
        RaftMessage { reject: true, ..heartbeat.clone() },
        RaftMessage { reject_hint: 1, ..heartbeat.clone() },
        RaftMessage { priority: 1, ..heartbeat.clone() },
        RaftMessage { context: "read".into(), ..heartbeat.clone() },
        RaftMessage { request_snapshot: 1, ..raft(MessageType::MsgAppendResponse) },
        raft(MessageType::MsgSnapshot),
        RaftMessage {
            entries: with_context.into(),
            ..RaftMessage { index: 9, ..raft(MessageType::MsgAppend) }
        },
        RaftMessage {
            entries: other_change.into(),
            ..RaftMessage { index: 9, ..raft(MessageType::MsgAppend) }
        },
        append,
    ] {
        assert_eq!(replica(bad.clone()).encode(GROUP, FROM, TO), None, "{bad:?}");
    }
}

#[test]
fn a_change_of_members_with_foreign_fields_is_refused_before_raft_s_parser_meets_it() {
    let append = |data: Vec<u8>| {
        let entry = Entry {
            entry_type: EntryType::EntryConfChangeV2,
            data: data.into(),
            index: 1,
            ..Entry::default()
        };
        replica(RaftMessage { entries: vec![entry].into(), ..raft(MessageType::MsgAppend) })
    };
    let mut change = ConfChangeV2::default();
    let single = ConfChangeSingle {
        node_id: 1 << 40,
        change_type: ConfChangeType::RemoveNode,
        ..ConfChangeSingle::default()
    };
    change.set_changes(vec![single.clone(), single].into());
    change.set_transition(ConfChangeTransition::Explicit);
    change.set_context(b"members".to_vec().into());
    let good = change.write_to_bytes().expect("in memory");
    let bytes = append(good.clone()).encode(GROUP, FROM, TO).expect("replicas send it");
    assert!(PeerMessage::decode(&bytes).is_ok());
    // The begin of a group takes the place of the first tag.
    let at = bytes.len() - good.len();
    let nested = [&bytes[..at], &[0x0b], &bytes[at + 1..]].concat();
    assert!(PeerMessage::decode(&nested).is_err());
    assert_eq!(append(vec![0x0b; 100_000]).encode(GROUP, FROM, TO), None);
}

fn message() -> impl Strategy<Value = PeerMessage> {
    let bytes = || vec(any::<u8>(), 0..40);
    let value = move || option::of(bytes());
    let numbers = [1_u64 << 60; 5].map(|most| 0..most);
    let parts = (0_usize..10, numbers, any::<[bool; 4]>(), vec((any::<bool>(), any::<u64>(), bytes()), 0..4));
    let log = parts.prop_map(|(form, [term, index, log_term, commit, hint], [a, b, c, d], data)| {
        let types = [
            MessageType::MsgAppend,
            MessageType::MsgAppendResponse,
            MessageType::MsgRequestVote,
            MessageType::MsgRequestVoteResponse,
            MessageType::MsgRequestPreVote,
            MessageType::MsgRequestPreVoteResponse,
            MessageType::MsgSnapshot,
            MessageType::MsgHeartbeat,
            MessageType::MsgHeartbeatResponse,
            MessageType::MsgTimeoutNow,
        ];
        let mut message = RaftMessage { term, ..raft(types[form]) };
        match form {
            0 => {
                (message.index, message.log_term, message.commit) = (index, log_term, commit);
                message.entries = entries(index, data).into();
            }
            1 => {
                (message.index, message.log_term, message.commit) = (index, log_term, commit);
                (message.reject, message.reject_hint) = (a, hint);
            }
            2 | 4 => {
                (message.index, message.log_term) = (index, log_term);
                (message.commit, message.commit_term) = (commit, hint);
                if form == 2 && a {
                    message.context = CAMPAIGN_TRANSFER.into();
                }
            }
            3 | 5 => (message.commit, message.commit_term, message.reject) = (commit, hint, a),
            6 => message.set_snapshot(base(index).snapshot()),
            7 | 8 => message.commit = commit,
            _ => {}
        }
        let sent = b.then_some(Instant(hint));
        let inquiry = match form {
            7 if c => Some(Inquiry::Answered(hint, Index(index))),
            8 if c => Some(Inquiry::Asked(hint)),
            _ => None,
        };
        PeerMessage::Replica(Box::new(Message {
            raft: message,
            sent,
            stable: Index(commit),
            is_whole: c && d,
            inquiry,
            lacks_room: form == 8 && d,
            version: Some(Version(u16::from(hint as u8)))
                .filter(|version| (form == 7 || form == 8) && *version != Version(0)),
        }))
    });
    let number = any::<u64>;
    let name = (bytes(), number(), number());
    let name = name.prop_map(|(key, index, term)| RecordName { key, index: Index(index), term: Term(term) });
    let row = (bytes(), number(), number(), any::<u32>(), value());
    let row = row.prop_map(|(key, index, term, at, value)| {
        let expires = if at == 0 { Expiry::NEVER } else { Expiry::at(at.into()) };
        (key, Row { index: Index(index), term: Term(term), expires, value })
    });
    let rows = (bytes(), value(), vec(row, 0..4));
    let rows = rows.prop_map(|(from, to, rows)| Answer::Rows(Rows { from, to, rows }));
    let request = prop_oneof![
        vec(name, 0..4).prop_map(Request::Values),
        (bytes(), number()).prop_map(|(from, applied)| Request::Rows { from, applied: Index(applied) }),
    ];
    let answer = prop_oneof![vec(value(), 0..4).prop_map(Answer::Values), rows, Just(Answer::NotNow)];
    prop_oneof![
        log,
        (number(), request).prop_map(|(id, request)| PeerMessage::Request(RequestId(id), request)),
        (number(), answer).prop_map(|(id, answer)| PeerMessage::Answer(RequestId(id), answer)),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2_000))]

    #[test]
    fn a_message_survives_its_bytes(message in message(), group: u64) {
        let bytes = message.encode(GroupId(group), FROM, TO).expect("replicas send it");
        let decoded = PeerMessage::decode(&bytes).expect("its own bytes");
        prop_assert_eq!(decoded, (GroupId(group), FROM, TO, message));
    }

    #[test]
    fn a_message_with_changed_bytes_is_another_message_or_none(
        message in message(), changes in vec((any::<prop::sample::Index>(), any::<u8>()), 1..4),
    ) {
        let mut bytes = message.encode(GROUP, FROM, TO).expect("replicas send it");
        for (at, byte) in changes {
            let at = at.index(bytes.len());
            bytes[at] = byte;
        }
        fuzz_message(&bytes);
    }

    #[test]
    fn any_bytes_are_a_message_or_none(kind in 0_u8..22, bytes: Vec<u8>) {
        fuzz_message(&bytes);
        fuzz_message(&[&[VERSION, kind][..], &bytes].concat());
    }
}

/// A command's entry as a leader sends it.
#[test]
fn entries_of_commands_keep_their_values() {
    let command = Command { record: b"record".to_vec(), value: Some(b"value".to_vec()) };
    let data = replica::Body::Command(command.clone()).encode();
    let mut append = raft(MessageType::MsgAppend);
    append.set_entries(entries(0, vec![(true, 7, data)]).into());
    let bytes = self::replica(append).encode(GROUP, FROM, TO).expect("replicas send it");
    let (.., PeerMessage::Replica(message)) = PeerMessage::decode(&bytes).expect("decodes") else { panic!() };
    assert_eq!(replica::Body::of(&message.raft.entries[0]), Some(replica::Body::Command(command)));
}
