//! The time by which the tables of a backup are behind the group's leader.

use std::collections::VecDeque;
use std::time::Duration;

use units::Instant;

use crate::rules::Rules;
use crate::{Index, Settings};

/// Questions, and answers above the applied index, that a backup remembers at most. A backup asks once a heartbeat.
const REMEMBERED: usize = 64;

/// A backup's question for the group's commit index, or a leader's answer. Both travel with heartbeats and their acknowledgements.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Inquiry {
    /// The question of this number: part of a backup's acknowledgement of a heartbeat.
    Asked(u64),
    /// The answer to the question of this number: part of a heartbeat. Every write of the group that was acknowledged to a client before the question was sent is in the log at or below the index.
    Answered(u64, Index),
}

/// The age of a backup's tables, by the backup's own clock.
///
/// A backup sends a question with each acknowledgement of a heartbeat, and remembers when. The leader answers with its next heartbeat, if its lease lasts while that is sent: no other replica has led until then, so that every write acknowledged before the question was sent is at or below the leader's commit index.
/// Once the tables hold the log up to that index, they are behind by no more than the time since the question was sent.
///
/// The bound holds for any delay, loss, repetition and order of messages, and across changes of the leader: an answered index is committed, and stays so. The bound rests on the leader's lease ([`LeaderLease`](crate::LeaderLease)), and on the backup's clock for the length of one age: a clock that is slow by the drift of
/// [`Settings`](crate::Settings) makes an age of one second a thousandth longer by default.
///
/// Crash safety: nothing is durable. Numbers of questions begin anywhere at each start, so that a late answer to a question of an earlier process counts for nothing.
#[derive(Clone, Debug)]
pub struct Freshness {
    rules: Rules,
    next: u64,
    /// The questions without an answer, and when each was sent.
    asked: VecDeque<(u64, Instant)>,
    /// Answers above the applied index, and when the question of each was sent.
    answered: VecDeque<(Index, Instant)>,
    /// The tables hold every write that was acknowledged before this time.
    current_at: Option<Instant>,
}

impl Freshness {
    /// The tables of a replica that starts: their age is not known. `first`: the number of the first question, another one at each start, drawn from all 64-bit numbers.
    pub fn new(settings: &Settings, first: u64) -> Freshness {
        Freshness {
            rules: settings.rules(),
            next: first,
            asked: VecDeque::new(),
            answered: VecDeque::new(),
            current_at: None,
        }
    }

    /// The number of a question that is sent at `now`.
    pub fn ask(&mut self, now: Instant) -> u64 {
        let number = self.next;
        self.next = number.wrapping_add(1);
        if self.asked.len() == REMEMBERED {
            self.asked.pop_front();
        }
        self.asked.push_back((number, now));
        number
    }

    /// The leader's answer to a question came at `now`. An answer to a question that is not remembered changes nothing.
    pub fn answer(&mut self, number: u64, index: Index, now: Instant) {
        let Some(place) = self.asked.iter().position(|(asked, _)| *asked == number) else { return };
        // Answers to earlier questions say less from here on.
        let Some((_, sent)) = self.asked.drain(..=place).next_back() else { return };
        let sent = if self.rules.counts_freshness_from_receipt() { now } else { sent };
        // A full queue keeps its answers: the tables reach the lowest index first.
        if self.answered.len() < REMEMBERED {
            self.answered.push_back((index, sent));
        }
    }

    /// The tables hold the log up to `index`.
    pub fn applied(&mut self, index: Index) {
        let current_at = self.answered.iter().filter(|(of, _)| *of <= index).map(|(_, sent)| *sent).max();
        self.answered.retain(|(of, _)| *of > index);
        self.current_at = self.current_at.max(current_at);
    }

    /// The time by which the tables may be behind at `now`; `None` before the first answer. A read that begins at `now` finds every write that was acknowledged earlier than so long ago.
    pub fn behind(&self, now: Instant) -> Option<Duration> {
        self.current_at.map(|at| now.since(at))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(ms: u64) -> Instant {
        Instant::ORIGIN.after(Duration::from_millis(ms))
    }

    fn new(first: u64) -> Freshness {
        Freshness::new(&Settings::default(), first)
    }

    fn behind(freshness: &Freshness, now: u64) -> Option<u128> {
        freshness.behind(at(now)).map(|behind| behind.as_millis())
    }

    #[test]
    fn tables_are_as_old_as_the_question_whose_answer_they_hold() {
        let mut freshness = new(u64::MAX);
        let (first, second) = (freshness.ask(at(100)), freshness.ask(at(200)));
        assert_eq!(behind(&freshness, 200), None);
        freshness.answer(first, Index(7), at(5_000));
        freshness.applied(Index(6));
        assert_eq!(behind(&freshness, 300), None, "entry 7 is not in the tables");
        freshness.applied(Index(7));
        assert_eq!(behind(&freshness, 300), Some(200));
        freshness.answer(second, Index(7), at(5_000));
        freshness.applied(Index(7));
        assert_eq!(behind(&freshness, 300), Some(100));
        assert_eq!(behind(&freshness, 9_300), Some(9_100), "nobody answers any more");
    }

    #[test]
    fn a_late_or_repeated_answer_makes_tables_no_newer() {
        let mut freshness = new(5);
        let (first, second) = (freshness.ask(at(100)), freshness.ask(at(200)));
        freshness.answer(second, Index(3), at(5_000));
        freshness.applied(Index(3));
        freshness.answer(first, Index(3), at(5_000));
        freshness.answer(second, Index(3), at(5_000));
        freshness.applied(Index(3));
        assert_eq!(behind(&freshness, 1_000), Some(800));
    }

    #[test]
    fn an_answer_to_an_earlier_process_counts_for_nothing() {
        let mut earlier = new(1 << 40);
        let number = earlier.ask(at(100));
        let mut freshness = new(77);
        freshness.ask(at(5));
        freshness.answer(number, Index(0), at(5_000));
        freshness.applied(Index(9));
        assert_eq!(behind(&freshness, 10), None);
    }

    #[test]
    fn a_backup_that_is_slow_remembers_the_answers_that_it_reaches_first() {
        let mut freshness = new(0);
        for n in 0..10 * REMEMBERED as u64 {
            let number = freshness.ask(at(n));
            freshness.answer(number, Index(n), at(5_000));
        }
        assert!(freshness.answered.len() <= REMEMBERED && freshness.asked.len() <= REMEMBERED);
        freshness.applied(Index(10));
        assert_eq!(behind(&freshness, 1_000), Some(990));
    }
}
