//! The next writes of a log: a state machine without I/O.
//!
//! ```text
//!   blocks   |0      |1      |2      |3      |4      |5      |6      |7      |
//!   bytes    ----------- durable --|-- in flight --|- pending -|  zeros ...  | nothing
//!                                                  ^ sent      ^ end         ^ zeroed
//! ```
//!
//! - A write begins in the block in which the one before ended. If that block was not full, the write waits until the one before is done: two writes of one block in flight
//!   could land in either order.
//! - Writes of other blocks go side by side. Bytes are durable when all writes up to them are done.
//! - A write waits for zeros in flight to its blocks, which go in the log's class where that may happen soon. Zeros begin behind everything that was ever written.
//! - Without a sync that waits, only full blocks are written, and only when as many bytes as the longest write has are pending.

#[cfg(test)]
mod tests;

use std::collections::VecDeque;

use sys::{Buf, BufMut};

use crate::rules::Rules;
use crate::{Options, Request};

/// Bytes of one write of entries, at most; an eighth of the buffer, if that is less.
const MAX_WRITE: u64 = 1 << 20;
/// Writes of entries in flight, at most.
const MAX_IN_FLIGHT: usize = 16;
/// Bytes of one write of zeros, at most; a quarter of the room, if that is less. A write of entries that needs the room waits for one at most.
const ZEROS: u64 = 256 << 10;

/// A write of entries in flight, or done while a lower one is in flight.
#[derive(Debug)]
struct Write {
    id: u64,
    /// Where the write's bytes end.
    end: u64,
    done: bool,
}

/// A write of zeros in flight.
#[derive(Debug)]
struct ZeroWrite {
    id: u64,
    at: u64,
    end: u64,
}

/// The plan of a log's writes.
#[derive(Debug)]
pub(crate) struct Plan {
    block: u64,
    /// Bytes of one write of entries, at most.
    longest_write: u64,
    /// Bytes of one write of zeros, at most.
    longest_zeros: u64,
    /// Bytes of room that are zeroed ahead; 0 for none.
    room: u64,
    rules: Rules,
    /// Bytes from the block of `sent` on.
    pending: BufMut,
    /// Number of appended bytes.
    end: u64,
    /// Bytes below are written or in flight.
    sent: u64,
    /// Bytes below are durable.
    durable: u64,
    /// The highest byte that a sync waits for.
    wanted: u64,
    /// Blocks below have been written, as entries or zeros.
    zeroed: u64,
    /// Where the present stretch of room ends: its last zeros are durable.
    room_end: u64,
    writes: VecDeque<Write>,
    zeros: Option<ZeroWrite>,
    /// True once no more room is wanted: the log is about to close.
    closing: bool,
    next_id: u64,
}

impl Plan {
    /// The plan of a log that ends at byte `end`; `tail` are the bytes of the last block, if the end is within it.
    pub(crate) fn new(options: &Options, end: u64, tail: &[u8]) -> Plan {
        let block = u64::from(options.block);
        assert_eq!(tail.len() as u64, end % block, "the bytes of the last block");
        let mut pending = BufMut::with_capacity(options.block as usize);
        pending.extend_from_slice(tail);
        let zeroed = end.next_multiple_of(block);
        Plan {
            block,
            longest_write: (options.buffer / 8).min(MAX_WRITE).next_multiple_of(block),
            longest_zeros: (options.room / 4).clamp(1, ZEROS).next_multiple_of(block),
            room: options.room.next_multiple_of(block),
            rules: options.rules(),
            pending,
            end,
            sent: end,
            durable: end,
            wanted: end,
            zeroed,
            room_end: zeroed,
            writes: VecDeque::new(),
            zeros: None,
            closing: false,
            next_id: 0,
        }
    }

    pub(crate) fn end(&self) -> u64 {
        self.end
    }

    pub(crate) fn durable(&self) -> u64 {
        self.durable
    }

    /// Appended bytes that no write has taken.
    pub(crate) fn pending_bytes(&self) -> u64 {
        self.end - self.sent
    }

    /// Takes bytes. Returns where they end.
    pub(crate) fn append(&mut self, bytes: &[u8]) -> u64 {
        self.pending.extend_from_slice(bytes);
        self.end += bytes.len() as u64;
        self.end
    }

    /// Notes a sync that waits for all bytes below `upto`.
    pub(crate) fn want(&mut self, upto: u64) {
        self.wanted = self.wanted.max(upto);
    }

    /// Zeroes no more room.
    pub(crate) fn close(&mut self) {
        self.closing = true;
        self.want(self.end);
    }

