//! The unit of work that clients hand to the engine.

use super::claims::Claims;
use crate::txn::Txn;

/// One pipeline of one client: commands that run in order and whose writes become durable together.
pub trait Work: Send {
    /// Adds the keys that the pipeline's commands read or write to `claims`. Called once, before the first
    /// run. A command sees concurrent writes of other clients to keys that are not claimed.
    fn claims(&self, claims: &mut Claims);

    /// Runs the pipeline's commands and keeps the replies. Called again if the write of the group failed;
    /// nothing of the first run is in effect then, and each call starts from the same state.
    fn run(&mut self, txn: &mut Txn<'_>);

    /// Called when the pipeline's writes have the promised durability: the replies may be sent.
    fn writes_are_durable(self: Box<Self>);

    /// Called instead where the store is replicated and does not lead: the pipeline has no effect, and its replies do not count.
    fn not_leader(self: Box<Self>) {}
}
