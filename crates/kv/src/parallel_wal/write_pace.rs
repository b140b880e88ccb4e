//! Slows writers down before RocksDB stops them.

use std::time::Duration;

use units::Instant;

/// Makes room in memtables last until the flush under way is done.
///
/// RocksDB takes writes at full speed until its memtables are full, and then stops all writers until a flush is done. Where the log is faster than a flush, as on drives whose zones are slower than the drive, a few writers in each memtable wait for most of a flush. The pace lets each write
/// wait a little instead: as long as a flush is under way, writes take the room that is left at such a rate that it is used up when the flush is expected to be done. What a flush takes is learnt from the one before.
///
/// No promise rests on it: where the expectation is wrong, RocksDB stops writers as it would without.
#[derive(Debug)]
pub(super) struct WritePace {
    /// Bytes that memtables may take until RocksDB slows writers down or stops them.
    limit: u64,
    /// Bytes of the least flush that says how long others take: a small one takes what its syncs take.
    telling: u64,
    flush: Option<Flush>,
    /// Time that the last flush took for a byte of memtables, in nanoseconds.
    nanos_per_byte: Option<f64>,
    /// Bytes of all memtables, as far as known.
    used: u64,
    /// Bytes that were written since RocksDB was asked for `used`.
    since_asked: u64,
    /// When the writes that were let go are through, at the pace.
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
    /// Bytes of all memtables at the first write since then.
    bytes: Option<u64>,
}

/// Bytes of writes after which RocksDB is asked again how large its memtables are.
const ASK_EVERY: u64 = 64 << 10;
/// Bytes that may go at once: writers that come together need not wait if they are slow on the whole.
const BURST: f64 = 64.0 * 1024.0;
/// A flush that is late is expected to take this part of its time still.
const LATE: f64 = 0.1;
/// Writes go at this part of the flush's rate at least.
const LEAST_RATE: f64 = 0.25;
/// A flush that takes so many times as long as expected has failed, or waits for something else: writes do not wait for it.
const GIVEN_UP: f64 = 8.0;

impl WritePace {
    /// The pace of a database whose memtables, of `memtable` bytes each, may take `limit` bytes in all.
    pub(super) fn new(Memtables { memtable, limit }: Memtables) -> WritePace {
        WritePace {
            limit,
            telling: memtable / 2,
            flush: None,
            nanos_per_byte: None,
            used: 0,
            since_asked: ASK_EVERY,
            through: Instant::ORIGIN,
        }
    }

    /// True if writes may have to wait.
    pub(super) fn is_flushing(&self) -> bool {
        self.flush.is_some()
    }

    /// A flush begins.
    pub(super) fn flush_begins(&mut self, now: Instant) {
        self.flush = Some(Flush { began: now, bytes: None });
        self.since_asked = ASK_EVERY;
    }

    /// The flush is done.
    pub(super) fn flush_ends(&mut self, now: Instant) {
        if let Some(Flush { began, bytes: Some(bytes) }) = self.flush.take()
            && bytes >= self.telling.max(1)
        {
            self.nanos_per_byte = Some(now.since(began).as_nanos() as f64 / bytes as f64);
        }
    }

    /// When a write of `bytes` may begin. `memtables`: the bytes of all memtables now.
    pub(super) fn admit(&mut self, now: Instant, bytes: u64, memtables: impl FnOnce() -> u64) -> Instant {
        let Some(flush) = &mut self.flush else { return now };
        if self.since_asked >= ASK_EVERY {
            self.used = memtables();
            self.since_asked = 0;
        }
        self.since_asked += bytes;
        let flushed = *flush.bytes.get_or_insert(self.used);
        let Some(nanos_per_byte) = self.nanos_per_byte else { return now };
        let expected = nanos_per_byte * flushed as f64;
        let passed = now.since(flush.began).as_nanos() as f64;
        if passed > expected * GIVEN_UP {
            return now;
        }
        let left = (expected - passed).max(expected * LATE);
        let room = self.limit.saturating_sub(self.used + self.since_asked) as f64;
        let nanos = (left / room.max(1.0)).min(nanos_per_byte / LEAST_RATE);
        let time = |bytes: f64| Duration::from_nanos((nanos * bytes) as u64);
        let earliest = Instant(now.0.saturating_sub(time(BURST).as_nanos() as u64));
        let begins = self.through.max(earliest);
        self.through = begins.after(time(bytes as f64));
        begins.max(now)
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
        assert_eq!(pace.admit(at(0), 0, || 4 * MIB), at(0), "nothing is known of a flush");
        pace.flush_ends(at(40));
        pace.flush_begins(at(100));
        pace
    }

    /// Writers that write as fast as they may, one after the other: the time at which 4 MiB are used up.
    fn fill(pace: &mut WritePace, write: u64) -> Instant {
        let (mut now, mut used) = (at(100), 4 * MIB);
        while used < 8 * MIB {
            now = pace.admit(now, write, || used);
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
                assert_eq!(pace.admit(now, 4096, || used), now, "round {n}");
            }
        }
        pace.flush_ends(at(140));
        assert_eq!(pace.admit(at(140), MIB, || unreachable!("nothing is flushed")), at(140));
    }

    #[test]
    fn a_small_flush_says_nothing_about_others() {
        let mut pace = flushing();
        pace.flush_ends(at(140));
        pace.flush_begins(at(200));
        pace.since_asked = ASK_EVERY;
        assert_eq!(pace.admit(at(200), 0, || 100), at(200));
        pace.flush_ends(at(210));
        pace.flush_begins(at(300));
        pace.admit(at(300), 512 << 10, || 4 * MIB);
        // By the small flush a byte would take 100 us.
        let due = pace.admit(at(300), 0, || 4 * MIB);
        assert!(due < at(310), "{due:?}");
    }

    #[test]
    fn a_late_flush_lets_a_quarter_of_its_rate_go_at_least_and_a_failed_one_all() {
        let mut pace = flushing();
        let late = at(150);
        // The first 64 KiB go at once, as those of writers that come together.
        assert_eq!(pace.admit(late, 64 << 10, || 8 * MIB), late);
        let first = pace.admit(late, 64 << 10, || 8 * MIB);
        let second = pace.admit(late, 64 << 10, || 8 * MIB);
        // 64 KiB at 25 MiB/s.
        assert_eq!(second.since(first), Duration::from_micros(2_500));
        assert_eq!(pace.admit(at(500), MIB, || 8 * MIB), at(500));
    }
}
