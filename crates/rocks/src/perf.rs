//! The time that a thread's writes spend in each part of RocksDB, from RocksDB's own counters.

use std::time::Duration;

use crate::ffi::{self, WriteNanos};

/// Time that the calling thread's writes spent in RocksDB, by part. The remaining time was spent in the caller.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct WriteTimes {
    /// Time waiting to become the leader of a write group, or for the leader to write this thread's batch.
    pub wait: Duration,
    /// Time as the leader of a write group: appending to RocksDB's log and syncing it.
    pub log: Duration,
    /// Time inserting into the memtable.
    pub memtable: Duration,
    /// Time in write stalls: delays and stops.
    pub delay: Duration,
    /// Time switching to another memtable and another log, and scheduling flushes.
    pub schedule: Duration,
    /// Time in the rest of the write path.
    pub rest: Duration,
}

/// Turns RocksDB's write timers of the calling thread on or off.
pub fn time_writes(on: bool) {
    // SAFETY: rocks_time_writes only accesses thread-local memory of RocksDB.
    unsafe { ffi::rocks_time_writes(u8::from(on)) }
}

/// Returns the times of the calling thread's writes since the last call, and resets them.
pub fn take_write_times() -> WriteTimes {
    let mut nanos = WriteNanos::default();
    // SAFETY: rocks_take_write_times only accesses thread-local memory of RocksDB, and writes to `nanos`.
    unsafe { ffi::rocks_take_write_times(&raw mut nanos) };
    let WriteNanos { wait, log, memtable, delay, schedule, rest } = nanos;
    let [wait, log, memtable, delay, schedule, rest] =
        [wait, log, memtable, delay, schedule, rest].map(Duration::from_nanos);
    WriteTimes { wait, log, memtable, delay, schedule, rest }
}
