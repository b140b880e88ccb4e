//! The state of a client's connection between two commands.

use std::sync::Arc;

use kv::Watch;

/// The state of a client's connection. Each turn of a pipeline works on a copy, so that a second run starts from the
/// same state.
#[derive(Clone, Debug)]
pub(crate) struct Session {
    /// The client's number.
    pub id: u64,
    /// The name that CLIENT SETNAME set, or an empty one.
    pub name: Arc<str>,
    /// The library's name and version that CLIENT SETINFO set.
    pub library: (Arc<str>, Arc<str>),
    /// Whether replies are in RESP3 rather than RESP2.
    pub resp3: bool,
    /// Whether the client gave the password, or the server has none.
    pub authenticated: bool,
    /// Whether the client sent CLIENT NO-EVICT ON.
    pub no_evict: bool,
    /// Whether the client sent CLIENT NO-TOUCH ON.
    pub no_touch: bool,
    /// Whether the client sent READONLY, and takes reads of a cluster's backups.
    pub read_only: bool,
    /// The open transaction, between MULTI and EXEC.
    pub transaction: Option<Transaction>,
    /// The watched keys, which must not change until EXEC.
    pub watches: Vec<Watch>,
    /// How the connection ends after this command.
    pub ending: ConnectionEnding,
}

/// An open transaction. Its commands are a range of the pipeline's queue.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Transaction {
    /// Index of the first queued command.
    pub start: usize,
    /// Index after the last queued command.
    pub end: usize,
    /// Whether a command could not be queued, so that EXEC discards the transaction.
    pub aborted: bool,
}

/// How a connection ends after its replies are sent.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum ConnectionEnding {
    /// The connection stays open.
    None,
    /// The connection is closed.
    Close,
    /// The whole server shuts down.
    Shutdown,
}

impl Session {
    /// A new connection's state.
    pub fn new(id: u64, authenticated: bool) -> Session {
        Session {
            id,
            name: "".into(),
            library: ("".into(), "".into()),
            resp3: false,
            authenticated,
            no_evict: false,
            no_touch: false,
            read_only: false,
            transaction: None,
            watches: Vec::new(),
            ending: ConnectionEnding::None,
        }
    }
}
