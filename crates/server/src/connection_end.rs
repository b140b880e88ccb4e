//! The end of a client's connection.

use std::io::Error as IoError;

/// Why a client's connection ended.
#[derive(Debug)]
pub(crate) enum ConnectionEnd {
    /// The client closed the connection or asked the server to, or the server shuts down.
    Plain,
    /// The connection ended for this reason, which is logged.
    Logged(String),
    /// The socket failed.
    Socket(IoError),
}

impl From<IoError> for ConnectionEnd {
    fn from(error: IoError) -> ConnectionEnd {
        ConnectionEnd::Socket(error)
    }
}
