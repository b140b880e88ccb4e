//! Buffers that are owned by I/O operations.
//!
//! Fresh buffers are aligned to [`ALIGN`] bytes for direct I/O. Splitting and sharing copy nothing.

use std::ops::{Deref, DerefMut, RangeBounds};

use bytes::{Bytes, BytesMut};

/// The alignment of a fresh buffer's first byte.
pub(crate) const ALIGN: usize = 4096;

/// A shared, read-only buffer for writes. Cloning and slicing copy nothing.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct Buf(Bytes);

/// An exclusive buffer for reads. Splitting the buffer lets several reads fill parts of it.
#[derive(Debug, PartialEq, Eq, Default)]
pub struct BufMut(BytesMut);

impl Buf {
    /// A copy of `data` in a fresh, aligned buffer.
    pub fn copy_from(data: &[u8]) -> Buf {
        let mut buf = BufMut::with_capacity(data.len());
        buf.extend_from_slice(data);
        buf.freeze()
    }

    /// `parts` one behind the other, in a fresh, aligned buffer; a single part is not copied.
    pub fn joined(mut parts: Vec<Buf>) -> Buf {
        if parts.len() == 1
            && let Some(only) = parts.pop()
        {
            return only;
        }
        let mut whole = BufMut::with_capacity(parts.iter().map(|part| part.len()).sum());
        parts.iter().for_each(|part| whole.extend_from_slice(part));
        whole.freeze()
    }

    /// A buffer of `len` zero bytes.
    pub fn zeroed(len: usize) -> Buf {
        BufMut::zeroed(len).freeze()
    }

    /// A part of this buffer. Panics if the range is not within the buffer.
    pub fn slice(&self, range: impl RangeBounds<usize>) -> Buf {
        Buf(self.0.slice(range))
    }

    /// Converts back to an exclusive buffer, if no other `Buf` shares it.
    pub fn try_into_mut(self) -> Result<BufMut, Buf> {
        self.0.try_into_mut().map(BufMut).map_err(Buf)
    }
}

impl BufMut {
    /// An aligned buffer of `len` zero bytes.
    pub fn zeroed(len: usize) -> BufMut {
        let mut whole = BytesMut::zeroed(len + ALIGN);
        let skip = whole.as_ptr().align_offset(ALIGN).min(ALIGN);
        let mut aligned = whole.split_off(skip);
        aligned.truncate(len);
        BufMut(aligned)
    }

    /// An empty buffer, aligned, with room for `capacity` bytes.
    pub fn with_capacity(capacity: usize) -> BufMut {
        let mut whole = BytesMut::with_capacity(capacity + ALIGN);
        let skip = whole.as_ptr().align_offset(ALIGN).min(ALIGN);
        whole.resize(skip, 0);
        BufMut(whole.split_off(skip))
    }

    /// Appends bytes.
    pub fn extend_from_slice(&mut self, data: &[u8]) {
        self.0.extend_from_slice(data);
    }

    /// Makes the buffer `len` bytes long; new bytes are `value`.
    pub fn resize(&mut self, len: usize, value: u8) {
        self.0.resize(len, value);
    }

    /// Truncates the buffer to `len` bytes; the capacity stays.
    pub fn truncate(&mut self, len: usize) {
        self.0.truncate(len);
    }

    /// Splits off the first `len` bytes. Panics if there are fewer.
    pub fn split_to(&mut self, len: usize) -> BufMut {
        BufMut(self.0.split_to(len))
    }

    /// Appends a part that was split off this buffer, without a copy if the part is adjacent in memory.
    pub fn unsplit(&mut self, tail: BufMut) {
        self.0.unsplit(tail.0);
    }

    /// Shares the buffer.
    pub fn freeze(self) -> Buf {
        Buf(self.0.freeze())
    }
}

impl Deref for Buf {
    type Target = [u8];
    fn deref(&self) -> &[u8] {
        &self.0
    }
}

impl Deref for BufMut {
    type Target = [u8];
    fn deref(&self) -> &[u8] {
        &self.0
    }
}

impl DerefMut for BufMut {
    fn deref_mut(&mut self) -> &mut [u8] {
        &mut self.0
    }
}

impl From<Bytes> for Buf {
    fn from(bytes: Bytes) -> Buf {
        Buf(bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_fresh_buffer_is_aligned() {
        for len in [1, 512, 4096, 1 << 20] {
            assert_eq!(BufMut::zeroed(len).as_ptr().align_offset(ALIGN), 0);
            assert_eq!(Buf::copy_from(&vec![7; len]).as_ptr().align_offset(ALIGN), 0);
        }
    }

    #[test]
    fn parts_of_a_buffer_join_again_without_a_copy() {
        let mut whole = BufMut::zeroed(8192);
        let at = whole.as_ptr();
        let mut head = whole.split_to(4096);
        head.fill(1);
        whole.fill(2);
        head.unsplit(whole);
        assert_eq!((head.as_ptr(), head.len(), head.first(), head.last()), (at, 8192, Some(&1), Some(&2)));
    }

    #[test]
    fn a_shared_buffer_is_exclusive_again_when_the_others_let_go() {
        let buf = BufMut::zeroed(4096).freeze();
        let other = buf.clone();
        let buf = buf.try_into_mut().expect_err("the other one still reads");
        drop(other);
        assert_eq!(buf.try_into_mut().map(|b| b.len()), Ok(4096));
    }
}
