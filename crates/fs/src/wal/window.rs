//! The window of a log: the number of operations that it keeps in flight, the least that gives the full rate.
//!
//! Some drives serve several appends of a zone at a time. On other drives operations beyond the first would
//! only queue, and delay all other users of the drive. The controller begins with the largest window, and
//! halves it as long as the bytes acknowledged per second stay the same. Later it tries larger windows often,
//! which costs nothing, and smaller ones rarely. It measures only while the window is full, so that the
//! window is what limits the log.

use units::Instant;

/// Rates of bytes acknowledged that differ by a smaller fraction count as the same.
const SAME_RATE_FRACTION: f64 = 0.01;
/// The fraction for [`Window::from_one`] by which a larger window must raise the rate: a larger window there
/// means fewer records in each entry, so it must gain more.
const SAME_RATE_FRACTION_FROM_ONE: f64 = 0.05;
/// For [`Window::from_one`]: after each change of the window, one part in this many of a round is not
/// measured. The drive's buffer may take these operations faster than the drive can write them.
const SKIPPED_PART_OF_ROUND: usize = 4;
/// Operations in a round of measurement, for each operation in flight.
const ROUND_OPERATIONS_PER_IN_FLIGHT: usize = 2;
const MIN_ROUND_OPERATIONS: usize = 16;
/// Settled rounds before a trial of a larger window, and before the first trial of a smaller window. Later
/// trials are rarer.
const ROUNDS_BEFORE_LARGER_WINDOW: u32 = 32;
const ROUNDS_BEFORE_SMALLER_WINDOW: u32 = 128;
const MAX_ROUNDS_BEFORE_TRIAL: u32 = 1 << 14;

/// The controller of one log's window. Times are inputs.
#[derive(Debug)]
pub(crate) struct Window {
    most: usize,
    limit: usize,
    /// Settled rounds until the next trial of a larger and of a smaller window.
    up_in: u32,
    down_in: u32,
    /// The values from which `up_in` and `down_in` count down.
    hold_up: u32,
    hold_down: u32,
    /// True if each trial of a larger window that gained nothing makes the next trial rarer.
    patient: bool,
    /// Rates of bytes acknowledged that differ by a smaller fraction count as the same.
    same: f64,
    /// The least number of operations in a round of measurement.
    shortest: usize,
    trial: WindowTrial,
    round: MeasuredRound,
}

/// The reason for the window's current limit.
#[derive(Clone, Copy, Debug, PartialEq)]
enum WindowTrial {
    /// The window's limit is the result of the last trial.
    Settled,
    /// The window's limit is half of `from`, whose rate was `before`.
    Down { before: f64, from: usize },
    /// The window's limit is twice `from`, or the largest one; the rate of `from` was `before`.
    Up { before: f64, from: usize },
    /// The rate of the window's limit is measured before a trial of a smaller (`down`) or larger window.
    Base { down: bool },
}

/// A measurement.
#[derive(Debug, Default)]
struct MeasuredRound {
    /// Number of operations that the measurement ignores, because they began under another limit.
    skip: usize,
    since: Option<Instant>,
    bytes: u64,
    ops: usize,
}

impl Window {
    pub(crate) fn new(most: usize) -> Window {
        let most = most.max(1);
        Window {
            most,
            limit: most,
            up_in: ROUNDS_BEFORE_LARGER_WINDOW,
            down_in: ROUNDS_BEFORE_SMALLER_WINDOW,
            hold_up: ROUNDS_BEFORE_LARGER_WINDOW,
            hold_down: ROUNDS_BEFORE_SMALLER_WINDOW,
            patient: false,
            same: SAME_RATE_FRACTION,
            shortest: MIN_ROUND_OPERATIONS,
            trial: WindowTrial::Base { down: true },
            round: MeasuredRound { skip: most, ..MeasuredRound::default() },
        }
    }

