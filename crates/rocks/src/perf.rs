//! Where a thread's writes spend their time, as RocksDB itself counts.

use std::time::Duration;

use crate::ffi::{self, WriteNanos};

/// Parts of the calling thread's writes. What is in none of them is the caller's.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct WriteTimes {
    /// Until it led its group, or its group was done: the election, and what others wrote meanwhile.
    pub wait: Duration,
    /// Appending to RocksDB's log and syncing it, as the leader.
    pub log: Duration,
    /// Inserting into the memtable.
    pub memtable: Duration,
    /// Write stalls: delays and stops.
    pub delay: Duration,
    /// Taking another memtable and another log into use, and having flushes begun.
    pub schedule: Duration,
    /// Everything around these.
    pub rest: Duration,
}

/// Turns the count on, or off, for the calling thread.
pub fn time_writes(on: bool) {
    // SAFETY: it touches the thread's own memory in RocksDB.
    unsafe { ffi::rocks_time_writes(u8::from(on)) }
}

/// What the calling thread's writes took since the last call.
pub fn take_write_times() -> WriteTimes {
    let mut nanos = WriteNanos::default();
    // SAFETY: as above, and `nanos` is written to.
    unsafe { ffi::rocks_take_write_times(&raw mut nanos) };
    let WriteNanos { wait, log, memtable, delay, schedule, rest } = nanos;
    let [wait, log, memtable, delay, schedule, rest] =
        [wait, log, memtable, delay, schedule, rest].map(Duration::from_nanos);
    WriteTimes { wait, log, memtable, delay, schedule, rest }
}
