//! Buffers for reading a log: counted while in use, and used again.

use std::ops::{Deref, Range};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::Mutex;
use units::sync::Event;
use zoned::BufMut;

/// Number of chunk buffers kept for the next log read.
const MAX_SPARE_BUFFERS: usize = 16;

/// The buffers with which one task reads a log.
#[derive(Debug, Default)]
pub(super) struct Memory {
    spare: Mutex<Vec<BufMut>>,
    held: AtomicU64,
    peak: AtomicU64,
    /// Notified when a chunk buffer is dropped.
    pub(super) freed: Event,
}

impl Memory {
    /// A chunk buffer of `len` bytes, counted as in use from now on.
    pub(super) fn take(self: &Arc<Memory>, len: usize) -> ReadBuffer {
        let held = self.held.fetch_add(len as u64, Ordering::AcqRel) + len as u64;
        self.peak.fetch_max(held, Ordering::AcqRel);
        let spare = {
            let mut spare = self.spare.lock();
            spare.iter().rposition(|used| used.len() == len).map(|at| spare.swap_remove(at))
        };
        let data = spare.unwrap_or_else(|| BufMut::zeroed(len));
        ReadBuffer { data: Some(data), len: len as u64, memory: Arc::clone(self) }
    }

    /// Bytes of the chunk buffers in use.
    pub(super) fn held(&self) -> u64 {
        self.held.load(Ordering::Acquire)
    }

    /// The most bytes of chunk buffers that were in use at a time.
    pub(super) fn peak(&self) -> u64 {
        self.peak.load(Ordering::Acquire)
    }
}

/// A buffer for log reads, counted as in use until it is dropped, and then kept for another read.
#[derive(Debug)]
pub(super) struct ReadBuffer {
    data: Option<BufMut>,
    len: u64,
    memory: Arc<Memory>,
}

impl ReadBuffer {
    /// Gives the chunk's bytes to a device read. The chunk stays counted as in use.
    pub(super) fn lend(&mut self) -> BufMut {
        self.data.take().unwrap_or_default()
    }

    /// Puts the bytes that a device read returned back into the chunk.
    pub(super) fn give(&mut self, data: BufMut) {
        self.data = Some(data);
    }
}

impl Deref for ReadBuffer {
    type Target = [u8];
    fn deref(&self) -> &[u8] {
        self.data.as_deref().unwrap_or_default()
    }
}

impl Drop for ReadBuffer {
    fn drop(&mut self) {
        if let Some(data) = self.data.take() {
            let mut spare = self.memory.spare.lock();
            if spare.len() < MAX_SPARE_BUFFERS {
                spare.push(data);
            }
        }
        self.memory.held.fetch_sub(self.len, Ordering::AcqRel);
        self.memory.freed.notify();
    }
}

/// The stream bytes of one part of a log entry, in the chunks with which they were read.
#[derive(Clone, Debug)]
pub(super) struct Payload {
    first: Piece,
    /// The further pieces of an entry's part that spans several chunks.
    more: Vec<Piece>,
}

#[derive(Clone, Debug)]
struct Piece {
    chunk: Arc<ReadBuffer>,
    bytes: Range<usize>,
}

impl Payload {
    /// The stream bytes in the range `range` of `chunk`.
    pub(super) fn new(chunk: &Arc<ReadBuffer>, range: Range<usize>) -> Payload {
        Payload { first: Piece { chunk: Arc::clone(chunk), bytes: range }, more: Vec::new() }
    }

    /// Adds the stream bytes in the range `range` of a further chunk.
    pub(super) fn push(&mut self, chunk: &Arc<ReadBuffer>, range: Range<usize>) {
        self.more.push(Piece { chunk: Arc::clone(chunk), bytes: range });
    }

    /// Drops the first `count` stream bytes, all of them in the first piece.
    pub(super) fn skip(mut self, count: usize) -> Payload {
        let Range { start, end } = self.first.bytes;
        self.first.bytes = (start + count).min(end)..end;
        self
    }

    /// The part's stream bytes, piece by piece.
    pub(super) fn pieces(&self) -> impl Iterator<Item = &[u8]> {
        std::iter::once(&self.first)
            .chain(&self.more)
            .map(|piece| piece.chunk.get(piece.bytes.clone()).unwrap_or_default())
    }
}
