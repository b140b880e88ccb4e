//! How appends go to the drives under [`AppendMode::Auto`]: as ordered writes or as appends, whichever has the shorter latency.
//!
//! Drives differ: on some an append takes longer than a write, on others writes wait for one another. Appends wait for the end of
//! their stripe, and neighbouring writes that wait go out as one. So the better way depends on the length of the appends and on
//! their number in flight, and each class of the two is measured for itself, over all zones of the array. A log judges its writes
//! and appends in the same manner; its operations are alone in flight, so that single ones are compared there, and rounds here.
//!
//! ```text
//!   Base    a round of appends in the chosen way: their mean latency
//!   Trial   a round in the other way, ended early once it cannot win
//!   Rest    appends go in the way that won, for very many of them, or until they take longer than the other way did; then Base
//! ```
//!
//! A round covers as many stripes as have their parity on each drive once. The latency is the client's, from the submission to the
//! acknowledgement, without the flush of a durable append. Times are inputs: nothing here reads a clock.

use std::collections::BTreeMap;

use parking_lot::Mutex;
use zoned::{Blocks, Instant};

use crate::layout::Layout;
use crate::options::AppendMode;

/// The least number of appends in a round.
const MIN_ROUND: u64 = 32;
/// The least number of appends in a round, for each append in flight.
const ROUNDS_OF_DEPTH: u64 = 2;
/// The mean latency of appends over that of ordered writes below which appends go as appends. Less than 1, because appends write more to
/// the logs.
const APPEND_TIME_FRACTION: f64 = 0.97;
/// The mean latency of ordered writes over that of appends below which appends go as ordered writes again.
const ORDERED_TIME_FRACTION: f64 = 1.02;
/// The least rest, and that after the first trial, in rounds: a new drive's buffers are empty, and many drives are faster then.
const SHORT_REST_ROUNDS: u64 = 2;
/// The later rests, in appends for each append of the last trial: trials are so rare that the 99.9th percentile of the latencies is that
/// of the chosen way.
const REST_OF_TRIAL: u64 = 2048;
/// A trial is due once the chosen way takes this many times as long as in its last measurement, and the other way would win if it took as
/// long as then.
const SLOWER_TIMES: f64 = 1.1;

/// The way in which the appends of an array go to its drives.
#[derive(Debug)]
pub(crate) struct AppendChoice {
    mode: AppendMode,
    /// Blocks of data in as many stripes as have their parity on each drive once.
    rotation: u64,
    /// Appends of a round, if the program gave the number.
    round: Option<u32>,
    classes: Mutex<BTreeMap<Class, ClassChoice>>,
}

/// Appends of one class: the powers of two that their blocks and their number in flight reach.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
struct Class {
    blocks: u32,
    depth: u32,
}

impl Class {
    fn of(blocks: u64, depth: u64) -> Class {
        let class = |n: u64| u64::BITS - n.saturating_sub(1).leading_zeros();
        Class { blocks: class(blocks), depth: class(depth) }
    }
}

/// The chosen way of an append.
#[derive(Debug)]
pub(crate) struct ChosenWay {
    /// True if the append may go as an append, side by side with others.
    pub is_parallel: bool,
    /// Set if the latency counts.
    pub sample: Option<Sample>,
}

/// An append whose latency counts.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Sample {
    class: Class,
    round: u64,
    submitted: Instant,
}

impl AppendChoice {
    /// The choice of an array that was opened with `mode`.
    pub(crate) fn new(mode: AppendMode, round: Option<u32>, layout: &Layout) -> AppendChoice {
        let rotation = layout.unit * layout.data_units() * u64::from(layout.width);
        AppendChoice { mode, rotation, round, classes: Mutex::default() }
    }

    /// True if latencies decide.
    pub(crate) fn is_measured(&self) -> bool {
        self.mode == AppendMode::Auto
    }

