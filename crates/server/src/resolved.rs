//! The command that a name stands for, on keys or on the server.

use kv::{Args, Claims, Command, Keys, Spec};

use crate::commands::{self, Action, ServerCommand, TransactionCommand};
use crate::needs::Needs;

/// The command that a name stands for.
#[derive(Clone, Copy)]
pub(crate) enum Resolved {
    /// A command on keys.
    Key(&'static Command),
    /// A command on the connection or the server.
    Server(&'static ServerCommand),
    /// No command has the name.
    Unknown,
}

impl Resolved {
    /// Finds the command of a name, in upper or lower case.
    pub fn of(name: &[u8]) -> Resolved {
        match kv::find(name) {
            Some(command) => Resolved::Key(command),
            None => commands::find(name).map_or(Resolved::Unknown, Resolved::Server),
        }
    }

    /// The command's name, arity, flags and keys.
    pub fn spec(self) -> Option<&'static Spec> {
        match self {
            Resolved::Key(command) => Some(&command.spec),
            Resolved::Server(command) => Some(&command.spec),
            Resolved::Unknown => None,
        }
    }

    /// What the command needs of the engine by itself.
    pub fn needs(self) -> Needs {
        match self {
            Resolved::Key(command) if command.spec.has(Spec::WRITE) => Needs::Writes,
            Resolved::Key(command) if command.spec.has(Spec::WALKS) => Needs::Walks,
            Resolved::Key(_) => Needs::Reads,
            // WATCH needs a writer, which holds the claims on the keys while their state is noted.
            Resolved::Server(_) if self.is(TransactionCommand::Watch) => Needs::Writes,
            Resolved::Server(_) | Resolved::Unknown => Needs::Nothing,
        }
    }

    /// Whether the command opens or ends a transaction, or changes whether the client's reads may go to backups, or what the
    /// client may do at all. The routes of later commands depend on it.
    pub fn changes_routes(self) -> bool {
        let Resolved::Server(command) = self else { return false };
        match command.action {
            Action::Transaction(TransactionCommand::Watch | TransactionCommand::Unwatch) => false,
            Action::Transaction(_) | Action::RunAtOnce(_) => true,
            Action::Run(_) | Action::RunOutside(_) => {
                matches!(command.spec.name, "AUTH" | "HELLO" | "READONLY" | "READWRITE")
            }
        }
    }

    /// Whether a transaction that is open queues the command for EXEC.
    pub fn is_queued(self) -> bool {
        match self {
            Resolved::Key(_) => true,
            Resolved::Server(command) => {
                matches!(command.action, Action::Run(_)) || self.is(TransactionCommand::Unwatch)
            }
            Resolved::Unknown => false,
        }
    }

    /// Whether the command is WATCH.
    pub fn is_watch(self) -> bool {
        self.is(TransactionCommand::Watch)
    }

    /// Whether the command is EXEC, whose needs and claims are those of the queued commands.
    pub fn is_exec(self) -> bool {
        self.is(TransactionCommand::Exec)
    }

    fn is(self, command: TransactionCommand) -> bool {
        matches!(self, Resolved::Server(c) if matches!(c.action, Action::Transaction(c) if c == command))
    }

    /// Whether the command writes, and replies with a stored value, which may have any length.
    pub fn may_return_written_value(self, args: Args<'_>) -> bool {
        match self {
            Resolved::Key(command) => match command.spec.name {
                "GETDEL" | "GETEX" | "GETSET" => true,
                "SET" => args.rest(3).any(|word| word.eq_ignore_ascii_case(b"GET")),
                _ => false,
            },
            _ => false,
        }
    }

    /// Adds the keys in the command's words to `claims`.
    pub fn claims(self, args: Args<'_>, claims: &mut Claims) {
        match self {
            Resolved::Key(command) => kv::claim(&command.spec, args, claims),
            Resolved::Server(command) if command.spec.keys != Keys::NONE => {
                kv::claim(&command.spec, args, claims)
            }
            _ => {}
        }
    }
}

impl std::fmt::Debug for Resolved {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.spec().map_or("unknown", |spec| spec.name))
    }
}
