//! The threads of a key-value load's run.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use ::kv::parallel_wal::Database;
use rocks::{WriteBatch, take_write_times, time_writes};
use units::{Driver, Instant, SplitMix64};

use super::groups::{GroupOutcome, Led, groups};
use super::load::{Interval, KvLoad};
use super::mix::Operation;
use super::mixgraph::{self, Keys};
use super::slow::{SlowWrite, Slowest};
use crate::load::{Kinds, LONGEST_SCAN, fill, run_threads, scan};
use crate::ycsb::keys::{Picker, below, scatter};
use crate::{Recorder, Result};

/// Number of records that the filling writes in one batch.
const RECORDS_PER_FILL_BATCH: u64 = 16;
/// Most intervals, of all threads together, whose writes are summed up: up to 120 KiB of memory each.
const MAX_INTERVALS: usize = 10_000;

/// State that the load's threads share.
pub(super) struct SharedState {
    pub(super) database: Database,
    pub(super) driver: Arc<dyn Driver>,
    pub(super) load: KvLoad,
    pub(super) dilation: u32,
    pub(super) picker: Picker,
    pub(super) graph: Option<Keys>,
    next: AtomicU64,
    /// True while the compaction beside the load is to begin or under way.
    compacting: AtomicBool,
    failed: Arc<AtomicBool>,
}

/// The counts of the load's threads.
pub(super) struct ThreadCounts {
    pub(super) kinds: Kinds,
    put_bytes: u64,
    /// The time of the compaction beside the load.
    pub(super) compaction: Option<Duration>,
    slowest: Slowest,
    /// Every write to RocksDB's own log, where slow writes are listed.
    led: Vec<Led>,
    /// The latencies of the writes of each interval.
    intervals: Vec<Recorder>,
}

/// The memory of one thread of the load.
struct Own {
    random: SplitMix64,
    picker: Picker,
    batch: WriteBatch,
    value: Vec<u8>,
    tally: ThreadCounts,
}

impl ThreadCounts {
    fn new(keep: usize) -> ThreadCounts {
        ThreadCounts {
            kinds: Kinds::new(Operation::ALL.iter().map(|operation| operation.name())),
            put_bytes: 0,
            compaction: None,
            slowest: Slowest::new(keep),
            led: Vec::new(),
            intervals: Vec::new(),
        }
    }

    fn add(&mut self, other: ThreadCounts) {
        self.kinds.add(&other.kinds);
        self.put_bytes += other.put_bytes;
        self.compaction = self.compaction.or(other.compaction);
        self.slowest.merge(other.slowest);
        self.led.extend(other.led);
        let most = self.intervals.len().max(other.intervals.len());
        self.intervals.resize_with(most, Recorder::new);
        self.intervals.iter_mut().zip(&other.intervals).for_each(|(own, other)| own.add(other));
    }

    pub(super) fn intervals(&self, each: Duration, dilation: u32) -> Vec<Interval> {
        let ends = (1..).map(|n| f64::from(n) * each.as_secs_f64());
        let all = ends.zip(&self.intervals).filter(|(_, recorder)| recorder.count() > 0);
        all.map(|(seconds, recorder)| Interval {
            seconds,
            count: recorder.count(),
            latency_us: recorder.summary(dilation),
        })
        .collect()
    }

    /// The writes, sorted by the size of their group.
    pub(super) fn groups(&mut self, dilation: u32) -> Vec<GroupOutcome> {
        groups(std::mem::take(&mut self.led), dilation)
    }

    pub(super) fn put_bytes(&self) -> u64 {
        self.put_bytes
    }

    pub(super) fn slowest(self) -> (Vec<SlowWrite>, SlowWrite) {
        self.slowest.end()
    }
}

impl SharedState {
    pub(super) fn new(
        database: Database,
        driver: Arc<dyn Driver>,
        load: &KvLoad,
        dilation: u32,
    ) -> Arc<SharedState> {
        Arc::new(SharedState {
            database,
            driver,
            load: load.clone(),
            dilation,
            picker: Picker::new(load.distribution, load.records, 0),
            graph: load.mix.variant().map(|variant| Keys::new(variant, load.records)),
            next: AtomicU64::new(0),
            compacting: AtomicBool::new(load.compacts),
            failed: Arc::default(),
        })
    }

    /// Fills the database in key order, flushes it to tables, and makes its next log.
    pub(super) fn fill(&self) -> Result<()> {
        let mut own = self.own(u32::MAX);
        let mut record = 0;
        while record < self.load.records {
            own.batch.clear();
            let end = self.load.records.min(record + RECORDS_PER_FILL_BATCH);
            for record in record..end {
                own.fresh_value(&self.load);
                own.batch.put(&key(record), &own.value);
            }
            self.database.write(&mut own.batch, false)?;
            record = end;
        }
        self.database.flush()?;
        // The log after the flush has no zone yet. Where a put that needs a zone also finishes old zones, the load's first put
        // would wait for a zone that the filling left nearly empty.
        own.batch.clear();
        own.fresh_value(&self.load);
        own.batch.put(&key(0), &own.value);
        Ok(self.database.write(&mut own.batch, true)?)
    }

