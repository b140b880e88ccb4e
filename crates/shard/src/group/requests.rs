//! Requests to other replicas of a group that wait for their answers.

use std::collections::BTreeMap;

use parking_lot::Mutex;
use replica::ReplicaId;

use crate::peer::{Answer, RequestId};
use futures_channel::oneshot::{Receiver, Sender, channel};

/// The requests of one replica that are under way.
pub(super) struct Requests(Mutex<State>);

struct State {
    last: u64,
    waiting: BTreeMap<RequestId, (ReplicaId, Sender<Answer>)>,
    /// The replica that answered last.
    answered: Option<ReplicaId>,
}

/// A request under way. Dropped, nobody waits for its answer any more.
pub(super) struct Asked<'a> {
    requests: &'a Requests,
    pub id: RequestId,
    pub answer: Receiver<Answer>,
}

impl Requests {
    /// `first`: a random number. A request of the replica before its last start has another number, and its late answer is no answer to one of now.
    pub(super) fn new(first: u64) -> Requests {
        Requests(Mutex::new(State { last: first, waiting: BTreeMap::new(), answered: None }))
    }

    /// Numbers a request to a replica.
    pub(super) fn begin(&self, to: ReplicaId) -> Asked<'_> {
        let (sender, answer) = channel();
        let mut state = self.0.lock();
        state.last = state.last.wrapping_add(1);
        let id = RequestId(state.last);
        state.waiting.insert(id, (to, sender));
        Asked { requests: self, id, answer }
    }

    /// An answer came from a replica, perhaps one that nobody waits for any more.
    pub(super) fn answer(&self, from: ReplicaId, id: RequestId, answer: Answer) {
        let sender = {
            let mut state = self.0.lock();
            if state.waiting.get(&id).is_none_or(|(asked, _)| *asked != from) {
                return;
            }
            state.answered = Some(from);
            state.waiting.remove(&id)
        };
        if let Some((_, sender)) = sender {
            sender.send(answer).ok();
        }
    }

    /// The replica that answered last.
    pub(super) fn answered_last(&self) -> Option<ReplicaId> {
        self.0.lock().answered
    }

    /// No answer counts any more: whoever waits for one hears so.
    pub(super) fn end(&self) {
        let waiting = std::mem::take(&mut self.0.lock().waiting);
        drop(waiting);
    }
}

impl Drop for Asked<'_> {
    fn drop(&mut self) {
        let given_up = self.requests.0.lock().waiting.remove(&self.id);
        drop(given_up);
    }
}

#[cfg(test)]
mod tests {
    use futures_channel::oneshot::Canceled;
    use units::{Driver, VirtualDriver, block_on};

    use super::*;

    #[test]
    fn only_the_replica_that_was_asked_answers_and_only_the_request_under_way() {
        let driver = VirtualDriver::new(1);
        let driver: &dyn Driver = &*driver;
        let requests = Requests::new(700);
        let mut asked = requests.begin(ReplicaId(2));
        let (id, earlier) = (asked.id, RequestId(asked.id.0 - 1));
        requests.answer(ReplicaId(3), id, Answer::NotNow);
        requests.answer(ReplicaId(2), earlier, Answer::NotNow);
        requests.answer(ReplicaId(2), id, Answer::Values(vec![]));
        assert_eq!(block_on(driver, &mut asked.answer), Ok(Answer::Values(vec![])));
        assert_eq!(requests.answered_last(), Some(ReplicaId(2)));
        let mut abandoned = requests.begin(ReplicaId(2));
        requests.end();
        assert_eq!(block_on(driver, &mut abandoned.answer), Err(Canceled));
        drop((asked, abandoned, requests.begin(ReplicaId(2))));
        assert!(requests.0.lock().waiting.is_empty());
    }
}
