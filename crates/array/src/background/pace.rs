//! The rate of a rebuild or a scrub beside clients. Pure: time and the clients' latencies are inputs, permissions are
//! outputs.
//!
//! Without clients the drives limit the rate. Beside clients the job rests now and then, to measure the clients' 99th
//! percentile latency without the job. Between two rests the rate falls by a third if the latency exceeds the
//! option's bound, and rises by an eighth otherwise (compare TCP's congestion control). The rate never falls below
//! the option's minimum.

use std::time::Duration;

use zoned::Instant;

use crate::Pace;
use crate::background::client_latency::MAX_SAMPLES;

/// The job counts as alone when no client operation ended for this long.
const ALONE_AFTER: Duration = Duration::from_millis(50);
/// The time between two adjustments of a background job's rate.
const ADJUST_PERIOD: Duration = Duration::from_millis(5);
/// How long a background job rests, to measure clients without the job.
const REST_TIME: Duration = Duration::from_millis(10);
/// The time from one rest of a background job to the next.
const REST_INTERVAL: Duration = Duration::from_millis(500);
/// The least number of latency samples that give a percentile.
const MIN_PERCENTILE_SAMPLES: usize = 20;
/// A background job's first rate beside clients, in bytes per second.
const FIRST_RATE: f64 = 64e6;
/// The highest rate of a background job, in bytes per second.
const HIGHEST_RATE: f64 = 8e9;

/// The rate control of one background job.
#[derive(Debug)]
pub(crate) struct Pacer {
    pace: Pace,
    rate: f64,
    /// The clients' 99th percentile latency in the job's last rest.
    baseline: Option<Duration>,
    /// Clients' latencies since the last adjustment of the job's rate.
    seen: Vec<Duration>,
    last_client: Option<Instant>,
    adjusted: Instant,
    rest: Option<Instant>,
    next_rest: Instant,
    /// The time at which the job may submit its next bytes.
    next: Instant,
}

impl Pacer {
    pub(crate) fn new(pace: Pace, now: Instant) -> Pacer {
        Pacer {
            pace,
            rate: FIRST_RATE,
            baseline: None,
            seen: Vec::new(),
            last_client: None,
            adjusted: now,
            rest: None,
            next_rest: now,
            next: now,
        }
    }

    /// Adds latencies of client operations that ended since the last call, by `now`.
    pub(crate) fn add_client_latencies(&mut self, now: Instant, latencies: &mut Vec<Duration>) {
        if latencies.is_empty() {
            return;
        }
        self.last_client = Some(now);
        // Client operations that end at the start of a rest were queued behind the background job.
        let failures_persisted = self.rest.is_none_or(|until| now.after(REST_TIME * 3 / 4) >= until);
        if failures_persisted && self.seen.len() < MAX_SAMPLES {
            self.seen.append(latencies);
        }
        latencies.clear();
    }

    /// True if clients are active, so that the job has to limit its rate.
    pub(crate) fn has_clients(&self, now: Instant) -> bool {
        self.pace.tail_percent > 0 && self.last_client.is_some_and(|at| now.since(at) < ALONE_AFTER)
    }

    /// When the job may submit its next `bytes`: at once if the result is not after `now`. A caller that
    /// waits asks again.
    pub(crate) fn ask(&mut self, now: Instant, bytes: u64) -> Instant {
        let most = self.pace.max_rate.map_or(f64::INFINITY, |most| most.0.max(1) as f64);
        if !self.has_clients(now) {
            // After a time without clients, the next client operation finds the job at rest.
            (self.rest, self.next_rest, self.baseline) = (None, now, None);
            self.seen.clear();
            return self.schedule_bytes(now, bytes, most);
        }
        if let Some(until) = self.rest {
            if now < until {
                return until;
            }
            self.rest = None;
            self.next_rest = now.after(REST_INTERVAL);
            self.baseline = self.take_p99_latency().or(self.baseline);
            self.restart_samples(now);
        } else if now >= self.next_rest {
            self.rest = Some(now.after(REST_TIME));
            self.restart_samples(now);
            return now.after(REST_TIME);
        } else if now.since(self.adjusted) >= ADJUST_PERIOD {
            if let (Some(now_is), Some(baseline)) = (self.take_p99_latency(), self.baseline) {
                let bound = baseline.mul_f64(f64::from(self.pace.tail_percent) / 100.0);
                self.rate *= if now_is > bound { 0.67 } else { 1.125 };
            }
            let least = self.pace.min_rate.0 as f64;
            self.rate = self.rate.min(HIGHEST_RATE).max(least);
            self.restart_samples(now);
        }
        self.schedule_bytes(now, bytes, self.rate.min(most))
    }

