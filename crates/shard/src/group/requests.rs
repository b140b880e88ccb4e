//! Requests to other replicas of a group that wait for their answers.

use std::collections::BTreeMap;

use parking_lot::Mutex;

use crate::peer::{Answer, RequestId};
use crate::reply::{Awaited, Giver, reply};

/// The requests of one replica that are under way.
#[derive(Default)]
pub(super) struct Requests(Mutex<State>);

#[derive(Default)]
struct State {
    last: u64,
    waiting: BTreeMap<RequestId, Giver<Answer>>,
}

impl Requests {
    /// Numbers a request, and waits for its answer.
    pub(super) fn begin(&self) -> (RequestId, Awaited<Answer>) {
        let (giver, awaited) = reply();
        let mut state = self.0.lock();
        state.last += 1;
        let id = RequestId(state.last);
        state.waiting.insert(id, giver);
        (id, awaited)
    }

    /// An answer came, perhaps one that nobody waits for any more.
    pub(super) fn answer(&self, id: RequestId, answer: Answer) {
        let giver = self.0.lock().waiting.remove(&id);
        if let Some(giver) = giver {
            giver.give(answer);
        }
    }

    /// Nobody waits for that answer any more.
    pub(super) fn give_up(&self, id: RequestId) {
        self.0.lock().waiting.remove(&id);
    }
}
