//! What a run counts.

use std::time::Duration;

use units::Instant;

use crate::Recorder;

/// The counts of a run. Writes and bulk bytes count while time is measured, the rest from the beginning on.
#[derive(Debug)]
pub(super) struct Tally {
    from: Instant,
    until: Instant,
    pub(super) writes: Recorder,
    pub(super) bulk_bytes: u64,
    /// Snapshots that became durable while time was measured.
    pub(super) snapshots: u64,
    /// Of those, how many were on the leader when they became durable.
    pub(super) on_leader: u64,
    pub(super) hand_overs: u64,
    /// The longest log, in entries.
    pub(super) longest_log: u64,
    /// Whether each server writes its snapshot now.
    writing: Vec<bool>,
    pub(super) most_at_once: usize,
}

impl Tally {
    pub(super) fn new(servers: usize, from: Instant, time: Duration) -> Tally {
        Tally {
            from,
            until: from.after(time),
            writes: Recorder::new(),
            bulk_bytes: 0,
            snapshots: 0,
            on_leader: 0,
            hand_overs: 0,
            longest_log: 0,
            writing: vec![false; servers],
            most_at_once: 0,
        }
    }

    fn counts(&self, at: Instant) -> bool {
        (self.from..self.until).contains(&at)
    }

    /// `count` writes that were sent at `sent` are answered at `answered`.
    pub(super) fn note_writes(&mut self, answered: Instant, sent: Instant, count: u64) {
        if self.counts(answered) {
            (0..count).for_each(|_| self.writes.record(answered.since(sent)));
        }
    }

    pub(super) fn note_bulk(&mut self, now: Instant, bytes: u64) {
        if self.counts(now) {
            self.bulk_bytes += bytes;
        }
    }

    pub(super) fn note_snapshot(&mut self, now: Instant, is_on_leader: bool) {
        if self.counts(now) {
            self.snapshots += 1;
            self.on_leader += u64::from(is_on_leader);
        }
    }

    /// Server `at` begins to write its snapshot, or has nothing of it in flight any more.
    pub(super) fn set_writing(&mut self, at: usize, writes: bool) {
        if let Some(place) = self.writing.get_mut(at) {
            *place = writes;
        }
        let at_once = self.writing.iter().filter(|writes| **writes).count();
        self.most_at_once = self.most_at_once.max(at_once);
    }
}
