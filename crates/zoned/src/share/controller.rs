//! The rate of bulk operations beside a log. Pure: time, the log's latencies and the bulk's bytes are inputs, permissions are outputs.
//!
//! ```text
//!   Run      bulk goes at `rate`
//!   Rest     once in 500 ms, for 10 ms: bulk waits, so that the log alone is measured
//!   Half     after each rest, when the rate has doubled, and after bulk took the log's bytes: bulk goes at half the rate
//!   Drain    after the log queued behind bulk: bulk goes at the least rate until an operation of the log is within the target, then goes on at a lower rate
//!   Trial    after a rest, some zones go at once and the others wait: those that do not slow the log are not limited any more (`search`)
//! ```
//!
//! Without a log, bulk is not held.
//!
//! The controller sets the bulk's *rate* and not its depth: a drive's write buffer acknowledges megabytes before they are programmed, so that the
//! number in flight says nothing of what is queued. The rate falls to 0.9 of the one at which the log queued, or by what bulk took from the log, is that again after [`RECOVERY`], and goes beyond
//! (CUBIC's curve, RFC 9438).
//!
//! The log *queues behind bulk* if its mean latency is above the target and above [`SLOPE`] times the mean of operations beside bulk at half the rate; or if its 99th percentile is above the
//! target and above [`SLOPE_OF_TAIL`] times the longest latency there. The comparison with half the rate tells a queue from what an operation costs beside any bulk: the drive finishes
//! the command, or the program operation of a die, that it has begun. The log also counts as queued if bulk takes its bytes ([`log_loss`](crate::share::log_loss)).

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use units::{Instant, ZoneId};

use crate::share::log_loss::{LogAndBulk, LogLoss};
use crate::share::sample::{Beside, Kind, Sample};
use crate::share::search::Search;

/// The time without a log operation after which bulk is not held, at least.
const ALONE_AFTER: Duration = Duration::from_millis(50);
/// The time without a log operation after which bulk is not held, at most.
const ALONE_AFTER_AT_MOST: Duration = Duration::from_secs(5);
/// How long bulk rests, to measure the log alone.
const REST_TIME: Duration = Duration::from_millis(10);
/// The time from one rest to the next.
const REST_INTERVAL: Duration = Duration::from_millis(500);
/// How long bulk goes at half its rate, and the first part of that which is not measured: the drive's queue becomes shorter.
const HALF_TIME: Duration = Duration::from_millis(15);
const HALF_SETTLES: Duration = Duration::from_millis(5);
/// The log's mean latency may be this many times that at half the rate: while the search for the rate doubles the rate at each step, and afterwards. A drive may delay every operation that has
/// more than a few beside it (confzns: by a third); with the lower number the search would stop there.
const SLOPE_OF_SEARCH: f64 = 1.5;
const SLOPE: f64 = 1.2;
/// The log's 99th percentile latency may be this many times the longest latency at half the rate: an operation behind one or two commands does not queue.
const SLOPE_OF_TAIL: f64 = 2.0;
/// Times at half the rate whose longest latencies are kept.
const LONGEST_OF: usize = 9;
/// The longest wait for an operation of the log within the target, after the log queued.
const DRAIN_AT_MOST: Duration = Duration::from_millis(50);
/// The time from a cut of the rate until the rate is what it was.
const RECOVERY: Duration = Duration::from_secs(1);
/// The rate is multiplied by this where the log queues behind bulk.
const CUT: f64 = 0.9;
/// Bulk makes up for a timer that is late by at most this much.
const BURST: Duration = Duration::from_micros(500);
/// Bulk that went before its time delays the next by at most this much, and by its own.
const DEBT: Duration = Duration::from_millis(100);
/// The least number of samples that give a 99th percentile.
const PERCENTILE_SAMPLES: usize = 100;
/// The least time of a window, and the time after which fewer samples do.
const WINDOW: Duration = Duration::from_millis(5);
const LONG_WINDOW: Duration = Duration::from_millis(50);
/// The least number of samples in a window, but for one of [`ALONE_AFTER_AT_MOST`].
const FEWEST_SAMPLES: usize = 8;
/// The least number of bulk operations in a window that is not long: with fewer, one more or less is much of the bulk's rate.
const FEWEST_BULK: u32 = 8;
/// How long a trial takes, and how much longer it waits for an operation of the log.
const TRIAL_TIME: Duration = Duration::from_millis(40);
/// The least number of samples that show a trial to have failed before its end.
const SAMPLES_OF_A_FAILURE: usize = 3;
/// Zones are tried beside logs with an operation each 3 ms or more often, in seconds.
const LONGEST_INTERVAL_OF_TRIALS: f64 = 3e-3;
/// The first rate beside a log, in bytes per second.
const FIRST_RATE: f64 = 64e6;
const HIGHEST_RATE: f64 = 64e9;

