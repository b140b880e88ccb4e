//! One execution of a command on the connection or the server.

use kv::{Args, Spec};

use crate::resp::Encoder;
use crate::session::Session;
use crate::shared::Shared;

/// The words of a command, the state that it works on, and the encoder of its reply.
pub(crate) struct Call<'c> {
    pub args: Args<'c>,
    pub session: &'c mut Session,
    pub shared: &'c Shared,
    pub out: &'c mut Encoder,
    /// The table of all commands on the connection and the server.
    pub table: &'static [ServerCommand],
}

/// The result of a command: on failure the text of the error reply.
pub(crate) type Outcome = Result<(), String>;

/// A command on the connection or the server, such as PING or INFO.
pub(crate) struct ServerCommand {
    pub spec: Spec,
    pub action: Action,
}

/// How a command is executed.
#[derive(Clone, Copy)]
pub(crate) enum Action {
    /// The command is a function call; inside a transaction it is queued.
    Run(fn(&mut Call<'_>) -> Outcome),
    /// The command is a function call that runs at once, also inside a transaction.
    RunAtOnce(fn(&mut Call<'_>) -> Outcome),
    /// The command is a function call; inside a transaction it is refused.
    RunOutside(fn(&mut Call<'_>) -> Outcome),
    /// The pipeline executes the command, since it has the transaction's queue.
    Transaction(TransactionCommand),
}

/// A command that opens or ends a transaction, or watches keys for it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum TransactionCommand {
    Multi,
    Exec,
    Discard,
    Watch,
    Unwatch,
}

pub(crate) const SYNTAX: &str = "ERR syntax error";

/// Writes the reply of a HELP subcommand: each of `lines` is a form of the command and its description.
pub(super) fn reply_help(out: &mut Encoder, parent: &str, lines: &[(&str, &str)]) {
    use kv::Answer;
    out.array(1 + 2 * (lines.len() + 1));
    out.simple(&format!("{parent} <subcommand> [<argument> ...]. Subcommands are:"));
    for (form, text) in lines.iter().chain(&[("HELP", "Prints this help.")]) {
        out.simple(form);
        out.simple(&format!("    {text}"));
    }
}

/// The error reply for an unknown subcommand.
pub(super) fn unknown_subcommand(args: Args<'_>, parent: &str) -> String {
    let name: String = String::from_utf8_lossy(args.get(1)).chars().take(128).collect();
    format!("ERR unknown subcommand '{name}'. Try {parent} HELP.")
}

/// The error reply for a wrong number of words of a subcommand.
pub(super) fn subcommand_arity(args: Args<'_>) -> String {
    let lower = |n| String::from_utf8_lossy(args.get(n)).to_lowercase();
    format!("ERR wrong number of arguments for '{}|{}' command", lower(0), lower(1))
}
