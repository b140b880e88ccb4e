//! Processor time of five replicas of a group together, in one process, for an entry of 512 bytes: messages encoded and decoded, the logs on emulated drives without I/O.
//!
//! - `tasks`: all replicas are tasks of one thread in virtual time, on drives with the times of a `zn540`, whose model costs time too.
//! - `threads`: the threads of `furrow serve`, on drives without delay, with tables in memory or in RocksDB. Sockets are channels.
#![allow(missing_docs, reason = "a benchmark")]

use std::collections::HashMap;
use std::sync::{Arc, mpsc};
use std::time::Duration;

use bench::cluster::{ClusterLoad, MemoryTables, write_records};
use fs::{FormatOptions, Fs, MountOptions};
use futures_util::stream::{FuturesUnordered, StreamExt as _};
use kv::{Expiry, Overlay, Record};
use parking_lot::Mutex;
use replica::{Base, Configuration, GroupId, ReplicaId, Role, Settings};
use rustix::time::{ClockId, clock_gettime};
use shard::{
    Change, Group, GroupOptions, GroupTables, GroupsLog, GroupsLogOptions, Parts, PeerMessage, Peers, Place,
    StoredGroup, Tables, TablesDb, TablesOptions,
};
use units::{Blocks, Driver, RealDriver, block_on, sleep_until, spawn};
use zoned::ZonedDevice;
use zoned::emu::{Emu, EmuOptions};

const GROUP: GroupId = GroupId(1);
const ROLES: [Role; 5] = [Role::Witness, Role::Backup, Role::Backup, Role::Witness, Role::Witness];
const RECORDS: u64 = 100_000;
const VALUE_BYTES: usize = 512;
const WRITERS: usize = 64;
/// Repetitions, of which the median is printed.
const RUNS: usize = 5;
const MEMTABLE: usize = 32 << 20;
const BLOCK_CACHE: usize = 8 << 20;
/// Long, so that a busy machine makes no elections.
const ELECTION_TIMEOUT: Duration = Duration::from_secs(2);

/// Where the replicas' tables lie.
#[derive(Clone, Copy)]
enum Store {
    Memory,
    Rocks,
}

/// The channels to the replicas: messages as bytes.
#[derive(Debug, Default)]
struct Channels(Mutex<HashMap<ReplicaId, mpsc::Sender<Vec<u8>>>>);

impl Peers for Channels {
    fn send(&self, group: GroupId, from: ReplicaId, to: ReplicaId, message: PeerMessage) {
        let bytes = message.encode(group, from, to).expect("replicas send messages that have bytes");
        if let Some(channel) = self.0.lock().get(&to) {
            // A replica that has ended reads nothing.
            channel.send(bytes).ok();
        }
    }
}

struct Node {
    group: Arc<Group>,
    log: Arc<GroupsLog>,
    db: Option<Arc<TablesDb>>,
    fs: Fs,
}

fn start(driver: &Arc<dyn Driver>, channels: &Arc<Channels>, place: Place, store: Store) -> Node {
    let options = EmuOptions {
        zones: 64,
        zone_size: Blocks(16 << 10),
        zone_capacity: Blocks(16 << 10),
        volatile_cache: false,
        max_append: Blocks(256),
        ..EmuOptions::default()
    };
    let device: Arc<dyn ZonedDevice> = Emu::memory(options, Arc::clone(driver));
    let base = Base::first(Configuration::new((1..).map(ReplicaId).zip(ROLES)), ReplicaId(1));
    let stored = StoredGroup::new(base);
    let (fs, log) = block_on(&**driver, async {
        Fs::format(&device, &FormatOptions::default()).await.expect("a new drive");
        let fs = Fs::mount(device, &MountOptions::default()).await.expect("formatted");
        let (log, _) =
            GroupsLog::open(&fs, "/groups", &GroupsLogOptions::default()).await.expect("a new log");
        log.write(GROUP, &Change::State(stored.clone())).await.expect("room");
        (fs, Arc::new(log))
    });
    let (db, tables): (_, Arc<dyn Tables>) = match store {
        Store::Memory => (None, Arc::new(MemoryTables::new(place.role == Role::Witness))),
        Store::Rocks => {
            let options = TablesOptions::new(MEMTABLE, BLOCK_CACHE);
            let db = TablesDb::open(&fs, "/tables", &options).expect("a new database");
            let tables = GroupTables::open(&db, GROUP, place.role).expect("new tables");
            (Some(db), Arc::new(tables))
        }
    };
    let settings = Settings {
        election_timeout: ELECTION_TIMEOUT,
        heartbeat: ELECTION_TIMEOUT / 10,
        ..Settings::default()
    };
    let parts = Parts {
        driver: Arc::clone(driver),
        log: Arc::clone(&log),
        tables,
        peers: Arc::clone(channels) as Arc<dyn Peers>,
    };
    let options = GroupOptions { settings, ..GroupOptions::default() };
    let group = Group::start(place, &options, parts, stored).expect("a new replica");
    let (sender, receiver) = mpsc::channel::<Vec<u8>>();
    channels.0.lock().insert(place.replica, sender);
    let receives = Arc::clone(&group);
    drop(spawn(&**driver, "receive", async move {
        for bytes in receiver {
            let (_, from, _, message) = PeerMessage::decode(&bytes).expect("a replica's bytes");
            receives.receive(from, message);
        }
    }));
    Node { group, log, db, fs }
}

