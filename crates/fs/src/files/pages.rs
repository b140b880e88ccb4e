//! The pages of a data file that are in memory: appended bytes, until an extent says where they lie on the device.
//!
//! ```text
//!   append --> tail --full--> buffers --written--> gone: the extents have them
//!                ^               '--- the part behind the device's last optimal write stays, or returns to an empty tail
//!                '--- a partial last block stays: the next write repeats it
//! ```

use std::collections::VecDeque;

use zoned::{Buf, BufMut};

/// The first buffer of a data file has this many bytes, so that a small file needs no long buffer.
pub(crate) const FIRST_BUFFER_BYTES: usize = 16 << 10;

/// The pages of one data file that are in memory.
#[derive(Debug, Default)]
pub(crate) struct Pages {
    /// Whole blocks that wait for a write or are being written, by file offset, in order: each begins where the one before ends, and the tail
    /// begins where the last one ends.
    buffers: VecDeque<(u64, Buf)>,
    /// The end of the file.
    tail: BufMut,
    /// Number of bytes that the tail has room for. The buffer of the tail may have a little more.
    tail_room: usize,
    /// The file offset at which the tail begins: a multiple of the block size.
    tail_at: u64,
}

/// The outcome of looking up a file offset in the pages in memory.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum PageLookup {
    /// This many bytes were copied from the pages.
    Hit(usize),
    /// No page holds the offset, nor this many bytes from the offset on.
    Miss(u64),
}

/// A part of a file to write to the device.
#[derive(Clone, Debug)]
pub(crate) struct Piece {
    /// The file offset of the first byte.
    pub at: u64,
    /// The file's bytes, followed by zeros up to a whole block.
    pub data: Buf,
    /// Number of the file's bytes in `data`.
    pub bytes: u64,
    /// True if the piece reaches the end of the pages: all of it is written. Otherwise a part behind the device's last optimal write may stay in memory.
    pub is_end: bool,
}

impl Pages {
    /// True if no page of the file is in memory.
    pub(crate) fn is_empty(&self) -> bool {
        self.buffers.is_empty() && self.tail.is_empty()
    }

    /// The file offset behind the last page.
    pub(crate) fn end(&self) -> u64 {
        self.tail_at + self.tail.len() as u64
    }

    /// Copies the file's bytes at `offset` to the caller, as far as one page holds them.
    pub(crate) fn read(&self, offset: u64, into: &mut [u8]) -> PageLookup {
        let mut free = into.len() as u64;
        let buffers = self.buffers.iter().map(|(at, data)| (*at, &**data));
        for (at, data) in buffers.chain([(self.tail_at, &*self.tail)]).filter(|(_, data)| !data.is_empty()) {
            if at > offset {
                free = free.min(at - offset);
                continue;
            }
            let skip = usize::try_from(offset - at).unwrap_or(usize::MAX);
            let held = data.get(skip..).unwrap_or_default();
            if !held.is_empty() {
                let len = held.len().min(into.len());
                if let (Some(to), Some(from)) = (into.get_mut(..len), held.get(..len)) {
                    to.copy_from_slice(from);
                }
                return PageLookup::Hit(len);
            }
        }
        PageLookup::Miss(free)
    }

    /// Appends the front of `data` to the file's tail, which is full at `full` bytes and then becomes a buffer. Returns the number of bytes taken.
    /// `buffer` makes an empty buffer with room for a number of bytes.
    pub(crate) fn append(&mut self, data: &[u8], full: usize, buffer: impl FnOnce(usize) -> BufMut) -> usize {
        let (now, _) = data.split_at(data.len().min(full.saturating_sub(self.tail.len())));
        let needed = self.tail.len() + now.len();
        if self.tail.is_empty() || needed > self.tail_room {
            // A buffer that grows in place would lose the alignment that direct I/O wants.
            let first = if self.tail_at == 0 { FIRST_BUFFER_BYTES } else { full };
            let room = if self.tail.is_empty() { first } else { 2 * self.tail_room };
            let room = room.max(needed).min(full.max(needed));
            let mut longer = buffer(room);
            longer.extend_from_slice(&self.tail);
            (self.tail, self.tail_room) = (longer, room);
        }
        self.tail.extend_from_slice(now);
        if self.tail.len() >= full {
            let bytes = std::mem::take(&mut self.tail).freeze();
            let at = self.tail_at;
            self.tail_at += bytes.len() as u64;
            self.buffers.push_back((at, bytes));
        }
        now.len()
    }

