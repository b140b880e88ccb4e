//! Read-ahead: which misses of a reader continue a sequential read, and how far to read on.
//!
//! A sequential read misses the page cache where its last read from the device ended, or a little behind: pages there may be in memory. Each
//! such miss reads on for twice as long as the one before, from [`FIRST_WINDOW`] to the longest read.
//!
//! A reader may also announce one pass over the file, after which nobody needs the bytes: a miss of the pass reads as far as the longest read,
//! and the pages behind the pass leave the page cache.

use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::Mutex;
use zoned::IoClass;

use crate::files::pass_buffer::PassBuffer;

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
    /// One pass from the file's beginning to its end, after which the bytes are not needed, as a compaction reads its inputs. A miss of the
    /// pass reads ahead as far as the longest read, and a page leaves the page cache when a read of the pass has reached the page's end. Without a page
    /// cache the reader keeps the last device read of the pass, of 256 KiB, until all of it was asked for. Reads at other offsets are as for `Unknown` and may be in between.
    Once,
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

/// The value of [`Streams::pass`] while no pass was announced.
const NO_PASS: u64 = u64::MAX;

/// The reads of one reader that may be sequential.
#[derive(Debug)]
pub(crate) struct Streams {
    reader: Mutex<ReaderStreams>,
    /// The file offset behind the last read of a pass over the file, or [`NO_PASS`].
    pass: AtomicU64,
    /// The bytes ahead of the pass, in mounts without a page cache.
    pass_buffer: PassBuffer,
}

impl Default for Streams {
    fn default() -> Streams {
        Streams {
            reader: Mutex::default(),
            pass: AtomicU64::new(NO_PASS),
            pass_buffer: PassBuffer::default(),
        }
    }
}

#[derive(Debug, Default)]
struct ReaderStreams {
    pattern: AccessPattern,
    /// The streams of the reader, the newest last.
    streams: [Stream; STREAMS],
}

impl Streams {
    /// From now on the reader reads in the order `pattern`.
    pub(super) fn expect(&self, pattern: AccessPattern) {
        self.reader.lock().pattern = pattern;
        self.pass_buffer.clear();
        let pass = if pattern == AccessPattern::Once { 0 } else { NO_PASS };
        self.pass.store(pass, Ordering::Relaxed);
    }

    /// The bytes ahead of the reader's pass, in mounts without a page cache.
    pub(super) fn pass_buffer(&self) -> &PassBuffer {
        &self.pass_buffer
    }

    /// The class of a read at `offset`: a compaction's, if the read continues a pass over the file.
    pub(super) fn class(&self, offset: u64) -> IoClass {
        let skipped = offset.checked_sub(self.pass.load(Ordering::Relaxed));
        if skipped.is_some_and(|skipped| skipped <= SLACK) { IoClass::Compaction } else { IoClass::Read }
    }

    /// The bytes that a pass over the file no longer needs after a read of `len` bytes at `offset`: the whole pages of `page` bytes up to the
    /// read's end. `None` where the read does not continue a pass, or ends no page.
    ///
    /// A pass continues behind blocks that the engine has in a cache of its own, if these are short.
    pub(super) fn passed(&self, offset: u64, len: usize, page: u64) -> Option<Range<u64>> {
        // Most readers have no pass: the load leaves the cache line shared.
        let pass = self.pass.load(Ordering::Relaxed);
        offset.checked_sub(pass).filter(|skipped| *skipped <= SLACK)?;
        let end = offset.saturating_add(len as u64);
        self.pass.compare_exchange(pass, end, Ordering::Relaxed, Ordering::Relaxed).ok()?;
        Some(pass - pass % page..end - end % page).filter(|range| !range.is_empty())
    }

    /// Bytes to read from the page at file offset `page` on, which is not in memory. At most `longest`; 0 where the miss continues no
    /// stream, and the reader takes what was asked for.
    pub(super) fn window(&self, page: u64, longest: u64) -> u64 {
        // The miss is one of the pass, or near the pass's end.
        let pass = self.pass.load(Ordering::Relaxed);
        if pass != NO_PASS && page.abs_diff(pass) <= SLACK {
            return longest;
        }
        let reader = self.reader.lock();
        match reader.pattern {
            AccessPattern::Random => return 0,
            AccessPattern::Sequential => return longest,
            AccessPattern::Unknown | AccessPattern::Once => {}
        }
        let stream = reader.streams.iter().rev().find(|stream| stream.continues_at(page));
        stream.map_or(0, |stream| stream.window.min(longest))
    }

    /// Notes a read from the device that began with the page at `page` and ended at file offset `end`.
    pub(super) fn note(&self, page: u64, end: u64, longest: u64) {
        let streams = &mut self.reader.lock().streams;
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
    fn a_pass_leaves_whole_pages_behind_it_and_other_reads_none() {
        let streams = Streams::default();
        assert_eq!(streams.passed(0, 8192, 4096), None, "no pass is announced");
        assert_eq!(streams.class(0), IoClass::Read);
        streams.expect(AccessPattern::Once);
        assert_eq!([0, 36_864].map(|at| streams.class(at)), [IoClass::Compaction, IoClass::Read]);
        assert_eq!(streams.passed(0, 3000, 4096), None, "the first page is needed again");
        assert_eq!(streams.passed(36_864, 4096, 4096), None, "another reader's");
        assert_eq!(streams.passed(3000, 6000, 4096), Some(0..8192));
        assert_eq!(streams.passed(9000, 7384, 4096), Some(8192..16_384), "up to the end of a page");
        assert_eq!(streams.passed(3000, 6000, 4096), None, "the pass is further");
        assert_eq!(
            [16_384, 24_576, 1 << 20].map(|page| streams.window(page, LONGEST)),
            [LONGEST, LONGEST, 0]
        );
        assert_eq!(
            streams.passed(16_384 + SLACK, 4096, 4096),
            Some(16_384..53_248),
            "blocks between are elsewhere"
        );
        streams.expect(AccessPattern::Random);
        assert_eq!((streams.passed(53_248, 8192, 4096), streams.class(53_248)), (None, IoClass::Read));
        assert_eq!(streams.window(16_384, LONGEST), 0);
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
