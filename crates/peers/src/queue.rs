//! Messages that wait for a connection.

use std::collections::VecDeque;

use parking_lot::Mutex;
use tokio::sync::Notify;

/// A queue of encoded messages, bounded in bytes, with one task that takes them.
#[derive(Debug)]
pub(crate) struct Queue {
    most: usize,
    waiting: Mutex<Waiting>,
    /// Told of each message that comes into an empty queue.
    filled: Notify,
}

#[derive(Debug, Default)]
struct Waiting {
    messages: VecDeque<Vec<u8>>,
    bytes: usize,
}

impl Queue {
    /// Memory of a message besides its bytes, counted so that short messages are bounded too.
    const PER_MESSAGE: usize = 64;

    /// A queue of at most so many bytes.
    pub(crate) fn new(most: usize) -> Queue {
        Queue { most, waiting: Mutex::default(), filled: Notify::new() }
    }

    /// Adds a message; false if it has no room. A message that alone is more than the queue takes has room in an empty queue.
    pub(crate) fn push(&self, message: Vec<u8>) -> bool {
        let mut waiting = self.waiting.lock();
        let (is_empty, bytes) = (waiting.messages.is_empty(), message.len() + Queue::PER_MESSAGE);
        if !is_empty && waiting.bytes + bytes > self.most {
            return false;
        }
        waiting.bytes += bytes;
        waiting.messages.push_back(message);
        drop(waiting);
        if is_empty {
            self.filled.notify_one();
        }
        true
    }

    /// Takes the first message if `fits` says so of its length.
    pub(crate) fn pop_if(&self, fits: impl FnOnce(usize) -> bool) -> Option<Vec<u8>> {
        let mut waiting = self.waiting.lock();
        if !waiting.messages.front().is_some_and(|message| fits(message.len())) {
            return None;
        }
        let message = waiting.messages.pop_front()?;
        waiting.bytes -= message.len() + Queue::PER_MESSAGE;
        Some(message)
    }

    /// Waits until there is a message. For one task at a time; may be dropped at any time.
    pub(crate) async fn until_filled(&self) {
        while self.waiting.lock().messages.is_empty() {
            self.filled.notified().await;
        }
    }

    /// Drops all messages. Returns their number.
    pub(crate) fn clear(&self) -> usize {
        let mut waiting = self.waiting.lock();
        waiting.bytes = 0;
        std::mem::take(&mut waiting.messages).len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_full_queue_takes_no_message_and_keeps_those_that_it_has() {
        let queue = Queue::new(3 * (Queue::PER_MESSAGE + 100));
        let message = |byte: u8| vec![byte; 100];
        assert!((0..3).all(|byte| queue.push(message(byte))));
        assert!(!queue.push(message(3)) && !queue.push(Vec::new()));
        assert_eq!(queue.pop_if(|len| len < 100), None);
        assert_eq!(queue.pop_if(|len| len == 100), Some(message(0)));
        assert!(queue.push(message(4)));
        assert_eq!(queue.clear(), 3);
        assert!(queue.push(vec![0; 10_000]), "a long message has room in an empty queue");
        assert!(!queue.push(Vec::new()));
    }
}
