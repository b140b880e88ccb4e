//! The pieces of work on a group's tables that wait.

use replica::{Command, Index, ReplicaId, Term};

use futures_channel::oneshot::Sender;

/// A piece of work on the tables.
pub(super) enum TableWork {
    /// Put committed entries into the tables.
    Apply(Vec<(Index, Term, Option<Command>)>),
    /// Values of entries up to an index are needed no more.
    DropValues(Index),
    /// Get the tables of another replica.
    Install { index: Index, sources: Vec<ReplicaId>, values_above: Index },
    /// Say that everything before is done.
    Reached(Sender<()>),
    /// Make the tables durable, so that the log may go.
    Flush,
}
