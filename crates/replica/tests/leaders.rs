//! Three replicas with drives that are never slow, on a network that loses messages where a test says so.
#![allow(clippy::indexing_slicing, clippy::cast_possible_truncation, reason = "a test may panic")]

use std::collections::VecDeque;
use std::time::Duration;

use raft::eraftpb::HardState;
use replica::{
    Action, Base, BrokenRule, ChangeRefused, Configuration, Event, Index, Message, Recovered, Replica,
    ReplicaId, Role, Settings, TooOld, Version,
};
use units::Instant;

const T: Duration = Duration::from_millis(500);
/// Primary, backup, witness.
const ROLES: [Role; 3] = [Role::Witness, Role::Backup, Role::Witness];

struct Group {
    replicas: Vec<Replica>,
    now: Instant,
    /// The replicas that send and hear nothing.
    cut_off: Vec<usize>,
    sent: VecDeque<(usize, Box<Message>)>,
    /// The replicas that were ended because their programs are too old.
    ended: Vec<(usize, TooOld)>,
    refused: Vec<ChangeRefused>,
}

/// The settings of a replica whose program speaks versions up to this one.
fn speaking(version: u16) -> Settings {
    Settings { speaks: Version(version), ..Settings::default() }
}

impl Group {
    /// The group, with the replica of that place as its leader.
    fn led_by(leader: usize) -> Group {
        Group::of([Settings::default(); 3], leader)
    }

    /// The group of replicas with these settings, with the replica of that place as its leader.
    fn of(settings: [Settings; 3], leader: usize) -> Group {
        let members = Configuration::new((1..).map(ReplicaId).zip(ROLES));
        let start = |place: usize| {
            let recovered = Recovered {
                base: Base::first(members.clone(), ReplicaId(1)),
                entries: Vec::new(),
                vote: HardState::default(),
                applied: Index(0),
                stable: Index(0),
                is_whole: true,
            };
            let (id, seed) = (ReplicaId(place as u64 + 1), place as u64);
            Replica::new(&settings[place], (id, ROLES[place]), recovered, (Instant::ORIGIN, seed))
                .expect("starts")
        };
        let mut group = Group {
            replicas: (0..3).map(start).collect(),
            now: Instant::ORIGIN,
            cut_off: Vec::new(),
            sent: VecDeque::new(),
            ended: Vec::new(),
            refused: Vec::new(),
        };
        // A replica that is cut off meanwhile is not elected.
        group.cut_off = vec![if leader == 0 { 2 } else { 0 }];
        group.run(4 * T);
        group.cut_off.clear();
        group.run(T / 5);
        assert_eq!(group.leader(), Some(leader));
        group
    }

    fn leader(&self) -> Option<usize> {
        self.replicas.iter().position(|replica| replica.serves_in().is_some())
    }

    fn step(&mut self, place: usize, event: Event) {
        for action in self.replicas[place].step(self.now, event) {
            match action {
                Action::Send(to, message) if !self.cut_off.contains(&place) => {
                    self.sent.push_back((to.0 as usize - 1, message));
                }
                Action::Persist { number, .. } => self.step(place, Event::Persisted(number)),
                Action::Apply(entries) => {
                    let last = entries.last().expect("an entry").0;
                    self.step(place, Event::Applied(last));
                }
                Action::End(why) => self.ended.push((place, why)),
                Action::RefuseChange(why) => self.refused.push(why),
                _ => {}
            }
        }
    }

    fn versions(&self) -> Vec<u16> {
        self.replicas.iter().map(|replica| replica.version().0).collect()
    }

    /// Lets time pass, a millisecond a step.
    fn run(&mut self, time: Duration) {
        for _ in 0..time.as_millis() {
            self.now = self.now.after(Duration::from_millis(1));
            for place in 0..3 {
                if self.now >= self.replicas[place].wakes_at() {
                    self.step(place, Event::Tick);
                }
            }
            while let Some((to, message)) = self.sent.pop_front() {
                if to < self.replicas.len() && !self.cut_off.contains(&to) {
                    self.step(to, Event::Message(message));
                }
            }
        }
    }

    fn is_cut_off(&self, place: usize) -> bool {
        self.replicas[place].is_cut_off(self.now)
    }
}

#[test]
fn a_leader_without_its_majority_is_cut_off_after_two_election_timeouts_until_it_hears_of_another() {
    let mut group = Group::led_by(0);
    group.cut_off = vec![0];
    group.run(T * 19 / 10);
    assert!(!group.is_cut_off(0), "another leader may be on its way");
    group.run(T / 5);
    assert!(group.is_cut_off(0) && !group.is_cut_off(1) && !group.is_cut_off(2));
    assert_eq!(group.leader(), Some(2));
    group.cut_off.clear();
    group.run(T / 5);
    assert!(!group.is_cut_off(0), "the other leader is known");
}

