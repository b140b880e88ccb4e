//! The pace of a rebuild, a reclaim or a scrub beside clients. Pure: time and the clients' operations are inputs, permissions are
//! outputs.
//!
//! Without clients the drives limit the rate. Beside clients the rate is that of the controller of drives' schedulers ([`zoned::share::Controller`]), for which the clients' operations are the log and
//! the job is bulk: it rests now and then, so that the clients alone are measured, and lowers its rate when their operations queue behind it. The rate never falls below the option's minimum.

use std::time::Duration;

use zoned::Instant;
use zoned::share::{Beside, Controller, Goal, Sample};

use crate::Pace;
use crate::background::client_operations::ClientEvent;

/// The last part of a rest, in which the job's operations have ended: clients' operations that begin in it are alone.
const CALM_TIME: Duration = Duration::from_millis(5);
/// The time from one question to the next, where an operation of the clients may end the wait.
const RECHECK_INTERVAL: Duration = Duration::from_millis(1);

/// The rate control of one background job.
#[derive(Debug)]
pub(crate) struct Pacer {
    pace: Pace,
    controller: Controller,
    /// The end of the last rest.
    rest_until: Option<Instant>,
    /// The time at which the job may submit its next bytes, by its highest rate.
    next: Instant,
}

impl Pacer {
    pub(crate) fn new(pace: Pace, now: Instant) -> Pacer {
        let most = pace.max_rate.map(|most| most.0.max(1) as f64);
        let goal = Goal {
            log_target: f64::from(pace.client_target.max(100)) / 100.0,
            least_rate: most.unwrap_or(f64::INFINITY).min(pace.min_rate.0.max(1) as f64),
            most_rate: most,
        };
        Pacer { pace, controller: Controller::new(goal, now), rest_until: None, next: now }
    }

    /// Adds what clients' operations did since the last call; `in_flight` if one is in flight at `now`.
    pub(crate) fn add_client_events(
        &mut self,
        now: Instant,
        events: impl IntoIterator<Item = ClientEvent>,
        in_flight: bool,
    ) {
        for event in events {
            match event {
                ClientEvent::Began(at) => self.controller.log_submitted(at),
                ClientEvent::Ended { kind, bytes, began, latency } => {
                    let calm = |until: Instant| began < until && until.since(began) <= CALM_TIME;
                    let is_alone = self.rest_until.is_some_and(calm);
                    let bulk = if is_alone { Beside::Nothing } else { Beside::InFlight };
                    let sample = Sample { kind, bytes, submitted: began, latency, bulk };
                    self.controller.log_ended(began.after(latency), &sample);
                }
            }
        }
        if in_flight {
            self.controller.log_in_flight(now);
        }
    }

    /// True if clients are active, so that the job has to limit its rate.
    pub(crate) fn has_clients(&self, now: Instant) -> bool {
        self.pace.client_target > 0 && self.controller.has_log(now)
    }

    /// When the job may submit its next `bytes`: at once if the result is not after `now`. A caller that
    /// waits asks again.
    pub(crate) fn ask(&mut self, now: Instant, bytes: u64) -> Instant {
        if self.next > now {
            return self.next;
        }
        let has_clients = self.has_clients(now);
        // Also without clients: a rest or another phase of the controller ends then.
        let at = self.controller.bulk_may_go_at(now);
        if has_clients {
            self.rest_until = self.controller.rests_until().or(self.rest_until);
            if at > now {
                // The first of the clients' operations within the target ends such a wait.
                return if self.controller.waits_for_log() {
                    at.min(now.after(RECHECK_INTERVAL))
                } else {
                    at
                };
            }
            self.controller.bulk_goes(now, bytes);
        }
        if let Some(most) = self.pace.max_rate {
            self.next = now.after(Duration::from_secs_f64(bytes as f64 / most.0.max(1) as f64));
        }
        now
    }
}

#[cfg(test)]
mod tests {
    use zoned::Bytes;
    use zoned::share::Kind;

    use super::*;

    /// Asks the pacer for 64 KiB repeatedly for `time`. A client's operation takes `latency(rate of the last ms)`, and begins when the one before has ended, at least 20 us after it began.
    /// Returns bytes per second in the second half.
    fn run(pace: Pace, time: Duration, latency: impl Fn(f64) -> Option<Duration>) -> f64 {
        let mut now = Instant::ORIGIN;
        let mut pacer = Pacer::new(pace, now);
        let (mut sent, mut counted, mut recent, mut mark) = (0_u64, 0_u64, 0.0, (now, 0_u64));
        let (half, end) = (now.after(time / 2), now.after(time));
        let mut operation = None::<(Instant, Duration)>;
        while now < end {
            if now.since(mark.0) >= Duration::from_millis(1) {
                recent = (sent - mark.1) as f64 / now.since(mark.0).as_secs_f64();
                mark = (now, sent);
            }
            let mut events = Vec::new();
            if let Some((began, latency)) = operation.filter(|(began, latency)| began.after(*latency) <= now)
            {
                events.push(ClientEvent::Ended { kind: Kind::Read, bytes: 4096, began, latency });
                operation = None;
            }
            if operation.is_none() {
                operation = latency(recent).map(|latency| (now, latency));
                events.extend(operation.map(|(began, _)| ClientEvent::Began(began)));
            }
            pacer.add_client_events(now, events, operation.is_some());
            let at = pacer.ask(now, 64 << 10);
            if at <= now {
                sent += 64 << 10;
                counted += if now >= half { 64 << 10 } else { 0 };
            }
            now = now.after(Duration::from_micros(20));
        }
        counted as f64 / (time / 2).as_secs_f64()
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
        let rate = run(Pace::default(), Duration::from_secs(6), clients);
        assert!((100e6..230e6).contains(&rate), "{rate}");
    }

    #[test]
    fn clients_whose_operations_take_long_are_clients() {
        // None begins in a rest: the rate stays the first one. Without clients it is that of the drives.
        let rate = run(Pace::default(), Duration::from_secs(10), |_| Some(Duration::from_millis(60)));
        assert!((2e6..70e6).contains(&rate), "{rate}");
    }

    #[test]
    fn the_rate_keeps_the_bounds_of_the_pace() {
        let slower_with_rate = |rate: f64| Some(Duration::from_micros(100 + (rate / 50e3) as u64));
        let least = Pace { min_rate: Bytes(8 << 20), ..Pace::default() };
        let rate = run(least, Duration::from_secs(3), slower_with_rate);
        assert!((2e6..20e6).contains(&rate), "{rate}");
        let most = Pace { max_rate: Some(Bytes(100_000_000)), ..Pace::default() };
        let rate = run(most, Duration::from_secs(3), |_| Some(Duration::from_micros(100)));
        assert!((90e6..101e6).contains(&rate), "{rate}");
        let both =
            Pace { min_rate: Bytes(100_000_000), max_rate: Some(Bytes(50_000_000)), ..Pace::default() };
        let rate = run(both, Duration::from_secs(3), slower_with_rate);
        assert!((45e6..51e6).contains(&rate), "{rate}");
    }
}