/// The limits of a log's latency beside bulk, and of the bulk's rate.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Goal {
    /// The log's mean and 99th percentile latency beside bulk, as a multiple of those alone. Default 1.2.
    pub log_target: f64,
    /// The least rate of bulk, whatever the log's latency, in bytes per second. Default 8 MiB.
    pub least_rate: f64,
    /// The highest rate of bulk beside a log, in bytes per second, flushes apart, which may be twice as fast as the log. Default none. One that is not above `least_rate` fixes the rate: bulk does not rest then.
    pub most_rate: Option<f64>,
}

impl Default for Goal {
    fn default() -> Goal {
        Goal { log_target: 1.2, least_rate: f64::from(8 << 20), most_rate: None }
    }
}

impl Goal {
    /// The rate within the goal's bounds.
    fn bounded(&self, rate: f64) -> f64 {
        rate.min(self.most_rate.unwrap_or(HIGHEST_RATE)).max(self.least_rate)
    }

    pub(super) fn is_valid(&self) -> bool {
        let rates = [Some(self.least_rate), self.most_rate];
        rates.into_iter().flatten().all(|rate| rate >= 1.0 && rate.is_finite()) && self.log_target >= 1.0
    }

    fn is_fixed(&self) -> bool {
        self.most_rate.is_some_and(|most| most <= self.least_rate)
    }
}

/// Latencies alone, by kind and by size in powers of two.
#[derive(Debug, Default)]
struct Alone {
    means: BTreeMap<(Kind, u32), Mean>,
    /// The last latencies alone, as multiples of the mean of their kind and size.
    ratios: Ratios,
}

#[derive(Clone, Copy, Debug, Default)]
struct Mean {
    value: f64,
    samples: u32,
}

/// Samples that a mean alone is of, in the main, and the least number.
const MEAN_OF: u32 = 64;
const MEAN_OF_AT_LEAST: u32 = 4;

impl Alone {
    fn key(sample: &Sample) -> (Kind, u32) {
        (sample.kind, sample.bytes.max(1).ilog2())
    }

    /// The sample's latency as a multiple of the mean alone, if that is known.
    fn ratio(&self, sample: &Sample) -> Option<f64> {
        let mean = self.means.get(&Alone::key(sample)).filter(|mean| mean.samples >= MEAN_OF_AT_LEAST)?;
        Some(sample.latency.as_secs_f64() / mean.value.max(1e-9))
    }

    fn add(&mut self, sample: &Sample) {
        let mean = self.means.entry(Alone::key(sample)).or_default();
        mean.samples = (mean.samples + 1).min(MEAN_OF);
        mean.value += (sample.latency.as_secs_f64() - mean.value) / f64::from(mean.samples);
        if let Some(ratio) = self.ratio(sample) {
            self.ratios.add(ratio);
        }
    }
}

/// The last latencies of some kind, as multiples of the mean alone.
#[derive(Debug, Default)]
struct Ratios {
    last: Vec<f64>,
    next: usize,
    mean: Option<f64>,
    p99: Option<f64>,
}

impl Ratios {
    const KEPT: usize = 400;
    /// Samples between two computations of the mean and the percentile.
    const STEP: usize = 10;

