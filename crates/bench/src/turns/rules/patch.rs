//! The rule of ZOOKEEPER-3657: the leader pings, and lets one more server write with each ping.

use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use units::{Bytes, sleep_until};

use crate::turns::cluster::Cluster;
use crate::turns::load::TurnsLoad;

/// The time from one ping to the next: the patch's settings have whole seconds.
const PING_EVERY: Duration = Duration::from_secs(1);
/// A server is slow if its log's syncs take more than this many times as long as alone.
const SLOW: u32 = 2;

/// The servers that the leader let write.
pub(in crate::turns) struct Patch {
    due: Bytes,
    writes: Mutex<Vec<bool>>,
}

impl Patch {
    pub(super) fn new(load: &TurnsLoad) -> Patch {
        Patch { due: load.due_log(), writes: Mutex::new(vec![false; load.servers as usize]) }
    }

    /// Pings, for ever. Leaders count as any server, and a ping's answers are at hand at once.
    pub(super) async fn lead(self: Arc<Self>, cluster: Arc<Cluster>) {
        loop {
            sleep_until(&*cluster.driver, cluster.now().after(PING_EVERY)).await;
            self.let_one_more(&cluster);
        }
    }

    fn let_one_more(&self, cluster: &Cluster) {
        let mut writes = self.writes.lock();
        let waiting: Vec<_> = (0..cluster.len())
            .filter(|at| !writes.get(*at).is_some_and(|writes| *writes))
            .map(|at| (at, cluster.status(at, Bytes(u64::MAX))))
            .collect();
        let slow =
            waiting.iter().filter(|(_, status)| status.sync_p99 > SLOW * status.sync_p99_alone).count();
        let busy = slow + cluster.len() - waiting.len();
        if busy >= cluster.len() - cluster.majority() {
            return;
        }
        // All entries are of one size: the log with the most of them has the most bytes too.
        let due = waiting.iter().filter(|(_, status)| status.log >= self.due);
        let next = due.max_by_key(|(at, status)| (status.entries, std::cmp::Reverse(*at)));
        if let Some(place) = next.and_then(|(at, _)| writes.get_mut(*at)) {
            *place = true;
        }
    }

    pub(super) fn may_write(&self, at: usize) -> bool {
        self.writes.lock().get(at).is_some_and(|writes| *writes)
    }

    pub(super) fn durable(&self, at: usize) {
        if let Some(place) = self.writes.lock().get_mut(at) {
            *place = false;
        }
    }
}
