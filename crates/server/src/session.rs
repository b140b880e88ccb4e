//! What a connection remembers from one command to the next.

use std::sync::Arc;

/// The state of a connection. A pipeline works on a copy, so that running it again starts anew.
#[derive(Clone, Debug)]
pub(crate) struct Session {
    /// The client's number.
    pub id: u64,
    /// What CLIENT SETNAME said.
    pub name: Arc<str>,
    /// RESP3 rather than RESP2.
    pub resp3: bool,
    /// The password was given, or none is asked.
    pub trusted: bool,
    /// No more commands are run.
    pub ending: Ending,
}

/// How a connection ends after its replies are sent.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Ending {
    /// It goes on.
    None,
    /// It is closed.
    Close,
    /// The server stops.
    Shutdown,
}