    fn add(&mut self, ratio: f64) {
        match self.last.get_mut(self.next) {
            Some(place) => *place = ratio,
            None => self.last.push(ratio),
        }
        self.next = (self.next + 1) % Ratios::KEPT;
        if self.next.is_multiple_of(Ratios::STEP) {
            self.mean = Some(self.last.iter().sum::<f64>() / self.last.len().max(1) as f64);
            self.p99 =
                percentile_99(&mut self.last.clone()).filter(|_| self.last.len() >= PERCENTILE_SAMPLES);
        }
    }
}

fn percentile_99(ratios: &mut [f64]) -> Option<f64> {
    let at = (ratios.len() * 99 / 100).min(ratios.len().checked_sub(1)?);
    Some(*ratios.select_nth_unstable_by(at, f64::total_cmp).1)
}

/// The log's latency as a multiple of the mean alone.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(super) struct Slowdown {
    pub(super) mean: f64,
    pub(super) p99: Option<f64>,
}

/// How bulk goes once the log is within its target again.
#[derive(Clone, Copy, PartialEq, Debug)]
enum AfterDrain {
    /// Bulk goes at the lower rate.
    Run,
    /// Bulk took the log's bytes: half the rate shows whether it still would.
    Half,
    /// A trial ended before its time: the log was slow.
    NextTrial,
}

#[derive(Clone, Copy, PartialEq, Debug)]
enum Phase {
    Run,
    Rest {
        until: Instant,
    },
    /// Samples from `from` on are measured.
    Half {
        from: Instant,
        until: Instant,
    },
    /// Bulk goes at the least rate until an operation of the log, submitted after `since`, is within the target.
    Drain {
        since: Instant,
        until: Instant,
        then: AfterDrain,
    },
    /// The zones of the search's set go at once, the other limited ones wait.
    Trial {
        until: Instant,
    },
    /// A trial has ended, another one may begin.
    BetweenTrials,
}

/// The rate control of a drive's bulk operations.
#[derive(Debug)]
pub struct Controller {
    goal: Goal,
    alone: Alone,
    phase: Phase,
    rate: f64,
    /// The rate at which the log queued last, and the time at which the rate was cut. The time moves on while bulk does not use its rate.
    cut: Option<(f64, Instant)>,
    /// Latencies of operations of the log that began while bulk was in flight, at half the rate. The number of such operations depends on the rate; their latencies grow only
    /// with the queue.
    beside_half: Ratios,
    /// The longest latency of such operations in each of the last [`LONGEST_OF`] times at half the rate, as a multiple of the mean alone. A queue lengthens all of them, an outlier of the drive
    /// one.
    longest_half: VecDeque<f64>,
    /// The whole rate when bulk last went at half of it.
    rate_halved: f64,
    window: Window,
    search: Search,
    log_loss: LogLoss,
    last_log: Option<Instant>,
    /// When an operation of the log was last known to be in flight, if after its submission.
    in_flight_at: Option<Instant>,
    /// The mean time between two operations of the log, in seconds.
    interval: f64,
    next_rest: Instant,
    /// The time at which the next bulk bytes may go, by the rate.
    next: Instant,
    /// The time at which they may go by the least rate, whatever went without being asked: operations that somebody waited for.
    next_at_least: Instant,
}

/// Latencies of the log, and bytes of bulk, since a time.
#[derive(Debug)]
struct Window {
    since: Instant,
    ratios: Vec<f64>,
    both: LogAndBulk,
}

impl Window {
    fn new(now: Instant) -> Window {
        Window { since: now, ratios: Vec::new(), both: LogAndBulk::default() }
    }

    fn add(&mut self, sample: &Sample, ratio: f64) {
        self.ratios.push(ratio);
        self.both.add(sample, ratio);
    }

    fn slowdown(&mut self) -> Slowdown {
        let mean = self.both.mean();
        let p99 =
            (self.ratios.len() >= PERCENTILE_SAMPLES).then(|| percentile_99(&mut self.ratios)).flatten();
        Slowdown { mean, p99 }
    }
}

