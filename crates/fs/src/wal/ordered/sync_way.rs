//! How the bytes that a `sync` waits for become durable: by a durable write (FUA), or by a flush of the drive's cache, by measurement. A flush writes out
//! what everybody else has in the cache: hundreds of mebibytes on a disk beside bulk writes, a second and more.
//!
//! A durable write covers the blocks below it in its zone (docs/crash-safety.md, rule 2), and nothing in other zones. So it can stand for a flush where all of the log's
//! bytes that are not durable yet lie in its zone, and all their writes have been acknowledged.

use units::{Instant, ZoneId};

use crate::rules::Rules;
use crate::wal::latencies::FasterKind;

/// Where the log's bytes lie that the device has or gets, and that are not durable.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Undurable {
    Nowhere,
    In(ZoneId),
    InSeveralZones,
}

/// The choice between durable writes and flushes.
#[derive(Debug)]
pub(super) struct SyncWay {
    rules: Rules,
    undurable: Undurable,
    /// A write and a flush, or a durable write.
    flush_or_durable: FasterKind,
    /// The sync whose time is being measured: the sequence of its entry, whether the entry's write is durable, and the time of its submission.
    running: Option<(u64, bool, Instant)>,
}

impl SyncWay {
    pub(super) fn new(rules: Rules) -> SyncWay {
        SyncWay {
            rules,
            undurable: Undurable::Nowhere,
            flush_or_durable: FasterKind::default(),
            running: None,
        }
    }

    /// True if the write of the entry `sequence` to `zone` is to be durable. A `sync` waits for the entry, no other operation of the log is in flight, and the log
    /// has nothing else to send. `ordered`: a durable block of the zone makes those below it durable.
    pub(super) fn is_durable_write(
        &mut self,
        sequence: u64,
        zone: ZoneId,
        ordered: bool,
        now: Instant,
    ) -> bool {
        let covers = match self.undurable {
            Undurable::Nowhere => true,
            Undurable::In(other) => ordered && other == zone,
            Undurable::InSeveralZones => false,
        };
        if !covers && !self.rules.trusts_durable_writes_of_other_zones() {
            self.running = None;
            return false;
        }
        let durable = !self.flush_or_durable.is_first();
        self.running = Some((sequence, durable, now));
        durable
    }

    /// True if durable writes are the faster way as far as is known.
    pub(super) fn prefers_durable_writes(&self) -> bool {
        !self.flush_or_durable.first_is_faster()
    }

    /// Notes that a write to `zone` was submitted.
    pub(super) fn submitted(&mut self, zone: ZoneId) {
        self.undurable = match self.undurable {
            Undurable::Nowhere => Undurable::In(zone),
            Undurable::In(other) if other == zone => Undurable::In(zone),
            _ => Undurable::InSeveralZones,
        };
    }

    /// Notes that all entries below `sequence` are durable. `all`: no write of a later one was submitted.
    pub(super) fn durable(&mut self, sequence: u64, all: bool, now: Instant) {
        if all {
            self.undurable = Undurable::Nowhere;
        }
        if let Some((_, durable, since)) = self.running.take_if(|(of, ..)| *of < sequence) {
            self.flush_or_durable.took(!durable, now.since(since));
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn a_durable_write_stands_for_a_flush_of_its_own_zone_only() {
        let now = Instant::ORIGIN;
        let [a, b] = [ZoneId(1), ZoneId(2)];
        let way = |zones: &[ZoneId]| {
            let mut way = SyncWay::new(Rules::default());
            // The first sync is a flush.
            way.flush_or_durable.took(true, Duration::from_millis(1));
            zones.iter().for_each(|zone| way.submitted(*zone));
            way
        };
        assert!(way(&[]).is_durable_write(0, a, false, now), "nothing else is at stake");
        assert!(way(&[a, a]).is_durable_write(0, a, true, now));
        assert!(!way(&[a, a]).is_durable_write(0, a, false, now), "a conventional zone");
        assert!(!way(&[b]).is_durable_write(0, a, true, now));
        assert!(!way(&[a, b, a]).is_durable_write(0, a, true, now));
        let mut again = way(&[a, b]);
        again.durable(1, false, now);
        assert!(!again.is_durable_write(2, b, true, now), "a later write to an unknown zone");
        again.durable(3, true, now);
        assert!(again.is_durable_write(4, b, true, now));
    }

    /// The durable writes among 1000 syncs on a drive with these times.
    fn durable_writes(durable: Duration, flush: Duration) -> usize {
        let (mut way, mut now) = (SyncWay::new(Rules::default()), Instant::ORIGIN);
        let syncs = 0..1000;
        let is_durable = |sequence| {
            let is_durable = way.is_durable_write(sequence, ZoneId(1), true, now);
            way.submitted(ZoneId(1));
            now = now.after(if is_durable { durable } else { flush });
            way.durable(sequence + 1, true, now);
            is_durable
        };
        syncs.map(is_durable).filter(|durable| *durable).count()
    }

    #[test]
    fn the_faster_way_is_taken_and_the_other_one_tried_now_and_then() {
        let [short, long] = [20, 1100].map(Duration::from_millis);
        assert_eq!(durable_writes(short, long), 1000 - 7, "two at first, and the trials");
        assert_eq!(durable_writes(long, short), 7);
    }
}