    fn restart_samples(&mut self, now: Instant) {
        self.adjusted = now;
        self.seen.clear();
    }

    fn schedule_bytes(&mut self, now: Instant, bytes: u64, rate: f64) -> Instant {
        if self.next > now {
            return self.next;
        }
        if rate.is_finite() {
            self.next = now.after(Duration::from_secs_f64(bytes as f64 / rate));
        }
        now
    }

    /// The clients' 99th percentile latency since the last adjustment of the job's rate.
    fn take_p99_latency(&mut self) -> Option<Duration> {
        if self.seen.len() < MIN_PERCENTILE_SAMPLES {
            return None;
        }
        let at = (self.seen.len() * 99 / 100).min(self.seen.len() - 1);
        Some(*self.seen.select_nth_unstable(at).1)
    }
}

#[cfg(test)]
mod tests {
    use zoned::Bytes;

    use super::*;

    /// Asks the pacer for 64 KiB repeatedly for `time`; a client operation takes `latency(rate of the last 5
    /// ms)`. Returns bytes per second.
    fn run(pace: Pace, time: Duration, latency: impl Fn(f64) -> Option<Duration>) -> f64 {
        let mut now = Instant::ORIGIN;
        let mut pacer = Pacer::new(pace, now);
        let (mut sent, mut recent, mut mark) = (0_u64, 0.0, (now, 0_u64));
        let end = now.after(time);
        while now < end {
            if now.since(mark.0) >= Duration::from_millis(1) {
                recent = (sent - mark.1) as f64 / now.since(mark.0).as_secs_f64();
                mark = (now, sent);
            }
            let mut seen: Vec<Duration> = latency(recent).into_iter().collect();
            pacer.add_client_latencies(now, &mut seen);
            let at = pacer.ask(now, 64 << 10);
            if at <= now {
                sent += 64 << 10;
            }
            now = now.after(Duration::from_micros(20));
        }
        sent as f64 / time.as_secs_f64()
    }

    #[test]
    fn without_clients_the_rate_is_unbounded() {
        let rate = run(Pace::default(), Duration::from_secs(1), |_| None);
        assert!(rate > 3e9, "{rate}");
        let bound = Pace { max_rate: Some(Bytes(100_000_000)), ..Pace::default() };
        let rate = run(bound, Duration::from_secs(1), |_| None);
        assert!((90e6..101e6).contains(&rate), "{rate}");
    }

    #[test]
    fn beside_clients_the_rate_settles_where_their_latency_is_within_bounds() {
        // Above 200 MB/s client operations take twice as long.
        let clients = |rate: f64| Some(Duration::from_micros(if rate > 200e6 { 200 } else { 100 }));
        let rate = run(Pace::default(), Duration::from_secs(3), clients);
        assert!((100e6..230e6).contains(&rate), "{rate}");
    }

    #[test]
    fn the_rate_never_falls_below_the_minimum() {
        let clients = |rate: f64| Some(Duration::from_micros(if rate > 0.0 { 900 } else { 100 }));
        let pace = Pace { min_rate: Bytes(8 << 20), ..Pace::default() };
        let rate = run(pace, Duration::from_secs(3), clients);
        assert!((7e6..20e6).contains(&rate), "{rate}");
    }
}
