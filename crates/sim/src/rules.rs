//! Rules that are broken on purpose, to prove that the explorer notices.
//!
//! A rule can be broken with the cargo feature `broken-rules` only, which no release build has: without the feature
//! [`BrokenRules`] has no field.

use array::OpenOptions;
use fs::MountOptions;
use kv::parallel_wal::ParallelWalOptions;

/// The rule of each layer that is broken. Default: none.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct BrokenRules {
    /// A rule of the file system or of its logs.
    #[cfg(feature = "broken-rules")]
    pub fs: Option<fs::BrokenRule>,
    /// A rule of the array.
    #[cfg(feature = "broken-rules")]
    pub array: Option<array::BrokenRule>,
    /// A rule of the parallel WAL.
    #[cfg(feature = "broken-rules")]
    pub engine: Option<kv::parallel_wal::BrokenRule>,
}

#[cfg(feature = "broken-rules")]
impl BrokenRules {
    /// `options` of a mount, with the file system's rule broken.
    pub(crate) fn of_mount(self, options: MountOptions) -> MountOptions {
        MountOptions { broken_rule: self.fs, ..options }
    }

    /// `options` of an opening, with the array's rule broken.
    pub(crate) fn of_array(self, options: OpenOptions) -> OpenOptions {
        OpenOptions { broken_rule: self.array, ..options }
    }

    /// `options` of a parallel WAL, with its rule broken.
    pub(crate) fn of_parallel_wal(self, options: ParallelWalOptions) -> ParallelWalOptions {
        ParallelWalOptions { broken_rule: self.engine, ..options }
    }

    /// Whether two writes of one key are put in order. Where the writer keeps the order, the parallel WAL has no lock to leave out.
    pub(crate) fn keeps_key_order(self) -> bool {
        self.engine != Some(kv::parallel_wal::BrokenRule::KeyLocks)
    }
}

#[cfg(not(feature = "broken-rules"))]
impl BrokenRules {
    pub(crate) fn of_mount(self, options: MountOptions) -> MountOptions {
        options
    }

    pub(crate) fn of_array(self, options: OpenOptions) -> OpenOptions {
        options
    }

    pub(crate) fn of_parallel_wal(self, options: ParallelWalOptions) -> ParallelWalOptions {
        options
    }

    pub(crate) fn keeps_key_order(self) -> bool {
        true
    }
}