    /// A window that begins with one operation in flight and tries larger limits: more and more rarely if
    /// they gain nothing, because records that wait for the one operation share an entry. `round`: operations
    /// of a measurement, more than the drive's buffer or a zone takes, because on some drives both are faster
    /// at first.
    pub(crate) fn from_one(most: usize, round: usize) -> Window {
        let shortest = round.max(MIN_ROUND_OPERATIONS);
        let mut window =
            Window { patient: true, same: SAME_RATE_FRACTION_FROM_ONE, shortest, ..Window::new(most) };
        window.try_limit(1, WindowTrial::Base { down: false });
        window.round.skip = 0;
        window
    }

    /// Number of operations that the log may have in flight.
    pub(crate) fn limit(&self) -> usize {
        self.limit
    }

    /// True if one operation in flight is enough and no trial of another window is running.
    pub(crate) fn rests_at_one(&self) -> bool {
        self.limit == 1 && self.trial == WindowTrial::Settled
    }

    /// Ends a trial of a larger window as one that gained nothing.
    pub(crate) fn give_up(&mut self) {
        if matches!(self.trial, WindowTrial::Up { .. }) {
            self.end_round(0.0);
        }
    }

    /// Notes that an operation of `bytes` bytes was acknowledged at `now`. `full`: the window was full.
    pub(crate) fn acknowledged(&mut self, now: Instant, bytes: u64, full: bool) {
        if self.most == 1 {
            return;
        }
        if !full {
            // The window did not limit the log, so the measurement is void.
            self.round = MeasuredRound { skip: self.limit, ..MeasuredRound::default() };
            return;
        }
        if self.round.skip > 0 {
            self.round.skip -= 1;
            return;
        }
        let Some(since) = self.round.since else {
            self.round.since = Some(now);
            return;
        };
        self.round.bytes += bytes;
        self.round.ops += 1;
        let elapsed = now.since(since).as_secs_f64();
        if self.round.ops >= (ROUND_OPERATIONS_PER_IN_FLIGHT * self.limit).max(self.shortest) && elapsed > 0.0
        {
            let rate = self.round.bytes as f64 / elapsed;
            self.round = MeasuredRound { since: Some(now), ..MeasuredRound::default() };
            self.end_round(rate);
        }
    }

    fn end_round(&mut self, rate: f64) {
        match self.trial {
            WindowTrial::Base { down: true } => self.halve_window(rate),
            WindowTrial::Base { down: false } => self.double_window(rate),
            // The rate of half the window is the same: half of that is tried next.
            WindowTrial::Down { before, .. } if rate >= before * (1.0 - self.same) => {
                self.halve_window(rate.max(before))
            }
            WindowTrial::Down { from, .. } => {
                self.try_limit(from, WindowTrial::Settled);
                self.hold_down = (self.hold_down * 2).min(MAX_ROUNDS_BEFORE_TRIAL);
            }
            WindowTrial::Up { before, .. } if rate > before * (1.0 + self.same) => {
                (self.hold_up, self.hold_down) = (ROUNDS_BEFORE_LARGER_WINDOW, ROUNDS_BEFORE_SMALLER_WINDOW);
                self.double_window(rate);
            }
            WindowTrial::Up { from, .. } => {
                self.try_limit(from, WindowTrial::Settled);
                if self.patient {
                    self.hold_up = (self.hold_up * 2).min(MAX_ROUNDS_BEFORE_TRIAL);
                    self.up_in = self.hold_up;
                }
            }
            WindowTrial::Settled => {
                self.up_in = self.up_in.saturating_sub(1);
                self.down_in = self.down_in.saturating_sub(1);
                if self.down_in == 0 {
                    self.down_in = self.hold_down;
                    self.trial = WindowTrial::Base { down: true };
                } else if self.up_in == 0 {
                    self.up_in = self.hold_up;
                    if self.limit < self.most {
                        self.trial = WindowTrial::Base { down: false };
                    }
                }
            }
        }
    }

    fn halve_window(&mut self, rate: f64) {
        match self.limit {
            1 => self.trial = WindowTrial::Settled,
            from => self.try_limit(from / 2, WindowTrial::Down { before: rate, from }),
        }
    }

    fn double_window(&mut self, rate: f64) {
        match self.limit {
            from if from < self.most => {
                self.try_limit((from * 2).min(self.most), WindowTrial::Up { before: rate, from });
            }
            _ => self.trial = WindowTrial::Settled,
        }
    }

