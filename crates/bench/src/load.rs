//! Parts that loads on databases share: threads with counts by kind of operation, values, scans.

use std::future::Future;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use serde::Serialize;
use units::{Driver, SplitMix64, spawn};

use crate::{Latencies, Recorder, Result};

/// Records of the longest scan, where the load sets none; every length from 1 on is as likely.
pub(crate) const LONGEST_SCAN: u64 = 100;

/// Count and latencies of the operations of one kind.
#[derive(Clone, Debug, Serialize)]
pub struct KindOutcome {
    /// The name of the kind of operation.
    pub operation: &'static str,
    /// Number of operations.
    pub count: u64,
    /// Latencies of the operations.
    pub latency_us: Latencies,
}

/// Latencies by kind of operation: kinds are numbered as the load lists their names.
pub(crate) struct Kinds {
    names: Vec<&'static str>,
    recorders: Vec<Recorder>,
    /// Number of records that reads did not find.
    pub(crate) missing: u64,
}

impl Kinds {
    pub(crate) fn new(names: impl Iterator<Item = &'static str>) -> Kinds {
        let names: Vec<_> = names.collect();
        Kinds { recorders: names.iter().map(|_| Recorder::new()).collect(), names, missing: 0 }
    }

    pub(crate) fn record(&mut self, name: &'static str, latency: Duration) {
        let of_kind = self.names.iter().zip(&mut self.recorders).find(|(kind, _)| **kind == name);
        let (_, recorder) = of_kind.expect("every operation is one of all");
        recorder.record(latency);
    }

    pub(crate) fn add(&mut self, other: &Kinds) {
        self.recorders.iter_mut().zip(&other.recorders).for_each(|(own, other)| own.add(other));
        self.missing += other.missing;
    }

    /// The latencies of operations of all kinds together.
    pub(crate) fn overall(&self) -> Recorder {
        let mut all = Recorder::new();
        self.recorders.iter().for_each(|kind| all.add(kind));
        all
    }

    /// The latencies of each kind that occurred.
    pub(crate) fn each(&self, dilation: u32) -> Vec<KindOutcome> {
        let all = self.names.iter().zip(&self.recorders).filter(|(_, recorder)| recorder.count() > 0);
        all.map(|(operation, recorder)| KindOutcome {
            operation,
            count: recorder.count(),
            latency_us: recorder.summary(dilation),
        })
        .collect()
    }
}

/// Runs `threads` threads to their end; returns each thread's result, or the first error. A thread that fails sets
/// `failed`, which stops the other threads.
pub(crate) async fn run_threads<T: Send + 'static, F: Future<Output = Result<T>> + Send + 'static>(
    driver: &dyn Driver,
    name: &'static str,
    threads: u32,
    failed: &Arc<AtomicBool>,
    thread: impl Fn(u32) -> F,
) -> Result<Vec<T>> {
    let begin = |number| {
        let (thread, failed) = (thread(number), Arc::clone(failed));
        spawn(driver, name, async move {
            let result = thread.await;
            failed.fetch_or(result.is_err(), Ordering::Relaxed);
            result
        })
    };
    let threads: Vec<_> = (0..threads).map(begin).collect();
    let mut results = Vec::with_capacity(threads.len());
    for thread in threads {
        results.push(thread.await);
    }
    results.into_iter().collect()
}

/// Fills a value with random bytes, which do not compress.
pub(crate) fn fill(value: &mut [u8], random: &mut SplitMix64) {
    for word in value.chunks_mut(size_of::<u64>()) {
        let bytes = random.draw().to_le_bytes();
        word.iter_mut().zip(bytes).for_each(|(to, from)| *to = from);
    }
}

/// A position in a database, in the order of keys.
pub(crate) trait Cursor {
    fn valid(&self) -> bool;
    /// The key of the cursor's entry; empty if the cursor is not valid.
    fn key(&self) -> &[u8];
    /// The value of the cursor's entry; empty if the cursor is not valid.
    fn value(&self) -> &[u8];
    fn next(&mut self);
    /// The first error that the cursor met.
    fn status(&self) -> Result<()>;
}

macro_rules! engine_cursor {
    ($cursor:ty) => {
        impl Cursor for $cursor {
            fn valid(&self) -> bool {
                <$cursor>::valid(self)
            }

            fn key(&self) -> &[u8] {
                <$cursor>::key(self)
            }

            fn value(&self) -> &[u8] {
                <$cursor>::value(self)
            }

            fn next(&mut self) {
                <$cursor>::next(self);
            }

            fn status(&self) -> Result<()> {
                Ok(<$cursor>::status(self)?)
            }
        }
    };
}

engine_cursor!(rocks::Cursor);
engine_cursor!(level::Cursor<'_>);

/// Scans up to `length` records with `cursor`, which was made at the key `from`. Returns 1 if the record `from` is missing, else 0.
pub(crate) fn scan(mut cursor: impl Cursor, from: &[u8], length: u64) -> Result<u64> {
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