    /// True if nothing is in flight.
    pub(crate) fn is_idle(&self) -> bool {
        self.writes.is_empty() && self.zeros.is_none()
    }

    /// The next request and its number, if any may start now.
    pub(crate) fn next(&mut self) -> Option<(u64, Request)> {
        self.next_entries().or_else(|| self.next_zeros())
    }

    fn id(&mut self) -> u64 {
        self.next_id += 1;
        self.next_id
    }

    /// Where the next write of entries ends; `None` if none is to be written.
    fn next_end(&self) -> Option<u64> {
        let full = self.end - self.end % self.block;
        let end = if self.wanted > self.sent {
            self.end
        } else if self.pending_bytes() >= self.longest_write {
            full
        } else {
            return None;
        };
        let longest = self.sent - self.sent % self.block + self.longest_write;
        Some(end.min(longest)).filter(|end| *end > self.sent)
    }

    fn next_entries(&mut self) -> Option<(u64, Request)> {
        let end = self.next_end()?;
        let within_block = !self.sent.is_multiple_of(self.block);
        let tail_in_flight = within_block && self.writes.back().is_some_and(|write| !write.done);
        let waits_for_tail = tail_in_flight && !self.rules.two_tails_in_flight();
        if waits_for_tail || self.writes.len() >= MAX_IN_FLIGHT {
            return None;
        }
        let at = self.sent - self.sent % self.block;
        let blocks_end = end.next_multiple_of(self.block);
        let meets_zeros = self.zeros.as_ref().is_some_and(|zeros| blocks_end > zeros.at);
        if meets_zeros && !self.rules.zeros_over_entries() {
            return None;
        }
        let data = self.take_blocks(at, end, blocks_end);
        self.zeroed = self.zeroed.max(blocks_end);
        self.sent = end;
        let id = self.id();
        self.writes.push_back(Write { id, end, done: false });
        Some((id, Request::Entries { at, data }))
    }

    /// The blocks from `at` to `blocks_end`, with zeros behind `end`. Keeps the bytes of a last block that is not full.
    fn take_blocks(&mut self, at: u64, end: u64, blocks_end: u64) -> Buf {
        let length = |to: u64| usize::try_from(to - at).expect("a write is short");
        let mut data = self.pending.split_to(length(end));
        if end < blocks_end {
            // The write takes all pending bytes: only such a write ends within a block.
            let tail = data.get(length(blocks_end - self.block)..).expect("the write ends in that block");
            self.pending = BufMut::with_capacity(self.block as usize);
            self.pending.extend_from_slice(tail);
            data.resize(length(blocks_end), 0);
        }
        if self.rules.tail_without_its_block() {
            data.get_mut(..length(self.sent)).expect("within the write").fill(0);
        }
        data.freeze()
    }

    fn next_zeros(&mut self) -> Option<(u64, Request)> {
        if self.closing || self.room == 0 || self.zeros.is_some() {
            return None;
        }
        // A stretch of room begins when half of the one before is used up.
        if self.zeroed >= self.room_end {
            if self.zeroed.saturating_sub(self.end) > self.room / 2 {
                return None;
            }
            self.room_end = self.zeroed + self.room;
        }
        let at = self.zeroed;
        let end = (at + self.longest_zeros).min(self.room_end);
        let durable = end == self.room_end;
        let urgent = at < self.end + self.longest_write;
        let id = self.id();
        self.zeros = Some(ZeroWrite { id, at, end });
        Some((id, Request::Zeros { at, len: end - at, durable, urgent }))
    }

    /// Notes that a request failed. Returns true if entries failed, which poisons the log. Without room the log goes on: entries that find no space fail themselves.
    pub(crate) fn failed(&mut self, id: u64) -> bool {
        let are_zeros = self.zeros.take_if(|zeros| zeros.id == id).is_some();
        self.room = if are_zeros { 0 } else { self.room };
        !are_zeros
    }

    /// Notes that a request is done.
    pub(crate) fn done(&mut self, id: u64) {
        if let Some(zeros) = self.zeros.take_if(|zeros| zeros.id == id) {
            self.zeroed = self.zeroed.max(zeros.end);
            return;
        }
        if let Some(write) = self.writes.iter_mut().find(|write| write.id == id) {
            write.done = true;
            if self.rules.sync_overtakes_lower_block() {
                self.durable = self.durable.max(write.end);
            }
        }
        while let Some(write) = self.writes.front().filter(|write| write.done) {
            self.durable = self.durable.max(write.end);
            self.writes.pop_front();
        }
    }
}
