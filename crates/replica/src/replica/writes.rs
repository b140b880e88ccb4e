//! Raft's requests to make its log durable that are under way, and the messages that wait for them.

use std::collections::VecDeque;

use raft::eraftpb::Message;

/// The requests under way. A request that has nothing to write is over with the one before.
#[derive(Debug, Default)]
pub(super) struct Writes {
    /// The numbers of the requests that are being written, ascending.
    under_way: VecDeque<u64>,
    /// The number of the last request, written or not.
    last: u64,
    /// Messages that wait until everything up to a request is durable.
    waiting: VecDeque<(u64, Vec<Message>)>,
}

impl Writes {
    /// Begins Raft's next request. `messages` wait for it.
    pub(super) fn begin(&mut self, number: u64, is_written: bool, messages: Vec<Message>) {
        self.last = number;
        if is_written {
            self.under_way.push_back(number);
        }
        self.waiting.push_back((number, messages));
    }

    /// The caller has written everything up to a request.
    pub(super) fn end(&mut self, number: u64) {
        self.under_way.retain(|written| *written > number);
    }

    /// The request up to which everything is durable; `None` if that is no more than at the last call. Also the messages that waited for it.
    pub(super) fn take_durable(&mut self) -> Option<(u64, Vec<Message>)> {
        let durable = self.under_way.front().map_or(self.last, |written| written - 1);
        let mut ready = None;
        while self.waiting.front().is_some_and(|(number, _)| *number <= durable)
            && let Some((number, messages)) = self.waiting.pop_front()
        {
            let (upto, all) = ready.get_or_insert((number, Vec::new()));
            *upto = number;
            all.extend(messages);
        }
        ready
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn message(to: u64) -> Vec<Message> {
        vec![Message { to, ..Message::default() }]
    }

    fn durable(writes: &mut Writes) -> Option<(u64, Vec<u64>)> {
        let (number, messages) = writes.take_durable()?;
        Some((number, messages.into_iter().map(|message| message.to).collect()))
    }

    #[test]
    fn a_request_without_a_write_is_over_with_the_one_before() {
        let mut writes = Writes::default();
        writes.begin(1, false, message(10));
        assert_eq!(durable(&mut writes), Some((1, vec![10])));
        writes.begin(2, true, message(20));
        writes.begin(3, false, message(30));
        writes.begin(4, true, message(40));
        writes.begin(5, false, message(50));
        assert_eq!(durable(&mut writes), None);
        writes.end(2);
        assert_eq!(durable(&mut writes), Some((3, vec![20, 30])));
        writes.end(4);
        assert_eq!(durable(&mut writes), Some((5, vec![40, 50])));
        assert_eq!(durable(&mut writes), None);
    }
}