    /// The way of an append of `blocks`. `depth`: the appends of its zone that are in flight lately, this one included;
    /// `submitted`: when the client submitted the append.
    pub(crate) fn way(&self, blocks: Blocks, depth: u64, submitted: Option<Instant>) -> ChosenWay {
        let Some(submitted) = submitted.filter(|_| self.is_measured()) else {
            return ChosenWay { is_parallel: self.mode == AppendMode::Append, sample: None };
        };
        let class = Class::of(blocks.0, depth);
        let rotation = self.rotation.div_ceil(blocks.0.max(1));
        let length = match self.round {
            Some(given) => u64::from(given.max(1)),
            None => rotation.max(ROUNDS_OF_DEPTH * depth).max(MIN_ROUND),
        };
        let (is_parallel, round) = self.classes.lock().entry(class).or_default().way(length, depth);
        ChosenWay { is_parallel, sample: round.map(|round| Sample { class, round, submitted }) }
    }

    /// An append was acknowledged at `now`. True if its class goes in the other way from now on.
    pub(crate) fn acknowledged(&self, sample: Sample, now: Instant) -> bool {
        let Sample { class, round, submitted } = sample;
        let seconds = now.since(submitted).as_secs_f64();
        self.classes.lock().get_mut(&class).is_some_and(|class| class.acknowledged(round, seconds))
    }
}

/// The choice of one class.
#[derive(Debug, Default)]
struct ClassChoice {
    /// True if appends have won the last trial.
    appends: bool,
    phase: Phase,
    /// The number of the round; latencies of other rounds do not count.
    round: u64,
    /// Appends of the round whose latency is to count.
    length: u64,
    /// Appends of the round that were submitted. The first ones met others of the round before in flight, and do not count: `skipped`
    /// of them.
    sent: u64,
    skipped: u64,
    count: u64,
    seconds: f64,
    trials: u64,
    /// The mean latencies at the last trial, in seconds: of the way that won, and of the other one.
    chosen: f64,
    other: f64,
}

#[derive(Clone, Copy, Debug)]
enum Phase {
    /// `left`: appends before the next trial; `rounds`: how many were measured since the last one.
    Rest {
        left: u64,
        rounds: u64,
    },
    Base,
    /// `base`: the mean latency in the chosen way, in seconds.
    Trial {
        base: f64,
    },
}

impl Default for Phase {
    fn default() -> Phase {
        Phase::Rest { left: 0, rounds: 0 }
    }
}

impl ClassChoice {
    /// Whether the next append goes as an append, and the number of its round if its latency counts. `length`, `depth`: for a round
    /// that begins.
    fn way(&mut self, length: u64, depth: u64) -> (bool, Option<u64>) {
        if let Phase::Rest { left, .. } = &mut self.phase {
            if *left > 0 {
                *left -= 1;
                return (self.appends, Some(self.round));
            }
            (self.length, self.skipped) = (length, depth);
            self.begin(Phase::Base);
        }
        self.sent += 1;
        let is_trial = matches!(self.phase, Phase::Trial { .. });
        (self.appends != is_trial, (self.sent > self.skipped).then_some(self.round))
    }

    fn begin(&mut self, phase: Phase) {
        self.phase = phase;
        self.round += 1;
        (self.sent, self.count, self.seconds) = (0, 0, 0.0);
    }

    /// An append of a round took so many seconds. True if the other way has won.
    fn acknowledged(&mut self, round: u64, seconds: f64) -> bool {
        if round != self.round {
            return false;
        }
        self.count += 1;
        self.seconds += seconds;
        let is_over = self.count >= self.length;
        let mean = self.seconds / self.count as f64;
        // The other way wins if it takes less than this fraction of the time.
        let fraction = if self.appends { ORDERED_TIME_FRACTION } else { APPEND_TIME_FRACTION };
        match &mut self.phase {
            Phase::Rest { left, rounds } => {
                if is_over {
                    *rounds += 1;
                    let is_slow = mean > self.chosen * SLOWER_TIMES && self.other < mean * fraction;
                    if is_slow && *rounds >= SHORT_REST_ROUNDS {
                        *left = 0;
                    }
                    (self.count, self.seconds) = (0, 0.0);
                }
                false
            }
            Phase::Base => {
                if is_over {
                    self.begin(Phase::Trial { base: mean });
                }
                false
            }
            Phase::Trial { base } => {
                let base = *base;
                let cannot_win = self.seconds >= base * fraction * self.length as f64;
                let has_won = is_over && !cannot_win;
                if has_won || cannot_win {
                    self.appends ^= has_won;
                    (self.chosen, self.other) = if has_won { (mean, base) } else { (base, mean) };
                    self.trials += 1;
                    let left = match self.trials {
                        1 => SHORT_REST_ROUNDS * self.length,
                        _ => REST_OF_TRIAL * self.sent,
                    };
                    self.begin(Phase::Rest { left, rounds: 0 });
                }
                has_won
            }
        }
    }
}

