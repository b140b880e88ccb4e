//! Where a thread's writes spend their time, from RocksDB's own counters.

use std::time::Duration;

use crate::ffi::{self, WriteNanos};

/// Parts of the calling thread's writes. Time in none of these parts is the caller's.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct WriteTimes {
    /// Waiting to become the leader of a write group, or for the leader to write this thread's batch.
    pub wait: Duration,
    /// As the leader: appending to RocksDB's log and syncing it.
    pub log: Duration,
    /// Inserting into the memtable.
    pub memtable: Duration,
    /// Write stalls: delays and stops.
    pub delay: Duration,
    /// Switching to another memtable and another log, and scheduling flushes.
    pub schedule: Duration,
    /// The rest of the write path.
    pub rest: Duration,
}

/// Turns the counters of the calling thread on or off.
pub fn time_writes(on: bool) {
    // SAFETY: the call only accesses thread-local memory of RocksDB.
    unsafe { ffi::rocks_time_writes(u8::from(on)) }
}

/// Returns the times of the calling thread's writes since the last call, and resets them.
pub fn take_write_times() -> WriteTimes {
    let mut nanos = WriteNanos::default();
    // SAFETY: the call only accesses thread-local memory of RocksDB, and writes to `nanos`.
    unsafe { ffi::rocks_take_write_times(&raw mut nanos) };
    let WriteNanos { wait, log, memtable, delay, schedule, rest } = nanos;
    let [wait, log, memtable, delay, schedule, rest] =
        [wait, log, memtable, delay, schedule, rest].map(Duration::from_nanos);
    WriteTimes { wait, log, memtable, delay, schedule, rest }
}
