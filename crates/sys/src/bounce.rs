//! Aligned memory for data that direct I/O would refuse where it lies.

use parking_lot::Mutex;

use crate::{Buf, BufMut};

/// The alignment of data that goes to the kernel as it is. The strictest of the block layer's rules: most devices
/// ask for less, but none says so where it costs nothing to look.
pub(crate) const DIRECT: usize = 4096;
/// As many parts go to the kernel in one write as they are (`IOV_MAX`).
pub(crate) const MAX_PARTS: usize = 1024;
/// The smallest and the largest buffer that is kept. A fresh buffer costs page faults: 57 us for 128 KiB.
const SMALLEST: usize = 4096;
const LARGEST: usize = 1 << 20;
/// What is kept at most for each size.
const KEPT_BYTES: usize = 4 << 20;
const SIZES: usize = (LARGEST / SMALLEST).trailing_zeros() as usize + 1;

/// Buffers that nobody uses, by size: powers of two from [`SMALLEST`] to [`LARGEST`].
static KEPT: [Mutex<Vec<BufMut>>; SIZES] = [const { Mutex::new(Vec::new()) }; SIZES];

/// An aligned buffer of a given length, with any content; the pool gets it back.
pub(crate) struct Bounce {
    whole: BufMut,
    len: usize,
}

impl Bounce {
    pub(crate) fn new(len: usize) -> Bounce {
        let size = len.next_power_of_two().max(SMALLEST);
        let kept = size_index(size).and_then(|index| KEPT.get(index)).and_then(|kept| kept.lock().pop());
        Bounce { whole: kept.unwrap_or_else(|| BufMut::zeroed(size)), len }
    }

    /// A buffer with a copy of `parts`.
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
        if (kept.len() + 1) * size <= KEPT_BYTES {
            kept.push(std::mem::take(&mut self.whole));
        }
    }
}

fn size_index(size: usize) -> Option<usize> {
    (size <= LARGEST).then(|| (size / SMALLEST).trailing_zeros() as usize)
}

/// Whether these bytes may go to the kernel where they lie. Their length is the caller's affair: direct I/O wants
/// whole blocks, and only the device knows how long they are.
pub(crate) fn is_direct(bytes: &[u8]) -> bool {
    bytes.as_ptr().addr().is_multiple_of(DIRECT)
}

/// Whether these parts may go to the kernel as one vectored write: each but the last must end where a block may
/// begin, or the device would see a torn block.
pub(crate) fn are_direct(parts: &[Buf]) -> bool {
    let Some((last, others)) = parts.split_last() else { return true };
    parts.len() <= MAX_PARTS
        && is_direct(last)
        && others.iter().all(|part| is_direct(part) && part.len().is_multiple_of(DIRECT))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bounce_buffer_is_aligned_and_as_long_as_asked_for() {
        for len in [1, 511, 4096, 4097, 1 << 20, (1 << 20) + 1] {
            let mut bounce = Bounce::new(len);
            assert!(is_direct(bounce.bytes()));
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
        assert!(are_direct(&[page.clone(), short.clone()]));
        assert!(!are_direct(&[short, page.clone()]));
        assert!(!are_direct(&[page.slice(1..)]));
    }
}