    /// True if the buffers hold `full` bytes or more.
    pub(crate) fn has_full_buffer(&self, full: usize) -> bool {
        self.buffers.iter().map(|(_, data)| data.len()).sum::<usize>() >= full
    }

    /// The next part of the file to write: a buffer of `full` bytes or more, or else, if `everything` is asked for, all that is left. `None` if nothing
    /// is to be written. The bytes stay in memory until [`drop_below`](Pages::drop_below).
    ///
    /// An end of up to `longest_copy` bytes is copied. A longer one is written in two pieces, of which the second, the last block, is copied.
    pub(crate) fn next_piece(
        &mut self,
        everything: bool,
        full: usize,
        block: usize,
        longest_copy: usize,
    ) -> Option<Piece> {
        if everything && self.tail.len() > longest_copy {
            let (at, tail) = (self.tail_at, std::mem::take(&mut self.tail).freeze());
            let whole = tail.len() / block * block;
            self.begin_tail(at + whole as u64, tail.get(whole..).unwrap_or_default(), full);
            self.buffers.push_back((at, tail.slice(0..whole)));
        }
        if self.has_full_buffer(full) || everything && self.has_full_buffer(longest_copy) {
            self.join_short_buffer(full);
            let (at, data) = self.buffers.front()?.clone();
            let bytes = data.len() as u64;
            return Some(Piece { at, data, bytes, is_end: false });
        }
        let at = self.buffers.front().map_or(self.tail_at, |(at, _)| *at);
        let len = usize::try_from(self.end() - at).expect("pages are in memory");
        if !everything || len == 0 {
            return None;
        }
        let mut data = BufMut::with_capacity(len.next_multiple_of(block));
        for (_, buffer) in &self.buffers {
            data.extend_from_slice(buffer);
        }
        data.extend_from_slice(&self.tail);
        data.resize(len.next_multiple_of(block), 0);
        Some(Piece { at, data: data.freeze(), bytes: len as u64, is_end: true })
    }

    /// Joins a first buffer that is shorter than `full` bytes with the second one.
    fn join_short_buffer(&mut self, full: usize) {
        let is_short =
            self.buffers.front().is_some_and(|(_, first)| first.len() < full) && self.buffers.len() > 1;
        if is_short
            && let (Some((at, first)), Some((_, second))) =
                (self.buffers.pop_front(), self.buffers.pop_front())
        {
            let mut both = BufMut::with_capacity(first.len() + second.len());
            both.extend_from_slice(&first);
            both.extend_from_slice(&second);
            self.buffers.push_front((at, both.freeze()));
        }
    }

    /// Drops the bytes below file offset `end`, a multiple of the block size: extents hold them.
    pub(crate) fn drop_below(&mut self, end: u64, full: usize) {
        while let Some((at, data)) = self.buffers.pop_front() {
            let below = usize::try_from(end.saturating_sub(at)).unwrap_or(usize::MAX).min(data.len());
            if below < data.len() {
                self.buffers.push_front((at + below as u64, data.slice(below..data.len())));
                break;
            }
        }
        if self.buffers.is_empty() && end > self.tail_at {
            let below = usize::try_from(end - self.tail_at).unwrap_or(usize::MAX);
            let tail = std::mem::take(&mut self.tail);
            self.begin_tail(end, tail.get(below..).unwrap_or_default(), full);
        } else if self.tail.is_empty()
            && !self.has_full_buffer(full)
            && self.buffers.len() == 1
            && let Some((at, data)) = self.buffers.pop_front()
        {
            self.begin_tail(at, &data, full);
        }
    }

