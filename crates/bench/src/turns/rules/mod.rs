//! The rules by which servers write their snapshots.

mod leased;
mod patch;
mod random;

use std::sync::Arc;

use units::SplitMix64;

use self::leased::Leased;
use self::patch::Patch;
use self::random::Random;
use super::cluster::Cluster;
use super::load::{Policy, TurnsLoad};
use crate::Result;

/// The rule of a run.
pub(super) enum Rule {
    None,
    Random(Random),
    Patch(Arc<Patch>),
    Turns(Arc<Leased>),
}

/// A rate that no drive has.
const AT_ONCE: u64 = u64::MAX;

impl Rule {
    /// The rule of a load.
    ///
    /// # Errors
    /// Settings of `turns` that cannot work.
    pub(super) fn of(load: &TurnsLoad, random: &mut SplitMix64) -> Result<Rule> {
        Ok(match load.policy {
            Policy::None => Rule::None,
            Policy::Random => Rule::Random(Random::new(load, random)),
            Policy::Patch => Rule::Patch(Arc::new(Patch::new(load))),
            Policy::Turns => Rule::Turns(Arc::new(Leased::new(load)?)),
        })
    }

    /// Starts what the leader does for the rule.
    pub(super) fn start(&self, cluster: &Arc<Cluster>) {
        let task: units::BoxFuture = match self {
            Rule::None | Rule::Random(_) => return,
            Rule::Patch(patch) => Box::pin(Arc::clone(patch).lead(Arc::clone(cluster))),
            Rule::Turns(turns) => Box::pin(Arc::clone(turns).lead(Arc::clone(cluster))),
        };
        cluster.driver.spawn("leader of snapshots", task);
    }

    /// The bytes a second at which server `at` may write its snapshot now; `None`: not at all.
    pub(super) fn rate(&self, cluster: &Cluster, at: usize) -> Option<u64> {
        match self {
            Rule::None => None,
            Rule::Random(random) => random.may_write(cluster, at).then_some(AT_ONCE),
            Rule::Patch(patch) => patch.may_write(at).then_some(AT_ONCE),
            Rule::Turns(turns) => turns.rate(cluster, at),
        }
    }

    /// The snapshot of server `at` is durable.
    pub(super) fn durable(&self, at: usize) {
        match self {
            Rule::None => {}
            Rule::Random(random) => random.durable(at),
            Rule::Patch(patch) => patch.durable(at),
            Rule::Turns(turns) => turns.durable(at),
        }
    }

    /// Server `at` may not write, and has nothing of its snapshot in flight.
    pub(super) fn nothing_in_flight(&self, at: usize) {
        if let Rule::Turns(turns) = self {
            turns.nothing_in_flight(at);
        }
    }

    /// Snapshots that servers took at their limit, without a turn.
    pub(super) fn forced(&self) -> u64 {
        match self {
            Rule::Turns(turns) => turns.forced(),
            _ => 0,
        }
    }
}