#[test]
fn a_leader_hands_over_to_the_witness_that_is_named_and_to_no_backup() {
    let mut group = Group::led_by(2);
    let could =
        |group: &Group, to, led_for| group.replicas[2].could_hand_over_to(ReplicaId(to), group.now, led_for);
    assert!(could(&group, 1, T) && !could(&group, 2, T) && !could(&group, 3, T) && !could(&group, 4, T));
    assert!(!could(&group, 1, 100 * T), "it has not led for so long");
    group.cut_off = vec![0];
    group.run(T / 2);
    assert!(!could(&group, 1, T), "the witness does not answer");
    group.step(2, Event::HandOverTo(ReplicaId(2)));
    group.run(T);
    assert_eq!(group.leader(), Some(2), "a backup does not take over");
    group.cut_off.clear();
    group.run(T / 5);
    group.step(2, Event::HandOverTo(ReplicaId(1)));
    group.run(T / 5);
    assert_eq!(group.leader(), Some(0));
}

#[test]
fn a_backup_is_behind_by_two_heartbeats_at_most_while_a_leader_answers_it() {
    let mut group = Group::led_by(0);
    let behind = |group: &Group, place: usize| group.replicas[place].behind(group.now);
    assert!(behind(&group, 1).is_some_and(|behind| behind <= T / 5), "{:?}", behind(&group, 1));
    assert_eq!(behind(&group, 2), None, "a witness lacks values");
    group.cut_off = vec![1];
    group.run(3 * T);
    assert!(behind(&group, 1).is_some_and(|behind| behind >= 3 * T), "{:?}", behind(&group, 1));
    group.cut_off.clear();
    group.run(T / 5);
    assert!(behind(&group, 1).is_some_and(|behind| behind <= T / 5), "{:?}", behind(&group, 1));
}

#[test]
fn a_leader_hears_that_a_voter_s_drive_nears_full_as_long_as_the_voter_answers() {
    let mut group = Group::led_by(0);
    let lacks = |group: &Group| group.replicas[0].voter_lacks_room(group.now);
    group.run(T);
    assert!(!lacks(&group));
    for voter in [1, 2] {
        group.step(voter, Event::Room { lacks: true });
        group.run(T / 5);
        assert!(lacks(&group), "{voter}");
        group.step(voter, Event::Room { lacks: false });
        group.run(T / 5);
        assert!(!lacks(&group), "{voter}");
    }
    group.step(2, Event::Room { lacks: true });
    group.run(T / 5);
    assert!(!group.replicas[0].could_hand_over_to(ReplicaId(3), group.now, T));
    group.cut_off = vec![2];
    group.run(2 * T);
    assert!(!lacks(&group), "a voter that is away needs no room");
}

#[test]
fn a_group_is_raised_once_each_member_speaks_the_version_and_the_number_of_one_that_left_is_taken() {
    let mut group = Group::led_by(0);
    group.cut_off = vec![2];
    group.run(2 * T);
    group.step(0, Event::Raise(Version(2)));
    group.run(2 * T);
    assert_eq!(group.versions(), [1, 1, 1], "a member is not heard");
    group.cut_off.clear();
    group.run(T);
    assert_eq!(group.versions(), [2, 2, 2]);
    assert_eq!(group.replicas[0].state().state.last_replica, ReplicaId(3));
    let members = |last| Configuration::new([1, 2, last].map(ReplicaId).into_iter().zip(ROLES));
    group.step(0, Event::Change(members(4)));
    group.run(T);
    assert_eq!(group.replicas[0].state().state.last_replica, ReplicaId(4));
    assert_eq!(group.refused, []);
    // The new replica does not come, and the group goes back to replica 3: replica 4 never is one again.
    group.step(0, Event::Change(members(3)));
    group.run(T);
    group.step(0, Event::Change(members(4)));
    let (replica, last) = (ReplicaId(4), ReplicaId(4));
    assert_eq!(group.refused, [ChangeRefused::NumberTaken { replica, last }]);
    assert_eq!(group.ended, []);
}

#[test]
fn a_member_with_an_older_program_keeps_the_group_at_the_older_version() {
    let mut group = Group::of([speaking(2), speaking(1), speaking(2)], 0);
    group.step(0, Event::Raise(Version(2)));
    group.step(0, Event::Raise(Version(3)));
    group.run(3 * T);
    assert_eq!((group.versions(), group.ended), (vec![1, 1, 1], vec![]));
}

#[test]
fn a_replica_whose_program_is_too_old_ends_and_takes_nothing_of_the_version() {
    let unasked = Settings { broken_rule: Some(BrokenRule::RaiseUnasked), ..speaking(2) };
    let mut group = Group::of([unasked, speaking(1), unasked], 0);
    group.step(0, Event::Raise(Version(2)));
    group.run(T / 10);
    let too_old = TooOld { version: Version(2), speaks: Version(1) };
    assert_eq!(group.ended.first(), Some(&(1, too_old)));
    assert_eq!(group.versions(), [2, 1, 2]);
    let last = group.replicas[1].stats(group.now).committed;
    assert!(last < group.replicas[0].stats(group.now).committed);
}
