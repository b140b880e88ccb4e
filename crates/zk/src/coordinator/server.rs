//! One server, as the coordinator knows it.

use std::time::Duration;

use units::{Bytes, Instant};

use super::message::Outcome;
use super::settings::Settings;
use crate::sample::{Health, Role, Sample, Zxid};

/// A server's syncs count as slow above this many times their usual mean, and [`TRUNCATION`].
const SLOW: u32 = 2;

/// ZooKeeper counts whole milliseconds of each sync, so that a mean errs by up to one.
const TRUNCATION: Duration = Duration::from_millis(1);

/// The weight of an older mean of the syncs' times against a new sample's.
const MEMORY: u32 = 15;

/// Size of a log's record before the leader has shown the size of a proposal.
pub const UNKNOWN_RECORD: Bytes = Bytes(256);

/// A disturbance of a server's syncs: by a snapshot that has just been written, or that a server may have taken by itself.
#[derive(Clone, Copy, Debug)]
struct Disturbance {
    /// The syncs were slow, or not yet watched, at this time.
    slow_at: Instant,
    /// When the disturbance is over in any case.
    over_at: Instant,
}

/// Changes that a new poll shows.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Changes {
    /// Snapshots that nobody commanded here.
    pub own_snapshots: u64,
    /// The server's counter shows every commanded snapshot: none is under way.
    pub counts_commanded: bool,
    /// The server's process is another one.
    pub restarted: bool,
    /// The server serves clients, which it did not at the poll before.
    pub began_to_serve: bool,
}

/// One server.
#[derive(Debug, Default)]
pub struct Server {
    /// The newest poll and its time.
    poll: Option<(Instant, Health)>,
    /// The newest sample; older than `poll` where the server does not serve.
    sample: Option<Sample>,
    /// Entries of the log since the last snapshot.
    entries: u64,
    /// Size of the last commanded snapshot.
    snapshot_size: Option<Bytes>,
    /// The last transaction in that snapshot. A poll that was begun before its end does not show it.
    snapshot_zxid: Option<Zxid>,
    /// The usual mean time of a sync.
    usual_sync: Option<Duration>,
    /// The mean time of a sync between the last two samples; `None` without syncs.
    recent_sync: Option<Duration>,
    disturbance: Option<Disturbance>,
    /// Nobody has listened at the server's address since the last sample: the process of that sample has ended.
    was_not_listening: bool,
    /// Commanded snapshots that the server may have begun and that its counter does not show yet.
    commanded: u64,
    /// When the server answered that a commanded snapshot is taken. A poll begun later shows all that were commanded.
    answered_at: Option<Instant>,
    retry_at: Option<Instant>,
}

impl Server {
    /// Takes in a poll that was begun at `asked_at`.
    pub fn record(
        &mut self,
        asked_at: Instant,
        health: Health,
        settings: &Settings,
        has_turn: bool,
    ) -> Changes {
        let served = self.is_serving();
        let mut changes = Changes::default();
        let mut health = health;
        if let Health::Serving(new) = &mut health {
            new.snapshot = new.snapshot.max(self.snapshot_zxid);
            changes.began_to_serve = !served;
            let before = self.sample.take();
            if let Some(before) = &before {
                changes.restarted = self.was_not_listening;
                self.count_snapshots(asked_at, before, new, &mut changes);
            }
            self.was_not_listening = false;
            self.entries = entries(before.as_ref(), self.entries, new);
            self.sample = Some(new.clone());
            if changes.began_to_serve || changes.own_snapshots > 0 {
                self.disturb(asked_at, settings);
            }
        }
        self.was_not_listening |= matches!(health, Health::Gone(_));
        self.watch_syncs(asked_at, has_turn);
        self.poll = Some((asked_at, health));
        changes
    }