impl Controller {
    /// A controller that knows nothing of the log yet.
    pub fn new(goal: Goal, now: Instant) -> Controller {
        Controller {
            goal,
            alone: Alone::default(),
            phase: Phase::Run,
            rate: goal.bounded(FIRST_RATE),
            cut: None,
            beside_half: Ratios::default(),
            longest_half: VecDeque::new(),
            rate_halved: 0.0,
            window: Window::new(now),
            search: Search::default(),
            log_loss: LogLoss::default(),
            last_log: None,
            in_flight_at: None,
            interval: 0.0,
            next_rest: now,
            next: now,
            next_at_least: now,
        }
    }

    /// True while operations of the log come, so that bulk is limited.
    pub fn has_log(&self, now: Instant) -> bool {
        self.log_is_over_at().is_some_and(|at| now < at)
    }

    /// The time at which the log counts as over, if no operation of it comes before.
    pub fn log_is_over_at(&self) -> Option<Instant> {
        let after = Duration::from_secs_f64(self.interval * 8.0).clamp(ALONE_AFTER, ALONE_AFTER_AT_MOST);
        self.last_log.max(self.in_flight_at).map(|at| at.after(after))
    }

    /// An operation of the log is in flight at `now`: on a disk one may take seconds.
    pub fn log_in_flight(&mut self, now: Instant) {
        // Short operations count by their submission.
        if self.last_log.is_some_and(|at| now.since(at) >= ALONE_AFTER / 2) {
            self.in_flight_at = Some(now);
        }
    }

    /// True while bulk waits for an operation of the log within the target, or for those that decide a trial.
    pub fn waits_for_log(&self) -> bool {
        matches!(self.phase, Phase::Drain { .. } | Phase::Trial { .. })
    }

    /// The end of the present rest, in which bulk waits so that the log alone is measured; `None` outside of a rest.
    pub fn rests_until(&self) -> Option<Instant> {
        match self.phase {
            Phase::Rest { until } => Some(until),
            _ => None,
        }
    }

    /// True in a rest without which the log's latencies alone are not known.
    pub(super) fn needs_rest(&self) -> bool {
        matches!(self.phase, Phase::Rest { .. }) && self.alone.ratios.last.len() < PERCENTILE_SAMPLES
    }

    /// An operation of the log goes to the drive at `now`.
    pub fn log_submitted(&mut self, now: Instant) {
        if self.has_log(now) {
            let interval = self.last_log.map_or(0.0, |last| now.since(last).as_secs_f64());
            self.interval += (interval - self.interval) / 16.0;
        } else {
            // The first operation after a time without a log: the samples of before do not count.
            self.interval = 0.0;
            self.window = Window::new(now);
            self.log_loss = LogLoss::default();
            (self.next, self.next_at_least) = (now, now);
        }
        self.last_log = Some(now);
    }

    /// An operation of the log ended at `now`.
    pub fn log_ended(&mut self, now: Instant, sample: &Sample) {
        if sample.bulk == Beside::Nothing {
            self.alone.add(sample);
        }
        let Some(ratio) = self.alone.ratio(sample) else {
            // A rest tells the latency alone.
            self.next_rest = self.next_rest.min(now);
            return;
        };
        match self.phase {
            Phase::Drain { since, then, .. }
                if sample.submitted >= since && ratio <= self.goal.log_target =>
            {
                match then {
                    AfterDrain::Run => self.run(now),
                    AfterDrain::Half => self.begin_half(now),
                    AfterDrain::NextTrial => self.phase = Phase::BetweenTrials,
                }
            }
            Phase::Half { from, .. } if sample.submitted >= from => {
                self.window.both.add(sample, ratio);
                if sample.bulk != Beside::InFlight {
                    return;
                }
                self.beside_half.add(ratio);
                if let Some(longest) = self.longest_half.back_mut() {
                    *longest = longest.max(ratio);
                }
            }
            Phase::Run if sample.submitted >= self.window.since && !self.goal.is_fixed() => {
                self.window.add(sample, ratio);
                self.end_window(now);
            }
            Phase::Trial { until } if sample.submitted >= self.window.since => {
                self.window.add(sample, ratio);
                self.end_trial(now, until);
            }
            _ => {}
        }
    }

