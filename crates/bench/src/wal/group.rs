//! Group commit as RocksDB has it: a leader writes for the writers that wait behind it.

use std::collections::VecDeque;
use std::sync::Arc;

use fs::Result;
use parking_lot::Mutex;
use units::sync::Event;

use super::logs::Logs;

/// Most bytes of a group (`MAX_GROUP_BYTES`); a leader whose own record is small adds at most `MAX_JOINED_BYTES` bytes of other writers' records.
const MAX_GROUP_BYTES: usize = 1 << 20;
const MAX_JOINED_BYTES: usize = MAX_GROUP_BYTES / 8;

/// The queue of group commit's writers.
#[derive(Debug, Default)]
pub(super) struct Group {
    queue: Mutex<Queue>,
}

#[derive(Debug, Default)]
struct Queue {
    waiting: VecDeque<(Arc<Waiter>, bool)>,
    led: bool,
}

/// A writer that waits for a leader's result, or for its turn to lead.
#[derive(Debug, Default)]
pub(super) struct Waiter {
    state: Mutex<WaiterState>,
    changed: Event,
}

#[derive(Debug, Default)]
enum WaiterState {
    #[default]
    Waiting,
    Leads,
    Done(Result<()>),
}

impl Waiter {
    fn set(&self, state: WaiterState) {
        *self.state.lock() = state;
        self.changed.notify();
    }

    /// The result of the writer's record; `None` if the writer leads the next group.
    async fn wait(&self) -> Option<Result<()>> {
        loop {
            let seen = self.changed.version();
            match std::mem::take(&mut *self.state.lock()) {
                WaiterState::Waiting => {}
                WaiterState::Leads => return None,
                WaiterState::Done(result) => return Some(result),
            }
            self.changed.changed_since(seen).await;
        }
    }
}

impl Group {
    /// Appends `record`, alone or in a group. All writers' records have the same length. `data` is the caller's buffer for
    /// a group that it leads.
    pub(super) async fn append(
        &self,
        logs: &Logs,
        me: &Arc<Waiter>,
        record: &[u8],
        sync: bool,
        data: &mut Vec<u8>,
    ) -> Result<()> {
        let leads = {
            let mut queue = self.queue.lock();
            queue.waiting.push_back((Arc::clone(me), sync));
            !std::mem::replace(&mut queue.led, true)
        };
        if !leads && let Some(result) = me.wait().await {
            return result;
        }
        let most =
            if record.len() <= MAX_JOINED_BYTES { record.len() + MAX_JOINED_BYTES } else { MAX_GROUP_BYTES };
        let group = self.take_next_group(most / record.len().max(1));
        data.clear();
        for _ in &group {
            data.extend_from_slice(record);
        }
        let result = logs.append(data, group.iter().any(|(_, sync)| *sync)).await;
        self.wake_next_leader();
        for (follower, _) in group.iter().filter(|(follower, _)| !Arc::ptr_eq(follower, me)) {
            follower.set(WaiterState::Done(result.clone()));
        }
        result
    }

    /// Takes the next group from the queue: the leader first. A writer that wants a sync does not join a leader that does not.
    fn take_next_group(&self, most: usize) -> Vec<(Arc<Waiter>, bool)> {
        let mut queue = self.queue.lock();
        let leader_syncs = queue.waiting.front().is_some_and(|(_, sync)| *sync);
        let fit = queue.waiting.iter().take_while(|(_, sync)| leader_syncs || !*sync).count();
        queue.waiting.drain(..fit.min(most.max(1))).collect()
    }

    fn wake_next_leader(&self) {
        let mut queue = self.queue.lock();
        match queue.waiting.front() {
            Some((next, _)) => next.set(WaiterState::Leads),
            None => queue.led = false,
        }
    }
}
