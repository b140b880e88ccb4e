//! Read-ahead: which misses of a reader continue a sequential read, and how far to read on.
//!
//! A sequential read misses the page cache where its last read from the device ended, or a little behind: pages there may be in memory. Each
//! such miss reads on for twice as long as the one before, from [`FIRST_WINDOW`] to the longest read.

use parking_lot::Mutex;

/// Bytes that the first miss which continues a stream reads.
const FIRST_WINDOW: u64 = 64 << 10;

/// How far behind the end of a stream's last read the miss may lie that continues the stream, in bytes.
const SLACK: u64 = 32 << 10;

/// Number of sequential reads that one reader tells apart.
const STREAMS: usize = 4;

/// The order in which a reader says that it will read a file.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub enum AccessPattern {
    /// The reader has announced no order: the page cache finds sequential reads by their misses.
    #[default]
    Unknown,
    /// Each read at another offset: nothing is read ahead.
    Random,
    /// From some offset on to the end: the first miss already reads ahead as far as the longest read.
    Sequential,
}

/// How far a miss reads on.
#[derive(Clone, Copy, Debug)]
pub(super) enum Ahead<'a> {
    /// As far as the reader's sequential reads pay.
    Streams(&'a Streams),
    /// Up to this file offset.
    UpTo(u64),
}

impl Ahead<'_> {
    /// Bytes to read from the page at file offset `page` on, at most `longest`.
    pub(super) fn window(self, page: u64, longest: u64) -> u64 {
        match self {
            Ahead::Streams(streams) => streams.window(page, longest),
            Ahead::UpTo(end) => end.saturating_sub(page).min(longest),
        }
    }

    /// Notes a read from the device that began with the page at `page` and ended at file offset `end`.
    pub(super) fn note(self, page: u64, end: u64, longest: u64) {
        if let Ahead::Streams(streams) = self {
            streams.note(page, end, longest);
        }
    }
}

/// A read that may be sequential.
#[derive(Clone, Copy, Default, Debug)]
struct Stream {
    /// The file offset behind the last read from the device.
    end: u64,
    /// Bytes that the next read takes, if it continues the stream.
    window: u64,
}

impl Stream {
    /// True if a miss of the page at `page` continues the stream.
    fn continues_at(&self, page: u64) -> bool {
        self.window > 0 && page.checked_sub(self.end).is_some_and(|behind| behind <= SLACK)
    }
}

/// The reads of one reader that may be sequential.
#[derive(Debug, Default)]
pub(crate) struct Streams(Mutex<ReaderStreams>);

#[derive(Debug, Default)]
struct ReaderStreams {
    pattern: AccessPattern,
    /// The streams of the reader, the newest last.
    streams: [Stream; STREAMS],
}

impl Streams {
    /// From now on the reader reads in the order `pattern`.
    pub(super) fn expect(&self, pattern: AccessPattern) {
        self.0.lock().pattern = pattern;
    }

    /// Bytes to read from the page at file offset `page` on, which is not in memory. At most `longest`; 0 where the miss continues no
    /// stream, and the reader takes what was asked for.
    pub(super) fn window(&self, page: u64, longest: u64) -> u64 {
        let reader = self.0.lock();
        match reader.pattern {
            AccessPattern::Random => return 0,
            AccessPattern::Sequential => return longest,
            AccessPattern::Unknown => {}
        }
        let stream = reader.streams.iter().rev().find(|stream| stream.continues_at(page));
        stream.map_or(0, |stream| stream.window.min(longest))
    }

    /// Notes a read from the device that began with the page at `page` and ended at file offset `end`.
    pub(super) fn note(&self, page: u64, end: u64, longest: u64) {
        let streams = &mut self.0.lock().streams;
        let at = streams.iter().rposition(|stream| stream.continues_at(page));
        let window = at.and_then(|at| streams.get(at)).map_or(FIRST_WINDOW, |stream| stream.window * 2);
        // The stream becomes the newest; a new one takes the place of the oldest.
        if let Some(older) = streams.get_mut(at.unwrap_or_default()..) {
            older.rotate_left(1);
        }
        if let Some(newest) = streams.last_mut() {
            *newest = Stream { end, window: window.min(longest.max(FIRST_WINDOW)) };
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LONGEST: u64 = 256 << 10;

    /// Reads a page from the device, and returns the number of bytes that the stream reads.
    fn miss(streams: &Streams, page: u64) -> u64 {
        let window = streams.window(page, LONGEST).max(4096);
        streams.note(page, page + window, LONGEST);
        window
    }

    #[test]
    fn a_stream_reads_twice_as_far_each_time() {
        let streams = Streams::default();
        let mut at = 0;
        let mut windows = Vec::new();
        for _ in 0..6 {
            let window = miss(&streams, at);
            windows.push(window >> 10);
            at += window;
        }
        assert_eq!(windows, [4, 64, 128, 256, 256, 256]);
    }

    #[test]
    fn random_reads_read_no_further() {
        let streams = Streams::default();
        assert!([0, 81_920, 40_960, 4_096_000].iter().all(|page| miss(&streams, *page) == 4096));
    }

    #[test]
    fn the_announced_order_decides_how_far_a_miss_reads() {
        let streams = Streams::default();
        streams.expect(AccessPattern::Random);
        assert_eq!([0, 4096, 8192, 12_288].map(|page| miss(&streams, page)), [4096; 4]);
        streams.expect(AccessPattern::Sequential);
        assert_eq!(miss(&streams, 1 << 20), LONGEST);
        streams.expect(AccessPattern::Unknown);
        assert_eq!(miss(&streams, 8 << 20), 4096);
    }

    #[test]
    fn streams_beside_each_other_are_told_apart() {
        let streams = Streams::default();
        let mut at = [0, 1 << 20, 2 << 20, 3 << 20];
        for round in 0..3 {
            for at in &mut at {
                let window = miss(&streams, *at);
                assert_eq!(window >> 10, [4, 64, 128][round]);
                *at += window;
            }
        }
    }
}
