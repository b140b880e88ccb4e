//! Clients' commands that wait while entries wait for the record of the log that is being written: those that come meanwhile, some at least, go to the other replicas together, in one message to each.

use std::collections::VecDeque;

use replica::{Command, ProposalId, Term};

/// Bytes of the commands that are proposed together, about: a message to another replica may be much longer.
const MOST_BYTES: u64 = 1 << 20;

/// Commands that are worth messages of their own while entries wait for the log. By measurement: with 64 writers on `zn540` in virtual time 12 give 0.69 of the log's rate, 16 0.67, 21 0.64, all that come 0.51, each by itself 0.61.
const MANY: usize = 12;

/// A client's command that waits.
pub(super) struct Waiting {
    pub id: ProposalId,
    pub command: Command,
    /// The term in which the command may be begun; `None`: in any.
    pub term: Option<Term>,
}

/// The commands that wait, in order.
#[derive(Default)]
pub(super) struct Proposals {
    waiting: VecDeque<(u64, Waiting)>,
    bytes: u64,
}

impl Proposals {
    /// A command of so many bytes waits.
    pub(super) fn add(&mut self, bytes: u64, waiting: Waiting) {
        self.bytes += bytes;
        self.waiting.push_back((bytes, waiting));
    }

    /// Bytes of all commands that wait.
    pub(super) fn bytes(&self) -> u64 {
        self.bytes
    }

    /// True if so many commands wait that they are worth messages of their own.
    pub(super) fn are_many(&self) -> bool {
        self.waiting.len() >= MANY
    }

    /// The commands that are proposed together next: the first one, and more up to a mebibyte.
    pub(super) fn take(&mut self) -> Vec<Waiting> {
        let (mut taken, mut bytes) = (Vec::new(), 0);
        while self.waiting.front().is_some_and(|(len, _)| taken.is_empty() || bytes + len <= MOST_BYTES)
            && let Some((len, waiting)) = self.waiting.pop_front()
        {
            bytes += len;
            taken.push(waiting);
        }
        self.bytes -= bytes;
        taken
    }

    /// Drops the commands.
    pub(super) fn clear(&mut self) {
        *self = Proposals::default();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commands_are_taken_in_order_a_mebibyte_or_one_at_a_time() {
        let mut proposals = Proposals::default();
        for (id, bytes) in (1..).zip([700_000, 300_000, 300_000, 5_000_000, 1]) {
            let command = Command { record: Vec::new(), value: None };
            proposals.add(bytes, Waiting { id: ProposalId(id), command, term: None });
        }
        let mut takes = || proposals.take().iter().map(|waiting| waiting.id.0).collect::<Vec<_>>();
        assert_eq!(
            [takes(), takes(), takes(), takes(), takes()],
            [vec![1, 2], vec![3], vec![4], vec![5], vec![]]
        );
        assert_eq!(proposals.bytes(), 0);
    }
}
