//! A pool of read buffers: allocating a buffer costs more than a short read.

use parking_lot::Mutex;
use zoned::BufMut;

/// The longest read buffer kept for reuse, in blocks.
pub(crate) const MAX_POOLED_BLOCKS: usize = 256;
/// Number of read buffers kept of each power of two of blocks, up to `SHORT_BUFFER_BLOCKS`.
const MAX_SHORT_BUFFERS_KEPT: usize = 16;
/// Number of read buffers kept of each power of two above `SHORT_BUFFER_BLOCKS`. With blocks of 4 KiB the pool keeps 10 MiB at most.
const MAX_LONG_BUFFERS_KEPT: usize = 4;
const SHORT_BUFFER_BLOCKS: usize = 16;

/// Unused read buffers. A buffer has room for a power of two of blocks.
#[derive(Debug)]
pub(crate) struct ReadBufferPool {
    block: usize,
    /// By the binary logarithm of the blocks that a buffer has room for.
    by_room: [Mutex<Vec<BufMut>>; MAX_POOLED_BLOCKS.ilog2() as usize + 1],
}

impl ReadBufferPool {
    pub(crate) fn new(block: usize) -> ReadBufferPool {
        ReadBufferPool { block, by_room: Default::default() }
    }

    /// A read buffer of `blocks` blocks with arbitrary content.
    pub(crate) fn get(&self, blocks: usize) -> BufMut {
        let Some(kept) = self.with_room_for(blocks) else { return BufMut::zeroed(blocks * self.block) };
        let kept = kept.lock().pop();
        let mut buffer = kept.unwrap_or_else(|| BufMut::zeroed(blocks.next_power_of_two() * self.block));
        buffer.resize(blocks * self.block, 0);
        buffer
    }

    /// Takes a buffer back that `get` gave out.
    pub(crate) fn put(&self, buffer: BufMut) {
        let blocks = buffer.len() / self.block;
        let Some(kept) = self.with_room_for(blocks) else { return };
        let most = if blocks > SHORT_BUFFER_BLOCKS { MAX_LONG_BUFFERS_KEPT } else { MAX_SHORT_BUFFERS_KEPT };
        let mut kept = kept.lock();
        if kept.len() < most {
            kept.push(buffer);
        }
    }

    /// The buffers with room for `blocks` blocks and less than twice as many.
    fn with_room_for(&self, blocks: usize) -> Option<&Mutex<Vec<BufMut>>> {
        self.by_room.get(blocks.next_power_of_two().ilog2() as usize)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const BLOCK: usize = 4096;

    #[test]
    fn a_returned_buffer_is_used_again_for_as_many_blocks_or_a_few_more() {
        let pool = ReadBufferPool::new(BLOCK);
        let buffer = pool.get(3);
        let at = buffer.as_ptr();
        pool.put(buffer);
        let again = pool.get(4);
        assert_eq!((again.as_ptr(), again.len()), (at, 4 * BLOCK));
        pool.put(again);
        assert_ne!(pool.get(2).as_ptr(), at);
    }

    #[test]
    fn the_pool_keeps_few_bytes() {
        let pool = ReadBufferPool::new(BLOCK);
        for blocks in 1..2 * MAX_POOLED_BLOCKS {
            (0..20).map(|_| pool.get(blocks)).collect::<Vec<_>>().into_iter().for_each(|buffer| {
                assert_eq!(buffer.len(), blocks * BLOCK);
                pool.put(buffer);
            });
        }
        let kept = pool.by_room.iter().enumerate();
        let bytes: usize = kept.map(|(room, kept)| kept.lock().len() * (BLOCK << room)).sum();
        assert_eq!(bytes, (16 * 31 + 4 * 480) * BLOCK);
    }
}