async fn write(leader: &Group, number: u64) {
    let mut overlay = Overlay::default();
    let value = vec![0x5A; VALUE_BYTES].into();
    overlay.put(format!("key:{number:012}").into_bytes().into(), Record { expires: Expiry::NEVER, value });
    leader.write(&overlay).await.expect("the leader stays");
}

/// Processor time of the process, in microseconds.
fn processor_us() -> f64 {
    let time = clock_gettime(ClockId::ProcessCPUTime);
    time.tv_sec as f64 * 1e6 + time.tv_nsec as f64 / 1e3
}

/// Microseconds of the processor for an entry, and entries a second, with the threads of a process.
fn threads(store: Store) -> (f64, f64) {
    let driver: Arc<dyn Driver> = RealDriver::new();
    let channels = Arc::new(Channels::default());
    let places = (1..).map(ReplicaId).zip(ROLES);
    let places = places.map(|(replica, role)| Place { group: GROUP, replica, role });
    let nodes: Vec<Node> = places.map(|place| start(&driver, &channels, place, store)).collect();
    let (used, seconds) = block_on(&*driver, async {
        let leader = loop {
            match nodes.iter().find(|node| node.group.view().is_ok()) {
                Some(node) => break &node.group,
                None => sleep_until(&*driver, driver.now().after(Duration::from_millis(1))).await,
            }
        };
        write(leader, 0).await;
        let (begin, before) = (driver.now(), processor_us());
        let mut in_flight = FuturesUnordered::new();
        for number in 0..RECORDS {
            in_flight.push(write(leader, number));
            if in_flight.len() == WRITERS {
                in_flight.next().await;
            }
        }
        while in_flight.next().await.is_some() {}
        (processor_us() - before, driver.now().since(begin).as_secs_f64())
    });
    channels.0.lock().clear();
    for Node { group, log, db, fs } in nodes {
        block_on(&*driver, async {
            group.close();
            group.finished().await;
            log.close().await.expect("closes");
            if let Some(db) = db {
                db.close().expect("closes");
            }
            fs.unmount().await.expect("unmounts");
        });
    }
    (used / RECORDS as f64, RECORDS as f64 / seconds)
}

/// The same, with all replicas as tasks of this thread.
fn tasks() -> (f64, f64) {
    let load = ClusterLoad { records: RECORDS, ..ClusterLoad::default() };
    let before = processor_us();
    write_records(&load).expect("a cluster without faults");
    let used = processor_us() - before;
    (used / RECORDS as f64, RECORDS as f64 / (used / 1e6))
}

fn print(name: &str, run: impl Fn() -> (f64, f64)) {
    let mut runs: Vec<(f64, f64)> = (0..RUNS).map(|_| run()).collect();
    runs.sort_by(|one, other| one.0.total_cmp(&other.0));
    let at = |place: usize| runs.get(place).copied().unwrap_or_default();
    let ((least, _), (used, rate), (most, _)) = (at(0), at(RUNS / 2), at(RUNS - 1));
    println!(
        "{name:<24} {used:>8.2} us of processor an entry ({least:.2} to {most:.2}), {rate:>8.0} entries/s"
    );
}

/// Without an argument all of them; with one, those whose name has it: `tasks`, `threads`, `rocksdb`.
fn main() {
    let only = std::env::args().skip(1).find(|argument| !argument.starts_with("--"));
    let is_wanted = |name: &str| only.as_ref().is_none_or(|only| name.contains(only.as_str()));
    if is_wanted("tasks, memory") {
        print("tasks, memory", tasks);
    }
    for (name, store) in [("threads, memory", Store::Memory), ("threads, rocksdb", Store::Rocks)] {
        if is_wanted(name) {
            print(name, || threads(store));
        }
    }
}
