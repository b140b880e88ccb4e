//! `cargo bench -p furrow-peers --bench frames`: the round trip of a message of 512 bytes between two networks on loopback, each with a runtime of its own, and beside it that of 512 bytes between two threads by blocking sockets: what the kernel takes.

use std::io::{Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, OnceLock, mpsc};

use parking_lot::Mutex;
use peers::{Network, NetworkOptions, Receiver};
use replica::ReplicaId;
use replica::{ClusterId, NodeId};
use shard::{Answer, GroupId, PeerMessage, Peers, RequestId};
use tokio::runtime::Runtime;
use units::{Driver, Instant, RealDriver};
use uuid::Uuid;

const GROUP: GroupId = GroupId(1);
/// Bytes of a message.
const BYTES: usize = 512;
/// Bytes of an answer with one value besides the value.
const AROUND_VALUE: usize = 42;
/// Round trips that are measured, and those before them.
const ROUND_TRIPS: usize = 50_000;
const WARM_UP: usize = 5_000;

fn message() -> PeerMessage {
    PeerMessage::Answer(RequestId(1), Answer::Values(vec![Some(vec![7; BYTES - AROUND_VALUE])]))
}

/// Times of round trips.
struct Times {
    driver: Arc<RealDriver>,
    since: Instant,
    times: Vec<f64>,
}

impl Times {
    fn new() -> Times {
        let driver = RealDriver::new();
        Times { since: driver.now(), driver, times: Vec::new() }
    }

    /// Notes the end of a round trip. False if there are enough.
    fn note(&mut self) -> bool {
        let now = self.driver.now();
        self.times.push(now.since(self.since).as_nanos() as f64 / 1000.0);
        self.since = now;
        self.times.len() < WARM_UP + ROUND_TRIPS
    }

    fn print(&self, of: &str) {
        let mut times: Vec<f64> = self.times.iter().skip(WARM_UP).copied().collect();
        times.sort_by(f64::total_cmp);
        let at = |share: f64| times.get((times.len() as f64 * share) as usize).copied().unwrap_or(f64::NAN);
        println!(
            "{of}: round trip p50 {:.1} us, p99 {:.1} us; half of it {:.1} us",
            at(0.5),
            at(0.99),
            at(0.5) / 2.0
        );
    }
}

/// A replica that sends each message back.
#[derive(Default)]
struct Echo(OnceLock<Arc<Network>>);

impl Receiver for Echo {
    fn receive(&self, group: GroupId, from: ReplicaId, to: ReplicaId, message: PeerMessage) {
        if let Some(network) = self.0.get() {
            network.send(group, to, from, message);
        }
    }
}

/// A replica that notes the time of each round trip, and begins the next one.
struct Pinger {
    network: OnceLock<Arc<Network>>,
    times: Mutex<Times>,
    done: mpsc::Sender<()>,
}

impl Receiver for Pinger {
    fn receive(&self, group: GroupId, from: ReplicaId, to: ReplicaId, message: PeerMessage) {
        if self.times.lock().note() {
            if let Some(network) = self.network.get() {
                network.send(group, to, from, message);
            }
        } else {
            self.done.send(()).expect("the main thread waits");
        }
    }
}

fn network(n: u8, runtime: &Runtime, receiver: Arc<dyn Receiver>) -> Arc<Network> {
    let uuid = |n| Uuid::from_bytes([n; 16]);
    let listen = (Ipv4Addr::LOCALHOST, 0).into();
    let options = NetworkOptions::new(ClusterId(uuid(9)), NodeId(uuid(n)), 1, listen);
    Arc::new(Network::start(options, runtime.handle(), receiver).expect("starts"))
}

fn knows(network: &Network, n: u8, address: SocketAddr) {
    let node = NodeId(Uuid::from_bytes([n; 16]));
    network.set_node(node, address).expect("on loopback");
    network.set_replica(GROUP, ReplicaId(n.into()), node);
}

fn networks(threads: usize) {
    let runtime = || {
        let mut builder = tokio::runtime::Builder::new_multi_thread();
        builder.worker_threads(threads).enable_all().build().expect("a runtime")
    };
    let runtimes = [runtime(), runtime()];
    let (done, is_done) = mpsc::channel();
    let pinger = Arc::new(Pinger { network: OnceLock::new(), times: Times::new().into(), done });
    let echo = Arc::new(Echo::default());
    let [first, second] = &runtimes;
    let first = network(1, first, Arc::clone(&pinger) as _);
    let second = network(2, second, Arc::clone(&echo) as _);
    knows(&first, 2, second.address());
    knows(&second, 1, first.address());
    pinger.network.set(Arc::clone(&first)).expect("once");
    echo.0.set(second).expect("once");
    first.send(GROUP, ReplicaId(1), ReplicaId(2), message());
    is_done.recv().expect("the pinger says so");
    pinger.times.lock().print(&format!("networks, {threads} threads each"));
}

fn sockets() {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a port");
    let address = listener.local_addr().expect("bound");
    let mut times = Times::new();
    std::thread::scope(|scope| {
        scope.spawn(move || {
            let (mut stream, _) = listener.accept().expect("accepts");
            stream.set_nodelay(true).expect("an option");
            let mut bytes = [0; BYTES];
            while stream.read_exact(&mut bytes).is_ok() {
                stream.write_all(&bytes).expect("writes");
            }
        });
        let mut stream = TcpStream::connect(address).expect("connects");
        stream.set_nodelay(true).expect("an option");
        let mut bytes = [7; BYTES];
        loop {
            stream.write_all(&bytes).expect("writes");
            stream.read_exact(&mut bytes).expect("reads");
            if !times.note() {
                break;
            }
        }
    });
    times.print("blocking sockets");
}

fn main() {
    let encoded = message().encode(GROUP, ReplicaId(1), ReplicaId(2)).expect("replicas send it");
    assert_eq!(encoded.len(), BYTES);
    sockets();
    networks(1);
    networks(2);
}
