//! A pool of read buffers: allocating a buffer costs more than a short read.

use parking_lot::Mutex;
use zoned::BufMut;

/// The longest read buffer kept for reuse, in blocks.
pub(crate) const MAX_POOLED_BLOCKS: usize = 256;
/// Number of read buffers kept of each length up to `SHORT_BUFFER_BLOCKS` blocks.
const MAX_SHORT_BUFFERS_KEPT: usize = 16;
/// Number of read buffers kept of each length above `SHORT_BUFFER_BLOCKS` blocks.
const MAX_LONG_BUFFERS_KEPT: usize = 2;
const SHORT_BUFFER_BLOCKS: usize = 32;

/// Unused read buffers by their number of blocks.
#[derive(Debug)]
pub(crate) struct ReadBufferPool {
    block: usize,
    by_blocks: Vec<Mutex<Vec<BufMut>>>,
}

impl ReadBufferPool {
    pub(crate) fn new(block: usize) -> ReadBufferPool {
        ReadBufferPool { block, by_blocks: (0..=MAX_POOLED_BLOCKS).map(|_| Mutex::default()).collect() }
    }

    /// A read buffer of `blocks` blocks with arbitrary content.
    pub(crate) fn get(&self, blocks: usize) -> BufMut {
        let kept = self.by_blocks.get(blocks).and_then(|kept| kept.lock().pop());
        kept.unwrap_or_else(|| BufMut::zeroed(blocks * self.block))
    }

    /// Takes a buffer back.
    pub(crate) fn put(&self, buffer: BufMut) {
        if let Some(kept) = self.by_blocks.get(buffer.len() / self.block)
            && buffer.len().is_multiple_of(self.block)
        {
            let mut kept = kept.lock();
            let most = if buffer.len() / self.block > SHORT_BUFFER_BLOCKS {
                MAX_LONG_BUFFERS_KEPT
            } else {
                MAX_SHORT_BUFFERS_KEPT
            };
            if kept.len() < most {
                kept.push(buffer);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_returned_buffer_is_used_again() {
        let pool = ReadBufferPool::new(4096);
        let buffer = pool.get(2);
        let at = buffer.as_ptr();
        pool.put(buffer);
        assert_eq!((pool.get(2).as_ptr(), pool.get(3).len()), (at, 3 * 4096));
    }
}
