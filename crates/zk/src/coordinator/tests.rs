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
        settle_time: Duration::from_secs(3),
        longest_settle_time: Duration::from_secs(10),
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
        data: Bytes(1000),
        proposal: (id == 3).then_some(Bytes(243)),
    }
}

/// A coordinator of servers whose samples a test sets, polled each second.
struct Bench {
    coordinator: Coordinator,
    now: u64,
    health: BTreeMap<u64, Health>,
    notices: Vec<Notice>,
}

impl Bench {
    fn new(entries: &[u64]) -> Bench {
        let count = entries.len() as u64;
        let health = (1..=count).zip(entries).map(|(id, n)| (id, Health::Serving(sample(id, *n)))).collect();
        let coordinator = Coordinator::new(&servers(count), settings(), at(0));
        Bench { coordinator, now: 0, health, notices: Vec::new() }
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
                Action::Notify(notice) => self.notices.push(notice),
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
        self.notices.iter().any(|notice| matches!(notice, Notice::Waits { why } if why.contains(word)))
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
fn without_enough_undisturbed_servers_no_turn_begins() {
    let mut bench = Bench::new(&[100, 0, 0]);
    bench.health.insert(2, Health::Gone("refused".into()));
    assert_eq!(bench.pass(60), [0; 0]);
    assert!(bench.waits_for("only 1 servers are undisturbed"));
    bench.health.insert(2, Health::Serving(sample(2, 0)));
    assert_eq!(bench.pass(10), [1]);

    let mut seven = Bench::new(&[100, 0, 0, 0, 0, 0, 0]);
    seven.health.insert(2, Health::Gone("refused".into()));
    assert_eq!(seven.pass(30), [1], "five of the other six are undisturbed");
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
fn a_snapshot_that_a_server_takes_by_itself_is_reported_and_waited_for() {
    let mut bench = Bench::new(&[0, 0, 0]);
    bench.pass(30);
    bench.change(1, |sample| sample.snapshots += 1);
    bench.change(2, |sample| sample.zxid.0 += 100);
    assert_eq!(bench.pass(3), [0; 0]);
    assert!(bench.notices.contains(&Notice::OwnSnapshots { server: ServerId(1), count: 1 }));
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
    assert!(bench.notices.contains(&Notice::Leader { server: ServerId(1) }));
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
    assert_eq!(bench.notices.iter().filter(given_up).count(), 1, "{:?}", bench.notices);
}

#[test]
fn where_an_answered_snapshot_is_on_the_drive_the_turn_ends_at_once() {
    let mut bench = Bench::new(&[100, 0, 0]);
    bench.coordinator =
        Coordinator::new(&servers(3), Settings { settle_time: Duration::ZERO, ..settings() }, at(0));
    assert_eq!(bench.pass(21), [1]);
    bench.taken(1);
    assert!(matches!(bench.notices.last(), Some(Notice::TurnEnds { because: TurnEnd::Settled, .. })));
}

#[test]
fn without_an_answer_the_counter_of_snapshots_ends_the_turn() {
    let mut bench = Bench::new(&[100, 100, 0]);
    assert_eq!(bench.pass(21), [1]);
    assert_eq!(bench.ended(1, Outcome::Unanswered("no answer".into())), [0; 0]);
    assert_eq!(bench.pass(15), [0; 0], "the snapshot may go on");
    bench.change(1, |sample| {
        sample.snapshots += 1;
        sample.snapshot = Some(sample.zxid);
    });
    assert_eq!(bench.pass(6), [2]);
}

#[test]
fn without_an_answer_or_evidence_the_same_server_is_commanded_again_and_its_answer_ends_the_turn() {
    let mut bench = Bench::new(&[100, 100, 0]);
    assert_eq!(bench.pass(21), [1]);
    let lost = || Outcome::Unanswered("reset".into());
    assert_eq!(bench.ended(1, lost()), [0; 0]);
    assert_eq!(bench.pass(19), [0; 0], "the longest time of a snapshot");
    assert_eq!(bench.pass(1), [1]);
    assert_eq!(bench.pass(15), [0; 0], "one at a time");
    assert_eq!(bench.ended(1, lost()), [0; 0]);
    bench.change(1, |sample| sample.snapshots += 1);
    assert_eq!(bench.pass(15), [0; 0], "of two commands the counter shows one");
    assert_eq!(bench.pass(5), [1]);
    bench.taken(1);
    assert_eq!(bench.pass(6), [2]);
    let commanded_again = |notice: &&Notice| matches!(notice, Notice::CommandedAgain { .. });
    assert_eq!(bench.notices.iter().filter(commanded_again).count(), 2);
}

#[test]
fn a_second_command_that_is_refused_says_nothing_about_the_first_and_one_that_failed_does() {
    for (outcome, ends) in [
        (Outcome::RateLimited, false),
        (Outcome::Refused("401".into()), false),
        (Outcome::Failed("500".into()), true),
    ] {
        let mut bench = Bench::new(&[100, 100, 0]);
        assert_eq!(bench.pass(21), [1]);
        bench.ended(1, Outcome::Unanswered("reset".into()));
        assert_eq!(bench.pass(20), [1]);
        assert_eq!(bench.ended(1, outcome.clone()) == [2], ends, "{outcome:?}");
        if !ends {
            assert_eq!(bench.pass(5), [1], "{outcome:?}");
        }
    }
}

#[test]
fn a_turn_without_an_answer_is_reported_again_while_the_server_cannot_be_commanded_again() {
    let mut bench = Bench::new(&[100, 100, 0]);
    assert_eq!(bench.pass(21), [1]);
    bench.ended(1, Outcome::Unanswered("reset".into()));
    bench.health.insert(2, Health::Unreachable("no answer".into()));
    assert_eq!(bench.pass(61), [0; 0]);
    let causes: Vec<&String> = bench
        .notices
        .iter()
        .filter_map(|notice| if let Notice::Unanswered { why, .. } = notice { Some(why) } else { None })
        .collect();
    assert_eq!(causes.len(), 4, "at once and each 20 s: {causes:?}");
    assert!(causes[3].contains("only 1 servers are undisturbed"), "{causes:?}");
}

#[test]
fn without_an_answer_a_new_process_ends_the_turn() {
    let mut bench = Bench::new(&[100, 100, 0]);
    assert_eq!(bench.pass(21), [1]);
    assert_eq!(bench.ended(1, Outcome::Unanswered("reset".into())), [0; 0]);
    let health = bench.health.insert(1, Health::Gone("refused".into())).unwrap();
    bench.pass(5);
    bench.health.insert(1, health);
    assert_eq!(bench.pass(8), [1]);
    assert!(bench.notices.iter().any(|n| matches!(n, Notice::TurnEnds { because: TurnEnd::Restarted, .. })));
}

#[test]
fn without_an_answer_statistics_that_are_reset_end_nothing() {
    let mut bench = Bench::new(&[100, 100, 0]);
    bench.change(1, |sample| sample.syncs = 50);
    assert_eq!(bench.pass(21), [1]);
    assert_eq!(bench.ended(1, Outcome::Unanswered("reset".into())), [0; 0]);
    bench.pass(5);
    bench.change(1, |sample| (sample.syncs, sample.snapshots) = (0, 0));
    assert_eq!(bench.pass(10), [0; 0]);
    bench.change(1, |sample| (sample.snapshots, sample.snapshot) = (1, Some(sample.zxid)));
    assert_eq!(bench.pass(5), [2]);
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

#[test]
fn a_server_that_answers_too_slowly_is_named() {
    for entries in [[0, 0, 100], [100, 0, 0]] {
        slow_leader_is_named(&entries);
    }
}

fn slow_leader_is_named(entries: &[u64]) {
    let mut bench = Bench::new(entries);
    bench.pass(10);
    for _ in 0..15 {
        bench.now += 1;
        for (id, asked_at) in [(1, bench.now), (2, bench.now), (3, bench.now - 4)] {
            let (server, health) = (ServerId(id), bench.health[&id].clone());
            assert_eq!(bench.step(Event::Polled { server, asked_at: at(asked_at), health }), [0; 0]);
        }
    }
    assert!(bench.waits_for("server 3 answers slowly"), "{:?}", bench.notices);
    assert!(!bench.waits_for("agree on no leader"), "{:?}", bench.notices);
}

#[test]
fn where_no_turn_can_begin_for_long_the_cause_is_known() {
    let mut bench = Bench::new(&[100, 0, 0]);
    bench.health.insert(2, Health::Gone("refused".into()));
    bench.pass(29);
    assert_eq!(bench.coordinator.stalled(at(bench.now)), None, "20 s and 10 s");
    bench.pass(1);
    let why = bench.coordinator.stalled(at(bench.now)).unwrap();
    assert!(why.contains("no turn could begin for 30s: ") && why.contains("only 1 servers"), "{why}");
    bench.health.insert(1, Health::Gone("refused".into()));
    bench.pass(5);
    let why = bench.coordinator.stalled(at(bench.now)).unwrap();
    assert!(why.contains("server 1 does not answer"), "{why}");
    bench.health.insert(1, Health::Serving(sample(1, 0)));
    bench.pass(1);
    assert_eq!(bench.coordinator.stalled(at(bench.now)), None, "nothing is due");
}

#[test]
fn a_proposal_of_any_size_is_taken() {
    let mut bench = Bench::new(&[100, 0, 0]);
    bench.change(3, |sample| sample.proposal = Some(Bytes(u64::MAX)));
    bench.pass(3);
}
