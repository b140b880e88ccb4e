//! The longest writes of a key-value load, each with the parts of its time.

use std::ops::AddAssign;
use std::time::Duration;

use rocks::WriteTimes;
use serde::Serialize;

/// One write to the database, with the parts of its latency in us.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct SlowWrite {
    /// The write's begin in ms since the begin of the run.
    pub at_ms: f64,
    /// The whole latency of the write in us.
    pub us: f64,
    /// Time in no other part. With a parallel log: locks of stripes, the append, and the drive's flush.
    pub engine: f64,
    /// In RocksDB's write path: until the writer led its group, or its group was written.
    pub wait: f64,
    /// The write of RocksDB's log, by a group's leader.
    pub log: f64,
    /// The insertion into the memtable.
    pub memtable: f64,
    /// Time that RocksDB delayed the write in a write stall.
    pub delay: f64,
    /// The switch to a new memtable and a new log.
    pub switch: f64,
}

impl SlowWrite {
    /// Makes a write from real times, which are `dilation` times the drive's.
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

/// Collects the longest writes, up to a number, and the sum of all writes.
#[derive(Clone, Debug, Default)]
pub(super) struct Slowest {
    keep: usize,
    /// The longest writes found so far, the longest first.
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

    /// The longest writes, and the mean write.
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