/// The highest number of appends of a zone in flight, among the last ones.
#[derive(Debug, Default)]
pub(crate) struct RecentDepth {
    /// The highest number among the appends before, and among the `count` appends since.
    before: u64,
    since: u64,
    count: u64,
}

impl RecentDepth {
    /// Appends whose number in flight is remembered together.
    const WINDOW: u64 = 64;

    /// Adds an append with so many in flight, itself included. Returns the highest number among the last ones.
    pub(crate) fn add(&mut self, in_flight: u64) -> u64 {
        self.since = self.since.max(in_flight);
        self.count += 1;
        let highest = self.before.max(self.since);
        if self.count >= RecentDepth::WINDOW {
            *self = RecentDepth { before: self.since, since: 0, count: 0 };
        }
        highest
    }
}

#[cfg(test)]
mod tests {
    use std::collections::VecDeque;
    use std::time::Duration;

    use super::*;

    /// Sends `count` appends of four blocks, `depth` in flight. `took`: the microseconds of the append with this number in this way.
    /// Returns how each went: true as an append.
    fn sent(choice: &AppendChoice, depth: u64, count: u64, took: impl Fn(u64, bool) -> u64) -> Vec<bool> {
        let mut in_flight: VecDeque<(Option<Sample>, Instant)> = VecDeque::new();
        let mut now = Instant::ORIGIN;
        let mut ways = Vec::new();
        for n in 0..count {
            if in_flight.len() as u64 >= depth
                && let Some((sample, end)) = in_flight.pop_front()
            {
                now = now.max(end);
                sample.map(|sample| choice.acknowledged(sample, end));
            }
            let ChosenWay { is_parallel, sample } = choice.way(Blocks(4), depth, Some(now));
            in_flight.push_back((sample, now.after(Duration::from_micros(took(n, is_parallel)))));
            ways.push(is_parallel);
        }
        ways
    }

    /// A round of four blocks each has 32 appends: the least number.
    const LAYOUT: Layout = Layout { width: 4, parities: 1, unit: 8, part_rows: 64 };

    fn choice() -> AppendChoice {
        AppendChoice::new(AppendMode::Auto, None, &LAYOUT)
    }

    fn appends(ways: &[bool]) -> usize {
        ways.iter().filter(|way| **way).count()
    }

    #[test]
    fn the_faster_way_is_taken_and_trials_of_the_other_one_are_rare() {
        for depth in [1, 8, 64] {
            let ways = sent(&choice(), depth, 100_000, |_, append| if append { 60 } else { 100 });
            assert!(!ways[0], "appends are ordered until a trial says otherwise");
            assert!(appends(&ways[2000..]) >= 97_900, "depth {depth}: {}", appends(&ways));
            let ways = sent(&choice(), depth, 100_000, |_, append| if append { 100 } else { 60 });
            assert!(appends(&ways[2000..]) <= 100, "depth {depth}: {}", appends(&ways));
            assert!(appends(&ways[..2000]) > 0, "the other way was tried");
        }
    }

    #[test]
    fn ways_that_take_as_long_leave_appends_ordered() {
        let ways = sent(&choice(), 8, 20_000, |_, append| if append { 98 } else { 100 });
        assert!(appends(&ways[2000..]) == 0, "{}", appends(&ways));
    }

