//! One YCSB workload on an open database.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use units::{Driver, Instant, SplitMix64, sleep_until};

use super::database::{Batch, Database};
use super::keys::{Inserted, Picker, below, scatter};
use super::load::YcsbLoad;
use super::workload::{Operation, Workload};
use crate::Result;
use crate::load::{Kinds, LONGEST_SCAN, fill, run_threads};

/// State that the workload's threads share.
pub(super) struct SharedState {
    pub(super) db: Arc<Database>,
    pub(super) driver: Arc<dyn Driver>,
    pub(super) load: YcsbLoad,
    pub(super) workload: Workload,
    pub(super) dilation: u32,
    pub(super) picker: Picker,
    /// The records inserted so far.
    pub(super) inserted: Inserted,
    /// The number of the next record to insert.
    pub(super) next_record: AtomicU64,
    /// The number of the next operation, and the number of all operations.
    pub(super) next: AtomicU64,
    pub(super) operations: u64,
    pub(super) begin: Instant,
    pub(super) failed: Arc<AtomicBool>,
}

/// The memory of one thread of the workload.
struct Own {
    random: SplitMix64,
    picker: Picker,
    batch: Batch,
    value: Vec<u8>,
}

fn kinds() -> Kinds {
    Kinds::new(Operation::ALL.iter().map(|operation| operation.name()))
}

/// Runs the workload in its threads; returns their counts and the time.
pub(super) async fn run(work: &Arc<SharedState>) -> Result<(Kinds, Duration)> {
    let thread = |thread| {
        let work = Arc::clone(work);
        async move { work.thread(thread).await }
    };
    let of_threads = run_threads(&*work.driver, "ycsb", work.load.threads, &work.failed, thread).await?;
    let elapsed = work.driver.now().since(work.begin);
    let mut all = kinds();
    of_threads.iter().for_each(|of_thread| all.add(of_thread));
    Ok((all, elapsed))
}

impl SharedState {
    async fn thread(&self, thread: u32) -> Result<Kinds> {
        let seed = self.load.seed ^ scatter(u64::from(thread) << 8 | self.workload as u64);
        let mut own = Own {
            random: SplitMix64::new(seed),
            picker: self.picker.clone(),
            batch: Batch::new(self.load.engine),
            value: vec![0; usize::try_from(self.load.value.0).unwrap_or_default()],
        };
        let mut tally = kinds();
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
            tally.record(operation.name(), self.driver.now().since(begin));
        }
        Ok(tally)
    }

    /// Does one operation of the workload; returns the number of records not found.
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
                self.db.scan(&from, length)
            }
        }
    }

    fn pick(&self, own: &mut Own) -> u64 {
        own.picker.pick(&mut own.random, self.inserted.below())
    }

    fn read(&self, record: u64) -> Result<u64> {
        Ok(u64::from(!self.db.has(&key(record))?))
    }

    fn write(&self, record: u64, own: &mut Own) -> Result<()> {
        fill(&mut own.value, &mut own.random);
        self.db.put(&mut own.batch, &key(record), &own.value, self.load.sync)
    }
}

/// Bytes of a key.
pub(super) const KEY_BYTES: u64 = 24;

/// The key of a record: the keys of neighbouring records lie far from each other.
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
        assert!(keys.iter().all(|key| key.len() as u64 == KEY_BYTES));
    }
}
