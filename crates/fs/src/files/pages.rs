//! The pages of a data file that are in memory: appended bytes, until an extent says where they lie on the device.
//!
//! ```text
//!   append --> tail --full--> in flight --written--> gone: the extents have them
//!                ^                          '------- the part behind the device's last optimal write --.
//!                '-------------------------------------------------------------------------------------'
//! ```

use zoned::{Buf, BufMut};

/// The first buffer of a data file has this many bytes, so that a small file needs no long buffer.
pub(crate) const FIRST_BUFFER_BYTES: usize = 16 << 10;

/// The pages of one data file that are in memory.
#[derive(Debug, Default)]
pub(crate) struct Pages {
    /// The file's bytes being written to the device, by file offset, in order.
    in_flight: Vec<(u64, Buf)>,
    /// The end of the file, not yet being written to the device.
    tail: BufMut,
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

impl Pages {
    /// True if no page of the file is in memory.
    pub(crate) fn is_empty(&self) -> bool {
        self.in_flight.is_empty() && self.tail.is_empty()
    }

    /// Copies the file's bytes at `offset` to the caller, as far as one page holds them.
    pub(crate) fn read(&self, offset: u64, into: &mut [u8]) -> PageLookup {
        let mut free = into.len() as u64;
        let in_flight = self.in_flight.iter().map(|(at, data)| (*at, &**data));
        for (at, data) in in_flight.chain([(self.tail_at, &*self.tail)]).filter(|(_, data)| !data.is_empty())
        {
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

    /// Appends the front of `data` to the file's tail, which ends at `full` bytes. Returns the number of
    /// bytes taken, and the tail once it is full, with its file offset: the caller writes these bytes to the
    /// device and then calls [`written`](Pages::written).
    pub(crate) fn append(&mut self, data: &[u8], full: usize) -> (usize, Option<(u64, Buf)>) {
        if self.tail.is_empty() {
            let first = if self.tail_at == 0 { FIRST_BUFFER_BYTES.min(full) } else { full };
            self.tail = BufMut::with_capacity(first.max(data.len().min(full)));
        }
        let (now, _) = data.split_at(data.len().min(full - self.tail.len()));
        self.tail.extend_from_slice(now);
        if self.tail.len() < full {
            return (now.len(), None);
        }
        let (at, bytes) = (self.tail_at, std::mem::take(&mut self.tail).freeze());
        self.tail_at = at + bytes.len() as u64;
        self.in_flight.push((at, bytes.clone()));
        (now.len(), Some((at, bytes)))
    }

    /// The file's tail with its file offset and its length, followed by zeros up to a whole block; `None` for
    /// an empty tail.
    pub(crate) fn padded_tail(&self, block: usize) -> Option<(u64, Buf, usize)> {
        let len = self.tail.len();
        let mut padded = BufMut::with_capacity(len.next_multiple_of(block));
        padded.extend_from_slice(&self.tail);
        padded.resize(len.next_multiple_of(block), 0);
        (len > 0).then(|| (self.tail_at, padded.freeze(), len))
    }

    /// Ends the write of the bytes in flight from file offset `from` on: extents hold them up to offset
    /// `end`, and the bytes behind `end` return to the tail.
    pub(crate) fn written(&mut self, from: u64, end: u64, full: usize) {
        let Some(index) = self.in_flight.iter().position(|(at, _)| *at == from) else { return };
        let (_, bytes) = self.in_flight.remove(index);
        let behind = usize::try_from(end - from).ok().and_then(|stored| bytes.get(stored..));
        if let Some(behind) = behind.filter(|behind| !behind.is_empty()) {
            self.begin_tail(end, behind, full);
        }
    }

    /// Notes that extents hold the first `len` bytes of the tail. The tail keeps a partial last block: the
    /// next write repeats that block.
    pub(crate) fn tail_written(&mut self, len: usize, block: usize, full: usize) {
        let whole = len / block * block;
        if whole > 0 {
            let tail = std::mem::take(&mut self.tail);
            self.begin_tail(self.tail_at + whole as u64, tail.get(whole..).unwrap_or_default(), full);
        }
    }

    /// Begins a tail at file offset `at` with `bytes`, and reserves memory for `room` bytes.
    pub(crate) fn begin_tail(&mut self, at: u64, bytes: &[u8], room: usize) {
        self.tail = BufMut::with_capacity(room);
        self.tail.extend_from_slice(bytes);
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

    #[test]
    fn bytes_in_flight_and_in_the_tail_are_read_until_they_are_written() {
        let mut pages = Pages::default();
        assert_eq!(pages.append(&[1; 6], 8), (6, None));
        let (taken, full) = pages.append(&[2; 6], 8);
        assert_eq!((taken, full.map(|(at, bytes)| (at, bytes.len()))), (2, Some((0, 8))));
        assert_eq!(pages.append(&[3; 4], 8), (4, None));
        assert_eq!(look_up(&pages, 5, 9), (PageLookup::Hit(3), vec![1, 2, 2, 0, 0, 0, 0, 0, 0]));
        assert_eq!(look_up(&pages, 9, 9).0, PageLookup::Hit(3));
        pages.written(0, 8, 8);
        assert_eq!(look_up(&pages, 5, 9).0, PageLookup::Miss(3), "the tail begins 3 bytes on");
        assert_eq!(look_up(&pages, 12, 9).0, PageLookup::Miss(9));
    }

    #[test]
    fn bytes_behind_the_end_of_a_write_return_to_the_tail() {
        let mut pages = Pages::default();
        assert!(pages.append(&[7; 8], 8).1.is_some());
        pages.written(0, 4, 8);
        assert_eq!(look_up(&pages, 0, 8).0, PageLookup::Miss(4));
        assert_eq!(pages.padded_tail(4).map(|(at, bytes, len)| (at, bytes.len(), len)), Some((4, 4, 4)));
    }

    #[test]
    fn a_written_tail_keeps_its_partial_last_block() {
        let mut pages = Pages::default();
        assert_eq!(pages.append(&[7; 6], 16), (6, None));
        let (at, padded, len) = pages.padded_tail(4).unwrap();
        assert_eq!((at, &*padded, len), (0, &[7, 7, 7, 7, 7, 7, 0, 0][..], 6));
        pages.tail_written(6, 4, 16);
        assert_eq!(pages.padded_tail(4).map(|(at, _, len)| (at, len)), Some((4, 2)));
        assert_eq!(look_up(&pages, 0, 8).0, PageLookup::Miss(4));
    }
}
