//! How many operations a log keeps in flight: as many as pay, and no more.
//!
//! A drive that serves several appends of a zone at a time is filled; on one that does not, operations would only
//! queue, and everybody else on the drive behind them. The controller begins with the whole window and halves it as
//! long as the bytes acknowledged per second stay the same; it looks upwards often, which costs nothing, and
//! downwards rarely. It measures only while the window is what holds the log back.

use units::Instant;

/// Rates that differ by less are the same.
const SAME: f64 = 0.01;
/// Of a window that begins with one operation: what it tries costs those who went together before.
const SAME_FROM_ONE: f64 = 0.05;
/// After each change a fourth of its round does not count: that may go to a drive's buffer, which takes it faster than the
/// drive does.
const SKIP_FROM_ONE: usize = 4;
/// Operations of a round, for each in flight.
const ROUND: usize = 2;
const SHORTEST_ROUND: usize = 16;
/// Rounds at rest before a look upwards, and before the first one downwards; the next ones are rarer each time.
const HOLD_UP: u32 = 32;
const HOLD_DOWN: u32 = 128;
const LONGEST_HOLD: u32 = 1 << 14;

/// The controller. Knows no clock: times are inputs.
#[derive(Debug)]
pub(crate) struct Window {
    most: usize,
    limit: usize,
    /// Rounds left before looks.
    up_in: u32,
    down_in: u32,
    hold_up: u32,
    hold_down: u32,
    /// Looks upwards that gave nothing make the next ones rarer, too.
    patient: bool,
    same: f64,
    /// The least operations of a round.
    shortest: usize,
    trial: Trial,
    round: Round,
}

/// What the current limit is there for.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Trial {
    /// It serves.
    Settled,
    /// It is half of `from`, which gave this rate.
    Down { before: f64, from: usize },
    /// It is twice `from`, or all there is; `from` gave this rate.
    Up { before: f64, from: usize },
    /// The rate of this limit is measured before one half of it is tried.
    Base { down: bool },
}

