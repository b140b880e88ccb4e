//! Clients' commands and reads that a group has under way.

use std::collections::BTreeMap;

use replica::{Index, ProposalId, ReadId, ReplicaId};

use crate::reply::{Awaited, Giver, reply};

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
    commands: BTreeMap<ProposalId, Giver<Outcome>>,
    reads: BTreeMap<ReadId, Giver<Reading>>,
}

impl Clients {
    pub(super) fn begin_command(&mut self) -> (ProposalId, Awaited<Outcome>) {
        let (giver, awaited) = reply();
        self.last += 1;
        self.commands.insert(ProposalId(self.last), giver);
        (ProposalId(self.last), awaited)
    }

    pub(super) fn end_command(&mut self, id: ProposalId, outcome: Outcome) {
        if let Some(giver) = self.commands.remove(&id) {
            giver.give(outcome);
        }
    }

    pub(super) fn begin_read(&mut self) -> (ReadId, Awaited<Reading>) {
        let (giver, awaited) = reply();
        self.last += 1;
        self.reads.insert(ReadId(self.last), giver);
        (ReadId(self.last), awaited)
    }

    pub(super) fn end_read(&mut self, id: ReadId, reading: Reading) {
        if let Some(giver) = self.reads.remove(&id) {
            giver.give(reading);
        }
    }

    /// Nothing under way gets an answer any more: what waits hears so.
    pub(super) fn end(&mut self) {
        self.commands.clear();
        self.reads.clear();
    }
}
