//! When a leader answers reads by itself, and when a replica votes.

use std::collections::BTreeMap;

use units::Instant;

use crate::rules::Rules;
use crate::{Configuration, ReplicaId, Settings};

/// A leader's lease: while it lasts no other replica can have been elected, so that the leader has every committed write.
///
/// The lease lasts one election timeout, less what the leader's clock may be slower than others, from the *sending* of the heartbeat that a majority has acknowledged. Each acknowledging replica promised not to vote for one election timeout from then on ([`VotePromise`]). A leader that hands leadership over
/// has no lease from then to the end of its term: a replica votes for the successor in spite of its promise, also by a message that comes late.
#[derive(Clone, Debug)]
pub struct LeaderLease {
    settings: Settings,
    rules: Rules,
    leader: ReplicaId,
    began: Instant,
    /// When the last heartbeat was sent that a replica acknowledged.
    acknowledged: BTreeMap<ReplicaId, Instant>,
    is_handing_over: bool,
}

impl LeaderLease {
    /// The lease of a leader whose term begins at `now`: it does not last yet.
    pub fn new(settings: &Settings, leader: ReplicaId, now: Instant) -> LeaderLease {
        let rules = settings.rules();
        LeaderLease {
            settings: *settings,
            rules,
            leader,
            began: now,
            acknowledged: BTreeMap::new(),
            is_handing_over: false,
        }
    }

    /// A replica acknowledged a heartbeat of this term, which was sent at `sent`; the acknowledgement came at `now`. Both are of the leader's clock.
    pub fn acknowledge(&mut self, from: ReplicaId, sent: Instant, now: Instant) {
        let since = if self.rules.counts_from_receipt() { now } else { sent };
        let last = self.acknowledged.entry(from).or_default();
        *last = since.max(*last);
    }

    /// The leader begins to hand leadership over.
    pub fn hand_over(&mut self) {
        self.is_handing_over = true;
    }

    /// True if no majority has acknowledged a heartbeat of the last election timeout: the leader is cut off, and another one may be there.
    pub fn is_cut_off(&self, now: Instant, voters: &Configuration) -> bool {
        let is_old = |since: Instant| now.since(since) >= self.settings.election_timeout;
        let has_acknowledged = |id| self.acknowledged.get(&id).is_some_and(|sent| !is_old(*sent));
        is_old(self.began) && !voters.is_majority(|id| id == self.leader || has_acknowledged(id))
    }

    /// When the last heartbeat was sent that a replica has acknowledged.
    pub fn acknowledged_by(&self, replica: ReplicaId) -> Option<Instant> {
        self.acknowledged.get(&replica).copied()
    }

    /// The latest time at which a majority is known to have had no other leader: it acknowledged heartbeats that were sent then or later. By the leader's clock alone, whatever clocks do elsewhere.
    pub fn confirmed_at(&self, voters: &Configuration) -> Instant {
        let mut times: Vec<Instant> = self.acknowledged.values().copied().collect();
        times.sort_unstable_by(|a, b| b.cmp(a));
        let is_confirmed = |at: &Instant| {
            let has_acknowledged = |id| self.acknowledged.get(&id).is_some_and(|sent| sent >= at);
            voters.is_majority(|id| id == self.leader || has_acknowledged(id))
        };
        times.into_iter().find(is_confirmed).unwrap_or(Instant::ORIGIN)
    }

    /// True if the lease lasts at `now`. A read counts if this is true *after* it was carried out.
    pub fn lasts(&self, now: Instant, voters: &Configuration) -> bool {
        if self.is_handing_over && !self.rules.keeps_lease_in_transfer() {
            return false;
        }
        let lease = self.settings.lease();
        voters.is_majority(|id| {
            id == self.leader || self.acknowledged.get(&id).is_some_and(|sent| now.since(*sent) < lease)
        })
    }
}

/// A replica's promise not to vote, given with each acknowledged heartbeat.
///
/// A replica that starts does not know what it promised before, and promises anew: it votes for nobody for one election timeout.
#[derive(Clone, Debug)]
pub struct VotePromise {
    settings: Settings,
    rules: Rules,
    until: Instant,
}

