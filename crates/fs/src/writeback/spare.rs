//! Buffers of appended bytes that are used again. The kernel clears fresh memory first, and takes longer for that than an append for its copy.

use parking_lot::Mutex;
use zoned::{Buf, BufMut};

/// The most bytes of spare buffers are the mount's budget divided by this number.
const SPARE_DIVISOR: u64 = 32;

/// Buffers whose bytes were written back, each with room for as many bytes as a file's full buffer has.
#[derive(Debug)]
pub(super) struct SpareBuffers {
    kept: Mutex<Vec<BufMut>>,
    most_bytes: u64,
}

impl SpareBuffers {
    /// No buffer yet, for a mount whose page cache has `budget` bytes.
    pub(super) fn new(budget: u64) -> SpareBuffers {
        SpareBuffers { kept: Mutex::default(), most_bytes: budget / SPARE_DIVISOR }
    }

    /// An empty buffer with room for `bytes` bytes: a spare one, if `bytes` are as many as the `full` bytes of a full buffer.
    pub(super) fn get(&self, bytes: usize, full: usize) -> BufMut {
        let spare = if bytes == full { self.kept.lock().pop() } else { None };
        spare.unwrap_or_else(|| BufMut::with_capacity(bytes))
    }

    /// Keeps a written buffer of `full` bytes, unless somebody still shares the buffer or there are enough.
    ///
    /// A buffer's capacity decides nothing: where the allocator puts a buffer differs from run to run.
    pub(super) fn put(&self, written: Buf, full: usize) {
        let is_full = written.len() == full;
        let Ok(mut buffer) = written.try_into_mut() else { return };
        let mut kept = self.kept.lock();
        if is_full && (kept.len() as u64 + 1) * full as u64 <= self.most_bytes {
            buffer.truncate(0);
            kept.push(buffer);
        }
    }

    /// Bytes of memory that the spare buffers take, where a full buffer has `full` bytes.
    pub(super) fn bytes(&self, full: usize) -> u64 {
        (self.kept.lock().len() * full) as u64
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use units::Bytes;

    use super::*;
    use crate::writeback::dirty::DirtyBytes;

    const FULL: usize = 64 << 10;

    #[test]
    fn a_written_buffer_is_used_again_and_counts() {
        let spare = SpareBuffers::new(32 * 2 * FULL as u64);
        let buffers: Vec<Buf> = (0..3)
            .map(|n| {
                let mut buffer = spare.get(FULL, FULL);
                buffer.resize(FULL, n);
                buffer.freeze()
            })
            .collect();
        assert_eq!(spare.bytes(FULL), 0);
        let first = buffers.first().map(|buffer| buffer.as_ptr());
        buffers.into_iter().for_each(|buffer| spare.put(buffer, FULL));
        assert_eq!(spare.bytes(FULL), 2 * FULL as u64, "a third buffer is more than the mount's share");
        let (second, again) = (spare.get(FULL, FULL), spare.get(FULL, FULL));
        assert_eq!((Some(again.as_ptr()), again.len(), second.len()), (first, 0, 0));
    }

    #[test]
    fn spare_buffers_count_in_the_budget_with_dirty_bytes() {
        let dirty = DirtyBytes::new(Bytes(32 * FULL as u64), Duration::from_secs(5));
        dirty.reuse(Buf::zeroed(FULL), FULL);
        assert_eq!(dirty.memory(FULL), FULL as u64);
        let _tail = dirty.buffer(FULL, FULL);
        assert_eq!(dirty.memory(FULL), 0, "appended bytes count from here on");
    }

    #[test]
    fn a_buffer_that_is_read_or_short_is_not_kept() {
        let spare = SpareBuffers::new(32 * 2 * FULL as u64);
        let read = Buf::zeroed(FULL);
        spare.put(read.clone(), FULL);
        spare.put(Buf::zeroed(4096), FULL);
        assert_eq!((spare.bytes(FULL), read.len()), (0, FULL));
    }
}
