//! Safety rules that are broken on purpose, to prove that the explorer finds the loss.
//!
//! A rule can be broken with the cargo feature `broken-rules` only, which no release build has: without the feature
//! [`BrokenRules`] has no field.

use std::sync::Arc;

use array::OpenOptions;
use fs::MountOptions;
use kv::parallel_wal::ParallelWalOptions;
use zoned::{Bytes, Goal, Share, Stage, ZonedDevice};

/// A new stage, or the error of its device.
type StageResult = zoned::Result<Arc<dyn ZonedDevice>>;

/// The safety rule of each layer that is broken on purpose. Default: none.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct BrokenRules {
    /// The broken rule of the file system or of its logs.
    #[cfg(feature = "broken-rules")]
    pub fs: Option<fs::BrokenRule>,
    /// The broken rule of the array.
    #[cfg(feature = "broken-rules")]
    pub array: Option<array::BrokenRule>,
    /// The broken rule of the parallel WAL.
    #[cfg(feature = "broken-rules")]
    pub engine: Option<kv::parallel_wal::BrokenRule>,
    /// The broken rule of the modelled tables below a parallel WAL.
    #[cfg(feature = "broken-rules")]
    pub tables: Option<BrokenRule>,
    /// The broken rule of a stage before a drive.
    #[cfg(feature = "broken-rules")]
    pub stage: Option<zoned::StageBrokenRule>,
    /// The broken rule of the scheduler before a drive.
    #[cfg(feature = "broken-rules")]
    pub share: Option<zoned::ShareBrokenRule>,
    /// The broken rule of a log in a file.
    #[cfg(feature = "broken-rules")]
    pub prio: Option<prio::BrokenRule>,
    /// The broken rule of the groups' log, or of the groups' tables.
    #[cfg(feature = "broken-rules")]
    pub groups: Option<shard::BrokenRule>,
}

/// The safety rules of the modelled tables that a test can break.
#[cfg(feature = "broken-rules")]
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum BrokenRule {
    /// A flush chooses the families with entries before it waits for a stall, and skips families that were written during the
    /// stall.
    FlushChoice,
    /// A flush of all families that a drop of a family abandoned counts as done.
    AbandonedFlush,
    /// A table is ingested without turning the marks on.
    IngestionMarks,
}

impl BrokenRules {
    /// The device behind a scheduler with this goal, if any.
    pub(crate) fn behind_scheduler(
        self,
        device: Arc<dyn ZonedDevice>,
        goal: Option<Goal>,
    ) -> Arc<dyn ZonedDevice> {
        match goal {
            None => device,
            Some(goal) => self.scheduler(device, goal),
        }
    }
}

#[cfg(feature = "broken-rules")]
impl BrokenRules {
    /// Mount options with the file system's rule broken.
    pub(crate) fn mount_options_with_broken_rule(self, options: MountOptions) -> MountOptions {
        MountOptions { broken_rule: self.fs, ..options }
    }

    /// Options of an array's opening with the array's rule broken.
    pub(crate) fn array_options_with_broken_rule(self, options: OpenOptions) -> OpenOptions {
        OpenOptions { broken_rule: self.array, ..options }
    }

    /// Options of a parallel WAL with its rule broken.
    pub(crate) fn wal_options_with_broken_rule(self, options: ParallelWalOptions) -> ParallelWalOptions {
        ParallelWalOptions { broken_rule: self.engine, ..options }
    }

    /// A stage before `device`, with the stage's rule broken.
    pub(crate) fn stage(self, device: Arc<dyn ZonedDevice>, window: Bytes) -> StageResult {
        Stage::with_broken_rule(device, window, self.stage)
    }

    /// A scheduler before `device`, with the scheduler's rule broken.
    fn scheduler(self, device: Arc<dyn ZonedDevice>, goal: Goal) -> Arc<Share> {
        Share::with_broken_rule(device, goal, self.share)
    }

    /// Options of a log in a file, with the log's rule broken.
    pub(crate) fn log_options(self) -> prio::Options {
        prio::Options { broken_rule: self.prio, ..prio::Options::default() }
    }

    /// Options of the groups' log with its rule broken.
    pub(crate) fn groups_log_options(self) -> shard::GroupsLogOptions {
        shard::GroupsLogOptions { broken_rule: self.groups, ..shard::GroupsLogOptions::default() }
    }

    /// Options of the groups' tables with their rule broken.
    pub(crate) fn tables_options(self) -> shard::TablesOptions {
        shard::TablesOptions { broken_rule: self.groups, ..shard::TablesOptions::default() }
    }

    /// Whether the writer puts two writes of one key in order. The broken rule drops the writer's order where the parallel WAL
    /// takes no key locks.
    pub(crate) fn keeps_key_order(self) -> bool {
        self.engine != Some(kv::parallel_wal::BrokenRule::KeyLocks)
    }

    /// Whether a flush of modelled tables chooses families before it waits for a stall.
    pub(crate) fn chooses_families_before_stall(self) -> bool {
        self.tables == Some(BrokenRule::FlushChoice)
    }

    /// Whether modelled tables count a flush as done that a drop of a family abandoned.
    pub(crate) fn takes_abandoned_flush_for_done(self) -> bool {
        self.tables == Some(BrokenRule::AbandonedFlush)
    }

    /// Whether the marks are turned on before modelled tables ingest a table.
    pub(crate) fn marks_before_ingestion(self) -> bool {
        self.tables != Some(BrokenRule::IngestionMarks)
    }
}

#[cfg(not(feature = "broken-rules"))]
impl BrokenRules {
    pub(crate) fn mount_options_with_broken_rule(self, options: MountOptions) -> MountOptions {
        options
    }

    pub(crate) fn array_options_with_broken_rule(self, options: OpenOptions) -> OpenOptions {
        options
    }

    pub(crate) fn wal_options_with_broken_rule(self, options: ParallelWalOptions) -> ParallelWalOptions {
        options
    }

    pub(crate) fn stage(self, device: Arc<dyn ZonedDevice>, window: Bytes) -> StageResult {
        Stage::over(device, window)
    }

    fn scheduler(self, device: Arc<dyn ZonedDevice>, goal: Goal) -> Arc<Share> {
        Share::over(device, goal)
    }

    pub(crate) fn log_options(self) -> prio::Options {
        prio::Options::default()
    }

    pub(crate) fn groups_log_options(self) -> shard::GroupsLogOptions {
        shard::GroupsLogOptions::default()
    }

    pub(crate) fn tables_options(self) -> shard::TablesOptions {
        shard::TablesOptions::default()
    }

    pub(crate) fn keeps_key_order(self) -> bool {
        true
    }

    pub(crate) fn chooses_families_before_stall(self) -> bool {
        false
    }

    pub(crate) fn takes_abandoned_flush_for_done(self) -> bool {
        false
    }

    pub(crate) fn marks_before_ingestion(self) -> bool {
        true
    }
}
