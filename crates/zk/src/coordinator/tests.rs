use std::time::Duration;

use super::*;
use crate::sample::{Sample, Zxid};

mod random;

const SECOND: u64 = 1_000_000_000;

fn at(seconds: u64) -> Instant {
    Instant(seconds * SECOND)
}

fn settings() -> Settings {
    Settings {
        longest_snapshot: Duration::from_secs(20),
        sample_age: Duration::from_secs(3),
        calm: Duration::from_secs(3),
        longest_calm: Duration::from_secs(10),
        least_log: Bytes(20_000),
        longest_log: Bytes(200_000),
        retry_after: Duration::from_secs(5),
    }
}

fn servers(count: u64) -> BTreeSet<ServerId> {
    (1..=count).map(ServerId).collect()
}

/// Server 3 leads; records are of 256 bytes, so that 79 entries are due.
fn sample(id: u64, entries: u64) -> Sample {
    Sample {
        role: if id == 3 { Role::Leader } else { Role::Follower },
        leader: ServerId(3),
        zxid: Zxid((1 << 32) + 1000 + entries),
        snapshot: Some(Zxid((1 << 32) + 1000)),
        snapshots: 1,
        syncs: 0,
        sync_time: Duration::ZERO,
        elections: 1,
        uptime: Duration::from_secs(100),
        data: Bytes(1000),
        proposal: (id == 3).then_some(Bytes(243)),
    }
}

/// A coordinator of servers whose samples a test sets, polled each second.
struct Bench {
    coordinator: Coordinator,
    now: u64,
    health: BTreeMap<u64, Health>,
    told: Vec<Notice>,
}

impl Bench {
    fn new(entries: &[u64]) -> Bench {
        let count = entries.len() as u64;
        let health = (1..=count).zip(entries).map(|(id, n)| (id, Health::Serving(sample(id, *n)))).collect();
        let coordinator = Coordinator::new(&servers(count), settings(), at(0));
        Bench { coordinator, now: 0, health, told: Vec::new() }
    }

    /// Lets `seconds` pass; returns the servers commanded.
    fn pass(&mut self, seconds: u64) -> Vec<u64> {
        let mut commanded = Vec::new();
        for _ in 0..seconds {
            self.now += 1;
            for (id, health) in self.health.clone() {
                let event = Event::Polled { server: ServerId(id), asked_at: at(self.now), health };
                commanded.extend(self.step(event));
            }
        }
        commanded
    }

    fn step(&mut self, event: Event) -> Vec<u64> {
        let mut commanded = Vec::new();
        for action in self.coordinator.step(at(self.now), event) {
            match action {
                Action::Command(server) => commanded.push(server.0),
                Action::Tell(notice) => self.told.push(notice),
            }
        }
        commanded
    }

    fn change(&mut self, id: u64, change: impl FnOnce(&mut Sample)) {
        let Some(Health::Serving(sample)) = self.health.get_mut(&id) else { panic!("server {id} serves") };
        change(sample);
    }

    /// The server took its commanded snapshot.
    fn taken(&mut self, id: u64) {
        self.change(id, |sample| {
            sample.snapshot = Some(sample.zxid);
            sample.snapshots += 1;
        });
        let Some(Health::Serving(sample)) = self.health.get(&id) else { panic!("server {id} serves") };
        let outcome = Outcome::Taken { size: Bytes(1000), zxid: sample.zxid };
        assert_eq!(self.ended(id, outcome), [0; 0]);
    }

    fn ended(&mut self, id: u64, outcome: Outcome) -> Vec<u64> {
        self.step(Event::Ended { server: ServerId(id), outcome })
    }

    fn waits_for(&self, word: &str) -> bool {
        self.told.iter().any(|notice| matches!(notice, Notice::Waits { why } if why.contains(word)))
    }
}

#[test]
fn turns_go_to_the_least_room_first_and_to_the_leader_last() {
    let mut bench = Bench::new(&[100, 200, 300]);
    assert_eq!(bench.pass(19), [0; 0], "one before may have commanded a snapshot");
    assert!(bench.waits_for("before this start"));
    assert_eq!(bench.pass(2), [2]);
    assert_eq!(bench.pass(15), [0; 0], "one at a time");
    bench.taken(2);
    assert_eq!(bench.pass(2), [0; 0], "the syncs are watched for 3 s");
    assert_eq!(bench.pass(3), [1]);
    bench.taken(1);
    assert_eq!(bench.pass(5), [3]);
    bench.taken(3);
    assert_eq!(bench.pass(20), [0; 0]);
    assert!(!bench.coordinator.is_busy());
}

#[test]
fn a_leader_with_less_than_half_of_the_room_of_the_others_does_not_wait_for_them() {
    let mut bench = Bench::new(&[100, 100, 700]);
    assert_eq!(bench.pass(25), [3]);
}

#[test]
fn without_enough_servers_that_are_well_no_turn_begins() {
    let mut bench = Bench::new(&[100, 0, 0]);
    bench.health.insert(2, Health::Gone("refused".into()));
    assert_eq!(bench.pass(60), [0; 0]);
    assert!(bench.waits_for("only 1 servers are well"));
    bench.health.insert(2, Health::Serving(sample(2, 0)));
    assert_eq!(bench.pass(10), [1]);

    let mut seven = Bench::new(&[100, 0, 0, 0, 0, 0, 0]);
    seven.health.insert(2, Health::Gone("refused".into()));
    assert_eq!(seven.pass(30), [1], "five of the other six are well");
}

