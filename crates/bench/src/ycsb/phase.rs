//! One workload on an open database.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use rocks::{Db, WriteBatch};
use units::{Driver, Instant, SplitMix64, sleep_until, spawn};

use super::keys::{Inserted, Picker, below, scatter};
use super::{LONGEST_SCAN, OfKind, Operation, Workload, YcsbLoad};
use crate::{Recorder, Result};

/// What the threads share.
pub(super) struct Work {
    pub(super) db: Db,
    pub(super) driver: Arc<dyn Driver>,
    pub(super) load: YcsbLoad,
    pub(super) workload: Workload,
    pub(super) dilation: u32,
    pub(super) picker: Picker,
    /// Records that are there.
    pub(super) inserted: Inserted,
    /// The next record to insert.
    pub(super) next_record: AtomicU64,
    /// The next operation, and how many there are.
    pub(super) next: AtomicU64,
    pub(super) operations: u64,
    pub(super) begin: Instant,
    pub(super) failed: AtomicBool,
}

/// What threads counted.
#[derive(Default)]
pub(super) struct Tally {
    kinds: [Recorder; Operation::ALL.len()],
    missing: u64,
}

impl Tally {
    /// Operations in all.
    pub(super) fn operations(&self) -> u64 {
        self.kinds.iter().map(Recorder::count).sum()
    }

    /// Records that were not found.
    pub(super) fn missing(&self) -> u64 {
        self.missing
    }

    /// What each kind of operation took, of those that there were.
    pub(super) fn kinds(&self, dilation: u32) -> Vec<OfKind> {
        let all = Operation::ALL.iter().zip(&self.kinds).filter(|(_, recorder)| recorder.count() > 0);
        all.map(|(operation, recorder)| OfKind {
            operation: operation.name(),
            count: recorder.count(),
            latency_us: recorder.summary(dilation),
        })
        .collect()
    }

    fn add(&mut self, other: &Tally) {
        self.kinds.iter_mut().zip(&other.kinds).for_each(|(own, other)| own.add(other));
        self.missing += other.missing;
    }

    fn record(&mut self, operation: Operation, latency: Duration) {
        let of_kind = Operation::ALL.iter().zip(&mut self.kinds).find(|(kind, _)| **kind == operation);
        let (_, recorder) = of_kind.expect("every operation is one of all");
        recorder.record(latency);
    }
}

/// A thread's own memory.
struct Own {
    random: SplitMix64,
    picker: Picker,
    batch: WriteBatch,
    value: Vec<u8>,
}

/// Runs the workload in threads of its own; gives what they counted and how long it took.
pub(super) async fn run(work: &Arc<Work>) -> Result<(Tally, Duration)> {
    let threads: Vec<_> = (0..work.load.threads)
        .map(|thread| {
            let work = Arc::clone(work);
            spawn(&*work.driver.clone(), "ycsb", async move {
                let result = work.thread(thread).await;
                if result.is_err() {
                    work.failed.store(true, Ordering::Relaxed);
                }
                result
            })
        })
        .collect();
    let (mut tally, mut result) = (Tally::default(), Ok(()));
    for thread in threads {
        match thread.await {
            Ok(own) => tally.add(&own),
            Err(error) => result = result.and(Err(error)),
        }
    }
    let elapsed = work.driver.now().since(work.begin);
    result.map(|()| (tally, elapsed))
}

impl Work {
    async fn thread(&self, thread: u32) -> Result<Tally> {
        let seed = self.load.seed ^ scatter(u64::from(thread) << 8 | self.workload as u64);
        let mut own = Own {
            random: SplitMix64::new(seed),
            picker: self.picker.clone(),
            batch: WriteBatch::new(),
            value: vec![0; usize::try_from(self.load.value.0).unwrap_or_default()],
        };
        let mut tally = Tally::default();
        while !self.failed.load(Ordering::Relaxed) {
            let number = self.next.fetch_add(1, Ordering::Relaxed);
            if number >= self.operations {
                break;
            }
            let mut begin = self.driver.now();
            if let Some(due) = self.load.due(number, self.dilation) {
                begin = self.begin.after(due);
                sleep_until(&*self.driver, begin).await;
            }
            let operation = self.workload.draw(&mut own.random);
            tally.missing += self.step(operation, &mut own)?;
            tally.record(operation, self.driver.now().since(begin));
        }
        Ok(tally)
    }

    /// One operation; gives how many records it missed.
    fn step(&self, operation: Operation, own: &mut Own) -> Result<u64> {
        match operation {
            Operation::Insert => {
                let record = self.next_record.fetch_add(1, Ordering::Relaxed);
                self.write(record, own)?;
                self.inserted.add(record);
                Ok(0)
            }
            Operation::Update => {
                let record = self.pick(own);
                self.write(record, own).map(|()| 0)
            }
            Operation::Read => self.read(self.pick(own)),
            Operation::ReadModifyWrite => {
                let record = self.pick(own);
                let missing = self.read(record)?;
                self.write(record, own).map(|()| missing)
            }
            Operation::Scan => {
                let from = key(self.pick(own));
                let length = 1 + below(&mut own.random, LONGEST_SCAN);
                self.scan(&from, length)
            }
        }
    }

    fn pick(&self, own: &mut Own) -> u64 {
        own.picker.pick(&mut own.random, self.inserted.below())
    }

    fn read(&self, record: u64) -> Result<u64> {
        Ok(u64::from(self.db.get(&key(record))?.is_none()))
    }

    fn write(&self, record: u64, own: &mut Own) -> Result<()> {
        for word in own.value.chunks_mut(size_of::<u64>()) {
            let random = own.random.draw().to_le_bytes();
            word.iter_mut().zip(random).for_each(|(to, from)| *to = from);
        }
        own.batch.clear();
        own.batch.put(&key(record), &own.value);
        Ok(self.db.write(&own.batch, self.load.sync)?)
    }

    /// Reads so many records, fewer at the end of the keys. The first one is there.
    fn scan(&self, from: &[u8], length: u64) -> Result<u64> {
        let mut cursor = self.db.iter(from)?;
        let missing = u64::from(cursor.key() != from);
        let mut bytes = 0;
        for _ in 0..length {
            if !cursor.valid() {
                break;
            }
            bytes += cursor.key().len() + cursor.value().len();
            cursor.next();
        }
        cursor.status()?;
        std::hint::black_box(bytes);
        Ok(missing)
    }
}

/// The key of a record: neighbours lie far from each other.
pub(super) fn key(record: u64) -> Vec<u8> {
    format!("user{:020}", scatter(record)).into_bytes()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_as_long_as_each_other_and_no_two_are_the_same() {
        let keys: std::collections::BTreeSet<Vec<u8>> = (0..100_000).map(key).collect();
        assert_eq!(keys.len(), 100_000);
        assert!(keys.iter().all(|key| key.len() == 24));
    }
}