    #[test]
    fn a_change_of_the_drives_is_noticed_by_a_later_trial() {
        let took = |n: u64, append: bool| if append == (n < 200_000) { 60 } else { 100 };
        let ways = sent(&choice(), 4, 900_000, took);
        assert!(appends(&ways[2000..200_000]) >= 197_800, "{}", appends(&ways[2000..200_000]));
        assert!(appends(&ways[800_000..]) <= 100, "{}", appends(&ways[800_000..]));
    }

    #[test]
    fn a_drive_that_is_faster_at_first_is_judged_once_more_soon() {
        // The first trial finds writes slower than they are later.
        let ways = sent(&choice(), 4, 10_000, |n, append| match (append, n < 150) {
            (true, _) => 100,
            (false, true) => 200,
            (false, false) => 50,
        });
        assert!(ways[80..130].iter().all(|way| *way), "appends won the first trial");
        assert!(appends(&ways[1000..]) == 0, "{}", appends(&ways[1000..]));
    }

    #[test]
    fn a_chosen_way_that_becomes_slower_than_the_other_one_was_is_judged_anew() {
        let took = |n: u64, append: bool| match append {
            true if n > 5000 => 300,
            true => 60,
            false => 100,
        };
        let ways = sent(&choice(), 4, 10_000, took);
        assert_eq!((appends(&ways[2000..5000]), appends(&ways[6000..])), (3000, 0));
        // Both ways take longer: the choice stays, and trials stay rare.
        let took = |n: u64, append: bool| if append { 60 } else { 100 } * if n > 5000 { 4 } else { 1 };
        let ways = sent(&choice(), 4, 20_000, took);
        assert!(appends(&ways[2000..]) >= 17_900, "{}", appends(&ways[2000..]));
    }

    #[test]
    fn a_trial_that_cannot_win_ends_early() {
        let long = sent(&choice(), 1, 100, |_, append| if append { 110 } else { 100 });
        let short = sent(&choice(), 1, 100, |_, append| if append { 10_000 } else { 100 });
        assert!(appends(&long) > 20 && appends(&short) <= 3, "{} {}", appends(&long), appends(&short));
    }

    #[test]
    fn lengths_and_depths_are_judged_apart() {
        let choice = choice();
        let slow = |_, append| if append { 100 } else { 60 };
        let fast = |_, append| if append { 60 } else { 100 };
        assert_eq!(appends(&sent(&choice, 64, 6000, slow)[3000..]), 0);
        assert_eq!(appends(&sent(&choice, 4, 6000, fast)[3000..]), 3000);
        assert_eq!(appends(&sent(&choice, 64, 100, slow)), 0);
        assert!(!choice.way(Blocks(1), 4, Some(Instant::ORIGIN)).is_parallel);
    }

    #[test]
    fn a_round_has_as_many_appends_as_the_program_says() {
        let choice = AppendChoice::new(AppendMode::Auto, Some(3), &LAYOUT);
        let ways = sent(&choice, 1, 9, |_, append| if append { 90 } else { 100 });
        assert_eq!(ways, [false, false, false, false, true, true, true, true, true]);
    }

    #[test]
    fn the_other_modes_measure_nothing() {
        for mode in [AppendMode::Ordered, AppendMode::Append] {
            let choice = AppendChoice::new(mode, None, &LAYOUT);
            let ChosenWay { is_parallel, sample } = choice.way(Blocks(1), 9, Some(Instant::ORIGIN));
            assert!(is_parallel == (mode == AppendMode::Append) && sample.is_none());
        }
    }

    #[test]
    fn the_depth_is_the_highest_of_the_last_appends() {
        let mut depth = RecentDepth::default();
        assert_eq!((depth.add(1), depth.add(7), depth.add(2)), (1, 7, 7));
        let later: Vec<u64> = (0..2 * RecentDepth::WINDOW).map(|_| depth.add(3)).collect();
        assert!(later[0] == 7 && later.last() == Some(&3), "{later:?}");
    }
}
