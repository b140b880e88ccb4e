//! The queue of a transaction's commands.

use kv::{Args, Claims};

use crate::owned_words::OwnedWords;
use crate::resolved::Resolved;

/// Largest number of commands in a transaction.
const QUEUED_COMMANDS_MAX: usize = 1 << 20;

/// A command that waits for EXEC.
#[derive(Debug)]
struct QueuedCommand {
    resolved: Resolved,
    words: OwnedWords,
}

/// The queued commands of a connection.
///
/// The queue only grows during a turn, so that a turn that runs again finds the commands of earlier turns.
#[derive(Debug)]
pub(crate) struct Queue {
    commands: Vec<QueuedCommand>,
    bytes: usize,
    byte_limit: usize,
}

impl Queue {
    /// An empty queue for `byte_limit` bytes of words.
    pub fn new(byte_limit: usize) -> Queue {
        Queue { commands: Vec::new(), bytes: 0, byte_limit }
    }

    /// Number of commands in the queue.
    pub fn len(&self) -> usize {
        self.commands.len()
    }

    /// Adds a command to the queue, or returns the error reply.
    pub fn push(&mut self, resolved: Resolved, args: Args<'_>) -> Result<(), String> {
        let len: usize = args.rest(0).map(<[u8]>::len).sum();
        if self.bytes + len > self.byte_limit || self.commands.len() >= QUEUED_COMMANDS_MAX {
            return Err(format!(
                "ERR the transaction exceeds {QUEUED_COMMANDS_MAX} commands or {} bytes",
                self.byte_limit
            ));
        }
        self.bytes += len;
        self.commands.push(QueuedCommand { resolved, words: OwnedWords::new(args.rest(0), len) });
        Ok(())
    }

    /// The queued command with this index, and its words.
    pub fn get(&self, index: usize) -> Option<(Resolved, Args<'_>)> {
        self.commands.get(index).map(|queued| (queued.resolved, queued.words.args()))
    }

    /// The queued commands, in order.
    pub fn resolved(&self) -> impl Iterator<Item = Resolved> {
        self.commands.iter().map(|queued| queued.resolved)
    }

    /// Adds the keys of all queued commands to `claims`.
    pub fn claims(&self, claims: &mut Claims) {
        for queued in &self.commands {
            queued.resolved.claims(queued.words.args(), claims);
        }
    }

    /// Keeps the first `len` queued commands and drops the others.
    pub fn truncate(&mut self, len: usize) {
        for queued in self.commands.drain(len.min(self.commands.len())..) {
            self.bytes -= queued.words.byte_count();
        }
    }

    /// Removes the first `count` queued commands.
    pub fn remove_first(&mut self, count: usize) {
        for queued in self.commands.drain(..count.min(self.commands.len())) {
            self.bytes -= queued.words.byte_count();
        }
    }
}
