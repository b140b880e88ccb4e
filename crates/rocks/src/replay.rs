//! What the opening of a database read from its logs.

use std::sync::Arc;
use std::time::Duration;

use fs::wal::ReadStats;
use parking_lot::Mutex;

/// Logs that are remembered.
const MOST: usize = 1024;

/// A log that was read from its beginning.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct LogReplay {
    /// From opening the log until RocksDB let go of it: its last record is in the memtable then.
    pub took: Duration,
    /// Where the time went. On the host's own file system only the bytes are known.
    pub stats: ReadStats,
}

/// The logs that were read, shared by those who read them.
#[derive(Clone, Debug, Default)]
pub(crate) struct Replays(Arc<Mutex<Vec<LogReplay>>>);

impl Replays {
    pub(crate) fn add(&self, replay: LogReplay) {
        let mut all = self.0.lock();
        if all.len() < MOST {
            all.push(replay);
        }
    }

    #[cfg(feature = "shim")]
    pub(crate) fn all(&self) -> Vec<LogReplay> {
        self.0.lock().clone()
    }
}
