//! Aligned bounce buffers for data whose address direct I/O does not accept.

use parking_lot::Mutex;

use crate::{Buf, BufMut};

/// Alignment of data that is passed to the kernel without a copy: the strictest that the block layer
/// requires. Most devices need less, but asking each device would cost a system call.
pub(crate) const DIRECT_IO_ALIGN: usize = 4096;
/// Largest number of parts of one write (`IOV_MAX`).
pub(crate) const MAX_PARTS: usize = 1024;
/// Smallest and largest bounce buffer kept for reuse, in bytes. A fresh buffer costs page faults: 57 us for
/// 128 KiB.
const MIN_BOUNCE_BYTES: usize = 4096;
const MAX_BOUNCE_BYTES: usize = 1 << 20;
/// Most bytes of unused bounce buffers kept for each size.
const MAX_KEPT_BYTES_PER_SIZE: usize = 4 << 20;
const BOUNCE_SIZES: usize = (MAX_BOUNCE_BYTES / MIN_BOUNCE_BYTES).trailing_zeros() as usize + 1;

/// Unused bounce buffers by size: powers of two from [`MIN_BOUNCE_BYTES`] to [`MAX_BOUNCE_BYTES`].
static KEPT: [Mutex<Vec<BufMut>>; BOUNCE_SIZES] = [const { Mutex::new(Vec::new()) }; BOUNCE_SIZES];

/// A bounce buffer: aligned, with unspecified content, returned to the pool when dropped.
pub(crate) struct Bounce {
    whole: BufMut,
    len: usize,
}

impl Bounce {
    pub(crate) fn new(len: usize) -> Bounce {
        let size = len.next_power_of_two().max(MIN_BOUNCE_BYTES);
        let kept = size_index(size).and_then(|index| KEPT.get(index)).and_then(|kept| kept.lock().pop());
        Bounce { whole: kept.unwrap_or_else(|| BufMut::zeroed(size)), len }
    }

    /// A bounce buffer with a copy of `parts`.
    pub(crate) fn gather(parts: &[Buf]) -> Bounce {
        let mut bounce = Bounce::new(parts.iter().map(|part| part.len()).sum());
        let mut rest = bounce.bytes_mut();
        for part in parts {
            let (head, tail) = rest.split_at_mut(part.len());
            head.copy_from_slice(part);
            rest = tail;
        }
        bounce
    }

    pub(crate) fn bytes(&self) -> &[u8] {
        self.whole.get(..self.len).expect("the buffer was taken for this length")
    }

    pub(crate) fn bytes_mut(&mut self) -> &mut [u8] {
        self.whole.get_mut(..self.len).expect("the buffer was taken for this length")
    }
}

impl Drop for Bounce {
    fn drop(&mut self) {
        let size = self.whole.len();
        let Some(kept) = size_index(size).and_then(|index| KEPT.get(index)) else { return };
        let mut kept = kept.lock();
        if (kept.len() + 1) * size <= MAX_KEPT_BYTES_PER_SIZE {
            kept.push(std::mem::take(&mut self.whole));
        }
    }
}

fn size_index(size: usize) -> Option<usize> {
    (size <= MAX_BOUNCE_BYTES).then(|| (size / MIN_BOUNCE_BYTES).trailing_zeros() as usize)
}

/// True if the bytes may be passed to the kernel without a copy. The caller ensures that their length is a
/// whole number of blocks.
pub(crate) fn is_aligned_for_direct_io(bytes: &[u8]) -> bool {
    bytes.as_ptr().addr().is_multiple_of(DIRECT_IO_ALIGN)
}

/// True if the parts of a write may be passed to the kernel as one vectored write: every part except the last
/// must end at a block boundary.
pub(crate) fn are_aligned_for_direct_io(parts: &[Buf]) -> bool {
    let Some((last, others)) = parts.split_last() else { return true };
    parts.len() <= MAX_PARTS
        && is_aligned_for_direct_io(last)
        && others
            .iter()
            .all(|part| is_aligned_for_direct_io(part) && part.len().is_multiple_of(DIRECT_IO_ALIGN))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bounce_buffer_is_aligned_and_as_long_as_asked_for() {
        for len in [1, 511, 4096, 4097, 1 << 20, (1 << 20) + 1] {
            let mut bounce = Bounce::new(len);
            assert!(is_aligned_for_direct_io(bounce.bytes()));
            assert_eq!((bounce.bytes().len(), bounce.bytes_mut().len()), (len, len));
        }
    }

    #[test]
    fn parts_are_gathered_in_order() {
        let parts = [Buf::copy_from(b"one"), Buf::default(), Buf::copy_from(b"two")];
        assert_eq!(Bounce::gather(&parts).bytes(), b"onetwo");
    }

    #[test]
    fn a_part_that_ends_within_a_page_may_only_be_the_last() {
        let (page, short) = (Buf::zeroed(4096), Buf::zeroed(512));
        assert!(are_aligned_for_direct_io(&[page.clone(), short.clone()]));
        assert!(!are_aligned_for_direct_io(&[short, page.clone()]));
        assert!(!are_aligned_for_direct_io(&[page.slice(1..)]));
    }
}