#[test]
fn while_a_server_starts_or_has_a_fault_no_turn_begins_on_it_or_beside_it() {
    for health in [Health::Starting, Health::Faulty("snapCount is not set".into())] {
        let mut bench = Bench::new(&[100, 100, 0]);
        bench.health.insert(2, health);
        assert_eq!(bench.pass(60), [0; 0]);
        bench.health.insert(2, Health::Serving(sample(2, 100)));
        assert_eq!(bench.pass(10).len(), 1);
    }
}

#[test]
fn a_snapshot_that_a_server_takes_by_itself_is_told_and_waited_for() {
    let mut bench = Bench::new(&[0, 0, 0]);
    bench.pass(30);
    bench.change(1, |sample| sample.snapshots += 1);
    bench.change(2, |sample| sample.zxid.0 += 100);
    assert_eq!(bench.pass(3), [0; 0]);
    assert!(bench.told.contains(&Notice::OwnSnapshots { server: ServerId(1), count: 1 }));
    assert!(bench.waits_for("server 1"));
    assert_eq!(bench.pass(5), [2]);
}

#[test]
fn a_new_leader_is_waited_for() {
    let mut bench = Bench::new(&[0, 0, 0]);
    bench.pass(30);
    for id in 1..=3 {
        bench.change(id, |sample| {
            sample.leader = ServerId(1);
            sample.role = if id == 1 { Role::Leader } else { Role::Follower };
            sample.zxid.0 += 100;
        });
    }
    assert_eq!(bench.pass(3), [0; 0]);
    assert_eq!(bench.pass(4), [2], "server 1 leads now, and is last");
    assert!(bench.told.contains(&Notice::Leader { server: ServerId(1) }));
}

#[test]
fn a_turn_goes_on_while_the_syncs_are_slow_and_not_for_ever() {
    let mut bench = Bench::new(&[100, 100, 0]);
    let usual = |bench: &mut Bench, mean: u64| {
        bench.change(1, |sample| {
            sample.syncs += 10;
            sample.sync_time += Duration::from_millis(10 * mean);
        });
        bench.pass(1)
    };
    let commanded: Vec<u64> = (0..25).flat_map(|_| usual(&mut bench, 2)).collect();
    assert_eq!(commanded, [1]);
    bench.taken(1);
    assert!((0..9).all(|_| usual(&mut bench, 30).is_empty()));
    bench.pass(2);
    let given_up = |notice: &&Notice| matches!(notice, Notice::TurnEnds { because: TurnEnd::StillSlow, .. });
    assert_eq!(bench.told.iter().filter(given_up).count(), 1, "{:?}", bench.told);
}

#[test]
fn where_an_answered_snapshot_is_on_the_drive_the_turn_ends_at_once() {
    let mut bench = Bench::new(&[100, 0, 0]);
    bench.coordinator = Coordinator::new(&servers(3), Settings { calm: Duration::ZERO, ..settings() }, at(0));
    assert_eq!(bench.pass(21), [1]);
    bench.taken(1);
    assert!(matches!(bench.told.last(), Some(Notice::TurnEnds { because: TurnEnd::Calm, .. })));
}

#[test]
fn without_an_answer_the_counter_of_snapshots_ends_the_turn() {
    let mut bench = Bench::new(&[100, 100, 0]);
    assert_eq!(bench.pass(21), [1]);
    assert_eq!(bench.ended(1, Outcome::Unanswered("no answer".into())), [0; 0]);
    assert_eq!(bench.pass(300), [0; 0], "the snapshot may go on");
    bench.change(1, |sample| {
        sample.snapshots += 1;
        sample.snapshot = Some(sample.zxid);
    });
    assert_eq!(bench.pass(6), [2]);
}

#[test]
fn without_an_answer_a_new_process_ends_the_turn() {
    let mut bench = Bench::new(&[100, 100, 0]);
    bench.change(1, |sample| sample.syncs = 50);
    assert_eq!(bench.pass(21), [1]);
    assert_eq!(bench.ended(1, Outcome::Unanswered("reset".into())), [0; 0]);
    bench.pass(5);
    bench.change(1, |sample| sample.syncs = 0);
    assert_eq!(bench.pass(8), [1]);
    assert!(bench.told.iter().any(|n| matches!(n, Notice::TurnEnds { because: TurnEnd::Restarted, .. })));
}

#[test]
fn without_an_answer_a_dead_process_ends_the_turn_after_the_longest_time_of_a_snapshot() {
    let mut bench = Bench::new(&[100, 100, 0, 0, 0, 0, 0]);
    assert_eq!(bench.pass(21), [1]);
    assert_eq!(bench.ended(1, Outcome::Unanswered("reset".into())), [0; 0]);
    bench.health.insert(1, Health::Gone("refused".into()));
    assert_eq!(bench.pass(15), [0; 0]);
    assert_eq!(bench.pass(10), [2]);
}

#[test]
fn a_server_that_refuses_is_asked_again_later_and_others_go_on() {
    let mut bench = Bench::new(&[100, 90, 0]);
    assert_eq!(bench.pass(21), [1]);
    assert_eq!(bench.ended(1, Outcome::RateLimited), [2]);
    bench.taken(2);
    assert_eq!(bench.pass(6), [1]);
}
