//! Clients' commands and reads that a group has under way.

use std::collections::BTreeMap;

use replica::{Index, ProposalId, ReadId, ReplicaId};

use futures_channel::oneshot::{Receiver, Sender, channel};

/// The end of a command.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Outcome {
    /// The command is committed at this index.
    Committed(Index),
    /// Nothing of the command was begun. The leader, if it is known.
    Refused(Option<ReplicaId>),
    /// The command may be carried out later, or never.
    Unknown,
}

/// The answer of a replica to a read.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Reading {
    /// The read may be answered from tables that hold the log up to `index`.
    Answer { index: Index, by_lease: bool },
    /// Another replica is to be asked. The leader, if it is known.
    Refused(Option<ReplicaId>),
}

/// Commands and reads under way.
#[derive(Default)]
pub(super) struct Clients {
    last: u64,
    commands: BTreeMap<ProposalId, Sender<Outcome>>,
    reads: BTreeMap<ReadId, Sender<Reading>>,
}

impl Clients {
    pub(super) fn begin_command(&mut self) -> (ProposalId, Receiver<Outcome>) {
        let (sender, receiver) = channel();
        self.last += 1;
        self.commands.insert(ProposalId(self.last), sender);
        (ProposalId(self.last), receiver)
    }

    /// Commands under way.
    pub(super) fn commands(&self) -> usize {
        self.commands.len()
    }

    pub(super) fn end_command(&mut self, id: ProposalId, outcome: Outcome) {
        if let Some(sender) = self.commands.remove(&id) {
            // The client may have gone.
            sender.send(outcome).ok();
        }
    }

    pub(super) fn begin_read(&mut self) -> (ReadId, Receiver<Reading>) {
        let (sender, receiver) = channel();
        self.last += 1;
        self.reads.insert(ReadId(self.last), sender);
        (ReadId(self.last), receiver)
    }

    pub(super) fn end_read(&mut self, id: ReadId, reading: Reading) {
        if let Some(sender) = self.reads.remove(&id) {
            sender.send(reading).ok();
        }
    }

    /// Nothing under way gets an answer any more: what waits hears so.
    pub(super) fn end(&mut self) {
        self.commands.clear();
        self.reads.clear();
    }
}
