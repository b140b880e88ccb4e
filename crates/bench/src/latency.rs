//! A recorder of latencies, and its summary.

use std::time::Duration;

use hdrhistogram::Histogram;
use serde::Serialize;

/// A summary of latencies in us.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Latencies {
    /// The mean latency in us.
    pub mean: f64,
    /// The median latency in us.
    pub p50: f64,
    /// The 75th percentile of the latencies in us.
    pub p75: f64,
    /// The 99th percentile of the latencies in us.
    pub p99: f64,
    /// The 99.9th percentile of the latencies in us.
    pub p99_9: f64,
    /// The 99.99th percentile of the latencies in us.
    pub p99_99: f64,
    /// The longest latency in us.
    pub max: f64,
}

/// Counts latencies in buckets a thousandth of their value wide, in bounded memory.
#[derive(Clone, Debug)]
pub struct Recorder {
    histogram: Histogram<u64>,
    sum: f64,
    min: u64,
    max: u64,
}

/// Significant digits of a histogram's bucket.
const SIGNIFICANT_DIGITS: u8 = 3;
/// The longest latency that the histogram distinguishes, in ns: a day.
const LONGEST_NS: u64 = 86_400_000_000_000;

impl Recorder {
    /// A recorder without latencies.
    pub fn new() -> Recorder {
        let mut histogram =
            Histogram::new(SIGNIFICANT_DIGITS).expect("the number of digits is one that there is");
        histogram.auto(true);
        Recorder { histogram, sum: 0.0, min: u64::MAX, max: 0 }
    }

    /// Counts one latency.
    pub fn record(&mut self, latency: Duration) {
        let ns = u64::try_from(latency.as_nanos()).unwrap_or(u64::MAX);
        self.histogram.record(ns.clamp(1, LONGEST_NS)).expect("a histogram that grows takes it");
        self.sum += ns as f64;
        self.min = self.min.min(ns);
        self.max = self.max.max(ns);
    }

    /// Adds the latencies of another recorder.
    pub fn add(&mut self, other: &Recorder) {
        self.histogram.add(&other.histogram).expect("a histogram that grows takes all that another one has");
        self.sum += other.sum;
        self.min = self.min.min(other.min);
        self.max = self.max.max(other.max);
    }

    /// Number of recorded latencies.
    pub fn count(&self) -> u64 {
        self.histogram.len()
    }

    /// The quantile `share` of the latencies divided by `dilation`, in us.
    pub fn at(&self, share: f64, dilation: u32) -> f64 {
        let ns = self.histogram.value_at_quantile(share).max(self.min).min(self.max);
        ns as f64 / 1e3 / f64::from(dilation.max(1))
    }

    /// The summary of the latencies divided by `dilation`. Mean and maximum are exact; percentiles are within a
    /// thousandth, and exact if all latencies are equal.
    pub fn summary(&self, dilation: u32) -> Latencies {
        let us = |ns: f64| ns / 1e3 / f64::from(dilation.max(1));
        let at = |share| self.at(share, dilation);
        Latencies {
            mean: us(self.sum / self.count().max(1) as f64),
            p50: at(0.5),
            p75: at(0.75),
            p99: at(0.99),
            p99_9: at(0.999),
            p99_99: at(0.9999),
            max: us(self.max as f64),
        }
    }
}

impl Default for Recorder {
    fn default() -> Recorder {
        Recorder::new()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_summary_covers_every_counted_latency() {
        let mut recorder = Recorder::new();
        let mut other = Recorder::new();
        for us in 1..=1000 {
            let into = if us % 2 == 0 { &mut recorder } else { &mut other };
            into.record(Duration::from_micros(us));
        }
        recorder.add(&other);
        let summary = recorder.summary(1);
        assert_eq!((recorder.count(), summary.max, summary.mean), (1000, 1000.0, 500.5));
        for (found, expected) in [(summary.p50, 500.0), (summary.p99, 990.0), (summary.p99_9, 999.0)] {
            assert!((found / expected - 1.0_f64).abs() < 2e-3, "{summary:?}");
        }
        assert!((recorder.summary(10).max - 100.0).abs() < 1e-9);
    }

    #[test]
    fn equal_latencies_are_exact() {
        let mut recorder = Recorder::new();
        (0..10).for_each(|_| recorder.record(Duration::from_nanos(484_123)));
        let summary = recorder.summary(1);
        assert_eq!((summary.p50, summary.p99, summary.mean), (484.123, 484.123, 484.123));
    }

    #[test]
    fn nothing_counted_is_zeros() {
        assert_eq!(Recorder::new().summary(1), Latencies::default());
    }
}
