//! When a bulk write may go: the controller of `zoned`, fed with what the page tells of logs.

use std::time::Duration;

use units::Instant;
use zoned::share::{Controller, Goal};

use crate::page::{FUTURE, LogEvent, Page};

/// The longest time for which one write is held.
pub const HOLD_AT_MOST: Duration = Duration::from_millis(50);
/// A new admission reads this many past events, so that it has latencies of the log alone.
const HISTORY: u64 = 512;
/// The time from one check to the next, where an operation of the log may end the wait.
const RECHECK_INTERVAL: Duration = Duration::from_millis(1);

/// The admission of one process's bulk writes to one drive.
///
/// Each process with bulk has a controller of its own; all are fed with the operations of every process's logs. Where several have bulk at once, each finds
/// its own rate as several senders do on one network path. All processes rest together, so that the log is measured alone: the page holds the end of the rest.
#[derive(Debug)]
pub struct Admission {
    controller: Controller,
    /// The number of the next event to read.
    next_event: u64,
}

impl Admission {
    /// An admission by `page`.
    pub fn new(page: &Page, now: Instant) -> Admission {
        let next_event = page.head().saturating_sub(HISTORY);
        Admission { controller: Controller::new(Goal::default(), now), next_event }
    }

    /// The time at which to ask again whether bulk may go; `None` if it may go now. Then [`bulk_goes`](Self::bulk_goes) must follow.
    pub fn wait_until(&mut self, page: &Page, now: Instant) -> Option<Instant> {
        self.read_events(page, now);
        if !self.controller.has_log(now) {
            return None;
        }
        if let Some(until) = page.rests_until(now) {
            return Some(until);
        }
        let at = self.controller.bulk_may_go_at(now);
        if let Some(until) = self.controller.rests_until() {
            page.rest(now, until);
        }
        if at <= now {
            return None;
        }
        let recheck_at = self.controller.waits_for_log().then(|| now.after(RECHECK_INTERVAL));
        let earlier = [recheck_at, self.controller.log_is_over_at()];
        let earlier = earlier.into_iter().flatten().filter(|earlier| *earlier > now).min();
        Some(earlier.map_or(at, |earlier| earlier.min(at)))
    }

    /// Bulk of `bytes` goes.
    pub fn bulk_goes(&mut self, now: Instant, bytes: u64) {
        self.controller.bulk_goes(now, bytes);
    }

    fn read_events(&mut self, page: &Page, now: Instant) {
        let controller = &mut self.controller;
        let latest = now.after(FUTURE);
        self.next_event = page.events_since(self.next_event, |event| match event {
            LogEvent::Begun(at) if at <= latest => controller.log_submitted(at),
            LogEvent::Ended(sample) if sample.submitted.after(sample.latency) <= latest => {
                controller.log_ended(sample.submitted.after(sample.latency), &sample);
            }
            // Of another boot, or garbled: bulk would be held until then.
            LogEvent::Begun(_) | LogEvent::Ended(_) => {}
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use zoned::share::{Beside, Kind, Sample};

    /// Runs a log of an operation each 200 us beside `processes` with bulk of 64 KiB pieces for four seconds. An operation of the log takes 100 us, or 2 ms
    /// where the bulk of the last 3 ms went faster than `limit`. Returns the bulk's bytes a second, the mean latency of the log and the longest
    /// hold, of the second half.
    fn run(processes: u32, limit: f64, log_ends: Duration) -> (f64, Duration, Duration) {
        let page = Page::in_memory(7);
        let mut now = Instant(1 << 40);
        let start = now;
        let mut bulk: Vec<(usize, Admission, Option<Instant>)> = (0..processes)
            .map(|pid| (page.claim(pid + 1, |_| false).unwrap(), Admission::new(&page, now), None))
            .collect();
        let (mut mark, mut sent, mut recent, mut counted) = (now, 0_u64, 0.0, 0_u64);
        let (mut latencies, mut longest, mut ending) = (Vec::new(), Duration::ZERO, None::<Sample>);
        while now.since(start) < Duration::from_secs(4) {
            let late = now.since(start) >= Duration::from_secs(2);
            if let Some(sample) = ending.filter(|sample| now >= sample.submitted.after(sample.latency)) {
                page.log_ended(&sample);
                ending = None;
            }
            if ending.is_none() && now.since(start) < log_ends {
                let beside = page.log_begins(now);
                let latency = Duration::from_micros(if recent > limit { 2000 } else { 100 });
                latencies.extend(late.then_some(latency));
                ending =
                    Some(Sample { kind: Kind::Flush, bytes: 4096, submitted: now, latency, bulk: beside });
            }
            for (slot, admission, held_since) in &mut bulk {
                let since = *held_since.get_or_insert(now);
                let forced = now.since(since) >= HOLD_AT_MOST;
                if admission.wait_until(&page, now).is_none() || forced {
                    page.bulk_begins(*slot, now);
                    admission.bulk_goes(now, 64 << 10);
                    page.bulk_ended(*slot, now);
                    longest = longest.max(now.since(since));
                    *held_since = None;
                    sent += 64 << 10;
                    counted += if late { 64 << 10 } else { 0 };
                }
            }
            if now.since(mark) >= Duration::from_millis(3) {
                recent = sent as f64 / now.since(mark).as_secs_f64();
                (mark, sent) = (now, 0);
            }
            now = now.after(Duration::from_micros(100));
        }
        let mean = latencies.iter().sum::<Duration>() / latencies.len().max(1) as u32;
        (counted as f64 / 2.0, mean, longest)
    }

    #[test]
    fn bulk_beside_a_log_settles_below_the_rate_at_which_the_log_queues() {
        let (rate, mean, longest) = run(1, 200e6, Duration::MAX);
        assert!((100e6..200e6).contains(&rate), "{rate}");
        assert!(mean < Duration::from_micros(250), "{mean:?}");
        assert!(longest <= HOLD_AT_MOST + Duration::from_millis(1), "{longest:?}");
    }

    #[test]
    fn several_processes_share_the_rate() {
        let (rate, mean, _) = run(3, 200e6, Duration::MAX);
        assert!((60e6..220e6).contains(&rate), "{rate}");
        assert!(mean < Duration::from_micros(400), "{mean:?}");
    }

    #[test]
    fn bulk_is_not_held_when_the_log_is_over() {
        // 64 KiB each 100 us, which is all that the test's bulk writes.
        let (rate, ..) = run(1, 200e6, Duration::from_secs(1));
        assert!(rate > 600e6, "{rate}");
    }

    #[test]
    fn events_of_a_time_to_come_hold_no_bulk() {
        let now = Instant(1 << 40);
        let later = now.after(Duration::from_secs(86_400));
        let page = Page::in_memory(7);
        let sample = Sample {
            kind: Kind::Flush,
            bytes: 1,
            submitted: later,
            latency: Duration::ZERO,
            bulk: Beside::Nothing,
        };
        for _ in 0..100 {
            page.log_begins(later);
            page.log_ended(&sample);
            page.log_ended(&Sample { submitted: now, latency: Duration::MAX, ..sample });
        }
        let mut admission = Admission::new(&page, now);
        for ms in 0..100 {
            let now = now.after(Duration::from_millis(ms));
            assert_eq!(admission.wait_until(&page, now), None);
            admission.bulk_goes(now, 1 << 20);
        }
    }
}
