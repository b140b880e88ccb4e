//! Connections and processes that are refused.

mod common;

use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};

use common::{GROUP, PATIENCE, Process, cluster, heartbeat, node, options};
use peers::frame::{FrameWriter, Hello, MAX_FRAME};
use peers::{NetworkOptions, ProcessId};
use replica::ReplicaId;

/// A writer of frames of node 1.
fn writer() -> FrameWriter {
    FrameWriter::new(ProcessId { cluster: cluster(1), node: node(1), starts: 1 })
}

fn hello() -> Vec<u8> {
    writer().hello(Hello { to: node(2), process: 77 }).to_vec()
}

fn messages(messages: &[&[u8]]) -> Vec<u8> {
    let mut writer = writer();
    writer.begin_messages();
    messages.iter().for_each(|message| writer.add(message));
    writer.end().to_vec()
}

fn message() -> Vec<u8> {
    heartbeat(1, 2).encode(GROUP, ReplicaId(1), ReplicaId(2)).expect("replicas send it")
}

/// Sends bytes to the address, and waits until the connection is closed.
fn send(address: SocketAddr, bytes: &[u8]) {
    let mut stream = TcpStream::connect(address).expect("connects");
    stream.set_read_timeout(Some(PATIENCE)).expect("an option");
    stream.write_all(bytes).ok();
    let closed = stream.read(&mut [0]).map_err(|error| error.kind());
    assert!(matches!(closed, Ok(0) | Err(ErrorKind::ConnectionReset)), "{closed:?}");
}

#[test]
fn a_connection_with_a_bad_frame_is_closed_and_nothing_of_the_frame_is_delivered() {
    let second = Process::start(options(2));
    let address = second.network.address();
    let (hello, good) = (hello(), message());
    let mut corrupt = messages(&[&good]);
    *corrupt.last_mut().expect("a frame") ^= 1;
    let mut newer = messages(&[&good]);
    newer[8] = 2;
    let mut other = good.clone();
    other[0] = 9;
    let too_long = u32::try_from(MAX_FRAME + 1).expect("small").to_le_bytes();
    // The begin of a frame of 8 MiB, which the connection would wait for.
    let unfinished = [&[0, 0, 128, 0, 0, 0, 0, 0, 1][..], &[7; 100]].concat();
    let bad: &[&[u8]] = &[
        b"GET / HTTP/1.1\r\nHost: furrow\r\n\r\n",
        &[0; 4096],
        &too_long,
        &messages(&[&good]),
        &unfinished,
        &[&hello[..], &corrupt].concat(),
        &[&hello[..], &newer].concat(),
        &[&hello[..], &too_long].concat(),
        &[&hello[..], &messages(&[&good, &other])].concat(),
        &[&hello[..], &messages(&[])].concat(),
        &[&hello[..], &hello].concat(),
    ];
    for (bytes, refused) in bad.iter().zip(1..) {
        send(address, bytes);
        second.wait_for_counters(|counters| counters.frames_refused >= refused);
        assert_eq!(second.network.counters().frames_refused, refused, "{bytes:?}");
    }
    assert_eq!(second.inbox.received(), []);
    // A frame before the bad one is delivered.
    send(address, &[&hello[..], &messages(&[&good, &good]), &too_long].concat());
    assert_eq!(second.inbox.wait_until(|received| received.len() == 2).len(), 2);
}

#[test]
fn a_frame_in_pieces_is_delivered_once_it_is_whole() {
    let second = Process::start(options(2));
    let mut stream = TcpStream::connect(second.network.address()).expect("connects");
    let bytes = [hello(), messages(&[&message()])].concat();
    for byte in &bytes {
        stream.write_all(&[*byte]).expect("taken");
    }
    second.inbox.wait_until(|received| received.len() == 1);
    assert_eq!(second.network.counters().frames_refused, 0);
}

/// A process that knows node 2, at that address.
fn process(options: NetworkOptions, address: SocketAddr) -> Process {
    let process = Process::start(options);
    process.knows(2, address);
    process
}

#[test]
fn a_process_of_another_cluster_is_refused() {
    let second = Process::start(options(2));
    let stranger = process(NetworkOptions { cluster: cluster(9), ..options(1) }, second.network.address());
    second.repeat_until(|| stranger.beat(1, 2), |counters| counters.frames_refused >= 2);
    assert_eq!(second.inbox.received(), []);
}

#[test]
fn a_process_that_takes_the_receiver_for_another_node_is_refused() {
    let third = Process::start(options(3));
    let first = process(options(1), third.network.address());
    third.repeat_until(|| first.beat(1, 2), |counters| counters.frames_refused >= 2);
    assert_eq!(third.inbox.received(), []);
}

#[test]
fn an_earlier_process_of_a_node_is_refused_once_a_later_one_was_there() {
    let second = Process::start(options(2));
    let started = |starts| process(NetworkOptions { starts, ..options(1) }, second.network.address());
    let of = |count: usize, from: u64| {
        move |received: &[common::Received]| {
            received.iter().filter(|(_, sender, ..)| sender.0 == from).count() >= count
        }
    };
    let fifth = started(5);
    fifth.beat(5, 2);
    second.inbox.wait_until(of(1, 5));
    let fourth = started(4);
    second.repeat_until(|| fourth.beat(4, 2), |counters| counters.frames_refused >= 2);
    let copy = started(5);
    second.repeat_until(|| copy.beat(55, 2), |counters| counters.frames_refused >= 4);
    fifth.beat(5, 2);
    second.inbox.wait_until(of(2, 5));
    let sixth = started(6);
    sixth.beat(6, 2);
    second.inbox.wait_until(of(1, 6));
    // A connection that was there before the later process ends with its next frame.
    let (refused, before) = (second.network.counters().frames_refused, second.inbox.received().len());
    second.repeat_until(|| fifth.beat(5, 2), |counters| counters.frames_refused > refused + 1);
    let received = second.inbox.received();
    assert!(!of(1, 4)(&received) && !of(1, 55)(&received));
    assert_eq!(received.len(), before);
}