    /// Begins a tail at file offset `at` with `bytes`, and reserves memory for `room` bytes.
    pub(crate) fn begin_tail(&mut self, at: u64, bytes: &[u8], room: usize) {
        let room = room.max(bytes.len());
        self.tail = BufMut::with_capacity(room);
        self.tail.extend_from_slice(bytes);
        self.tail_room = room;
        self.tail_at = at;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn look_up(pages: &Pages, offset: u64, len: usize) -> (PageLookup, Vec<u8>) {
        let mut into = vec![0; len];
        (pages.read(offset, &mut into), into)
    }

    fn next(pages: &mut Pages, everything: bool) -> Option<(u64, usize, u64, bool)> {
        let piece = pages.next_piece(everything, 8, 4, 100)?;
        Some((piece.at, piece.data.len(), piece.bytes, piece.is_end))
    }

    #[test]
    fn bytes_in_buffers_and_in_the_tail_are_read_until_they_are_written() {
        let mut pages = Pages::default();
        assert_eq!((pages.append(&[1; 6], 8, BufMut::with_capacity), next(&mut pages, false)), (6, None));
        assert_eq!(
            (pages.append(&[2; 6], 8, BufMut::with_capacity), next(&mut pages, false)),
            (2, Some((0, 8, 8, false)))
        );
        assert_eq!((pages.append(&[3; 4], 8, BufMut::with_capacity), pages.end()), (4, 12));
        assert_eq!(look_up(&pages, 5, 9), (PageLookup::Hit(3), vec![1, 2, 2, 0, 0, 0, 0, 0, 0]));
        assert_eq!(look_up(&pages, 9, 9).0, PageLookup::Hit(3));
        pages.drop_below(8, 8);
        assert_eq!(look_up(&pages, 5, 9).0, PageLookup::Miss(3), "the tail begins 3 bytes on");
        assert_eq!(look_up(&pages, 12, 9).0, PageLookup::Miss(9));
    }

    #[test]
    fn bytes_behind_the_end_of_a_write_return_to_an_empty_tail() {
        let mut pages = Pages::default();
        assert_eq!(pages.append(&[7; 8], 8, BufMut::with_capacity), 8);
        pages.drop_below(4, 8);
        assert_eq!(look_up(&pages, 0, 8).0, PageLookup::Miss(4));
        assert_eq!(next(&mut pages, true), Some((4, 4, 4, true)));
        assert_eq!(
            (pages.append(&[8; 8], 8, BufMut::with_capacity), next(&mut pages, false)),
            (4, Some((4, 8, 8, false)))
        );
    }

    #[test]
    fn bytes_behind_the_end_of_a_write_are_joined_with_the_next_buffer() {
        let mut pages = Pages::default();
        assert_eq!(
            (
                pages.append(&[7; 8], 8, BufMut::with_capacity),
                pages.append(&[8; 2], 8, BufMut::with_capacity)
            ),
            (8, 2)
        );
        pages.drop_below(4, 8);
        assert_eq!(next(&mut pages, false), None, "less than a buffer");
        assert_eq!(next(&mut pages, true), Some((4, 8, 6, true)));
        assert_eq!(
            (pages.append(&[9; 6], 8, BufMut::with_capacity), next(&mut pages, false)),
            (6, Some((4, 12, 12, false)))
        );
        assert_eq!(look_up(&pages, 7, 3), (PageLookup::Hit(3), vec![7, 8, 8]));
        pages.drop_below(16, 8);
        assert!(pages.is_empty());
    }

    #[test]
    fn a_written_tail_keeps_its_partial_last_block() {
        let mut pages = Pages::default();
        assert_eq!(pages.append(&[7; 6], 16, BufMut::with_capacity), 6);
        let piece = pages.next_piece(true, 16, 4, 100).unwrap();
        assert_eq!((piece.at, &*piece.data, piece.bytes), (0, &[7, 7, 7, 7, 7, 7, 0, 0][..], 6));
        pages.drop_below(4, 16);
        assert_eq!(pages.next_piece(true, 16, 4, 100).map(|piece| (piece.at, piece.bytes)), Some((4, 2)));
        assert_eq!(look_up(&pages, 0, 8).0, PageLookup::Miss(4));
    }

    #[test]
    fn a_long_end_is_written_without_its_last_block_first() {
        let (full, block) = (1 << 20, 4096);
        let content: Vec<u8> = (0..200_000_u32).map(|n| (n / 7) as u8).collect();
        let mut pages = Pages::default();
        assert_eq!(pages.append(&content, full, BufMut::with_capacity), 200_000);
        let mut written = Vec::new();
        for _ in 0..2 {
            let piece = pages.next_piece(true, full, block, 64 << 10).unwrap();
            assert_eq!(piece.at as usize, written.len());
            written.extend_from_slice(piece.data.get(..piece.bytes as usize).unwrap());
            let end = written.len() as u64;
            pages.drop_below(end - end % block as u64, full);
        }
        assert!(written == content);
    }
}