    fn count_snapshots(&mut self, asked_at: Instant, before: &Sample, new: &Sample, changes: &mut Changes) {
        if changes.restarted {
            self.commanded = 0;
        }
        let (snapshots, syncs, sync_time) = if changes.restarted || new.counters_fell(before) {
            (new.snapshots, new.syncs, new.sync_time)
        } else {
            (
                new.snapshots - before.snapshots,
                new.syncs - before.syncs,
                new.sync_time.saturating_sub(before.sync_time),
            )
        };
        let ours = snapshots.min(self.commanded);
        self.commanded -= ours;
        changes.counts_commanded = ours > 0 && self.commanded == 0;
        changes.own_snapshots = snapshots - ours;
        if self.answered_at.is_some_and(|answered_at| asked_at >= answered_at) {
            // One of them may never have been begun.
            (self.commanded, self.answered_at) = (0, None);
        }
        self.recent_sync = sync_time.checked_div(u32::try_from(syncs).unwrap_or(u32::MAX));
    }

    fn watch_syncs(&mut self, asked_at: Instant, has_turn: bool) {
        let is_slow = self.syncs_are_slow();
        if let Some(disturbance) = &mut self.disturbance {
            if is_slow {
                disturbance.slow_at = disturbance.slow_at.max(asked_at);
            }
        } else if let (Some(recent), false) = (self.recent_sync, has_turn) {
            // A drive that stays slow becomes the usual.
            self.usual_sync =
                Some(self.usual_sync.map_or(recent, |usual| (usual * MEMORY + recent) / (MEMORY + 1)));
        }
    }

    fn syncs_are_slow(&self) -> bool {
        match (self.recent_sync, self.usual_sync) {
            (Some(recent), Some(usual)) => recent > usual.saturating_mul(SLOW) + TRUNCATION,
            _ => false,
        }
    }

    /// Counts the server as disturbed from `now` on, until its syncs have been as fast as usual for [`Settings::settle_time`].
    pub fn disturb(&mut self, now: Instant, settings: &Settings) {
        self.disturbance =
            Some(Disturbance { slow_at: now, over_at: now.after(settings.longest_settle_time) });
    }

    /// Ends a disturbance whose time is over. Returns true if the syncs were still slow then.
    pub fn settle(&mut self, now: Instant, settings: &Settings) -> Option<bool> {
        let disturbance = self.disturbance?;
        // A server that fell silent has not settled: polls must have seen fast syncs.
        let seen_until = match &self.poll {
            Some((asked_at, Health::Serving(_))) => *asked_at,
            _ => disturbance.slow_at,
        };
        let is_settled = seen_until >= disturbance.slow_at
            && seen_until.since(disturbance.slow_at) >= settings.settle_time;
        let is_over = now >= disturbance.over_at;
        (is_settled || is_over).then(|| {
            self.disturbance = None;
            !is_settled
        })
    }

    /// True while a snapshot's pages may be on their way to the drive.
    pub fn is_settling(&self) -> bool {
        self.disturbance.is_some()
    }

    /// A snapshot was commanded.
    pub fn note_command(&mut self) {
        self.commanded += 1;
    }

    /// The command ended with `outcome`.
    pub fn note_outcome(&mut self, now: Instant, outcome: &Outcome, settings: &Settings) {
        self.retry_at = None;
        match outcome {
            Outcome::Taken { size, zxid } => {
                self.answered_at = Some(now);
                self.snapshot_size = Some(*size);
                self.snapshot_zxid = Some(*zxid);
                if let Some(sample) = &mut self.sample {
                    sample.snapshot = sample.snapshot.max(Some(*zxid));
                    self.entries = entries(None, 0, sample);
                }
            }
            Outcome::Unanswered(_) => {}
            Outcome::RateLimited | Outcome::Refused(_) => {
                self.commanded = self.commanded.saturating_sub(1);
                self.retry_at = Some(now.after(settings.retry_after));
            }
            Outcome::Failed(_) => {
                self.commanded = 0;
                self.retry_at = Some(now.after(settings.retry_after));
            }
        }
    }

    /// True while the server is not to be commanded again.
    pub fn retries_later(&self, now: Instant) -> bool {
        self.retry_at.is_some_and(|retry_at| now < retry_at)
    }

    /// The state in the newest poll.
    pub fn health(&self) -> Option<&Health> {
        self.poll.as_ref().map(|(_, health)| health)
    }

    fn is_serving(&self) -> bool {
        matches!(self.poll, Some((_, Health::Serving(_))))
    }

