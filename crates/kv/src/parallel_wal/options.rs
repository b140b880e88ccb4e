//! Settings of the parallel WAL and of a write.

use super::tables::Sequence;

/// Settings of a [`ParallelWal`](super::ParallelWal).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ParallelWalOptions {
    /// Bytes of batches in the log, in whole blocks, above which memtables are flushed. Default: 1 GiB.
    pub log_limit: u64,
    /// Bytes that the size of a record is rounded up to. Default: 4096.
    pub log_block: u64,
    /// A rule of the protocol that is broken on purpose, for tests that must notice. Default: none.
    #[cfg(feature = "broken-rules")]
    pub broken_rule: Option<BrokenRule>,
}

/// The rules of the protocol that a test can break.
#[cfg(feature = "broken-rules")]
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum BrokenRule {
    /// Writes of one key take no locks, so that they overtake each other.
    KeyLocks,
    /// A batch that the tables refused stays in the log.
    Void,
    /// A flush begins with the log unsynced.
    SyncAtFlush,
    /// Merges are replayed like puts, without marks.
    Marks,
    /// Only batches with merges or single deletes have a mark.
    MarksOfPuts,
    /// A flush of one family counts as a flush of all.
    OtherFamilies,
}

impl Default for ParallelWalOptions {
    fn default() -> ParallelWalOptions {
        ParallelWalOptions {
            log_limit: 1 << 30,
            log_block: 4096,
            #[cfg(feature = "broken-rules")]
            broken_rule: None,
        }
    }
}

/// How a batch is written.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct WriteOptions {
    /// Durable on return.
    pub synced: bool,
    /// Through the log. An unlogged batch may be lost until its memtables are flushed.
    pub logged: bool,
    /// Records of families that do not exist are left out instead of refused.
    pub ignore_missing: bool,
    /// How many callers' writes the batch joins. A log with [`WalMode::Auto`](super::WalMode::Auto) weighs it when it decides
    /// whether records share an append.
    pub writers: usize,
}

impl WriteOptions {
    /// Logged and durable on return, for one caller.
    pub const SYNCED: WriteOptions =
        WriteOptions { synced: true, logged: true, ignore_missing: false, writers: 1 };
    /// Logged, durable later, for one caller.
    pub const UNSYNCED: WriteOptions = WriteOptions { synced: false, ..WriteOptions::SYNCED };
}

/// An applied batch.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Applied {
    /// The sequence of the batch's last record, the mark not counted.
    pub last: Sequence,
}

/// The records of the log that are not in tables.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct HeldRecords {
    /// Records.
    pub records: u64,
    /// Bytes, in whole blocks.
    pub bytes: u64,
    /// Flushes asked for because the log held too much.
    pub flushes_asked: u64,
}

/// Whether a test breaks a [`BrokenRule`]: always false without the feature `broken-rules`.
macro_rules! breaks {
    ($options:expr, $rule:ident) => {{
        #[cfg(feature = "broken-rules")]
        let broken = $options.broken_rule == Some($crate::parallel_wal::BrokenRule::$rule);
        #[cfg(not(feature = "broken-rules"))]
        let broken = false;
        broken
    }};
}
pub(super) use breaks;