    /// The time at which the next bulk operation may go: at once if it is not after `now`.
    pub fn bulk_may_go_at(&mut self, now: Instant) -> Instant {
        if !self.has_log(now) {
            self.phase = Phase::Run;
            return now;
        }
        if self.goal.is_fixed() {
            return self.next.min(self.next_at_least);
        }
        match self.phase {
            Phase::Rest { until } if now < until => return until,
            Phase::Drain { until, .. } if now < until => return until.min(self.next_at_least),
            Phase::Trial { until } if now < until.after(TRIAL_TIME) => return until.after(TRIAL_TIME),
            Phase::Rest { .. } => {
                self.next_rest = now.after(REST_INTERVAL);
                self.begin_half(now);
            }
            Phase::Half { from, until } if now >= until => {
                // The log was measured from `from` on, bulk for the whole time.
                let (whole, time) = (now.since(self.window.since), now.since(from));
                let bulk = self.window.both.bulk as f64 * time.as_secs_f64() / whole.as_secs_f64();
                self.window.both.bulk = bulk as u64;
                self.log_loss.end_half(self.window.both.lasting(time));
                self.run(now);
            }
            Phase::Drain { then: AfterDrain::Half, .. } => self.begin_half(now),
            Phase::Drain { .. } | Phase::Trial { .. } => {
                // The log is slow while all but the free zones wait, or has no operations.
                let limited = self.search.give_up(now);
                self.scale_rate(now, limited);
                self.run(now);
            }
            // Bulk of the last trial is still in the drive's buffer: half the rate until the drive has written it.
            Phase::BetweenTrials => self.begin_half(now),
            Phase::Run if now >= self.next_rest => {
                let until = now.after(REST_TIME);
                self.phase = Phase::Rest { until };
                return until;
            }
            Phase::Run | Phase::Half { .. } => {}
        }
        self.next.min(self.next_at_least)
    }

    /// True if operations of some zones go at once.
    pub fn has_free_zones(&self) -> bool {
        self.search.has_free() || matches!(self.phase, Phase::Trial { .. })
    }

    /// True if operations of `zone` go at once: they do not slow the log, or a trial shows whether they do.
    pub fn is_free(&self, zone: ZoneId) -> bool {
        match self.phase {
            Phase::Rest { .. } => false,
            Phase::Trial { .. } => self.search.is_free(zone) || self.search.is_tried(zone),
            _ => self.search.is_free(zone),
        }
    }

    /// Begins a trial if it is time for one, after a rest or another trial, of some of the zones `held`, which have operations that are held.
    pub fn begin_trial(&mut self, now: Instant, held: impl Iterator<Item = ZoneId>) -> bool {
        let is_time = match self.phase {
            Phase::Rest { until } => now >= until && self.cut.is_some(),
            Phase::BetweenTrials => true,
            _ => false,
        };
        if !is_time || self.interval > LONGEST_INTERVAL_OF_TRIALS || !self.search.begin_trial(now, held) {
            return false;
        }
        self.next_rest = now.after(REST_INTERVAL);
        self.phase = Phase::Trial { until: now.after(TRIAL_TIME) };
        self.restart(now);
        true
    }

    fn end_trial(&mut self, now: Instant, until: Instant) {
        let samples = self.window.ratios.len();
        let is_slow = samples >= SAMPLES_OF_A_FAILURE && self.window.both.mean() > 2.0 * self.allowed_mean();
        if !is_slow && (now < until || samples < FEWEST_SAMPLES) {
            return;
        }
        let slowdown = self.window.slowdown();
        let passed = !is_slow && !self.queues(slowdown);
        let limited = self.search.end_trial(now, passed);
        self.scale_rate(now, limited);
        self.window = Window::new(now);
        self.phase = if passed {
            Phase::BetweenTrials
        } else {
            let then = AfterDrain::NextTrial;
            Phase::Drain { since: now, until: now.after(DRAIN_AT_MOST), then }
        };
    }

    /// The rate is that of `limited` times as many zones.
    fn scale_rate(&mut self, now: Instant, limited: f64) {
        if (limited - 1.0).abs() > 1e-9 {
            self.rate = self.goal.bounded(self.rate * limited);
            self.cut = Some((self.rate, now));
            self.rate_halved = self.rate;
        }
    }

