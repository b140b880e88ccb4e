//! Settings of the parallel WAL and of a write.

use super::tables::Sequence;

/// Settings of a [`ParallelWal`](super::ParallelWal).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ParallelWalOptions {
    /// Bytes of batches in the parallel log, in whole blocks, above which memtables are flushed. Default: 1 GiB.
    pub log_limit: u64,
    /// Block size of the parallel log in bytes: a record's size is rounded up to it. Default: 4096.
    pub log_block: u64,
    /// A rule of the protocol to break, for a test that must notice it. Default: none.
    #[cfg(feature = "broken-rules")]
    pub broken_rule: Option<BrokenRule>,
}

/// The rules of the parallel WAL's protocol that a test can break.
#[cfg(feature = "broken-rules")]
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum BrokenRule {
    /// Writes of one key take no stripe locks, so that they overtake each other.
    KeyLocks,
    /// A batch that the tables refused stays in the log without a void entry.
    Void,
    /// A flush begins without a sync of the log.
    SyncAtFlush,
    /// Merges are replayed like puts, without marks.
    Marks,
    /// Only batches with merges or single deletes have a mark.
    MarksOfPuts,
    /// A flush of one family counts as a flush of all families.
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
    /// The write is durable on return.
    pub synced: bool,
    /// The batch goes through the log. An unlogged batch may be lost until its memtables are flushed.
    pub logged: bool,
    /// Records of families that do not exist are left out instead of refused.
    pub ignore_missing: bool,
    /// Number of callers whose writes are in the batch. A log with [`WalMode::Auto`](super::WalMode::Auto) uses the
    /// number to decide whether records share an append.
    pub writers: usize,
}

impl WriteOptions {
    /// A write for one caller, logged and durable on return.
    pub const SYNCED: WriteOptions =
        WriteOptions { synced: true, logged: true, ignore_missing: false, writers: 1 };
    /// A write for one caller, logged and durable later.
    pub const UNSYNCED: WriteOptions = WriteOptions { synced: false, ..WriteOptions::SYNCED };
}

/// The result of applying a batch to the tables.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Applied {
    /// The sequence of the batch's last record, without the mark.
    pub last: Sequence,
}

/// The batches of the parallel log that are not in tables.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct HeldRecords {
    /// Number of batches that are not in tables.
    pub records: u64,
    /// Bytes of those batches in the log, in whole blocks.
    pub bytes: u64,
    /// Flushes that the parallel WAL requested because the log exceeded its limit.
    pub flushes_asked: u64,
}

/// True if a test breaks a [`BrokenRule`]: always false without the feature `broken-rules`.
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
