//! The clients of a simulated cluster: each asks one thing after the other, and their history is judged.

use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use units::Instant;

use super::engine::{Asked, Command, Unanswered};
use super::faults::Faults;
use super::history::{Called, History};
use super::objects::{Done, Kind, Object, PARTS};
use crate::Rng;
use crate::linear::Value;

/// Clients of a run.
pub(super) const CLIENTS: usize = 6;
/// The longest time after which a key expires, in milliseconds.
const LONGEST_LIFE_MS: u64 = 300;

/// The end of a client's operation.
pub(super) type Answer = Result<Done, Unanswered>;

/// The ends of operations: client, its turn, the answer.
pub(super) type Answers = Arc<Mutex<Vec<(usize, u64, Answer)>>>;

/// A client, which asks one thing after the other.
#[derive(Default)]
pub(super) struct Client {
    /// The number of its operations so far.
    pub turn: u64,
    /// The node that it asks next.
    pub node: usize,
    pub under_way: Option<Called>,
}

/// Operations that were answered, by kind.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Answered {
    pub all: u64,
    /// Pairs that were set together, and read together.
    pub pairs: u64,
    /// Additions to counters.
    pub counts: u64,
    /// Commands that were refused because a group's log was full.
    pub full: u64,
}

/// The clients of a run, and what they asked.
pub(super) struct Clients {
    pub each: Vec<Client>,
    pub answers: Answers,
    pub history: History,
    pub answered: Answered,
    /// The last value that a client gave.
    values: u64,
    /// The object that was written last.
    pub written: Option<Object>,
    /// The only object that clients read, and until when.
    pub focus: Option<(Object, Instant)>,
    /// The objects of each group are those with numbers up to this.
    pub last: u64,
}

impl Clients {
    pub(super) fn new() -> Clients {
        Clients {
            each: (0..CLIENTS).map(|_| Client::default()).collect(),
            answers: Answers::default(),
            history: History::default(),
            answered: Answered::default(),
            values: 0,
            written: None,
            focus: None,
            last: 0,
        }
    }

    /// Draws what a client asks next.
    pub(super) fn draw(&mut self, rng: &mut Rng, faults: &Faults, now: Instant) -> Command {
        let focus = self.focus.filter(|(object, until)| now < *until && !self.history.is_full(*object));
        if let Some((object, _)) = focus {
            let is_direct = object.kind() == Kind::Register && rng.chance(50);
            return Command { object, asked: Asked::read(object.kind()), value_bytes: 0, is_direct };
        }
        let mut object = Object { group: rng.index(faults.groups), number: rng.below(faults.objects) };
        // The judge takes so many operations on an object: then another one takes its place.
        while self.history.is_full(object) {
            object.number += faults.objects;
        }
        self.last = self.last.max(object.number);
        let kind = object.kind();
        let is_direct = kind == Kind::Register && rng.chance(50);
        let asked =
            if rng.below(10) < faults.reads { Asked::read(kind) } else { self.draw_change(rng, kind) };
        Command { object, asked, value_bytes: faults.value_bytes, is_direct }
    }

    fn draw_change(&mut self, rng: &mut Rng, kind: Kind) -> Asked {
        self.values += 1;
        let value: Value = (!rng.chance(10)).then_some(self.values);
        let parts = match (kind, rng.below(4)) {
            (Kind::Counter, _) => return Asked::Count,
            (Kind::Pair, 0) => [Some(value), None],
            (Kind::Pair, 1) => [None, Some(value)],
            (Kind::Pair, _) => [Some(value); PARTS],
            _ => [Some(value), None],
        };
        let life = (kind == Kind::Expiring).then(|| 1 + rng.below(LONGEST_LIFE_MS));
        Asked::Set(parts, life)
    }

    /// A client begins an operation.
    pub(super) fn call(&mut self, command: Command) -> Called {
        let called = self.history.call(command.object, command.asked.effect());
        if let Asked::Set([Some(Some(value)), _], Some(_)) = command.asked {
            self.history.call(command.object, Done::Expired(value));
        }
        called
    }

    /// An operation was answered.
    pub(super) fn answered(&mut self, called: Called, done: Done) {
        self.answered.all += 1;
        if matches!(done, Done::Set(_) | Done::Counted(_)) {
            self.written = Some(called.object());
        }
        match done {
            Done::Set([Some(_), Some(_)]) | Done::Saw([Some(_), Some(_)]) => self.answered.pairs += 1,
            Done::Counted(_) => self.answered.counts += 1,
            Done::Set(_) | Done::Saw(_) | Done::Expired(_) => {}
        }
        self.history.answered(called, done);
    }

    /// A client's pause after an answer.
    pub(super) fn pause(rng: &mut Rng, faults: &Faults) -> Duration {
        Duration::from_micros(rng.below(faults.think_us))
    }
}
