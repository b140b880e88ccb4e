//! The least rate of flushes, by the rate of the log's bytes. Pure.
//!
//! A database writes each byte to its log, and later flushes it from a memtable to a file. Where flushes are slower than the log, the memtables fill, and then the database stops its log until a flush has
//! ended: a log that the scheduler protects from the flush waits for the whole flush.

use std::time::Duration;

use units::Instant;

/// The least rate of flushes as a multiple of the rate of the log's bytes: a flush begins when a memtable is full, and has to end before the next ones are.
const FLUSH_BY_LOG: f64 = 2.0;
/// Flushes have the least rate for so many bytes as the log has written and no flush has yet, at most.
const MOST_OWED: i64 = 256 << 20;
/// The time over which the rate of the log's bytes is measured, without the log's pauses.
const MEASURED_FOR: Duration = Duration::from_millis(3);
/// A longer time from one write of the log to the next, as a multiple of the usual one, is a pause, if it is longer than [`MEASURED_FOR`] too.
const PAUSE: f64 = 4.0;
/// Flushes make up for a timer that is late by at most this much.
const BURST: Duration = Duration::from_micros(500);
/// The most bytes by which flushes count as ahead of their rate. Flushes beside a slow log may go much faster than their rate; without this bound, flushes beside a log that becomes fast would have no rate of their own for minutes.
const MOST_AHEAD: f64 = (32 << 20) as f64;

/// The rate of a log's bytes, and when flushes may go by it.
#[derive(Debug, Default)]
pub(super) struct FlushRate {
    /// Bytes of the log a second; 0 while it is not known.
    rate: f64,
    /// Bytes that the log has written, less those of flushes: below zero by the last flush at most.
    owed: i64,
    /// Bytes since the last measurement of the rate, and the time in which they came.
    bytes: u64,
    time: Duration,
    last_log: Option<Instant>,
    /// The usual time from one write of the log to the next, in seconds.
    interval: f64,
    /// Bytes by which flushes were ahead of their rate at `counted_at`; below zero where they were late.
    ahead: f64,
    counted_at: Instant,
}

impl FlushRate {
    /// The log writes `bytes`.
    pub(super) fn log_writes(&mut self, now: Instant, bytes: u64) {
        let gap = self.last_log.map_or(0.0, |last| now.since(last).as_secs_f64());
        self.last_log = Some(now);
        let usual = if self.interval > 0.0 { self.interval } else { gap };
        self.interval = usual + (gap - usual) / 16.0;
        self.owed = self.owed.saturating_add_unsigned(bytes).min(MOST_OWED);
        self.bytes = self.bytes.saturating_add(bytes);
        // A pause, perhaps for a flush, says nothing of the rate. The time between two batches of writes is no pause.
        if gap <= (usual * PAUSE).max(MEASURED_FOR.as_secs_f64()) {
            self.time += Duration::from_secs_f64(gap);
        }
        if self.time >= MEASURED_FOR {
            self.rate = self.bytes as f64 / self.time.as_secs_f64();
            (self.bytes, self.time) = (0, Duration::ZERO);
        }
    }

    /// A flush of `bytes` goes.
    pub(super) fn flush_goes(&mut self, now: Instant, bytes: u64) {
        self.owed = self.owed.max(0).saturating_sub_unsigned(bytes);
        self.goes(now, bytes);
    }

    /// An operation of `bytes` goes that counts in the flushes' rate: a flush, or an operation of another class that a flush waits for.
    pub(super) fn goes(&mut self, now: Instant, bytes: u64) {
        if self.rate > 0.0 {
            let rate = self.rate * FLUSH_BY_LOG;
            let made_up = rate * now.since(self.counted_at).as_secs_f64();
            let late_at_most = -rate * BURST.as_secs_f64();
            self.ahead = ((self.ahead - made_up).max(late_at_most) + bytes as f64).min(MOST_AHEAD);
            self.counted_at = now;
        }
    }

    /// The time at which the next flush may go by the log's rate: at once if it is not after `now`. `None` while that rate is not known, and where flushes have written as much as the log.
    pub(super) fn may_go_at(&self) -> Option<Instant> {
        let wait = || Duration::from_secs_f64(self.ahead.max(0.0) / (self.rate * FLUSH_BY_LOG));
        (self.rate > 0.0 && self.owed > 0).then(|| self.counted_at.after(wait()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Flushes of 256 KiB beside a log that writes 4 KiB each 10 us, paused for 4 ms in 20, in 100 ms. Returns the flushes' bytes by the log's.
    fn flushed_by_log(begins: Duration) -> f64 {
        let (mut rate, mut now) = (FlushRate::default(), Instant::ORIGIN);
        let (mut log, mut flushed, end) = (0, 0, Instant::ORIGIN.after(Duration::from_millis(100)));
        while now < end {
            if now.0 % 20_000_000 < 16_000_000 {
                rate.log_writes(now, 4096);
                log += 4096;
            }
            while now.since(Instant::ORIGIN) >= begins && rate.may_go_at().is_some_and(|at| at <= now) {
                rate.flush_goes(now, 256 << 10);
                flushed += 256 << 10;
            }
            now = now.after(Duration::from_micros(10));
        }
        f64::from(flushed) / f64::from(log)
    }

    #[test]
    fn flushes_keep_up_with_the_log_and_catch_up_at_twice_its_rate() {
        let all = flushed_by_log(Duration::ZERO);
        assert!((0.95..1.02).contains(&all), "{all}");
        let late = flushed_by_log(Duration::from_millis(75));
        assert!((0.6..0.68).contains(&late), "25 of 80 ms at twice the rate without pauses: {late}");
    }

    #[test]
    fn an_operation_in_front_of_a_flush_counts_in_the_rate_and_not_as_flushed() {
        let (mut rate, mut now) = (FlushRate::default(), Instant::ORIGIN);
        for _ in 0..1000 {
            rate.log_writes(now, 4096);
            now = now.after(Duration::from_micros(10));
        }
        assert!(rate.may_go_at().is_some_and(|at| at <= now));
        rate.goes(now, 1 << 20);
        // 1 MiB at twice 400 MB/s.
        let wait = rate.may_go_at().map(|at| at.since(now));
        assert!(wait.is_some_and(|wait| (700..1400).contains(&wait.as_micros())), "{wait:?}");
        // The log has written 4 MB.
        rate.goes(now, 8 << 20);
        assert!(rate.may_go_at().is_some());
        rate.flush_goes(now, 8 << 20);
        assert_eq!(rate.may_go_at(), None);
    }

    #[test]
    fn what_went_beside_a_slow_log_holds_no_flush_beside_a_fast_one() {
        let (mut rate, mut now) = (FlushRate::default(), Instant::ORIGIN);
        for _ in 0..100 {
            rate.log_writes(now, 4096);
            now = now.after(Duration::from_millis(100));
        }
        // At the controller's rate, beside a log of 41 KB/s.
        (0..100_000).for_each(|_| rate.flush_goes(now, 256 << 10));
        for _ in 0..10_000 {
            rate.log_writes(now, 4096);
            now = now.after(Duration::from_micros(10));
        }
        assert!(rate.may_go_at().is_some_and(|at| at <= now), "{:?} at {now:?}", rate.may_go_at());
    }

    #[test]
    fn without_a_log_flushes_have_no_rate_of_their_own() {
        let mut rate = FlushRate::default();
        rate.flush_goes(Instant::ORIGIN, 1 << 20);
        assert_eq!(rate.may_go_at(), None);
    }
}