    /// True if nobody listens at the server's address: its process has ended.
    pub fn is_not_listening(&self) -> bool {
        matches!(self.poll, Some((_, Health::Gone(_))))
    }

    /// True if the AdminServer answers and the server serves nobody: a snapshot may be under way that the server takes before it serves.
    pub fn is_starting(&self) -> bool {
        matches!(self.poll, Some((_, Health::Starting)))
    }

    /// The newest sample, if it is fresh.
    pub fn fresh(&self, now: Instant, settings: &Settings) -> Option<&Sample> {
        match &self.poll {
            Some((asked_at, Health::Serving(sample))) if now.since(*asked_at) <= settings.sample_age => {
                Some(sample)
            }
            _ => None,
        }
    }

    /// True if the server serves, but its newest sample is too old for a turn: the server takes too long to answer.
    pub fn answers_slowly(&self, now: Instant, settings: &Settings) -> bool {
        self.is_serving() && self.fresh(now, settings).is_none()
    }

    /// True if the server serves, its syncs are as fast as usual, and no snapshot disturbs it.
    pub fn is_undisturbed(&self, now: Instant, settings: &Settings) -> bool {
        self.fresh(now, settings).is_some() && self.disturbance.is_none() && !self.syncs_are_slow()
    }

    /// Estimated bytes of the log since the last snapshot, with records of `record` bytes.
    pub fn log(&self, record: Bytes) -> Bytes {
        Bytes(self.entries.saturating_mul(record.0))
    }

    /// Estimated bytes of a snapshot: of the last one, or from the size of the data.
    pub fn snapshot(&self) -> Bytes {
        self.snapshot_size.or(self.sample.as_ref().map(|sample| sample.data)).unwrap_or(Bytes::ZERO)
    }

    /// True if the server's snapshot is due.
    pub fn is_due(&self, record: Bytes, settings: &Settings) -> bool {
        let log = self.log(record);
        log >= self.snapshot().max(settings.least_log) || log >= settings.longest_log
    }

    /// Bytes that the log lacks to its longest length.
    pub fn room(&self, record: Bytes, settings: &Settings) -> Bytes {
        settings.longest_log.minus(self.log(record))
    }

    /// True if the newest sample is of the leader.
    pub fn leads(&self, now: Instant, settings: &Settings) -> bool {
        self.fresh(now, settings).is_some_and(|sample| sample.role == Role::Leader)
    }
}

