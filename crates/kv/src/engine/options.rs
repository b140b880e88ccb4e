//! Settings of the engine.

use crate::txn::Limits;

/// What an acknowledgement of a write promises.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Durability {
    /// A write is durable before it is acknowledged.
    #[default]
    Sync,
    /// A write is in memory when it is acknowledged; a sync once a second makes all earlier writes durable.
    Async,
}

/// Settings of an [`Engine`](super::Engine).
#[derive(Clone, Copy, Debug, Default)]
pub struct EngineOptions {
    /// What an acknowledgement of a write promises.
    pub durability: Durability,
    /// Bounds on the lengths of keys and values.
    pub limits: Limits,
    /// Number of writer threads, if the store takes batches side by side. Default: half the processors,
    /// within 1 and 4; each writer has many batches in flight.
    pub writers: Option<usize>,
}

impl EngineOptions {
    /// Number of writer threads for a store that takes batches side by side.
    pub(super) fn parallel_writers(&self) -> usize {
        let half = || (std::thread::available_parallelism().map_or(1, usize::from) / 2).clamp(1, 4);
        self.writers.unwrap_or_else(half).max(1)
    }
}