    fn begin_half(&mut self, now: Instant) {
        self.phase = Phase::Half { from: now.after(HALF_SETTLES), until: now.after(HALF_TIME) };
        self.rate_halved = self.rate;
        self.longest_half.retain(|longest| *longest > 0.0);
        if self.longest_half.len() == LONGEST_OF {
            self.longest_half.pop_front();
        }
        self.longest_half.push_back(0.0);
        self.restart(now);
    }

    fn run(&mut self, now: Instant) {
        self.phase = Phase::Run;
        self.restart(now);
    }

    /// A bulk operation of `bytes` goes, perhaps before its time because somebody waits for it.
    pub fn bulk_goes(&mut self, now: Instant, bytes: u64) {
        self.window.both.add_bulk(bytes);
        let rate = if matches!(self.phase, Phase::Half { .. }) { self.rate / 2.0 } else { self.rate };
        let earliest = Instant(now.0.saturating_sub(BURST.as_nanos() as u64));
        if self.next.min(self.next_at_least) <= now {
            let time = Duration::from_secs_f64(bytes as f64 / self.goal.least_rate);
            self.next_at_least = self.next_at_least.max(earliest).after(time);
        }
        let from = self.next.max(earliest).min(now.after(DEBT));
        self.next = from.after(Duration::from_secs_f64(bytes as f64 / rate));
    }

    fn restart(&mut self, now: Instant) {
        self.window = Window::new(now);
        self.next = self.next.max(now);
    }

    fn end_window(&mut self, now: Instant) {
        let (time, samples) = (now.since(self.window.since), self.window.ratios.len());
        // A log that is twice as slow as allowed does not wait for the end of its window.
        let is_far = || self.window.both.mean() > 2.0 * self.allowed_mean();
        let has_bulk = !(1..FEWEST_BULK).contains(&self.window.both.bulk_operations);
        let enough = time >= WINDOW && samples >= PERCENTILE_SAMPLES && has_bulk
            || time >= LONG_WINDOW && samples >= FEWEST_SAMPLES
            || time >= WINDOW && samples >= FEWEST_SAMPLES && is_far()
            || time >= ALONE_AFTER_AT_MOST;
        if !enough {
            return;
        }
        let both = self.window.both.lasting(time);
        let used = both.bulk as f64 / time.as_secs_f64();
        let slowdown = self.window.slowdown();
        self.window = Window::new(now);
        // Without bulk in the window the log's latency says nothing of a rate.
        if used <= 0.0 && !self.search.has_free() {
            return;
        }
        // Free zones' bytes are not in `both`.
        let taken = if self.search.has_free() { None } else { self.log_loss.taken(both) };
        if taken.is_some() || self.queues(slowdown) {
            // Bulk that did not use its rate may have gone at that rate in a burst.
            let ceiling = if used < self.rate / 2.0 { self.rate } else { used.min(self.rate) };
            let rate = (ceiling - taken.unwrap_or_default()).clamp(ceiling / 2.0, ceiling * CUT);
            self.rate = self.goal.bounded(rate);
            self.cut = Some((self.rate / CUT, now));
            self.log_loss.restart();
            let then = if taken.is_some() { AfterDrain::Half } else { AfterDrain::Run };
            self.phase = Phase::Drain { since: now, until: now.after(DRAIN_AT_MOST), then };
            return;
        }
        if used < self.rate * 0.7 {
            // Bulk does not use its rate: how a higher one would be is unknown.
            if let Some((_, at)) = &mut self.cut {
                *at = at.after(time);
            }
            return;
        }
        self.rate = match self.cut {
            None => self.rate * 2.0,
            Some((ceiling, at)) => {
                let t = now.since(at).as_secs_f64() / RECOVERY.as_secs_f64();
                ceiling * (1.0 + (1.0 - CUT) * (t - 1.0).powi(3))
            }
        };
        self.rate = self.goal.bounded(self.rate);
        if self.rate >= self.rate_halved * 2.0 {
            self.begin_half(now);
        }
    }

