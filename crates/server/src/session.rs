//! The state of a connection between two commands.

use std::sync::Arc;

use kv::Watch;

/// A connection's state. Each turn of a pipeline works on a copy, so that a second run starts from the same state.
#[derive(Clone, Debug)]
pub(crate) struct Session {
    /// The client's number.
    pub id: u64,
    /// The name that CLIENT SETNAME gave, or nothing.
    pub name: Arc<str>,
    /// The library's name and version that CLIENT SETINFO gave.
    pub library: (Arc<str>, Arc<str>),
    /// RESP3 rather than RESP2.
    pub resp3: bool,
    /// The client gave the password, or the server has none.
    pub authenticated: bool,
    /// CLIENT NO-EVICT ON.
    pub no_evict: bool,
    /// CLIENT NO-TOUCH ON.
    pub no_touch: bool,
    /// The transaction between MULTI and EXEC.
    pub transaction: Option<Transaction>,
    /// The keys that must not change until EXEC.
    pub watches: Vec<Watch>,
    /// How the connection ends after this command.
    pub ending: Ending,
}

/// An open transaction. Its commands are a range of the pipeline's queue.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Transaction {
    /// The first queued command.
    pub start: usize,
    /// One past the last queued command.
    pub end: usize,
    /// A command could not be queued: EXEC discards the transaction.
    pub aborted: bool,
}

/// How a connection ends after its replies are sent.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Ending {
    /// It stays open.
    None,
    /// It is closed.
    Close,
    /// The server shuts down.
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
            transaction: None,
            watches: Vec::new(),
            ending: Ending::None,
        }
    }
}