    fn try_limit(&mut self, limit: usize, trial: WindowTrial) {
        let skip =
            self.limit.max(limit).max(if self.patient { self.shortest / SKIPPED_PART_OF_ROUND } else { 0 });
        self.round = MeasuredRound { skip, ..MeasuredRound::default() };
        (self.limit, self.trial) = (limit, trial);
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    /// Simulates a drive that serves `parallel` operations at a time, `us` each, under a window for `ops`
    /// operations; returns the mean limit over the last half and the share of the drive's best rate.
    fn simulate_drive(window: &mut Window, parallel: usize, us: u64, ops: usize) -> (f64, f64) {
        let (mut now, mut limits, mut busy) = (0_u64, 0, 0.0);
        for op in 0..ops {
            let served = window.limit().min(parallel) as f64;
            busy += us as f64 / served;
            now = (busy * 1000.0) as u64;
            window.acknowledged(Instant::ORIGIN.after(Duration::from_nanos(now)), 4096, true);
            limits += if op >= ops / 2 { window.limit() } else { 0 };
        }
        let best = (ops as u64 * us * 1000) as f64 / parallel as f64;
        (limits as f64 / (ops - ops / 2) as f64, best / now as f64)
    }

    #[test]
    fn a_parallel_drive_is_filled_and_a_serial_one_is_not_flooded() {
        for parallel in [1, 2, 4, 16, 32, 64] {
            let mut window = Window::new(64);
            let (limit, share) = simulate_drive(&mut window, parallel, 100, 20_000);
            assert!(share > 0.985, "{parallel}: {share}");
            let most = parallel as f64 * 1.1 + 0.2;
            assert!(limit <= most && limit >= parallel as f64 * 0.95, "{parallel}: {limit}");
        }
    }

    #[test]
    fn every_window_on_every_drive_gives_what_the_whole_window_would() {
        for most in 1..=100 {
            for parallel in [1, 2, 3, 4, 5, 16, 31, 32, 33, 64] {
                let mut window = Window::new(most);
                let (_, share) = simulate_drive(&mut window, parallel, 100, 30_000);
                let possible = most.min(parallel) as f64 / parallel as f64;
                assert!(share > 0.98 * possible, "{most} on {parallel}: {share} of {possible}");
            }
        }
    }

    #[test]
    fn a_drive_that_becomes_more_parallel_is_filled_again() {
        let mut window = Window::new(32);
        assert!(simulate_drive(&mut window, 2, 100, 5000).0 < 2.5);
        assert!(simulate_drive(&mut window, 32, 100, 20_000).0 > 30.0);
        assert!(simulate_drive(&mut window, 2, 100, 200_000).0 < 8.0);
    }

    #[test]
    fn a_window_that_begins_with_one_operation_grows_where_the_drive_is_parallel_and_rests_where_it_is_serial()
     {
        for parallel in [1, 2, 4, 16, 32, 64] {
            let mut window = Window::from_one(128, 64);
            assert!(!window.rests_at_one());
            let (limit, _) = simulate_drive(&mut window, parallel, 100, 20_000);
            let fits = limit <= parallel as f64 * 1.2 + 0.2 && limit >= parallel as f64 * 0.9;
            assert!(fits && window.rests_at_one() == (parallel == 1), "{parallel}: {limit}");
        }
    }

    #[test]
    fn a_trial_that_is_given_up_leaves_the_window_as_it_was() {
        let mut window = Window::from_one(128, 64);
        let mut at = 0;
        while window.limit() == 1 {
            at += 1000;
            window.acknowledged(Instant(at), 4096, true);
        }
        window.give_up();
        assert!(window.rests_at_one());
        // No trial of another window is running, so nothing changes.
        window.give_up();
        assert!(window.rests_at_one());
    }

    #[test]
    fn a_window_that_is_not_full_stays() {
        let mut window = Window::new(32);
        for at in 0..10_000 {
            window.acknowledged(Instant(at * 1000), 4096, false);
        }
        assert_eq!(window.limit(), 32);
    }
}