    /// True if the log queues behind bulk.
    fn queues(&self, slowdown: Slowdown) -> bool {
        // Until both are known the mean decides alone.
        let p99 = self.alone.ratios.p99.zip(self.usual_longest());
        let p99 = p99.map(|(alone, longest)| (alone * self.goal.log_target).max(longest * SLOPE_OF_TAIL));
        slowdown.mean > self.allowed_mean()
            || slowdown.p99.zip(p99).is_some_and(|(now, allowed)| now > allowed)
    }

    fn allowed_mean(&self) -> f64 {
        let target = self.goal.log_target;
        self.beside_half.mean.map_or(target, |beside| target.max(beside * self.slope()))
    }

    /// The median of the longest latencies at half the rate.
    fn usual_longest(&self) -> Option<f64> {
        let mut longest: Vec<f64> =
            self.longest_half.iter().copied().filter(|longest| *longest > 0.0).collect();
        longest.sort_unstable_by(f64::total_cmp);
        longest.get(longest.len() / 2).copied()
    }

    fn slope(&self) -> f64 {
        if self.cut.is_none() { SLOPE_OF_SEARCH } else { SLOPE }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Runs a log of an operation each 100 us beside bulk of 8 KiB pieces for `time`. `latency` gives that of the log at a rate of the bulk, which is that of the last
    /// 3 ms. Returns the bulk's bytes a second in the second half.
    fn run(goal: Goal, time: Duration, latency: impl Fn(f64) -> Duration) -> f64 {
        let mut now = Instant::ORIGIN;
        let mut controller = Controller::new(goal, now);
        let (mut recent, mut mark, mut sent, mut counted) = (0.0, (now, 0_u64), 0_u64, 0_u64);
        let (half, end) = (now.after(time / 2), now.after(time));
        while now < end {
            controller.log_submitted(now);
            let bulk = if recent > 0.0 { Beside::InFlight } else { Beside::Nothing };
            let sample =
                Sample { kind: Kind::Write, bytes: 4096, submitted: now, latency: latency(recent), bulk };
            now = now.after(Duration::from_micros(100));
            controller.log_ended(now, &sample);
            while controller.bulk_may_go_at(now) <= now {
                controller.bulk_goes(now, 8 << 10);
                sent += 8 << 10;
                counted += if now >= half { 8 << 10 } else { 0 };
            }
            if now.since(mark.0) >= Duration::from_millis(3) {
                recent = (sent - mark.1) as f64 / now.since(mark.0).as_secs_f64();
                mark = (now, sent);
            }
        }
        counted as f64 / (time / 2).as_secs_f64()
    }

    fn micros(us: u64) -> Duration {
        Duration::from_micros(us)
    }

    #[test]
    fn the_rate_settles_below_the_one_at_which_the_log_queues() {
        let rate =
            run(Goal::default(), Duration::from_secs(6), |rate| micros(if rate > 400e6 { 900 } else { 50 }));
        assert!((320e6..400e6).contains(&rate), "{rate}");
    }

    /// Every operation beside bulk costs a third more than alone, at any rate.
    #[test]
    fn a_price_that_a_lower_rate_would_not_save_limits_no_rate() {
        let latency = |rate: f64| {
            let price = if rate > 0.0 { 67 } else { 50 };
            micros(if rate > 2e9 { 900 } else { price })
        };
        let rate = run(Goal::default(), Duration::from_secs(6), latency);
        assert!((1.6e9..2e9).contains(&rate), "{rate}");
    }

    #[test]
    fn the_rate_stays_within_the_bounds_of_the_goal() {
        let slower_with_rate = |rate: f64| micros(50 + (rate / 20e3) as u64);
        let least = Goal { least_rate: 20e6, ..Goal::default() };
        let rate = run(least, Duration::from_secs(4), slower_with_rate);
        // A drain holds bulk for up to 50 ms whatever its rate.
        assert!((2e6..21e6).contains(&rate), "{rate}");
        let most = Goal { most_rate: Some(100e6), ..Goal::default() };
        let rate = run(most, Duration::from_secs(4), |_| micros(50));
        assert!((90e6..101e6).contains(&rate), "{rate}");
    }
}