    /// Runs the load's operations in threads; returns their counts and the time.
    pub(super) async fn run(self: &Arc<SharedState>) -> Result<(ThreadCounts, Duration)> {
        let begin = self.driver.now();
        let thread = |thread| {
            let work = Arc::clone(self);
            async move {
                if thread == work.load.threads { work.compact_beside() } else { work.thread(thread, begin) }
            }
        };
        let threads = self.load.threads + u32::from(self.load.compacts);
        let of_threads = run_threads(&*self.driver, "kv", threads, &self.failed, thread).await?;
        let elapsed = self.driver.now().since(begin);
        let mut tally = ThreadCounts::new(self.load.slowest);
        of_threads.into_iter().for_each(|own| tally.add(own));
        Ok((tally, elapsed))
    }

    /// Compacts all tables. Gives the time.
    pub(super) fn compact(&self) -> Result<Duration> {
        let begin = self.driver.now();
        self.database.db().compact()?;
        Ok(self.driver.now().since(begin))
    }

    /// The compaction beside the load, which goes on until this ends.
    fn compact_beside(&self) -> Result<ThreadCounts> {
        let compaction = self.compact();
        self.compacting.store(false, Ordering::Relaxed);
        Ok(ThreadCounts { compaction: Some(compaction?), ..ThreadCounts::new(0) })
    }

    fn own(&self, thread: u32) -> Own {
        Own {
            random: SplitMix64::new(self.load.seed ^ scatter(u64::from(thread) + 1)),
            picker: self.picker.clone(),
            batch: WriteBatch::new(),
            value: Vec::new(),
            tally: ThreadCounts::new(self.load.slowest),
        }
    }

    /// Runs one thread of the load. The thread blocks and never awaits, so no other task runs on it.
    fn thread(&self, thread: u32, begin: Instant) -> Result<ThreadCounts> {
        let mut own = self.own(thread);
        let timed = self.load.slowest > 0;
        if timed {
            time_writes(true);
        }
        while !self.failed.load(Ordering::Relaxed)
            && (self.next.fetch_add(1, Ordering::Relaxed) < self.load.operations
                || self.compacting.load(Ordering::Relaxed))
        {
            let operation = self.load.mix.draw(&mut own.random);
            let key = key(self.pick(&mut own));
            match operation {
                Operation::Write => {
                    own.fresh_value(&self.load);
                    own.batch.clear();
                    own.batch.put(&key, &own.value);
                    own.tally.put_bytes += (key.len() + own.value.len()) as u64;
                }
                Operation::Read | Operation::Scan => {}
            }
            let at = self.driver.now();
            match operation {
                Operation::Write => self.database.write(&mut own.batch, self.load.sync)?,
                Operation::Read => {
                    own.tally.kinds.missing += u64::from(self.database.db().get(&key)?.is_none());
                }
                Operation::Scan => {
                    let length = match self.graph {
                        Some(_) => mixgraph::scan_length(&mut own.random),
                        None => 1 + below(&mut own.random, LONGEST_SCAN),
                    };
                    own.tally.kinds.missing += scan(self.database.db().iter(&key)?, &key, length)?;
                }
            }
            let end = self.driver.now();
            let took = end.since(at);
            own.tally.kinds.record(operation.name(), took);
            if operation == Operation::Write {
                if timed {
                    let times = take_write_times();
                    if !self.load.wal.is_parallel() {
                        own.tally.led.push(Led::of(own.batch.data(), times.log > Duration::ZERO, took));
                    }
                    own.tally.slowest.add(SlowWrite::new(at.since(begin), took, times, self.dilation));
                }
                self.record_in_interval(&mut own.tally, end.since(begin), took);
            }
        }
        if timed {
            time_writes(false);
        }
        Ok(own.tally)
    }

    fn record_in_interval(&self, tally: &mut ThreadCounts, end: Duration, took: Duration) {
        let Some(each) = self.load.interval else { return };
        let at = end.as_nanos() / u128::from(self.dilation.max(1)) / each.as_nanos().max(1);
        // The last interval takes all later writes.
        let at = usize::try_from(at).unwrap_or(usize::MAX).min(self.most_intervals() - 1);
        if tally.intervals.len() <= at {
            tally.intervals.resize_with(at + 1, Recorder::new);
        }
        if let Some(recorder) = tally.intervals.get_mut(at) {
            recorder.record(took);
        }
    }

    /// Most intervals that one thread records.
    fn most_intervals(&self) -> usize {
        (MAX_INTERVALS / self.load.threads.max(1) as usize).max(1)
    }

    fn pick(&self, own: &mut Own) -> u64 {
        match &self.graph {
            Some(keys) => keys.pick(&mut own.random),
            None => own.picker.pick(&mut own.random, self.load.records),
        }
    }
}

impl Own {
    /// Fills the buffer with a new random value.
    fn fresh_value(&mut self, load: &KvLoad) {
        let size = load.value.map_or_else(|| mixgraph::value_size(&mut self.random), |value| value.0);
        self.value.resize(usize::try_from(size).unwrap_or_default(), 0);
        fill(&mut self.value, &mut self.random);
    }
}

/// The key of a record, 16 bytes as in `db_bench`. Neighbouring records have neighbouring keys.
fn key(record: u64) -> Vec<u8> {
    format!("{record:016}").into_bytes()
}
