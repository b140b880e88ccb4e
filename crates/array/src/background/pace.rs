//! How fast a rebuild or a scrub goes beside clients. Pure: time and the clients' latencies come in, permissions go out.
//!
//! Alone it is as fast as the drives. Beside clients it rests now and then to see their 99th percentile without it, and
//! between two rests its rate goes down by a third when they are worse off than the options allow, and up by an
//! eighth when they are not: what TCP does with a link it shares. It never goes below its least rate.

use std::time::Duration;

use zoned::Instant;

use crate::Pace;

/// Without a client for so long it is alone.
const ALONE: Duration = Duration::from_millis(50);
/// How often the rate is looked at.
const PERIOD: Duration = Duration::from_millis(5);
/// A rest, in which clients are watched.
const REST: Duration = Duration::from_millis(10);
/// From one rest to the next.
const BETWEEN: Duration = Duration::from_millis(500);
/// Operations that a percentile needs at least.
const ENOUGH: usize = 20;
/// The rate that it begins with beside clients, in bytes a second.
const FIRST: f64 = 64e6;
/// And the highest.
const MOST: f64 = 8e9;
/// Latencies that are kept until the next look.
pub(crate) const KEPT: usize = 8192;

/// The pace of one job.
#[derive(Debug)]
pub(crate) struct Pacer {
    pace: Pace,
    rate: f64,
    /// The clients' 99th percentile in the last rest.
    baseline: Option<Duration>,
    /// What the clients saw since the last look.
    seen: Vec<Duration>,
    last_client: Option<Instant>,
    looked: Instant,
    rest: Option<Instant>,
    next_rest: Instant,
    /// When the next bytes may go.
    next: Instant,
}

impl Pacer {
    pub(crate) fn new(pace: Pace, now: Instant) -> Pacer {
        Pacer {
            pace,
            rate: FIRST,
            baseline: None,
            seen: Vec::new(),
            last_client: None,
            looked: now,
            rest: None,
            next_rest: now,
            next: now,
        }
    }

    /// Clients' operations that ended since the last call, by `now`.
    pub(crate) fn clients(&mut self, now: Instant, latencies: &mut Vec<Duration>) {
        if latencies.is_empty() {
            return;
        }
        self.last_client = Some(now);
        // What a rest begins with was still queued behind this job.
        let settled = self.rest.is_none_or(|until| now.after(REST * 3 / 4) >= until);
        if settled && self.seen.len() < KEPT {
            self.seen.append(latencies);
        }
        latencies.clear();
    }

    /// Whether clients are to be regarded.
    pub(crate) fn is_shared(&self, now: Instant) -> bool {
        self.pace.tail_percent > 0 && self.last_client.is_some_and(|at| now.since(at) < ALONE)
    }

    /// When the next `bytes` may go: `now` or earlier means at once. Ask again where it is later.
    pub(crate) fn ask(&mut self, now: Instant, bytes: u64) -> Instant {
        let most = self.pace.max_rate.map_or(f64::INFINITY, |most| most.0.max(1) as f64);
        if !self.is_shared(now) {
            // The next client finds it resting.
            (self.rest, self.next_rest, self.baseline) = (None, now, None);
            self.seen.clear();
            return self.spend(now, bytes, most);
        }
        if let Some(until) = self.rest {
            if now < until {
                return until;
            }
            self.rest = None;
            self.next_rest = now.after(BETWEEN);
            self.baseline = self.percentile().or(self.baseline);
            self.look_again(now);
        } else if now >= self.next_rest {
            self.rest = Some(now.after(REST));
            self.look_again(now);
            return now.after(REST);
        } else if now.since(self.looked) >= PERIOD {
            if let (Some(now_is), Some(baseline)) = (self.percentile(), self.baseline) {
                let bound = baseline.mul_f64(f64::from(self.pace.tail_percent) / 100.0);
                self.rate *= if now_is > bound { 0.67 } else { 1.125 };
            }
            let least = self.pace.min_rate.0 as f64;
            self.rate = self.rate.min(MOST).max(least);
            self.look_again(now);
        }
        self.spend(now, bytes, self.rate.min(most))
    }

    fn look_again(&mut self, now: Instant) {
        self.looked = now;
        self.seen.clear();
    }

    fn spend(&mut self, now: Instant, bytes: u64, rate: f64) -> Instant {
        if self.next > now {
            return self.next;
        }
        if rate.is_finite() {
            self.next = now.after(Duration::from_secs_f64(bytes as f64 / rate));
        }
        now
    }

    /// The clients' 99th percentile since the last look.
    fn percentile(&mut self) -> Option<Duration> {
        if self.seen.len() < ENOUGH {
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

    /// Asks for 64 KiB again and again for `time`; clients see `latency(rate of the last 5 ms)`. Gives bytes a second.
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
            pacer.clients(now, &mut seen);
            let at = pacer.ask(now, 64 << 10);
            if at <= now {
                sent += 64 << 10;
            }
            now = now.after(Duration::from_micros(20));
        }
        sent as f64 / time.as_secs_f64()
    }

    #[test]
    fn alone_nothing_holds_it_back() {
        let rate = run(Pace::default(), Duration::from_secs(1), |_| None);
        assert!(rate > 3e9, "{rate}");
        let bound = Pace { max_rate: Some(Bytes(100_000_000)), ..Pace::default() };
        let rate = run(bound, Duration::from_secs(1), |_| None);
        assert!((90e6..101e6).contains(&rate), "{rate}");
    }

    #[test]
    fn beside_clients_it_finds_the_rate_that_they_do_not_mind() {
        // Above 200 MB/s they are twice as slow.
        let clients = |rate: f64| Some(Duration::from_micros(if rate > 200e6 { 200 } else { 100 }));
        let rate = run(Pace::default(), Duration::from_secs(3), clients);
        assert!((100e6..230e6).contains(&rate), "{rate}");
    }

    #[test]
    fn it_goes_on_whatever_clients_suffer() {
        let clients = |rate: f64| Some(Duration::from_micros(if rate > 0.0 { 900 } else { 100 }));
        let pace = Pace { min_rate: Bytes(8 << 20), ..Pace::default() };
        let rate = run(pace, Duration::from_secs(3), clients);
        assert!((7e6..20e6).contains(&rate), "{rate}");
    }
}
