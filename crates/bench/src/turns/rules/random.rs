//! ZooKeeper's rule: every server by itself, at a random length of its log.

use parking_lot::Mutex;
use units::SplitMix64;

use crate::turns::cluster::Cluster;
use crate::turns::load::TurnsLoad;

/// The lengths of the servers' logs at which their next snapshots begin.
pub(in crate::turns) struct Random {
    due: u64,
    state: Mutex<State>,
}

struct State {
    random: SplitMix64,
    begins_at: Vec<u64>,
}

impl Random {
    pub(super) fn new(load: &TurnsLoad, random: &mut SplitMix64) -> Random {
        let due = load.due_log().0 / load.entry.0;
        let mut random = SplitMix64::new(random.draw());
        let begins_at = (0..load.servers).map(|_| length(due, &mut random)).collect();
        Random { due, state: Mutex::new(State { random, begins_at }) }
    }

    /// True if the snapshot of server `at` was begun or is to begin.
    pub(super) fn may_write(&self, cluster: &Cluster, at: usize) -> bool {
        let server = cluster.server(at).state.lock();
        let begins_at = self.state.lock().begins_at.get(at).copied();
        server.snapshot.is_some() || begins_at.is_some_and(|at| server.entries_since_snapshot() >= at)
    }

    pub(super) fn durable(&self, at: usize) {
        let mut state = self.state.lock();
        let State { random, begins_at } = &mut *state;
        if let Some(begins_at) = begins_at.get_mut(at) {
            *begins_at = length(self.due, random);
        }
    }
}

/// A length of a log from half of the due one up to the due one, in entries.
fn length(due: u64, random: &mut SplitMix64) -> u64 {
    let half = (due / 2).max(1);
    half + random.draw() % half
}
