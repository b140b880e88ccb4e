//! Statistics of the RocksDB logs that opening a database replayed.

use std::sync::Arc;
use std::time::Duration;

use fs::wal::ReadStats;
use parking_lot::Mutex;

/// The largest number of logs whose statistics are kept.
const REPLAYS_KEPT: usize = 1024;

/// The statistics of one replayed RocksDB log.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct LogReplay {
    /// Time from opening the log until RocksDB closed it, with its last record in the memtable.
    pub took: Duration,
    /// Counts and bytes of the log's reads. On the host's own file system only the bytes are known.
    pub stats: ReadStats,
}

/// The statistics of all replayed logs, shared by the readers of the log files.
#[derive(Clone, Debug, Default)]
pub(crate) struct Replays(Arc<Mutex<Vec<LogReplay>>>);

impl Replays {
    pub(crate) fn add(&self, replay: LogReplay) {
        let mut all = self.0.lock();
        if all.len() < REPLAYS_KEPT {
            all.push(replay);
        }
    }

    #[cfg(feature = "shim")]
    pub(crate) fn all(&self) -> Vec<LogReplay> {
        self.0.lock().clone()
    }
}