/// A measurement.
#[derive(Debug, Default)]
struct Round {
    /// Operations that began under another limit and do not count.
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
            up_in: HOLD_UP,
            down_in: HOLD_DOWN,
            hold_up: HOLD_UP,
            hold_down: HOLD_DOWN,
            patient: false,
            same: SAME,
            shortest: SHORTEST_ROUND,
            trial: Trial::Base { down: true },
            round: Round { skip: most, ..Round::default() },
        }
    }

    /// One that begins with a single operation, and looks upwards: more and more rarely where that gives nothing, for what
    /// is in flight together there would go together here. It measures over `round` operations, more than a drive's buffer
    /// or a zone takes: both are faster at first on some.
    pub(crate) fn from_one(most: usize, round: usize) -> Window {
        let shortest = round.max(SHORTEST_ROUND);
        let mut window = Window { patient: true, same: SAME_FROM_ONE, shortest, ..Window::new(most) };
        window.try_limit(1, Trial::Base { down: false });
        window.round.skip = 0;
        window
    }

    /// Operations that may be in flight.
    pub(crate) fn limit(&self) -> usize {
        self.limit
    }

    /// Whether it has found that one operation is enough, and tries nothing.
    pub(crate) fn rests_at_one(&self) -> bool {
        self.limit == 1 && self.trial == Trial::Settled
    }

    /// A look upwards ends as one that gave nothing.
    pub(crate) fn give_up(&mut self) {
        if matches!(self.trial, Trial::Up { .. }) {
            self.judge(0.0);
        }
    }

    /// An operation of `bytes` bytes was acknowledged at `now`. `full`: as many were in flight as may be.
    pub(crate) fn landed(&mut self, now: Instant, bytes: u64, full: bool) {
        if self.most == 1 {
            return;
        }
        if !full {
            // Something else held the log back: what was measured says nothing of the window.
            self.round = Round { skip: self.limit, ..Round::default() };
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
        if self.round.ops >= (ROUND * self.limit).max(self.shortest) && elapsed > 0.0 {
            let rate = self.round.bytes as f64 / elapsed;
            self.round = Round { since: Some(now), ..Round::default() };
            self.judge(rate);
        }
    }

    fn judge(&mut self, rate: f64) {
        match self.trial {
            Trial::Base { down: true } => self.descend(rate),
            Trial::Base { down: false } => self.ascend(rate),
            // As good with half: go on down from here.
            Trial::Down { before, .. } if rate >= before * (1.0 - self.same) => {
                self.descend(rate.max(before))
            }
            Trial::Down { from, .. } => {
                self.try_limit(from, Trial::Settled);
                self.hold_down = (self.hold_down * 2).min(LONGEST_HOLD);
            }
            Trial::Up { before, .. } if rate > before * (1.0 + self.same) => {
                (self.hold_up, self.hold_down) = (HOLD_UP, HOLD_DOWN);
                self.ascend(rate);
            }
            Trial::Up { from, .. } => {
                self.try_limit(from, Trial::Settled);
                if self.patient {
                    self.hold_up = (self.hold_up * 2).min(LONGEST_HOLD);
                    self.up_in = self.hold_up;
                }
            }
            Trial::Settled => {
                self.up_in = self.up_in.saturating_sub(1);
                self.down_in = self.down_in.saturating_sub(1);
                if self.down_in == 0 {
                    self.down_in = self.hold_down;
                    self.trial = Trial::Base { down: true };
                } else if self.up_in == 0 {
                    self.up_in = self.hold_up;
                    if self.limit < self.most {
                        self.trial = Trial::Base { down: false };
                    }
                }
            }
        }
    }

    fn descend(&mut self, rate: f64) {
        match self.limit {
            1 => self.trial = Trial::Settled,
            from => self.try_limit(from / 2, Trial::Down { before: rate, from }),
        }
    }

    fn ascend(&mut self, rate: f64) {
        match self.limit {
            from if from < self.most => {
                self.try_limit((from * 2).min(self.most), Trial::Up { before: rate, from });
            }
            _ => self.trial = Trial::Settled,
        }
    }

    fn try_limit(&mut self, limit: usize, trial: Trial) {
        let skip = self.limit.max(limit).max(if self.patient { self.shortest / SKIP_FROM_ONE } else { 0 });
        self.round = Round { skip, ..Round::default() };
        (self.limit, self.trial) = (limit, trial);
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    /// A drive that serves `parallel` operations at a time, `us` each, under a window for `ops` operations; gives the
    /// mean limit over the last half and the share of the drive's best rate.
    fn drive(window: &mut Window, parallel: usize, us: u64, ops: usize) -> (f64, f64) {
        let (mut now, mut limits, mut busy) = (0_u64, 0, 0.0);
        for op in 0..ops {
            let served = window.limit().min(parallel) as f64;
            busy += us as f64 / served;
            now = (busy * 1000.0) as u64;
            window.landed(Instant::ORIGIN.after(Duration::from_nanos(now)), 4096, true);
            limits += if op >= ops / 2 { window.limit() } else { 0 };
        }
        let best = (ops as u64 * us * 1000) as f64 / parallel as f64;
        (limits as f64 / (ops - ops / 2) as f64, best / now as f64)
    }

    #[test]
    fn a_parallel_drive_is_filled_and_a_serial_one_is_not_flooded() {
        for parallel in [1, 2, 4, 16, 32, 64] {
            let mut window = Window::new(64);
            let (limit, share) = drive(&mut window, parallel, 100, 20_000);
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
                let (_, share) = drive(&mut window, parallel, 100, 30_000);
                let possible = most.min(parallel) as f64 / parallel as f64;
                assert!(share > 0.98 * possible, "{most} on {parallel}: {share} of {possible}");
            }
        }
    }

    #[test]
    fn a_drive_that_becomes_more_parallel_is_filled_again() {
        let mut window = Window::new(32);
        assert!(drive(&mut window, 2, 100, 5000).0 < 2.5);
        assert!(drive(&mut window, 32, 100, 20_000).0 > 30.0);
        assert!(drive(&mut window, 2, 100, 200_000).0 < 8.0);
    }

    #[test]
    fn one_that_begins_with_one_operation_grows_where_that_pays_and_rests_where_it_does_not() {
        for parallel in [1, 2, 4, 16, 32, 64] {
            let mut window = Window::from_one(128, 64);
            assert!(!window.rests_at_one());
            let (limit, _) = drive(&mut window, parallel, 100, 20_000);
            let fits = limit <= parallel as f64 * 1.2 + 0.2 && limit >= parallel as f64 * 0.9;
            assert!(fits && window.rests_at_one() == (parallel == 1), "{parallel}: {limit}");
        }
    }

    #[test]
    fn a_look_that_is_given_up_leaves_the_window_as_it_was() {
        let mut window = Window::from_one(128, 64);
        let mut at = 0;
        while window.limit() == 1 {
            at += 1000;
            window.landed(Instant(at), 4096, true);
        }
        window.give_up();
        assert!(window.rests_at_one());
        // Nothing is looked for: nothing changes.
        window.give_up();
        assert!(window.rests_at_one());
    }

    #[test]
    fn a_window_that_is_not_full_stays() {
        let mut window = Window::new(32);
        for at in 0..10_000 {
            window.landed(Instant(at * 1000), 4096, false);
        }
        assert_eq!(window.limit(), 32);
    }
}
