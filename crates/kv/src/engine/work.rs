//! The unit that clients hand to the engine.

use super::claims::Claims;
use crate::txn::Txn;

/// One pipeline of one client: commands that run in order, and whose writes become durable together.
pub trait Work: Send {
    /// Names the keys that the commands read or write. Asked once, before the first run. Other clients may write to any other
    /// key that the commands touch.
    fn claims(&self, claims: &mut Claims);

    /// Runs the commands and keeps the replies. Called again when the write of the group failed, with nothing of the first
    /// run in effect: each call starts from the same state.
    fn run(&mut self, txn: &mut Txn<'_>);

    /// The writes have the promised durability: the replies may be sent.
    fn done(self: Box<Self>);
}
