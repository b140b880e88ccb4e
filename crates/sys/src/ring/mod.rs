//! The engine on io_uring: one ring for each thread that submits.
//!
//! ```text
//!   thread ── submit ──> its lane's ring ──> kernel
//!     │                        │
//!     │ waits (RealDriver)     │ completions
//!     └── reaps its own <──────┤
//!                              └──eventfd──> reaper thread: where the owner does not wait
//! ```
//!
//! While its owner waits, a lane's eventfd is switched off and the owner reaps; at all other times the reaper does.

pub(crate) mod bare;
mod flight;
mod lane;
mod probe;
mod reaper;

use std::cell::{Cell, OnceCell};
use std::io;
use std::sync::Arc;

use crate::ring::flight::Flight;
use crate::ring::lane::Lane;
use crate::ring::reaper::Reaper;
use crate::threads::Threads;
use crate::{Finish, Request};

/// The engine. One in a process: its lanes are the threads'.
pub(crate) struct Ring {
    reaper: &'static Reaper,
    /// For calls, and for threads that got no ring.
    threads: Arc<Threads>,
}

/// A thread's lane. Dropped when the thread ends, which waits until the lane has nothing in flight: the kernel would
/// cancel some of it otherwise.
struct Slot {
    lane: OnceCell<Option<Arc<Lane>>>,
    /// The thread is in the midst of making its lane.
    making: Cell<bool>,
}

thread_local! {
    static SLOT: Slot = const { Slot { lane: OnceCell::new(), making: Cell::new(false) } };
}

impl Drop for Slot {
    fn drop(&mut self) {
        if let Some(Some(lane)) = self.lane.get() {
            units::remove_reactor();
            lane.retire();
        }
    }
}

impl Ring {
    /// The engine, if this kernel has what it needs and lets us. The error says what is missing.
    pub(crate) fn start(threads: Arc<Threads>) -> io::Result<Ring> {
        let reaper = Reaper::shared()?;
        probe::probe()?;
        Ok(Ring { reaper, threads })
    }

    pub(crate) fn submit(&self, request: Request, finish: Finish) {
        let flight = match Flight::new(request, finish) {
            Ok(flight) => flight,
            // A call, or what the helper refuses in its own words.
            Err((request, finish)) => return self.threads.submit(request, finish),
        };
        let mut flight = Some(flight);
        // In a thread that is being torn down there is no lane any more.
        let _torn_down = SLOT.try_with(|slot| {
            if let Some(lane) = self.lane(slot)
                && let Some(flight) = flight.take()
            {
                lane.start(flight);
            }
        });
        if let Some(flight) = flight {
            let (request, finish) = flight.into_request();
            self.threads.submit(request, finish);
        }
    }

    fn lane<'a>(&self, slot: &'a Slot) -> Option<&'a Arc<Lane>> {
        if slot.making.replace(true) && slot.lane.get().is_none() {
            return None;
        }
        let lane = slot.lane.get_or_init(|| match Lane::new(self.reaper, Arc::clone(&self.threads)) {
            Ok(lane) => {
                units::install_reactor(Arc::clone(&lane) as Arc<dyn units::Reactor>);
                Some(lane)
            }
            Err(error) => {
                tracing::warn!(%error, "no ring for this thread: its operations go through helper threads");
                None
            }
        });
        lane.as_ref()
    }
}
