//! Slows writers down before RocksDB stops them.

use std::time::Duration;

use units::Instant;

/// Makes room in memtables last until the flush under way is done.
///
/// RocksDB takes writes at full speed until all memtables but one are full, delays them then, and stops all writers when the last one is full, until a flush is done. Where the log is faster than a flush, as on drives whose zones are slower than the drive, a few writers in each memtable wait for most of a flush. The pace lets each write
/// wait a little instead: as long as a flush is under way, writes take the room that is left at such a rate that it is used up when the flush is expected to be done. What a flush takes for a byte of memtables is learnt from the one before.
///
/// No promise rests on it: where the expectation is wrong, RocksDB stops writers as it would without.
#[derive(Debug)]
pub(super) struct WritePace {
    /// Bytes that memtables may take until RocksDB slows writers down or stops them.
    limit: u64,
    /// Bytes of the smallest flush whose duration is used for others: the duration of a smaller one is mostly that of its syncs.
    least_measured: u64,
    flush: Option<Flush>,
    /// Time that the last flush took for a byte of memtables, in nanoseconds.
    nanos_per_byte: Option<f64>,
    /// Bytes of all memtables, as far as known.
    used: u64,
    /// Bytes that were written since RocksDB was asked for `used`.
    since_asked: u64,
    /// When all admitted writes have had their time at the pace.
    through: Instant,
}

/// How large memtables may become.
#[derive(Clone, Copy, Debug)]
pub struct Memtables {
    /// Bytes of one.
    pub memtable: u64,
    /// Bytes of all, from which on RocksDB slows writers down or stops them.
    pub limit: u64,
}

/// A flush under way.
#[derive(Clone, Copy, Debug)]
struct Flush {
    began: Instant,
    /// Bytes of all memtables by RocksDB's first report since then.
    bytes: Option<u64>,
}

/// Bytes of writes after which RocksDB is asked again how large its memtables are.
const ASK_EVERY: u64 = 64 << 10;
/// Bytes that may go at once: writers that come together need not wait if they are slow on the whole.
const BURST: f64 = 64.0 * 1024.0;
/// A flush that is late is expected to take this part of its time still.
const LATE: f64 = 0.1;
/// A byte of a write waits for as many bytes of the flush at most.
const MOST_PER_BYTE: f64 = 4.0;
/// A flush that takes so many times as long as expected has failed, or waits for something else: writes do not wait for it.
const GIVEN_UP: f64 = 8.0;
/// The longest time that a write waits, whatever is expected.
const LONGEST: Duration = Duration::from_millis(100);

impl WritePace {
    /// The pace of a database whose memtables, of `memtable` bytes each, may take `limit` bytes in all.
    pub(super) fn new(Memtables { memtable, limit }: Memtables) -> WritePace {
        WritePace {
            limit,
            least_measured: memtable / 2,
            flush: None,
            nanos_per_byte: None,
            used: 0,
            since_asked: ASK_EVERY,
            through: Instant::ORIGIN,
        }
    }

    /// True if a flush is under way: writes may have to wait.
    pub(super) fn is_flushing(&self) -> bool {
        self.flush.is_some()
    }

    /// True if [`memtables_are`](WritePace::memtables_are) is to be called before the next [`admit`](WritePace::admit).
    pub(super) fn asks_for_memtables(&self) -> bool {
        self.since_asked >= ASK_EVERY
    }

    /// RocksDB reports that all memtables together have `bytes`.
    pub(super) fn memtables_are(&mut self, bytes: u64) {
        self.used = bytes;
        self.since_asked = 0;
        if let Some(flush) = &mut self.flush {
            flush.bytes.get_or_insert(bytes);
        }
    }

    /// A flush begins. RocksDB reports the begin for each family of a flush: the first report counts.
    pub(super) fn flush_begins(&mut self, now: Instant) {
        let is_under_way = self.flush.is_some_and(|flush| {
            let passed = now.since(flush.began);
            self.expected(&flush)
                .map_or(passed <= LONGEST, |expected| passed.as_nanos() as f64 <= expected * GIVEN_UP)
        });
        if !is_under_way {
            self.flush = Some(Flush { began: now, bytes: None });
            self.since_asked = ASK_EVERY;
            self.through = Instant::ORIGIN;
        }
    }

    /// The flush is done. The next one is expected to take as long for a byte, but at most twice as long as was expected of this one: a process that was stopped meanwhile measured its pause.
    pub(super) fn flush_ends(&mut self, now: Instant) {
        self.through = Instant::ORIGIN;
        if let Some(Flush { began, bytes: Some(bytes) }) = self.flush.take()
            && bytes >= self.least_measured.max(1)
        {
            let taken = now.since(began).as_nanos() as f64 / bytes as f64;
            self.nanos_per_byte = Some(self.nanos_per_byte.map_or(taken, |before| taken.min(before * 2.0)));
        }
    }

    /// The nanoseconds that a flush is expected to take, if that is known.
    fn expected(&self, flush: &Flush) -> Option<f64> {
        Some(self.nanos_per_byte? * flush.bytes? as f64)
    }

