//! Errors of asking an AdminServer.

/// An AdminServer gave no usable answer.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum AskError {
    /// Nobody listens at the address: no request was sent.
    #[error(
        "nobody listens there ({0}): is the server up, is admin.enableServer not false, and is Jetty among the server's jars?"
    )]
    NotListening(String),
    /// No connection: no request was sent. The server may be running.
    #[error("no connection: {0}")]
    NotConnected(String),
    /// The request was sent, or may have been, and no whole answer came.
    #[error("no answer to '{command}': {why}")]
    Unanswered {
        /// The command.
        command: &'static str,
        /// The cause.
        why: String,
    },
    /// The server behind the AdminServer serves no clients.
    #[error("the server serves no clients at the moment")]
    Starting,
    /// The credentials are missing or of no known user.
    #[error("the credentials are refused (401): AdminServer wants digest USER:PASSWORD")]
    NotAuthenticated,
    /// The credentials' user may not take snapshots.
    #[error(
        "the credentials' user lacks the permissions (403): the ACL of / must give it all of them, or it must be the super user"
    )]
    NotAuthorized,
    /// The server took a snapshot a moment ago.
    #[error("too many snapshots (429): the server takes one within admin.rateLimiterIntervalInMS")]
    RateLimited,
    /// The server refuses the command.
    #[error("the server refuses '{command}': {why}")]
    Refused {
        /// The command.
        command: &'static str,
        /// The server's words.
        why: String,
    },
    /// The server tried the command and failed.
    #[error("'{command}' failed in the server ({status}): its log says why")]
    Failed {
        /// The command.
        command: &'static str,
        /// The HTTP status.
        status: u16,
    },
    /// The answer is not one of an AdminServer.
    #[error(
        "the answer to '{command}' is no JSON object: no AdminServer at this address, or one that wants HTTPS"
    )]
    NoAdminServer {
        /// The command.
        command: &'static str,
    },
    /// A field is missing or has another form.
    #[error("the answer to '{command}' has no usable field '{field}': is this ZooKeeper 3.9.4 or later?")]
    Malformed {
        /// The command.
        command: &'static str,
        /// The field.
        field: &'static str,
    },
}