impl VotePromise {
    /// The promise of a replica that starts at `now`.
    pub fn new(settings: &Settings, now: Instant) -> VotePromise {
        let rules = settings.rules();
        let until = if rules.forgets_promises() { now } else { now.after(settings.election_timeout) };
        VotePromise { settings: *settings, rules, until }
    }

    /// The replica acknowledges a heartbeat of a leader.
    pub fn acknowledge(&mut self, now: Instant) {
        self.until = self.until.max(now.after(self.settings.election_timeout));
    }

    /// True if the replica may vote, or answer that it would. `is_transfer`: the candidate stands because the leader hands over to it.
    pub fn allows_vote(&self, now: Instant, is_transfer: bool) -> bool {
        is_transfer || now >= self.until || self.rules.votes_early()
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::Role;

    /// An election timeout of 1,000 ms and a drift of 1 %: a lease of 990 ms.
    fn settings() -> Settings {
        Settings { election_timeout: Duration::from_secs(1), drift: 10_000, ..Settings::default() }
    }

    fn at(ms: u64) -> Instant {
        Instant::ORIGIN.after(Duration::from_millis(ms))
    }

    fn five() -> Configuration {
        let roles = [Role::Witness, Role::Backup, Role::Backup, Role::Witness, Role::Witness];
        Configuration::new((1..).map(ReplicaId).zip(roles))
    }

    #[test]
    fn a_lease_counts_from_the_sending_of_what_a_majority_has_acknowledged() {
        let mut lease = LeaderLease::new(&settings(), ReplicaId(1), at(0));
        lease.acknowledge(ReplicaId(2), at(100), at(700));
        assert!(!lease.lasts(at(700), &five()));
        lease.acknowledge(ReplicaId(3), at(200), at(800));
        assert!(lease.lasts(at(1_089), &five()));
        assert!(!lease.lasts(at(1_090), &five()));
        // A late acknowledgement of an older heartbeat takes nothing away.
        lease.acknowledge(ReplicaId(3), at(150), at(900));
        lease.acknowledge(ReplicaId(4), at(300), at(900));
        assert!(lease.lasts(at(1_189), &five()));
        assert!(!lease.lasts(at(1_190), &five()));
    }

    #[test]
    fn a_majority_s_heartbeats_confirm_what_came_before_their_sending() {
        let mut lease = LeaderLease::new(&settings(), ReplicaId(1), at(0));
        assert_eq!(lease.confirmed_at(&five()), at(0));
        lease.acknowledge(ReplicaId(2), at(100), at(9_000));
        assert_eq!(lease.confirmed_at(&five()), at(0));
        lease.acknowledge(ReplicaId(3), at(200), at(9_000));
        assert_eq!(lease.confirmed_at(&five()), at(100));
        lease.acknowledge(ReplicaId(4), at(300), at(9_000));
        assert_eq!(lease.confirmed_at(&five()), at(200));
    }

    #[test]
    fn a_leader_that_hands_over_has_no_lease_any_more() {
        let mut lease = LeaderLease::new(&settings(), ReplicaId(1), at(0));
        for other in [2, 3] {
            lease.acknowledge(ReplicaId(other), at(100), at(100));
        }
        lease.hand_over();
        lease.acknowledge(ReplicaId(2), at(200), at(200));
        assert!(!lease.lasts(at(200), &five()));
    }

    #[test]
    fn a_promise_lasts_longer_than_the_lease_that_rests_on_it() {
        // The voter's clock is 1 % faster than the leader's: 1,000 ms there are 990 here.
        let mut promise = VotePromise::new(&settings(), at(0));
        promise.acknowledge(at(5_000));
        assert!(!promise.allows_vote(at(5_999), false));
        assert!(promise.allows_vote(at(6_000), false));
        let mut lease = LeaderLease::new(&settings(), ReplicaId(1), at(0));
        for other in [2, 3] {
            lease.acknowledge(ReplicaId(other), at(5_000), at(5_000));
        }
        assert!(!lease.lasts(at(5_990), &five()));
    }

    #[test]
    fn a_replica_that_starts_votes_for_nobody_for_one_election_timeout() {
        let promise = VotePromise::new(&settings(), at(5_000));
        assert!(!promise.allows_vote(at(5_999), false));
        assert!(promise.allows_vote(at(5_999), true));
        assert!(promise.allows_vote(at(6_000), false));
    }
}
