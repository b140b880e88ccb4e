//! The longest writes, each with the parts of its time.

use std::ops::AddAssign;
use std::time::Duration;

use rocks::WriteTimes;
use serde::Serialize;

/// One write, its parts in us.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct SlowWrite {
    /// The write's begin, from the begin of the run.
    pub at_ms: f64,
    /// The whole latency.
    pub us: f64,
    /// The rest. With a parallel log: locks of stripes, the append, and the drive's flush.
    pub engine: f64,
    /// RocksDB: until the writer led its group, or its group was written.
    pub wait: f64,
    /// RocksDB: the write of the log, of a leader.
    pub log: f64,
    /// The memtable.
    pub memtable: f64,
    /// Write stalls.
    pub delay: f64,
    /// Another memtable and another log.
    pub switch: f64,
}

impl SlowWrite {
    /// From real times, which are `dilation` times the drive's.
    pub(super) fn new(at: Duration, took: Duration, times: WriteTimes, dilation: u32) -> SlowWrite {
        let WriteTimes { wait, log, memtable, delay, schedule, .. } = times;
        let rocksdb = wait + log + memtable + delay + schedule;
        let us = |time: Duration| time.as_secs_f64() * 1e6 / f64::from(dilation.max(1));
        SlowWrite {
            at_ms: us(at) / 1e3,
            us: us(took),
            engine: us(took.saturating_sub(rocksdb)),
            wait: us(wait),
            log: us(log),
            memtable: us(memtable),
            delay: us(delay),
            switch: us(schedule),
        }
    }
}

impl AddAssign for SlowWrite {
    fn add_assign(&mut self, other: SlowWrite) {
        self.us += other.us;
        self.engine += other.engine;
        self.wait += other.wait;
        self.log += other.log;
        self.memtable += other.memtable;
        self.delay += other.delay;
        self.switch += other.switch;
    }
}

/// The longest writes, up to a number, and the sum of all.
#[derive(Clone, Debug, Default)]
pub(super) struct Slowest {
    keep: usize,
    /// Longest first.
    found: Vec<SlowWrite>,
    sum: SlowWrite,
    count: u64,
}

impl Slowest {
    pub(super) fn new(keep: usize) -> Slowest {
        Slowest { keep, ..Slowest::default() }
    }

    pub(super) fn add(&mut self, write: SlowWrite) {
        self.sum += write;
        self.count += 1;
        self.insert(write);
    }

    fn insert(&mut self, write: SlowWrite) {
        let at = self.found.partition_point(|other| other.us >= write.us);
        if at < self.keep {
            self.found.insert(at, write);
            self.found.truncate(self.keep);
        }
    }

    pub(super) fn merge(&mut self, other: Slowest) {
        self.keep = self.keep.max(other.keep);
        self.sum += other.sum;
        self.count += other.count;
        other.found.into_iter().for_each(|write| self.insert(write));
    }

    /// The longest ones, and the mean write.
    pub(super) fn end(self) -> (Vec<SlowWrite>, SlowWrite) {
        let (sum, n) = (self.sum, self.count.max(1) as f64);
        let mean = SlowWrite {
            at_ms: 0.0,
            us: sum.us / n,
            engine: sum.engine / n,
            wait: sum.wait / n,
            log: sum.log / n,
            memtable: sum.memtable / n,
            delay: sum.delay / n,
            switch: sum.switch / n,
        };
        (self.found, mean)
    }
}