/// Entries of the log since the last snapshot, where `before` and `counted` are the sample before and the entries then. Exact within an epoch. Where the
/// snapshot is of an epoch before and nobody counted, the current epoch's entries alone.
fn entries(before: Option<&Sample>, counted: u64, new: &Sample) -> u64 {
    let snapshot = new.snapshot.unwrap_or(Zxid(0));
    if new.zxid <= snapshot {
        return 0;
    }
    if new.zxid.epoch() == snapshot.epoch() {
        return new.zxid.counter() - snapshot.counter();
    }
    match before {
        Some(before) if before.snapshot == new.snapshot && before.zxid.epoch() == new.zxid.epoch() => {
            counted + new.zxid.counter().saturating_sub(before.zxid.counter())
        }
        Some(before) if before.snapshot == new.snapshot => counted + new.zxid.counter(),
        _ => new.zxid.counter(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sample::ServerId;

    const AT: fn(u64) -> Instant = |seconds| Instant(seconds * 1_000_000_000);

    fn sample(zxid: (u64, u64), snapshot: (u64, u64)) -> Sample {
        let zxid_of = |(epoch, counter): (u64, u64)| Zxid(epoch << 32 | counter);
        Sample {
            role: Role::Follower,
            leader: ServerId(3),
            zxid: zxid_of(zxid),
            snapshot: Some(zxid_of(snapshot)),
            snapshots: 1,
            syncs: 0,
            sync_time: Duration::ZERO,
            data: Bytes(1000),
            proposal: None,
        }
    }

    #[test]
    fn entries_are_counted_within_and_across_epochs() {
        let first = sample((2, 90), (2, 50));
        assert_eq!(entries(None, 0, &first), 40);
        let next_epoch = sample((3, 7), (2, 50));
        assert_eq!(entries(Some(&first), 40, &next_epoch), 47);
        assert_eq!(entries(Some(&next_epoch), 47, &sample((3, 10), (2, 50))), 50);
        assert_eq!(entries(Some(&next_epoch), 47, &sample((3, 10), (3, 9))), 1);
        assert_eq!(entries(None, 0, &next_epoch), 7, "nobody counted the epoch before");
        assert_eq!(entries(None, 0, &sample((2, 50), (2, 50))), 0);
    }

    #[test]
    fn a_server_is_disturbed_until_its_syncs_are_as_fast_as_usual_for_a_while() {
        let settings = Settings { settle_time: Duration::from_secs(4), ..Settings::default() };
        let mut server = Server::default();
        let poll = |server: &mut Server, at: u64, mean: u64| {
            let mut new = sample((1, 1), (1, 1));
            let before = server.sample.clone();
            new.syncs = before.as_ref().map_or(0, |s| s.syncs + 10);
            new.sync_time = before.map_or(Duration::ZERO, |s| s.sync_time + Duration::from_millis(10 * mean));
            server.record(AT(at), Health::Serving(new), &settings, false);
            server.settle(AT(at), &settings)
        };
        assert_eq!(poll(&mut server, 0, 0), None);
        assert_eq!((2..8).step_by(2).filter_map(|at| poll(&mut server, at, 3)).collect::<Vec<_>>(), [false]);
        assert!(server.is_undisturbed(AT(8), &settings));
        server.disturb(AT(10), &settings);
        assert_eq!(poll(&mut server, 12, 3), None);
        assert_eq!(poll(&mut server, 14, 50), None, "slow now");
        assert_eq!(poll(&mut server, 16, 3), None);
        assert_eq!(poll(&mut server, 18, 3), Some(false), "settled from 14 to 18");
        server.disturb(AT(20), &settings);
        assert!((22..140).step_by(2).all(|at| poll(&mut server, at, 50).is_none()));
        assert_eq!(poll(&mut server, 140, 50), Some(true), "given up");
    }

    #[test]
    fn snapshots_that_nobody_commanded_are_told_apart() {
        let settings = Settings::default();
        let mut server = Server::default();
        let record = |server: &mut Server, snapshots| {
            let new = Sample { snapshots, ..sample((1, 1), (1, 1)) };
            let changes = server.record(AT(1), Health::Serving(new), &settings, false);
            (changes.own_snapshots, changes.counts_commanded, changes.restarted)
        };
        assert_eq!(record(&mut server, 3), (0, false, false), "taken before anyone looked");
        server.note_command();
        assert_eq!(record(&mut server, 4), (0, true, false));
        assert_eq!(record(&mut server, 5), (1, false, false));
        server.note_command();
        assert_eq!(record(&mut server, 0), (0, false, false), "statistics were reset");
        assert_eq!(record(&mut server, 1), (0, true, false));
        server.note_command();
        server.record(AT(1), Health::Gone("refused".into()), &settings, false);
        assert_eq!(record(&mut server, 1), (1, false, true));
    }

    #[test]
    fn a_commanded_snapshot_that_never_was_takes_no_later_one_for_its_own() {
        let settings = Settings::default();
        let mut server = Server::default();
        let record = |server: &mut Server, at, snapshots| {
            let new = Sample { snapshots, ..sample((1, 1), (1, 1)) };
            let changes = server.record(AT(at), Health::Serving(new), &settings, false);
            (changes.own_snapshots, changes.counts_commanded)
        };
        record(&mut server, 1, 0);
        server.note_command();
        server.note_outcome(AT(2), &Outcome::Unanswered("reset".into()), &settings);
        server.note_command();
        assert_eq!(record(&mut server, 303, 1), (0, false), "one of two, and the other may be under way");
        server.note_outcome(AT(304), &Outcome::Taken { size: Bytes(1), zxid: Zxid(1) }, &settings);
        assert_eq!(record(&mut server, 305, 1), (0, false));
        assert_eq!(record(&mut server, 306, 2), (1, false), "its own");
    }
}