    /// When a write of `bytes` may begin: not after the flush is expected to be done.
    pub(super) fn admit(&mut self, now: Instant, bytes: u64) -> Instant {
        let Some(flush) = self.flush else { return now };
        let room = self.limit.saturating_sub(self.used + self.since_asked) as f64;
        self.since_asked += bytes;
        let Some((expected, nanos_per_byte)) = self.expected(&flush).zip(self.nanos_per_byte) else {
            return now;
        };
        let passed = now.since(flush.began).as_nanos() as f64;
        if passed > expected * GIVEN_UP {
            return now;
        }
        let left = (expected - passed).max(expected * LATE);
        let nanos = (left / room.max(1.0)).min(nanos_per_byte * MOST_PER_BYTE);
        let time = |bytes: f64| Duration::from_nanos((nanos * bytes) as u64);
        let earliest = Instant(now.0.saturating_sub(time(BURST).as_nanos() as u64));
        let latest = now.after(LONGEST.min(Duration::from_nanos(left as u64)));
        let begins = self.through.max(earliest);
        // No write has others wait for longer than the flush is expected to take still.
        self.through = begins.after(time(bytes as f64)).min(latest);
        begins.max(now).min(latest)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: u64 = 1 << 20;
    const TWO: Memtables = Memtables { memtable: 4 * MIB, limit: 8 * MIB };

    fn at(ms: u64) -> Instant {
        Instant::ORIGIN.after(Duration::from_millis(ms))
    }

    /// Two memtables of 4 MiB, a flush of 40 ms behind, and one that began at 100 ms.
    fn flushing() -> WritePace {
        let mut pace = WritePace::new(TWO);
        pace.flush_begins(at(0));
        assert_eq!(admit(&mut pace, at(0), 0, 4 * MIB), at(0), "nothing is known of a flush");
        pace.flush_ends(at(40));
        pace.flush_begins(at(100));
        pace
    }

    fn admit(pace: &mut WritePace, now: Instant, bytes: u64, used: u64) -> Instant {
        if pace.asks_for_memtables() {
            pace.memtables_are(used);
        }
        pace.admit(now, bytes)
    }

    /// Writers that write as fast as they may, one after the other: the time at which 4 MiB are used up.
    fn fill(pace: &mut WritePace, write: u64) -> Instant {
        let (mut now, mut used) = (at(100), 4 * MIB);
        while used < 8 * MIB {
            now = admit(pace, now, write, used);
            used += write;
        }
        now
    }

    #[test]
    fn fast_writers_use_the_room_up_when_the_flush_is_expected_to_be_done() {
        for write in [100, 4096, 70_000] {
            let full = fill(&mut flushing(), write);
            assert!((at(136)..at(150)).contains(&full), "writes of {write} bytes: {full:?}");
        }
    }

    #[test]
    fn slow_writers_and_those_without_a_flush_do_not_wait() {
        let mut pace = flushing();
        // At half the flush's rate, by eight writers at a time.
        for n in 0..64 {
            let now = at(100).after(Duration::from_micros(625 * n));
            for _ in 0..8 {
                let used = 4 * MIB + n * 32_768;
                assert_eq!(admit(&mut pace, now, 4096, used), now, "round {n}");
            }
        }
        pace.flush_ends(at(140));
        assert_eq!(pace.admit(at(140), MIB), at(140));
    }

    #[test]
    fn the_duration_of_a_small_flush_is_not_used_for_others() {
        let mut pace = flushing();
        pace.flush_ends(at(140));
        pace.flush_begins(at(200));
        pace.since_asked = ASK_EVERY;
        assert_eq!(admit(&mut pace, at(200), 0, 100), at(200));
        pace.flush_ends(at(210));
        pace.flush_begins(at(300));
        admit(&mut pace, at(300), 512 << 10, 4 * MIB);
        // By the small flush a byte would take 100 us.
        let due = admit(&mut pace, at(300), 0, 4 * MIB);
        assert!(due < at(310), "{due:?}");
    }

    #[test]
    fn a_late_flush_lets_a_quarter_of_its_rate_go_at_least_and_a_failed_one_all() {
        let mut pace = flushing();
        let late = at(150);
        // The first 64 KiB go at once, as those of writers that come together.
        assert_eq!(admit(&mut pace, late, 64 << 10, 8 * MIB), late);
        let first = admit(&mut pace, late, 64 << 10, 8 * MIB);
        let second = admit(&mut pace, late, 64 << 10, 8 * MIB);
        // 64 KiB at 25 MiB/s.
        assert_eq!(second.since(first), Duration::from_micros(2_500));
        assert_eq!(admit(&mut pace, at(500), MIB, 8 * MIB), at(500));
    }

    #[test]
    fn a_write_larger_than_the_room_keeps_others_no_longer_than_the_flush() {
        let mut pace = flushing();
        assert_eq!(admit(&mut pace, at(100), 64 * MIB, 4 * MIB), at(100));
        assert!(admit(&mut pace, at(101), 100, 4 * MIB) <= at(140));
        // The time that the large write was charged ends with the flush.
        pace.flush_ends(at(141));
        pace.flush_begins(at(142));
        assert_eq!(admit(&mut pace, at(142), 100, 4 * MIB), at(142));
    }

    #[test]
    fn a_flush_of_a_machine_that_stood_still_counts_twice_at_most() {
        let mut pace = flushing();
        admit(&mut pace, at(100), 0, 4 * MIB);
        pace.flush_ends(at(600_100));
        pace.flush_begins(at(600_200));
        for _ in 0..1_000 {
            let due = admit(&mut pace, at(600_200), MIB, 4 * MIB);
            assert!(due <= at(600_280), "{due:?}");
        }
    }

    #[test]
    fn the_first_family_of_a_flush_begins_it() {
        let mut pace = flushing();
        admit(&mut pace, at(100), 0, 4 * MIB);
        pace.flush_begins(at(120));
        pace.flush_ends(at(140));
        // 40 ms as before, and not 20.
        pace.flush_begins(at(200));
        assert_eq!(admit(&mut pace, at(239), 4 * MIB, 8 * MIB), at(239));
        assert!(admit(&mut pace, at(239), 4096, 8 * MIB) > at(239));
        // A flush that failed ends never: the next one counts.
        pace.flush_begins(at(1_000));
        assert_eq!(pace.flush.map(|flush| flush.began), Some(at(1_000)));
    }
}
