//! Write-behind of a descriptor: written bytes go to the drive in pieces, so that few are dirty.
//!
//! The requests of the kernel's flushers have no I/O priority. So the thread that writes bulk starts the write-back of each piece itself, at its own
//! priority, and waits for the piece before.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// Bytes of a piece. Where the kernel tells of write-back, two pieces of a descriptor are dirty at most: one that is filled and one that is written back.
pub const PIECE_BYTES: u64 = 1 << 20;

/// Bytes of a file from `start` to `end`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Extent {
    /// The first byte.
    pub start: u64,
    /// The byte behind the last one.
    pub end: u64,
}

impl Extent {
    /// The length.
    pub fn bytes(self) -> u64 {
        self.end.saturating_sub(self.start)
    }
}

/// The write-back that a full piece makes due.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct FullPiece {
    /// The extent whose write-back begins.
    pub begin: Extent,
    /// The extent whose write-back is waited for afterwards.
    pub wait_for: Option<Extent>,
}

/// The pieces of one descriptor.
///
/// The fields are atomics and not locked: two threads that write through one descriptor at once may make a piece too long or too short, which changes
/// when bytes go to the drive and nothing else.
#[derive(Debug, Default)]
pub struct Pieces {
    bytes: AtomicU64,
    start: AtomicU64,
    end: AtomicU64,
    last_start: AtomicU64,
    last_end: AtomicU64,
}

impl Pieces {
    /// Pieces of a descriptor through which nothing was written.
    pub const fn new() -> Pieces {
        Pieces {
            bytes: AtomicU64::new(0),
            start: AtomicU64::new(0),
            end: AtomicU64::new(0),
            last_start: AtomicU64::new(0),
            last_end: AtomicU64::new(0),
        }
    }

    /// Takes note of `bytes` that were written at `offset`.
    pub fn wrote(&self, offset: u64, bytes: u64) -> Option<FullPiece> {
        if bytes == 0 {
            return None;
        }
        let end = offset.saturating_add(bytes);
        let before = self.bytes.fetch_add(bytes, Relaxed);
        if before == 0 {
            self.start.store(offset, Relaxed);
            self.end.store(end, Relaxed);
        } else {
            self.start.fetch_min(offset, Relaxed);
            self.end.fetch_max(end, Relaxed);
        }
        if before + bytes < PIECE_BYTES {
            return None;
        }
        self.bytes.store(0, Relaxed);
        let begin = Extent { start: self.start.load(Relaxed), end: self.end.load(Relaxed) };
        let last = Extent {
            start: self.last_start.swap(begin.start, Relaxed),
            end: self.last_end.swap(begin.end, Relaxed),
        };
        Some(FullPiece { begin, wait_for: (last.end > last.start).then_some(last) })
    }

    /// Takes note that nothing is dirty: the file was synced, or the descriptor is another file's.
    pub fn clear(&self) {
        for field in [&self.bytes, &self.start, &self.end, &self.last_start, &self.last_end] {
            field.store(0, Relaxed);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const KIB: u64 = 1 << 10;

    #[test]
    fn a_full_piece_begins_and_the_piece_before_is_waited_for() {
        let pieces = Pieces::new();
        let mut full = Vec::new();
        for write in 0..48 {
            full.extend(pieces.wrote(write * 64 * KIB, 64 * KIB));
        }
        let extent = |piece: u64| Extent { start: piece * PIECE_BYTES, end: (piece + 1) * PIECE_BYTES };
        assert_eq!(
            full,
            [
                FullPiece { begin: extent(0), wait_for: None },
                FullPiece { begin: extent(1), wait_for: Some(extent(0)) },
                FullPiece { begin: extent(2), wait_for: Some(extent(1)) },
            ]
        );
    }

    #[test]
    fn a_piece_of_scattered_writes_reaches_from_the_first_to_the_last() {
        let pieces = Pieces::new();
        assert_eq!(pieces.wrote(900 * KIB, 600 * KIB), None);
        let full = pieces.wrote(100 * KIB, 500 * KIB).unwrap();
        assert_eq!(full.begin, Extent { start: 100 * KIB, end: 1500 * KIB });
    }

    #[test]
    fn a_synced_file_has_no_piece_to_wait_for() {
        let pieces = Pieces::new();
        assert!(pieces.wrote(0, PIECE_BYTES).is_some());
        pieces.clear();
        assert_eq!(pieces.wrote(PIECE_BYTES, PIECE_BYTES).unwrap().wait_for, None);
    }
}
