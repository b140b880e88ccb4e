//! Statistics of the logs that opening a database replayed.

use std::sync::Arc;
use std::time::Duration;

use fs::wal::ReadStats;
use parking_lot::Mutex;

/// The largest number of logs whose statistics are kept.
const REPLAYS_KEPT: usize = 1024;

/// The statistics of one replayed log.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct LogReplay {
    /// Time from opening the log until the engine closed it, with its last record in the memtable.
    pub took: Duration,
    /// Counts and bytes of the log's reads. On the host's own file system only the bytes are known.
    pub stats: ReadStats,
}

/// The statistics of all replayed logs, shared by the readers of the log files.
#[derive(Clone, Debug, Default)]
pub struct Replays(Arc<Mutex<Vec<LogReplay>>>);

impl Replays {
    /// Adds the statistics of one log, unless very many are kept already.
    pub fn add(&self, replay: LogReplay) {
        let mut all = self.0.lock();
        if all.len() < REPLAYS_KEPT {
            all.push(replay);
        }
    }

    /// The statistics so far, in the order in which the logs were closed.
    pub fn all(&self) -> Vec<LogReplay> {
        self.0.lock().clone()
    }
}
