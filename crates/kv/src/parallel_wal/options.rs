//! How the engine is set up, and how a batch is written.

use super::tables::Sequence;

/// How the engine works.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ParallelWalOptions {
    /// Bytes of batches in the log, counted in whole blocks, from which on a flush is asked for. Default: 1 GiB.
    pub log_limit: u64,
    /// What a record takes at least, and is rounded up to. Default: 4096.
    pub log_block: u64,
    /// A step of the protocol left out, for tests that must notice. Default: nothing.
    #[doc(hidden)]
    pub without: Without,
}

/// The steps that a test can leave out.
#[doc(hidden)]
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Without {
    /// Nothing is left out.
    #[default]
    Nothing,
    /// Writes of one key go beside each other.
    Stripes,
    /// A batch that the tables refused stays in the log.
    Void,
    /// A flush begins with the log unsynced.
    SyncAtFlush,
    /// Merges are repeated like puts.
    Marks,
    /// Only batches that need it have a mark.
    MarksOfOthers,
    /// A flush of one family counts as one of all.
    OtherFamilies,
}

impl Default for ParallelWalOptions {
    fn default() -> ParallelWalOptions {
        ParallelWalOptions { log_limit: 1 << 30, log_block: 4096, without: Without::Nothing }
    }
}

/// How a batch is to be written.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct How {
    /// Durable on return.
    pub synced: bool,
    /// Through the log. Without it the batch may be lost until it is flushed.
    pub logged: bool,
    /// Records of families that do not exist are left out, and are no error.
    pub ignore_missing: bool,
}

impl How {
    /// Logged and durable on return.
    pub const SYNCED: How = How { synced: true, logged: true, ignore_missing: false };
    /// Logged, durable later.
    pub const UNSYNCED: How = How { synced: false, logged: true, ignore_missing: false };
}

/// What came of applying a batch.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Applied {
    /// The sequence of the batch's last record, the mark not counted.
    pub last: Sequence,
}

/// What the log holds that is not in tables.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct HeldRecords {
    /// Records.
    pub records: u64,
    /// Bytes, in whole blocks.
    pub bytes: u64,
    /// How often a flush was asked for because these were too many.
    pub flushes_asked: u64,
}

/// What the engine must know of a column family.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct FamilyInfo {
    /// It has a merge operator.
    pub merges: bool,
    /// Its comparator may call different bytes equal: all its keys share one stripe.
    pub one_stripe: bool,
}
