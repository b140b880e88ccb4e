//! Clients' operations, for the pace of background jobs.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicU32, AtomicUsize, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use zoned::Instant;
use zoned::share::Kind;

/// Most events that are kept until a background job reads them: the newest.
const MAX_EVENTS: usize = 16384;

/// The begin or the end of a client's operation.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(crate) enum ClientEvent {
    /// The time of an operation's begin.
    Began(Instant),
    /// An operation that succeeded.
    Ended { kind: Kind, bytes: u64, began: Instant, latency: Duration },
}

/// Collects what clients' operations do while at least one background job runs.
#[derive(Debug, Default)]
pub(crate) struct ClientOperations {
    jobs: AtomicU32,
    in_flight: AtomicUsize,
    events: Mutex<VecDeque<ClientEvent>>,
}

impl ClientOperations {
    /// True if a job runs.
    pub(crate) fn has_jobs(&self) -> bool {
        self.jobs.load(Ordering::Relaxed) > 0
    }

    /// A job begins.
    pub(crate) fn begin_job(&self) {
        self.jobs.fetch_add(1, Ordering::Relaxed);
    }

    /// A job ends.
    pub(crate) fn end_job(&self) {
        self.jobs.fetch_sub(1, Ordering::Relaxed);
    }

    /// An operation begins.
    pub(crate) fn began(&self, now: Instant) {
        self.in_flight.fetch_add(1, Ordering::Relaxed);
        self.add(ClientEvent::Began(now));
    }

    /// An operation that began ended; `ended` if it ended well.
    pub(crate) fn ended(&self, ended: Option<ClientEvent>) {
        self.in_flight.fetch_sub(1, Ordering::Relaxed);
        if let Some(event) = ended {
            self.add(event);
        }
    }

    fn add(&self, event: ClientEvent) {
        let mut events = self.events.lock();
        if events.len() >= MAX_EVENTS {
            events.pop_front();
        }
        events.push_back(event);
    }

    /// Takes all events, in their order. True with them if an operation is in flight.
    pub(crate) fn take(&self) -> (VecDeque<ClientEvent>, bool) {
        let events = std::mem::take(&mut *self.events.lock());
        (events, self.in_flight.load(Ordering::Relaxed) > 0)
    }
}
